/* The part of Python's C API that every later Python 3 keeps: one module for 3.9 and all after it. */
#ifndef FBY_PYTHON_PYTHON_H
#define FBY_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000
#endif
#include <Python.h>

#endif
