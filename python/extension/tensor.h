/* forebay.Tensor: a contiguous array in memory that is held for as long as anybody looks at it. */
#ifndef FBY_PYTHON_TENSOR_H
#define FBY_PYTHON_TENSOR_H

#include "python/extension/python.h"
#include "python/extension/session.h"

/* The elements of batches (fby_element's numbers), and of labels, ids and flags. */
typedef enum fby_py_element {
    FBY_PY_U8 = FBY_ELEMENT_U8,
    FBY_PY_U16 = FBY_ELEMENT_U16,
    FBY_PY_F16 = FBY_ELEMENT_F16,
    FBY_PY_BF16 = FBY_ELEMENT_BF16,
    FBY_PY_F32 = FBY_ELEMENT_F32,
    FBY_PY_I64,
    FBY_PY_U64,
    FBY_PY_U32,
    FBY_PY_ELEMENTS
} fby_py_element;

/* Adds the type to the module. -1 with an exception set. */
int fby_py_tensor_register(PyObject *module);
/* Keeps a reference to `hold` of its own. NULL with an exception set. */
PyObject *fby_py_tensor_create(fby_py_hold *hold, const void *data, fby_py_element element, bool read_only,
                               uint32_t dimensions, const int64_t *shape);
uint32_t fby_py_element_bytes(fby_py_element element);
const char *fby_py_element_name(fby_py_element element);

#endif
