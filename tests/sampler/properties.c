/* What the sampler promises, held under random schedules of joins, leaves, epochs given up, draws, returns
 * and bad samples. */
#include <stdlib.h>
#include <string.h>

#include "tests/sampler/watch.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

static uint64_t *random_subset(watch *w)
{
    uint64_t *words = calloc(((size_t)w->ids + 63) / 64, sizeof *words);
    uint64_t kind = watch_random(w, 4), part = 1 + watch_random(w, 9);
    for (uint32_t id = 0; id < w->ids; id++) {
        bool in = kind == 0   ? id * UINT64_C(10) < part * w->ids
                  : kind == 1 ? id % 2 == part % 2
                              : watch_random(w, 10) < part;
        if (in) words[id / 64] |= UINT64_C(1) << (id % 64);
    }
    words[0] |= 1;
    return words;
}

typedef struct schedule_mix {
    bool orders, subsets, ranks, limits, resumed; /* what a schedule's tasks may have */
} schedule_mix;

/* What a task may have had of its epoch: a random part for each rank, of random ids; often of what other
 * ranks left. */
static void random_life(watch *w, fby_sampler_task *what, uint64_t **given, uint64_t **had)
{
    uint32_t ids = 0;
    size_t words = ((size_t)w->ids + 63) / 64;
    *given = calloc(what->ranks, sizeof **given);
    *had = calloc(words, sizeof **had);
    for (uint32_t id = 0; id < w->ids; id++) ids += !what->subset || what->subset[id / 64] >> (id % 64) & 1;
    if (watch_random(w, 2)) what->behind = watch_random(w, ids + 1);
    uint64_t part = (ids - what->behind) / what->ranks;
    if (what->drop_last) part -= part % what->batch;
    uint64_t wanted = what->behind, left = ids;
    bool begun = !what->behind || watch_random(w, 2);
    for (uint32_t r = 0; r < what->ranks && begun; r++) wanted += (*given)[r] = watch_random(w, part + 1);
    for (uint32_t id = 0; id < w->ids; id++) {
        if (what->subset && !(what->subset[id / 64] >> (id % 64) & 1)) continue;
        if (watch_random(w, left--) >= wanted) continue;
        (*had)[id / 64] |= UINT64_C(1) << (id % 64);
        wanted--;
    }
    if (begun) what->given = *given;
    if (what->order == FBY_ORDER_SHARED) what->had = *had;
    what->visits = (uint32_t)watch_random(w, 8);
}

static bool random_join(watch *w, schedule_mix mix)
{
    static const uint32_t batches[] = {1, 3, 8, 16, 32, 64, 100};
    fby_sampler_task what = {
        .batch = batches[watch_random(w, 7)], .window = 1 + (uint32_t)watch_random(w, 4), .ranks = 1};
    uint64_t *subset = NULL;
    if (mix.orders) what.order = (fby_order)watch_random(w, 3);
    if (mix.subsets && watch_random(w, 2)) what.subset = subset = random_subset(w);
    if (mix.ranks && watch_random(w, 2)) what.ranks = 1 + (uint32_t)watch_random(w, 5);
    if (mix.limits) {
        what.drop_last = watch_random(w, 2);
        what.first_epoch = watch_random(w, 3);
        what.epochs = watch_random(w, 3) ? 0 : what.first_epoch + watch_random(w, 4);
    }
    what.seed = watch_random(w, 3);

    uint64_t *given = NULL, *had = NULL;
    if (mix.resumed && watch_random(w, 2)) random_life(w, &what, &given, &had);
    uint32_t task, ids = w->ids;
    int code = watch_join(w, &what, &task);
    if (code == FBY_EINVAL) {
        uint32_t count = ids;
        if (subset) {
            count = 0;
            for (uint32_t id = 0; id < ids; id++) count += subset[id / 64] >> (id % 64) & 1;
        }
        cr_assert(what.drop_last && count / what.ranks < what.batch);
    } else if (code) {
        cr_assert_eq(code, FBY_EFULL);
    }
    free(subset);
    free(given);
    free(had);
    return code == FBY_OK;
}

static uint32_t random_task(watch *w)
{
    uint32_t task = (uint32_t)watch_random(w, FBY_SAMPLER_TASKS);
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) {
        if (w->task[task].live) return task;
        task = (task + 1) % FBY_SAMPLER_TASKS;
    }
    return UINT32_MAX;
}

static void random_schedule(uint64_t seed, uint32_t ids, uint32_t steps, schedule_mix mix)
{
    watch w;
    watch_start(&w, ids, seed);
    fby_draw *draw = malloc(sizeof *draw);
    uint64_t live = 0, epochs = 0;
    for (uint32_t step = 0; step < steps; step++) {
        uint64_t dice = watch_random(&w, 1000);
        uint32_t task = random_task(&w);
        if (dice < 12 || task == UINT32_MAX) {
            live += random_join(&w, mix);
        } else if (dice < 18) {
            watch_leave(&w, task);
        } else if (dice < 22) {
            watch_abandon(&w, task);
        } else if (dice < 400) {
            uint64_t some = watch_random(&w, UINT64_MAX), of_them = watch_random(&w, UINT64_MAX);
            uint64_t blocked = watch_random(&w, 5) ? 0 : some & of_them;
            if (watch_draw(&w, blocked, draw) && watch_random(&w, 60) == 0) {
                const fby_draw_target *target = &draw->targets[watch_random(&w, draw->target_count)];
                watch_substitute(&w, target->task, target->epoch, draw->ids[watch_random(&w, draw->count)]);
            }
        } else {
            watched_task *t = &w.task[task];
            uint32_t rank = (uint32_t)watch_random(&w, t->what.ranks);
            uint64_t back = watch_random(&w, t->what.batch * (task % 3 + 1) + 1);
            watch_give_back(&w, task, rank, back < t->queued[rank] ? back : t->queued[rank]);
        }
        if (step % 64 == 0 && live) {
            for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) epochs += w.task[i].epochs_done;
        }
    }

    fby_sampler_stats stats;
    fby_sampler_get_stats(w.sampler, &stats);
    cr_assert_eq(stats.drawn, w.drawn);
    cr_assert(ids > 300 || epochs > 0, "seed %lu: epochs ended", seed);
    free(draw);
    watch_end(&w);
}

static void schedules(uint32_t count, uint32_t most_ids, uint32_t steps, schedule_mix mix)
{
    count = test_scaled(count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t seed = UINT64_C(100000) * most_ids + i;
        uint32_t ids = i % 5 == 0 ? 1 + i % 7 : 1 + (uint32_t)(seed * 2654435761u % most_ids);
        cr_log_info("seed %lu, %u ids", seed, ids);
        random_schedule(seed, ids, steps, mix);
    }
}

Test(sampler_properties, shared)
{
    schedules(60, 500, 6000, (schedule_mix){0});
}

Test(sampler_properties, orders)
{
    schedules(60, 400, 6000, (schedule_mix){.orders = true});
}

Test(sampler_properties, subsets)
{
    schedules(60, 600, 6000, (schedule_mix){.subsets = true});
}

Test(sampler_properties, ranks_and_limits)
{
    schedules(60, 600, 6000, (schedule_mix){.ranks = true, .limits = true});
}

Test(sampler_properties, resumed)
{
    schedules(60, 600, 6000, (schedule_mix){.subsets = true, .ranks = true, .limits = true, .resumed = true});
}

Test(sampler_properties, everything)
{
    schedules(120, 900, 8000, (schedule_mix){true, true, true, true, true});
}

/* Larger than what one call moves at once: subsets arrive, and equal pools are joined, while ids are drawn.
 */
Test(sampler_properties, in_steps)
{
    schedules(4, 60000, 30000, (schedule_mix){.subsets = true, .limits = true, .resumed = true});
}
