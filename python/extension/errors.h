/* From a fby_error to an exception of forebay.errors. */
#ifndef FBY_PYTHON_ERRORS_H
#define FBY_PYTHON_ERRORS_H

#include <forebay/error.h>

#include "python/extension/python.h"

/* Sets the exception that fits `code`; returns NULL, for `return fby_py_raise(…)`. */
PyObject *fby_py_raise(int code, const fby_error *error);

#endif
