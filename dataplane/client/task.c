#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/client/internal.h"
#include "dataplane/protocol/crash.h"
#include "kernels/dtype.h"
#include "ringbuf/atomic.h"
#include "ringbuf/fdpass.h"
#include "ringbuf/wait.h"

/* How long a wait may go on before it looks after the server. */
static const uint64_t LOOK_AFTER_NS = 400 * 1000 * 1000ull;

enum { TAKE_MOST = 1, SPEC_MOST = 64 * 1024 };

/* --- opening
 * ------------------------------------------------------------------------------------------------ */

static int text_read(char **out, const char *path, fby_error *error)
{
    FILE *file = fopen(path, "re");
    if (!file) return fby_fail(error, FBY_EINVAL, "can't read the spec %s: %s", path, strerror(errno));
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

static int open_send(fby_task *task, const char *name, const char *base, const char *spec, uint32_t rank,
                     fby_error *error)
{
    fby_open message = {.name_bytes = (uint32_t)strlen(name),
                        .base_bytes = (uint32_t)strlen(base),
                        .spec_bytes = (uint32_t)strlen(spec),
                        .rank = rank};
    message.head =
        fby_message_head(FBY_MESSAGE_OPEN, message.name_bytes + message.base_bytes + message.spec_bytes);
    struct iovec parts[] = {{&message, sizeof message},
                            {(void *)name, message.name_bytes},
                            {(void *)base, message.base_bytes},
                            {(void *)spec, message.spec_bytes}};
    int status = fby_fdpass_send(task->connection.socket, parts, 4, NULL, 0, error);
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

/* Takes over what OPENED brought; `fds` are closed or owned by the task afterwards. */
static int opened_take(fby_task *task, const fby_opened *opened, int *fds, int fd_count, fby_error *error)
{
    int status = 0;
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
    task->event_fd = fds[2];
    status = fby_region_map(&task->down, fds[0], FBY_REGION_DOWN, error);
    FBY_CRASH_POINT("client: down mapped");
    int next = fby_region_map(&task->up, fds[1], FBY_REGION_UP, status ? NULL : error);
    status = status ? status : next;
    if (!status) status = samples_fit(opened, error);
    if (!status)
        status =
            fby_delivery_reader_init(&task->reader, task->down.base, task->down.bytes, task->up.base, error);
    if (!status)
        status = fby_returns_writer_init(&task->returns, task->up.base, task->up.bytes,
                                         opened->return_capacity, error);
    if (opened->classes) {
        if (!status) status = classes_read(task, fds[3], opened->classes, error);
        close(fds[3]);
    }
    task->spin_ns = opened->spin_ns;
    task->least_epoch = opened->first_epoch;
    task->epoch = task->coming_epoch = opened->first_epoch;
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
    task->ranks = opened->ranks;
    return status;
}

static int opened_wait(fby_task *task, const fby_task_options *options, fby_error *error)
{
    union {
        fby_message head;
        fby_opened opened;
        fby_progress_message progress;
        uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
    } answer;
    for (;;) {
        int fds[FBY_FDPASS_MOST], fd_count = FBY_FDPASS_MOST;
        int64_t got =
            fby_connection_receive(&task->connection, &answer, sizeof answer, fds, &fd_count, -1, error);
        /* Opening isn't a wait that a caller can resume: only a progress callback ends it early. */
        if (got == FBY_EINTR) {
            if (options->progress && !options->progress(options->user, 0, 0)) return (int)got;
            continue;
        }
        if (got < 0) return (int)got;
        FBY_CRASH_POINT("client: opened received");
        if (answer.head.type == FBY_MESSAGE_OPENED && got == sizeof answer.opened)
            return opened_take(task, &answer.opened, fds, fd_count, error);
        for (int i = 0; i < fd_count; i++) close(fds[i]);
        if (answer.head.type != FBY_MESSAGE_PROGRESS || got != sizeof answer.progress)
            return fby_fail(error, FBY_EPROTO, "the server answered the opening of a task with message %u",
                            answer.head.type);
        if (options->progress &&
            !options->progress(options->user, answer.progress.found, answer.progress.done))
            return fby_fail(error, FBY_EINTR, "opening the task was given up by the caller");
    }
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

    char base[PATH_MAX], *text = NULL;
    fby_task *task = calloc(1, sizeof *task);
    if (!task) return fby_fail(error, FBY_ENOMEM, "no memory for a task");
    pthread_mutex_init(&task->lock, NULL);
    task->fork_generation = client->fork_generation;
    task->references = 1;
    task->event_fd = task->down.fd = task->up.fd = -1;
    task->connection = (fby_connection){-1, {0, 0, -1}, false};
    status = base_find(base, options.base, options.spec_path, error);
    if (!status && options.spec_path) status = text_read(&text, options.spec_path, error);
    const char *spec = text ? text : options.spec;
    if (!status && strlen(spec) > SPEC_MOST)
        status = fby_fail(error, FBY_EINVAL, "the spec is longer than %d bytes", SPEC_MOST);
    const char *name = options.name ? options.name : options.spec_path ? options.spec_path : "spec";
    if (!status && strlen(name) > 1024) name += strlen(name) - 1024;
    if (!status)
        status = fby_connection_open(&task->connection, client->socket_path, FBY_CONNECT_TIMEOUT_MS, error);
    if (!status) status = open_send(task, name, base, spec, options.rank, error);
    FBY_CRASH_POINT("client: open sent");
    if (!status) status = opened_wait(task, &options, error);
    free(text);
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
    pthread_mutex_lock(&task->lock);
    task->references++;
    pthread_mutex_unlock(&task->lock);
    return batch;
}

/* Remembers a failure for good: every further call repeats it. */
static int fail_for_good(fby_task *task, int status, const fby_error *why, fby_error *error)
{
    task->failure = *why;
    task->failure.code = status;
    if (error) *error = task->failure;
    return status;
}

/* What TASK_FAILED says, in a message of `bytes`; false where it isn't one. */
static bool failure_read(const fby_failed *failed, int64_t bytes, fby_error *why)
{
    if (failed->head.type != FBY_MESSAGE_TASK_FAILED || (size_t)bytes < sizeof *failed || failed->code >= 0)
        return false;
    fby_fail(why, failed->code, "%.*s", (int)((size_t)bytes - sizeof *failed), (const char *)(failed + 1));
    why->sample = failed->sample;
    return true;
}

/* The descriptor said that the task failed: the reason was sent before. */
static int failure_receive(fby_task *task, fby_error *error)
{
    union {
        fby_failed failed;
        uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
    } message;
    fby_error why = FBY_ERROR_INIT;
    int64_t got;
    if (task->told.code) {
        why = task->told;
        return fail_for_good(task, why.code, &why, error);
    }
    do
        got = fby_connection_receive(&task->connection, &message, sizeof message, NULL, NULL,
                                     FBY_CONNECT_TIMEOUT_MS, &why);
    while (got == FBY_EINTR);
    if (got < 0) return fail_for_good(task, (int)got, &why, error);
    if (!failure_read(&message.failed, got, &why))
        fby_fail(&why, FBY_EPROTO, "the server said that the task failed, but not why");
    return fail_for_good(task, why.code, &why, error);
}

/* --- segments
 * -------------------------------------------------------------------------------------------------------- */

typedef union segment_answer {
    fby_message head;
    fby_block_message block;
    fby_blocks_message blocks;
    fby_failed failed;
    uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
} segment_answer;

/* Asks, and waits for the answer, which may be that the task has failed. Bytes of it, or a status. */
static int64_t ask(fby_task *task, const void *question, size_t bytes, segment_answer *answer, int *fds,
                   int *fd_count, fby_error *error)
{
    int status = fby_connection_send(&task->connection, question, bytes, error);
    if (status) return status;
    FBY_CRASH_POINT("client: question asked");
    int room = *fd_count;
    for (;;) {
        *fd_count = room;
        int64_t got = fby_connection_receive(&task->connection, answer, sizeof *answer, fds, fd_count,
                                             FBY_CONNECT_TIMEOUT_MS, error);
        if (got == FBY_EINTR) continue;
        if (got < 0) return got;
        fby_error why = FBY_ERROR_INIT;
        if (!failure_read(&answer->failed, got, &why)) return got;
        /* The descriptor that says so comes later, after what was delivered before: this is its reason. */
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
    for (uint32_t i = 0; i < task->mapped_count; i++)
        if (task->mapped[i].block == block) return &task->mapped[i].segment;
    fby_mapped *larger = realloc(task->mapped, (task->mapped_count + 1) * sizeof *larger);
    if (!larger) {
        *status = fby_fail(error, FBY_ENOMEM, "no memory for a segment's bookkeeping");
        return NULL;
    }
    task->mapped = larger;
    fby_region segment;
    *status = segment_receive(task, block, &segment, error);
    if (*status) return NULL;
    task->mapped[task->mapped_count] = (fby_mapped){block, segment};
    return &task->mapped[task->mapped_count++].segment;
}

/* Unmaps what the server has given up. It did so only once all of it had come back: no batch lies there. */
static int segments_forget(fby_task *task, fby_error *error)
{
    uint32_t gone = fby_load_relaxed_u32(&((const fby_down_words *)task->down.base)->gone); /* a hint */
    if (gone == task->gone) return 0;
    const fby_message question = fby_message_head(FBY_MESSAGE_BLOCKS, 0);
    segment_answer answer;
    int fd_count = 0;
    int64_t got = ask(task, &question, sizeof question, &answer, NULL, &fd_count, error);
    if (got < 0) return (int)got;
    if (answer.head.type != FBY_MESSAGE_BLOCKS_REPLY || got != sizeof answer.blocks ||
        answer.blocks.count > FBY_BLOCKS_MOST)
        return fby_fail(error, FBY_EPROTO,
                        "the server answered the question for its blocks with something else");
    task->gone = gone;
    FBY_CRASH_POINT("client: blocks received");
    for (uint32_t i = 0; i < task->mapped_count;) {
        bool there = false;
        for (uint32_t k = 0; k < answer.blocks.count && !there; k++)
            there = answer.blocks.blocks[k] == task->mapped[i].block;
        if (there) {
            i++;
            continue;
        }
        fby_region_close(&task->mapped[i].segment);
        FBY_CRASH_POINT("client: segment unmapped");
        task->mapped[i] = task->mapped[--task->mapped_count];
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

/* Takes what is in the ring: 1 with a whole batch in *out, 0 where more must come, or a status. */
static int batch_take(fby_task *task, fby_batch **out, fby_error *error)
{
    fby_descriptor descriptor;
    while (fby_delivery_take(&task->reader, &descriptor, TAKE_MOST)) {
        FBY_CRASH_POINT("client: descriptor taken");
        if (descriptor.flags & FBY_DESCRIPTOR_ERROR) return failure_receive(task, error);
        if (descriptor.flags & FBY_DESCRIPTOR_END) {
            task->ended = true;
            return fby_fail(error, FBY_EEND, "the last epoch is over");
        }
        if (!task->assembling) task->assembling = batch_new(task);
        if (!task->assembling) {
            fby_error why = FBY_ERROR_INIT;
            fby_fail(&why, FBY_ENOMEM, "no memory for a batch's bookkeeping");
            return fail_for_good(task, FBY_ENOMEM, &why, error);
        }
        fby_error why = FBY_ERROR_INIT;
        int status = extent_add(task, &descriptor, &why);
        if (status) return fail_for_good(task, status, &why, error);
        if (!(descriptor.flags & FBY_DESCRIPTOR_LAST)) continue;
        status = batch_number(task, task->assembling, &descriptor, &why);
        if (status) return fail_for_good(task, status, &why, error);
        fby_batch *batch = task->assembling;
        task->assembling = NULL;
        FBY_CRASH_POINT("client: batch whole");
        if (batch->epoch < task->least_epoch) {
            fby_batch_drop(batch, false);
            continue;
        }
        pthread_mutex_lock(&task->lock);
        task->held++;
        pthread_mutex_unlock(&task->lock);
        task->under_way = !batch->last;
        task->epoch = batch->epoch;
        *out = batch;
        return 1;
    }
    return 0;
}

static bool server_gone(const fby_task *task)
{
    struct pollfd entry = {task->connection.socket, POLLIN, 0};
    if (fby_peer_ended(&task->connection.peer)) return true;
    return poll(&entry, 1, 0) == 1 && (entry.revents & (POLLHUP | POLLERR));
}

int fby_task_next(fby_task *task, int64_t timeout_ns, fby_batch **out, fby_error *error)
{
    *out = NULL;
    int status = fby_fork_check(task->fork_generation, error);
    if (status) return status;
    if (task->failure.code) {
        if (error) *error = task->failure;
        return task->failure.code;
    }
    if (task->ended) return fby_fail(error, FBY_EEND, "the last epoch is over");

    pthread_mutex_lock(&task->lock);
    uint32_t held = task->held;
    pthread_mutex_unlock(&task->lock);
    if (held >= task->info.window)
        return fby_fail(error, FBY_EWINDOW,
                        "all %u batches of the window are held, so no further one can come: release a batch "
                        "first, copy what must be kept, or raise `window`",
                        task->info.window);
    uint64_t started = 0, deadline = UINT64_MAX;
    for (;;) {
        status = batch_take(task, out, error);
        if (status) return status > 0 ? 0 : status;
        /* What the wait compares is the ring as it was left: descriptors of a given-up epoch may have gone
         * by. */
        uint32_t seen = task->reader.head;
        uint64_t now = fby_now_ns();
        if (!started) {
            started = now;
            if (timeout_ns >= 0) deadline = now + (uint64_t)timeout_ns;
        }
        if (now >= deadline)
            return fby_fail(error, FBY_ETIMEDOUT,
                            "no batch within %.3f s: %u of %u samples of the next batch of epoch %llu have "
                            "come; `forebay status` shows what the server does",
                            (double)timeout_ns * 1e-9, task->assembling ? task->assembling->count : 0,
                            task->info.batch, (unsigned long long)task->epoch);
        FBY_CRASH_POINT("client: before it waits");
        /* That all was taken is news to a server that sleeps: what is held may be more than half of the
         * window. The fence stands between the ring's head, which says so, and the look at the sleeper's
         * flag. */
        fby_fence_seq_cst();
        fby_wake_conductor(task->down.base, task->event_fd);
        uint64_t until = now + LOOK_AFTER_NS < deadline ? now + LOOK_AFTER_NS : deadline;
        fby_wait_result result =
            fby_wait_delivery(task->down.base, task->up.base, seen, task->spin_ns, until);
        FBY_CRASH_POINT("client: waited");
        if (result == FBY_WAIT_READY) continue;
        if (server_gone(task)) {
            /* What it delivered before its end still counts. */
            status = batch_take(task, out, error);
            if (status) return status > 0 ? 0 : status;
            fby_error why = FBY_ERROR_INIT;
            fby_connection_lost(&task->connection, &why);
            return fail_for_good(task, FBY_ELOST, &why, error);
        }
        if (result == FBY_WAIT_INTERRUPTED)
            return fby_fail(error, FBY_EINTR, "a signal arrived while waiting for a batch");
    }
}

int fby_task_abandon(fby_task *task, fby_error *error)
{
    int status = fby_fork_check(task->fork_generation, error);
    if (status) return status;
    if (task->failure.code) {
        if (error) *error = task->failure;
        return task->failure.code;
    }
    if (!task->under_way) return 0;
    if (task->ranks > 1) { /* the others go on with it: what still comes of it is given back unseen */
        task->under_way = false;
        task->least_epoch = task->epoch + 1;
        if (!task->info.epochs || task->least_epoch < task->info.epochs) return 0;
        task->ended = true;
        return fby_fail(error, FBY_EEND, "the last epoch is over");
    }
    fby_epoch_message message = {fby_message_head(FBY_MESSAGE_ABANDON, 0), task->epoch};
    status = fby_connection_send(&task->connection, &message, sizeof message, error);
    if (status) return status;
    union {
        fby_epoch_message epoch;
        fby_failed failed;
        uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
    } answer;
    fby_error why = FBY_ERROR_INIT;
    int64_t got;
    do
        got = fby_connection_receive(&task->connection, &answer, sizeof answer, NULL, NULL,
                                     FBY_CONNECT_TIMEOUT_MS, &why);
    while (got == FBY_EINTR);
    if (got == FBY_EEND) {
        task->ended = true;
        if (error) *error = why;
        return FBY_EEND;
    }
    if (got < 0)
        return fail_for_good(task, (int)got, &why,
                             error); /* an answer that came later would be taken for another's */
    if (failure_read(&answer.failed, got, &why)) return fail_for_good(task, why.code, &why, error);
    FBY_CRASH_POINT("client: abandoned answered");
    if (answer.epoch.head.type != FBY_MESSAGE_ABANDONED || got != sizeof answer.epoch)
        return fby_fail(error, FBY_EPROTO, "the server answered the end of an epoch with something else");
    task->under_way = false;
    task->least_epoch = answer.epoch.epoch;
    if (task->assembling) {
        fby_batch_drop(task->assembling, false);
        task->assembling = NULL;
    }
    return 0;
}
