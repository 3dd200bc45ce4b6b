/* random_vertical_flip: torchvision's RandomVerticalFlip. */
#include "dataplane/ops/flip.h"

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    return fby_flip_allowed("random_vertical_flip", shape, error);
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    const fby_flip_params *with = p;
    if (fby_random_unit(random) < with->p) fby_picture_flip(picture, false, true);
    return FBY_REASON_NONE;
}

const fby_op fby_op_random_vertical_flip = {.name = "random_vertical_flip",
                                            .version = 1,
                                            .random = true,
                                            .about = "swaps top and bottom with probability p",
                                            .params = fby_flip_list,
                                            .param_count = FBY_FLIP_PARAMS,
                                            .params_bytes = sizeof(fby_flip_params),
                                            .shorthand = "p",
                                            .infer = infer,
                                            .apply = apply};
