/* What a comparison without a loader reads: one sample's file. */
#ifndef FBY_PERF_SAMPLE_H
#define FBY_PERF_SAMPLE_H

#include "io/dataset.h"

/* Reads a sample's encoded bytes to `to`, which has room for one more; returns how many. Ends the program
 * where it can't. Any thread. */
size_t perf_sample_read(const fby_dataset *dataset, uint64_t id, uint8_t *to);

#endif
