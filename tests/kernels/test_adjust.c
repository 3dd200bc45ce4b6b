/* Every tier adjusts colours as the C tier does: all colours, random rows that end at a guard page, and the
 * whole picture's mean. That the C tier is right, tests/python/test_kernels.py says. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/adjust_kernels.h"
#include "kernels/philox.h"
#include "tests/kernels/guarded.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

enum { COLOURS = 1 << 24, ROW = 4096 };

#if defined(FBY_SANITIZED)
enum { TURNS = 1, RANDOM_JOBS = 100 };
#else
enum { TURNS = 3, RANDOM_JOBS = 2000 };
#endif

typedef struct tables {
    const fby_adjust_kernels *table[1];
    const char *name[1];
    int count;
} tables;

static tables tables_here(void)
{
    tables list = {0};
#if defined(FBY_KERNELS_X86)
    if (fby_tier_supported(FBY_TIER_AVX2)) {
        list.table[0] = &fby_adjust_kernels_avx2;
        list.name[0] = "avx2";
        list.count = 1;
    }
#endif
    return list;
}

static uint64_t seed_of_run(void)
{
    const char *given = getenv("FOREBAY_SEED");
    return given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
}

/* ROW colours from `first` on. */
static void colours_fill(uint8_t *rgb, uint32_t first)
{
    for (uint32_t i = 0; i < ROW; i++, rgb += 3) {
        rgb[0] = (uint8_t)((first + i) >> 16);
        rgb[1] = (uint8_t)((first + i) >> 8);
        rgb[2] = (uint8_t)(first + i);
    }
}

static void compare_all_colours(const fby_adjust_step *step)
{
    static uint8_t expected[3 * ROW], got[3 * ROW];
    tables list = tables_here();
    for (uint32_t first = 0; first < COLOURS; first += ROW) {
        colours_fill(expected, first);
        fby_adjust_kernels_c.row(step, 1, expected, ROW);
        for (int i = 0; i < list.count; i++) {
            colours_fill(got, first);
            list.table[i]->row(step, 1, got, ROW);
            cr_assert(memcmp(got, expected, sizeof got) == 0, "%s: kind %d, turn %u, near colour %06x",
                      list.name[i], (int)step->kind, step->turn, first);
        }
    }
}

Test(adjust, tiers_agree_on_the_hue_of_all_colours, .timeout = 100)
{
    uint64_t seed = seed_of_run();
    for (uint32_t i = 0; i < test_scaled(TURNS); i++) {
        fby_adjust_step step = {.kind = FBY_STEP_TURN, .turn = (uint32_t)(seed + 101 * i) & 255};
        compare_all_colours(&step);
    }
}

Test(adjust, tiers_agree_on_the_saturation_of_all_colours, .timeout = 100)
{
    fby_adjust_step step = {.kind = FBY_STEP_SATURATE, .factor = 0.1f + (float)(seed_of_run() % 1000) / 500};
    compare_all_colours(&step);
}

static fby_adjustment adjustment_draw(fby_random *random)
{
    fby_adjustment it = {.kind = (fby_adjustment_kind)fby_random_below(random, 4)};
    const float edges[4] = {0, 1, 0.5f, 1000};
    it.factor = fby_random_below(random, 4) ? (float)(3 * fby_random_unit(random))
                                            : edges[fby_random_below(random, 4)];
    if (it.kind == FBY_ADJUST_HUE) it.factor = (float)(fby_random_unit(random) - 0.5);
    return it;
}

Test(adjust, tiers_agree_on_random_pictures, .timeout = 100)
{
    uint64_t seed = seed_of_run();
    fby_random random;
    fby_random_start(&random, seed, 0, 0, 0, 0);
    tables list = tables_here();
    for (uint32_t job = 0; job < test_scaled(RANDOM_JOBS); job++) {
        uint32_t w = 1 + fby_random_below(&random, job % 5 ? 40 : 700), h = 1 + fby_random_below(&random, 4);
        size_t stride = (size_t)3 * w + fby_random_below(&random, 9);
        size_t bytes = stride * (h - 1) + (size_t)3 * w; /* the last row's end is the last byte there is */
        guarded from = guarded_make(bytes), expected = guarded_make(bytes), got = guarded_make(bytes);
        cr_assert(from.bytes && expected.bytes && got.bytes, "memory");
        bool gray = fby_random_below(&random, 5) == 0;
        for (size_t i = 0; i < bytes; i++)
            from.bytes[i] = gray && i % 3 ? from.bytes[i - 1] : (uint8_t)fby_random_u32(&random);

        fby_adjustment adjustments[12]; /* more than go into one pass */
        uint32_t count = fby_random_below(&random, 13);
        for (uint32_t i = 0; i < count; i++) adjustments[i] = adjustment_draw(&random);

        memcpy(expected.bytes, from.bytes, bytes);
        fby_adjust_with(adjustments, count, &fby_adjust_kernels_c, expected.bytes, stride, w, h);
        for (uint32_t y = 0; y + 1 < h; y++)
            cr_assert(memcmp(expected.bytes + y * stride + 3 * (size_t)w,
                             from.bytes + y * stride + 3 * (size_t)w, stride - 3 * (size_t)w) == 0,
                      "written between rows");
        for (int i = 0; i < list.count; i++) {
            memcpy(got.bytes, from.bytes, bytes);
            fby_adjust_with(adjustments, count, list.table[i], got.bytes, stride, w, h);
            cr_assert(memcmp(got.bytes, expected.bytes, bytes) == 0,
                      "%s: %ux%u, %u adjustments (seed %" PRIu64 ", job %u)", list.name[i], w, h, count, seed,
                      job);
        }
        guarded_free(&from);
        guarded_free(&expected);
        guarded_free(&got);
    }
}

/* A list done at once is its adjustments done one after the other. */
Test(adjust, a_list_is_its_parts)
{
    enum { W = 31, H = 17, COUNT = 4 };
    fby_random random;
    fby_random_start(&random, seed_of_run(), 1, 0, 0, 0);
    static uint8_t once[H][W][3], parts[H][W][3];
    for (uint8_t *at = &once[0][0][0], *end = at + sizeof once; at < end; at++)
        *at = (uint8_t)fby_random_u32(&random);
    memcpy(parts, once, sizeof once);

    fby_adjustment list[COUNT];
    for (int i = 0; i < COUNT; i++) list[i] = adjustment_draw(&random);
    fby_adjust(list, COUNT, fby_tier_best(), &once[0][0][0], sizeof once[0], W, H);
    for (int i = 0; i < COUNT; i++)
        fby_adjust(&list[i], 1, FBY_TIER_C, &parts[0][0][0], sizeof parts[0], W, H);
    cr_assert(memcmp(once, parts, sizeof once) == 0);
}

/* More pixels of white than 32 bits of sum hold in one row. */
Test(adjust, sums_of_gray_are_exact)
{
    enum { MOST = (8 << 16) + 13 };
    uint8_t *rgb = malloc((size_t)3 * MOST);
    cr_assert_not_null(rgb);
    memset(rgb, 255, (size_t)3 * MOST);
    tables list = tables_here();
    static const size_t sizes[] = {1, 7, 8, 9, MOST - 13, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cr_assert_eq(fby_adjust_kernels_c.gray_sum(rgb, sizes[i]), sizes[i] * 255);
        for (int k = 0; k < list.count; k++)
            cr_assert_eq(list.table[k]->gray_sum(rgb, sizes[i]), sizes[i] * 255, "%s", list.name[k]);
    }
    free(rgb);
}
