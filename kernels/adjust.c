/* The order of adjustments: as many as possible in one pass, but contrast needs the whole picture's mean. */
#include "kernels/adjust_kernels.h"

enum { STEPS = 8 }; /* taken in one pass */

static const fby_adjust_kernels *kernels_of(fby_tier tier)
{
#if defined(FBY_KERNELS_X86)
    if (tier >= FBY_TIER_AVX2 && fby_tier_supported(FBY_TIER_AVX2)) return &fby_adjust_kernels_avx2;
#endif
    (void)tier;
    return &fby_adjust_kernels_c;
}

/* ImageStat's mean of convert("L"), rounded as ImageEnhance.Contrast does. */
static float mean_gray(const fby_adjust_kernels *kernels, const uint8_t *rgb, size_t stride, uint32_t w,
                       uint32_t h)
{
    uint64_t sum = 0;
    for (uint32_t y = 0; y < h; y++) sum += kernels->gray_sum(rgb + y * stride, w);
    return (float)(uint32_t)((double)sum / ((double)w * h) + 0.5);
}

static void pass(const fby_adjust_kernels *kernels, const fby_adjust_step *steps, uint32_t count,
                 uint8_t *rgb, size_t stride, uint32_t w, uint32_t h)
{
    if (!count) return;
    for (uint32_t y = 0; y < h; y++) kernels->row(steps, count, rgb + y * stride, w);
}

void fby_adjust_with(const fby_adjustment *list, uint32_t count, const fby_adjust_kernels *kernels,
                     uint8_t *rgb, size_t stride, uint32_t w, uint32_t h)
{
    fby_adjust_step steps[STEPS];
    uint32_t pending = 0;
    for (uint32_t i = 0; i < count; i++) {
        fby_adjustment_kind kind = list[i].kind;
        if (pending == STEPS || kind == FBY_ADJUST_CONTRAST) {
            pass(kernels, steps, pending, rgb, stride, w, h);
            pending = 0;
        }
        fby_adjust_step *step = &steps[pending++];
        *step = (fby_adjust_step){.kind = FBY_STEP_LEVEL, .factor = list[i].factor};
        if (kind == FBY_ADJUST_CONTRAST) step->base = mean_gray(kernels, rgb, stride, w, h);
        if (kind == FBY_ADJUST_SATURATION) step->kind = FBY_STEP_SATURATE;
        if (kind == FBY_ADJUST_HUE) {
            step->kind = FBY_STEP_TURN;
            step->turn = (uint32_t)(int32_t)((double)list[i].factor * 255) & 255;
        }
    }
    pass(kernels, steps, pending, rgb, stride, w, h);
}

void fby_adjust(const fby_adjustment *list, uint32_t count, fby_tier tier, uint8_t *rgb, size_t stride,
                uint32_t w, uint32_t h)
{
    fby_adjust_with(list, count, kernels_of(tier), rgb, stride, w, h);
}
