/* An echo without a server: a stand-in for the sampler hands out fresh samples in order, at random moments.
 */
#include "dataplane/echo/echo.h"

#include <forebay/error.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/generator.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

enum { SEATS = 6, PART_MOST = 300, LATE = 8 };

/* A seat as the test sees it. */
typedef struct seat {
    bool live;
    fby_echo_seat_options what;
    uint64_t epoch, emitted;
    uint8_t fresh[PART_MOST], times[PART_MOST]; /* of the epoch, by id */
    uint8_t repeats[PART_MOST][8];              /* numbers that came, by id */
    uint32_t next;                              /* fresh id */
    struct {
        uint32_t id;
        uint64_t epoch;
    } coming[LATE]; /* drawn, but not made yet */
    uint32_t coming_count;
} seat;

typedef struct world {
    fby_generator generator;
    fby_echo *echo;
    seat seats[SEATS];
    uint64_t epochs, auto_epochs; /* that were had whole */
} world;

static uint64_t below(world *w, uint64_t n)
{
    return fby_generator_below(&w->generator, n);
}

static uint64_t total_of(const seat *s)
{
    return fby_echo_samples(&s->what);
}

static void epoch_clear(seat *s, uint64_t epoch)
{
    memset(s->fresh, 0, sizeof s->fresh);
    memset(s->times, 0, sizeof s->times);
    memset(s->repeats, 0, sizeof s->repeats);
    s->epoch = epoch;
    s->emitted = s->next = 0;
}

static bool is_auto(const seat *s)
{
    return !(s->what.factor > 0);
}

/* What an epoch came to. */
static void epoch_check(const seat *s)
{
    uint32_t floor = (uint32_t)s->what.max;
    bool whole = s->what.max == floor;
    cr_assert_eq(s->emitted, total_of(s), "an epoch of %llu emissions, expected %llu",
                 (unsigned long long)s->emitted, (unsigned long long)total_of(s));
    for (uint64_t id = 0; id < s->what.part; id++) {
        cr_assert_eq(s->fresh[id], 1, "sample %llu came fresh %u times", (unsigned long long)id,
                     s->fresh[id]);
        bool fits = s->times[id] == floor || (!whole && s->times[id] == floor + 1);
        bool fewer = (s->what.drop_last || is_auto(s)) && s->times[id] < floor;
        cr_assert(fits || fewer, "sample %llu came %u times, factor %g, max %g", (unsigned long long)id,
                  s->times[id], s->what.factor, s->what.max);
    }
}

/* Auto, with as many emissions as whole batches from a pass of fresh samples to what `max` allows. */
static void auto_make(world *w, fby_echo_seat_options *what)
{
    uint64_t most = (uint64_t)((double)what->part * what->max), batch = what->batch;
    uint64_t least = (what->part + batch - 1) / batch,
             steps = (most + (what->drop_last ? 0 : batch - 1)) / batch;
    what->factor = 0;
    what->total = (least + below(w, steps - least + 1)) * batch;
    if (what->total > most) what->total = most;
}

static void seat_enter(world *w, uint32_t at, bool fixed)
{
    static const double factors[] = {1, 1.3, 1.5, 2, 2.75, 4, 7};
    seat *s = &w->seats[at];
    *s = (seat){.live = true};
    s->what = (fby_echo_seat_options){.factor = factors[below(w, sizeof factors / sizeof *factors)],
                                      .buffer = 1 + (uint32_t)below(w, 60),
                                      .batch = 1 + (uint32_t)below(w, 20),
                                      .part = 20 + below(w, PART_MOST - 20),
                                      .epoch = below(w, 3),
                                      .drop_last = below(w, 3) == 0,
                                      .ordered = fixed,
                                      .history = below(w, 2)};
    if (below(w, 4) == 0) { /* less than what is under way */
        s->what.buffer = 1;
        s->what.batch = 1 + (uint32_t)below(w, 3);
    }
    s->what.max = s->what.factor;
    if (s->what.drop_last) s->what.part -= s->what.part % s->what.batch;
    if (!s->what.part) s->what.part = s->what.batch;
    if (!fixed && below(w, 2)) auto_make(w, &s->what);
    epoch_clear(s, s->what.epoch);
    fby_echo_enter(w->echo, at, &s->what);
}

static void emitted_note(seat *s, uint32_t id, uint32_t repeat)
{
    s->emitted++;
    s->times[id]++;
    if (!repeat) {
        s->fresh[id]++;
        return;
    }
    cr_assert_eq(s->fresh[id], 1, "sample %u came again before it came", id);
    cr_assert_eq(s->repeats[id][repeat], 0, "emission %u of sample %u came twice", repeat, id);
    s->repeats[id][repeat] = 1;
}

static void epoch_end(world *w, seat *s)
{
    epoch_check(s);
    w->epochs++;
    w->auto_epochs += is_auto(s);
    epoch_clear(s, s->epoch + 1);
}

/* What waits: no more than the buffer holds, and what was under way. */
static void buffer_check(const world *w, uint32_t at)
{
    const seat *s = &w->seats[at];
    fby_echo_seat_stats stats;
    fby_echo_get_seat_stats(w->echo, at, &stats);
    uint64_t buffer = s->what.buffer > s->what.batch ? s->what.buffer : s->what.batch;
    double most = (double)(buffer + LATE) * (s->what.max - 1) + LATE;
    cr_assert(!is_auto(s) || (double)stats.owed <= most, "%llu emissions wait, of %u samples, max %g",
              (unsigned long long)stats.owed, s->what.buffer, s->what.max);
}

/* One or some fresh samples for one seat, as the sampler would. */
static void fresh_draw(world *w, uint32_t at)
{
    seat *s = &w->seats[at];
    uint64_t wants = fby_echo_wants_fresh(w->echo, at), room = LATE - s->coming_count;
    cr_assert_leq(wants, s->what.part - s->next, "it wants more fresh ones than there are");
    uint64_t most = wants < room ? wants : room;
    if (!most) return;
    uint32_t count = 1 + (uint32_t)below(w, most);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = s->next++;
        emitted_note(s, id, 0);
        if (s->what.ordered) {
            const fby_echo_fresh one = {.id = id};
            cr_assert_eq(fby_echo_add(w->echo, UINT64_C(1) << at, &one), FBY_OK);
        } else {
            s->coming[s->coming_count].id = id;
            s->coming[s->coming_count++].epoch = s->epoch;
        }
    }
    if (fby_echo_drawn(w->echo, at, count)) epoch_end(w, s);
    cr_assert_eq(fby_echo_epoch(w->echo, at), s->epoch);
}

/* Some of what was drawn is made. */
static void made(world *w, uint32_t at)
{
    seat *s = &w->seats[at];
    if (!s->coming_count) return;
    uint32_t i = (uint32_t)below(w, s->coming_count);
    const fby_echo_fresh one = {.id = s->coming[i].id};
    if (s->coming[i].epoch == s->epoch) cr_assert_eq(fby_echo_add(w->echo, UINT64_C(1) << at, &one), FBY_OK);
    s->coming[i] = s->coming[--s->coming_count];
    buffer_check(w, at);
}

static void again_draw(world *w, uint32_t at, uint64_t ready)
{
    static fby_echo_draw draw;
    if (!fby_echo_draw_again(w->echo, at, ready, 1 + (uint32_t)below(w, 30), &draw)) return;
    cr_assert(draw.seats >> at & 1);
    cr_assert_eq(draw.seats & ~(ready | UINT64_C(1) << at), 0, "somebody who isn't ready is served");
    for (uint32_t i = 0; i < draw.count; i++)
        for (uint32_t k = i + 1; k < draw.count; k++)
            cr_assert_neq(draw.emissions[i].fresh.id, draw.emissions[k].fresh.id, "a sample twice in a draw");
    for (uint32_t other = 0; other < SEATS; other++) {
        if (!(draw.seats >> other & 1)) continue;
        seat *s = &w->seats[other];
        cr_assert_eq(draw.epochs[other], s->epoch);
        for (uint32_t i = 0; i < draw.count; i++)
            emitted_note(s, draw.emissions[i].fresh.id, draw.emissions[i].repeat);
        if (draw.epoch_ends >> other & 1) epoch_end(w, s);
    }
}

/* The seat goes on from what its epoch's samples came to, in whole batches, as after a restart: what was
 * under way was emitted, and what was owed is told anew. */
static void seat_resume(world *w, uint32_t at)
{
    seat *s = &w->seats[at];
    fby_echo *own;
    if (s->what.ordered || !s->emitted || s->emitted % s->what.batch) return;
    s->what.epoch = s->epoch;
    cr_assert_eq(fby_echo_restore(&own, &s->what, s->emitted, s->times, s->what.part, NULL), FBY_OK);
    cr_assert_eq(fby_echo_fresh_of(own, 0), s->next);
    fby_echo_leave(w->echo, at);
    fby_echo_adopt(w->echo, at, &own, 0, NULL, NULL);
    s->coming_count = 0;
    memset(s->repeats, 0, sizeof s->repeats); /* they are counted from what came */
    buffer_check(w, at);
}

/* Nobody is stuck; and auto is never kept from what is fresh but by what is due. */
static void wants_check(world *w, uint32_t at)
{
    const seat *s = &w->seats[at];
    uint64_t fresh = fby_echo_wants_fresh(w->echo, at), again = fby_echo_wants_again(w->echo, at);
    cr_assert(fresh || again || s->coming_count, "it waits for nothing, %llu samples into an epoch of %llu",
              (unsigned long long)s->emitted, (unsigned long long)total_of(s));
    if (!is_auto(s) || fby_echo_is_due(w->echo, at)) return;
    cr_assert_eq(fresh, s->what.part - s->next);
    cr_assert(!again || (s->emitted + again) % s->what.batch == 0, "on demand it fills batches");
}

/* Seats of one pool here have each samples of their own: what the ids are is theirs. So only one of shared
 * order may be there, or those that share have to be given the same; here each seat is alone in its draws. */
static void schedule_play(world *w, uint32_t steps)
{
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t at = (uint32_t)below(w, SEATS);
        seat *s = &w->seats[at];
        uint64_t what = below(w, 200);
        if (!s->live) {
            if (below(w, 4) == 0) seat_enter(w, at, at % 2);
        } else if (what == 0) {
            fby_echo_leave(w->echo, at);
            s->live = false;
        } else if (what == 1) {
            fby_echo_abandon(w->echo, at, s->epoch + 1);
            epoch_clear(s, s->epoch + 1);
        } else if (what == 2) {
            seat_resume(w, at);
        } else if (what < 80) {
            fresh_draw(w, at);
        } else if (what < 120) {
            made(w, at);
        } else {
            again_draw(w, at, 0);
        }
        if (s->live) wants_check(w, at);
    }
}

Test(echo, each_fresh_once_and_again_as_often_as_the_factor_says, .timeout = 3600)
{
    uint64_t epochs = 0, autos = 0;
    for (uint32_t round = 0; round < test_scaled(60); round++) {
        world *w = calloc(1, sizeof *w);
        w->generator.state = round;
        cr_assert_eq(fby_echo_create(&w->echo, round, NULL), FBY_OK);
        schedule_play(w, 20000);
        epochs += w->epochs;
        autos += w->auto_epochs;
        fby_echo_destroy(&w->echo);
        free(w);
    }
    cr_assert_gt(epochs, 100);
    cr_assert_gt(autos, 100);
}

/* The emissions of a fixed order's epochs: 1 + repeat << 16 for an id each. */
static uint32_t sequence_take(fby_echo *echo, uint32_t number, const fby_echo_seat_options *what,
                              uint32_t *out, uint32_t most, uint32_t *next, fby_generator *cuts)
{
    static fby_echo_draw draw;
    uint32_t count = 0;
    while (count < most) {
        uint64_t wants = fby_echo_wants_fresh(echo, number);
        if (wants > most - count) wants = most - count;
        if (cuts && wants) wants = 1 + fby_generator_below(cuts, wants);
        for (uint64_t i = 0; i < wants; i++) {
            const fby_echo_fresh one = {.id = *next};
            out[count++] = 1 + *next;
            *next = *next + 1 < what->part ? *next + 1 : 0;
            cr_assert_eq(fby_echo_add(echo, UINT64_C(1) << number, &one), FBY_OK);
        }
        if (wants) fby_echo_drawn(echo, number, (uint32_t)wants);
        if (wants) continue;
        cr_assert(fby_echo_draw_again(echo, number, 0, most - count, &draw),
                  "it wants neither fresh nor again");
        for (uint32_t i = 0; i < draw.count; i++)
            out[count++] = 1 + draw.emissions[i].fresh.id + (draw.emissions[i].repeat << 16);
    }
    return count;
}

static const fby_echo_seat_options fixed = {
    .factor = 2.6, .max = 2.6, .buffer = 30, .batch = 7, .part = 100, .ordered = true, .history = 5};

Test(echo, a_fixed_order_is_the_same_however_its_draws_are_cut)
{
    enum { COUNT = 520 };
    uint32_t alone[COUNT], cut[COUNT];
    for (uint32_t round = 0; round < 50; round++) {
        fby_echo *echo;
        uint32_t next = 0;
        cr_assert_eq(fby_echo_create(&echo, round, NULL), FBY_OK);
        fby_echo_enter(echo, 3, &fixed);
        fby_generator cuts = {round};
        sequence_take(echo, 3, &fixed, round ? cut : alone, COUNT, &next, round ? &cuts : NULL);
        if (round) cr_assert_arr_eq(cut, alone, sizeof alone);
        fby_echo_destroy(&echo);
    }
}

static uint32_t position_id(void *user, uint64_t position)
{
    (void)user;
    return (uint32_t)position;
}

Test(echo, a_replayed_fixed_order_goes_on_as_it_would_have)
{
    enum { EPOCH = 260 };
    for (uint32_t at = 7; at < EPOCH; at += 7) {
        uint32_t whole[EPOCH], rest[EPOCH];
        fby_echo *echo, *own;
        uint32_t next = 0;
        cr_assert_eq(fby_echo_create(&echo, 0, NULL), FBY_OK);
        fby_echo_enter(echo, 0, &fixed);
        sequence_take(echo, 0, &fixed, whole, EPOCH, &next, NULL);
        cr_assert_eq(fby_echo_epoch(echo, 0), 1, "the epoch ends with its last emission");

        cr_assert_eq(fby_echo_replay(&own, &fixed, at, NULL), FBY_OK);
        next = (uint32_t)fby_echo_fresh_of(own, 0) % 100;
        fby_echo_adopt(echo, 9, &own, 0, position_id, NULL);
        sequence_take(echo, 9, &fixed, rest, EPOCH - at, &next, NULL);
        cr_assert_arr_eq(rest, whole + at, (EPOCH - at) * sizeof *rest);
        fby_echo_destroy(&echo);
    }
}

Test(echo, a_restored_epoch_comes_to_its_number)
{
    for (uint32_t round = 0; round < 200; round++) {
        fby_generator generator = {round};
        fby_echo_seat_options what = {.factor = 1 + (double)fby_generator_below(&generator, 12) / 4,
                                      .buffer = 20,
                                      .batch = 5,
                                      .part = 100};
        what.max = what.factor;
        uint8_t counts[100] = {0};
        uint64_t emitted = 0, fresh = fby_generator_below(&generator, 101), come = 0;
        for (uint64_t i = 0; i < fresh; i++) {
            uint64_t times = (uint64_t)((double)(i + 1) * what.factor) - (uint64_t)((double)i * what.factor);
            counts[i] = (uint8_t)(1 + fby_generator_below(&generator, times));
            emitted += counts[i];
        }
        fby_echo *echo, *own;
        cr_assert_eq(fby_echo_create(&echo, 0, NULL), FBY_OK);
        cr_assert_eq(fby_echo_restore(&own, &what, emitted, counts, 100, NULL), FBY_OK);
        cr_assert_eq(fby_echo_fresh_of(own, 0), fresh);
        fby_echo_adopt(echo, 2, &own, 0, NULL, NULL);
        static fby_echo_draw draw;
        while (fby_echo_epoch(echo, 2) == 0 && emitted + come < fby_echo_samples(&what)) {
            if (fby_echo_draw_again(echo, 2, 0, 4096, &draw)) {
                come += draw.count;
                continue;
            }
            cr_assert_gt(fby_echo_wants_fresh(echo, 2), 0);
            const fby_echo_fresh one = {.id = (uint32_t)fresh++};
            come++;
            bool ends = fby_echo_drawn(echo, 2, 1);
            if (!ends) cr_assert_eq(fby_echo_add(echo, 4, &one), FBY_OK);
        }
        cr_assert_eq(fresh, 100, "all came fresh");
        cr_assert_eq(fby_echo_epoch(echo, 2), 1, "and the epoch is over");
        fby_echo_destroy(&echo);
    }
}

Test(echo, two_seats_of_one_pool_are_served_together)
{
    fby_echo_seat_options what = {.factor = 3, .max = 3, .buffer = 100, .batch = 10, .part = 100};
    fby_echo *echo;
    static fby_echo_draw draw;
    cr_assert_eq(fby_echo_create(&echo, 1, NULL), FBY_OK);
    fby_echo_enter(echo, 0, &what);
    fby_echo_enter(echo, 5, &what);
    for (uint32_t id = 0; id < 100; id++) {
        const fby_echo_fresh one = {.id = id};
        fby_echo_drawn(echo, 0, 1);
        fby_echo_drawn(echo, 5, 1);
        cr_assert_eq(fby_echo_add(echo, 1 | 32, &one), FBY_OK);
    }
    uint32_t together = 0, drawn = 0;
    while (fby_echo_epoch(echo, 0) == 0) {
        cr_assert(fby_echo_draw_again(echo, 0, 1 | 32, 10, &draw));
        together += draw.seats == (1 | 32) ? draw.count : 0;
        drawn += draw.count;
    }
    cr_assert_eq(drawn, 200);
    cr_assert_eq(together, 200, "whoever is owed the same is served with it");
    cr_assert_eq(fby_echo_epoch(echo, 5), 1);
    /* One that isn't ready is served later, from what is left for it. */
    for (uint32_t id = 0; id < 20; id++) {
        const fby_echo_fresh one = {.id = id};
        fby_echo_drawn(echo, 0, 1);
        fby_echo_drawn(echo, 5, 1);
        cr_assert_eq(fby_echo_add(echo, 1 | 32, &one), FBY_OK);
    }
    fby_echo_seat_stats stats;
    fby_echo_get_seat_stats(echo, 5, &stats);
    cr_assert_eq(stats.owed, 40);
    fby_echo_leave(echo, 0);
    fby_echo_get_seat_stats(echo, 5, &stats);
    cr_assert_eq(stats.owed, 40, "who leaves takes nothing from the others");
    fby_echo_destroy(&echo);
}

/* `count` fresh samples, drawn and made, of which the first is `first`; true where they end the epoch. */
static bool fresh_give(fby_echo *echo, uint32_t at, uint32_t first, uint32_t count)
{
    uint64_t epoch = fby_echo_epoch(echo, at);
    bool ends = fby_echo_drawn(echo, at, count);
    for (uint32_t id = first; id < first + count && fby_echo_epoch(echo, at) == epoch; id++) {
        const fby_echo_fresh one = {.id = id};
        cr_assert_eq(fby_echo_add(echo, UINT64_C(1) << at, &one), FBY_OK);
    }
    return ends;
}

Test(echo, auto_with_a_total_repeats_once_the_fresh_ones_are_over_where_nobody_asked_before)
{
    const fby_echo_seat_options what = {.max = 4, .total = 250, .buffer = 100, .batch = 10, .part = 100};
    static fby_echo_draw draw;
    fby_echo *echo;
    cr_assert_eq(fby_echo_create(&echo, 1, NULL), FBY_OK);
    fby_echo_enter(echo, 2, &what);
    for (uint32_t id = 0; id < 100; id += 10) {
        cr_assert_eq(fby_echo_wants_fresh(echo, 2), 100 - id);
        cr_assert_not(fby_echo_is_due(echo, 2));
        cr_assert_not(fresh_give(echo, 2, id, 10), "150 are to come again");
    }
    for (uint32_t again = 0; again < 150; again += 10) {
        cr_assert_eq(fby_echo_wants_fresh(echo, 2), 0);
        cr_assert(fby_echo_is_due(echo, 2));
        cr_assert(fby_echo_draw_again(echo, 2, 0, 10, &draw));
        cr_assert_eq(draw.count, 10);
        cr_assert_eq(draw.epoch_ends, again == 140 ? 4 : 0);
    }
    cr_assert_eq(fby_echo_epoch(echo, 2), 1);
    cr_assert_eq(fby_echo_wants_fresh(echo, 2), 100);
    fby_echo_destroy(&echo);
}

Test(echo, auto_with_a_total_has_room_for_so_many_repeats_and_no_more)
{
    const fby_echo_seat_options what = {.max = 4, .total = 130, .buffer = 100, .batch = 10, .part = 100};
    static fby_echo_draw draw;
    fby_echo *echo;
    cr_assert_eq(fby_echo_create(&echo, 1, NULL), FBY_OK);
    fby_echo_enter(echo, 0, &what);
    fresh_give(echo, 0, 0, 20);
    for (uint32_t again = 0; again < 30; again += 10) {
        cr_assert_eq(fby_echo_wants_again(echo, 0), 10, "on demand");
        cr_assert(fby_echo_draw_again(echo, 0, 0, 10, &draw));
    }
    cr_assert_eq(fby_echo_wants_again(echo, 0), 0, "what is left is for the fresh ones");
    cr_assert_not(fby_echo_draw_again(echo, 0, 0, 10, &draw));
    cr_assert_eq(fby_echo_wants_fresh(echo, 0), 80);
    cr_assert(fresh_give(echo, 0, 20, 80), "the epoch ends with them");
    fby_echo_destroy(&echo);
}

Test(echo, auto_with_a_total_spreads_what_its_buffer_would_not_hold_for_the_end)
{
    const fby_echo_seat_options what = {.max = 3, .total = 2000, .buffer = 50, .batch = 10, .part = 1000};
    static fby_echo_draw draw;
    fby_echo *echo;
    cr_assert_eq(fby_echo_create(&echo, 1, NULL), FBY_OK);
    fby_echo_enter(echo, 0, &what);
    uint32_t fresh = 0, again = 0;
    while (fby_echo_epoch(echo, 0) == 0) {
        if (fby_echo_wants_fresh(echo, 0)) {
            fresh_give(echo, 0, fresh, 10);
            fresh += 10;
        } else {
            cr_assert(fby_echo_draw_again(echo, 0, 0, 10, &draw));
            again += draw.count;
        }
        /* As many are due as fresh ones came; the buffer holds 100. */
        cr_assert_leq(fresh, again + 100, "%u fresh, %u again", fresh, again);
        cr_assert(fresh == 1000 || again <= fresh - (fresh < 90 ? fresh : 90), "%u fresh, %u again", fresh,
                  again);
    }
    cr_assert_eq(fresh, 1000);
    cr_assert_eq(again, 1000);
    fby_echo_destroy(&echo);
}

Test(echo, padding_that_a_state_counts_as_a_repeat_makes_no_epoch_longer)
{
    const fby_echo_seat_options what = {.max = 2, .total = 10, .buffer = 10, .batch = 5, .part = 10};
    const uint8_t counts[10] = {2, 1, 1, 1};
    fby_echo *echo, *own;
    cr_assert_eq(fby_echo_create(&echo, 1, NULL), FBY_OK);
    cr_assert_eq(fby_echo_restore(&own, &what, 5, counts, 10, NULL), FBY_OK);
    fby_echo_adopt(echo, 0, &own, 0, NULL, NULL);
    cr_assert_eq(fby_echo_wants_fresh(echo, 0), 5);
    cr_assert_eq(fby_echo_wants_again(echo, 0), 0, "each of the rest is fresh");
    cr_assert(fresh_give(echo, 0, 5, 5), "the epoch is over");
    fby_echo_destroy(&echo);
}
