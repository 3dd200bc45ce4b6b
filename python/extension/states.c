#include "python/extension/states.h"

#include <forebay/forebay.h>
#include <stdlib.h>

#include "python/extension/errors.h"

static PyObject *merge_states(PyObject *module, PyObject *list)
{
    (void)module;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "merge_states: expected a list of bytes");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(list);
    const void **states = calloc((size_t)count + 1, sizeof *states);
    size_t *bytes = calloc((size_t)count + 1, sizeof *bytes);
    PyObject *result = NULL;
    if (!states || !bytes) PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        char *state;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, i), &state, &size)) break;
        states[i] = state;
        bytes[i] = (size_t)size;
    }
    if (!PyErr_Occurred()) {
        fby_error error = FBY_ERROR_INIT;
        void *merged = NULL;
        size_t merged_bytes = 0;
        int status = fby_state_merge(states, bytes, (uint32_t)count, &merged, &merged_bytes, &error);
        result = status ? fby_py_raise(status, &error)
                        : PyBytes_FromStringAndSize(merged, (Py_ssize_t)merged_bytes);
        free(merged);
    }
    free(states);
    free(bytes);
    return result;
}

static PyMethodDef functions[] = {
    {"merge_states", merge_states, METH_O,
     "merge_states(list): the states of all ranks of a task as one, which any number of ranks goes on from."},
    {NULL},
};

int fby_py_states_register(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
