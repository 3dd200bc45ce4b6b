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
    uint64_t room = task->identity.samples / 64 + 1;
    if (task->identity.order == FBY_STATE_SHARED && !task->had) {
        task->had = calloc(room, sizeof *task->had);
        if (!task->had)
            return fby_fail(error, FBY_ENOMEM, "no memory for a bitmap of %llu samples",
                            (unsigned long long)task->identity.samples);
    }
    if (task->had && task->identity.echo == FBY_STATE_ECHO_COUNTED && !task->had_counts) {
        task->had_counts = calloc((task->identity.samples + 7) / 8, 8);
        if (!task->had_counts)
            return fby_fail(error, FBY_ENOMEM, "no memory to count %llu samples",
                            (unsigned long long)task->identity.samples);
    }
    if (!state) return 0;
    task->visits = state->visits;
    if (state->epoch != task->had_epoch) { /* it had all of its part, as others may not */
        task->had_epoch = state->epoch;
        task->had_behind = state->behind;
        task->had_part = task->had_samples = state->part;
    }
    uint64_t words = fby_state_words(state);
    if (task->had) memcpy(task->had, state + 1, words * 8);
    if (task->had_counts)
        memcpy(task->had_counts, (const uint64_t *)(state + 1) + words, fby_state_count_words(state) * 8);
    return 0;
}

static void had_epoch_set(fby_task *task, uint64_t epoch)
{
    if (task->had && (task->had_behind | task->had_samples))
        memset(task->had, 0, (task->identity.samples / 64 + 1) * 8);
    if (task->had_counts && task->had_samples)
        memset(task->had_counts, 0, (task->identity.samples + 7) / 8 * 8);
    task->had_epoch = epoch;
    task->had_behind = task->had_samples = 0;
    task->had_part = task->info.samples;
}

/* One of several ranks stays in an epoch of which it had its part: others may still be in it, and need to
 * know what this one had. */
void fby_had_add(fby_task *task, const fby_batch *batch)
{
    if (batch->epoch != task->had_epoch) had_epoch_set(task, batch->epoch);
    bool fresh_only = task->identity.echo == FBY_STATE_ECHO_FREE;
    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t id = batch->ids[i];
        bool repeat = batch->flags[i] & FBY_SAMPLE_REPEAT;
        task->had_samples += !fresh_only || !repeat;
        if (!task->had || id >= task->identity.samples) continue;
        /* What comes again before it came itself, in place of a bad sample or because its own batch waits for
         * such a one, is still to come fresh. */
        if (repeat && !(task->had[id / 64] >> id % 64 & 1)) continue;
        task->had[id / 64] |= UINT64_C(1) << id % 64;
        if (task->had_counts && task->had_counts[id] < UINT8_MAX) task->had_counts[id]++;
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
    uint64_t words = fby_state_words(&head), count_words = fby_state_count_words(&head);
    fby_state_head *state = malloc(sizeof *state + (words + count_words) * 8);
    if (!state) return NULL;
    *state = head;
    if (words) memcpy(fby_state_bitmap(state), task->had, words * 8);
    if (count_words) memcpy(fby_state_counts(state), task->had_counts, count_words * 8);
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
