/* What a trainer does with a batch, in all comparisons alike. */
#ifndef FBY_PERF_TRAINER_H
#define FBY_PERF_TRAINER_H

#include <forebay/forebay.h>

/* The next batch, however long it takes; to be released. */
fby_batch *perf_trainer_next(fby_task *task);
/* Takes a batch, reads one byte of each sample, releases it; returns its samples. */
uint64_t perf_trainer_take(fby_task *task);

#endif
