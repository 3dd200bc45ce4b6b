/* What the caller has had of its task, and the state made of it. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/client/internal.h"
#include "ringbuf/atomic.h"

void fby_had_set(fby_task *task, const fby_opened *opened)
{
    task->had_epoch = opened->first_epoch;
    task->had_behind = opened->behind;
    task->had_part = opened->part;
    task->had_samples = opened->position;
}

int fby_had_begin(fby_task *task, const fby_state_head *state, fby_error *error)
{
    uint64_t words = task->identity.samples / 64 + 1;
    if (task->identity.order == FBY_STATE_SHARED && !task->had) {
        task->had = calloc(words, sizeof *task->had);
        if (!task->had)
            return fby_fail(error, FBY_ENOMEM, "no memory for a bitmap of %llu samples",
                            (unsigned long long)task->identity.samples);
    }
    if (!state) return 0;
    task->visits = state->visits;
    if (state->epoch != task->had_epoch) { /* it had all of its part, as others may not */
        task->had_epoch = state->epoch;
        task->had_behind = state->behind;
        task->had_part = task->had_samples = state->part;
    }
    if (task->had) memcpy(task->had, state + 1, fby_state_words(state) * 8);
    return 0;
}

static void had_epoch_set(fby_task *task, uint64_t epoch)
{
    if (task->had && (task->had_behind | task->had_samples))
        memset(task->had, 0, (task->identity.samples / 64 + 1) * 8);
    task->had_epoch = epoch;
    task->had_behind = task->had_samples = 0;
    task->had_part = task->info.samples;
}

/* One of several ranks stays in an epoch of which it had its part: others may still be in it, and need to
 * know what this one had. */
void fby_had_add(fby_task *task, const fby_batch *batch)
{
    if (batch->epoch != task->had_epoch) had_epoch_set(task, batch->epoch);
    task->had_samples += batch->count;
    for (uint32_t i = 0; task->had && i < batch->count; i++) {
        uint64_t id = batch->ids[i];
        if (id < task->identity.samples) task->had[id / 64] |= UINT64_C(1) << id % 64;
    }
    if (batch->last && task->ranks == 1) had_epoch_set(task, batch->epoch + 1);
}

void fby_had_leave(fby_task *task, uint64_t next)
{
    if (task->ranks == 1)
        had_epoch_set(task, next);
    else
        task->had_samples = task->had_part;
}

fby_state_head *fby_had_state(fby_task *task)
{
    /* Relaxed: of no batch that the caller has can it be older, see batch_take. */
    uint32_t visits = fby_load_relaxed_u32(&task->stream->reader.down->visits);
    if (visits < task->visits) visits = task->visits;
    const fby_state_head head = {
        .visits = visits < FBY_STATE_VISITS ? visits : FBY_STATE_VISITS,
        .identity = task->identity,
        .epoch = task->had_epoch,
        .behind = task->had_behind,
        .part = task->had_part,
        .position = task->had_samples,
    };
    uint64_t bytes = fby_state_words(&head) * 8;
    fby_state_head *state = malloc(sizeof *state + bytes);
    if (!state) return NULL;
    *state = head;
    if (bytes) memcpy(fby_state_bitmap(state), task->had, bytes);
    fby_state_seal(state);
    return state;
}

int fby_task_state(fby_task *task, void **state, size_t *bytes, fby_error *error)
{
    *state = NULL;
    *bytes = 0;
    int status = fby_fork_check(task->fork_generation, error);
    if (status) return status;
    fby_turn_begin(task, UINT64_MAX, NULL);
    fby_state_head *made = fby_had_state(task);
    fby_turn_end(task);
    if (!made) return fby_fail(error, FBY_ENOMEM, "no memory for the state of a task");
    *state = made;
    *bytes = made->bytes;
    return 0;
}
