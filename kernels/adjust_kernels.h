/* What a tier provides to adjustments of colour: several of them on a row, a pixel at a time. */
#ifndef FBY_KERNELS_ADJUST_KERNELS_H
#define FBY_KERNELS_ADJUST_KERNELS_H

#include "kernels/adjust.h"

typedef enum fby_adjust_step_kind {
    FBY_STEP_LEVEL,    /* base + factor (v - base) */
    FBY_STEP_SATURATE, /* the same with the pixel's gray as base */
    FBY_STEP_TURN      /* hue + turn, modulo 256 */
} fby_adjust_step_kind;

typedef struct fby_adjust_step {
    fby_adjust_step_kind kind;
    float base, factor;
    uint32_t turn;
} fby_adjust_step;

typedef struct fby_adjust_kernels {
    /* Takes n pixels through the steps. */
    void (*row)(const fby_adjust_step *steps, uint32_t count, uint8_t *rgb, size_t n);
    /* The sum of n pixels' gray levels. */
    uint64_t (*gray_sum)(const uint8_t *rgb, size_t n);
} fby_adjust_kernels;

extern const fby_adjust_kernels fby_adjust_kernels_c, fby_adjust_kernels_avx2;

/* fby_adjust over a given table. */
void fby_adjust_with(const fby_adjustment *list, uint32_t count, const fby_adjust_kernels *kernels,
                     uint8_t *rgb, size_t stride, uint32_t w, uint32_t h);

#endif
