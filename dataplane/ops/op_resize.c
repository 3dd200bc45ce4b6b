/* resize: antialiased, as torchvision's Resize on a PIL picture. */
#include "dataplane/ops/choices.h"
#include "dataplane/ops/picture.h"

typedef struct params {
    uint32_t size[2];
    int32_t interpolation, pillow;
} params;

static const fby_param list[] = {
    {"size", FBY_PARAM_SHORTER, offsetof(params, size), NULL, 1, FBY_SIZE_MOST, NULL,
     "the shorter side, the longer keeping the proportions; or [height, width]"},
    {"interpolation", FBY_PARAM_CHOICE, offsetof(params, interpolation), "bilinear", 0, 0, fby_filter_choices,
     "the filter; all but nearest are antialiased"},
    {"pillow", FBY_PARAM_CHOICE, offsetof(params, pillow), "13", 0, 0, fby_pillow_choices,
     "whose order of passes: Pillow 13's, or that of 12.1 and before"},
};

/* The longer side, as torchvision computes it: int(size * long / short). */
static uint64_t longer(uint32_t size, uint32_t longest, uint32_t shortest)
{
    return (uint64_t)((double)((uint64_t)size * longest) / (double)shortest);
}

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    const params *with = p;
    int status = fby_geometry_allowed("resize", shape, error);
    if (status) return status;
    uint32_t w = with->size[0], h = with->size[1];
    if (w == 0) {
        uint32_t size = h;
        w = h = 0;
        if (shape->w && shape->h) {
            bool wide = shape->w > shape->h;
            uint64_t side = wide ? longer(size, shape->w, shape->h) : longer(size, shape->h, shape->w);
            if (side > FBY_PICTURE_SIDE)
                return fby_fail(error, FBY_EINVAL, "the longer side would be %llu; expected at most %d",
                                (unsigned long long)side, FBY_PICTURE_SIDE);
            w = wide ? (uint32_t)side : size;
            h = wide ? size : (uint32_t)side;
        }
    }
    shape->w = w;
    shape->h = h;
    return FBY_OK;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    (void)random;
    const params *with = p;
    uint64_t w = with->size[0], h = with->size[1];
    if (w == 0) {
        uint32_t size = with->size[1], in_w = fby_picture_w(picture), in_h = fby_picture_h(picture);
        w = in_w > in_h ? longer(size, in_w, in_h) : size;
        h = in_w > in_h ? size : longer(size, in_h, in_w);
        if (w > FBY_PICTURE_SIDE || h > FBY_PICTURE_SIDE) return FBY_REASON_SHAPE;
    }
    return fby_picture_resize(picture, (uint32_t)w, (uint32_t)h, (fby_filter)with->interpolation,
                              fby_pillow_of(with->pillow));
}

const fby_op fby_op_resize = {.name = "resize",
                              .version = 1,
                              .about = "resizes the picture, exactly as Pillow does",
                              .params = list,
                              .param_count = sizeof list / sizeof *list,
                              .params_bytes = sizeof(params),
                              .shorthand = "size",
                              .infer = infer,
                              .apply = apply};
