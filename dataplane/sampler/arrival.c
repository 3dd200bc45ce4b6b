/* Subsets on their way into the strata.
 *
 * A task with a subset of its own cuts strata in two. Its ids are moved one by one, in an order that has
 * nothing to do with what they are (words of the bitmap, permuted), a bounded number at a time and far faster
 * than they are drawn. Until an id has arrived it is simply not the task's yet. Tasks of equal subsets share
 * all this: who comes later is a member at once of whatever strata the first is a member of. */
#include <forebay/error.h>

#include "dataplane/sampler/internal.h"

static fby_arrival *arrival_of(fby_sampler *sampler, const fby_subset *subset)
{
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) {
        if (sampler->arrival[i].subset == subset) return &sampler->arrival[i];
    }
    return NULL;
}

static bool is_arriving(const fby_arrival *arrival)
{
    return arrival->subset && arrival->tasks && arrival->next < arrival->end;
}

int fby_arrival_open(fby_sampler *sampler, const fby_sampler_task *what, fby_subset **out)
{
    fby_subset *made = what->made ? *what->made : NULL, *subset = NULL;
    const uint64_t *words = made ? made->words : what->subset;
    uint64_t hash = made ? made->hash : fby_subset_hash(words, sampler->ids);
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS && !subset; i++) {
        fby_subset *other = sampler->arrival[i].subset;
        if (other && fby_subset_equal(other, words, hash)) subset = other;
    }
    if (!subset) {
        subset = made ? made : fby_subset_create(words, sampler->ids);
        if (!subset) return FBY_ENOMEM;
        if (made) *what->made = NULL;
        if (!subset->size) {
            fby_subset_destroy(&subset);
            return FBY_EINVAL;
        }
        arrival_of(sampler, NULL)->subset = subset;
    }
    subset->uses++;
    *out = subset;
    return FBY_OK;
}

void fby_arrival_close(fby_sampler *sampler, fby_subset **subset)
{
    if (!*subset) return;
    if (!--(*subset)->uses) {
        *arrival_of(sampler, *subset) = (fby_arrival){0};
        fby_subset_destroy(subset);
    }
    *subset = NULL;
}

/* Moves words' ids until the budget is spent, at least one word. */
static void arrival_go(fby_sampler *sampler, fby_arrival *arrival, uint32_t *budget)
{
    fby_pools *pools = &sampler->pools;
    while (arrival->next < arrival->end && *budget) {
        uint32_t word = fby_permutation_at(&arrival->words, arrival->next++);
        uint64_t bits = arrival->subset->words[word];
        uint32_t count = (uint32_t)__builtin_popcountll(bits) + 1;
        *budget -= count < *budget ? count : *budget;
        for (; bits; bits &= bits - 1) {
            uint32_t id = word * 64 + (uint32_t)__builtin_ctzll(bits);
            uint32_t from = fby_pools_of(pools, id);
            uint32_t stratum = fby_pools_stratum(pools, from);
            uint32_t into = fby_strata_split(&pools->strata, stratum, arrival->tasks);
            uint64_t mask = fby_pools_mask(pools, from) | (arrival->tasks & ~sampler->resuming);
            uint32_t to = fby_pools_find(pools, into, mask);
            fby_pools_move_id(pools, id, to);
            fby_strata_move(&pools->strata, stratum, into, mask);
            fby_pools_tidy(pools, from);
        }
    }
    pools->strata.now++;
    if (arrival->next == arrival->end) {
        sampler->arriving--;
        fby_pools_drop_empty_strata(pools);
    }
}

bool fby_arrival_over(const fby_sampler *sampler, uint32_t task)
{
    const fby_subset *subset = sampler->task[task].subset;
    return !subset || !is_arriving(arrival_of((fby_sampler *)sampler, subset));
}

void fby_arrival_step(fby_sampler *sampler, uint32_t budget)
{
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS && sampler->arriving && budget; i++) {
        if (is_arriving(&sampler->arrival[i])) arrival_go(sampler, &sampler->arrival[i], &budget);
    }
}

/* Each subset that still arrives may cut all strata in two. */
static bool strata_suffice(const fby_sampler *sampler)
{
    uint32_t most = FBY_SAMPLER_STRATA / 2;
    for (uint32_t i = 0; i < sampler->arriving; i++) most /= 2;
    return sampler->pools.strata.count <= most;
}

bool fby_arrival_fits(fby_sampler *sampler, const fby_subset *subset)
{
    if (!subset || arrival_of(sampler, subset)->tasks) return true;
    if (!strata_suffice(sampler)) fby_arrival_step(sampler, UINT32_MAX);
    return strata_suffice(sampler);
}

void fby_arrival_enter(fby_sampler *sampler, uint32_t task)
{
    const fby_task_state *t = &sampler->task[task];
    if (!t->subset) {
        fby_pools_enter(&sampler->pools, task, 0);
        return;
    }

    fby_arrival *arrival = arrival_of(sampler, t->subset);
    if (arrival->tasks) {
        fby_pools_enter(&sampler->pools, task, arrival->tasks);
    } else {
        arrival->next = 0;
        arrival->end = (uint32_t)(((uint64_t)sampler->ids + 63) / 64);
        fby_permutation_set(&arrival->words, arrival->end, sampler->seed, task);
        sampler->arriving++;
    }
    arrival->tasks |= UINT64_C(1) << task;
}

void fby_arrival_leave(fby_sampler *sampler, uint32_t task)
{
    const fby_task_state *t = &sampler->task[task];
    if (t->subset) {
        fby_arrival *arrival = arrival_of(sampler, t->subset);
        bool arriving = is_arriving(arrival);
        arrival->tasks &= ~(UINT64_C(1) << task);
        if (arriving && !arrival->tasks) sampler->arriving--;
    }
    fby_pools_leave(&sampler->pools, task);
}
