/* No call does more than a bounded amount of work, whatever there is to do: counted in steps, since time
 * depends on the machine. */
#include <stdlib.h>

#include "dataplane/sampler/internal.h"
#include "tests/support/test.h"

enum { IDS = 200000, BATCH = 8, MOST_LOOKS = 3 * 4096, MOST_SWEPT = 512, MOST_ARRIVED = 512 + 64 };

static fby_draw draw;

static void consume(fby_sampler *sampler, const double *rate, double *owed, uint64_t *queued, double samples)
{
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) {
        owed[i] += samples * rate[i];
        uint64_t back = (uint64_t)owed[i] < queued[i] ? (uint64_t)owed[i] : queued[i];
        owed[i] = back == queued[i] ? 0 : owed[i] - (double)back;
        queued[i] -= back;
        fby_sampler_give_back(sampler, i, 0, (uint32_t)back);
    }
}

/* 64 tasks of 64 rates leave a pool for nearly every batch. */
Test(sampler_steps, many_pools)
{
    fby_sampler *sampler;
    double rate[FBY_SAMPLER_TASKS], owed[FBY_SAMPLER_TASKS] = {0};
    uint64_t queued[FBY_SAMPLER_TASKS] = {0}, looks = 0;
    uint32_t most_pools = 0;
    cr_assert_eq(fby_sampler_create(&sampler, IDS, 1, NULL), FBY_OK);
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) {
        uint32_t task;
        fby_sampler_task what = {.batch = BATCH, .ranks = 1, .window = 3};
        cr_assert_eq(fby_sampler_join(sampler, &what, &task, NULL), FBY_OK);
        rate[i] = 1 - i / 70.0;
    }
    for (uint64_t drawn = 0; drawn < 2 * IDS;) {
        bool got = fby_sampler_draw(sampler, 0, &draw);
        cr_assert(sampler->chooser.looks - looks <= MOST_LOOKS, "%lu pools looked at",
                  sampler->chooser.looks - looks);
        looks = sampler->chooser.looks;
        if (sampler->pools.count > most_pools) most_pools = sampler->pools.count;
        drawn += draw.count;
        for (uint32_t i = 0; i < draw.target_count; i++) queued[draw.targets[i].task] += draw.count;
        consume(sampler, rate, owed, queued, got ? draw.count : BATCH);
    }
    cr_assert(most_pools > 6000, "there were %u pools", most_pools);

    /* A task gives its epoch up, then leaves: pools of equal keys are joined a few a call, and draws go on.
     */
    for (int leaving = 0; leaving < 2; leaving++) {
        uint32_t task = 40;
        if (leaving)
            fby_sampler_leave(sampler, task);
        else
            fby_sampler_abandon(sampler, task);
        cr_assert(sampler->pools.sweep_left > 0);
        uint32_t calls = 0;
        while (sampler->pools.sweep_left) {
            uint32_t left = sampler->pools.sweep_left;
            bool got = fby_sampler_draw(sampler, 0, &draw);
            if (sampler->pools.sweep_left < left) cr_assert(left - sampler->pools.sweep_left <= MOST_SWEPT);
            for (uint32_t i = 0; i < draw.target_count; i++) queued[draw.targets[i].task] += draw.count;
            consume(sampler, rate, owed, queued, got ? draw.count : BATCH);
            cr_assert(calls++ < 10000, "it comes to an end");
        }
    }
    fby_sampler_destroy(&sampler);
}

Test(sampler_steps, a_subset_arrives)
{
    fby_sampler *sampler;
    uint64_t *subset = calloc(IDS / 64, sizeof *subset);
    uint32_t all, part, arrived = 0, steps = 0;
    for (uint32_t i = 0; i < IDS / 64; i++) subset[i] = UINT64_C(0x5555555555555555) << i % 2;
    cr_assert_eq(fby_sampler_create(&sampler, IDS, 1, NULL), FBY_OK);
    cr_assert_eq(
        fby_sampler_join(sampler, &(fby_sampler_task){.batch = BATCH, .ranks = 1, .window = 3}, &all, NULL),
        FBY_OK);
    fby_sampler_task what = {.batch = BATCH, .ranks = 1, .window = 3, .subset = subset};
    cr_assert_eq(fby_sampler_join(sampler, &what, &part, NULL), FBY_OK);
    while (arrived < IDS / 2) {
        uint32_t now = (uint32_t)sampler->pools.strata.wanted[part];
        cr_assert(now > arrived && now - arrived <= MOST_ARRIVED, "%u ids at once", now - arrived);
        arrived = now;
        steps++;
        if (fby_sampler_draw(sampler, 0, &draw)) {
            for (uint32_t i = 0; i < draw.target_count; i++) {
                fby_sampler_give_back(sampler, draw.targets[i].task, 0, draw.count);
            }
        }
    }
    cr_assert(steps > IDS / 2 / MOST_ARRIVED);
    cr_assert_eq(sampler->arriving, 0);

    /* Who comes later with the same ids is there at once. */
    uint32_t later;
    cr_assert_eq(fby_sampler_join(sampler, &what, &later, NULL), FBY_OK);
    cr_assert_eq(sampler->pools.strata.wanted[later], IDS / 2);
    cr_assert_eq(sampler->pools.strata.count, 2);
    free(subset);
    fby_sampler_destroy(&sampler);
}

/* Both ways of looking through pools make the same draws. */
Test(sampler_steps, tiers_agree)
{
    fby_sampler *sampler[2];
    static fby_draw draws[2];
    uint64_t half[16] = {0x123456789abcdef0, 0xffff0000ffff0000, 0x0f0f0f0f0f0f0f0f, 0xdeadbeefcafebabe};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(fby_sampler_create(&sampler[i], 1000, 3, NULL), FBY_OK);
        sampler[i]->chooser.tier = i ? fby_choice_best_tier() : FBY_CHOICE_PLAIN;
        for (uint32_t k = 0; k < 20; k++) {
            uint32_t task;
            fby_sampler_task what = {
                .batch = 4 + k % 3, .ranks = 1, .window = 3, .subset = k % 5 ? NULL : half};
            cr_assert_eq(fby_sampler_join(sampler[i], &what, &task, NULL), FBY_OK);
        }
    }
    for (uint32_t step = 0; step < 20000; step++) {
        int got = fby_sampler_draw(sampler[0], 0, &draws[0]);
        cr_assert_eq(fby_sampler_draw(sampler[1], 0, &draws[1]), got);
        cr_assert(draws[0].count == draws[1].count && draws[0].tasks == draws[1].tasks);
        for (uint32_t k = 0; k < draws[0].count; k++) cr_assert_eq(draws[0].ids[k], draws[1].ids[k]);
        for (int i = 0; i < 2; i++) fby_sampler_give_back(sampler[i], step * 7 % 20, 0, 3 + step % 20);
    }
    for (int i = 0; i < 2; i++) fby_sampler_destroy(&sampler[i]);
}
