/* pace: samples come through one by one, so often as was asked for, from however many threads. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "dataplane/ops/picture.h"
#include "tests/ops/make_jpeg.h"
#include "tests/support/test.h"

extern const fby_op fby_op_pace;

enum { SIDE = 8, THREADS = 3, SAMPLES_EACH = 10, INTERVAL_US = 5000, SLACK_US = 4000 };

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void *samples_pass(void *argument)
{
    fby_picture_memory *memory = NULL;
    fby_picture picture;
    const made_jpeg *jpeg = argument;
    int64_t us = INTERVAL_US;
    cr_assert_eq(fby_picture_memory_create(&memory), 0);
    fby_picture_start(&picture, memory, jpeg->bytes, jpeg->length);
    for (int i = 0; i < SAMPLES_EACH; i++)
        cr_assert_eq(fby_op_pace.apply(&us, &picture, NULL), FBY_REASON_NONE);
    fby_picture_end(&picture);
    fby_picture_memory_destroy(&memory);
    return NULL;
}

Test(pace, threads_share_one_pace)
{
    made_jpeg jpeg = make_jpeg(SIDE, SIDE, 1, 7);
    pthread_t threads[THREADS];
    int64_t began = now_us();
    for (int i = 0; i < THREADS; i++) cr_assert_eq(pthread_create(&threads[i], NULL, samples_pass, &jpeg), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    cr_assert_geq(now_us() - began, THREADS * SAMPLES_EACH * INTERVAL_US - SLACK_US);
    free(jpeg.bytes);
}

Test(pace, looking_ahead_is_free)
{
    fby_picture picture;
    fby_picture_start_trace(&picture, SIDE, SIDE);
    int64_t us = 10000000, before = now_us();
    cr_assert_eq(fby_op_pace.apply(&us, &picture, NULL), FBY_REASON_NONE);
    cr_assert_lt(now_us() - before, 1000000);
}

Test(pace, stands_among_the_ops_on_pictures)
{
    int64_t us = 1;
    fby_error error = FBY_ERROR_INIT;
    fby_shape shape = {.stage = FBY_STAGE_PICTURE, .w = SIDE, .h = SIDE};
    cr_assert_eq(fby_op_pace.infer(&us, &shape, &error), 0);
    shape.stage = FBY_STAGE_ENCODED;
    cr_assert_eq(fby_op_pace.infer(&us, &shape, &error), FBY_EINVAL);
}
