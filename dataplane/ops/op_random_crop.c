/* random_crop: torchvision's RandomCrop. */
#include "dataplane/ops/choices.h"
#include "dataplane/ops/padding.h"

typedef struct params {
    uint32_t size[2];
    fby_padding_params padding;
    bool pad_if_needed;
    uint64_t augment_seed;
} params;

static const fby_param list[] = {
    {"size", FBY_PARAM_SIZE, offsetof(params, size), NULL, 1, FBY_SIZE_MOST, NULL,
     "both sides; or [height, width]"},
    {"padding", FBY_PARAM_SIDES, offsetof(params, padding.sides), "0", 0, FBY_SIZE_MOST, NULL,
     "added first, as in pad: at each side; or [left and right, top and bottom], or [left, top, right, "
     "bottom]"},
    {"pad_if_needed", FBY_PARAM_BOOL, offsetof(params, pad_if_needed), "false", 0, 0, NULL,
     "add to both sides what a picture that is still too small lacks; else it is a bad sample"},
    {"fill", FBY_PARAM_LEVELS, offsetof(params, padding.fill), "0", 0, 255, NULL,
     "the level of what is added, or [red, green, blue]; constant only"},
    {"padding_mode", FBY_PARAM_CHOICE, offsetof(params, padding.mode), "constant", 0, 0, fby_border_choices,
     "what is added: a colour, the outermost pixels, or the picture mirrored at them or at its sides"},
    {"augment_seed", FBY_PARAM_SEED, offsetof(params, augment_seed), "the task's", 0, 0, NULL,
     "what draws of this op depend on"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    const params *with = p;
    int status = fby_geometry_allowed("random_crop", shape, error);
    if (status) return status;
    uint32_t w, h;
    status = fby_padding_infer(&with->padding, shape, &w, &h, error);
    if (status) return status;
    if (!with->pad_if_needed && ((w && w < with->size[0]) || (h && h < with->size[1])))
        return fby_fail(
            error, FBY_EINVAL,
            "a crop of %u x %u doesn't fit the picture, which is %u x %u with its padding; expected "
            "a smaller size, or pad_if_needed: true",
            with->size[0], with->size[1], w, h);
    shape->w = with->size[0];
    shape->h = with->size[1];
    return FBY_OK;
}

/* What each of two sides gets so that the whole isn't too small: each gets all that is lacking, as
 * torchvision has it. */
static uint32_t lacking(uint32_t have, uint32_t want)
{
    return have < want ? want - have : 0;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    const params *with = p;
    fby_padding padding = fby_padding_of(&with->padding);
    uint32_t w = fby_picture_w(picture) + padding.left + padding.right;
    uint32_t h = fby_picture_h(picture) + padding.top + padding.bottom;
    if (with->pad_if_needed) {
        padding.more_across = lacking(w, with->size[0]);
        padding.more_down = lacking(h, with->size[1]);
        w += 2 * padding.more_across;
        h += 2 * padding.more_down;
    }
    if (w < with->size[0] || h < with->size[1]) return FBY_REASON_SHAPE;

    fby_region_of window = {.w = with->size[0], .h = with->size[1]};
    window.y = fby_random_below(random, h - window.h + 1);
    window.x = fby_random_below(random, w - window.w + 1);
    return fby_picture_pad(picture, &padding, &window);
}

const fby_op fby_op_random_crop = {.name = "random_crop",
                                   .version = 1,
                                   .random = true,
                                   .about = "cuts a part of a fixed size out of a random place",
                                   .params = list,
                                   .param_count = sizeof list / sizeof *list,
                                   .params_bytes = sizeof(params),
                                   .shorthand = "size",
                                   .infer = infer,
                                   .apply = apply};
