#include "python/extension/task.h"

#include <forebay/forebay.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "python/extension/errors.h"
#include "python/extension/fault.h"
#include "python/extension/session.h"
#include "python/extension/tensor.h"

/* Ctrl-C has to end a wait within 100 ms, also where the signal hit another thread and so interrupted no
 * call. */
enum { SLICE_NS = 50 * 1000 * 1000, CLOSE_POLL_NS = 1000 * 1000 };

typedef struct task {
    PyObject_HEAD fby_py_session *session; /* NULL: closed */
    fby_py_pool *pool;                     /* buffers for copies; made at the first */
    fby_task_info info;
    bool writable;
    bool waiting; /* a thread is in a call, maybe without the interpreter's lock */
    pthread_t waiter;
    bool closing;      /* another one wants to close: the wait ends early */
    uint64_t gathered; /* batches that had to be copied into one piece */
} task;

static PyTypeObject *task_type;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static PyObject *raise_text(int code, const char *text)
{
    fby_error error = FBY_ERROR_INIT;
    snprintf(error.text, sizeof error.text, "%s", text);
    return fby_py_raise(code, &error);
}

/* Whether the handle may be used here and now; else -1 with an exception. */
static int check_usable(task *self)
{
    if (!self->session) {
        raise_text(FBY_ECLOSED, "this Loader was closed");
        return -1;
    }
    int32_t owner = fby_py_session_foreign(self->session);
    if (owner) {
        char text[200];
        snprintf(
            text, sizeof text,
            "this Loader belongs to process %d, which forked this one (%d): open the Loader in the child",
            (int)owner, (int)getpid());
        raise_text(FBY_EFORKED, text);
        return -1;
    }
    if (self->waiting) {
        PyErr_SetString(PyExc_RuntimeError, "this Loader is in use by another thread: one thread at a time");
        return -1;
    }
    return 0;
}

static void begin(task *self)
{
    self->waiting = true;
    self->waiter = pthread_self();
}

/* --- opening
 * --------------------------------------------------------------------------------------------------- */

/* Indexing a large data set takes a while: Ctrl-C ends it. */
static bool on_progress(void *user, uint64_t files_found, uint64_t files_done)
{
    (void)user;
    (void)files_found;
    (void)files_done;
    PyGILState_STATE state = PyGILState_Ensure();
    bool go_on = PyErr_CheckSignals() == 0;
    PyGILState_Release(state);
    return go_on;
}

/* What this thread's wait is told of, from within the library: no place for a warning's code to run. */
static _Thread_local char noticed[FBY_ERROR_TEXT];

static void on_notice(void *user, const char *text)
{
    (void)user;
    snprintf(noticed, sizeof noticed, "%s", text);
}

/* Calls again after a signal whose handler raised nothing. */
static int connect_again(fby_client **client, const fby_connect_options *options, fby_error *error)
{
    for (;;) {
        int status;
        Py_BEGIN_ALLOW_THREADS status = fby_connect(client, options, error);
        Py_END_ALLOW_THREADS if (status != FBY_EINTR || PyErr_CheckSignals()) return status;
    }
}

static int open_again(fby_task **opened, fby_client *client, const fby_task_options *options,
                      fby_error *error)
{
    for (;;) {
        int status;
        Py_BEGIN_ALLOW_THREADS status = fby_task_open(opened, client, options, error);
        Py_END_ALLOW_THREADS if (status != FBY_EINTR || PyErr_Occurred() ||
                                 PyErr_CheckSignals()) return status;
    }
}

static PyObject *task_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"spec", "spec_path",       "name",     "base", "socket", "server",
                            "mode", "connect_timeout", "writable", "rank", "state",  "reconnect",
                            "job",  "notice",          NULL};
    const char *spec = NULL;
    const char *spec_path = NULL;
    const char *name = NULL;
    const char *base = NULL;
    const char *socket = NULL;
    const char *server = NULL;
    unsigned int mode = FBY_MODE_AUTO;
    double connect_timeout = 0;
    int writable = 0;
    unsigned int rank = 0;
    const char *state = NULL;
    Py_ssize_t state_bytes = 0;
    double reconnect = NAN;
    const char *job = NULL;
    double notice = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$zyzyyyIdpIz#dzd:Task", names, &spec, &spec_path,
                                     &name, &base, &socket, &server, &mode, &connect_timeout, &writable,
                                     &rank, &state, &state_bytes, &reconnect, &job, &notice)) {
        return NULL;
    }

    fby_error error = FBY_ERROR_INIT;
    fby_client *client = NULL;
    fby_task *opened = NULL;
    fby_connect_options connecting = FBY_CONNECT_OPTIONS_INIT;
    connecting.socket = socket && *socket ? socket : NULL;
    connecting.server = server && *server ? server : NULL;
    connecting.mode = mode;
    connecting.timeout_ms = (int32_t)fmin(connect_timeout * 1000, INT32_MAX);
    if (!isnan(reconnect)) {
        double milliseconds = ceil(fmin(reconnect * 1000, INT32_MAX));
        connecting.reconnect_ms = milliseconds > 0 ? (int32_t)milliseconds : -1;
    }
    int status = connect_again(&client, &connecting, &error);
    if (status < 0) return PyErr_Occurred() ? NULL : fby_py_raise(status, &error);

    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    options.spec = spec_path && *spec_path ? NULL : spec;
    options.spec_path = spec_path && *spec_path ? spec_path : NULL;
    options.name = name;
    options.base = base && *base ? base : NULL;
    options.progress = on_progress;
    options.rank = rank;
    options.state = state;
    options.state_bytes = (size_t)state_bytes;
    options.job = job;
    options.notice = on_notice;
    options.notice_ms = (uint32_t)fmin(ceil(notice * 1000), UINT32_MAX);
    status = open_again(&opened, client, &options, &error);
    if (status < 0) {
        fby_disconnect(&client);
        return PyErr_Occurred() ? NULL : fby_py_raise(status, &error);
    }

    fby_task_info info = {.size = sizeof info};
    status = fby_task_info_get(opened, &info);
    fby_py_session *session = fby_py_session_create(client, opened);
    if (!session) return PyErr_NoMemory();
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    task *self = status < 0 ? NULL : (task *)allocate(type, 0);
    if (!self) {
        fby_py_session_drop(session);
        return PyErr_Occurred() ? NULL : raise_text(status, "the task's description could not be read");
    }
    self->session = session;
    self->info = info;
    self->writable = writable;
    return (PyObject *)self;
}

/* --- batches
 * --------------------------------------------------------------------------------------------------- */

static bool is_contiguous(const fby_tensor *whole)
{
    int64_t expected = fby_py_element_bytes((fby_py_element)whole->element);
    for (uint32_t i = whole->dimensions; i-- > 0;) {
        if (whole->shape[i] != 1 && whole->strides[i] != expected) return false;
        expected *= whole->shape[i];
    }
    return true;
}

/* A copy of the batch in a buffer of its own; the batch itself goes back at once. */
static fby_py_hold *copy_batch(task *self, fby_batch **batch, fby_error *error)
{
    uint64_t bytes = (uint64_t)self->info.batch * self->info.sample_bytes;
    if (!self->pool) self->pool = fby_py_pool_create(bytes, self->info.window);
    fby_py_hold *hold = self->pool ? fby_py_hold_buffer(self->pool) : NULL;
    if (!hold) {
        fby_fail(error, FBY_ENOMEM, "no memory for a copy of a batch: %llu bytes", (unsigned long long)bytes);
        return NULL;
    }
    int status;
    Py_BEGIN_ALLOW_THREADS status = fby_batch_copy(*batch, fby_py_hold_memory(hold), bytes, error);
    Py_END_ALLOW_THREADS if (status < 0)
    {
        error->code = status;
        fby_py_hold_drop(hold);
        return NULL;
    }
    fby_batch_release(batch);
    return hold;
}

/* The pixels as a Tensor: the shared memory itself, or a copy where the caller wants to write, or where the
 * batch stands in several pieces. Takes `*batch` over unless it fails. */
static PyObject *images_of(task *self, fby_batch **batch)
{
    fby_error error = FBY_ERROR_INIT;
    uint32_t count = fby_batch_count(*batch);
    int64_t shape[FBY_DIMENSIONS] = {count};
    for (uint32_t i = 0; i < self->info.dimensions; i++) shape[i + 1] = self->info.shape[i];

    fby_tensor whole;
    fby_py_hold *hold = NULL;
    const void *data = NULL;
    if (!self->writable) {
        int status = fby_batch_tensor(*batch, &whole, &error);
        if (status < 0 && status != FBY_ENOTSUP) return fby_py_raise(status, &error);
        if (status == 0 && is_contiguous(&whole)) {
            hold = fby_py_hold_batch(self->session, *batch);
            if (!hold) return PyErr_NoMemory();
            data = whole.data;
            *batch = NULL;
            fby_py_fault_watch(self->session, whole.data, whole.bytes);
        } else {
            self->gathered++;
        }
    }
    if (!hold) {
        hold = copy_batch(self, batch, &error);
        if (!hold) return fby_py_raise(error.code, &error);
        data = fby_py_hold_memory(hold);
    }
    PyObject *images = fby_py_tensor_create(hold, data, (fby_py_element)self->info.element, !self->writable,
                                            self->info.dimensions + 1, shape);
    fby_py_hold_drop(hold);
    return images;
}

/* Labels, ids and flags are copied: a few bytes, and who collects them over an epoch holds no batch by it. */
static int numbers_of(task *self, const fby_batch *batch, PyObject **labels, PyObject **ids, PyObject **flags)
{
    int64_t count = fby_batch_count(batch);
    size_t wide = (size_t)count * sizeof(uint64_t);
    fby_py_hold *hold = fby_py_hold_plain(2 * wide + (size_t)count * sizeof(uint32_t));
    if (!hold) {
        PyErr_NoMemory();
        return -1;
    }
    char *memory = fby_py_hold_memory(hold);
    memcpy(memory, fby_batch_labels(batch), wide);
    memcpy(memory + wide, fby_batch_ids(batch), wide);
    memcpy(memory + 2 * wide, fby_batch_flags(batch), (size_t)count * sizeof(uint32_t));
    *labels = fby_py_tensor_create(hold, memory, FBY_PY_I64, !self->writable, 1, &count);
    *ids = fby_py_tensor_create(hold, memory + wide, FBY_PY_U64, !self->writable, 1, &count);
    *flags = fby_py_tensor_create(hold, memory + 2 * wide, FBY_PY_U32, !self->writable, 1, &count);
    fby_py_hold_drop(hold);
    return *labels && *ids && *flags ? 0 : -1;
}

static PyObject *tuple_of_batch(task *self, fby_batch *batch)
{
    unsigned long long epoch = fby_batch_epoch(batch);
    unsigned long long index = fby_batch_index(batch);
    bool last = fby_batch_last(batch);
    PyObject *labels = NULL;
    PyObject *ids = NULL;
    PyObject *flags = NULL;
    PyObject *images = NULL;
    PyObject *result = NULL;
    if (numbers_of(self, batch, &labels, &ids, &flags) == 0) images = images_of(self, &batch);
    if (images)
        result =
            Py_BuildValue("(OOOOKKO)", images, labels, ids, flags, epoch, index, last ? Py_True : Py_False);
    Py_XDECREF(images);
    Py_XDECREF(labels);
    Py_XDECREF(ids);
    Py_XDECREF(flags);
    if (batch) fby_batch_release(&batch);
    return result;
}

/* As of the loop that asked for the batch: Epoch.__next__ and Loader._next lie between. -1: it is an error
 * here. */
static int notice_warn(void)
{
    char text[FBY_ERROR_TEXT];
    memcpy(text, noticed, sizeof text);
    *noticed = 0;
    return PyErr_WarnEx(PyExc_RuntimeWarning, text, 3);
}

/* Waits for a batch until `deadline` (negative: for ever), in slices. NULL with an exception set. */
static fby_batch *wait_for_batch(task *self, int64_t deadline, double seconds)
{
    fby_error error = FBY_ERROR_INIT;
    fby_batch *batch = NULL;
    fby_task *handle = fby_py_session_task(self->session);
    /* The usual case: it is there. Then the interpreter's lock isn't worth giving away, other threads would
     * keep it for 5 ms. */
    *noticed = 0;
    int status = fby_task_next(handle, 0, &batch, &error);
    while (status == FBY_ETIMEDOUT || status == FBY_EINTR) {
        if (PyErr_CheckSignals()) return NULL;
        if (*noticed && notice_warn()) return NULL;
        if (self->closing) {
            raise_text(FBY_ECLOSED, "this Loader was closed while it waited for a batch");
            return NULL;
        }
        int64_t slice = SLICE_NS;
        if (deadline >= 0) {
            int64_t left = deadline - now_ns();
            if (left <= 0 && status == FBY_ETIMEDOUT) break;
            if (left < slice) slice = left > 0 ? left : 0;
        }
        Py_BEGIN_ALLOW_THREADS status = fby_task_next(handle, slice, &batch, &error);
        Py_END_ALLOW_THREADS
    }
    if (status == 0) return batch;
    if (status == FBY_ETIMEDOUT) {
        /* The library's text begins with its own wait, which was a slice of ours. */
        char text[FBY_ERROR_TEXT];
        const char *how_far = strstr(error.text, ": ");
        snprintf(text, sizeof text, "%s", how_far ? how_far + 2 : error.text);
        snprintf(error.text, sizeof error.text, "no batch within %g s: %.900s", seconds, text);
    }
    fby_py_raise(status, &error);
    return NULL;
}

static PyObject *task_next(PyObject *object, PyObject *timeout)
{
    task *self = (task *)object;
    if (check_usable(self)) return NULL;
    double seconds = -1;
    if (timeout != Py_None) {
        seconds = PyFloat_AsDouble(timeout);
        if (PyErr_Occurred()) return NULL;
        if (!(seconds >= 0)) {
            PyErr_SetString(PyExc_ValueError, "timeout: expected seconds, 0 or more, or None for no limit");
            return NULL;
        }
    }
    int64_t deadline = seconds < 0 || seconds > 1e9 ? -1 : now_ns() + (int64_t)(seconds * 1e9);
    /* The session is kept for the wait: close() in another thread waits for it, but a signal handler may drop
     * ours. */
    fby_py_session *session = self->session;
    fby_py_session_keep(session);
    begin(self);
    fby_batch *batch = wait_for_batch(self, deadline, seconds);
    PyObject *result = batch ? tuple_of_batch(self, batch) : NULL;
    self->waiting = false;
    fby_py_session_drop(session);
    return result;
}

static PyObject *task_abandon(PyObject *object, PyObject *unused)
{
    (void)unused;
    task *self = (task *)object;
    if (check_usable(self)) return NULL;
    fby_error error = FBY_ERROR_INIT;
    int status;
    begin(self);
    Py_BEGIN_ALLOW_THREADS status = fby_task_abandon(fby_py_session_task(self->session), &error);
    Py_END_ALLOW_THREADS self->waiting = false;
    if (status < 0 && status != FBY_EEND) return fby_py_raise(status, &error);
    Py_RETURN_NONE;
}

/* --- closing and looking
 * --------------------------------------------------------------------------------------- */

/* Ends a wait in another thread first; one in this thread (a signal's handler closes) ends when the handler
 * returns. Views keep their memory: the subscription ends with the last of them. */
static PyObject *task_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    task *self = (task *)object;
    if (self->session && !fby_py_session_foreign(self->session)) {
        self->closing = true;
        while (self->waiting && !pthread_equal(self->waiter, pthread_self())) {
            struct timespec pause = {0, CLOSE_POLL_NS};
            Py_BEGIN_ALLOW_THREADS nanosleep(&pause, NULL);
            Py_END_ALLOW_THREADS if (PyErr_CheckSignals()) return NULL;
        }
    }
    fby_py_session *session = self->session;
    fby_py_pool *pool = self->pool;
    self->session = NULL;
    self->pool = NULL;
    if (pool) fby_py_pool_drop(pool);
    if (session) {
        Py_BEGIN_ALLOW_THREADS fby_py_session_drop(session);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static void task_dealloc(PyObject *object)
{
    task *self = (task *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->pool) fby_py_pool_drop(self->pool);
    if (self->session) fby_py_session_drop(self->session);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *task_status(PyObject *object, PyObject *unused)
{
    (void)unused;
    task *self = (task *)object;
    if (check_usable(self)) return NULL;
    fby_error error = FBY_ERROR_INIT;
    char *json = NULL;
    int status;
    begin(self);
    Py_BEGIN_ALLOW_THREADS status = fby_client_status(fby_py_session_client(self->session), &json, &error);
    Py_END_ALLOW_THREADS self->waiting = false;
    if (status < 0) return fby_py_raise(status, &error);
    PyObject *text = PyUnicode_DecodeUTF8(json, (Py_ssize_t)strlen(json), "surrogateescape");
    free(json);
    return text;
}

static PyObject *task_state(PyObject *object, PyObject *unused)
{
    (void)unused;
    task *self = (task *)object;
    if (check_usable(self)) return NULL;
    fby_error error = FBY_ERROR_INIT;
    void *state = NULL;
    size_t bytes = 0;
    int status = fby_task_state(fby_py_session_task(self->session), &state, &bytes, &error);
    if (status < 0) return fby_py_raise(status, &error);
    PyObject *result = PyBytes_FromStringAndSize(state, (Py_ssize_t)bytes);
    free(state);
    return result;
}

static PyObject *task_classes(PyObject *object, PyObject *unused)
{
    (void)unused;
    task *self = (task *)object;
    if (check_usable(self)) return NULL;
    PyObject *classes = PyTuple_New(self->info.classes);
    for (uint32_t i = 0; classes && i < self->info.classes; i++) {
        const char *name = fby_task_class(fby_py_session_task(self->session), i);
        PyObject *text =
            PyUnicode_DecodeUTF8(name ? name : "", name ? (Py_ssize_t)strlen(name) : 0, "surrogateescape");
        if (!text) {
            Py_DECREF(classes);
            return NULL;
        }
        PyTuple_SetItem(classes, i, text);
    }
    return classes;
}

static PyObject *task_info(PyObject *object, void *unused)
{
    (void)unused;
    const task *self = (const task *)object;
    const fby_task_info *info = &self->info;
    PyObject *shape = PyTuple_New(info->dimensions);
    for (uint32_t i = 0; shape && i < info->dimensions; i++) {
        PyTuple_SetItem(shape, i, PyLong_FromUnsignedLong(info->shape[i]));
    }
    if (!shape) return NULL;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:I,s:I,s:s,s:N,s:N,s:I,s:K,s:K}", "dataset", (unsigned long long)info->dataset,
        "samples", (unsigned long long)info->samples, "batches", (unsigned long long)info->batches, "epochs",
        (unsigned long long)info->epochs, "batch", (unsigned int)info->batch, "window",
        (unsigned int)info->window, "dtype", fby_py_element_name((fby_py_element)info->element),
        "channels_last", PyBool_FromLong(info->channels_last), "shape", shape, "classes",
        (unsigned int)info->classes, "sample_bytes", (unsigned long long)info->sample_bytes, "shared_bytes",
        (unsigned long long)info->shared_bytes);
}

static PyObject *task_closed(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((const task *)object)->session == NULL);
}

static PyObject *task_foreign(PyObject *object, void *unused)
{
    (void)unused;
    const task *self = (const task *)object;
    return PyBool_FromLong(self->session && fby_py_session_foreign(self->session));
}

static PyObject *task_server_pid(PyObject *object, void *unused)
{
    (void)unused;
    task *self = (task *)object;
    if (check_usable(self)) return NULL;
    return PyLong_FromLong(fby_client_pid(fby_py_session_client(self->session)));
}

static PyObject *task_gathered(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((const task *)object)->gathered);
}

static PyMethodDef task_methods[] = {
    {"next", task_next, METH_O,
     "next(timeout): (images, labels, ids, flags, epoch, index, last) of the next batch."},
    {"abandon", task_abandon, METH_NOARGS, "Gives up the rest of the last batch's epoch."},
    {"close", task_close, METH_NOARGS, "Ends the subscription, at the latest with the last view of a batch."},
    {"status", task_status, METH_NOARGS, "What the server is doing, as JSON."},
    {"state", task_state, METH_NOARGS, "Where the task is, as bytes that another one can go on from."},
    {"classes", task_classes, METH_NOARGS, "The names of the labels; empty where they are plain numbers."},
    {NULL},
};

static PyGetSetDef task_attributes[] = {
    {"info", task_info, NULL, "What the task delivers.", NULL},
    {"closed", task_closed, NULL, "Whether close() was called.", NULL},
    {"foreign", task_foreign, NULL, "Whether another process opened it.", NULL},
    {"server_pid", task_server_pid, NULL, "The server's process.", NULL},
    {"gathered", task_gathered, NULL, "Batches that stood in several pieces and were copied into one.", NULL},
    {NULL},
};

static PyType_Slot task_slots[] = {
    {Py_tp_new, task_new},
    {Py_tp_dealloc, task_dealloc},
    {Py_tp_methods, task_methods},
    {Py_tp_getset, task_attributes},
    {Py_tp_doc, "A task of the data plane; forebay.Loader is what programs use."},
    {0},
};

static PyType_Spec task_spec = {"forebay._forebay.Task", sizeof(task), 0, Py_TPFLAGS_DEFAULT, task_slots};

int fby_py_task_register(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&task_spec);
    if (!type) return -1;
    task_type = (PyTypeObject *)type;
    Py_INCREF(type);
    if (PyModule_AddObject(module, "Task", type)) {
        Py_DECREF(type);
        return -1;
    }
    return 0;
}
