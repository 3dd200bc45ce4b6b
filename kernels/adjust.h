/* Adjustments of colour on RGB pictures, in place, equal to Pillow's.
 *
 * Brightness, contrast and saturation are ImageEnhance.Brightness, .Contrast and .Color: with the level v and
 * what a factor of 0 would leave of it (black; the mean of the gray picture, rounded; the pixel's gray),
 *
 *     base + factor (v - base)
 *
 * in float32, clipped, and cut to a whole number. Saturation 0 is convert("L"). Hue is convert("HSV"), a
 * shift of H by `factor` turns, in whole steps of 1/255 cut towards 0, and convert("RGB"): both conversions
 * round to 8 bits, so a shift by 0 changes pixels too, as it does in torchvision. */
#ifndef FBY_KERNELS_ADJUST_H
#define FBY_KERNELS_ADJUST_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/tier.h"

typedef enum fby_adjustment_kind {
    FBY_ADJUST_BRIGHTNESS,
    FBY_ADJUST_CONTRAST,
    FBY_ADJUST_SATURATION,
    FBY_ADJUST_HUE
} fby_adjustment_kind;

typedef struct fby_adjustment {
    fby_adjustment_kind kind;
    float factor; /* 0..1e6; hue: -0.5..0.5 */
} fby_adjustment;

/* Adjusts h x w pixels, rows `stride` bytes apart, in the order of `list`. Reads and writes these pixels
 * only. */
void fby_adjust(const fby_adjustment *list, uint32_t count, fby_tier tier, uint8_t *rgb, size_t stride,
                uint32_t w, uint32_t h);

#endif
