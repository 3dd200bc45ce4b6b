/* The resampler as an object: reuse, memory, what it refuses. */
#include <stdlib.h>
#include <string.h>

#include "kernels/resample.h"
#include "tests/support/test.h"

static fby_sink bytes_sink(void)
{
    fby_sink sink = {.dtype = FBY_U8, .layout = FBY_HWC};
    cr_assert_eq(fby_sink_prepare(&sink), 0);
    return sink;
}

static void gray_resize(fby_resampler *resampler, uint32_t w, uint32_t h, uint8_t level, uint8_t *out,
                        uint32_t side)
{
    fby_resample_job job = {
        .in_w = w, .in_h = h, .out_w = side, .out_h = side, .filter = FBY_FILTER_BILINEAR, .pillow = 13};
    fby_sink sink = bytes_sink();
    uint8_t *row = malloc((size_t)3 * w + 64);
    cr_assert_not_null(row);
    memset(row, level, (size_t)3 * w + 64);

    cr_assert_eq(fby_resample_begin(resampler, &job), 0);
    for (uint32_t y = 0; y < h; y++) fby_resample_rows(resampler, row, 0, 1);
    fby_resample_finish(resampler, &sink, out);
    free(row);
}

Test(resampler, keeps_a_level_whatever_the_size)
{
    static const uint32_t sizes[][2] = {{1, 1},     {2, 900},   {900, 2},  {31, 31},
                                        {500, 375}, {375, 500}, {3, 20000}};
    fby_resampler *resampler;
    cr_assert_eq(fby_resampler_create(&resampler, fby_tier_best()), 0);
    static uint8_t out[64 * 64 * 3];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t level = (uint8_t)(255 - 17 * i);
        gray_resize(resampler, sizes[i][0], sizes[i][1], level, out, 64);
        for (size_t k = 0; k < sizeof out; k++) {
            cr_assert_eq(out[k], level, "%ux%u at %zu: %d", sizes[i][0], sizes[i][1], k, out[k]);
        }
    }
    fby_resampler_destroy(&resampler);
}

Test(resampler, gives_back_what_an_outsized_picture_took)
{
    fby_resampler *resampler;
    cr_assert_eq(fby_resampler_create(&resampler, fby_tier_best()), 0);
    static uint8_t out[1500 * 1500 * 3];
    gray_resize(resampler, 500, 375, 9, out, 224);
    size_t usual = fby_resampler_bytes(resampler);
    cr_assert_lt(usual, (size_t)2 << 20);

    fby_resample_job job = {.in_w = 2000,
                            .in_h = 6000,
                            .out_w = 1500,
                            .out_h = 6000,
                            .filter = FBY_FILTER_BILINEAR,
                            .pillow = 13};
    cr_assert_eq(fby_resample_begin(resampler, &job), 0);
    cr_assert_gt(fby_resampler_bytes(resampler), (size_t)8 << 20);

    /* It was given up, as when its file turns out to be broken: the next picture finds room and the rest is
     * returned. */
    gray_resize(resampler, 500, 375, 9, out, 224);
    cr_assert_lt(fby_resampler_bytes(resampler), (size_t)8 << 20);
    cr_assert_eq(out[0], 9);
    fby_resampler_destroy(&resampler);
}

Test(resampler, refuses_sides_that_pillow_has_no_exact_size_for)
{
    fby_resampler *resampler;
    cr_assert_eq(fby_resampler_create(&resampler, FBY_TIER_C), 0);
    fby_resample_job job = {.in_w = FBY_RESAMPLE_MOST + 1u, .in_h = 1, .out_w = 1, .out_h = 1, .pillow = 13};
    cr_assert_eq(fby_resample_begin(resampler, &job), -1);
    job.in_w = 1;
    job.out_h = UINT32_MAX;
    cr_assert_eq(fby_resample_begin(resampler, &job), -1);

    uint8_t out[3];
    gray_resize(resampler, 4, 4, 77, out, 1);
    cr_assert_eq(out[0], 77);
    fby_resampler_destroy(&resampler);
}

Test(resampler, takes_no_more_rows_than_the_picture_has)
{
    fby_resampler *resampler;
    cr_assert_eq(fby_resampler_create(&resampler, fby_tier_best()), 0);
    fby_resample_job job = {
        .in_w = 2, .in_h = 3, .out_w = 2, .out_h = 3, .filter = FBY_FILTER_BOX, .pillow = 13};
    uint8_t rows[100 * 6 + 64], out[18];
    for (size_t i = 0; i < sizeof rows; i++) rows[i] = (uint8_t)i;
    fby_sink sink = bytes_sink();

    cr_assert_eq(fby_resample_begin(resampler, &job), 0);
    fby_resample_rows(resampler, rows, 6, 100);
    fby_resample_rows(resampler, rows, 6, 100);
    fby_resample_finish(resampler, &sink, out);
    cr_assert_arr_eq(out, rows, sizeof out);
    fby_resampler_destroy(&resampler);
    fby_resampler_destroy(&resampler);
}
