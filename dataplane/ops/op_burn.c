/* burn: spends CPU time on every sample and leaves it as it is. It makes a stage as dear as a benchmark or a
 * test wants it; built where FOREBAY_BURN says so, never installed. */
#include <time.h>

#include "dataplane/ops/choices.h"
#include "dataplane/ops/picture.h"

typedef struct params {
    int64_t us;
} params;

static const fby_param list[] = {
    {"us", FBY_PARAM_INT, offsetof(params, us), NULL, 0, 10000000, NULL, "microseconds of CPU time a sample"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    return fby_geometry_allowed("burn", shape, error);
}

/* CPU time of this thread alone: what it waits for a CPU isn't work. */
static int64_t spent_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    const params *with = p;
    (void)random;
    if (!picture->memory) return FBY_REASON_NONE; /* traced: looking ahead is free */
    int64_t end = spent_ns() + with->us * 1000;
    while (spent_ns() < end) continue;
    return FBY_REASON_NONE;
}

const fby_op fby_op_burn = {.name = "burn",
                            .version = 1,
                            .about = "spends CPU time and changes nothing: for benchmarks",
                            .params = list,
                            .param_count = sizeof list / sizeof *list,
                            .params_bytes = sizeof(params),
                            .shorthand = "us",
                            .infer = infer,
                            .apply = apply};
