/* The machine that roles run on: a scheduler of coroutines and a memory that remembers old values.
 *
 * An execution runs a scenario's roles from start to end. At every step the explorer chooses who comes next,
 * what an atomic load reads, whom a futex wakes, whether a deadline passes, whether a role is stopped for
 * good; the choices come from a chooser (search.h), so that the same choices give the same execution. What
 * the memory model covers is in README.md. */
#ifndef FBY_TESTS_EXPLORER_MACHINE_H
#define FBY_TESTS_EXPLORER_MACHINE_H

#include "tests/explorer/shim.h"

enum { EXPLORE_ROLES = 4 };

/* How much may go wrong in one execution. */
typedef struct explore_bounds {
    int preemptions; /* a role is left though it could go on */
    int stale_reads; /* a load reads another than the latest value */
    int kills;       /* a role is stopped for good */
    int deadlines;   /* a finite deadline passes */
} explore_bounds;

typedef enum explore_state {
    EXPLORE_RUNNING,
    EXPLORE_ENDED,
    EXPLORE_BLOCKED, /* sleeps, or spins for ever, and nobody is left to change that */
    EXPLORE_KILLED
} explore_state;

typedef struct explore_scenario {
    const char *name;
    int roles;
    void (*set_up)(void);
    void (*role[EXPLORE_ROLES])(void);
    void (*check)(void); /* after the end, may call explore_violation; may be NULL */
    bool killable[EXPLORE_ROLES];
    bool may_starve[EXPLORE_ROLES]; /* may block once another role was killed */
    explore_bounds bounds;          /* of the exhaustive search */
} explore_scenario;

/* Asked at every choice: 0 (the usual) to options - 1. `unusual_in` is the inverse of how likely a random
 * search should leave the usual. */
typedef int explore_chooser(int options, int unusual_in);

/* Runs one execution; returns the violation, or NULL. The text lives until the next execution. With `trace`,
 * which asks for the last execution once more, its last steps are printed. */
const char *explore_execute(const explore_scenario *scenario, const explore_bounds *bounds,
                            explore_chooser *choose, bool trace);

/* For roles and checks. A violation ends the execution. */
void explore_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
explore_state explore_state_of(int role);
bool explore_any_killed(void);
int explore_steps_of(int role);
/* Sleeps until explore_event_post was called since the last wait. */
void explore_event_wait(int event);

#endif
