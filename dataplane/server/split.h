/* Which samples a task trains on: a spec's split, applied to an open data set.
 *
 *   part      the ids are put into the order of numbers that SplitMix64 gives them, and positions
 *             round(low * samples) to round(high * samples) - 1 of that order are taken. It depends on the
 *             split's seed and the number of samples alone, the same on every machine and in every version:
 *             parts that meet share no id and leave none out.
 *   ids       a text file, an id a line.
 *   classes   every sample of these classes; of these labels, where the data set has no names.
 */
#ifndef FBY_DATAPLANE_SPLIT_H
#define FBY_DATAPLANE_SPLIT_H

#include <forebay/error.h>
#include <stdint.h>

#include "dataplane/spec/spec.h"
#include "io/dataset.h"

/* A bitmap of the ids as fby_subset_create takes it; free() it. NULL where the split takes every
 * sample. *count: how many it takes, never 0: such a split is refused. Reads the file of ids, so it may take
 * long. */
int fby_split_ids(uint64_t **out, uint64_t *count, const fby_spec *spec, const fby_dataset *dataset,
                  fby_error *error);

/* The same without a data set, among the ids 0 … samples - 1 (one at least), for every split but classes. */
int fby_split_choose(uint64_t **out, uint64_t *count, const fby_spec *spec, uint64_t samples,
                     fby_error *error);

#endif
