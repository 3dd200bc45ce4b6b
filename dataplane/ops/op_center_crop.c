/* center_crop: torchvision's CenterCrop, its rounding and padding included. */
#include <math.h>

#include "dataplane/ops/choices.h"
#include "dataplane/ops/picture.h"

typedef struct params {
    uint32_t size[2];
} params;

static const fby_param list[] = {
    {"size", FBY_PARAM_SIZE, offsetof(params, size), NULL, 1, FBY_SIZE_MOST, NULL,
     "both sides; or [height, width]. A smaller picture is padded with black"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    const params *with = p;
    int status = fby_geometry_allowed("center_crop", shape, error);
    if (status) return status;
    shape->w = with->size[0];
    shape->h = with->size[1];
    return FBY_OK;
}

/* The first pixel kept: half of what is cut, rounded half to even as Python's round() does. */
static uint32_t offset(uint32_t have, uint32_t want)
{
    return have > want ? (uint32_t)nearbyint((have - want) / 2.0) : 0;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    (void)random;
    const params *with = p;
    uint32_t want_w = with->size[0], want_h = with->size[1];
    uint32_t have_w = fby_picture_w(picture), have_h = fby_picture_h(picture);
    uint32_t w = have_w < want_w ? have_w : want_w, h = have_h < want_h ? have_h : want_h;
    fby_reason reason = fby_picture_crop(picture, offset(have_w, want_w), offset(have_h, want_h), w, h);
    if (reason || (w == want_w && h == want_h)) return reason;
    fby_padding black = {.left = (want_w - w) / 2, .top = (want_h - h) / 2};
    black.right = want_w - w - black.left;
    black.bottom = want_h - h - black.top;
    return fby_picture_pad(picture, &black, NULL);
}

const fby_op fby_op_center_crop = {.name = "center_crop",
                                   .version = 1,
                                   .about = "cuts the middle out of the picture",
                                   .params = list,
                                   .param_count = sizeof list / sizeof *list,
                                   .params_bytes = sizeof(params),
                                   .shorthand = "size",
                                   .infer = infer,
                                   .apply = apply};
