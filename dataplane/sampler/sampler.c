#include "dataplane/sampler/sampler.h"

#include <stdlib.h>

#include "dataplane/sampler/internal.h"

/* What one call does besides its own work, at most: some 0.1 ms each where memory is slow. */
enum { SWEEP_STEPS = 512, ARRIVING_IDS = 512, RESUMING_IDS = 512 };

/* Up to so many pools a block is cut short as soon as it would take a task a block beyond its share of a
 * stratum. Where many tasks of many rates have subsets, that leaves blocks of a few ids and a pool for each:
 * with more pools than this, shares are looked at once a block, a task may be two blocks ahead, and blocks
 * are full. */
enum { FEW_POOLS = 1024 };

static void go_on(fby_sampler *sampler)
{
    if (sampler->arriving) fby_arrival_step(sampler, ARRIVING_IDS);
    if (sampler->resuming) fby_resume_step(sampler, RESUMING_IDS);
    if (sampler->pools.sweep_left) fby_pools_sweep(&sampler->pools, SWEEP_STEPS);
}

int fby_sampler_create(fby_sampler **out, uint64_t count, uint64_t seed, fby_error *error)
{
    *out = NULL;
    if (!count || count >= FBY_NONE)
        return fby_fail(error, FBY_EINVAL, "%llu ids; expected 1 to %u", (unsigned long long)count,
                        FBY_NONE - 1);

    fby_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler) goto no_memory;
    sampler->ids = (uint32_t)count;
    sampler->seed = seed;
    sampler->generator.state = fby_mix64(seed);
    if (fby_pools_create(&sampler->pools, sampler->ids)) goto no_memory;
    if (fby_chooser_create(&sampler->chooser, &sampler->pools, fby_choice_best_tier())) goto no_memory;
    *out = sampler;
    return FBY_OK;

no_memory:
    fby_sampler_destroy(&sampler);
    return fby_fail(error, FBY_ENOMEM, "no memory for the bookkeeping of %llu ids",
                    (unsigned long long)count);
}

void fby_sampler_destroy(fby_sampler **sampler)
{
    if (!*sampler) return;
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) fby_sampler_task_clear(*sampler, i);
    fby_chooser_destroy(&(*sampler)->chooser);
    fby_pools_destroy(&(*sampler)->pools);
    free(*sampler);
    *sampler = NULL;
}

int fby_sampler_join(fby_sampler *sampler, const fby_sampler_task *what, uint32_t *task, fby_error *error)
{
    if (sampler->live == UINT64_MAX)
        return fby_fail(error, FBY_EFULL,
                        "%d tasks draw from this data already; one of them has to end first",
                        FBY_SAMPLER_TASKS);

    uint32_t bit = (uint32_t)__builtin_ctzll(~sampler->live);
    uint64_t served = UINT64_MAX;
    for (uint64_t left = sampler->live; left; left &= left - 1) {
        const fby_task_state *other = &sampler->task[__builtin_ctzll(left)];
        if (other->served < served) served = other->served;
    }

    int code = fby_sampler_task_set(sampler, bit, what, error);
    if (code) return code;
    sampler->task[bit].served = sampler->live ? served : 0;
    sampler->live |= UINT64_C(1) << bit;
    if (is_shared(&sampler->task[bit])) {
        fby_arrival_enter(sampler, bit);
        fby_resume_enter(sampler, bit);
    }
    go_on(sampler);
    *task = bit;
    return FBY_OK;
}

/* The task, or NULL where there is none of this number. */
static fby_task_state *task_at(const fby_sampler *sampler, uint32_t task)
{
    if (task >= FBY_SAMPLER_TASKS || !sampler->task[task].live) return NULL;
    return (fby_task_state *)&sampler->task[task];
}

void fby_sampler_leave(fby_sampler *sampler, uint32_t task)
{
    fby_task_state *t = task_at(sampler, task);
    if (!t) return;
    if (is_shared(t)) {
        fby_resume_end(sampler, task);
        fby_arrival_leave(sampler, task);
    }
    fby_sampler_task_clear(sampler, task);
    sampler->live &= ~(UINT64_C(1) << task);
    go_on(sampler);
}

uint64_t fby_sampler_batches(const fby_sampler *sampler, uint32_t task)
{
    const fby_task_state *t = task_at(sampler, task);
    return t ? (t->whole + t->batch - 1) / t->batch : 0;
}

uint64_t fby_sampler_samples(const fby_sampler *sampler, uint32_t task)
{
    const fby_task_state *t = task_at(sampler, task);
    return t ? t->whole : 0;
}

void fby_sampler_give_back(fby_sampler *sampler, uint32_t task, uint32_t rank, uint32_t count)
{
    fby_task_state *t = task_at(sampler, task);
    if (!t || rank >= t->ranks) return;
    fby_rank_state *r = &t->rank[rank];
    r->queued -= count < r->queued ? count : r->queued;
    fby_sampler_task_seek_rank(t);
}

uint32_t fby_sampler_id_at(const fby_sampler *sampler, uint32_t task, uint32_t rank, uint64_t position,
                           uint64_t epoch)
{
    const fby_task_state *t = task_at(sampler, task);
    if (!t || is_shared(t)) return 0;
    fby_permutation order;
    fby_permutation_set(&order, t->ids, t->seed, epoch);
    uint64_t behind = epoch == t->epoch ? t->behind : 0;
    return id_ordered(t, &order, (uint32_t)((behind + rank + position * t->ranks) % t->ids));
}

void fby_sampler_take(fby_sampler *sampler, uint32_t task, uint32_t rank, uint32_t count)
{
    fby_task_state *t = task_at(sampler, task);
    if (!t || rank >= t->ranks) return;
    t->rank[rank].queued += count;
    t->served += count;
    fby_sampler_task_seek_rank(t);
}

static bool is_ready(const fby_task_state *task, const fby_rank_state *rank)
{
    return rank->queued < task->window;
}

static bool is_urgent(const fby_task_state *task, const fby_rank_state *rank)
{
    return rank->queued < task->low || (rank->starving && is_ready(task, rank));
}

bool fby_sampler_ready(const fby_sampler *sampler, uint32_t task, uint32_t rank)
{
    const fby_task_state *t = task_at(sampler, task);
    return t && rank < t->ranks && is_ready(t, &t->rank[rank]);
}

bool fby_sampler_urgent(const fby_sampler *sampler, uint32_t task, uint32_t rank)
{
    const fby_task_state *t = task_at(sampler, task);
    return t && rank < t->ranks && is_urgent(t, &t->rank[rank]);
}

uint64_t fby_sampler_epoch(const fby_sampler *sampler, uint32_t task)
{
    const fby_task_state *t = task_at(sampler, task);
    return t ? t->epoch : 0;
}

uint32_t fby_sampler_next_rank(const fby_sampler *sampler, uint32_t task)
{
    const fby_task_state *t = task_at(sampler, task);
    return t && t->hungriest != FBY_NONE ? t->hungriest : FBY_SAMPLER_RANKS;
}

void fby_sampler_limit(fby_sampler *sampler, uint32_t task, uint32_t rank, uint64_t most)
{
    fby_task_state *t = task_at(sampler, task);
    if (t && rank < t->ranks) t->rank[rank].limit = most;
}

uint64_t fby_sampler_queued(const fby_sampler *sampler, uint32_t task, uint32_t rank)
{
    const fby_task_state *t = task_at(sampler, task);
    return t && rank < t->ranks ? t->rank[rank].queued : 0;
}

void fby_sampler_starve(fby_sampler *sampler, uint32_t task, uint32_t rank, bool starving)
{
    fby_task_state *t = task_at(sampler, task);
    if (t && rank < t->ranks) t->rank[rank].starving = starving;
}

uint64_t fby_sampler_abandon(fby_sampler *sampler, uint32_t task)
{
    fby_task_state *t = task_at(sampler, task);
    if (!t) return 0;
    if ((t->given || t->behind) && !t->over) {
        fby_sampler_task_next_epochs(sampler, UINT64_C(1) << task);
        go_on(sampler);
    }
    return t->epoch;
}

void fby_sampler_get_stats(const fby_sampler *sampler, fby_sampler_stats *out)
{
    *out = sampler->stats;
}

uint64_t fby_sampler_bytes(const fby_sampler *sampler)
{
    uint64_t bytes = sizeof *sampler + fby_pools_bytes(&sampler->pools);
    uint64_t bitmap = ((uint64_t)sampler->ids + 63) / 64 * sizeof(uint64_t);
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) {
        const fby_task_state *t = &sampler->task[i];
        if (t->awaited) bytes += bitmap;
        if (t->live) bytes += bitmap + t->ranks * sizeof *t->rank + t->first_most * sizeof *t->first;
        if (sampler->arrival[i].subset) bytes += fby_subset_bytes(sampler->arrival[i].subset);
    }
    return bytes;
}

/* ---- Drawing. ---- */

static bool is_hungrier(const fby_task_state *a, const fby_task_state *b)
{
    uint64_t queued_a = a->rank[a->hungriest].queued, queued_b = b->rank[b->hungriest].queued;
    return queued_a != queued_b ? queued_a < queued_b : a->served < b->served;
}

/* The tasks with room for a block, and the hungriest of those in `urgent` that needs one soon; FBY_NONE where
 * there is none. */
static uint32_t look_at_tasks(const fby_sampler *sampler, uint64_t tasks, uint64_t *ready)
{
    uint32_t hungriest = FBY_NONE;
    *ready = 0;
    for (uint64_t left = tasks; left; left &= left - 1) {
        uint32_t task = (uint32_t)__builtin_ctzll(left);
        const fby_task_state *t = &sampler->task[task];
        if (t->hungriest == FBY_NONE) continue;
        const fby_rank_state *rank = &t->rank[t->hungriest];
        if (is_ready(t, rank)) *ready |= UINT64_C(1) << task;
        if (is_urgent(t, rank) && (hungriest == FBY_NONE || is_hungrier(t, &sampler->task[hungriest])))
            hungriest = task;
    }
    return hungriest;
}

static uint64_t shared_of(const fby_sampler *sampler, uint64_t tasks)
{
    for (uint64_t left = tasks; left; left &= left - 1) {
        if (!is_shared(&sampler->task[__builtin_ctzll(left)])) tasks &= ~(left & -left);
    }
    return tasks;
}

/* The most ids that a draw may have whose targets are these tasks. */
static uint32_t most_of(const fby_sampler *sampler, uint32_t hungriest, uint64_t tasks)
{
    const fby_task_state *h = &sampler->task[hungriest];
    uint64_t most = h->batch < FBY_DRAW_MOST ? h->batch : FBY_DRAW_MOST;
    if (!is_shared(h) || !(tasks & (tasks - 1))) {
        uint64_t to_batch_end = h->batch - h->rank[h->hungriest].given % h->batch;
        if (to_batch_end < most) most = to_batch_end;
    }
    for (; tasks; tasks &= tasks - 1) {
        const fby_task_state *t = &sampler->task[__builtin_ctzll(tasks)];
        uint64_t quota = quota_of(t), limit = t->rank[t->hungriest].limit;
        if (quota < most) most = quota;
        if (limit && limit < most) most = limit;
    }
    return (uint32_t)most;
}

/* The next visit of an id. */
static uint32_t visit(fby_sampler *sampler, uint32_t id)
{
    uint32_t turn = sampler->visits_before + sampler->pools.id[id].visits++;
    if (turn >= sampler->stats.visits) sampler->stats.visits = turn + 1;
    return turn;
}

static void put(fby_sampler *sampler, fby_draw *out, uint32_t id, uint8_t flags)
{
    out->ids[out->count] = id;
    out->turns[out->count] = visit(sampler, id);
    out->flags[out->count] = flags;
    out->count++;
}

/* An id that the task had in its current epoch, for padding. Where all of the kept ones are bad, one of them
 * all the same: who gets it asks for a substitute. */
static uint32_t padding_of(fby_task_state *task)
{
    uint32_t id = 0;
    for (uint32_t i = 0; i < task->first_count; i++) {
        id = task->first[task->first_next++ % task->first_count];
        if (!is_bad(task, id)) break;
    }
    return id;
}

static void remember_first(fby_sampler *sampler, const fby_draw *out, uint64_t tasks)
{
    for (; tasks; tasks &= tasks - 1) {
        fby_task_state *t = &sampler->task[__builtin_ctzll(tasks)];
        for (uint32_t i = 0; i < out->count && t->first_count < t->first_most; i++) {
            t->first[t->first_count++] = out->ids[i];
        }
    }
}

/* Fills a draw for a shared-order task from the pools; 0 where it has no need that can be met now. */
static uint64_t fill_shared(fby_sampler *sampler, uint32_t hungriest, uint64_t ready, fby_draw *out)
{
    fby_pools *pools = &sampler->pools;
    fby_strata *strata = &pools->strata;
    uint32_t block = sampler->task[hungriest].batch;
    uint64_t served = 0;
    strata->now++;
    uint32_t pool = fby_choice_first(&sampler->chooser, hungriest, ready, block, &served);
    if (pool == FBY_NONE) return 0;

    uint32_t most = most_of(sampler, hungriest, served);
    bool closely = strata->count > 1 && pools->count <= FEW_POOLS, prepared = false;
    while (pool != FBY_NONE) {
        uint32_t stratum = fby_pools_stratum(pools, pool);
        uint32_t to = fby_pools_find(pools, stratum, fby_pools_mask(pools, pool) & ~served);
        uint32_t taken = 0;
        bool fair = true;
        while (pools->pool[pool].count && out->count < most && fair) {
            uint32_t k = (uint32_t)fby_generator_below(&sampler->generator, pools->pool[pool].count);
            put(sampler, out, fby_pools_move(pools, pool, k, to), 0);
            taken++;
            if (!closely) continue;
            fby_strata_take(strata, stratum, served, taken);
            taken = 0;
            fair = fby_strata_fair(strata, stratum, served, block) == served;
        }
        if (taken) fby_strata_take(strata, stratum, served, taken);
        fby_pools_tidy(pools, pool);
        if (out->count == most) break;

        if (closely || !prepared) {
            strata->now++;
            fby_choice_prepare(&sampler->chooser, served, ready, block);
            prepared = true;
        }
        pool = fby_choice_next(&sampler->chooser);
    }
    remember_first(sampler, out, served);
    return served;
}

/* Has a shared-order task had all the ids of its epoch, so that the rest of its quota is padding? */
static bool needs_padding(const fby_sampler *sampler, uint32_t task)
{
    return sampler->pools.strata.got[task] == sampler->task[task].ids && !is_resuming(sampler, task);
}

static void pad(fby_sampler *sampler, uint32_t task, fby_draw *out)
{
    uint32_t most = most_of(sampler, task, UINT64_C(1) << task);
    while (out->count < most) put(sampler, out, padding_of(&sampler->task[task]), FBY_DRAW_PADDED);
}

static uint64_t draw_shared(fby_sampler *sampler, uint32_t hungriest, uint64_t ready, fby_draw *out)
{
    uint64_t alone = UINT64_C(1) << hungriest, served;
    if (is_resuming(sampler, hungriest)) fby_resume_prepare(sampler, hungriest);
    if (needs_padding(sampler, hungriest)) {
        pad(sampler, hungriest, out);
        return alone;
    }
    while (!(served = fill_shared(sampler, hungriest, shared_of(sampler, ready), out)) && sampler->arriving) {
        fby_arrival_step(sampler, ARRIVING_IDS);
    }
    if (served == alone && needs_padding(sampler, hungriest)) pad(sampler, hungriest, out);
    return served;
}

/* Other tasks of the same fixed order that are at the same place of it. */
static uint64_t peers_of(const fby_sampler *sampler, uint32_t task, uint64_t ready)
{
    const fby_task_state *t = &sampler->task[task];
    uint64_t peers = 0;
    for (uint64_t left = ready; left; left &= left - 1) {
        const fby_task_state *other = &sampler->task[__builtin_ctzll(left)];
        if (other->order != t->order || other->epoch != t->epoch || other->subset != t->subset) continue;
        if (other->ranks != t->ranks || other->hungriest != t->hungriest) continue;
        if (other->behind != t->behind) continue;
        if (t->order == FBY_ORDER_STRICT && other->seed != t->seed) continue;
        if (other->rank[other->hungriest].given == t->rank[t->hungriest].given) peers |= left & -left;
    }
    return peers;
}

/* Of the tasks that are ready, those of shared order that need an id and may take it. */
static uint64_t riders_of(const fby_sampler *sampler, uint32_t id, uint64_t ready, uint32_t block)
{
    const fby_pools *pools = &sampler->pools;
    uint32_t pool = fby_pools_of(pools, id);
    return fby_strata_fair(&pools->strata, fby_pools_stratum(pools, pool),
                           fby_pools_mask(pools, pool) & ready, block);
}

/* The next ids of a fixed order, as many as the same tasks can take: those that need the first one ride
 * along. */
static uint64_t draw_ordered(fby_sampler *sampler, uint32_t hungriest, uint64_t ready, fby_draw *out)
{
    fby_pools *pools = &sampler->pools;
    fby_task_state *t = &sampler->task[hungriest];
    uint64_t peers = peers_of(sampler, hungriest, ready), shared = shared_of(sampler, ready), riders = 0;
    uint64_t given = t->rank[t->hungriest].given;
    uint32_t most = 1;
    for (uint32_t i = 0; i < most; i++) {
        uint64_t place = t->behind + t->hungriest + (given + i) * t->ranks;
        uint32_t id = id_ordered(t, &t->order_now, (uint32_t)(place % t->ids));
        uint64_t here =
            place < t->ids ? riders_of(sampler, id, shared, t->batch) : 0; /* its flag is no rider's */
        if (i == 0) {
            riders = here;
            most = most_of(sampler, hungriest, peers | riders);
        } else if (here != riders) {
            break;
        }

        if (riders) {
            uint32_t from = fby_pools_of(pools, id), stratum = fby_pools_stratum(pools, from);
            fby_pools_move_id(pools, id,
                              fby_pools_find(pools, stratum, fby_pools_mask(pools, from) & ~riders));
            fby_pools_tidy(pools, from);
            fby_strata_take(&pools->strata, stratum, riders, 1);
        }
        put(sampler, out, id, place < t->ids ? 0 : FBY_DRAW_PADDED);
    }

    remember_first(sampler, out, riders);
    if (!riders) {
        for (uint32_t i = 0; i < out->count; i++) out->turns[i] = t->epoch;
    }
    return peers | riders;
}

/* Each task served gets the draw's ids for its hungriest rank. */
static void deliver(fby_sampler *sampler, uint64_t served, fby_draw *out)
{
    uint64_t ended = 0;
    out->tasks = served;
    sampler->stats.draws++;
    sampler->stats.drawn += out->count;
    for (uint64_t left = served; left; left &= left - 1) {
        uint32_t task = (uint32_t)__builtin_ctzll(left);
        fby_task_state *t = &sampler->task[task];
        fby_rank_state *rank = &t->rank[t->hungriest];
        out->targets[out->target_count++] = (fby_draw_target){
            .task = task,
            .rank = t->hungriest,
            .epoch = t->epoch,
            .position = rank->given,
            .epoch_last = rank->given + out->count == t->part,
        };
        rank->queued += out->count;
        rank->given += out->count;
        t->given += out->count;
        t->served += out->count;
        sampler->stats.delivered += out->count;
        fby_sampler_task_seek_rank(t);
        if (t->hungriest == FBY_NONE) ended |= UINT64_C(1) << task;
    }
    if (ended) fby_sampler_task_next_epochs(sampler, ended);
}

int fby_sampler_draw(fby_sampler *sampler, uint64_t blocked, fby_draw *out)
{
    out->count = out->target_count = 0;
    out->tasks = 0;

    uint64_t ready, served = 0;
    uint32_t hungriest = look_at_tasks(sampler, sampler->live & ~blocked, &ready);
    if (hungriest != FBY_NONE) {
        served = is_shared(&sampler->task[hungriest]) ? draw_shared(sampler, hungriest, ready, out)
                                                      : draw_ordered(sampler, hungriest, ready, out);
    }
    if (served) deliver(sampler, served, out);
    go_on(sampler);
    return served != 0;
}

/* ---- Substitutes. ---- */

/* A shared-order task's pool with an id it needs that isn't bad, and the id's place in it; FBY_NONE where
 * there is none. */
static uint32_t find_needed(fby_sampler *sampler, uint32_t task, uint32_t *k)
{
    fby_pools *pools = &sampler->pools;
    const fby_task_state *t = &sampler->task[task];
    uint64_t bit = UINT64_C(1) << task, served;
    pools->strata.now++;
    uint32_t pool = fby_choice_first(&sampler->chooser, task, bit, t->batch, &served);
    for (uint32_t place = 0; pool != FBY_NONE; place++) {
        uint32_t count = pools->pool[pool].count;
        uint32_t start = (uint32_t)fby_generator_below(&sampler->generator, count);
        for (uint32_t i = 0; i < count; i++) {
            *k = (uint32_t)(((uint64_t)start + i) % count);
            if (!is_bad(t, fby_pools_at(pools, pool, *k))) return pool;
        }
        while (place < pools->count && !(pools->mask[place] & bit)) place++;
        pool = place < pools->count ? pools->record[place] : FBY_NONE;
    }
    return FBY_NONE;
}

/* An id that a resumed epoch had left when all of it was drawn, and that isn't bad; false: there is none. */
static bool take_spare(fby_sampler *sampler, fby_task_state *task, uint64_t epoch, uint32_t *id)
{
    while (epoch == task->spare_epoch && task->spare_count) {
        uint32_t k = (uint32_t)fby_generator_below(&sampler->generator, task->spare_count);
        *id = task->spare[k];
        task->spare[k] = task->spare[--task->spare_count];
        if (!is_bad(task, *id)) return true;
    }
    return false;
}

/* An id of the task's that isn't bad, from a random place on; there is one. */
static uint32_t any_good(fby_sampler *sampler, const fby_task_state *task)
{
    uint32_t place = (uint32_t)fby_generator_below(&sampler->generator, task->ids), id;
    while (is_bad(task, id = id_at(task, place))) place = place + 1 < task->ids ? place + 1 : 0;
    return id;
}

/* The nearest id before the bad one in a fixed order that isn't bad. */
static uint32_t good_before(const fby_task_state *task, uint64_t epoch, uint32_t bad)
{
    fby_permutation order;
    fby_permutation_set(&order, task->ids, task->seed, epoch);
    uint32_t position = task->subset ? fby_subset_rank(task->subset, bad) : bad, id;
    if (task->order == FBY_ORDER_STRICT) position = fby_permutation_find(&order, position);
    do {
        position = position ? position - 1 : task->ids - 1;
        id = id_ordered(task, &order, position);
    } while (is_bad(task, id));
    return id;
}

static void mark_bad(const fby_sampler *sampler, fby_task_state *task, uint32_t id)
{
    if (id >= sampler->ids || is_bad(task, id)) return;
    if (task->subset && !fby_subset_has(task->subset, id)) return;
    task->bad[id / 64] |= UINT64_C(1) << (id % 64);
    task->bad_count++;
}

int fby_sampler_substitute(fby_sampler *sampler, uint32_t task, uint64_t epoch, uint32_t bad, uint32_t *id,
                           uint64_t *turn, bool *repeat)
{
    fby_task_state *t = task_at(sampler, task);
    if (!t || bad >= sampler->ids) return FBY_EEND;
    mark_bad(sampler, t, bad);
    if (t->bad_count == t->ids) return FBY_EEND;

    fby_pools *pools = &sampler->pools;
    sampler->stats.drawn++;
    *repeat = true;
    if (!is_shared(t)) {
        *id = good_before(t, epoch, bad);
        *turn = epoch;
        visit(sampler, *id);
        return FBY_OK;
    }

    uint32_t k, pool = FBY_NONE;
    if (epoch == t->epoch && !t->over) {
        if (is_resuming(sampler, task)) fby_resume_prepare(sampler, task);
        pool = find_needed(sampler, task, &k);
    }
    if (pool != FBY_NONE) {
        uint64_t bit = UINT64_C(1) << task;
        uint32_t stratum = fby_pools_stratum(pools, pool);
        *id = fby_pools_move(pools, pool, k,
                             fby_pools_find(pools, stratum, fby_pools_mask(pools, pool) & ~bit));
        *repeat = false;
        fby_pools_tidy(pools, pool);
        fby_strata_take(&pools->strata, stratum, bit, 1);
    } else if (take_spare(sampler, t, epoch, id)) {
        *repeat = false;
    } else {
        *id = any_good(sampler, t);
    }
    *turn = visit(sampler, *id);
    return FBY_OK;
}

int fby_sampler_substitute_again(fby_sampler *sampler, uint32_t task, uint64_t epoch, uint32_t bad,
                                 uint32_t *id, uint64_t *turn)
{
    fby_task_state *t = task_at(sampler, task);
    if (!t || bad >= sampler->ids) return FBY_EEND;
    mark_bad(sampler, t, bad);
    if (t->bad_count == t->ids) return FBY_EEND;
    sampler->stats.drawn++;
    *id = is_shared(t) ? any_good(sampler, t) : good_before(t, epoch, bad);
    uint32_t number = visit(sampler, *id);
    *turn = is_shared(t) ? number : epoch;
    return FBY_OK;
}
