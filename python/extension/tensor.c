#include "python/extension/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "python/extension/dlpack.h"

typedef struct element_kind {
    const char *name;    /* as numpy and torch call it */
    const char *typestr; /* of the array interface. numpy has no bfloat16: raw pairs of bytes, to be viewed as
                            ml_dtypes' */
    uint8_t code, bits;
} element_kind;

static const element_kind kinds[FBY_PY_ELEMENTS] = {
    [FBY_PY_U8] = {"uint8", "|u1", kDLUInt, 8},      [FBY_PY_U16] = {"uint16", "<u2", kDLUInt, 16},
    [FBY_PY_F16] = {"float16", "<f2", kDLFloat, 16}, [FBY_PY_BF16] = {"bfloat16", "|V2", kDLBfloat, 16},
    [FBY_PY_F32] = {"float32", "<f4", kDLFloat, 32}, [FBY_PY_I64] = {"int64", "<i8", kDLInt, 64},
    [FBY_PY_U64] = {"uint64", "<u8", kDLUInt, 64},   [FBY_PY_U32] = {"uint32", "<u4", kDLUInt, 32},
};

typedef struct tensor {
    PyObject_HEAD fby_py_hold *hold;
    void *data;
    uint64_t bytes;
    fby_py_element element;
    bool read_only;
    uint32_t dimensions;
    int64_t shape[FBY_DIMENSIONS];
    int64_t strides[FBY_DIMENSIONS]; /* in elements */
} tensor;

static PyTypeObject *tensor_type;

uint32_t fby_py_element_bytes(fby_py_element element)
{
    return kinds[element].bits / 8;
}

const char *fby_py_element_name(fby_py_element element)
{
    return kinds[element].name;
}

PyObject *fby_py_tensor_create(fby_py_hold *hold, const void *data, fby_py_element element, bool read_only,
                               uint32_t dimensions, const int64_t *shape)
{
    tensor *self = PyObject_New(tensor, tensor_type);
    if (!self) return NULL;
    fby_py_hold_keep(hold);
    self->hold = hold;
    self->data = (void *)data;
    self->element = element;
    self->read_only = read_only;
    self->dimensions = dimensions;
    int64_t elements = 1;
    for (uint32_t i = dimensions; i-- > 0;) {
        self->shape[i] = shape[i];
        self->strides[i] = elements;
        elements *= shape[i];
    }
    self->bytes = (uint64_t)elements * fby_py_element_bytes(element);
    return (PyObject *)self;
}

static void tensor_dealloc(PyObject *object)
{
    tensor *self = (tensor *)object;
    PyTypeObject *type = Py_TYPE(object);
    fby_py_hold_drop(self->hold);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *tuple_of(const int64_t *values, uint32_t count, int64_t factor)
{
    PyObject *tuple = PyTuple_New(count);
    for (uint32_t i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i] * factor);
        if (!number) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SetItem(tuple, i, number);
    }
    return tuple;
}

static PyObject *tensor_shape(PyObject *object, void *unused)
{
    (void)unused;
    const tensor *self = (const tensor *)object;
    return tuple_of(self->shape, self->dimensions, 1);
}

static PyObject *tensor_dtype(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(kinds[((const tensor *)object)->element].name);
}

static PyObject *tensor_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((const tensor *)object)->bytes);
}

static PyObject *tensor_readonly(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((const tensor *)object)->read_only);
}

static PyObject *tensor_array_interface(PyObject *object, void *unused)
{
    (void)unused;
    const tensor *self = (const tensor *)object;
    PyObject *shape = tuple_of(self->shape, self->dimensions, 1);
    if (!shape) return NULL;
    /* No strides: C order, which is all that there is. */
    return Py_BuildValue("{s:i,s:s,s:N,s:(N,O)}", "version", 3, "typestr", kinds[self->element].typestr,
                         "shape", shape, "data", PyLong_FromVoidPtr(self->data),
                         self->read_only ? Py_True : Py_False);
}

static PyObject *tensor_repr(PyObject *object)
{
    const tensor *self = (const tensor *)object;
    PyObject *shape = tuple_of(self->shape, self->dimensions, 1);
    if (!shape) return NULL;
    PyObject *text = PyUnicode_FromFormat("forebay.Tensor(shape=%S, dtype=%s%s)", shape,
                                          kinds[self->element].name, self->read_only ? ", read-only" : "");
    Py_DECREF(shape);
    return text;
}

/* --- as a sequence of whole numbers: labels, ids and flags
 * ---------------------------------------------------------------- */

static Py_ssize_t tensor_length(PyObject *object)
{
    return (Py_ssize_t)((const tensor *)object)->shape[0];
}

static PyObject *number_at(const tensor *self, Py_ssize_t place)
{
    switch (self->element) {
    case FBY_PY_I64:
        return PyLong_FromLongLong(((const int64_t *)self->data)[place]);
    case FBY_PY_U64:
        return PyLong_FromUnsignedLongLong(((const uint64_t *)self->data)[place]);
    case FBY_PY_U32:
        return PyLong_FromUnsignedLong(((const uint32_t *)self->data)[place]);
    default:
        break;
    }
    PyErr_Format(PyExc_TypeError,
                 "a forebay.Tensor of %s gives no single values: use numpy.asarray(tensor) or "
                 "torch.from_dlpack(tensor)",
                 kinds[self->element].name);
    return NULL;
}

/* Pixels are for numpy and torch: one by one they would take seconds a batch, and nobody would see why. */
static int check_sequence(const tensor *self, const char *what)
{
    if (self->dimensions == 1) return 0;
    PyErr_Format(PyExc_TypeError,
                 "a forebay.Tensor of %u dimensions has no %s: look at it, without a copy, by "
                 "numpy.asarray(tensor) or torch.from_dlpack(tensor)",
                 (unsigned int)self->dimensions, what);
    return -1;
}

static PyObject *tensor_item(PyObject *object, Py_ssize_t place)
{
    const tensor *self = (const tensor *)object;
    if (check_sequence(self, "items")) return NULL;
    if (place < 0 || place >= self->shape[0]) {
        PyErr_Format(PyExc_IndexError, "index out of range: this forebay.Tensor has %lld values",
                     (long long)self->shape[0]);
        return NULL;
    }
    return number_at(self, place);
}

static PyObject *tensor_subscript(PyObject *object, PyObject *key)
{
    if (check_sequence((const tensor *)object, "items")) return NULL;
    Py_ssize_t place = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (place == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_SetString(
                PyExc_TypeError,
                "a forebay.Tensor takes one whole number as index: for slices, masks and lists use "
                "numpy.asarray(tensor)[...] or torch.from_dlpack(tensor)[...]");
        return NULL;
    }
    return tensor_item(object, place < 0 ? place + tensor_length(object) : place);
}

static PyObject *tensor_iterate(PyObject *object)
{
    return check_sequence((const tensor *)object, "items") ? NULL : PySeqIter_New(object);
}

static PyObject *tensor_tolist(PyObject *object, PyObject *unused)
{
    (void)unused;
    return check_sequence((const tensor *)object, "tolist()") ? NULL : PySequence_List(object);
}

/* Python's own answer would be a False that nobody asked for. */
static PyObject *tensor_compare(PyObject *object, PyObject *other, int operation)
{
    (void)object;
    (void)other;
    if (operation != Py_EQ && operation != Py_NE) Py_RETURN_NOTIMPLEMENTED;
    PyErr_SetString(PyExc_TypeError,
                    "a forebay.Tensor can't be compared: make it an array first, without a copy, by "
                    "torch.from_dlpack(tensor) or numpy.asarray(tensor)");
    return NULL;
}

/* By identity, as any object's: a type with a comparison of its own has none by itself. */
static Py_hash_t tensor_hash(PyObject *object)
{
    return (Py_hash_t)((uintptr_t)object >> 4);
}

/* --- DLPack
 * -------------------------------------------------------------------------------------------------- */

/* One allocation: the structure that the consumer sees, its shape and strides, and what is held for it. */
typedef struct export
{
    union {
        DLManagedTensor legacy;
        DLManagedTensorVersioned versioned;
    } managed;
    fby_py_hold *hold;
    int64_t shape[FBY_DIMENSIONS], strides[FBY_DIMENSIONS];
}
export;

static void export_free(export *exported)
{
    fby_py_hold_drop(exported->hold);
    free(exported);
}

/* The consumer calls these from any thread, with or without the interpreter's lock. */
static void delete_legacy(DLManagedTensor *managed)
{
    export_free(managed->manager_ctx);
}

static void delete_versioned(DLManagedTensorVersioned *managed)
{
    export_free(managed->manager_ctx);
}

/* A consumer renames the capsule that it takes over: one that still has its first name was never taken. */
static void capsule_delete(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
        managed->deleter(managed);
    }
}

static void fill(DLTensor *out, export *exported, const tensor *self, void *data)
{
    const element_kind *kind = &kinds[self->element];
    memcpy(exported->shape, self->shape, sizeof exported->shape);
    memcpy(exported->strides, self->strides, sizeof exported->strides);
    out->data = data;
    out->device = (DLDevice){kDLCPU, 0};
    out->ndim = (int32_t)self->dimensions;
    out->dtype = (DLDataType){kind->code, kind->bits, 1};
    out->shape = exported->shape;
    out->strides = exported->strides;
    out->byte_offset = 0;
}

/* 1 where the consumer understands version 1 of DLPack, 0 where it doesn't, -1 with an exception. */
static int wants_versioned(PyObject *max_version)
{
    if (max_version == Py_None) return 0;
    if (!PyTuple_Check(max_version) || PyTuple_Size(max_version) != 2) {
        PyErr_SetString(PyExc_TypeError, "max_version: expected None or (major, minor)");
        return -1;
    }
    long major = PyLong_AsLong(PyTuple_GetItem(max_version, 0));
    if (major == -1 && PyErr_Occurred()) return -1;
    return major >= 1;
}

static int check_device(PyObject *stream, PyObject *device)
{
    if (stream != Py_None) {
        PyErr_SetString(PyExc_BufferError, "stream: a batch in CPU memory has none, expected None");
        return -1;
    }
    if (device == Py_None) return 0;
    int kind = 0;
    int id = 0;
    if (!PyTuple_Check(device) || !PyArg_ParseTuple(device, "ii", &kind, &id)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_TypeError, "dl_device: expected None or (device type, device id)");
        return -1;
    }
    if (kind != kDLCPU) {
        PyErr_SetString(PyExc_BufferError, "dl_device: this batch is in CPU memory, (1, 0); move it with the "
                                           "framework's own call");
        return -1;
    }
    return 0;
}

static PyObject *tensor_dlpack(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    const tensor *self = (const tensor *)object;
    PyObject *stream = Py_None;
    PyObject *max_version = Py_None;
    PyObject *device = Py_None;
    PyObject *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", names, &stream, &max_version,
                                     &device, &copy)) {
        return NULL;
    }
    int versioned = wants_versioned(max_version);
    int copied = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (versioned < 0 || copied < 0 || check_device(stream, device)) return NULL;

    export *exported = calloc(1, sizeof *exported);
    fby_py_hold *hold = self->hold;
    if (exported && copied) {
        hold = fby_py_hold_plain(self->bytes);
    } else if (exported) {
        fby_py_hold_keep(hold);
    }
    if (!exported || !hold) {
        free(exported);
        return PyErr_NoMemory();
    }
    exported->hold = hold;
    void *data = self->data;
    if (copied) {
        data = fby_py_hold_memory(hold);
        Py_BEGIN_ALLOW_THREADS memcpy(data, self->data, self->bytes);
        Py_END_ALLOW_THREADS
    }

    PyObject *capsule;
    if (versioned) {
        DLManagedTensorVersioned *managed = &exported->managed.versioned;
        managed->version = (DLPackVersion){1, 0};
        managed->manager_ctx = exported;
        managed->deleter = delete_versioned;
        managed->flags = copied            ? DLPACK_FLAG_BITMASK_IS_COPIED
                         : self->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY
                                           : 0;
        fill(&managed->dl_tensor, exported, self, data);
        capsule = PyCapsule_New(managed, "dltensor_versioned", capsule_delete);
    } else {
        DLManagedTensor *managed = &exported->managed.legacy;
        managed->manager_ctx = exported;
        managed->deleter = delete_legacy;
        fill(&managed->dl_tensor, exported, self, data);
        capsule = PyCapsule_New(managed, "dltensor", capsule_delete);
    }
    if (!capsule) export_free(exported);
    return capsule;
}

static PyObject *tensor_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)object;
    (void)unused;
    return Py_BuildValue("(ii)", kDLCPU, 0);
}

static PyObject *tensor_reduce(PyObject *object, PyObject *unused)
{
    (void)object;
    (void)unused;
    PyErr_SetString(PyExc_TypeError, "a batch lies in shared memory and can't be pickled: copy it first, "
                                     "with numpy.array(tensor)");
    return NULL;
}

static PyMethodDef tensor_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))tensor_dlpack, METH_VARARGS | METH_KEYWORDS,
     "The array as a DLPack capsule: versioned and marked read-only for consumers of DLPack 1.x, legacy for "
     "others."},
    {"__dlpack_device__", tensor_dlpack_device, METH_NOARGS, "(1, 0): CPU memory."},
    {"tolist", tensor_tolist, METH_NOARGS, "The values as a list; of one dimension only."},
    {"__reduce__", tensor_reduce, METH_NOARGS, NULL},
    {NULL},
};

static PyGetSetDef tensor_attributes[] = {
    {"shape", tensor_shape, NULL, "Sizes, samples first.", NULL},
    {"dtype", tensor_dtype, NULL, "Name of the element type.", NULL},
    {"nbytes", tensor_nbytes, NULL, "Bytes of the whole array.", NULL},
    {"readonly", tensor_readonly, NULL, "Whether writing is forbidden.", NULL},
    {"__array_interface__", tensor_array_interface, NULL, "numpy's array interface, version 3.", NULL},
    {NULL},
};

static PyObject *tensor_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type;
    (void)arguments;
    (void)keywords;
    PyErr_SetString(PyExc_TypeError, "a forebay.Tensor comes out of a Loader: it can't be made by itself");
    return NULL;
}

static PyType_Slot tensor_slots[] = {
    {Py_tp_new, tensor_new},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_repr, tensor_repr},
    {Py_tp_methods, tensor_methods},
    {Py_tp_getset, tensor_attributes},
    {Py_tp_richcompare, tensor_compare},
    {Py_tp_hash, tensor_hash},
    {Py_tp_iter, tensor_iterate},
    {Py_sq_length, tensor_length},
    {Py_sq_item, tensor_item},
    {Py_mp_length, tensor_length},
    {Py_mp_subscript, tensor_subscript},
    {Py_tp_doc, "An array of a batch. numpy.asarray() and torch.from_dlpack() look at it without a copy. "
                "Labels, ids and flags are sequences of whole numbers besides."},
    {0},
};

static PyType_Spec tensor_spec = {"forebay.Tensor", sizeof(tensor), 0, Py_TPFLAGS_DEFAULT, tensor_slots};

int fby_py_tensor_register(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&tensor_spec);
    if (!type) return -1;
    tensor_type = (PyTypeObject *)type;
    Py_INCREF(type);
    if (PyModule_AddObject(module, "Tensor", type)) {
        Py_DECREF(type);
        return -1;
    }
    return 0;
}
