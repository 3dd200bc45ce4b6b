/* What the two flips share. */
#ifndef FBY_DATAPLANE_FLIP_H
#define FBY_DATAPLANE_FLIP_H

#include "dataplane/ops/picture.h"

typedef struct fby_flip_params {
    double p;
    uint64_t augment_seed;
} fby_flip_params;

enum { FBY_FLIP_PARAMS = 2 };
extern const fby_param fby_flip_list[FBY_FLIP_PARAMS];

/* A flip commutes with normalize, so it may stand on either side of it; not before decode, nor after to. */
int fby_flip_allowed(const char *op, const fby_shape *shape, fby_error *error);

#endif
