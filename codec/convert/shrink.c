#include "codec/convert/shrink.h"

#include <stdlib.h>
#include <string.h>

enum { MARGIN = 64, ROWS_AT_ONCE = 8 };

void fby_shrink_size(uint32_t w, uint32_t h, uint32_t most, uint32_t *out_w, uint32_t *out_h)
{
    uint32_t longer = w > h ? w : h;
    uint64_t shorter = (uint64_t)most * (w > h ? h : w) / longer;

    if (!shorter) shorter = 1;
    *out_w = w > h ? most : (uint32_t)shorter;
    *out_h = w > h ? (uint32_t)shorter : most;
}

/* One pass through the resampler, which takes three channels: `first` and what follows of the picture's, the
 * last one repeated where there are no more. */
static int shrink_three(fby_resampler *resampler, const fby_shrink *shrink, uint32_t first, const uint8_t *in,
                        uint8_t *rows, uint8_t *small)
{
    const fby_resample_job job = {.in_w = shrink->w,
                                  .in_h = shrink->h,
                                  .out_w = shrink->out_w,
                                  .out_h = shrink->out_h,
                                  .filter = FBY_FILTER_BILINEAR,
                                  .pillow = 13};
    const uint32_t last = shrink->channels - 1;
    const size_t stride = (size_t)shrink->w * 3;
    fby_sink sink = {.dtype = FBY_U8, .layout = FBY_HWC};

    if (fby_sink_prepare(&sink) || fby_resample_begin(resampler, &job)) return -1;
    for (uint32_t y = 0; y < shrink->h; y += ROWS_AT_ONCE) {
        uint32_t count = shrink->h - y < ROWS_AT_ONCE ? shrink->h - y : ROWS_AT_ONCE;
        uint8_t *to = rows;
        for (size_t i = 0; i < (size_t)count * shrink->w; i++, in += shrink->channels, to += 3) {
            for (uint32_t c = 0; c < 3; c++) to[c] = in[first + c < last ? first + c : last];
        }
        fby_resample_rows(resampler, rows, stride, count);
    }
    fby_resample_finish(resampler, &sink, small);
    return 0;
}

int fby_shrink_bytes(fby_resampler *resampler, const fby_shrink *shrink, const uint8_t *in, uint8_t *out)
{
    const size_t pixels = (size_t)shrink->out_w * shrink->out_h;
    uint8_t *rows = calloc(1, (size_t)shrink->w * 3 * ROWS_AT_ONCE + MARGIN);
    uint8_t *small = malloc(pixels * 3 + MARGIN);
    int status = rows && small ? 0 : -1;

    for (uint32_t first = 0; first < shrink->channels && !status; first += 3) {
        const uint32_t count = shrink->channels - first < 3 ? shrink->channels - first : 3;
        status = shrink_three(resampler, shrink, first, in, rows, small);
        for (size_t i = 0; i < pixels && !status; i++) {
            memcpy(out + i * shrink->channels + first, small + i * 3, count);
        }
    }
    free(rows);
    free(small);
    return status;
}
