/* _forebay: the client API for Python. */
#include <forebay/forebay.h>

#include "python/extension/python.h"
#include "python/extension/states.h"
#include "python/extension/task.h"
#include "python/extension/tensor.h"

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "forebay._forebay", "Forebay's client API.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__forebay(void);

PyMODINIT_FUNC PyInit__forebay(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    if (PyModule_AddStringConstant(module, "__version__", fby_version()) ||
        PyModule_AddIntConstant(module, "AUTO", FBY_MODE_AUTO) ||
        PyModule_AddIntConstant(module, "RUNNING", FBY_MODE_RUNNING) ||
        PyModule_AddIntConstant(module, "EMBEDDED", FBY_MODE_EMBEDDED) ||
        PyModule_AddIntConstant(module, "PADDED", FBY_SAMPLE_PADDED) ||
        PyModule_AddIntConstant(module, "REPEAT", FBY_SAMPLE_REPEAT) ||
        PyModule_AddIntConstant(module, "SUBSTITUTE", FBY_SAMPLE_SUBSTITUTE) ||
        fby_py_tensor_register(module) || fby_py_states_register(module) || fby_py_task_register(module)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
