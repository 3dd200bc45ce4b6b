/* Bytes promised and granted: a limit, and a sum that any thread may add to. */
#ifndef FBY_DATAPLANE_BUDGET_H
#define FBY_DATAPLANE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fby_budget {
    uint64_t limit; /* atomic where it changes after others know of it */
    uint64_t used;  /* atomic */
} fby_budget;

/* Takes all of `bytes`, or none: false. Any thread. */
bool fby_budget_take(fby_budget *budget, uint64_t bytes);
void fby_budget_give(fby_budget *budget, uint64_t bytes);

#endif
