#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/client/internal.h"
#include "dataplane/protocol/crash.h"
#include "kernels/dtype.h"
#include "ringbuf/wait.h"

fby_stream *fby_stream_unref(fby_stream *stream)
{
    return --stream->references ? NULL : stream;
}

void fby_stream_free(fby_stream *stream)
{
    if (!stream) return;
    for (uint32_t i = 0; i < stream->mapped_count; i++) fby_region_close(&stream->mapped[i].segment);
    free(stream->mapped);
    fby_region_close(&stream->down);
    fby_region_close(&stream->up);
    if (stream->event_fd >= 0) close(stream->event_fd);
    free(stream);
}

static void task_free(fby_task *task)
{
    while (task->free_batches) {
        fby_batch *batch = task->free_batches;
        task->free_batches = batch->next_free;
        free(batch->extents);
        free(batch->ids);
        free(batch->labels);
        free(batch->flags);
        free(batch);
    }
    FBY_CRASH_POINT("client: freeing");
    fby_stream_free(task->stream);
    free(task->class_names);
    free(task->classes);
    free(task->had);
    free(task->had_counts);
    free(task->name);
    free(task->base);
    free(task->spec);
    free(task->job);
    pthread_mutex_destroy(&task->lock);
    free(task);
}

void fby_task_unref(fby_task *task)
{
    pthread_mutex_lock(&task->lock);
    bool last = --task->references == 0;
    pthread_mutex_unlock(&task->lock);
    if (last) task_free(task);
}

void fby_batch_drop(fby_batch *batch, bool was_held)
{
    fby_task *task = batch->task;
    fby_stream *stream = batch->stream;
    pthread_mutex_lock(&task->lock);
    /* After a close too: the server keeps what a living client holds until it comes back. Where the server is
     * lost, nobody reads it. */
    for (uint32_t i = 0; i < batch->extent_count; i++)
        fby_returns_put(&stream->returns, batch->extents[i].block << 16 | batch->extents[i].first,
                        batch->extents[i].generation);
    FBY_CRASH_POINT("client: before returns are published");
    fby_returns_publish(&stream->returns);
    FBY_CRASH_POINT("client: returns published");
    fby_wake_conductor(stream->down.base, stream->event_fd);
    FBY_CRASH_POINT("client: conductor woken");
    stream = fby_stream_unref(stream);
    batch->stream = NULL;
    if (was_held) task->held--;
    batch->extent_count = batch->piece_count = 0;
    batch->count = 0;
    batch->next_free = task->free_batches;
    task->free_batches = batch;
    bool last = --task->references == 0;
    pthread_mutex_unlock(&task->lock);
    fby_stream_free(stream);
    if (last) task_free(task);
}

void fby_batch_release(fby_batch **handle)
{
    fby_batch *batch = *handle;
    if (!batch) return;
    *handle = NULL;
    /* A forked child holds a copy of the bookkeeping, not the memory: the batch is the parent's to give back.
     */
    if (batch->task->fork_generation != fby_fork_generation()) return;
    fby_batch_drop(batch, true);
}

uint64_t fby_batch_epoch(const fby_batch *batch)
{
    return batch->epoch;
}

uint64_t fby_batch_index(const fby_batch *batch)
{
    return batch->index;
}

bool fby_batch_last(const fby_batch *batch)
{
    return batch->last;
}

uint32_t fby_batch_count(const fby_batch *batch)
{
    return batch->count;
}

const uint64_t *fby_batch_ids(const fby_batch *batch)
{
    return batch->ids;
}

const int64_t *fby_batch_labels(const fby_batch *batch)
{
    return batch->labels;
}

const uint32_t *fby_batch_flags(const fby_batch *batch)
{
    return batch->flags;
}

uint32_t fby_batch_extents(const fby_batch *batch)
{
    return batch->piece_count;
}

/* The `index`-th run of neighbours: its first sample's memory, and how many samples. */
static const uint8_t *piece_of(const fby_batch *batch, uint32_t index, uint64_t *count)
{
    uint64_t sample_bytes = batch->task->info.sample_bytes;
    const uint8_t *data = NULL;
    uint32_t piece = 0;
    *count = 0;
    for (uint32_t i = 0; i < batch->extent_count; i++) {
        const struct fby_extent_place *extent = &batch->extents[i];
        bool begins = i == 0 || extent[-1].data + extent[-1].count * sample_bytes != extent->data;
        if (begins && piece++ > index) break;
        if (piece != index + 1) continue;
        if (begins) data = extent->data;
        *count += extent->count;
    }
    return data;
}

int fby_batch_extent(const fby_batch *batch, uint32_t index, fby_tensor *out, fby_error *error)
{
    const fby_task *task = batch->task;
    int status = fby_fork_check(task->fork_generation, error);
    if (status) return status;
    if (index >= batch->piece_count)
        return fby_fail(error, FBY_EINVAL, "extent %u of a batch that has %u", index, batch->piece_count);
    uint64_t count;
    memset(out, 0, sizeof *out);
    out->data = piece_of(batch, index, &count);
    out->bytes = count * task->info.sample_bytes;
    out->element = task->info.element;
    out->dimensions = task->info.dimensions + 1;
    out->shape[0] = (int64_t)count;
    for (uint32_t i = 0; i < task->info.dimensions; i++) out->shape[i + 1] = task->info.shape[i];
    int64_t stride = fby_dtype_bytes((fby_dtype)task->info.element);
    for (uint32_t i = out->dimensions; i-- > 0;) {
        out->strides[i] = stride;
        stride *= out->shape[i];
    }
    return 0;
}

int fby_batch_tensor(const fby_batch *batch, fby_tensor *out, fby_error *error)
{
    if (batch->piece_count != 1)
        return fby_fail(error, FBY_ENOTSUP,
                        "the batch stands in %u pieces: read its extents, or copy it with fby_batch_copy",
                        batch->piece_count);
    return fby_batch_extent(batch, 0, out, error);
}

int fby_batch_copy(const fby_batch *batch, void *out, uint64_t bytes, fby_error *error)
{
    uint64_t needed = batch->count * batch->task->info.sample_bytes;
    if (bytes < needed)
        return fby_fail(error, FBY_EINVAL, "a buffer of %llu bytes can't hold a batch of %llu",
                        (unsigned long long)bytes, (unsigned long long)needed);
    int status = fby_fork_check(batch->task->fork_generation, error);
    if (status) return status;
    uint8_t *to = out;
    for (uint32_t i = 0; i < batch->extent_count; i++) {
        uint64_t piece = batch->extents[i].count * batch->task->info.sample_bytes;
        memcpy(to, batch->extents[i].data, piece);
        to += piece;
    }
    return 0;
}
