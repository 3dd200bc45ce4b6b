/* What is explored. Every role runs the code of ringbuf/ as it stands. */
#ifndef FBY_TESTS_EXPLORER_SCENARIOS_H
#define FBY_TESTS_EXPLORER_SCENARIOS_H

#include "tests/explorer/machine.h"

enum { TASK_SCENARIOS = 7, GATE_SCENARIOS = 3, MPMC_SCENARIOS = 6 };

extern const explore_scenario task_scenarios[TASK_SCENARIOS]; /* a server and its client */
extern const explore_scenario gate_scenarios[GATE_SCENARIOS];
extern const explore_scenario mpmc_scenarios[MPMC_SCENARIOS];

#endif
