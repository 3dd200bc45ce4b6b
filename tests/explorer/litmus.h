/* Litmus tests: which outcomes the memory model admits. */
#ifndef FBY_TESTS_EXPLORER_LITMUS_H
#define FBY_TESTS_EXPLORER_LITMUS_H

#include "tests/explorer/machine.h"

typedef struct litmus {
    explore_scenario scenario; /* its check sets *outcome */
    bool allowed;              /* whether C11 lets the outcome happen, and the model must show it */
} litmus;

enum { LITMUS_TESTS = 13 };
extern const litmus litmus_tests[LITMUS_TESTS];

/* Set by a check when the execution showed the outcome in question. */
extern bool litmus_outcome;

#endif
