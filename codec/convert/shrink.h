/* Pictures of any channels and bits, made smaller: bilinear, antialiased, each channel by itself. Private to
 * codec/convert/. */
#ifndef FBY_CODEC_CONVERT_SHRINK_H
#define FBY_CODEC_CONVERT_SHRINK_H

#include <stdint.h>

#include "codec/original.h"
#include "kernels/resample.h"

typedef struct fby_shrink {
    uint32_t w, h, out_w, out_h;
    uint32_t channels, bits;
} fby_shrink;

/* The longer side becomes `most`, the shorter the whole part of its share, at least 1. */
void fby_shrink_size(uint32_t w, uint32_t h, uint32_t most, uint32_t *out_w, uint32_t *out_h);
/* Rows without gaps; 0, or -1 without memory. */
int fby_shrink_bytes(fby_resampler *resampler, const fby_shrink *shrink, const uint8_t *in, uint8_t *out);
int fby_shrink_words(const fby_shrink *shrink, const uint16_t *in, uint16_t *out);

#endif
