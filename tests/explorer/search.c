#include "tests/explorer/search.h"

#include <stdlib.h>

enum { DEPTH = 4096 };

/* The choices of the execution in progress. Those before `fixed` are prescribed. */
static struct {
    int taken[DEPTH], options[DEPTH];
    int fixed, length;
    uint64_t random;
} path;

static int choose_first(int options, int unusual_in)
{
    (void)unusual_in;
    int at = path.length++;
    if (at >= DEPTH) abort();
    path.options[at] = options;
    if (at >= path.fixed) path.taken[at] = 0;
    return path.taken[at];
}

static uint64_t random_next(void)
{
    uint64_t z = path.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int choose_random(int options, int unusual_in)
{
    int at = path.length++;
    if (at >= DEPTH) abort();
    int taken = 0;
    if (random_next() % (uint64_t)unusual_in == 0) taken = 1 + (int)(random_next() % (uint64_t)(options - 1));
    path.options[at] = options;
    path.taken[at] = taken;
    return taken;
}

search_result search_all(const explore_scenario *scenario, const explore_bounds *bounds, uint64_t limit)
{
    search_result result = {0};
    path.fixed = 0;
    while (result.executions < limit) {
        path.length = 0;
        result.executions++;
        result.violation = explore_execute(scenario, bounds, choose_first, false);
        if (result.violation) return result;

        int last = path.length - 1;
        while (last >= 0 && path.taken[last] + 1 == path.options[last]) last--;
        if (last < 0) {
            result.complete = true;
            return result;
        }
        path.taken[last]++;
        path.fixed = last + 1;
    }
    return result;
}

search_result search_random(const explore_scenario *scenario, const explore_bounds *bounds, uint64_t seed,
                            uint64_t count)
{
    search_result result = {0};
    path.random = seed;
    while (result.executions < count && !result.violation) {
        path.length = 0;
        result.executions++;
        result.violation = explore_execute(scenario, bounds, choose_random, false);
    }
    return result;
}

void search_trace_last(const explore_scenario *scenario, const explore_bounds *bounds)
{
    path.fixed = path.length;
    path.length = 0;
    explore_execute(scenario, bounds, choose_first, true);
}
