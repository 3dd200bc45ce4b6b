#include "tests/sampler/watch.h"

#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/permutation.h"
#include "tests/support/test.h"

uint64_t watch_random(watch *w, uint64_t below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random % below;
}

void watch_start(watch *w, uint32_t ids, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->ids = ids;
    w->random = seed * 2654435761u + 88172645463325252u;
    w->visits = calloc(ids, sizeof *w->visits);
    cr_assert_eq(fby_sampler_create(&w->sampler, ids, seed, NULL), FBY_OK);
}

static void task_free(watched_task *t)
{
    free(t->subset);
    free(t->members);
    free(t->seen);
    free(t->bad);
    memset(t, 0, sizeof *t);
}

void watch_end(watch *w)
{
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) task_free(&w->task[i]);
    free(w->visits);
    fby_sampler_destroy(&w->sampler);
    cr_assert_null(w->sampler);
}

static bool has(const watched_task *t, uint32_t id)
{
    return !t->subset || (t->subset[id / 64] >> (id % 64) & 1);
}

static void epoch_reset(watch *w, watched_task *t)
{
    t->epoch++;
    t->distinct = t->used_up = t->padded = t->behind = 0;
    t->part = t->whole;
    memset(t->given, 0, sizeof t->given);
    memset(t->seen, 0, w->ids);
}

static bool is_over(const watched_task *t)
{
    return t->what.epochs && t->epoch >= t->what.epochs;
}

/* The id at a place of a fixed order. */
static uint32_t id_ordered(const watched_task *t, uint64_t place)
{
    uint64_t position = place % t->ids;
    if (t->what.order == FBY_ORDER_STRICT) {
        fby_permutation order;
        fby_permutation_set(&order, t->ids, t->what.seed, t->epoch);
        position = fby_permutation_at(&order, (uint32_t)position);
    }
    return t->members[position];
}

static void seen_note(watched_task *t, uint32_t id)
{
    t->distinct += !t->seen[id];
    t->seen[id] = 1;
}

/* Samples of an epoch with so many ids left, a rank. */
static uint64_t part_of(const watched_task *t, uint32_t left)
{
    uint32_t ranks = t->what.ranks;
    return t->what.drop_last ? left / ranks / t->what.batch * t->what.batch : (left + ranks - 1) / ranks;
}

/* What a resumed task had of its epoch. */
static void had_take(watch *w, watched_task *t)
{
    bool whole = true;
    t->behind = t->what.behind;
    t->part = part_of(t, t->ids - (uint32_t)t->behind);
    for (uint64_t place = 0; place < t->behind && t->what.order != FBY_ORDER_SHARED; place++)
        seen_note(t, id_ordered(t, place));
    for (uint32_t r = 0; r < t->what.ranks; r++) {
        t->given[r] = t->what.given ? t->what.given[r] : 0;
        whole = whole && t->given[r] == t->part;
        for (uint64_t i = 0; i < t->given[r] && t->what.order != FBY_ORDER_SHARED; i++) {
            uint64_t place = t->behind + r + i * t->what.ranks;
            if (place < t->ids)
                seen_note(t, id_ordered(t, place));
            else
                t->padded++;
        }
    }
    for (uint32_t i = 0; i < t->ids && t->what.had; i++)
        if (t->what.had[t->members[i] / 64] >> (t->members[i] % 64) & 1) seen_note(t, t->members[i]);
    if (whole) epoch_reset(w, t);
}

int watch_join(watch *w, const fby_sampler_task *what, uint32_t *task)
{
    int code = fby_sampler_join(w->sampler, what, task, NULL);
    if (code) return code;

    watched_task *t = &w->task[*task];
    cr_assert(*task < FBY_SAMPLER_TASKS && !t->live, "a bit of its own");
    size_t words = ((size_t)w->ids + 63) / 64;
    memset(t, 0, sizeof *t);
    t->live = true;
    t->what = *what;
    t->epoch = what->first_epoch;
    t->members = malloc(w->ids * sizeof *t->members);
    t->seen = calloc(w->ids, 1);
    t->bad = calloc(w->ids, 1);
    if (what->subset) {
        t->subset = malloc(words * sizeof *t->subset);
        memcpy(t->subset, what->subset, words * sizeof *t->subset);
    }
    for (uint32_t id = 0; id < w->ids; id++) {
        if (has(t, id)) t->members[t->ids++] = id;
    }

    t->whole = t->part = part_of(t, t->ids);
    t->window = (uint64_t)what->window * what->batch;
    if (t->window < 128) t->window = 128;
    cr_assert_eq(fby_sampler_samples(w->sampler, *task), t->part);
    cr_assert_eq(fby_sampler_batches(w->sampler, *task), (t->part + what->batch - 1) / what->batch);
    if ((what->given || what->behind) && !is_over(t)) had_take(w, t);
    if (what->visits > w->visits_before) w->visits_before = what->visits;
    return FBY_OK;
}

void watch_leave(watch *w, uint32_t task)
{
    fby_sampler_leave(w->sampler, task);
    task_free(&w->task[task]);
}

void watch_abandon(watch *w, uint32_t task)
{
    watched_task *t = &w->task[task];
    uint64_t begun = t->behind;
    for (uint32_t r = 0; r < t->what.ranks; r++) begun += t->given[r];
    if (begun && !is_over(t)) epoch_reset(w, t);
    cr_assert_eq(fby_sampler_abandon(w->sampler, task), t->epoch);
}

void watch_give_back(watch *w, uint32_t task, uint32_t rank, uint64_t count)
{
    w->task[task].queued[rank] -= count;
    fby_sampler_give_back(w->sampler, task, rank, (uint32_t)count);
}

void watch_substitute(watch *w, uint32_t task, uint64_t epoch, uint32_t bad)
{
    watched_task *t = &w->task[task];
    uint32_t id = UINT32_MAX, good = 0, needed = 0;
    uint64_t turn = UINT64_MAX;
    bool repeat = false;
    t->bad[bad] = 1;
    for (uint32_t i = 0; i < t->ids; i++) {
        good += !t->bad[t->members[i]];
        needed += !t->bad[t->members[i]] && !t->seen[t->members[i]];
    }

    int code = fby_sampler_substitute(w->sampler, task, epoch, bad, &id, &turn, &repeat);
    if (!good) {
        cr_assert_eq(code, FBY_EEND);
        return;
    }
    cr_assert_eq(code, FBY_OK);
    cr_assert(id < w->ids && has(t, id) && !t->bad[id], "id %u of its own, and good", id);
    bool shared = t->what.order == FBY_ORDER_SHARED;
    cr_assert_eq(turn, shared ? w->visits_before + w->visits[id] : epoch);
    w->visits[id]++;
    w->drawn++;
    cr_assert_eq(repeat, !(shared && epoch == t->epoch && !is_over(t) && needed), "%u needed", needed);
    if (!repeat) {
        cr_assert_eq(t->seen[id], 0);
        t->seen[id] = 1;
        t->distinct++;
        t->used_up++;
    }
}

/* A task's hunger: the fewest queued among its ranks with quota left; UINT64_MAX where none has any. */
static uint64_t hunger(const watched_task *t, uint32_t *rank)
{
    uint64_t least = UINT64_MAX;
    if (!t->live || is_over(t)) return least;
    for (uint32_t r = 0; r < t->what.ranks; r++) {
        if (t->given[r] < t->part && t->queued[r] < least) {
            least = t->queued[r];
            *rank = r;
        }
    }
    return least;
}

static void check_id(watch *w, watched_task *t, const fby_draw *draw, uint32_t i,
                     const fby_draw_target *target)
{
    uint32_t id = draw->ids[i];
    bool padded = draw->flags[i] & FBY_DRAW_PADDED;
    cr_assert(id < w->ids && has(t, id), "task %u got id %u that it never asked for", target->task, id);
    if (t->what.order == FBY_ORDER_SHARED) {
        if (padded) {
            cr_assert_eq(draw->target_count, 1);
            cr_assert(t->distinct == t->ids, "padding after the last id only");
        }
    } else {
        uint64_t place = t->behind + target->rank + (target->position + i) * t->what.ranks;
        cr_assert_eq(id, id_ordered(t, place), "fixed order");
        cr_assert_eq(padded, place >= t->ids);
    }
    t->padded += padded;
    if (!padded) {
        cr_assert_eq(t->seen[id], 0, "task %u got id %u twice in epoch %lu", target->task, id, t->epoch);
        t->seen[id] = 1;
        t->distinct++;
    }
}

static void check_epoch_end(watched_task *t)
{
    cr_assert_eq(t->distinct - t->used_up + t->padded, t->behind + t->part * t->what.ranks);
    if (!t->what.drop_last) cr_assert_eq(t->distinct, t->ids, "each id once");
    t->epochs_done++;
}

static void check_target(watch *w, const fby_draw *draw, const fby_draw_target *target, uint64_t blocked)
{
    watched_task *t = &w->task[target->task];
    uint32_t rank = 0;
    cr_assert(t->live && !(blocked >> target->task & 1), "task %u can't take a block", target->task);
    uint64_t least = hunger(t, &rank);
    cr_assert(target->rank < t->what.ranks && t->queued[target->rank] == least, "the hungriest rank");
    cr_assert(least < t->window, "no more than its window");
    cr_assert_eq(target->epoch, t->epoch);
    cr_assert_eq(target->position, t->given[target->rank]);
    cr_assert(target->position + draw->count <= t->part);
    cr_assert_eq(target->epoch_last, target->position + draw->count == t->part);
    if (draw->target_count == 1) {
        uint64_t in_batch = target->position % t->what.batch;
        cr_assert(in_batch + draw->count <= t->what.batch, "a batch's end is not crossed");
    }
    for (uint32_t i = 0; i < draw->count; i++) check_id(w, t, draw, i, target);
}

bool watch_draw(watch *w, uint64_t blocked, fby_draw *draw)
{
    uint64_t hungriest = UINT64_MAX;
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) {
        uint32_t rank;
        uint64_t queued = blocked >> i & 1 ? UINT64_MAX : hunger(&w->task[i], &rank);
        if (queued < w->task[i].window / 2 && queued < hungriest) hungriest = queued;
    }

    int code = fby_sampler_draw(w->sampler, blocked, draw);
    if (!code) {
        cr_assert_eq(hungriest, UINT64_MAX, "somebody with %lu queued is urgent, and nothing was drawn",
                     hungriest);
        return false;
    }
    cr_assert_eq(code, 1);
    cr_assert(draw->count >= 1 && draw->count <= FBY_DRAW_MOST);
    cr_assert(draw->target_count >= 1);

    bool served = false;
    uint32_t most = 0;
    uint64_t tasks = 0;
    for (uint32_t i = 0; i < draw->target_count; i++) {
        const fby_draw_target *target = &draw->targets[i];
        uint32_t rank;
        cr_assert(target->task < FBY_SAMPLER_TASKS && !(tasks >> target->task & 1), "each target once");
        tasks |= UINT64_C(1) << target->task;
        served = served || hunger(&w->task[target->task], &rank) == hungriest;
        if (w->task[target->task].what.batch > most) most = w->task[target->task].what.batch;
        check_target(w, draw, target, blocked);
    }
    cr_assert_eq(tasks, draw->tasks);
    cr_assert(served, "the hungriest is served");
    cr_assert(draw->count <= most, "a draw is a batch at most");

    bool all_fixed = true;
    for (uint32_t i = 0; i < draw->target_count; i++) {
        all_fixed = all_fixed && w->task[draw->targets[i].task].what.order != FBY_ORDER_SHARED;
    }
    for (uint32_t i = 0; i < draw->count; i++) {
        uint32_t visit = w->visits_before + w->visits[draw->ids[i]]++;
        cr_assert_eq(draw->turns[i], all_fixed ? draw->targets[0].epoch : visit);
    }
    w->drawn += draw->count;

    for (uint32_t i = 0; i < draw->target_count; i++) {
        const fby_draw_target *target = &draw->targets[i];
        watched_task *t = &w->task[target->task];
        t->queued[target->rank] += draw->count;
        t->given[target->rank] += draw->count;
        t->delivered += draw->count;
        bool ended = true;
        for (uint32_t r = 0; r < t->what.ranks; r++) ended = ended && t->given[r] == t->part;
        if (ended) {
            check_epoch_end(t);
            epoch_reset(w, t);
        }
    }
    return true;
}
