/* The sink: 256 levels a channel, as exact values, and the conversion of whole pictures. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/resample_kernels.h"

/* x / d as two operations: d's reciprocal as a high and a low part, the low product added by a fused
 * multiply. */
static void reciprocal_of(double d, float *high, float *low)
{
    *high = (float)(1.0 / d);
    *low = (float)(1.0 / d - (double)*high);
}

static float multiplied(const fby_sink *sink, int channel, uint32_t level)
{
    float v = (float)level;
    float unit = fmaf(v, sink->scale_high, v * sink->scale_low);
    float centred = unit - sink->shift[channel];
    return fmaf(centred, sink->reciprocal_high[channel], centred * sink->reciprocal_low[channel]);
}

static void multiplication_prepare(fby_sink *sink)
{
    reciprocal_of(sink->normalize || sink->unit ? 255.0 : 1.0, &sink->scale_high, &sink->scale_low);
    sink->exact_by_multiplication = true;
    for (int channel = 0; channel < 3; channel++) {
        sink->shift[channel] = sink->normalize ? sink->mean[channel] : 0.0f;
        double divisor = sink->normalize ? (double)sink->std[channel] : 1.0;
        reciprocal_of(divisor, &sink->reciprocal_high[channel], &sink->reciprocal_low[channel]);

        for (uint32_t level = 0; level < 256; level++) {
            float exact = sink->table[channel][level], tried = multiplied(sink, channel, level);
            bool same = fby_float_bits(exact) == fby_float_bits(tried) && isfinite(exact);
            sink->exact_by_multiplication = sink->exact_by_multiplication && same;
        }
    }
}

int fby_sink_prepare(fby_sink *sink)
{
    sink->exact_by_multiplication = false;
    if (sink->dtype == FBY_U8) return sink->normalize ? -1 : 0;
    if (sink->dtype != FBY_F32 && sink->dtype != FBY_F16 && sink->dtype != FBY_BF16) return -1;

    for (int channel = 0; channel < 3; channel++) {
        float mean = sink->mean[channel], std = sink->std[channel];
        if (sink->normalize && (!isfinite(mean) || !isfinite(std) || std == 0.0f)) return -1;

        for (uint32_t level = 0; level < 256; level++) {
            float value = (float)level;
            if (sink->normalize || sink->unit) value = value / 255.0f;
            if (sink->normalize) {
                float centred = value - mean;
                value = centred / std;
            }
            sink->table[channel][level] = value;
            sink->half[channel][level] = sink->dtype == FBY_BF16 ? fby_bfloat16(value) : fby_float16(value);
        }
    }
    multiplication_prepare(sink);
    return 0;
}

enum { CHUNK = 512 }; /* pixels converted at a time: their planes stay in the nearest cache */

void fby_sink_write_with(const fby_sink *sink, const fby_kernels *kernels, const uint8_t *rgb, size_t stride,
                         uint32_t w, uint32_t h, bool flip_horizontal, bool flip_vertical, void *out)
{
    size_t element = fby_dtype_bytes(sink->dtype), width = w, height = h;
    uint8_t planes[3 * CHUNK], mirrored[3 * CHUNK];
    size_t channels = sink->gray ? 1 : 3;
    bool together =
        sink->layout == FBY_HWC && !sink->gray; /* one channel alone is a plane in either layout */
    char *to = out;

    for (size_t row = 0; row < height; row++, rgb += stride) {
        size_t y = flip_vertical ? height - 1 - row : row;
        if (together && !flip_horizontal) {
            kernels->convert_rgb(sink, rgb, width, to + y * width * 3 * element);
            continue;
        }

        for (size_t x = 0; x < width; x += CHUNK) {
            size_t n = width - x < CHUNK ? width - x : CHUNK;
            size_t at = flip_horizontal ? width - x - n : x;
            kernels->planes_of_rgb(rgb + 3 * x, n, flip_horizontal, planes, CHUNK);
            if (together) {
                kernels->rgb_of_planes(planes, CHUNK, n, mirrored);
                kernels->convert_rgb(sink, mirrored, n, to + (y * width + at) * 3 * element);
                continue;
            }
            for (size_t channel = 0; channel < channels; channel++) {
                char *plane = to + ((channel * height + y) * width + at) * element;
                kernels->convert_plane(sink, (int)channel, planes + channel * CHUNK, n, plane);
            }
        }
    }
}

void fby_sink_write(const fby_sink *sink, fby_tier tier, const uint8_t *rgb, size_t stride, uint32_t w,
                    uint32_t h, bool flip_horizontal, bool flip_vertical, void *out)
{
    fby_sink_write_with(sink, fby_kernels_of(tier), rgb, stride, w, h, flip_horizontal, flip_vertical, out);
}
