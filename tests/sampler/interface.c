/* The sampler's interface, one promise a test. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/sampler.h"
#include "dataplane/sampler/subset.h"
#include "tests/support/test.h"

static fby_draw draw;

static fby_sampler *sampler_of(uint64_t ids)
{
    fby_sampler *sampler = NULL;
    cr_assert_eq(fby_sampler_create(&sampler, ids, 1, NULL), FBY_OK);
    return sampler;
}

static uint32_t join(fby_sampler *sampler, fby_sampler_task what)
{
    uint32_t task = UINT32_MAX;
    if (!what.batch) what.batch = 16;
    if (!what.ranks) what.ranks = 1;
    if (!what.window) what.window = 3;
    cr_assert_eq(fby_sampler_join(sampler, &what, &task, NULL), FBY_OK);
    return task;
}

static void refused(fby_sampler *sampler, fby_sampler_task what, int code, const char *words)
{
    fby_error error = FBY_ERROR_INIT;
    uint32_t task = 77;
    cr_assert_eq(fby_sampler_join(sampler, &what, &task, &error), code);
    cr_assert_eq(error.code, code);
    cr_assert_not_null(strstr(error.text, words), "'%s' says '%s'", error.text, words);
    cr_assert_eq(task, 77);
}

Test(sampler_interface, wrong_arguments)
{
    uint64_t none[2] = {0};
    fby_error error = FBY_ERROR_INIT;
    fby_sampler *sampler = (fby_sampler *)&error;
    cr_assert_eq(fby_sampler_create(&sampler, 0, 1, &error), FBY_EINVAL);
    cr_assert_null(sampler);
    cr_assert_eq(fby_sampler_create(&sampler, UINT64_C(1) << 32, 1, &error), FBY_EINVAL);
    cr_assert_null(sampler);

    sampler = sampler_of(100);
    refused(sampler, (fby_sampler_task){.batch = 0, .ranks = 1, .window = 3}, FBY_EINVAL, "batch size: 0");
    refused(sampler, (fby_sampler_task){.batch = 1, .ranks = 0, .window = 3}, FBY_EINVAL, "ranks: 0");
    refused(sampler, (fby_sampler_task){.batch = 1, .ranks = 1025, .window = 3}, FBY_EINVAL, "1 to 1024");
    refused(sampler, (fby_sampler_task){.batch = 1, .ranks = 1, .window = 0}, FBY_EINVAL, "window: 0");
    refused(sampler, (fby_sampler_task){.order = (fby_order)9, .batch = 1, .ranks = 1, .window = 3},
            FBY_EINVAL, "shared, strict or sequential");
    refused(sampler, (fby_sampler_task){.batch = 1, .ranks = 1, .window = 3, .subset = none}, FBY_EINVAL,
            "none of the 100");
    refused(sampler, (fby_sampler_task){.batch = 51, .ranks = 2, .window = 3, .drop_last = true}, FBY_EINVAL,
            "drop_last");
    none[1] = UINT64_C(1) << 60; /* an id beyond the last is none */
    refused(sampler, (fby_sampler_task){.batch = 1, .ranks = 1, .window = 3, .subset = none}, FBY_EINVAL,
            "none of the 100");
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 0);
    fby_sampler_destroy(&sampler);
}

Test(sampler_interface, tasks_that_are_not_there)
{
    fby_sampler *sampler = sampler_of(10);
    uint32_t id;
    uint64_t turn;
    bool repeat;
    uint32_t wrong[] = {3, 64, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        fby_sampler_leave(sampler, wrong[i]);
        fby_sampler_give_back(sampler, wrong[i], 0, 5);
        cr_assert_eq(fby_sampler_abandon(sampler, wrong[i]), 0);
        cr_assert_eq(fby_sampler_batches(sampler, wrong[i]), 0);
        cr_assert_eq(fby_sampler_samples(sampler, wrong[i]), 0);
        cr_assert_eq(fby_sampler_substitute(sampler, wrong[i], 0, 1, &id, &turn, &repeat), FBY_EEND);
    }
    uint32_t task = join(sampler, (fby_sampler_task){0});
    fby_sampler_give_back(sampler, task, 1, 5); /* a rank that it hasn't */
    fby_sampler_give_back(sampler, task, 0, 5); /* more than it holds */
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
    fby_sampler_destroy(&sampler);
}

Test(sampler_interface, the_65th_task)
{
    fby_sampler *sampler = sampler_of(100);
    for (uint32_t i = 0; i < FBY_SAMPLER_TASKS; i++) cr_assert_eq(join(sampler, (fby_sampler_task){0}), i);
    refused(sampler, (fby_sampler_task){.batch = 1, .ranks = 1, .window = 3}, FBY_EFULL, "64 tasks");
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
    cr_assert_eq(draw.target_count, FBY_SAMPLER_TASKS);
    fby_sampler_leave(sampler, 17);
    cr_assert_eq(join(sampler, (fby_sampler_task){0}), 17);
    fby_sampler_destroy(&sampler);
}

/* Random halves cut everything in two each time; an eleventh doesn't fit, one that is there already does. */
Test(sampler_interface, more_strata_than_there_is_room_for)
{
    enum { IDS = 20000, WORDS = (IDS + 63) / 64 };
    fby_sampler *sampler = sampler_of(IDS);
    uint64_t random = 88172645463325252u, first[WORDS], subset[WORDS];
    for (int i = 0; i < 11; i++) {
        for (int w = 0; w < WORDS; w++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            subset[w] = random;
        }
        if (i == 0) memcpy(first, subset, sizeof first);
        fby_sampler_task what = {.batch = 16, .ranks = 1, .window = 3, .subset = subset};
        if (i < 10)
            join(sampler, what);
        else
            refused(sampler, what, FBY_EFULL, "1024 parts");
    }
    join(sampler, (fby_sampler_task){.subset = first});
    join(sampler, (fby_sampler_task){.subset = subset, .order = FBY_ORDER_STRICT});
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
    fby_sampler_destroy(&sampler);
}

Test(sampler_interface, nothing_is_drawn_while_nobody_is_urgent)
{
    fby_sampler *sampler = sampler_of(10000);
    uint32_t task = join(sampler, (fby_sampler_task){.batch = 64}); /* urgent below 96 */
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
    cr_assert_eq(fby_sampler_draw(sampler, UINT64_C(1) << task, &draw), 0);
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
    cr_assert_eq(draw.count, 64);
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 0);
    fby_sampler_give_back(sampler, task, 0, 32);
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 0);
    fby_sampler_give_back(sampler, task, 0, 1);
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
    fby_sampler_destroy(&sampler);
}

Test(sampler_interface, epochs_from_and_to)
{
    fby_sampler *sampler = sampler_of(40);
    uint32_t task = join(sampler, (fby_sampler_task){.batch = 10, .first_epoch = 2, .epochs = 4});
    cr_assert_eq(fby_sampler_abandon(sampler, task), 2, "an epoch that has not begun comes next");
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
        cr_assert_eq(draw.targets[0].epoch, i < 4 ? 2u : 3u);
        cr_assert_eq(draw.targets[0].epoch_last, i % 4 == 3);
        fby_sampler_give_back(sampler, task, 0, draw.count);
    }
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 0);
    cr_assert_eq(fby_sampler_abandon(sampler, task), 4);
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 0);

    uint32_t late = join(sampler, (fby_sampler_task){.first_epoch = 5, .epochs = 5});
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 0, "it was over before it joined");
    fby_sampler_leave(sampler, late);
    fby_sampler_destroy(&sampler);
}

Test(sampler_interface, ranks_get_distributed_samplers_shards)
{
    fby_sampler *sampler = sampler_of(10);
    uint32_t task = join(sampler, (fby_sampler_task){.order = FBY_ORDER_SEQUENTIAL, .batch = 8, .ranks = 4});
    uint32_t expected[4][3] = {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}};
    cr_assert_eq(fby_sampler_samples(sampler, task), 3);
    for (uint32_t r = 0; r < 4; r++) {
        cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
        cr_assert_eq(draw.targets[0].rank, r);
        cr_assert_eq(draw.count, 3);
        for (uint32_t i = 0; i < 3; i++) {
            cr_assert_eq(draw.ids[i], expected[r][i]);
            cr_assert_eq(draw.flags[i], r > 1 && i == 2 ? FBY_DRAW_PADDED : 0);
        }
    }
    fby_sampler_leave(sampler, task);
    task = join(sampler,
                (fby_sampler_task){.order = FBY_ORDER_SEQUENTIAL, .batch = 2, .ranks = 4, .drop_last = true});
    cr_assert_eq(fby_sampler_samples(sampler, task), 2);
    fby_sampler_destroy(&sampler);
}

/* A fixed order's draws serve whoever needs their ids: here all share all. */
Test(sampler_interface, others_ride_along_with_a_fixed_order)
{
    fby_sampler *sampler = sampler_of(1000);
    uint32_t tasks[4];
    tasks[0] = join(sampler, (fby_sampler_task){.order = FBY_ORDER_STRICT, .seed = 5});
    tasks[1] = join(sampler, (fby_sampler_task){.order = FBY_ORDER_STRICT, .seed = 5});
    tasks[2] = join(sampler, (fby_sampler_task){0});
    tasks[3] = join(sampler, (fby_sampler_task){0});
    for (int i = 0; i < 200; i++) {
        cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
        cr_assert_eq(draw.target_count, 4);
        for (uint32_t t = 0; t < 4; t++) fby_sampler_give_back(sampler, tasks[t], 0, draw.count);
    }
    fby_sampler_stats stats;
    fby_sampler_get_stats(sampler, &stats);
    cr_assert_eq(stats.delivered, 4 * stats.drawn);
    cr_assert_eq(stats.draws, 200);
    fby_sampler_destroy(&sampler);
}

/* Which of two neighbours is found to be bad first makes no difference to what a fixed order's batches hold.
 */
Test(sampler_interface, fixed_substitutes_depend_on_no_timing)
{
    uint32_t ids[2];
    for (int turned = 0; turned < 2; turned++) {
        fby_sampler *sampler = sampler_of(1000);
        uint32_t task = join(sampler, (fby_sampler_task){.order = FBY_ORDER_STRICT, .seed = 5});
        uint64_t turn;
        bool repeat;
        cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
        uint32_t before = draw.ids[6], bad = draw.ids[7], expected = draw.ids[5];
        if (turned) {
            cr_assert_eq(fby_sampler_substitute(sampler, task, 0, bad, &ids[1], &turn, &repeat), FBY_OK);
            cr_assert_eq(ids[1], before);
            cr_assert_eq(fby_sampler_substitute(sampler, task, 0, before, &ids[1], &turn, &repeat), FBY_OK);
        } else {
            cr_assert_eq(fby_sampler_substitute(sampler, task, 0, before, &ids[0], &turn, &repeat), FBY_OK);
            cr_assert_eq(fby_sampler_substitute(sampler, task, 0, bad, &ids[0], &turn, &repeat), FBY_OK);
        }
        cr_assert_eq(ids[turned], expected);
        cr_assert_eq(turn, 0);
        cr_assert(repeat);
        fby_sampler_destroy(&sampler);
    }
}

Test(sampler_interface, substitutes_end)
{
    fby_sampler *sampler = sampler_of(3);
    uint32_t task = join(sampler, (fby_sampler_task){.batch = 2}), id;
    uint64_t turn;
    bool repeat;
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
    uint32_t a = draw.ids[0], b = draw.ids[1], c = 3 - a - b;
    cr_assert_eq(fby_sampler_substitute(sampler, task, 0, a, &id, &turn, &repeat), FBY_OK);
    cr_assert(id == c && !repeat && turn == 0, "the one that it still needs");
    cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
    cr_assert(draw.count == 1 && draw.ids[0] == b, "padding, and not with the bad one");
    cr_assert_eq(draw.flags[0], FBY_DRAW_PADDED);
    cr_assert(draw.targets[0].epoch_last);
    cr_assert_eq(fby_sampler_substitute(sampler, task, 0, b, &id, &turn, &repeat), FBY_OK);
    cr_assert(id == c && repeat, "its epoch is over");
    cr_assert_eq(fby_sampler_substitute(sampler, task, 0, c, &id, &turn, &repeat), FBY_EEND);
    fby_sampler_destroy(&sampler);
}

Test(sampler_interface, memory_is_a_few_bytes_an_id)
{
    fby_sampler *sampler = sampler_of(1000000);
    join(sampler, (fby_sampler_task){0});
    uint64_t bytes = fby_sampler_bytes(sampler);
    cr_assert(bytes > 8000000 && bytes < 20000000, "%lu", bytes);
    fby_sampler_destroy(&sampler);
}

/* Made ahead or by the join, a subset gives the same draws; the first of equal ones is taken. */
Test(sampler_interface, a_subset_that_was_made_ahead)
{
    enum { IDS = 1000 };
    static fby_draw one, other;
    uint64_t words[(IDS + 63) / 64];
    for (uint32_t w = 0; w < (IDS + 63) / 64; w++) words[w] = UINT64_C(0x5bd1e9955bd1e995) * (w + 1);
    fby_sampler *ahead, *alone;
    cr_assert_eq(fby_sampler_create(&ahead, IDS, 7, NULL), FBY_OK);
    cr_assert_eq(fby_sampler_create(&alone, IDS, 7, NULL), FBY_OK);
    fby_subset *first = fby_subset_create(words, IDS), *second = fby_subset_create(words, IDS);
    join(ahead, (fby_sampler_task){.subset = words, .made = &first});
    join(ahead, (fby_sampler_task){.subset = words, .made = &second});
    cr_assert_null(first);
    cr_assert_not_null(second);
    fby_subset_destroy(&second);
    join(alone, (fby_sampler_task){.subset = words});
    join(alone, (fby_sampler_task){.subset = words});

    for (uint32_t draws = 0; draws < 200; draws++) {
        cr_assert_eq(fby_sampler_draw(ahead, 0, &one), 1);
        cr_assert_eq(fby_sampler_draw(alone, 0, &other), 1);
        cr_assert(one.count == other.count && one.tasks == other.tasks);
        cr_assert_arr_eq(one.ids, other.ids, one.count * sizeof *one.ids);
        for (uint32_t i = 0; i < one.target_count; i++) {
            fby_sampler_give_back(ahead, one.targets[i].task, 0, one.count);
            fby_sampler_give_back(alone, one.targets[i].task, 0, one.count);
        }
    }
    fby_sampler_destroy(&ahead);
    fby_sampler_destroy(&alone);
}

Test(sampler_interface, an_empty_subset_made_ahead_is_refused)
{
    uint64_t none[2] = {0};
    fby_sampler *sampler;
    cr_assert_eq(fby_sampler_create(&sampler, 100, 1, NULL), FBY_OK);
    fby_subset *made = fby_subset_create(none, 100);
    refused(sampler, (fby_sampler_task){.batch = 1, .ranks = 1, .window = 3, .subset = none, .made = &made},
            FBY_EINVAL, "none of the 100 ids");
    fby_subset_destroy(&made);
    fby_sampler_destroy(&sampler);
}
