/* burn: the CPU time that was asked for, and not a pixel changed. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataplane/ops/picture.h"
#include "tests/ops/make_jpeg.h"
#include "tests/support/test.h"

extern const fby_op fby_op_burn;

enum { SIDE = 40 };

static int64_t cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void picture_write(fby_picture_memory *memory, const made_jpeg *jpeg, int64_t us, uint8_t *out)
{
    static const fby_decode_options options = {0};
    fby_sink sink = {.dtype = FBY_U8, .layout = FBY_HWC, .std = {1, 1, 1}};
    fby_picture picture;
    cr_assert_eq(fby_sink_prepare(&sink), 0);
    fby_picture_start(&picture, memory, jpeg->bytes, jpeg->length);
    cr_assert_eq(fby_picture_open(&picture, &options), FBY_REASON_NONE);
    if (us >= 0) cr_assert_eq(fby_op_burn.apply(&us, &picture, NULL), FBY_REASON_NONE);
    cr_assert_eq(fby_picture_complete(&picture), FBY_REASON_NONE);
    fby_picture_write(&picture, &sink, out);
    fby_picture_end(&picture);
}

Test(burn, changes_no_pixel)
{
    fby_picture_memory *memory = NULL;
    made_jpeg jpeg = make_jpeg(SIDE, SIDE, 1, 7);
    static uint8_t plain[SIDE * SIDE * 3], burnt[SIDE * SIDE * 3];
    cr_assert_eq(fby_picture_memory_create(&memory), 0);
    picture_write(memory, &jpeg, -1, plain);
    picture_write(memory, &jpeg, 300, burnt);
    cr_assert_arr_eq(plain, burnt, sizeof plain);
    fby_picture_memory_destroy(&memory);
    free(jpeg.bytes);
}

Test(burn, spends_what_it_is_told)
{
    fby_picture_memory *memory = NULL;
    fby_picture picture;
    made_jpeg jpeg = make_jpeg(SIDE, SIDE, 1, 7);
    cr_assert_eq(fby_picture_memory_create(&memory), 0);
    fby_picture_start(&picture, memory, jpeg.bytes, jpeg.length);
    for (int64_t us = 0; us <= 20000; us += 5000) {
        int64_t before = cpu_us();
        cr_assert_eq(fby_op_burn.apply(&us, &picture, NULL), FBY_REASON_NONE);
        int64_t spent = cpu_us() - before;
        cr_assert_geq(spent, us);
        cr_assert_lt(spent, us + 4000, "%lld us, asked for %lld", (long long)spent, (long long)us);
    }
    fby_picture_end(&picture);
    fby_picture_memory_destroy(&memory);
    free(jpeg.bytes);
}

Test(burn, looking_ahead_is_free)
{
    fby_picture picture;
    fby_picture_start_trace(&picture, SIDE, SIDE);
    int64_t us = 10000000, before = cpu_us();
    cr_assert_eq(fby_op_burn.apply(&us, &picture, NULL), FBY_REASON_NONE);
    cr_assert_lt(cpu_us() - before, 1000000);
}

Test(burn, is_in_the_table_of_benchmarks_alone)
{
    cr_assert_eq(fby_op_find("burn") != NULL, FBY_BURN);
}

Test(burn, stands_among_the_ops_on_pictures)
{
    int64_t us = 1;
    fby_error error = FBY_ERROR_INIT;
    fby_shape shape = {.stage = FBY_STAGE_PICTURE, .w = SIDE, .h = SIDE};
    cr_assert_eq(fby_op_burn.infer(&us, &shape, &error), 0);
    cr_assert(shape.w == SIDE && shape.h == SIDE && shape.stage == FBY_STAGE_PICTURE);
    shape.stage = FBY_STAGE_ENCODED;
    cr_assert_eq(fby_op_burn.infer(&us, &shape, &error), FBY_EINVAL);
    cr_assert_not_null(strstr(error.text, "decode before burn"));
}
