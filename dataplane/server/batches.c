/* Whole batches once more: the same places, delivered again.
 *
 * The i-th fresh batch of an epoch is delivered floor((i + 1) f) - floor(i f) times in all. The next batch is
 * fresh as long as fewer than `buffer` wait to be delivered again, or nothing else is left; which of those
 * that wait comes depends on the task's seed, the epoch and the batch's number alone.
 *
 * Its places stay the task's until it has come for the last time and all of its deliveries have been
 * returned; a client may hold one batch several times. They are part of what the task's group has places for,
 * beside the window. */
#include <forebay/forebay.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/protocol/crash.h"
#include "dataplane/sampler/generator.h"
#include "dataplane/server/internal.h"

static uint64_t times_of(const fby_subscription *task, uint64_t batches)
{
    return (uint64_t)((double)batches * task->spec->echo.factor);
}

int fby_batches_begin(fby_subscription *task, fby_error *error)
{
    uint32_t buffer = task->spec->echo.buffer;
    task->kept_batches = calloc(buffer, sizeof *task->kept_batches);
    bool whole = task->kept_batches != NULL;
    for (uint32_t i = 0; whole && i < buffer; i++) {
        task->kept_batches[i].extents = calloc(task->spec->batch_size, sizeof(fby_extent));
        whole = task->kept_batches[i].extents != NULL;
    }
    task->kept_samples = (uint64_t)buffer * task->spec->batch_size;
    if (whole) return FBY_OK;
    return fby_fail(error, FBY_ENOMEM, "%s: no memory for the bookkeeping of %u batches", task->spec->name,
                    buffer);
}

uint64_t fby_batches_of(const fby_subscription *task, uint64_t fresh)
{
    return times_of(task, fresh);
}

bool fby_batches_again(const fby_subscription *task)
{
    if (!task->kept_count || task->batch_fill) return false;
    uint64_t left = task->batches - task->batch,
             all = (task->samples + task->spec->batch_size - 1) / task->spec->batch_size;
    uint64_t fresh = all - task->fresh_batches;
    return left > fresh && (!fresh || task->kept_count == task->spec->echo.buffer);
}

void fby_batches_keep(fby_subscription *task)
{
    uint64_t i = task->fresh_batches;
    uint32_t times = (uint32_t)(times_of(task, i + 1) - times_of(task, i)) - 1;
    if (!times || task->kept_count == task->spec->echo.buffer) return;
    fby_extent *extents = task->kept_batches[task->kept_count].extents;
    memcpy(extents, task->extents, task->extent_count * sizeof *extents);
    task->kept_batches[task->kept_count++] =
        (fby_kept_batch){extents, task->extent_count, task->batch_fill, times};
    for (uint32_t k = 0; k < task->extent_count; k++) {
        extents[k].flags |= FBY_SAMPLE_REPEAT;
        fby_ledger_at(task, extents[k].place)->kept = true;
    }
    FBY_CRASH_POINT("batch kept");
}

void fby_batches_take(fby_subscription *task)
{
    fby_generator generator = {fby_mix64(fby_mix64(task->spec->seed) + task->epoch) +
                               FBY_GOLDEN * 16 * task->batch};
    uint32_t at = (uint32_t)fby_generator_below(&generator, task->kept_count);
    fby_kept_batch *batch = &task->kept_batches[at];
    memcpy(task->extents, batch->extents, batch->extent_count * sizeof *task->extents);
    task->extent_count = batch->extent_count;
    task->batch_fill = batch->samples;
    FBY_CRASH_POINT("batch taken again");
    if (--batch->times) return;
    for (uint32_t k = 0; k < batch->extent_count; k++)
        fby_ledger_at(task, batch->extents[k].place)->kept = false;
    fby_kept_batch *last = &task->kept_batches[--task->kept_count], gone = *batch;
    *batch = *last;
    *last = gone; /* its room is used again */
}

void fby_batches_drop(fby_subscription *task)
{
    while (task->kept_count) {
        fby_kept_batch *batch = &task->kept_batches[--task->kept_count];
        for (uint32_t k = 0; k < batch->extent_count; k++) {
            struct fby_ledger_entry *entry = fby_ledger_at(task, batch->extents[k].place);
            entry->kept = false;
            if (!entry->times) fby_extent_release(task, batch->extents[k].place);
        }
    }
}

void fby_batches_free(fby_subscription *task)
{
    for (uint32_t i = 0; task->kept_batches && i < task->spec->echo.buffer; i++)
        free(task->kept_batches[i].extents);
    free(task->kept_batches);
}
