/* How orders are distributed: chi-square tests at fixed seeds, with limits that a fair order passes by far
 * and a crooked one doesn't. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/permutation.h"
#include "dataplane/sampler/sampler.h"
#include "tests/support/test.h"

/* Chi-square of equal expectations, as standard deviations from its mean (the distribution of `cells` - 1
 * degrees is near a normal one of that mean and twice that variance). */
static double chi_square(const uint32_t *counts, uint32_t cells, double expected, double degrees)
{
    double sum = 0;
    for (uint32_t i = 0; i < cells; i++) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    double variance = 2 * degrees, away = sum - degrees, root = 1;
    for (int i = 0; i < 60; i++) root = (root + variance / root) / 2;
    return away / root;
}

Test(sampler_order, permutation_is_one_and_inverts)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 16, 17, 63, 64, 65, 1000, 65537};
    for (uint32_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint32_t n = sizes[s];
        uint8_t *seen = calloc(n, 1);
        fby_permutation p;
        fby_permutation_set(&p, n, 5 + s, s);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t value = fby_permutation_at(&p, i);
            cr_assert(value < n && !seen[value]);
            seen[value] = 1;
            cr_assert_eq(fby_permutation_find(&p, value), i);
        }
        free(seen);
    }
    fby_permutation p;
    fby_permutation_set(&p, UINT32_MAX - 1, 7, 8);
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t position = i * 4294967u, value = fby_permutation_at(&p, position);
        cr_assert(value < UINT32_MAX - 1);
        cr_assert_eq(fby_permutation_find(&p, value), position);
    }
}

/* Orders are a promise: the same for ever. */
Test(sampler_order, permutation_stays)
{
    static const uint32_t expected[] = {4, 5, 7, 2, 6, 8, 3, 9, 1, 0};
    fby_permutation p;
    fby_permutation_set(&p, 10, 42, 3);
    for (uint32_t i = 0; i < 10; i++) cr_assert_eq(fby_permutation_at(&p, i), expected[i], "position %u", i);
}

/* All n! orders of a few ids are equally likely, over seeds and over epochs. */
Test(sampler_order, every_permutation_is_likely)
{
    enum { MOST = 120, EACH = 400 };
    static const uint32_t factorial[] = {1, 1, 2, 6, 24, 120};
    for (uint32_t n = 2; n <= 5; n++) {
        for (int by_epoch = 0; by_epoch < 2; by_epoch++) {
            uint32_t counts[MOST] = {0}, cells = factorial[n];
            for (uint32_t trial = 0; trial < EACH * cells; trial++) {
                fby_permutation p;
                fby_permutation_set(&p, n, by_epoch ? 11 : trial, by_epoch ? trial : 11);
                uint32_t left[5] = {0, 1, 2, 3, 4}, index = 0;
                for (uint32_t i = 0; i < n; i++) {
                    uint32_t k = 0, value = fby_permutation_at(&p, i);
                    while (left[k] != value) k++;
                    index = index * (n - i) + k;
                    memmove(&left[k], &left[k + 1], (4 - k) * sizeof *left);
                }
                counts[index]++;
            }
            double off = chi_square(counts, cells, EACH, cells - 1);
            cr_assert(off < 5, "n %u: %.1f deviations", n, off);
        }
    }
}

enum { IDS = 40, EPOCHS = 4000 };

static void orders_take(const fby_sampler_task *what, uint32_t *counts, uint32_t *same_half)
{
    fby_sampler *sampler;
    static fby_draw draw;
    uint32_t task;
    bool before[IDS] = {0};
    cr_assert_eq(fby_sampler_create(&sampler, IDS, 9, NULL), FBY_OK);
    cr_assert_eq(fby_sampler_join(sampler, what, &task, NULL), FBY_OK);
    *same_half = 0;
    for (uint32_t epoch = 0; epoch < EPOCHS;) {
        cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
        for (uint32_t i = 0; i < draw.count; i++) {
            uint32_t position = (uint32_t)draw.targets[0].position + i;
            bool late = position >= IDS / 2;
            counts[draw.ids[i] * IDS + position]++;
            *same_half += epoch > 0 && late == before[draw.ids[i]];
            before[draw.ids[i]] = late;
        }
        epoch += draw.targets[0].epoch_last;
        fby_sampler_give_back(sampler, task, 0, draw.count);
    }
    fby_sampler_destroy(&sampler);
}

/* Each id stands at each position equally often, and no epoch knows the one before. */
Test(sampler_order, every_position_is_likely)
{
    for (int order = FBY_ORDER_SHARED; order <= FBY_ORDER_STRICT; order++) {
        uint32_t counts[IDS * IDS] = {0}, same;
        orders_take(
            &(fby_sampler_task){.order = (fby_order)order, .seed = 3, .batch = 8, .ranks = 1, .window = 3},
            counts, &same);
        double off = chi_square(counts, IDS * IDS, (double)EPOCHS / IDS, (IDS - 1) * (IDS - 1));
        cr_assert(off < 5, "order %d: %.1f deviations", order, off);
        double half = (double)same / IDS / (EPOCHS - 1);
        cr_assert(half > 0.49 && half < 0.51, "order %d: %.3f in the same half again", order, half);
    }
}

/* The second of two tasks that share ids takes what the first left over: within it, order is uniform too. */
Test(sampler_order, uniform_within_what_is_left)
{
    enum { TRIALS = 6000, HALF = IDS / 2 };
    uint32_t counts[HALF * HALF] = {0};
    static fby_draw draw;
    for (uint32_t trial = 0; trial < TRIALS; trial++) {
        fby_sampler *sampler;
        uint32_t first, second;
        uint64_t upper = (UINT64_C(1) << IDS) - (UINT64_C(1) << HALF);
        cr_assert_eq(fby_sampler_create(&sampler, IDS, trial, NULL), FBY_OK);
        fby_sampler_task half = {.batch = HALF, .ranks = 1, .window = 3, .epochs = 1, .subset = &upper};
        fby_sampler_task all = {.batch = IDS, .ranks = 1, .window = 3};
        cr_assert_eq(fby_sampler_join(sampler, &half, &first, NULL), FBY_OK);
        cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
        cr_assert_eq(draw.count, HALF);
        fby_sampler_leave(sampler, first);
        cr_assert_eq(fby_sampler_join(sampler, &all, &second, NULL), FBY_OK);
        cr_assert_eq(fby_sampler_draw(sampler, 0, &draw), 1);
        cr_assert_eq(draw.count, IDS);
        uint32_t place = 0;
        for (uint32_t i = 0; i < IDS; i++) {
            if (draw.ids[i] >= HALF) counts[(draw.ids[i] - HALF) * HALF + place++]++;
        }
        fby_sampler_destroy(&sampler);
    }
    double off = chi_square(counts, HALF * HALF, (double)TRIALS / HALF, (HALF - 1) * (HALF - 1));
    cr_assert(off < 5, "%.1f deviations", off);
}
