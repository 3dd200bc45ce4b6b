/* The model's scenarios on the real sampler, held to the model's marks: a simulated node of a fixed capacity
 * draws for tasks of fixed rates, and time passes by the ids drawn.
 *
 * With `bound` the least ids a second that could serve the tasks, a scenario holds if: ids drawn a second <=
 * slack x min(bound, capacity); each task gets at least 0.93 x min(its rate, capacity); the deciles of the
 * first task's epochs hold their share of the second task's ids, within 0.12; and each id came once in each
 * epoch. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/sampler.h"
#include "tests/support/test.h"

enum { BATCH = 16, TASKS = 8 };

typedef struct trainer {
    double rate, join, leave;
    double part; /* of the ids, chosen at random by `seed`; 0: all */
    uint64_t seed;
    uint32_t ranks;
} trainer;

typedef struct scenario {
    uint32_t ids;
    double capacity, seconds, bound, slack;
    uint32_t count;
    trainer trainers[TASKS];
} scenario;

typedef struct running {
    bool live;
    uint32_t task, rank; /* rank: the one that takes next */
    double clock;
    uint64_t taken;
    uint64_t queued[FBY_SAMPLER_RANKS];
    uint64_t *subset;
    uint32_t size, filled;
    uint32_t *order; /* of the epoch so far */
    uint8_t *seen;
} running;

static uint64_t random_state;

static double random_unit(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

/* Exactly `part` of the ids, at random. */
static void subset_choose(running *r, uint32_t ids, const trainer *t)
{
    uint32_t want = t->part > 0 ? (uint32_t)(ids * t->part) : ids;
    random_state = 88172645463325252u + t->seed * 7919;
    r->subset = calloc((ids + 63) / 64, sizeof *r->subset);
    r->size = want;
    for (uint32_t id = 0; id < ids; id++) {
        if (random_unit() * (ids - id) >= want) continue;
        r->subset[id / 64] |= UINT64_C(1) << (id % 64);
        want--;
    }
}

static bool has(const running *r, uint32_t id)
{
    return r->subset[id / 64] >> (id % 64) & 1;
}

/* The largest distance of an epoch's deciles from the share of `part` in the whole. */
static double deciles_off(const running *first, const running *part, uint32_t ids)
{
    uint32_t both = 0, tenth = first->size / 10;
    double off = 0;
    for (uint32_t id = 0; id < ids; id++) both += has(first, id) && has(part, id);
    for (uint32_t d = 0; d < 10; d++) {
        uint32_t in = 0;
        for (uint32_t i = 0; i < tenth; i++) in += has(part, first->order[d * tenth + i]);
        double away = (double)in / tenth - (double)both / first->size;
        if (away < 0) away = -away;
        if (away > off) off = away;
    }
    return off;
}

static void consume(fby_sampler *sampler, const trainer *t, running *r, double now, double step)
{
    while (r->clock <= now) {
        if (!r->queued[r->rank]) {
            r->clock = now + step;
            return;
        }
        r->queued[r->rank]--;
        fby_sampler_give_back(sampler, r->task, r->rank, 1);
        r->rank = (r->rank + 1) % t->ranks;
        r->taken++;
        r->clock += 1.0 / t->rate;
    }
}

static void receive(running *all, uint32_t count, const fby_draw *draw, uint32_t ids, double *off)
{
    for (uint32_t k = 0; k < draw->target_count; k++) {
        const fby_draw_target *target = &draw->targets[k];
        running *r = NULL;
        for (uint32_t i = 0; i < count; i++) {
            if (all[i].live && all[i].task == target->task) r = &all[i];
        }
        cr_assert_not_null(r);
        r->queued[target->rank] += draw->count;
        for (uint32_t i = 0; i < draw->count; i++) {
            cr_assert(has(r, draw->ids[i]) && !r->seen[draw->ids[i]], "each id once an epoch");
            r->seen[draw->ids[i]] = 1;
            r->order[r->filled++] = draw->ids[i];
        }
        if (r->filled < r->size) continue;
        if (r == all && count > 1) {
            double here = deciles_off(all, all + 1, ids);
            if (here > *off) *off = here;
        }
        r->filled = 0;
        memset(r->seen, 0, ids);
    }
}

static void play(const scenario *s)
{
    fby_sampler *sampler;
    static fby_draw draw;
    running all[TASKS] = {0};
    double now = 0, step = 1.0 / s->capacity, off = 0, warm_since = 0;
    uint64_t drawn = 0, drawn_warm = 0;
    cr_assert_eq(fby_sampler_create(&sampler, s->ids, 1, NULL), FBY_OK);
    for (uint32_t i = 0; i < s->count; i++) {
        subset_choose(&all[i], s->ids, &s->trainers[i]);
        all[i].order = calloc(s->ids, sizeof *all[i].order);
        all[i].seen = calloc(s->ids, 1);
    }

    while (now < s->seconds) {
        for (uint32_t i = 0; i < s->count; i++) {
            const trainer *t = &s->trainers[i];
            running *r = &all[i];
            bool wanted = t->join <= now && (t->leave == 0 || now < t->leave);
            if (wanted && !r->live) {
                fby_sampler_task what = {.batch = BATCH, .ranks = t->ranks, .window = 3, .subset = r->subset};
                cr_assert_eq(fby_sampler_join(sampler, &what, &r->task, NULL), FBY_OK);
                r->clock = now;
            } else if (!wanted && r->live) {
                fby_sampler_leave(sampler, r->task);
            }
            r->live = wanted;
            if (r->live) consume(sampler, t, r, now, step);
        }
        if (!drawn_warm && now >= s->seconds / 10) {
            drawn_warm = drawn;
            warm_since = now;
        }
        now += step;
        if (!fby_sampler_draw(sampler, 0, &draw)) continue;
        now += step * (draw.count - 1);
        drawn += draw.count;
        receive(all, s->count, &draw, s->ids, &off);
    }

    double rate = (double)(drawn - drawn_warm) / (now - warm_since);
    double least = s->bound < s->capacity ? s->bound : s->capacity;
    cr_log_info("%.1f ids/s, bound %.1f, capacity %.0f, deciles off by %.3f", rate, s->bound, s->capacity,
                off);
    cr_assert(rate <= s->slack * least, "%.1f ids/s drawn, %.1f would do", rate, least);
    cr_assert(off <= 0.12, "deciles off by %.3f", off);
    for (uint32_t i = 0; i < s->count; i++) {
        const trainer *t = &s->trainers[i];
        double until = t->leave == 0 || t->leave > s->seconds ? s->seconds : t->leave;
        double got = (double)all[i].taken / (until - t->join),
               due = t->rate < s->capacity ? t->rate : s->capacity;
        cr_assert(got >= 0.93 * due, "task %u gets %.1f of %.1f", i, got, due);
        free(all[i].subset);
        free(all[i].order);
        free(all[i].seen);
    }
    fby_sampler_destroy(&sampler);
}

#define PLAY(...) play(&(scenario){__VA_ARGS__})

Test(sampler_scenarios, equal_tasks_together)
{
    PLAY(2003, 300, 200, 100, 1.04, 3, {{100, .ranks = 1}, {100, .ranks = 1}, {100, .ranks = 1}});
}

Test(sampler_scenarios, equal_tasks_joined_apart)
{
    PLAY(2003, 300, 200, 100, 1.04, 3, {{100, .ranks = 1}, {100, 7.3, .ranks = 1}, {100, 11.1, .ranks = 1}});
    PLAY(2003, 50, 400, 100, 1.04, 3, {{100, .ranks = 1}, {100, 7.3, .ranks = 1}, {100, 11.1, .ranks = 1}});
}

Test(sampler_scenarios, different_rates)
{
    PLAY(2003, 300, 400, 100, 1.04, 3, {{100, .ranks = 1}, {70, 3, .ranks = 1}, {33, 5, .ranks = 1}});
    PLAY(2003, 80, 400, 100, 1.04, 3, {{100, .ranks = 1}, {70, 3, .ranks = 1}, {33, 5, .ranks = 1}});
}

Test(sampler_scenarios, saturated)
{
    PLAY(2003, 150, 300, 400, 1.04, 4,
         {{400, .ranks = 1}, {300, 3, .ranks = 1}, {200, 5, .ranks = 1}, {100, 7, .ranks = 1}});
}

Test(sampler_scenarios, coming_and_going)
{
    PLAY(2003, 400, 200, 100, 1.04, 5,
         {{100, .ranks = 1},
          {70, 3, .ranks = 1},
          {33, 5, 90, .ranks = 1},
          {80, 50, 150, .ranks = 1},
          {100, 60, .ranks = 1}});
}

Test(sampler_scenarios, random_subsets)
{
    double joined = 1 - 0.25 * 0.25 * 0.25 * 0.25;
    PLAY(8000, 400, 200, 100 * joined / 0.75, 1.12, 4,
         {{100, .part = .75, .seed = 1, .ranks = 1},
          {100, .part = .75, .seed = 2, .ranks = 1},
          {100, .part = .75, .seed = 3, .ranks = 1},
          {100, .part = .75, .seed = 4, .ranks = 1}});
}

Test(sampler_scenarios, all_and_a_part)
{
    PLAY(2003, 400, 200, 150, 1.04, 2, {{100, .ranks = 1}, {100, .part = .5, .seed = 1, .ranks = 1}});
    PLAY(2003, 400, 200, 120, 1.04, 2, {{100, .ranks = 1}, {100, .part = .8, .seed = 1, .ranks = 1}});
}

Test(sampler_scenarios, jobs_of_ranks)
{
    PLAY(4000, 600, 120, 200, 1.04, 4,
         {{200, .ranks = 4}, {200, 3, .ranks = 4}, {200, 5, .ranks = 4}, {200, 8, .ranks = 4}});
}
