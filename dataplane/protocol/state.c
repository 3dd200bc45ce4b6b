#include "dataplane/protocol/state.h"

#include <stddef.h>

/* More samples than any data set has: sizes can't overflow. */
static const uint64_t SAMPLES_MOST = UINT32_MAX;

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t sum_of(const fby_state_head *state)
{
    const uint64_t *words = (const uint64_t *)state;
    uint64_t hash = 0, count = state->bytes / 8;
    for (uint64_t i = 0; i < count; i++)
        if (i != offsetof(fby_state_head, sum) / 8) hash = mix(hash, words[i]);
    return hash;
}

void fby_state_seal(fby_state_head *state)
{
    state->magic = FBY_STATE_MAGIC;
    state->version = FBY_STATE_VERSION;
    state->bytes = sizeof *state + (fby_state_words(state) + fby_state_count_words(state)) * 8;
    state->sum = sum_of(state);
}

int fby_state_check(const fby_state_head *state, uint64_t bytes, fby_error *error)
{
    if (bytes < 16 || state->magic != FBY_STATE_MAGIC)
        return fby_fail(error, FBY_EINVAL,
                        "these %llu bytes are no state of a task: expected what fby_task_state gave",
                        (unsigned long long)bytes);
    if (state->version != FBY_STATE_VERSION)
        return fby_fail(error, FBY_EVERSION,
                        "the state is of version %u, this Forebay reads version %d: resume with the version "
                        "that saved it",
                        state->version, FBY_STATE_VERSION);
    if (bytes < sizeof *state || state->bytes != bytes)
        return fby_fail(error, FBY_EINVAL, "the state has %llu bytes where %llu were saved: it was cut",
                        (unsigned long long)bytes,
                        (unsigned long long)(bytes < sizeof *state ? sizeof *state : state->bytes));
    const fby_task_identity *identity = &state->identity;
    bool is_place = identity->ranks ? identity->rank < identity->ranks : !identity->rank;
    if (identity->samples > SAMPLES_MOST || identity->ranks > FBY_STATE_RANKS || !is_place ||
        identity->echo > FBY_STATE_ECHO_FREE ||
        sizeof *state + (fby_state_words(state) + fby_state_count_words(state)) * 8 != bytes ||
        state->sum != sum_of(state))
        return fby_fail(error, FBY_EINVAL, "the state is damaged: its %llu bytes don't agree with each other",
                        (unsigned long long)bytes);
    return 0;
}

static const char *order_name(uint32_t order)
{
    static const char *const names[] = {"shared", "strict", "sequential"};
    return order < sizeof names / sizeof *names ? names[order] : "unknown";
}

static int other(const char *name, const char *what, uint64_t saved, uint64_t now, fby_error *error)
{
    return fby_fail(error, FBY_EINVAL,
                    "%s: the state is of a task with %s %llu, this one has %llu: a state continues the task "
                    "that it was saved from",
                    name, what, (unsigned long long)saved, (unsigned long long)now);
}

/* Of one rank's state: a merged one fits any. */
static int same_place(const fby_task_identity *saved, const fby_task_identity *now, const char *name,
                      fby_error *error)
{
    if (saved->ranks != now->ranks)
        return fby_fail(error, FBY_EINVAL,
                        "%s: the state is of one rank of %u, this task has ranks: %u: another number of "
                        "ranks goes on from the states of all %u, merged into one",
                        name, saved->ranks, now->ranks, saved->ranks);
    if (saved->batch != now->batch) return other(name, "batches of", saved->batch, now->batch, error);
    if (saved->rank != now->rank) return other(name, "rank", saved->rank, now->rank, error);
    return 0;
}

static int same_task(const fby_task_identity *saved, const fby_task_identity *now, const char *name,
                     fby_error *error)
{
    if (saved->samples != now->samples)
        return other(name, "a data set of samples:", saved->samples, now->samples, error);
    if (saved->dataset_high != now->dataset_high || saved->dataset_low != now->dataset_low)
        return fby_fail(
            error, FBY_EINVAL,
            "%s: the state is of a task over another data set, of fingerprint %016llx%016llx; this "
            "one has %016llx%016llx: files were added, removed, renamed or changed in size",
            name, (unsigned long long)saved->dataset_high, (unsigned long long)saved->dataset_low,
            (unsigned long long)now->dataset_high, (unsigned long long)now->dataset_low);
    if (saved->subset != now->subset)
        return fby_fail(error, FBY_EINVAL, "%s: the state is of a task with another `split` of the data set",
                        name);
    if (saved->order != now->order)
        return fby_fail(error, FBY_EINVAL,
                        "%s: the state is of a task with order: %s, this one has order: %s", name,
                        order_name(saved->order), order_name(now->order));
    if (saved->seed != now->seed) return other(name, "seed", saved->seed, now->seed, error);
    if (saved->echo != now->echo)
        return fby_fail(error, FBY_EINVAL, "%s: the state is of a task with another echo", name);
    if (saved->drop_last != now->drop_last)
        return other(name, "drop_last:", saved->drop_last, now->drop_last, error);
    if (saved->ranks) {
        int status = same_place(saved, now, name, error);
        if (status) return status;
    }
    if (saved->output_high != now->output_high || saved->output_low != now->output_low)
        return fby_fail(
            error, FBY_EINVAL,
            "%s: the state is of a task with another pipeline, echo, steps_per_epoch or augment_seed: a "
            "state continues the task that it was saved from",
            name);
    return 0;
}

/* The samples that were had, against those that the bitmap lists: bad ones aren't in it. */
static int bitmap_fits(const fby_state_head *state, const char *name, fby_error *error)
{
    uint64_t had = 0, words = fby_state_words(state), samples = state->identity.samples;
    const uint64_t *bitmap = (const uint64_t *)(state + 1);
    if (!words) return 0;
    for (uint64_t i = 0; i < words; i++) had += (uint64_t)__builtin_popcountll(bitmap[i]);
    const uint8_t *counts = (const uint8_t *)(bitmap + words);
    uint64_t counted = 0;
    for (uint64_t i = 0; fby_state_count_words(state) && i < samples; i++) {
        counted += counts[i];
        if ((counts[i] == 0) == (bitmap[i / 64] >> i % 64 & 1))
            return fby_fail(error, FBY_EINVAL,
                            "%s: the state counts id %llu %u times, but lists it otherwise", name,
                            (unsigned long long)i, counts[i]);
    }
    if (counted > state->position)
        return fby_fail(error, FBY_EINVAL, "%s: the state counts %llu samples, of %llu that it claims", name,
                        (unsigned long long)counted, (unsigned long long)state->position);
    bool beyond = samples % 64 && bitmap[words - 1] >> samples % 64;
    uint64_t most = state->behind + state->position;
    /* Of several ranks each lists what it had itself, and all what lay behind. */
    if (had <= most && had >= state->behind && !beyond) return 0;
    return fby_fail(error, FBY_EINVAL, "%s: the state lists %llu ids%s, of %llu samples that it claims", name,
                    (unsigned long long)had, beyond ? ", some of them beyond the data set" : "",
                    (unsigned long long)most);
}

int fby_state_fits(const fby_state_head *state, const fby_state_task *task, fby_error *error)
{
    const fby_task_identity *identity = task->identity;
    const char *name = task->name;
    int status = same_task(&state->identity, identity, name, error);
    if (status) return status;
    uint64_t had = state->behind | state->position;
    if (task->epochs && (state->epoch > task->epochs || (state->epoch == task->epochs && had)))
        return fby_fail(error, FBY_EINVAL,
                        "%s: the state is in epoch %llu, but the task ends after %llu epochs", name,
                        (unsigned long long)state->epoch, (unsigned long long)task->epochs);
    if (state->behind > task->samples)
        return fby_fail(error, FBY_EINVAL,
                        "%s: the state claims %llu samples of its epoch: there are no more than %llu", name,
                        (unsigned long long)state->behind, (unsigned long long)task->samples);
    bool merged = fby_state_is_merged(state);
    bool whole = state->position == state->part && (identity->ranks > 1 || !state->part);
    bool batches = identity->echo == FBY_STATE_ECHO_FREE || !(state->position % identity->batch);
    bool within = state->position < state->part && batches;
    if (merged ? state->position || state->part : state->part != task->part || !(whole || within))
        return fby_fail(
            error, FBY_EINVAL,
            "%s: the state claims %llu samples of its epoch: expected whole batches of %u, and less "
            "than the %llu samples of its part",
            name, (unsigned long long)state->position, identity->batch, (unsigned long long)task->part);
    return bitmap_fits(state, name, error);
}
