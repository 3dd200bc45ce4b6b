#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/client/internal.h"
#include "dataplane/names/names.h"
#include "dataplane/protocol/crash.h"
#include "kernels/dtype.h"
#include "ringbuf/atomic.h"
#include "ringbuf/fdpass.h"
#include "ringbuf/wait.h"

/* How long a wait may go on before it looks after the server. */
static const uint64_t LOOK_AFTER_NS = 400 * 1000 * 1000ull;

enum { TAKE_MOST = 1, SPEC_MOST = 64 * 1024, NOTICE_MS = 30000 };

/* --- opening
 * ------------------------------------------------------------------------------------------------ */

static int text_read(char **out, const char *path, fby_error *error)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        fby_fail(error, FBY_EINVAL, "can't read the spec %s: %s; expected a YAML file", path,
                 strerror(errno));
        fby_name_suggest(path, error);
        return FBY_EINVAL;
    }
    char *text = malloc(SPEC_MOST + 2);
    size_t length = text ? fread(text, 1, SPEC_MOST + 1, file) : 0;
    bool failed = ferror(file);
    fclose(file);
    if (!text) return fby_fail(error, FBY_ENOMEM, "no memory for a spec");
    if (failed || length > SPEC_MOST) {
        free(text);
        return failed ? fby_fail(error, FBY_EINVAL, "can't read the spec %s: it isn't a plain file", path)
                      : fby_fail(error, FBY_EINVAL, "the spec %s is longer than %d bytes", path, SPEC_MOST);
    }
    text[length] = 0;
    *out = text;
    return 0;
}

/* The folder that relative paths of a spec are relative to: absolute, PATH_MAX bytes. */
static int base_find(char *out, const char *given, const char *spec_path, fby_error *error)
{
    char folder[PATH_MAX];
    if (spec_path) {
        if (strlen(spec_path) >= PATH_MAX) return fby_fail(error, FBY_EINVAL, "the spec's path is too long");
        strcpy(folder, spec_path);
        char *slash = strrchr(folder, '/');
        if (slash)
            slash[slash == folder] = 0;
        else
            strcpy(folder, ".");
        given = folder;
    }
    if (!realpath(given ? given : ".", out))
        return fby_fail(error, FBY_EINVAL, "the base folder %s: %s", given ? given : ".", strerror(errno));
    return 0;
}

/* A copy of the state that its reader can rely on not to change; or a negative status. */
static int state_memfd(const fby_state_head *state, fby_error *error)
{
    int fd = memfd_create("forebay-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return fby_fail(error, FBY_EIO, "a memfd for the state: %s", strerror(errno));
    for (uint64_t at = 0; at < state->bytes;) {
        ssize_t written = write(fd, (const char *)state + at, state->bytes - at);
        if (written <= 0 && errno != EINTR) {
            close(fd);
            return fby_fail(error, FBY_ENOMEM, "no memory for a copy of the state: %llu bytes",
                            (unsigned long long)state->bytes);
        }
        if (written > 0) at += (uint64_t)written;
    }
    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    return fd;
}

int fby_task_ask(fby_task *task, const fby_state_head *state, bool again, fby_error *error)
{
    fby_open message = {.name_bytes = (uint32_t)strlen(task->name),
                        .base_bytes = (uint32_t)strlen(task->base),
                        .spec_bytes = (uint32_t)strlen(task->spec),
                        .job_bytes = (uint32_t)strlen(task->job),
                        .rank = task->rank,
                        .again = again};
    message.head = fby_message_head(FBY_MESSAGE_OPEN, message.name_bytes + message.base_bytes +
                                                          message.spec_bytes + message.job_bytes);
    struct iovec parts[] = {{&message, sizeof message},
                            {task->name, message.name_bytes},
                            {task->base, message.base_bytes},
                            {task->spec, message.spec_bytes},
                            {task->job, message.job_bytes}};
    int fd = state ? state_memfd(state, error) : -1;
    if (state && fd < 0) return fd;
    int status = fby_fdpass_send(task->connection.socket, parts, 5, &fd, state ? 1 : 0, error);
    if (fd >= 0) close(fd);
    return status == FBY_ECLOSED ? fby_connection_lost(&task->connection, error) : status;
}

static int classes_read(fby_task *task, int fd, uint32_t count, fby_error *error)
{
    off_t bytes = lseek(fd, 0, SEEK_END);
    if (bytes < (off_t)count)
        return fby_fail(error, FBY_EPROTO, "the server named less than the %u classes that it has", count);
    task->class_names = bytes > 0 ? malloc((size_t)bytes + 1) : NULL;
    task->classes = calloc(count ? count : 1, sizeof *task->classes);
    if (!task->class_names || !task->classes || pread(fd, task->class_names, (size_t)bytes, 0) != bytes)
        return fby_fail(error, FBY_EPROTO, "can't read the names of the classes");
    task->class_names[bytes] = 0;
    const char *at = task->class_names, *end = at + bytes;
    for (uint32_t i = 0; i < count; i++) {
        if (at >= end) return fby_fail(error, FBY_EPROTO, "the server named %u of %u classes", i, count);
        task->classes[i] = at;
        at += strlen(at) + 1;
    }
    return 0;
}

/* What the server says of its samples: sizes are made of it. */
static int samples_fit(const fby_opened *opened, fby_error *error)
{
    uint64_t bytes = opened->element >= FBY_ELEMENT_U8 && opened->element <= FBY_ELEMENT_F32
                         ? fby_dtype_bytes((fby_dtype)opened->element)
                         : 0;
    for (uint32_t i = 0; i < opened->dimensions; i++)
        if (__builtin_mul_overflow(bytes, opened->shape[i], &bytes)) bytes = 0;
    if (!bytes || bytes != opened->sample_bytes)
        return fby_fail(error, FBY_EPROTO,
                        "the server announced samples of %llu bytes, whose shape makes %llu",
                        (unsigned long long)opened->sample_bytes, (unsigned long long)bytes);
    return 0;
}

/* Rings of what OPENED brought; `fds` are closed or the stream's afterwards. */
static int stream_open(fby_stream **out, const fby_opened *opened, const int *fds, fby_error *error)
{
    fby_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        for (int i = 0; i < FBY_OPENED_FDS; i++) close(fds[i]);
        return fby_fail(error, FBY_ENOMEM, "no memory for a task");
    }
    stream->references = 1;
    stream->event_fd = fds[2];
    int status = fby_region_map(&stream->down, fds[0], FBY_REGION_DOWN, error);
    FBY_CRASH_POINT("client: down mapped");
    int next = fby_region_map(&stream->up, fds[1], FBY_REGION_UP, status ? NULL : error);
    status = status ? status : next;
    if (!status)
        status = fby_delivery_reader_init(&stream->reader, stream->down.base, stream->down.bytes,
                                          stream->up.base, error);
    if (!status)
        status = fby_returns_writer_init(&stream->returns, stream->up.base, stream->up.bytes,
                                         opened->return_capacity, error);
    if (status) {
        fby_stream_free(stream);
        return status;
    }
    *out = stream;
    return 0;
}

/* A task that was opened before gets what it got then, from where it stands. */
static int same_task(const fby_task *task, const fby_opened *opened, fby_error *error)
{
    const fby_task_info *info = &task->info;
    bool same = !memcmp(&opened->identity, &task->identity, sizeof task->identity) &&
                opened->samples == info->samples && opened->batches == info->batches &&
                opened->epochs == info->epochs && opened->batch == info->batch &&
                opened->element == info->element && opened->channels_last == info->channels_last &&
                opened->dimensions == info->dimensions && opened->sample_bytes == info->sample_bytes &&
                opened->classes == info->classes && !memcmp(opened->shape, info->shape, sizeof info->shape);
    if (!same) return fby_fail(error, FBY_EPROTO, "the next server made another task of its spec");
    const fby_state_head had = {
        .epoch = task->had_epoch, .part = task->had_part, .position = task->had_samples};
    uint64_t epoch, position = fby_state_next(&had, &epoch);
    if (opened->first_epoch != epoch || opened->position != position)
        return fby_fail(error, FBY_EPROTO,
                        "the next server goes on at sample %llu of epoch %llu, not at %llu of %llu",
                        (unsigned long long)opened->position, (unsigned long long)opened->first_epoch,
                        (unsigned long long)position, (unsigned long long)epoch);
    return 0;
}

static void info_take(fby_task *task, const fby_opened *opened)
{
    fby_task_info *info = &task->info;
    info->size = sizeof *info;
    info->dataset = opened->dataset;
    info->samples = opened->samples;
    info->batches = opened->batches;
    info->epochs = opened->epochs;
    info->batch = opened->batch;
    info->window = opened->window;
    info->element = opened->element;
    info->channels_last = opened->channels_last;
    info->dimensions = opened->dimensions;
    memcpy(info->shape, opened->shape, sizeof info->shape);
    info->classes = opened->classes;
    info->sample_bytes = opened->sample_bytes;
    info->shared_bytes = opened->shared_bytes;
    task->identity = opened->identity;
    task->ranks = opened->ranks;
}

/* Takes over what OPENED brought; `fds` are closed or owned by the task afterwards. */
static int opened_take(fby_task *task, const fby_opened *opened, int *fds, int fd_count, fby_error *error)
{
    int expected = FBY_OPENED_FDS + (opened->classes > 0);
    if (fd_count != expected || opened->dimensions > 4 || !opened->batch || !opened->window) {
        for (int i = 0; i < fd_count; i++) close(fds[i]);
        if (fd_count != expected)
            return fby_fail(error, FBY_EPROTO,
                            "the server opened the task with %d descriptors, where %d were expected",
                            fd_count, expected);
        return fby_fail(
            error, FBY_EPROTO,
            "the server opened a task with batches of %u, a window of %u and samples of %u dimensions",
            opened->batch, opened->window, opened->dimensions);
    }
    bool again = task->stream;
    fby_stream *stream = NULL;
    int status = stream_open(&stream, opened, fds, error);
    if (!status) status = samples_fit(opened, error);
    if (!status && again) status = same_task(task, opened, error);
    if (opened->classes) {
        if (!status && !again) status = classes_read(task, fds[3], opened->classes, error);
        close(fds[3]);
    }
    if (status) {
        fby_stream_free(stream);
        return status;
    }
    if (!again) {
        info_take(task, opened);
        fby_had_set(task, opened);
    }
    pthread_mutex_lock(&task->lock);
    fby_stream *before = task->stream ? fby_stream_unref(task->stream) : NULL;
    task->stream = stream;
    pthread_mutex_unlock(&task->lock);
    fby_stream_free(before); /* its batches that are held keep it */
    task->spin_ns = opened->spin_ns;
    task->least_epoch = task->epoch = task->coming_epoch = opened->first_epoch;
    task->coming_batch = opened->first_batch;
    task->under_way = (opened->behind | opened->position) > 0;
    task->told = (fby_error)FBY_ERROR_INIT;
    return 0;
}

bool fby_task_failure_read(const fby_failed *failed, int64_t bytes, fby_error *why)
{
    if (failed->head.type != FBY_MESSAGE_TASK_FAILED || (size_t)bytes < sizeof *failed || failed->code >= 0)
        return false;
    fby_fail(why, failed->code, "%.*s", (int)((size_t)bytes - sizeof *failed), (const char *)(failed + 1));
    why->sample = failed->sample;
    return true;
}

int fby_task_answer(fby_task *task, int timeout_ms, uint64_t *found, uint64_t *done, fby_error *error)
{
    union {
        fby_message head;
        fby_opened opened;
        fby_progress_message progress;
        fby_failed failed;
        uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
    } answer;
    int fds[FBY_FDPASS_MOST], fd_count = FBY_FDPASS_MOST;
    int64_t got =
        fby_connection_receive(&task->connection, &answer, sizeof answer, fds, &fd_count, timeout_ms, error);
    if (got < 0) return (int)got;
    FBY_CRASH_POINT("client: opened received");
    if (answer.head.type == FBY_MESSAGE_OPENED && got == sizeof answer.opened) {
        int status = opened_take(task, &answer.opened, fds, fd_count, error);
        return status ? status : 1;
    }
    for (int i = 0; i < fd_count; i++) close(fds[i]);
    fby_error why = FBY_ERROR_INIT;
    if (fby_task_failure_read(&answer.failed, got, &why)) { /* another rank, before all were there */
        if (error) *error = why;
        return why.code;
    }
    if (answer.head.type != FBY_MESSAGE_PROGRESS || got != sizeof answer.progress)
        return fby_fail(error, FBY_EPROTO, "the server answered the opening of a task with message %u",
                        answer.head.type);
    *found = answer.progress.found;
    *done = answer.progress.done;
    return 0;
}

/* Opening isn't a wait that a caller can resume: only a progress callback ends it early. */
static int opened_wait(fby_task *task, const fby_task_options *options, fby_error *error)
{
    for (;;) {
        uint64_t found = 0, done = 0;
        int status = fby_task_answer(task, -1, &found, &done, error);
        if (status == 1) return 0;
        if (status && status != FBY_EINTR) return status;
        if (options->progress && !options->progress(options->user, found, done))
            return fby_fail(error, FBY_EINTR, "opening the task was given up by the caller");
    }
}

/* The given state, aligned, or NULL; checked as far as it can be without the task. */
static int state_copy(fby_state_head **out, const fby_task_options *options, fby_error *error)
{
    *out = NULL;
    if (!options->state) return 0;
    fby_state_head *state = malloc(options->state_bytes ? options->state_bytes : 1);
    if (!state) return fby_fail(error, FBY_ENOMEM, "no memory for a state");
    memcpy(state, options->state, options->state_bytes);
    int status = fby_state_check(state, options->state_bytes, error);
    if (status) {
        free(state);
        return status;
    }
    *out = state;
    return 0;
}

/* A connection of the task's own, to its client's server, or to the next one. */
static int task_connect(fby_task *task, fby_error *error)
{
    int status =
        fby_connection_open(&task->connection, task->address.socket_path, FBY_CONNECT_TIMEOUT_MS, error);
    if (status == FBY_ELOST && task->address.starts)
        status = fby_connection_dial(&task->connection, &task->address, FBY_CONNECT_TIMEOUT_MS, error);
    return status;
}

/* What is asked for, kept for the next server. */
static int request_set(fby_task *task, const fby_task_options *options, fby_error *error)
{
    char base[PATH_MAX];
    int status = base_find(base, options->base, options->spec_path, error);
    if (!status && options->spec_path) status = text_read(&task->spec, options->spec_path, error);
    if (status) return status;
    if (options->spec && strlen(options->spec) > SPEC_MOST)
        return fby_fail(error, FBY_EINVAL, "the spec is longer than %d bytes", SPEC_MOST);
    if (options->job && strlen(options->job) > FBY_JOB_MOST)
        return fby_fail(error, FBY_EINVAL, "fby_task_options.job has %zu bytes; expected at most %d",
                        strlen(options->job), FBY_JOB_MOST);
    if (options->spec) task->spec = strdup(options->spec);
    const char *name = options->name ? options->name : options->spec_path ? options->spec_path : "spec";
    if (strlen(name) > 1024) name += strlen(name) - 1024;
    task->name = strdup(name);
    task->base = strdup(base);
    task->job = strdup(options->job ? options->job : "");
    if (!task->spec || !task->name || !task->base || !task->job)
        return fby_fail(error, FBY_ENOMEM, "no memory for a task");
    return 0;
}

int fby_task_open(fby_task **out, fby_client *client, const fby_task_options *given, fby_error *error)
{
    *out = NULL;
    int status = fby_fork_check(client->fork_generation, error);
    if (status) return status;
    if (!given || given->size < sizeof(size_t) || given->size > 4096)
        return fby_fail(error, FBY_EINVAL, "fby_task_open needs options: start from FBY_TASK_OPTIONS_INIT");
    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    if (!options.spec_path == !options.spec)
        return fby_fail(error, FBY_EINVAL, "fby_task_options: set either spec_path or spec");

    fby_state_head *state = NULL;
    fby_task *task = calloc(1, sizeof *task);
    if (!task) return fby_fail(error, FBY_ENOMEM, "no memory for a task");
    pthread_mutex_init(&task->lock, NULL);
    task->fork_generation = client->fork_generation;
    task->references = 1;
    task->connection = (fby_connection){-1, {0, 0, -1}, false};
    task->address = client->address;
    task->rank = options.rank;
    task->notice = options.notice;
    task->notice_user = options.user;
    task->notice_ns = (options.notice_ms ? options.notice_ms : NOTICE_MS) * UINT64_C(1000000);
    status = request_set(task, &options, error);
    if (!status) status = state_copy(&state, &options, error);
    if (!status) status = task_connect(task, error);
    if (!status) status = fby_task_ask(task, state, false, error);
    FBY_CRASH_POINT("client: open sent");
    if (!status) status = opened_wait(task, &options, error);
    if (!status) status = fby_had_begin(task, state, error);
    if (!status) status = fby_keeper_start(task, error);
    free(state);
    if (status) {
        fby_connection_close(&task->connection);
        fby_task_unref(task);
        return status;
    }
    FBY_CRASH_POINT("client: task open");
    *out = task;
    return 0;
}

void fby_task_close(fby_task **handle)
{
    fby_task *task = *handle;
    if (!task) return;
    *handle = NULL;
    if (task->fork_generation != fby_fork_generation()) {
        /* The socket is shared with the parent: only this process's descriptors go. */
        fby_connection_close(&task->connection);
        return;
    }
    fby_keeper_stop(task);
    if (task->assembling) {
        fby_batch_drop(task->assembling, false);
        task->assembling = NULL;
    }
    pthread_mutex_lock(&task->lock);
    task->closed = true;
    pthread_mutex_unlock(&task->lock);
    FBY_CRASH_POINT("client: closing");
    shutdown(task->connection.socket, SHUT_RDWR); /* a forked child may hold a copy: the server is told now */
    FBY_CRASH_POINT("client: shut down");
    fby_connection_close(&task->connection);
    fby_task_unref(task);
}

int fby_task_info_get(const fby_task *task, fby_task_info *out)
{
    size_t size = out->size;
    if (size < sizeof(size_t) || size > 4096) return FBY_EINVAL;
    memcpy(out, &task->info, size < sizeof task->info ? size : sizeof task->info);
    out->size = size;
    return 0;
}

const char *fby_task_class(const fby_task *task, uint32_t label)
{
    return task->classes && label < task->info.classes ? task->classes[label] : NULL;
}

/* --- taking batches
 * ------------------------------------------------------------------------------------------- */

static fby_batch *batch_new(fby_task *task)
{
    pthread_mutex_lock(&task->lock);
    fby_batch *batch = task->free_batches;
    if (batch) task->free_batches = batch->next_free;
    pthread_mutex_unlock(&task->lock);
    if (!batch) {
        batch = calloc(1, sizeof *batch);
        if (!batch) return NULL;
        batch->task = task;
        batch->extent_room = task->info.batch;
        batch->extents = calloc(batch->extent_room, sizeof *batch->extents);
        batch->ids = calloc(task->info.batch, sizeof *batch->ids);
        batch->labels = calloc(task->info.batch, sizeof *batch->labels);
        batch->flags = calloc(task->info.batch, sizeof *batch->flags);
        if (!batch->extents || !batch->ids || !batch->labels || !batch->flags) {
            free(batch->extents);
            free(batch->ids);
            free(batch->labels);
            free(batch->flags);
            free(batch);
            return NULL;
        }
    }
    batch->extent_count = batch->piece_count = 0;
    batch->count = 0;
    batch->stream = task->stream;
    pthread_mutex_lock(&task->lock);
    task->stream->references++;
    task->references++;
    pthread_mutex_unlock(&task->lock);
    return batch;
}

int fby_task_fail(fby_task *task, int status, const fby_error *why, fby_error *error)
{
    task->failure = *why;
    task->failure.code = status;
    if (error) *error = task->failure;
    return status;
}

/* The task failed, as a descriptor or the down region said: the reason was sent before. The last counts,
 * where several ranks have left. FBY_ELOST isn't for good. */
static int failure_receive(fby_task *task, fby_error *error)
{
    union {
        fby_message head;
        fby_failed failed;
        uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
    } message;
    fby_error why = task->told, lost = FBY_ERROR_INIT;
    for (;;) {
        int64_t got = fby_connection_receive(&task->connection, &message, sizeof message, NULL, NULL,
                                             why.code ? 0 : FBY_CONNECT_TIMEOUT_MS, &lost);
        if (got == FBY_EINTR || fby_awaits_take(task, &message, got)) continue;
        if (got < 0 && why.code) break;
        if (got == FBY_ELOST) return FBY_ELOST;
        if (got < 0) return fby_task_fail(task, (int)got, &lost, error);
        if (!fby_task_failure_read(&message.failed, got, &why) && !why.code)
            fby_fail(&why, FBY_EPROTO, "the server said that the task failed, but not why");
    }
    return fby_task_fail(task, why.code, &why, error);
}

/* --- segments
 * -------------------------------------------------------------------------------------------------------- */

typedef union segment_answer {
    fby_message head;
    fby_block_message block;
    fby_blocks_message blocks;
    fby_failed failed;
    fby_epoch_message epoch;
    uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
} segment_answer;

static int milliseconds_left(const fby_task *task)
{
    if (task->wait_until == UINT64_MAX) return -1;
    uint64_t now = fby_now_ns();
    if (now >= task->wait_until) return 0;
    uint64_t left = (task->wait_until - now + 999999) / 1000000;
    return left < INT_MAX ? (int)left : INT_MAX;
}

/* Asks, where that wasn't done yet, and waits for the answer, as long as the caller does: a server that is
 * stopped only means waiting. Bytes of the answer, or a status; after FBY_ETIMEDOUT and FBY_EINTR the
 * question is still out. */
static int64_t ask(fby_task *task, const void *question, size_t bytes, segment_answer *answer, int *fds,
                   int *fd_count, fby_error *error)
{
    uint32_t type = ((const fby_message *)question)->type;
    if (task->asked != type) {
        int status = fby_connection_send(&task->connection, question, bytes, error);
        if (status) return status;
        task->asked = type;
        FBY_CRASH_POINT("client: question asked");
    }
    int room = *fd_count;
    for (;;) {
        *fd_count = room;
        int64_t got = fby_connection_receive(&task->connection, answer, sizeof *answer, fds, fd_count,
                                             milliseconds_left(task), error);
        if (got == FBY_ETIMEDOUT || got == FBY_EINTR) return got;
        if (fby_awaits_take(task, answer, got)) continue;
        fby_error why = FBY_ERROR_INIT;
        if (got < 0 || !fby_task_failure_read(&answer->failed, got, &why)) {
            task->asked = 0;
            return got;
        }
        /* The descriptor that says so comes later, after what was delivered before: this is its reason. */
        for (int i = 0; i < *fd_count; i++) close(fds[i]);
        task->told = why;
    }
}

static int segment_fits(const fby_task *task, const fby_region *segment, uint32_t block, fby_error *error)
{
    int status = fby_segment_check(segment, error);
    if (status) return status;
    const fby_segment_header *head = fby_segment_head(segment);
    if (head->first_block != block || head->blocks != 1 || head->sample_stride != task->info.sample_bytes)
        return fby_fail(
            error, FBY_EPROTO,
            "the server's segment of block %u holds %u blocks from %u, of samples of %llu bytes: one of "
            "%llu was expected",
            block, head->blocks, head->first_block, (unsigned long long)head->sample_stride,
            (unsigned long long)task->info.sample_bytes);
    return 0;
}

static int segment_receive(fby_task *task, uint32_t block, fby_region *out, fby_error *error)
{
    const fby_block_message question = {fby_message_head(FBY_MESSAGE_SEGMENT, 0), block, 0};
    segment_answer answer;
    int fds[FBY_FDPASS_MOST], fd_count = FBY_FDPASS_MOST;
    int64_t got = ask(task, &question, sizeof question, &answer, fds, &fd_count, error);
    FBY_CRASH_POINT("client: segment received");
    if (got < 0) return (int)got;
    if (answer.head.type != FBY_MESSAGE_SEGMENT_REPLY || got != sizeof answer.block ||
        answer.block.block != block || fd_count != 1) {
        for (int i = 0; i < fd_count; i++) close(fds[i]);
        return fby_fail(error, FBY_EPROTO,
                        "the server answered the question for a segment with something else");
    }
    int status = fby_region_map(out, fds[0], FBY_REGION_SEGMENT, error);
    FBY_CRASH_POINT("client: segment mapped");
    if (status) return status;
    status = segment_fits(task, out, block, error);
    if (status) fby_region_close(out);
    return status;
}

/* The segment of a block, mapped on first sight; NULL with the reason where that can't be. */
static const fby_region *segment_of(fby_task *task, uint32_t block, int *status, fby_error *error)
{
    fby_stream *stream = task->stream;
    for (uint32_t i = 0; i < stream->mapped_count; i++)
        if (stream->mapped[i].block == block) return &stream->mapped[i].segment;
    fby_mapped *larger = realloc(stream->mapped, (stream->mapped_count + 1) * sizeof *larger);
    if (!larger) {
        *status = fby_fail(error, FBY_ENOMEM, "no memory for a segment's bookkeeping");
        return NULL;
    }
    stream->mapped = larger;
    fby_region segment;
    *status = segment_receive(task, block, &segment, error);
    if (*status) return NULL;
    stream->mapped[stream->mapped_count] = (fby_mapped){block, segment};
    return &stream->mapped[stream->mapped_count++].segment;
}

/* Unmaps what the server has given up. It did so only once all of it had come back: no batch lies there. */
static int segments_forget(fby_task *task, fby_error *error)
{
    fby_stream *stream = task->stream;
    uint32_t gone = fby_load_relaxed_u32(&((const fby_down_words *)stream->down.base)->gone); /* a hint */
    if (gone == stream->gone || task->asked == FBY_MESSAGE_SEGMENT) return 0;
    const fby_message question = fby_message_head(FBY_MESSAGE_BLOCKS, 0);
    segment_answer answer;
    int fd_count = 0;
    if (!task->asked) task->asked_gone = gone;
    int64_t got = ask(task, &question, sizeof question, &answer, NULL, &fd_count, error);
    if (got < 0) return (int)got;
    if (answer.head.type != FBY_MESSAGE_BLOCKS_REPLY || got != sizeof answer.blocks ||
        answer.blocks.count > FBY_BLOCKS_MOST)
        return fby_fail(error, FBY_EPROTO,
                        "the server answered the question for its blocks with something else");
    stream->gone = task->asked_gone;
    FBY_CRASH_POINT("client: blocks received");
    for (uint32_t i = 0; i < stream->mapped_count;) {
        bool there = false;
        for (uint32_t k = 0; k < answer.blocks.count && !there; k++)
            there = answer.blocks.blocks[k] == stream->mapped[i].block;
        if (there) {
            i++;
            continue;
        }
        fby_region_close(&stream->mapped[i].segment);
        FBY_CRASH_POINT("client: segment unmapped");
        stream->mapped[i] = stream->mapped[--stream->mapped_count];
    }
    return 0;
}

/* Adds a descriptor's extent to the batch being assembled. */
static int extent_add(fby_task *task, const fby_descriptor *descriptor, fby_error *error)
{
    fby_batch *batch = task->assembling;
    /* First: a block's number may be another's by now. */
    int status = segments_forget(task, error);
    if (status) return status;
    const fby_region *segment = segment_of(task, descriptor->block, &status, error);
    if (!segment) return status;
    const fby_segment_header *head = fby_segment_head(segment);
    if (!descriptor->count || descriptor->first > head->capacity ||
        descriptor->count > head->capacity - descriptor->first ||
        descriptor->count > task->info.batch - batch->count || batch->extent_count == batch->extent_room)
        return fby_fail(error, FBY_EPROTO, "the server described samples that don't exist");
    fby_block_meta *block = fby_block_meta_at(segment, 0);
    for (uint32_t i = 0; i < descriptor->count; i++) {
        const fby_sample_meta *sample = fby_sample_meta_at(block, descriptor->first + i);
        batch->ids[batch->count + i] = sample->id;
        batch->labels[batch->count + i] = (int64_t)sample->label;
        batch->flags[batch->count + i] = descriptor->flags >> FBY_DESCRIPTOR_SAMPLE_SHIFT;
    }
    const uint8_t *data =
        (const uint8_t *)fby_block_payload(segment, 0) + descriptor->first * task->info.sample_bytes;
    const struct fby_extent_place *last =
        batch->extent_count ? &batch->extents[batch->extent_count - 1] : NULL;
    batch->piece_count += !last || last->data + last->count * task->info.sample_bytes != data;
    batch->extents[batch->extent_count++] = (struct fby_extent_place){
        descriptor->block, descriptor->generation, descriptor->first, descriptor->count, data};
    batch->count += descriptor->count;
    return 0;
}

/* Counts the batch whose last extent came. */
static int batch_number(fby_task *task, fby_batch *batch, const fby_descriptor *descriptor, fby_error *error)
{
    /* An epoch that was given up may end without its last batch: the next is the one agreed upon. */
    if (descriptor->flags & FBY_DESCRIPTOR_EPOCH_FIRST) {
        if (task->coming_epoch < task->least_epoch) task->coming_epoch = task->least_epoch;
        task->coming_batch = 0;
    }
    if (descriptor->batch != (task->coming_batch & FBY_DESCRIPTOR_BATCH_MASK))
        return fby_fail(error, FBY_EPROTO, "the server delivered batch %u where %llu was expected",
                        descriptor->batch, (unsigned long long)task->coming_batch);
    batch->epoch = task->coming_epoch;
    batch->index = task->coming_batch++;
    batch->last = descriptor->flags & FBY_DESCRIPTOR_EPOCH_LAST;
    if (batch->last) {
        task->coming_epoch++;
        task->coming_batch = 0;
    }
    return 0;
}

/* Whether an epoch that another rank has left before its end would seem whole with this, its last batch or a
 * later one. What lies in the ring before that still comes. */
static bool is_cut(const fby_task *task, uint64_t epoch, bool last)
{
    /* Relaxed: the reason was sent before this was set; what is taken before it is seen was had. */
    uint64_t end = fby_load_relaxed_u32(&((const fby_down_words *)task->stream->down.base)->end);
    return end && epoch + 1 + last > end;
}

/* Takes what is in the ring: 1 with a whole batch in *out, 0 where more must come, or a status. FBY_ELOST:
 * what is there can't be had any more. */
static int batch_take(fby_task *task, fby_batch **out, fby_error *error)
{
    while (task->has_current || fby_delivery_take(&task->stream->reader, &task->current, TAKE_MOST)) {
        const fby_descriptor descriptor = task->current;
        task->has_current = true;
        FBY_CRASH_POINT("client: descriptor taken");
        if (descriptor.flags & FBY_DESCRIPTOR_ERROR) return failure_receive(task, error);
        if (descriptor.flags & FBY_DESCRIPTOR_END && is_cut(task, task->info.epochs, true))
            return failure_receive(task, error);
        if (descriptor.flags & FBY_DESCRIPTOR_END) {
            task->ended = true;
            return fby_fail(error, FBY_EEND, "the last epoch is over");
        }
        if (!task->assembling) task->assembling = batch_new(task);
        if (!task->assembling) {
            fby_error why = FBY_ERROR_INIT;
            fby_fail(&why, FBY_ENOMEM, "no memory for a batch's bookkeeping");
            return fby_task_fail(task, FBY_ENOMEM, &why, error);
        }
        fby_error why = FBY_ERROR_INIT;
        int status = extent_add(task, &descriptor, &why);
        if (status == FBY_ELOST) return status;
        if (status == FBY_ETIMEDOUT || status == FBY_EINTR) {
            if (error) *error = why;
            return status;
        }
        task->has_current = false;
        if (status) return fby_task_fail(task, status, &why, error);
        if (!(descriptor.flags & FBY_DESCRIPTOR_LAST)) continue;
        status = batch_number(task, task->assembling, &descriptor, &why);
        if (status) return fby_task_fail(task, status, &why, error);
        fby_batch *batch = task->assembling;
        task->assembling = NULL;
        FBY_CRASH_POINT("client: batch whole");
        if (batch->epoch < task->least_epoch) {
            fby_batch_drop(batch, false);
            continue;
        }
        if (is_cut(task, batch->epoch, batch->last)) {
            fby_batch_drop(batch, false);
            return failure_receive(task, error);
        }
        pthread_mutex_lock(&task->lock);
        task->held++;
        pthread_mutex_unlock(&task->lock);
        task->under_way = !batch->last;
        task->epoch = batch->epoch;
        fby_had_add(task, batch);
        *out = batch;
        return 1;
    }
    return 0;
}

bool fby_task_server_gone(const fby_task *task)
{
    struct pollfd entry = {task->connection.socket, POLLIN, 0};
    if (fby_peer_ended(&task->connection.peer)) return true;
    return poll(&entry, 1, 0) == 1 && (entry.revents & (POLLHUP | POLLERR));
}

static int timed_out(const fby_task *task, int64_t timeout_ns, fby_error *error)
{
    if (!task->all_came && *task->awaits)
        return fby_fail(error, FBY_ETIMEDOUT, "no batch within %.3f s: %.900s", (double)timeout_ns * 1e-9,
                        task->awaits);
    return fby_fail(error, FBY_ETIMEDOUT,
                    "no batch within %.3f s: %u of %u samples of the next batch of epoch %llu have come; "
                    "`forebay status` shows what the server does",
                    (double)timeout_ns * 1e-9, task->assembling ? task->assembling->count : 0,
                    task->info.batch, (unsigned long long)task->epoch);
}

static int batch_wait(fby_task *task, int64_t timeout_ns, uint64_t deadline, fby_batch **out,
                      fby_error *error)
{
    int status;
    if (task->ended) return fby_fail(error, FBY_EEND, "the last epoch is over");
    if (task->failure.code) {
        if (error) *error = task->failure;
        return task->failure.code;
    }

    pthread_mutex_lock(&task->lock);
    uint32_t held = task->held;
    pthread_mutex_unlock(&task->lock);
    if (held >= task->info.window)
        return fby_fail(error, FBY_EWINDOW,
                        "all %u batches of the window are held, so no further one can come: release a batch "
                        "first, copy what must be kept, or raise `window`",
                        task->info.window);
    task->wait_until = deadline;
    for (;;) {
        bool gone = false;
        if (task->tie == FBY_TIE_HELD) {
            status = batch_take(task, out, error);
            if (status > 0) return 0;
            if (status == FBY_ETIMEDOUT) return timed_out(task, timeout_ns, error);
            if (status && status != FBY_ELOST) return status;
            gone = status == FBY_ELOST;
        }
        /* What the wait compares is the ring as it was left: descriptors of a given-up epoch may have gone
         * by. */
        uint32_t seen = task->stream->reader.head;
        uint64_t now = fby_now_ns();
        if (gone) {
            status = fby_task_lose(task, error);
            if (status) return status;
        }
        if (task->tie != FBY_TIE_HELD) {
            status = fby_task_tie(task, deadline, error);
            if (status) return status;
            continue;
        }
        if (task->ranks > 1 && !task->all_came) fby_awaits_step(task, now);
        if (now >= deadline) return timed_out(task, timeout_ns, error);
        FBY_CRASH_POINT("client: before it waits");
        /* That all was taken is news to a server that sleeps: what is held may be more than half of the
         * window. The fence stands between the ring's head, which says so, and the look at the sleeper's
         * flag. */
        fby_fence_seq_cst();
        fby_wake_conductor(task->stream->down.base, task->stream->event_fd);
        uint64_t until = now + LOOK_AFTER_NS < deadline ? now + LOOK_AFTER_NS : deadline;
        fby_wait_result result =
            fby_wait_delivery(task->stream->down.base, task->stream->up.base, seen, task->spin_ns, until);
        FBY_CRASH_POINT("client: waited");
        task->waited_ns += fby_now_ns() - now;
        /* Relaxed: for the server to show. */
        fby_store_relaxed_u64(&((fby_up_words *)task->stream->up.base)->waited_ns, task->waited_ns);
        if (result == FBY_WAIT_READY) continue;
        if (fby_task_server_gone(task)) {
            /* What it delivered before its end still counts. */
            status = batch_take(task, out, error);
            if (status > 0) return 0;
            if (status && status != FBY_ELOST) return status;
            status = fby_task_lose(task, error);
            if (status) return status;
            continue;
        }
        if (result == FBY_WAIT_INTERRUPTED)
            return fby_fail(error, FBY_EINTR, "a signal arrived while waiting for a batch");
    }
}

int fby_task_next(fby_task *task, int64_t timeout_ns, fby_batch **out, fby_error *error)
{
    *out = NULL;
    int status = fby_fork_check(task->fork_generation, error);
    if (status) return status;
    uint64_t deadline = timeout_ns >= 0 ? fby_now_ns() + (uint64_t)timeout_ns : UINT64_MAX;
    status = fby_turn_begin(task, deadline, error);
    if (status) return status;
    status = batch_wait(task, timeout_ns, deadline, out, error);
    fby_turn_end(task);
    return status;
}

/* The epoch of the last batch ends here; the server knows, or will be told with the state. */
static int epoch_leave(fby_task *task, uint64_t next, fby_error *error)
{
    task->under_way = false;
    task->least_epoch = next;
    fby_had_leave(task, next);
    if (task->assembling && task->ranks == 1) {
        fby_batch_drop(task->assembling, false);
        task->assembling = NULL;
    }
    if (!task->info.epochs || next < task->info.epochs) return 0;
    task->ended = true;
    return fby_fail(error, FBY_EEND, "the last epoch is over");
}

/* Without a server. One that was asked to go on in this epoch is left again. */
static int abandon_alone(fby_task *task, fby_error *error)
{
    if (task->tie == FBY_TIE_HELD) {
        int status = fby_task_lose(task, error);
        if (status) return status;
    }
    fby_connection_close(&task->connection);
    task->tie = FBY_TIE_LOST;
    return epoch_leave(task, task->epoch + 1, error);
}

static int epoch_abandon(fby_task *task, fby_error *error)
{
    if (task->failure.code) {
        if (error) *error = task->failure;
        return task->failure.code;
    }
    if (!task->under_way) return 0;
    if (task->tie != FBY_TIE_HELD) return abandon_alone(task, error);
    /* Of several ranks the others go on with it: what still comes of it is given back unseen. */
    if (task->ranks > 1) return epoch_leave(task, task->epoch + 1, error);
    fby_epoch_message message = {fby_message_head(FBY_MESSAGE_ABANDON, 0), task->epoch};
    int status = fby_connection_send(&task->connection, &message, sizeof message, error);
    if (status == FBY_ELOST) return abandon_alone(task, error);
    if (status) return status;
    segment_answer answer;
    fby_error why = FBY_ERROR_INIT;
    int64_t got;
    do {
        int fds[FBY_FDPASS_MOST], fd_count = FBY_FDPASS_MOST;
        got = fby_connection_receive(&task->connection, &answer, sizeof answer, fds, &fd_count,
                                     FBY_CONNECT_TIMEOUT_MS, &why);
        for (int k = 0; got >= 0 && k < fd_count; k++) close(fds[k]);
        /* The answer to a question that a wait left open comes first: it is asked again. */
        bool other = got >= 0 && answer.head.type != FBY_MESSAGE_ABANDONED &&
                     answer.head.type != FBY_MESSAGE_TASK_FAILED;
        if (!task->asked || !other) continue;
        task->asked = 0;
        got = FBY_EINTR;
    } while (got == FBY_EINTR);
    if (got == FBY_ELOST) return abandon_alone(task, error);
    if (got == FBY_EEND) return epoch_leave(task, task->info.epochs, error);
    if (got < 0)
        return fby_task_fail(task, (int)got, &why,
                             error); /* an answer that came later would be taken for another's */
    if (fby_task_failure_read(&answer.failed, got, &why)) return fby_task_fail(task, why.code, &why, error);
    FBY_CRASH_POINT("client: abandoned answered");
    if (answer.epoch.head.type != FBY_MESSAGE_ABANDONED || got != sizeof answer.epoch)
        return fby_fail(error, FBY_EPROTO, "the server answered the end of an epoch with something else");
    return epoch_leave(task, answer.epoch.epoch, error);
}

int fby_task_abandon(fby_task *task, fby_error *error)
{
    int status = fby_fork_check(task->fork_generation, error);
    if (!status) status = fby_turn_begin(task, UINT64_MAX, error);
    if (status) return status;
    status = epoch_abandon(task, error);
    fby_turn_end(task);
    return status;
}
