/* random_horizontal_flip: torchvision's RandomHorizontalFlip. */
#include "dataplane/ops/flip.h"

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    return fby_flip_allowed("random_horizontal_flip", shape, error);
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    const fby_flip_params *with = p;
    if (fby_random_unit(random) < with->p) fby_picture_flip(picture, true, false);
    return FBY_REASON_NONE;
}

const fby_op fby_op_random_horizontal_flip = {.name = "random_horizontal_flip",
                                              .version = 1,
                                              .random = true,
                                              .about = "swaps left and right with probability p",
                                              .params = fby_flip_list,
                                              .param_count = FBY_FLIP_PARAMS,
                                              .params_bytes = sizeof(fby_flip_params),
                                              .shorthand = "p",
                                              .infer = infer,
                                              .apply = apply};
