/* color_jitter: torchvision's ColorJitter, the rule of its get_params(). */
#include "dataplane/ops/choices.h"
#include "dataplane/ops/picture.h"

enum { KINDS = 4 };

typedef struct params {
    double brightness[2], contrast[2], saturation[2], hue[2];
    uint64_t augment_seed;
} params;

#define FACTOR_MOST 1000.0

static const fby_param list[] = {
    {"brightness", FBY_PARAM_FACTOR, offsetof(params, brightness), "0", 0, FACTOR_MOST, NULL,
     "factor from 1 - b, but at least 0, to 1 + b; or [low, high]"},
    {"contrast", FBY_PARAM_FACTOR, offsetof(params, contrast), "0", 0, FACTOR_MOST, NULL,
     "as brightness; 0 leaves the mean gray"},
    {"saturation", FBY_PARAM_FACTOR, offsetof(params, saturation), "0", 0, FACTOR_MOST, NULL,
     "as brightness; 0 leaves each pixel's gray"},
    {"hue", FBY_PARAM_SHIFT, offsetof(params, hue), "0", -0.5, 0.5, NULL,
     "turns of the colour circle, from -h to h; or [low, high]"},
    {"augment_seed", FBY_PARAM_SEED, offsetof(params, augment_seed), "the task's", 0, 0, NULL,
     "what draws of this op depend on"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    return fby_geometry_allowed("color_jitter", shape, error);
}

/* The permutation first, then a factor for each kind, given or not, so that what one is doesn't depend on
 * which others are given. */
static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    const params *with = p;
    const double *const ranges[KINDS] = {with->brightness, with->contrast, with->saturation, with->hue};
    fby_adjustment_kind order[KINDS] = {FBY_ADJUST_BRIGHTNESS, FBY_ADJUST_CONTRAST, FBY_ADJUST_SATURATION,
                                        FBY_ADJUST_HUE};
    for (uint32_t i = KINDS - 1; i > 0; i--) {
        uint32_t other = fby_random_below(random, i + 1);
        fby_adjustment_kind kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    float factors[KINDS];
    for (int kind = 0; kind < KINDS; kind++) {
        double low = ranges[kind][0], high = ranges[kind][1];
        factors[kind] = (float)(low + (high - low) * fby_random_unit(random));
    }

    fby_adjustment chosen[KINDS];
    uint32_t count = 0;
    for (int i = 0; i < KINDS; i++) {
        fby_adjustment_kind kind = order[i];
        double neutral = kind == FBY_ADJUST_HUE ? 0 : 1;
        if (ranges[kind][0] == neutral && ranges[kind][1] == neutral) continue;
        chosen[count++] = (fby_adjustment){kind, factors[kind]};
    }
    return fby_picture_adjust(picture, chosen, count);
}

const fby_op fby_op_color_jitter = {
    .name = "color_jitter",
    .version = 1,
    .random = true,
    .about = "changes brightness, contrast, saturation and hue at random, in random order",
    .params = list,
    .param_count = sizeof list / sizeof *list,
    .params_bytes = sizeof(params),
    .infer = infer,
    .apply = apply};
