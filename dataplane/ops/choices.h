/* Choices and checks that several ops share. */
#ifndef FBY_DATAPLANE_CHOICES_H
#define FBY_DATAPLANE_CHOICES_H

#include "dataplane/ops/op.h"

/* In the order of fby_filter. */
extern const char *const fby_filter_choices[];
/* "13", "12": whose order of passes; fby_pillow_of tells the version from the index. */
extern const char *const fby_pillow_choices[];
int fby_pillow_of(int32_t choice);

/* The longest side that an op's `size` may ask for. */
#define FBY_SIZE_MOST 16384.0

/* FBY_OK where `shape` is a picture whose size and levels may still change, else what stands in the way of
 * `op`. */
int fby_geometry_allowed(const char *op, const fby_shape *shape, fby_error *error);

#endif
