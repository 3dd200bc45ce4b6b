/* Equal tasks that take what comes at once: one that is held up for a while misses the draws of that time,
 * and from then on all share all draws again, though they are at different places of their epochs. The node
 * works on one draw after the other; time is counted in samples that it makes. */
#include <stdlib.h>

#include "dataplane/sampler/sampler.h"
#include "tests/support/test.h"

enum {
    TASKS = 4,
    IDS = 2000,
    BATCH = 64,
    DRAWS = 2000,
    QUEUE = 64,
    LOOK_MOST = 3,
    HELD_FROM = 50,
    ALL = (1 << TASKS) - 1
};

typedef struct order {
    uint64_t tasks, done_at; /* the moment at which its samples are made */
    uint32_t count;
} order;

typedef struct trainer {
    uint32_t task, filling; /* samples of a batch that isn't whole */
    uint32_t whole;         /* batches that it can take, the one that it holds too */
    uint64_t back_at;       /* that one goes back then; 0: it holds none */
} trainer;

static order orders[QUEUE];

static void deliver(const order *what, trainer *to)
{
    for (uint32_t i = 0; i < TASKS; i++) {
        if (!(what->tasks >> to[i].task & 1)) continue;
        to[i].filling += what->count;
        to[i].whole += to[i].filling / BATCH;
        to[i].filling %= BATCH;
    }
}

/* Gives back what it has looked at for long enough, and takes the next. */
static void train(trainer *it, fby_sampler *sampler, uint64_t now, uint64_t held_until)
{
    if (it->back_at && it->back_at <= now) {
        fby_sampler_give_back(sampler, it->task, 0, BATCH);
        it->whole--;
        it->back_at = 0;
    }
    if (it->whole && !it->back_at)
        it->back_at = (now > held_until ? now : held_until) + 1 + (uint64_t)random() % LOOK_MOST;
}

/* Draws that went to fewer than all, where one task is held up for as long as `held` draws take. */
static uint32_t missed_by_somebody(uint32_t window, bool drop_last, uint32_t held)
{
    static fby_draw draw;
    fby_sampler *sampler;
    trainer trainers[TASKS] = {0};
    uint64_t now = 0, busy_until = 0, held_until = 0;
    uint32_t head = 0, tail = 0, draws = 0, missed = 0;
    srandom(held);
    cr_assert_eq(fby_sampler_create(&sampler, IDS, held, NULL), FBY_OK);
    for (uint32_t i = 0; i < TASKS; i++) {
        fby_sampler_task what = {.batch = BATCH, .ranks = 1, .window = window, .drop_last = drop_last};
        cr_assert_eq(fby_sampler_join(sampler, &what, &trainers[i].task, NULL), FBY_OK);
    }
    for (; draws < DRAWS; now++) {
        for (uint32_t i = 0; i < TASKS; i++) train(&trainers[i], sampler, now, i == 1 ? held_until : 0);
        while (fby_sampler_draw(sampler, 0, &draw)) {
            cr_assert(tail - head < QUEUE);
            busy_until = (busy_until > now ? busy_until : now) + draw.count;
            orders[tail++ % QUEUE] = (order){draw.tasks, busy_until, draw.count};
            missed += draw.target_count < TASKS;
            if (++draws == HELD_FROM) held_until = now + (uint64_t)held * BATCH;
        }
        while (head != tail && orders[head % QUEUE].done_at <= now)
            deliver(&orders[head++ % QUEUE], trainers);
    }
    fby_sampler_destroy(&sampler);
    return missed;
}

Test(sampler_together, who_was_held_up_misses_those_draws_and_no_more)
{
    for (uint32_t held = 0; held < 40; held++) {
        for (int drop_last = 0; drop_last < 2; drop_last++) {
            uint32_t missed = missed_by_somebody(FBY_SPEC_WINDOW, drop_last, held);
            cr_assert(missed <= held, "held up for %u draws, drop_last %d: %u weren't shared by all", held,
                      drop_last, missed);
        }
    }
}

/* Why the usual window isn't 3: there the one and the others may draw by turns, for many epochs. */
Test(sampler_together, a_narrow_window_keeps_them_apart)
{
    uint32_t worst = 0;
    for (uint32_t held = 1; held < 20; held++) {
        uint32_t missed = missed_by_somebody(3, true, held);
        if (missed > held && missed - held > worst) worst = missed - held;
    }
    cr_assert(worst > 0, "a window of 3 would do");
}
