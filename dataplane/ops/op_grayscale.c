/* grayscale: torchvision's Grayscale(3). */
#include "dataplane/ops/choices.h"
#include "dataplane/ops/picture.h"

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    return fby_geometry_allowed("grayscale", shape, error);
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    (void)p;
    (void)random;
    const fby_adjustment gray = {.kind = FBY_ADJUST_SATURATION, .factor = 0};
    return fby_picture_adjust(picture, &gray, 1);
}

const fby_op fby_op_grayscale = {.name = "grayscale",
                                 .version = 1,
                                 .about = "takes the colour out of the picture; it keeps three channels",
                                 .infer = infer,
                                 .apply = apply};
