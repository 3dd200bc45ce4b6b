#include "python/extension/errors.h"

#include <string.h>

PyObject *fby_py_raise(int code, const fby_error *error)
{
    PyObject *module = PyImport_ImportModule("forebay.errors");
    if (!module) return NULL;
    /* The text may quote a path of any bytes: surrogates carry what isn't UTF-8, as os.fsdecode does. */
    PyObject *text = PyUnicode_DecodeUTF8(error->text, (Py_ssize_t)strlen(error->text), "surrogateescape");
    PyObject *exception = NULL;
    if (text) {
        exception = PyObject_CallMethod(module, "from_status", "iOiiK", code, text, (int)error->pid,
                                        (int)error->signal, (unsigned long long)error->sample);
    }
    if (exception) {
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_DECREF(exception);
    }
    Py_XDECREF(text);
    Py_DECREF(module);
    return NULL;
}
