/* The states of several ranks. */
#ifndef FBY_PYTHON_STATES_H
#define FBY_PYTHON_STATES_H

#include "python/extension/python.h"

/* Adds merge_states to the module. -1 with an exception set. */
int fby_py_states_register(PyObject *module);

#endif
