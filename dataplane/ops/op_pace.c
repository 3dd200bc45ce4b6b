/* pace: lets one sample through every so many microseconds, whatever the number of workers. It makes a
 * pipeline as slow as a benchmark wants it, by the clock: what else the machine does changes nothing. Built
 * where FOREBAY_BURN says so, never installed. */
#include <errno.h>
#include <time.h>

#include "dataplane/ops/choices.h"
#include "dataplane/ops/picture.h"
#include "ringbuf/atomic.h"

typedef struct params {
    int64_t us;
} params;

static const fby_param list[] = {
    {"us", FBY_PARAM_INT, offsetof(params, us), NULL, 0, 10000000, NULL,
     "microseconds from one sample to the next"},
};

/* Of all workers, and of all uses of the op: when the latest sample gets through, of CLOCK_MONOTONIC. */
static uint64_t latest_ns;

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    return fby_geometry_allowed("pace", shape, error);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Moments follow one another without a gap while samples wait, so that a sleep that lasts too long costs the
 * next sample nothing. What passes while nobody asks is lost, but for SLACK_NS: a thread that came late
 * because the machine was busy catches up. */
enum { SLACK_NS = 4000000 };

static uint64_t moment_take(uint64_t interval)
{
    uint64_t earliest = now_ns() - SLACK_NS, latest = fby_load_relaxed_u64(&latest_ns), next;
    do {
        next = (latest > earliest ? latest : earliest) + interval;
    } while (!fby_compare_exchange_relaxed_u64(&latest_ns, &latest, next)); /* a count: orders nothing */
    return next;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    const params *with = p;
    (void)random;
    if (!picture->memory || !with->us) return FBY_REASON_NONE; /* traced: looking ahead is free */
    uint64_t until = moment_take((uint64_t)with->us * 1000);
    struct timespec at = {(time_t)(until / UINT64_C(1000000000)), (long)(until % UINT64_C(1000000000))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
    return FBY_REASON_NONE;
}

const fby_op fby_op_pace = {.name = "pace",
                            .version = 1,
                            .about =
                                "lets a sample through every so often and changes nothing: for benchmarks",
                            .params = list,
                            .param_count = sizeof list / sizeof *list,
                            .params_bytes = sizeof(params),
                            .shorthand = "us",
                            .infer = infer,
                            .apply = apply};
