/* Searches through the executions of a scenario: all within bounds, depth first, or random ones by seed. */
#ifndef FBY_TESTS_EXPLORER_SEARCH_H
#define FBY_TESTS_EXPLORER_SEARCH_H

#include "tests/explorer/machine.h"

typedef struct search_result {
    const char *violation; /* NULL: none found */
    uint64_t executions;
    bool complete; /* depth first only: nothing within the bounds is left */
} search_result;

/* Depth first, at most `limit` executions. */
search_result search_all(const explore_scenario *scenario, const explore_bounds *bounds, uint64_t limit);
/* `count` random executions. */
search_result search_random(const explore_scenario *scenario, const explore_bounds *bounds, uint64_t seed,
                            uint64_t count);
/* Prints the last execution step by step. */
void search_trace_last(const explore_scenario *scenario, const explore_bounds *bounds);

#endif
