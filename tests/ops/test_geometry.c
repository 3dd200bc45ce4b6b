/* The geometry of ops, on traced pictures: rules against figures worked out from torchvision's, and bounds
 * under random sizes. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "dataplane/ops/picture.h"
#include "tests/ops/make_jpeg.h"
#include "tests/support/test.h"

/* Parameters as the table lays them out. */
static void set(const fby_op *op, void *params, const char *name, const void *value, size_t bytes)
{
    for (uint32_t i = 0; i < op->param_count; i++)
        if (!strcmp(op->params[i].name, name)) memcpy((char *)params + op->params[i].offset, value, bytes);
}

static fby_reason apply_sized(const char *name, uint32_t size_w, uint32_t size_h, fby_picture *picture,
                              fby_trace_step *step)
{
    const fby_op *op = fby_op_find(name);
    _Alignas(16) char params[256] = {0};
    uint32_t size[2] = {size_w, size_h};
    set(op, params, "size", size, sizeof size);
    *step = (fby_trace_step){0};
    picture->step = step;
    return op->apply(params, picture, NULL);
}

Test(geometry, center_crop_rounds_half_to_even)
{
    /* Remainders 0 to 10, and Python's round(remainder / 2). */
    static const uint32_t tops[] = {0, 0, 1, 2, 2, 2, 3, 4, 4, 4, 5};
    for (uint32_t remainder = 0; remainder < sizeof tops / sizeof *tops; remainder++) {
        fby_picture picture;
        fby_trace_step step;
        fby_picture_start_trace(&picture, 20 + remainder, 30 + remainder);
        cr_assert_eq(apply_sized("center_crop", 20, 30, &picture, &step), FBY_REASON_NONE);
        cr_assert_eq(step.crop_x, tops[remainder]);
        cr_assert_eq(step.crop_y, tops[remainder]);
        cr_assert_eq(fby_picture_w(&picture), 20);
        cr_assert_eq(fby_picture_h(&picture), 30);
    }
}

Test(geometry, center_crop_pads_what_is_smaller)
{
    fby_picture picture;
    fby_trace_step step;
    fby_picture_start_trace(&picture, 11, 40);
    cr_assert_eq(apply_sized("center_crop", 20, 31, &picture, &step), FBY_REASON_NONE);
    cr_assert_eq(step.crop_w, 11);
    cr_assert_eq(step.crop_h, 31);
    cr_assert_eq(step.crop_y, 4);   /* round(9 / 2) */
    cr_assert_eq(step.pad_left, 4); /* 9 // 2 */
    cr_assert_eq(step.pad_top, 0);
    cr_assert_eq(fby_picture_w(&picture), 20);
    cr_assert_eq(fby_picture_h(&picture), 31);
}

Test(geometry, resize_to_the_shorter_side)
{
    /* size, w, h, and what torchvision makes of it: int(size * long / short) */
    static const uint32_t cases[][5] = {{256, 500, 375, 341, 256}, {256, 375, 500, 256, 341},
                                        {256, 256, 300, 256, 300}, {7, 3, 1000, 7, 2333},
                                        {1, 640, 480, 1, 1},       {100, 100, 100, 100, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fby_picture picture;
        fby_trace_step step;
        fby_picture_start_trace(&picture, cases[i][1], cases[i][2]);
        cr_assert_eq(apply_sized("resize", 0, cases[i][0], &picture, &step), FBY_REASON_NONE);
        cr_assert_eq(fby_picture_w(&picture), cases[i][3]);
        cr_assert_eq(fby_picture_h(&picture), cases[i][4]);
        cr_assert_eq(picture.resize, cases[i][1] != cases[i][3] || cases[i][2] != cases[i][4]);
    }
}

Test(geometry, a_result_too_large_is_a_bad_sample)
{
    fby_picture picture;
    fby_trace_step step;
    fby_picture_start_trace(&picture, 1, 30000);
    cr_assert_eq(apply_sized("resize", 0, 256, &picture, &step), FBY_REASON_SHAPE);
}

/* Draws of random_resized_crop stay inside the picture and near scale and ratio; without a fit, the middle is
 * taken. */
Test(geometry, random_resized_crop_stays_inside)
{
    const fby_op *op = fby_op_find("random_resized_crop");
    uint64_t seed = (uint64_t)time(NULL), state = seed * 2 + 1;
    uint32_t fallbacks = 0;
    for (int round = 0; round < 20000; round++) {
        _Alignas(16) char params[256] = {0};
        uint32_t size[2] = {224, 224};
        double scale[2] = {0.08, 1}, ratio[2] = {3.0 / 4, 4.0 / 3};
        set(op, params, "size", size, sizeof size);
        set(op, params, "scale", scale, sizeof scale);
        set(op, params, "ratio", ratio, sizeof ratio);
        uint32_t w = (uint32_t)(test_random(&state) % (round % 4 ? 700 : 4)) + 1;
        uint32_t h = (uint32_t)(test_random(&state) % (round % 3 ? 700 : 4)) + 1;
        fby_picture picture;
        fby_trace_step step = {0};
        fby_random random;
        fby_picture_start_trace(&picture, w, h);
        picture.step = &step;
        fby_random_start(&random, seed, 0, 0, (uint64_t)round, 0);
        cr_assert_eq(op->apply(params, &picture, &random), FBY_REASON_NONE);
        cr_assert(step.crop_w >= 1 && step.crop_h >= 1 && step.crop_x + step.crop_w <= w &&
                      step.crop_y + step.crop_h <= h,
                  "seed %" PRIu64 ", %u x %u: %u %u %u %u", seed, w, h, step.crop_x, step.crop_y, step.crop_w,
                  step.crop_h);
        double aspect = (double)step.crop_w / step.crop_h;
        bool long_thin = (double)w / h < 0.2 || (double)w / h > 5;
        if (long_thin && w > 20 && h > 20) {
            cr_assert(aspect > 0.7 && aspect < 1.4, "%u x %u: %u x %u", w, h, step.crop_w, step.crop_h);
            fallbacks++;
        }
    }
    cr_assert_gt(fallbacks, 100);
}

/* A crop, however it is composed of crops and flips, lies where doing one after the other would take it. */
Test(geometry, pending_crops_and_flips_compose)
{
    uint64_t seed = (uint64_t)time(NULL), state = seed * 2 + 1;
    for (int round = 0; round < 5000; round++) {
        enum { SIDE = 40 };
        fby_picture picture;
        fby_picture_start_trace(&picture, SIDE, SIDE);
        /* Where each column of the picture as it is now came from. */
        uint32_t columns[SIDE], count = SIDE;
        for (uint32_t i = 0; i < SIDE; i++) columns[i] = i;
        for (uint64_t steps = test_random(&state) % 8; steps > 0; steps--) {
            if (test_random(&state) & 1) {
                fby_picture_flip(&picture, true, false);
                for (uint32_t i = 0; i < count / 2; i++) {
                    uint32_t kept = columns[i];
                    columns[i] = columns[count - 1 - i];
                    columns[count - 1 - i] = kept;
                }
            } else {
                uint32_t w = (uint32_t)(test_random(&state) % count) + 1;
                uint32_t x = (uint32_t)(test_random(&state) % (count - w + 1));
                cr_assert_eq(fby_picture_crop(&picture, x, 0, w, SIDE), FBY_REASON_NONE);
                memmove(columns, columns + x, w * sizeof *columns);
                count = w;
            }
        }
        cr_assert_not(picture.decoded, "nothing was needed yet");
        uint32_t first = picture.flip_horizontal ? columns[count - 1] : columns[0];
        cr_assert_eq(picture.region.x, first, "seed %" PRIu64, seed);
        cr_assert_eq(picture.region.w, count);
    }
}

static fby_reason apply_random_crop(uint32_t size, const uint32_t padding[4], bool pad_if_needed,
                                    int32_t mode, uint64_t id, fby_picture *picture, fby_trace_step *step)
{
    const fby_op *op = fby_op_find("random_crop");
    _Alignas(16) char params[256] = {0};
    uint32_t both[2] = {size, size};
    fby_random random;
    set(op, params, "size", both, sizeof both);
    set(op, params, "padding", padding, 4 * sizeof *padding);
    set(op, params, "pad_if_needed", &pad_if_needed, sizeof pad_if_needed);
    set(op, params, "padding_mode", &mode, sizeof mode);
    fby_random_start(&random, 3, 0, 0, id, 0);
    *step = (fby_trace_step){0};
    picture->step = step;
    return op->apply(params, picture, &random);
}

/* Without padding it is a region for the decoder; with padding, what is seen of the picture is. */
Test(geometry, random_crop_decodes_what_it_shows)
{
    static const uint32_t none[4] = {0}, some[4] = {5, 6, 7, 8};
    uint32_t insides = 0;
    for (uint64_t id = 0; id < 500; id++) {
        fby_picture picture;
        fby_trace_step step;
        fby_picture_start_trace(&picture, 50, 40);
        cr_assert_eq(apply_random_crop(20, none, false, 0, id, &picture, &step), FBY_REASON_NONE);
        cr_assert_not(picture.decoded);
        cr_assert(picture.region.x == step.crop_x && picture.region.y == step.crop_y);
        cr_assert(picture.region.w == 20 && picture.region.h == 20);

        fby_picture_start_trace(&picture, 50, 40);
        cr_assert_eq(apply_random_crop(20, some, false, 0, id, &picture, &step), FBY_REASON_NONE);
        cr_assert(fby_picture_w(&picture) == 20 && fby_picture_h(&picture) == 20);
        cr_assert(step.pad_left == 5 && step.pad_top == 6);
        int left = (int)step.crop_x - 5, top = (int)step.crop_y - 6;
        uint32_t x = left < 0 ? 0 : (uint32_t)left, right = left + 20 > 50 ? 50 : (uint32_t)(left + 20);
        uint32_t y = top < 0 ? 0 : (uint32_t)top, bottom = top + 20 > 40 ? 40 : (uint32_t)(top + 20);
        bool inside = right - x == 20 && bottom - y == 20;
        insides += inside;
        cr_assert_eq(picture.decoded, !inside);
        const fby_region_of *seen = inside ? &picture.region : &picture.wanted;
        cr_assert(seen->x == x && seen->y == y && seen->x + seen->w == right && seen->y + seen->h == bottom,
                  "%u %u %u %u of a crop at %d %d", seen->x, seen->y, seen->w, seen->h, left, top);
    }
    cr_assert(insides > 50 && insides < 450);
}

Test(geometry, random_crop_of_what_is_too_small)
{
    static const uint32_t none[4] = {0}, one[4] = {1, 1, 1, 1};
    fby_picture picture;
    fby_trace_step step;
    fby_picture_start_trace(&picture, 19, 40);
    cr_assert_eq(apply_random_crop(20, none, false, 0, 0, &picture, &step), FBY_REASON_SHAPE);
    fby_picture_start_trace(&picture, 19, 40);
    cr_assert_eq(apply_random_crop(20, one, false, 0, 0, &picture, &step), FBY_REASON_NONE);
    for (uint64_t id = 0; id < 100; id++) {
        fby_picture_start_trace(&picture, 15, 40);
        cr_assert_eq(apply_random_crop(20, one, true, 2, id, &picture, &step), FBY_REASON_NONE);
        cr_assert_eq(step.pad_left, 4, "the padding and what is lacking, 20 - 17");
        cr_assert_eq(step.pad_top, 1);
        cr_assert_leq(step.crop_x, 3, "17 + 2 x 3 - 20");
        cr_assert_leq(step.crop_y, 22);
    }
}
