/* _forebay_plan: the table of ops, specs, and the pipeline itself without a server, for forebay.ops and
 * forebay.parity. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/names/names.h"
#include "dataplane/plan/plan.h"
#include "dataplane/spec/spec.h"
#include "io/dataset.h"
#include "python/extension/errors.h"
#include "python/extension/python.h"

enum { READ_PAST = 64 }; /* what decoders may read past the end of their input */

typedef struct plan {
    PyObject_HEAD fby_spec *spec;
    fby_plan *plan;
    fby_scratch *scratch;
    fby_dataset *dataset; /* opened by the first look at it */
} plan;

/* --- ops and their parameters
 * -------------------------------------------------------------------------------------- */

static PyObject *param_value(const fby_param *param, const void *params)
{
    const char *at = (const char *)params + param->offset;
    const double *reals = (const double *)at;
    const uint32_t *size = (const uint32_t *)at;
    switch (param->type) {
    case FBY_PARAM_BOOL:
        return PyBool_FromLong(*(const bool *)at);
    case FBY_PARAM_INT:
        return PyLong_FromLongLong(*(const int64_t *)at);
    case FBY_PARAM_BYTES:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case FBY_PARAM_TIMES:
        return reals[0] > 0 ? PyFloat_FromDouble(reals[0]) : PyUnicode_FromString("auto");
    case FBY_PARAM_REAL:
        return PyFloat_FromDouble(reals[0]);
    case FBY_PARAM_PAIR:
    case FBY_PARAM_FACTOR:
    case FBY_PARAM_SHIFT:
        return Py_BuildValue("[dd]", reals[0], reals[1]);
    case FBY_PARAM_TRIPLE:
        return Py_BuildValue("[ddd]", reals[0], reals[1], reals[2]);
    case FBY_PARAM_CHOICE:
        return PyUnicode_FromString(param->choices[*(const int32_t *)at]);
    case FBY_PARAM_SEED:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case FBY_PARAM_SHORTER:
        if (size[0] == 0) return PyLong_FromUnsignedLong(size[1]);
        return Py_BuildValue("[II]", size[1], size[0]);
    case FBY_PARAM_SIZE:
        return Py_BuildValue("[II]", size[1], size[0]);
    case FBY_PARAM_SIDES:
        return Py_BuildValue("[IIII]", size[0], size[1], size[2], size[3]);
    case FBY_PARAM_LEVELS:
        return Py_BuildValue("[III]", size[0], size[1], size[2]);
    }
    PyErr_Format(PyExc_SystemError, "parameter %s has an unknown type", param->name);
    return NULL;
}

/* Appends `item`, which it takes over (NULL: an exception is set). */
static int append(PyObject *list, PyObject *item)
{
    int status = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return status;
}

static PyObject *describe_op(const fby_op *op)
{
    PyObject *params = PyList_New(0);
    for (uint32_t i = 0; params && i < op->param_count; i++) {
        const fby_param *param = &op->params[i];
        if (append(params, Py_BuildValue("{s:s,s:z,s:s}", "name", param->name, "default", param->fallback,
                                         "about", param->about))) {
            Py_DECREF(params);
            return NULL;
        }
    }
    PyObject *presets = params ? PyList_New(0) : NULL;
    /* Pairs of a name and what it stands for. */
    for (const char *const *preset = op->presets; presets && preset && *preset; preset += 2) {
        if (append(presets, PyUnicode_FromString(*preset))) Py_CLEAR(presets);
    }
    if (!presets) {
        Py_XDECREF(params);
        return NULL;
    }
    return Py_BuildValue("{s:s,s:s,s:z,s:N,s:O,s:N}", "name", op->name, "about", op->about, "shorthand",
                         op->shorthand, "presets", presets, "random", op->random ? Py_True : Py_False,
                         "params", params);
}

static PyObject *list_ops(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < fby_op_count; i++) {
        if (append(list, describe_op(fby_ops[i]))) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* --- a plan
 * ---------------------------------------------------------------------------------------------------- */

static void plan_dealloc(PyObject *object)
{
    plan *self = (plan *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->dataset) fby_dataset_close(&self->dataset);
    if (self->scratch) fby_scratch_destroy(&self->scratch);
    if (self->plan) fby_plan_destroy(&self->plan);
    if (self->spec) fby_spec_free(&self->spec);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static int load_spec(plan *self, const char *text, Py_ssize_t length, const char *path, const char *base,
                     fby_error *error)
{
    if (path) return fby_spec_load(&self->spec, path, error);
    if (!text) return fby_fail(error, FBY_EINVAL, "expected spec or spec_path");
    char absolute[PATH_MAX];
    if (!realpath(base ? base : ".", absolute)) {
        return fby_fail(error, FBY_EINVAL, "there is no base folder %s", base ? base : ".");
    }
    return fby_spec_parse(&self->spec, "spec", text, (size_t)length, absolute, error);
}

static PyObject *plan_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"spec", "spec_path", "base", NULL};
    const char *text = NULL;
    Py_ssize_t length = 0;
    const char *path = NULL;
    const char *base = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$z#yy:Plan", names, &text, &length, &path,
                                     &base)) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    plan *self = (plan *)allocate(type, 0);
    if (!self) return NULL;
    fby_error error = FBY_ERROR_INIT;
    int status = load_spec(self, text, length, path, base, &error);
    if (status == 0) {
        const fby_spec *specs[] = {self->spec};
        status = fby_plan_create(&self->plan, specs, 1, (fby_digest){0, 0}, &error);
    }
    if (status == 0) status = fby_scratch_create(&self->scratch);
    if (status < 0) {
        Py_DECREF(self);
        return error.code ? fby_py_raise(status, &error) : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static PyObject *plan_pipeline(PyObject *object, void *unused)
{
    (void)unused;
    const fby_spec *spec = ((const plan *)object)->spec;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < spec->op_count; i++) {
        const fby_op *op = spec->ops[i].op;
        PyObject *params = PyDict_New();
        for (uint32_t j = 0; params && j < op->param_count; j++) {
            PyObject *value = param_value(&op->params[j], spec->ops[i].params);
            if (!value || PyDict_SetItemString(params, op->params[j].name, value)) Py_CLEAR(params);
            Py_XDECREF(value);
        }
        PyObject *pair = params ? Py_BuildValue("(sN)", op->name, params) : NULL;
        if (append(list, pair)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *plan_order(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(fby_order_names[((const plan *)object)->spec->order]);
}

static PyObject *plan_sample(PyObject *object, void *unused)
{
    (void)unused;
    static const char *const types[] = {[FBY_U8] = "uint8",
                                        [FBY_U16] = "uint16",
                                        [FBY_F16] = "float16",
                                        [FBY_BF16] = "bfloat16",
                                        [FBY_F32] = "float32"};
    fby_branch_info info = fby_plan_branch(((const plan *)object)->plan, 0);
    PyObject *shape = PyList_New(0);
    for (uint32_t i = 0; shape && i < info.dimensions; i++) {
        if (append(shape, PyLong_FromUnsignedLong(info.shape[i]))) Py_CLEAR(shape);
    }
    if (!shape) return NULL;
    return Py_BuildValue("{s:s,s:s,s:N,s:K}", "dtype", types[info.dtype], "layout",
                         info.layout == FBY_CHW ? "chw" : "hwc", "shape", shape, "bytes",
                         (unsigned long long)info.sample_bytes);
}

static PyObject *plan_print(PyObject *object, PyObject *unused)
{
    (void)unused;
    char *text = fby_spec_print(((const plan *)object)->spec);
    if (!text) return PyErr_NoMemory();
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
    free(text);
    return result;
}

static int open_dataset(plan *self)
{
    if (self->dataset) return 0;
    fby_dataset_options options = {.kind = self->spec->dataset_kind,
                                   .path = self->spec->dataset_path,
                                   .allow_empty = self->spec->allow_empty};
    fby_error error = FBY_ERROR_INIT;
    int status;
    Py_BEGIN_ALLOW_THREADS status = fby_dataset_open(&self->dataset, &options, &error);
    Py_END_ALLOW_THREADS if (status < 0)
    {
        fby_name_suggest(self->spec->dataset_path, &error);
        fby_py_raise(status, &error);
    }
    return status;
}

static PyObject *plan_count(PyObject *object, PyObject *unused)
{
    (void)unused;
    plan *self = (plan *)object;
    if (open_dataset(self)) return NULL;
    return PyLong_FromUnsignedLongLong(fby_dataset_count(self->dataset));
}

static PyObject *plan_path(PyObject *object, PyObject *argument)
{
    plan *self = (plan *)object;
    unsigned long long id = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() || open_dataset(self)) return NULL;
    if (id >= fby_dataset_count(self->dataset)) {
        PyErr_Format(PyExc_IndexError, "sample %llu of %llu", id,
                     (unsigned long long)fby_dataset_count(self->dataset));
        return NULL;
    }
    const char *path = fby_dataset_path(self->dataset, id);
    if (path[0] == '/') return PyBytes_FromString(path);
    return PyBytes_FromFormat("%s/%s", fby_dataset_root(self->dataset), path);
}

/* [(kind, factor)] in the order in which they were applied. */
static PyObject *adjustments_of(const fby_trace_step *step)
{
    static const char *const kinds[] = {[FBY_ADJUST_BRIGHTNESS] = "brightness",
                                        [FBY_ADJUST_CONTRAST] = "contrast",
                                        [FBY_ADJUST_SATURATION] = "saturation",
                                        [FBY_ADJUST_HUE] = "hue"};
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < step->adjustment_count; i++) {
        const fby_adjustment *adjustment = &step->adjustments[i];
        if (append(list, Py_BuildValue("(sd)", kinds[adjustment->kind], (double)adjustment->factor)))
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *plan_trace(PyObject *object, PyObject *arguments)
{
    const plan *self = (const plan *)object;
    unsigned long long id, turn;
    unsigned int repeat, w, h;
    if (!PyArg_ParseTuple(arguments, "KKIII:trace", &id, &turn, &repeat, &w, &h)) return NULL;
    fby_trace trace;
    if (fby_plan_trace(self->plan, 0, id, turn, repeat, w, h, &trace)) {
        PyErr_Format(PyExc_ValueError, "the pipeline can't take a picture of %u x %u", w, h);
        return NULL;
    }
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < trace.count; i++) {
        const fby_trace_step *step = &trace.steps[i];
        PyObject *crop = Py_None;
        if (step->crop_w) {
            crop = Py_BuildValue("(IIII)", step->crop_x, step->crop_y, step->crop_w, step->crop_h);
        } else {
            Py_INCREF(crop);
        }
        if (append(list, Py_BuildValue("{s:s,s:N,s:(II),s:(II),s:I,s:I,s:N}", "op", step->op, "crop", crop,
                                       "pad", step->pad_left, step->pad_top, "out", step->out_w, step->out_h,
                                       "flip_horizontal", step->flip_horizontal, "flip_vertical",
                                       step->flip_vertical, "adjustments", adjustments_of(step)))) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *plan_run(PyObject *object, PyObject *arguments)
{
    plan *self = (plan *)object;
    const char *bytes;
    Py_ssize_t length;
    unsigned long long id, turn;
    unsigned int repeat;
    if (!PyArg_ParseTuple(arguments, "y#KKI:run", &bytes, &length, &id, &turn, &repeat)) return NULL;
    fby_branch_info info = fby_plan_branch(self->plan, 0);
    uint8_t *padded = calloc(1, (size_t)length + READ_PAST);
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)info.sample_bytes);
    if (!padded || !result) {
        free(padded);
        Py_XDECREF(result);
        return PyErr_NoMemory();
    }
    memcpy(padded, bytes, (size_t)length);
    void *out[] = {PyBytes_AsString(result)};
    fby_work work = {.bytes = padded,
                     .length = (size_t)length,
                     .id = id,
                     .branches = 1,
                     .turn = turn,
                     .repeat = repeat,
                     .out = out};
    fby_failure failure = {.reason = FBY_REASON_NONE};
    /* One thread at a time uses the scratch: the interpreter's lock stays. */
    fby_reason reason = fby_plan_run(self->plan, self->scratch, &work, &failure);
    free(padded);
    if (reason) {
        Py_DECREF(result);
        PyErr_Format(PyExc_ValueError, "%s: %s%s%s", failure.op ? failure.op : "sample",
                     fby_reason_name(reason), *failure.text ? ": " : "", failure.text);
        return NULL;
    }
    return result;
}

static PyMethodDef plan_methods[] = {
    {"text", plan_print, METH_NOARGS, "The spec with every default written out, as YAML."},
    {"count", plan_count, METH_NOARGS, "Samples of the data set."},
    {"path", plan_path, METH_O, "path(id): where a sample's file is, as bytes."},
    {"trace", plan_trace, METH_VARARGS,
     "trace(id, turn, repeat, w, h): what each op does to a picture of this size."},
    {"run", plan_run, METH_VARARGS, "run(bytes, id, turn, repeat): the finished sample, as bytes."},
    {NULL},
};

static PyGetSetDef plan_attributes[] = {
    {"pipeline", plan_pipeline, NULL, "[(op, parameters)], defaults filled in.", NULL},
    {"order", plan_order, NULL, "shared, strict or sequential.", NULL},
    {"sample", plan_sample, NULL, "dtype, layout, shape and bytes of a finished sample.", NULL},
    {NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_methods, plan_methods},
    {Py_tp_getset, plan_attributes},
    {Py_tp_doc, "A spec, its data set, and its pipeline run in this process."},
    {0},
};

static PyType_Spec plan_type = {"forebay._forebay_plan.Plan", sizeof(plan), 0, Py_TPFLAGS_DEFAULT,
                                plan_slots};

static PyMethodDef functions[] = {
    {"ops", list_ops, METH_NOARGS, "The table of ops, with their parameters."},
    {NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "forebay._forebay_plan",
    "Forebay's ops, specs and pipelines, without a server.",
    -1,
    functions,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__forebay_plan(void);

PyMODINIT_FUNC PyInit__forebay_plan(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    PyObject *type = PyType_FromSpec(&plan_type);
    if (!type || PyModule_AddObject(module, "Plan", type)) {
        Py_XDECREF(type);
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
