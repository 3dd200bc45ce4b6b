/* Tasks that stop, and go on in a fresh sampler. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/sampler.h"
#include "tests/support/test.h"

static fby_draw draw;

/* What a task gets, one rank after the other's turn. */
typedef struct life {
    fby_sampler *sampler;
    fby_sampler_task what;
    uint32_t ids, task;
} life;

static life begin(uint32_t ids, uint64_t seed, fby_sampler_task what)
{
    life l = {.what = what, .ids = ids};
    cr_assert_eq(fby_sampler_create(&l.sampler, ids, seed, NULL), FBY_OK);
    cr_assert_eq(fby_sampler_join(l.sampler, &what, &l.task, NULL), FBY_OK);
    return l;
}

/* The task's next draw, given back at once; its own target. */
static const fby_draw_target *next(life *l)
{
    for (;;) {
        cr_assert_eq(fby_sampler_draw(l->sampler, 0, &draw), 1);
        const fby_draw_target *own = NULL;
        for (uint32_t i = 0; i < draw.target_count; i++) {
            const fby_draw_target *target = &draw.targets[i];
            fby_sampler_give_back(l->sampler, target->task, target->rank, draw.count);
            if (target->task == l->task) own = target;
        }
        if (own) return own;
    }
}

static bool has(const uint64_t *words, uint32_t id)
{
    return words[id / 64] >> (id % 64) & 1;
}

static void add(uint64_t *words, uint32_t id)
{
    words[id / 64] |= UINT64_C(1) << (id % 64);
}

/* A whole epoch of a task of shared order that had these ids before it: each once, as many as are expected.
 */
static void rest_check(life *l, uint64_t *had, uint64_t given, uint64_t epoch)
{
    uint64_t samples = fby_sampler_samples(l->sampler, l->task);
    for (bool last = false; !last;) {
        const fby_draw_target *target = next(l);
        cr_assert_eq(target->epoch, epoch);
        cr_assert_eq(target->position, given);
        for (uint32_t i = 0; i < draw.count; i++) {
            cr_assert(!has(had, draw.ids[i]), "id %u comes twice", draw.ids[i]);
            cr_assert(!l->what.subset || has(l->what.subset, draw.ids[i]));
            cr_assert(draw.turns[i] >= l->what.visits);
            add(had, draw.ids[i]);
        }
        given += draw.count;
        last = target->epoch_last;
    }
    cr_assert_eq(given, samples);
}

static void shared_check(uint32_t ids, uint32_t batch, bool drop_last, const uint64_t *subset, bool neighbour)
{
    size_t bytes = ((size_t)ids + 63) / 64 * 8;
    uint64_t *had = calloc(1, bytes), *rest = calloc(1, bytes);
    fby_sampler_task what = {
        .batch = batch, .drop_last = drop_last, .ranks = 1, .window = 3, .subset = subset, .first_epoch = 4};
    life first = begin(ids, 1, what);
    uint64_t samples = fby_sampler_samples(first.sampler, first.task);
    for (uint64_t given = 0; given < samples;) {
        next(&first);
        for (uint32_t i = 0; i < draw.count; i++) add(had, draw.ids[i]);
        given += draw.count;
        fby_sampler_stats stats;
        fby_sampler_get_stats(first.sampler, &stats);

        what.given = &given;
        what.had = had;
        what.visits = stats.visits;
        life second = begin(ids, 2 + given, what);
        uint32_t other;
        const fby_sampler_task beside = {.batch = 5, .ranks = 1, .window = 3};
        if (neighbour) cr_assert_eq(fby_sampler_join(second.sampler, &beside, &other, NULL), FBY_OK);
        memcpy(rest, had, bytes);
        if (given < samples) rest_check(&second, rest, given, 4);
        memset(rest, 0, bytes);
        rest_check(&second, rest, 0, 5);
        fby_sampler_destroy(&second.sampler);
    }
    fby_sampler_destroy(&first.sampler);
    free(had);
    free(rest);
}

Test(sampler_resume, shared_order_gives_the_rest_once)
{
    static const uint32_t sizes[] = {1, 10, 64, 130, 1000}, batches[] = {1, 7, 64};
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 3; k++) {
            if (sizes[i] / batches[k] > 200) continue;
            for (int drop = 0; drop < 2; drop++) {
                if (drop && sizes[i] < batches[k]) continue;
                for (int neighbour = 0; neighbour < 2; neighbour++)
                    shared_check(sizes[i], batches[k], drop, NULL, neighbour);
            }
        }
    }
}

Test(sampler_resume, subsets)
{
    uint64_t subset[16];
    for (int i = 0; i < 16; i++) subset[i] = i % 3 ? UINT64_C(0x5a5a0ff0123489ab) : UINT64_MAX >> i;
    for (int neighbour = 0; neighbour < 2; neighbour++) shared_check(1000, 64, neighbour, subset, neighbour);
}

/* More than come back at once. */
Test(sampler_resume, large)
{
    enum { IDS = 200000 };
    uint64_t *had = calloc(IDS / 64, 8), given = 0;
    for (int sparse = 0; sparse < 2; sparse++) {
        memset(had, 0, IDS / 8);
        for (uint32_t id = 0; id < IDS; id++)
            if (sparse ? id % 16 != 3 : id % 3 == 1) add(had, id);
        given = 0;
        for (uint32_t id = 0; id < IDS; id++) given += has(had, id);
        life l = begin(IDS, 3,
                       (fby_sampler_task){.batch = 64, .ranks = 1, .window = 3, .given = &given, .had = had});
        rest_check(&l, had, given, 0);
        fby_sampler_destroy(&l.sampler);
    }
    free(had);
}

/* What is given up on the way doesn't come: the next epoch is whole. */
Test(sampler_resume, given_up_on_the_way)
{
    enum { IDS = 100000 };
    uint64_t *had = calloc(IDS / 64 + 1, 8), given = IDS / 2;
    for (uint32_t id = 0; id < IDS / 2; id++) add(had, id);
    life l =
        begin(IDS, 3, (fby_sampler_task){.batch = 64, .ranks = 1, .window = 3, .given = &given, .had = had});
    next(&l);
    cr_assert_eq(fby_sampler_abandon(l.sampler, l.task), 1);
    memset(had, 0, IDS / 8);
    rest_check(&l, had, 0, 1);
    fby_sampler_destroy(&l.sampler);
    free(had);
}

/* The former life met ten bad samples: it had ten other ids in their place, and its bitmap knows nothing of
 * them. They come again, all is drawn before they turn out bad, and good ids stand in for them. */
Test(sampler_resume, bad_samples_come_again)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        uint64_t had[2] = {(UINT64_C(1) << 40) - 1}, given = 50, seen[2];
        memcpy(seen, had, sizeof seen);
        life l = begin(100, seed,
                       (fby_sampler_task){.batch = 25, .ranks = 1, .window = 9, .given = &given, .had = had});
        uint32_t drawn[50], count = 0;
        while (count < 50) {
            next(&l);
            for (uint32_t i = 0; i < draw.count; i++) drawn[count++] = draw.ids[i];
        }
        for (uint32_t i = 0; i < 50; i++) {
            uint32_t id = drawn[i];
            bool repeat = false;
            uint64_t turn;
            while (id >= 90) /* the bad ones; one may stand in for another */
                cr_assert_eq(fby_sampler_substitute(l.sampler, l.task, 0, id, &id, &turn, &repeat), FBY_OK);
            cr_assert(!repeat && id < 90 && !has(seen, id), "id %u", id);
            add(seen, id);
        }
        fby_sampler_destroy(&l.sampler);
    }
}

Test(sampler_resume, fixed_orders_go_on_as_if_nothing_had_happened)
{
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        for (int order = FBY_ORDER_STRICT; order <= FBY_ORDER_SEQUENTIAL; order++) {
            fby_sampler_task what = {
                .order = (fby_order)order, .seed = 9, .batch = 7, .ranks = ranks, .window = 3, .epochs = 3};
            life whole = begin(100, 1, what);
            uint64_t part = fby_sampler_samples(whole.sampler, whole.task);
            uint32_t *ids = calloc(2 * part * ranks, sizeof *ids); /* by epoch, position and rank */
            for (uint64_t count = 0; count < 2 * part * ranks; count += draw.count) {
                const fby_draw_target *target = next(&whole);
                for (uint32_t i = 0; i < draw.count; i++)
                    ids[(target->epoch * part + target->position + i) * ranks + target->rank] = draw.ids[i];
            }
            fby_sampler_destroy(&whole.sampler);

            for (uint64_t stop = 0; stop <= part; stop++) {
                uint64_t given[3] = {stop, stop ? stop - 1 : 0, stop};
                uint64_t left = 2 * part * ranks;
                for (uint32_t r = 0; r < ranks; r++) left -= given[r];
                what.given = given;
                life second = begin(100, 5, what);
                while (left) {
                    const fby_draw_target *target = next(&second);
                    cr_assert(target->epoch || target->position >= given[target->rank]);
                    for (uint32_t i = 0; i < draw.count; i++)
                        cr_assert_eq(
                            draw.ids[i],
                            ids[(target->epoch * part + target->position + i) * ranks + target->rank]);
                    left -= draw.count;
                }
                fby_sampler_destroy(&second.sampler);
            }
            free(ids);
        }
    }
}

enum { RANKED_IDS = 101, RANKED_MOST = 5 };

/* The ids of an epoch's part, by rank and position: all that the task gets of it, with their padding. */
typedef struct parts {
    uint32_t ids[RANKED_MOST][RANKED_IDS];
    bool padded[RANKED_MOST][RANKED_IDS];
    uint64_t counts[RANKED_MOST];
} parts;

static void parts_take(life *l, parts *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t ended = 0; ended < l->what.ranks;) {
        const fby_draw_target *target = next(l);
        cr_assert_eq(target->epoch, 0);
        for (uint32_t i = 0; i < draw.count; i++) {
            out->ids[target->rank][target->position + i] = draw.ids[i];
            out->padded[target->rank][target->position + i] = draw.flags[i] & FBY_DRAW_PADDED;
        }
        out->counts[target->rank] += draw.count;
        ended += target->epoch_last;
    }
}

/* What the first `position` samples of each rank were; their number. */
static uint64_t parts_had(const parts *of, uint32_t ranks, uint64_t position, uint64_t *had)
{
    uint64_t count = 0;
    for (uint32_t r = 0; r < ranks; r++)
        for (uint64_t i = 0; i < position; i++) {
            if (of->padded[r][i]) continue;
            cr_assert(!has(had, of->ids[r][i]), "id %u comes twice", of->ids[r][i]);
            add(had, of->ids[r][i]);
            count++;
        }
    return count;
}

/* A job stops after some batches of all its ranks, and other ranks share what is left. */
static void ranks_change(fby_order order, bool drop_last, uint32_t before, uint32_t after)
{
    static parts first, second;
    fby_sampler_task what = {
        .order = order, .seed = 4, .drop_last = drop_last, .batch = 4, .ranks = before, .window = 3};
    life whole = begin(RANKED_IDS, 1, what);
    uint64_t part = fby_sampler_samples(whole.sampler, whole.task);
    parts_take(&whole, &first);
    fby_sampler_destroy(&whole.sampler);
    for (uint64_t stop = 4; stop < part; stop += 4) {
        uint64_t had[RANKED_IDS / 64 + 1] = {0};
        what.behind = parts_had(&first, before, stop, had);
        what.ranks = after;
        what.batch = 3;
        what.had = order == FBY_ORDER_SHARED ? had : NULL;
        uint64_t left = fby_sampler_part(RANKED_IDS - what.behind, after, what.batch, drop_last);
        if (!left) continue;
        life rest = begin(RANKED_IDS, stop, what);
        parts_take(&rest, &second);
        for (uint32_t r = 0; r < after; r++) cr_assert_eq(second.counts[r], left);
        uint64_t got = parts_had(&second, after, left, had);
        if (!drop_last) cr_assert_eq(what.behind + got, RANKED_IDS, "each id once");
        /* The epochs after it are whole. */
        cr_assert_eq(next(&rest)->epoch, 1);
        cr_assert_eq(fby_sampler_samples(rest.sampler, rest.task),
                     fby_sampler_part(RANKED_IDS, after, what.batch, drop_last));
        fby_sampler_destroy(&rest.sampler);
    }
}

Test(sampler_resume, another_number_of_ranks)
{
    for (int order = FBY_ORDER_SHARED; order <= FBY_ORDER_SEQUENTIAL; order++)
        for (int drop_last = 0; drop_last < 2; drop_last++)
            for (uint32_t before = 1; before <= RANKED_MOST; before++)
                for (uint32_t after = 1; after <= RANKED_MOST; after++)
                    ranks_change((fby_order)order, drop_last, before, after);
}

/* What is left makes no part with drop_last: the next epoch comes. */
Test(sampler_resume, nothing_left_for_so_many_ranks)
{
    life l = begin(100, 1,
                   (fby_sampler_task){.order = FBY_ORDER_SEQUENTIAL,
                                      .drop_last = true,
                                      .batch = 4,
                                      .ranks = 4,
                                      .window = 3,
                                      .behind = 90});
    cr_assert_eq(next(&l)->epoch, 1);
    fby_sampler_destroy(&l.sampler);
}

static void refused(fby_sampler_task what, const char *words)
{
    fby_sampler *sampler;
    fby_error error = FBY_ERROR_INIT;
    uint32_t task;
    cr_assert_eq(fby_sampler_create(&sampler, 100, 1, NULL), FBY_OK);
    cr_assert_eq(fby_sampler_join(sampler, &what, &task, &error), FBY_EINVAL);
    cr_assert_not_null(strstr(error.text, words), "'%s' says '%s'", error.text, words);
    fby_sampler_destroy(&sampler);
}

Test(sampler_resume, more_than_there_is)
{
    uint64_t given[2] = {3, 51}, whole = 100;
    refused((fby_sampler_task){.batch = 5, .ranks = 2, .window = 3, .given = given}, "50 samples");
    refused((fby_sampler_task){.batch = 5, .ranks = 1, .window = 3, .visits = FBY_SAMPLER_VISITS + 1},
            "visits");

    refused((fby_sampler_task){.batch = 5, .ranks = 1, .window = 3, .behind = 101}, "epoch 0");

    /* A whole epoch lies behind; the last one. */
    life l =
        begin(100, 1, (fby_sampler_task){.batch = 5, .ranks = 1, .window = 3, .epochs = 1, .given = &whole});
    cr_assert_eq(fby_sampler_draw(l.sampler, 0, &draw), 0);
    fby_sampler_destroy(&l.sampler);
}
