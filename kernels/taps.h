/* The weights of Pillow's resize along one axis.
 *
 * Source: precompute_coeffs() and normalize_coeffs_8bpc() of Pillow's src/libImaging/Resample.c: the filter
 * in double precision, divided by its sum, times 2^22, rounded half away from zero. Nearest is
 * ImagingScaleAffine() of Geometry.c: one source pixel per output, its position accumulated. Weights that
 * round to 0 at either end of a window are left out. An axis that doesn't change has one tap of weight 1: the
 * identity. */
#ifndef FBY_KERNELS_TAPS_H
#define FBY_KERNELS_TAPS_H

#include "kernels/buffer.h"
#include "kernels/resample.h"

enum { FBY_WEIGHT_BITS = 22, FBY_WEIGHT_ONE = 1 << FBY_WEIGHT_BITS, FBY_WEIGHT_HALF = FBY_WEIGHT_ONE / 2 };

typedef struct fby_taps {
    uint32_t in, out;
    uint32_t longest;      /* the largest count */
    const uint32_t *first; /* per output: its first source pixel */
    const uint32_t *count; /* per output: how many, at least 1 */
    const size_t *at;      /* per output: where its weights start */
    const int32_t *weight;
    const uint32_t *low; /* per output: the first source pixel that it or any later one needs; never falls */
    fby_buffer memory;
} fby_taps;

/* 0, or -1 without memory. `taps` starts zeroed and may be filled again and again. */
int fby_taps_fill(fby_taps *taps, fby_filter filter, uint32_t in, uint32_t out);

#endif
