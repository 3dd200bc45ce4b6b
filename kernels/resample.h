/* Pillow's antialiased resize, exact, fused with flips and the conversion to the wanted element type.
 *
 * Input rows are 3-channel interleaved u8 ("RGB") and come top to bottom, as a decoder makes them, so that
 * they are resampled while warm in cache. Source of the arithmetic: Pillow's ImagingResample
 * (libImaging/Resample.c) as described in the project's numerics page: two passes, u8 between, 22-bit
 * fixed-point weights, the order of the passes by Pillow's version.
 *
 * A resampler belongs to one thread, keeps its memory for reuse and gives back what an outsized picture made
 * it take. */
#ifndef FBY_KERNELS_RESAMPLE_H
#define FBY_KERNELS_RESAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "kernels/tier.h"

typedef enum fby_filter {
    FBY_FILTER_NEAREST,
    FBY_FILTER_BOX,
    FBY_FILTER_BILINEAR,
    FBY_FILTER_BICUBIC,
    FBY_FILTER_LANCZOS
} fby_filter;

/* How finished pixels leave: element type, layout, and a value for each of the 256 levels of each channel. */
typedef struct fby_sink {
    fby_dtype dtype;
    fby_layout layout;
    /* f32, f16, bf16: false: v / 255 where `unit`, else v; true: (v / 255 - mean) / std in float32. */
    bool normalize;
    bool unit;
    bool gray; /* the picture's channels are equal: one is written, its mean and std are the first */
    float mean[3], std[3];
    /* Filled by fby_sink_prepare: the exact value of each level, and what the vector tiers need. */
    float table[3][256];
    uint16_t half[3][256];
    float scale_high, scale_low; /* 1 / 255 or 1, and the reciprocals of std, as the sum of two floats */
    float shift[3], reciprocal_high[3], reciprocal_low[3];
    bool exact_by_multiplication; /* all 768 values checked equal to division; else the table is used */
} fby_sink;

/* Fills the tables. Call once per pipeline, not per picture. Returns -1 where `normalize` has a std that is
 * 0, or a mean or std that isn't finite; for u8 with `normalize`; and for u16, which only 16-bit pixels can
 * fill. */
int fby_sink_prepare(fby_sink *sink);
/* Converts h x w RGB pixels (rows `stride` bytes apart; up to 64 bytes past the last row's end may be read)
 * to `out`. */
void fby_sink_write(const fby_sink *sink, fby_tier tier, const uint8_t *rgb, size_t stride, uint32_t w,
                    uint32_t h, bool flip_horizontal, bool flip_vertical, void *out);

enum {
    FBY_RESAMPLE_MOST = 1 << 24
}; /* the largest side: float, in which Pillow keeps sizes, is exact up to it */

typedef struct fby_resample_job {
    uint32_t in_w, in_h, out_w, out_h; /* 1..FBY_RESAMPLE_MOST */
    fby_filter filter;
    int pillow;                          /* 13 or 12: whose order of passes */
    bool flip_horizontal, flip_vertical; /* after resizing */
} fby_resample_job;

typedef struct fby_resampler fby_resampler;

int fby_resampler_create(fby_resampler **out, fby_tier tier); /* 0, or -1 without memory */
void fby_resampler_destroy(fby_resampler **resampler);
size_t fby_resampler_bytes(const fby_resampler *resampler); /* memory held now */

/* Starts a picture. -1 without memory, or where a side is over FBY_RESAMPLE_MOST. */
int fby_resample_begin(fby_resampler *resampler, const fby_resample_job *job);
/* The next `count` input rows; 64 bytes past each row's end must be readable (their value doesn't matter).
 * Rows need not stay after the call. A multiple of 8, but for the last, is fastest: fewer are copied until 8
 * are there. */
void fby_resample_rows(fby_resampler *resampler, const uint8_t *rgb, size_t stride, uint32_t count);
/* After in_h rows: writes the picture. out: out_h x out_w x 3 elements, or x 1 where gray, in the sink's
 * layout, 64 bytes past its end untouched. */
void fby_resample_finish(fby_resampler *resampler, const fby_sink *sink, void *out);

#endif
