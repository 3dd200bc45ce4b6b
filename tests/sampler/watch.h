/* Watches a sampler from outside: keeps its own account of every task and holds each draw against what the
 * sampler promises. */
#ifndef FBY_TESTS_SAMPLER_WATCH_H
#define FBY_TESTS_SAMPLER_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/sampler/sampler.h"

typedef struct watched_task {
    bool live;
    fby_sampler_task what;
    uint64_t *subset;  /* own copy; NULL: all */
    uint32_t *members; /* its ids, rising */
    uint32_t ids;
    uint64_t whole, part; /* samples of an epoch, and of the current one, a rank */
    uint64_t behind;      /* ids of the current epoch that were had before it was dealt to these ranks */
    uint64_t window;
    uint64_t epoch;
    uint64_t queued[FBY_SAMPLER_RANKS], given[FBY_SAMPLER_RANKS];
    uint8_t *seen;     /* per id: how often in this epoch, padding aside */
    uint8_t *bad;      /* per id */
    uint64_t distinct; /* ids seen in this epoch */
    uint64_t padded;   /* of its samples */
    uint64_t used_up;  /* by substitutes in this epoch */
    uint64_t epochs_done, delivered;
} watched_task;

typedef struct watch {
    fby_sampler *sampler;
    uint32_t ids;
    uint64_t random;
    uint32_t *visits;
    uint64_t drawn;
    uint32_t visits_before; /* in the lives of resumed tasks */
    watched_task task[FBY_SAMPLER_TASKS];
} watch;

uint64_t watch_random(watch *w, uint64_t below);
void watch_start(watch *w, uint32_t ids, uint64_t seed);
void watch_end(watch *w);

/* The result of the call; a refusal has to be expected by the caller. `subset`, `given` and `had` may be
 * given in `what`. */
int watch_join(watch *w, const fby_sampler_task *what, uint32_t *task);
void watch_leave(watch *w, uint32_t task);
void watch_abandon(watch *w, uint32_t task);
void watch_give_back(watch *w, uint32_t task, uint32_t rank, uint64_t count);
void watch_substitute(watch *w, uint32_t task, uint64_t epoch, uint32_t bad);
/* One draw, checked; false where there was none. */
bool watch_draw(watch *w, uint64_t blocked, fby_draw *draw);

#endif
