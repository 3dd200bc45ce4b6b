/* pad: torchvision's Pad. */
#include "dataplane/ops/choices.h"
#include "dataplane/ops/padding.h"

typedef struct params {
    fby_padding_params padding;
} params;

static const fby_param list[] = {
    {"padding", FBY_PARAM_SIDES, offsetof(params, padding.sides), NULL, 0, FBY_SIZE_MOST, NULL,
     "pixels at each side; or [left and right, top and bottom], or [left, top, right, bottom]"},
    {"fill", FBY_PARAM_LEVELS, offsetof(params, padding.fill), "0", 0, 255, NULL,
     "the level of what is added, or [red, green, blue]; constant only"},
    {"padding_mode", FBY_PARAM_CHOICE, offsetof(params, padding.mode), "constant", 0, 0, fby_border_choices,
     "what is added: a colour, the outermost pixels, or the picture mirrored at them or at its sides"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    const params *with = p;
    int status = fby_geometry_allowed("pad", shape, error);
    if (status) return status;
    uint32_t w, h;
    status = fby_padding_infer(&with->padding, shape, &w, &h, error);
    if (status) return status;
    if (w > FBY_PICTURE_SIDE || h > FBY_PICTURE_SIDE)
        return fby_fail(error, FBY_EINVAL,
                        "the padded picture would be %u x %u; expected sides of at most %d", w, h,
                        FBY_PICTURE_SIDE);
    shape->w = w;
    shape->h = h;
    return FBY_OK;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    (void)random;
    const params *with = p;
    fby_padding padding = fby_padding_of(&with->padding);
    return fby_picture_pad(picture, &padding, NULL);
}

const fby_op fby_op_pad = {.name = "pad",
                           .version = 1,
                           .about = "adds pixels around the picture",
                           .params = list,
                           .param_count = sizeof list / sizeof *list,
                           .params_bytes = sizeof(params),
                           .shorthand = "padding",
                           .infer = infer,
                           .apply = apply};
