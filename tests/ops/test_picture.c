/* The lazy picture gives the pixels that doing every step at once gives. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataplane/ops/picture.h"
#include "tests/ops/make_jpeg.h"
#include "tests/support/test.h"

enum { ROUNDS = 300, MOST = 400 };

static const fby_decode_options options = {0};

static fby_sink make_sink(fby_dtype dtype, fby_layout layout)
{
    fby_sink sink = {.dtype = dtype, .layout = layout, .unit = dtype != FBY_U8, .std = {1, 1, 1}};
    cr_assert_eq(fby_sink_prepare(&sink), 0);
    return sink;
}

/* One random step; with `eager` all pending work is done at once, from pixels. Equal states take equal steps.
 */
static void step(fby_picture *picture, uint64_t *state, bool eager)
{
    uint32_t w = fby_picture_w(picture), h = fby_picture_h(picture);
    fby_reason reason = FBY_REASON_NONE;
    uint64_t kind = test_random(state) % 9;
    uint64_t a = test_random(state), b = test_random(state), c = test_random(state), d = test_random(state);
    if (kind < 3) {
        uint32_t crop_w = (uint32_t)(a % w) + 1, crop_h = (uint32_t)(b % h) + 1;
        reason = fby_picture_crop(picture, (uint32_t)(c % (w - crop_w + 1)), (uint32_t)(d % (h - crop_h + 1)),
                                  crop_w, crop_h);
    } else if (kind < 5) {
        reason = fby_picture_resize(picture, (uint32_t)(a % MOST) + 1, (uint32_t)(b % MOST) + 1,
                                    (fby_filter)(c % 5), d & 1 ? 13 : 12);
    } else if (kind < 7) {
        fby_picture_flip(picture, a & 1, b & 1);
    } else if (kind < 8) {
        fby_padding padding = {.left = (uint32_t)(a % 9),
                               .top = (uint32_t)(a >> 8) % 30,
                               .right = (uint32_t)(a >> 16) % 9,
                               .bottom = (uint32_t)(a >> 24) % 30,
                               .more_across = (uint32_t)(a >> 32) % 3,
                               .more_down = (uint32_t)(a >> 40) % 3,
                               .border = (fby_border)(b % 4),
                               .fill = {3, (uint8_t)c, 3}};
        uint32_t all_w = w + padding.left + padding.right + 2 * padding.more_across;
        uint32_t all_h = h + padding.top + padding.bottom + 2 * padding.more_down;
        fby_region_of window = {.w = (uint32_t)(c >> 8) % all_w + 1, .h = (uint32_t)(c >> 32) % all_h + 1};
        window.x = (uint32_t)(d >> 8) % (all_w - window.w + 1);
        window.y = (uint32_t)(d >> 32) % (all_h - window.h + 1);
        reason = fby_picture_pad(picture, &padding, d & 1 ? &window : NULL);
    } else {
        fby_adjustment list[] = {{(fby_adjustment_kind)(a % 4), (float)(b % 1000) / 2000},
                                 {(fby_adjustment_kind)(c % 4), (float)(d % 1000) / 2000}};
        reason = fby_picture_adjust(picture, list, a >> 32 & 1 ? 1 : 2);
    }
    if (!reason && eager) reason = fby_picture_settle(picture);
    if (!reason && eager) reason = fby_picture_hold(picture, &picture->region);
    cr_assert_eq(reason, FBY_REASON_NONE);
}

static fby_reason finish(fby_picture *picture, const fby_sink *sink, void *out)
{
    fby_reason reason = fby_picture_complete(picture);
    if (!reason) fby_picture_write(picture, sink, out);
    return reason;
}

Test(picture, lazy_is_eager, .timeout = 60)
{
    uint64_t seed = (uint64_t)time(NULL);
    fby_picture_memory *memory;
    cr_assert_eq(fby_picture_memory_create(&memory), FBY_OK);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t state = ((seed + round) * 0x9E3779B97F4A7C15u) | 1;
        made_jpeg jpeg = make_jpeg((uint32_t)(test_random(&state) % MOST) + 1,
                                   (uint32_t)(test_random(&state) % MOST) + 1, (int)(round & 1), round);
        uint64_t steps = test_random(&state) % 6;
        uint64_t schedule = test_random(&state) | 1;
        fby_sink sink = make_sink((const fby_dtype[]){FBY_U8, FBY_F16, FBY_BF16, FBY_F32}[round % 4],
                                  round & 4 ? FBY_CHW : FBY_HWC);
        uint8_t *results[2];
        size_t bytes[2];
        for (int eager = 0; eager < 2; eager++) {
            fby_picture picture;
            uint64_t same = schedule;
            fby_picture_start(&picture, memory, jpeg.bytes, jpeg.length);
            cr_assert_eq(fby_picture_open(&picture, &options), FBY_REASON_NONE);
            if (eager) cr_assert_eq(fby_picture_hold(&picture, &picture.region), FBY_REASON_NONE);
            for (uint64_t i = 0; i < steps; i++) step(&picture, &same, eager);
            bytes[eager] =
                (size_t)fby_picture_w(&picture) * fby_picture_h(&picture) * 3 * fby_dtype_bytes(sink.dtype);
            results[eager] = malloc(bytes[eager] + 64);
            memset(results[eager], 0xA5, bytes[eager] + 64);
            cr_assert_eq(finish(&picture, &sink, results[eager]), FBY_REASON_NONE);
            fby_picture_end(&picture);
            for (int i = 0; i < 64; i++)
                cr_assert_eq(results[eager][bytes[eager] + (size_t)i], 0xA5, "written past the end");
        }
        cr_assert_eq(bytes[0], bytes[1]);
        cr_assert(!memcmp(results[0], results[1], bytes[0]), "seed %" PRIu64 ", round %" PRIu64, seed, round);
        free(results[0]);
        free(results[1]);
        free(jpeg.bytes);
    }
    fby_picture_memory_destroy(&memory);
    cr_assert_null(memory);
}

Test(picture, a_flip_twice_is_none)
{
    fby_picture_memory *memory;
    fby_picture_memory_create(&memory);
    made_jpeg jpeg = make_jpeg(33, 17, 1, 5);
    fby_sink sink = make_sink(FBY_U8, FBY_HWC);
    uint8_t one[33 * 17 * 3], two[33 * 17 * 3], mirrored[33 * 17 * 3];
    for (int flips = 0; flips < 3; flips++) {
        fby_picture picture;
        fby_picture_start(&picture, memory, jpeg.bytes, jpeg.length);
        fby_picture_open(&picture, &options);
        for (int i = 0; i < flips; i++) fby_picture_flip(&picture, true, true);
        cr_assert_eq(finish(&picture, &sink,
                            flips == 0   ? one
                            : flips == 1 ? mirrored
                                         : two),
                     FBY_REASON_NONE);
        fby_picture_end(&picture);
    }
    cr_assert(!memcmp(one, two, sizeof one));
    for (int i = 0; i < 33 * 17; i++) cr_assert(!memcmp(one + i * 3, mirrored + (33 * 17 - 1 - i) * 3, 3));
    free(jpeg.bytes);
    fby_picture_memory_destroy(&memory);
}

Test(picture, a_fork_leaves_its_parent_alone)
{
    fby_picture_memory *memory;
    fby_picture_memory_create(&memory);
    made_jpeg jpeg = make_jpeg(64, 48, 1, 6);
    fby_sink sink = make_sink(FBY_U8, FBY_HWC);
    uint8_t before[64 * 48 * 3], after[64 * 48 * 3], cut[20 * 20 * 3];
    fby_picture picture, fork;
    fby_picture_start(&picture, memory, jpeg.bytes, jpeg.length);
    fby_picture_open(&picture, &options);
    cr_assert_eq(fby_picture_hold(&picture, &picture.region), FBY_REASON_NONE);
    cr_assert_eq(finish(&picture, &sink, before), FBY_REASON_NONE);
    fork = fby_picture_fork(&picture);
    fby_picture_flip(&fork, true, false);
    cr_assert_eq(fby_picture_resize(&fork, 30, 30, FBY_FILTER_BILINEAR, 13), FBY_REASON_NONE);
    cr_assert_eq(fby_picture_crop(&fork, 3, 4, 20, 20), FBY_REASON_NONE);
    cr_assert_eq(finish(&fork, &sink, cut), FBY_REASON_NONE);
    fby_picture_end(&fork);
    cr_assert_eq(finish(&picture, &sink, after), FBY_REASON_NONE);
    cr_assert(!memcmp(before, after, sizeof before));
    fby_picture_end(&picture);
    free(jpeg.bytes);
    fby_picture_memory_destroy(&memory);
}

Test(picture, what_an_outsized_picture_took_is_given_back, .timeout = 60)
{
    fby_picture_memory *memory;
    fby_picture_memory_create(&memory);
    made_jpeg large = make_jpeg(5000, 3000, 1, 7), small = make_jpeg(64, 64, 1, 8);
    fby_sink sink = make_sink(FBY_U8, FBY_CHW);
    uint8_t *out = malloc(5000 * 3000 * 3 + 64);
    for (int i = 0; i < 3; i++) {
        const made_jpeg *jpeg = i == 1 ? &large : &small;
        fby_picture picture;
        fby_picture_start(&picture, memory, jpeg->bytes, jpeg->length);
        fby_picture_open(&picture, &options);
        cr_assert_eq(finish(&picture, &sink, out), FBY_REASON_NONE);
        fby_picture_end(&picture);
        fby_picture_memory_trim(memory);
    }
    cr_assert_lt(fby_picture_memory_bytes(memory), 40u << 20, "%zu bytes held",
                 fby_picture_memory_bytes(memory));
    free(out);
    free(large.bytes);
    free(small.bytes);
    fby_picture_memory_destroy(&memory);
}
