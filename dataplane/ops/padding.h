/* What pad and random_crop share. */
#ifndef FBY_DATAPLANE_PADDING_H
#define FBY_DATAPLANE_PADDING_H

#include "dataplane/ops/picture.h"

typedef struct fby_padding_params {
    uint32_t sides[4], fill[3];
    int32_t mode;
} fby_padding_params;

/* In the order of fby_border. */
extern const char *const fby_border_choices[];

fby_padding fby_padding_of(const fby_padding_params *params);
/* The size of a picture with its padding; 0 stays 0: it varies from sample to sample. FBY_EINVAL: a colour
 * around a picture without any. */
int fby_padding_infer(const fby_padding_params *params, const fby_shape *shape, uint32_t *w, uint32_t *h,
                      fby_error *error);

#endif
