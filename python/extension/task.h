/* _forebay.Task: a connection and its task, the C API nearly as it is. Loader gives it its shape in Python.
 */
#ifndef FBY_PYTHON_TASK_H
#define FBY_PYTHON_TASK_H

#include "python/extension/python.h"

/* Adds the type to the module. -1 with an exception set. */
int fby_py_task_register(PyObject *module);

#endif
