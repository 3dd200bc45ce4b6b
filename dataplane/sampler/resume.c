/* Resumed tasks of shared order: how the needs that they had left come back.
 *
 * Who joins needs all ids. A resumed task needs those that it didn't have yet; telling its pools so takes a
 * step for each, so it enters without any need and gets them back a bounded number at a time, far faster than
 * they are drawn, in an order that has nothing to do with what they are (pieces of the bitmap, permuted).
 * Until then an id counts as had, also where its subset still arrives: only after that does this begin. */
#include <forebay/error.h>
#include <stdlib.h>

#include "dataplane/sampler/internal.h"

/* So few ids come back at once: some 0.4 ms; to find the last ones among ten million in a permuted order
 * would take longer. CHOICE: blocks that a draw should have to choose from. STEP: between two looks at
 * whether it has. */
enum { AT_ONCE = 4096, CHOICE = 2, STEP = 512 };

static uint64_t word_of(const fby_sampler *sampler, const fby_task_state *task, uint32_t word)
{
    if (task->subset) return task->subset->words[word];
    bool part = word == sampler->ids / 64;
    return part ? (UINT64_C(1) << sampler->ids % 64) - 1 : UINT64_MAX;
}

/* Ids that it had, for padding: some from a random place on. */
static void first_remember(fby_sampler *sampler, fby_task_state *task, const uint64_t *had, uint32_t words)
{
    uint32_t word = (uint32_t)(fby_mix64(sampler->seed + task->epoch) % words);
    for (uint32_t i = 0; i < words && task->first_count < task->first_most; i++) {
        uint64_t bits = had[word] & word_of(sampler, task, word);
        for (; bits && task->first_count < task->first_most; bits &= bits - 1)
            task->first[task->first_count++] = word * 64 + (uint32_t)__builtin_ctzll(bits);
        word = word + 1 < words ? word + 1 : 0;
    }
}

int fby_resume_set(fby_sampler *sampler, fby_task_state *task, const uint64_t *had)
{
    uint32_t words = (uint32_t)(((uint64_t)sampler->ids + 63) / 64);
    task->awaited = malloc(words * sizeof *task->awaited);
    if (!task->awaited) return FBY_ENOMEM;
    for (uint32_t i = 0; i < words; i++) {
        task->awaited[i] = word_of(sampler, task, i) & ~had[i];
        task->awaited_count += (uint32_t)__builtin_popcountll(task->awaited[i]);
    }
    /* Neighbours come back together: bytes' of them where there are many, words' where they are far between.
     */
    task->awaited_parts = task->awaited_count > sampler->ids / 8 ? 8 : 1;
    first_remember(sampler, task, had, words);
    return FBY_OK;
}

/* Gives one id back to the task's needs. */
static void need(fby_sampler *sampler, uint32_t task, uint32_t id)
{
    fby_pools *pools = &sampler->pools;
    uint32_t from = fby_pools_of(pools, id), stratum = fby_pools_stratum(pools, from);
    uint64_t mask = fby_pools_mask(pools, from) | UINT64_C(1) << task;
    fby_pools_move_id(pools, id, fby_pools_find(pools, stratum, mask));
    fby_pools_tidy(pools, from);
    pools->strata.all[stratum].got[task]--;
    pools->strata.got[task]--;
}

/* Gives back the ids of a bitmap's word, in part or whole. */
static void need_word(fby_sampler *sampler, uint32_t task, uint32_t word, uint64_t bits)
{
    fby_task_state *t = &sampler->task[task];
    t->awaited[word] &= ~bits;
    t->awaited_count -= (uint32_t)__builtin_popcountll(bits);
    for (; bits; bits &= bits - 1) need(sampler, task, word * 64 + (uint32_t)__builtin_ctzll(bits));
}

static void go_at_once(fby_sampler *sampler, uint32_t task)
{
    fby_task_state *t = &sampler->task[task];
    uint32_t words = (uint32_t)(((uint64_t)sampler->ids + 63) / 64);
    for (uint32_t word = 0; word < words && t->awaited_count; word++)
        need_word(sampler, task, word, t->awaited[word]);
}

/* Moves on one task until the budget is spent, at least one part of a word. */
static void go(fby_sampler *sampler, uint32_t task, uint32_t *budget)
{
    fby_task_state *t = &sampler->task[task];
    uint32_t parts = t->awaited_parts, width = 64 / parts;
    while (t->awaited_count > AT_ONCE && *budget) {
        uint32_t place = fby_permutation_at(&t->awaited_order, t->awaited_next++);
        uint64_t part = (UINT64_MAX >> (64 - width)) << place % parts * width;
        uint64_t bits = t->awaited[place / parts] & part;
        uint32_t count = (uint32_t)__builtin_popcountll(bits) + 1;
        *budget -= count < *budget ? count : *budget;
        need_word(sampler, task, place / parts, bits);
    }
    if (t->awaited_count <= AT_ONCE) {
        go_at_once(sampler, task);
        fby_resume_end(sampler, task);
    }
    sampler->pools.strata.now++;
}

void fby_resume_enter(fby_sampler *sampler, uint32_t task)
{
    fby_task_state *t = &sampler->task[task];
    if (!t->awaited) return;
    sampler->resuming |= UINT64_C(1) << task;
    fby_pools_need_none(&sampler->pools, task);
    uint32_t words = (uint32_t)(((uint64_t)sampler->ids + 63) / 64);
    fby_permutation_set(&t->awaited_order, words * t->awaited_parts, sampler->seed, task);
}

void fby_resume_end(fby_sampler *sampler, uint32_t task)
{
    sampler->resuming &= ~(UINT64_C(1) << task);
    free(sampler->task[task].awaited);
    sampler->task[task].awaited = NULL;
}

/* Bad samples were given no place in the bitmap of what the task had, only their substitutes were. So it
 * needs more ids than it has samples to come, until they turn out bad again, which may be after the last was
 * drawn: good ids that are left over then are what they are to be replaced with. */
void fby_resume_keep(fby_sampler *sampler, uint32_t task)
{
    fby_task_state *t = &sampler->task[task];
    fby_pools *pools = &sampler->pools;
    t->resumed = false;
    if (t->awaited && t->awaited_count <= AT_ONCE && fby_arrival_over(sampler, task))
        go_at_once(sampler, task);
    uint64_t left = pools->strata.wanted[task] - pools->strata.got[task];
    if (!left || t->drop_last) return;
    uint32_t most = left < AT_ONCE ? (uint32_t)left : AT_ONCE;
    t->spare = malloc(most * sizeof *t->spare);
    if (!t->spare) return; /* repeats are what there is then */
    t->spare_epoch = t->epoch;
    for (uint32_t place = 0; place < pools->count; place++) {
        if (!(pools->mask[place] >> task & 1)) continue;
        uint32_t pool = pools->record[place], count = pools->pool[pool].count;
        for (uint32_t k = 0; k < count && t->spare_count < most; k++)
            t->spare[t->spare_count++] = fby_pools_at(pools, pool, k);
    }
}

void fby_resume_step(fby_sampler *sampler, uint32_t budget)
{
    for (uint64_t left = sampler->resuming; left && budget; left &= left - 1) {
        uint32_t task = (uint32_t)__builtin_ctzll(left);
        if (fby_arrival_over(sampler, task)) go(sampler, task, &budget);
    }
}

void fby_resume_prepare(fby_sampler *sampler, uint32_t task)
{
    const fby_task_state *t = &sampler->task[task];
    const fby_strata *strata = &sampler->pools.strata;
    uint64_t enough = (uint64_t)CHOICE * t->batch;
    while (is_resuming(sampler, task) && strata->wanted[task] - strata->got[task] < enough) {
        uint32_t budget = STEP;
        if (fby_arrival_over(sampler, task))
            go(sampler, task, &budget);
        else
            fby_arrival_step(sampler, budget);
    }
}
