/* The states of all ranks, made into one of none of them. */
#include <forebay/forebay.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/protocol/state.h"

/* What is known of the ranks after some of their states. */
typedef struct merging {
    fby_state_head first;    /* of the list */
    fby_state_head *merged;  /* with the bitmap of what those that were seen had */
    uint32_t *place_of_rank; /* in the list, from 1; 0: it was not there yet */
} merging;

static bool is_of_same_task(fby_task_identity one, fby_task_identity other)
{
    one.rank = other.rank = 0;
    one.crew = other.crew = 0;
    return !memcmp(&one, &other, sizeof one);
}

static int out_of_step(const fby_state_head *one, const fby_state_head *other, fby_error *error)
{
    return fby_fail(error, FBY_EINVAL,
                    "rank %u was saved at sample %llu of epoch %llu, rank %u at sample %llu of epoch %llu: "
                    "expected states that all ranks saved after the same batch",
                    one->identity.rank, (unsigned long long)one->position, (unsigned long long)one->epoch,
                    other->identity.rank, (unsigned long long)other->position,
                    (unsigned long long)other->epoch);
}

/* Whether state `at` of the list belongs to the first. */
static int belongs(const merging *all, const fby_state_head *state, uint32_t at, fby_error *error)
{
    const fby_state_head *first = &all->first;
    uint32_t rank = state->identity.rank;
    if (!is_of_same_task(first->identity, state->identity))
        return fby_fail(error, FBY_EINVAL,
                        "state %u of the list is of another task than state 0: their data, split, order, "
                        "seed, batch size, pipeline or number of ranks differ",
                        at);
    if (first->identity.crew != state->identity.crew)
        return fby_fail(error, FBY_EINVAL,
                        "states 0 and %u of the list were saved by ranks that didn't run together", at);
    if (all->place_of_rank[rank])
        return fby_fail(error, FBY_EINVAL, "states %u and %u of the list are both of rank %u",
                        all->place_of_rank[rank] - 1, at, rank);
    if (first->epoch != state->epoch || first->behind != state->behind || first->part != state->part ||
        first->position != state->position)
        return out_of_step(first, state, error);
    return 0;
}

static int state_add(merging *all, const void *bytes, size_t size, uint32_t at, fby_error *error)
{
    fby_state_head *state = malloc(size ? size : 1); /* aligned */
    if (!state) return fby_fail(error, FBY_ENOMEM, "no memory for a state of %zu bytes", size);
    memcpy(state, bytes, size);
    fby_error why = FBY_ERROR_INIT;
    int status = fby_state_check(state, size, &why);
    if (status) {
        fby_fail(error, status, "state %u of the list: %.900s", at, why.text);
    } else if (fby_state_is_merged(state)) {
        status = fby_fail(error, FBY_EINVAL,
                          "state %u of the list is merged from others already: expected those of ranks", at);
    } else if (state->identity.echo) {
        status =
            fby_fail(error, FBY_EINVAL,
                     "state %u of the list is of a task that echoes: expected to go on with the ranks that "
                     "it had",
                     at);
    } else if (!at) {
        all->first = *state;
        all->merged = calloc(1, sizeof *state + (state->identity.samples / 64 + 1) * 8);
        all->place_of_rank = calloc(state->identity.ranks, sizeof *all->place_of_rank);
        if (!all->merged || !all->place_of_rank)
            status = fby_fail(error, FBY_ENOMEM, "no memory to merge states of %zu bytes", size);
    }
    if (!status) status = belongs(all, state, at, error);
    if (!status) {
        all->place_of_rank[state->identity.rank] = at + 1;
        if (state->visits > all->merged->visits) all->merged->visits = state->visits;
        for (uint64_t i = 0; i < fby_state_words(state); i++)
            fby_state_bitmap(all->merged)[i] |= fby_state_bitmap(state)[i];
    }
    free(state);
    return status;
}

static int all_are_there(const merging *all, uint32_t count, fby_error *error)
{
    uint32_t ranks = all->first.identity.ranks, rank = 0;
    if (count == ranks) return 0; /* and no two of one */
    while (all->place_of_rank[rank]) rank++;
    return fby_fail(error, FBY_EINVAL,
                    "%u states of a task of %u ranks, that of rank %u is missing: expected one of each rank",
                    count, ranks, rank);
}

static void merged_finish(const merging *all)
{
    const fby_state_head *first = &all->first;
    fby_state_head *merged = all->merged;
    merged->identity = first->identity;
    merged->identity.rank = merged->identity.ranks = 0;
    fby_state_next(first, &merged->epoch);
    if (merged->epoch == first->epoch && first->identity.order == FBY_STATE_SHARED) {
        /* Counted, not added up: ranks' last samples may be padding, and bad ones are still to come. */
        uint64_t words = first->identity.samples / 64 + 1;
        for (uint64_t i = 0; i < words; i++)
            merged->behind += (uint64_t)__builtin_popcountll(fby_state_bitmap(merged)[i]);
    } else if (merged->epoch == first->epoch) {
        merged->behind = first->behind + first->position * first->identity.ranks;
    }
    /* Ranks that go on from it belong together, and with no others. */
    merged->identity.crew = 0;
    fby_state_seal(merged);
    merged->identity.crew = merged->sum;
    fby_state_seal(merged);
}

int fby_state_merge(const void *const *states, const size_t *bytes, uint32_t count, void **out,
                    size_t *out_bytes, fby_error *error)
{
    *out = NULL;
    *out_bytes = 0;
    merging all = {0};
    int status = count ? 0 : fby_fail(error, FBY_EINVAL, "no states to merge: expected one of each rank");
    for (uint32_t at = 0; at < count && !status; at++)
        status = state_add(&all, states[at], bytes[at], at, error);
    if (!status) status = all_are_there(&all, count, error);
    free(all.place_of_rank);
    if (status) {
        free(all.merged);
        return status;
    }
    merged_finish(&all);
    *out = all.merged;
    *out_bytes = all.merged->bytes;
    return 0;
}
