/* random_resized_crop: torchvision's RandomResizedCrop, the rule of its get_params(). */
#include <math.h>

#include "dataplane/ops/choices.h"
#include "dataplane/ops/picture.h"

typedef struct params {
    uint32_t size[2];
    double scale[2], ratio[2];
    int32_t interpolation, pillow;
    uint64_t augment_seed;
} params;

enum { TRIES = 10 };

static const fby_param list[] = {
    {"size", FBY_PARAM_SIZE, offsetof(params, size), NULL, 1, FBY_SIZE_MOST, NULL,
     "both sides; or [height, width]"},
    {"scale", FBY_PARAM_PAIR, offsetof(params, scale), "[0.08, 1]", 1e-6, 1, NULL,
     "[low, high]: the part of the picture's area that is cut out"},
    {"ratio", FBY_PARAM_PAIR, offsetof(params, ratio), "[3/4, 4/3]", 1e-3, 1e3, NULL,
     "[low, high]: width over height of what is cut out"},
    {"interpolation", FBY_PARAM_CHOICE, offsetof(params, interpolation), "bilinear", 0, 0, fby_filter_choices,
     "the filter; all but nearest are antialiased"},
    {"pillow", FBY_PARAM_CHOICE, offsetof(params, pillow), "13", 0, 0, fby_pillow_choices,
     "whose order of passes: Pillow 13's, or that of 12.1 and before"},
    {"augment_seed", FBY_PARAM_SEED, offsetof(params, augment_seed), "the task's", 0, 0, NULL,
     "what draws of this op depend on"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    const params *with = p;
    int status = fby_geometry_allowed("random_resized_crop", shape, error);
    if (status) return status;
    shape->w = with->size[0];
    shape->h = with->size[1];
    return FBY_OK;
}

static uint32_t clamp(double side, uint32_t most)
{
    return side < 1 ? 1 : side > most ? most : (uint32_t)side;
}

static void draw(const params *with, uint32_t width, uint32_t height, fby_random *random, fby_region_of *crop)
{
    double area = (double)width * height;
    double low = log(with->ratio[0]), high = log(with->ratio[1]);
    for (int i = 0; i < TRIES; i++) {
        double target = area * (with->scale[0] + (with->scale[1] - with->scale[0]) * fby_random_unit(random));
        double aspect = exp(low + (high - low) * fby_random_unit(random));
        double w = nearbyint(sqrt(target * aspect)), h = nearbyint(sqrt(target / aspect));
        if (w < 1 || w > width || h < 1 || h > height) continue;
        crop->w = (uint32_t)w;
        crop->h = (uint32_t)h;
        crop->y = fby_random_below(random, height - crop->h + 1);
        crop->x = fby_random_below(random, width - crop->w + 1);
        return;
    }
    double have = (double)width / height;
    crop->w = width;
    crop->h = height;
    if (have < with->ratio[0]) crop->h = clamp(nearbyint(width / with->ratio[0]), height);
    if (have > with->ratio[1]) crop->w = clamp(nearbyint(height * with->ratio[1]), width);
    crop->x = (width - crop->w) / 2;
    crop->y = (height - crop->h) / 2;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    const params *with = p;
    fby_region_of crop;
    draw(with, fby_picture_w(picture), fby_picture_h(picture), random, &crop);
    fby_reason reason = fby_picture_crop(picture, crop.x, crop.y, crop.w, crop.h);
    if (reason) return reason;
    return fby_picture_resize(picture, with->size[0], with->size[1], (fby_filter)with->interpolation,
                              fby_pillow_of(with->pillow));
}

const fby_op fby_op_random_resized_crop = {
    .name = "random_resized_crop",
    .version = 1,
    .random = true,
    .about = "cuts out a part of random size, shape and place, and resizes it",
    .params = list,
    .param_count = sizeof list / sizeof *list,
    .params_bytes = sizeof(params),
    .shorthand = "size",
    .infer = infer,
    .apply = apply};
