/* The reference: plain loops, which every other tier is compared with. */
#include "kernels/resample_kernels.h"

#include <string.h>

static void horizontal_c(const fby_horizontal *horizontal, const uint8_t *const row[FBY_BLOCK_ROWS],
                         uint8_t *pairs, size_t pair_bytes)
{
    const fby_taps *taps = horizontal->taps;
    size_t channel = fby_groups(taps->out) * FBY_GROUP_BYTES;

    for (uint32_t y = 0; y < FBY_BLOCK_ROWS; y++) {
        uint8_t *out = pairs + y / 2 * pair_bytes;
        for (uint32_t o = 0; o < taps->out; o++) {
            const uint8_t *pixel = row[y] + (size_t)3 * taps->first[o];
            const int32_t *weight = taps->weight + taps->at[o];
            int32_t r = FBY_WEIGHT_HALF, g = FBY_WEIGHT_HALF, b = FBY_WEIGHT_HALF;
            for (uint32_t i = 0; i < taps->count[o]; i++, pixel += 3) {
                r += pixel[0] * weight[i];
                g += pixel[1] * weight[i];
                b += pixel[2] * weight[i];
            }

            size_t at = fby_paired(horizontal->flip ? taps->out - 1 - o : o, y);
            out[at] = fby_clip(r);
            out[channel + at] = fby_clip(g);
            out[2 * channel + at] = fby_clip(b);
        }
    }
}

static int horizontal_prepare_c(fby_horizontal *horizontal)
{
    horizontal->run = horizontal_c;
    return 0;
}

static void pair_rows_c(const uint8_t *const row[FBY_BLOCK_ROWS], size_t bytes, uint8_t *pairs,
                        size_t pair_bytes)
{
    for (uint32_t y = 0; y < FBY_BLOCK_ROWS; y++) {
        uint8_t *out = pairs + y / 2 * pair_bytes;
        for (size_t x = 0; x < bytes; x++) out[fby_paired(x, y)] = row[y][x];
    }
}

/* One column: a weight is put together again from its low 11 bits and the rest. */
static inline uint8_t vertical_one(const fby_vertical_row *row, size_t x)
{
    const uint8_t *at = row->pairs + fby_paired(x, 0);
    int32_t sum = FBY_WEIGHT_HALF;
    for (uint32_t i = 0; i < row->count; i++, at += row->pair_bytes) {
        uint32_t low = row->weight[2 * i], high = row->weight[2 * i + 1];
        int32_t even = (int16_t)high * 2048 + (int32_t)(low & 0xFFFF);
        int32_t odd = (int16_t)(high >> 16) * 2048 + (int32_t)(low >> 16);
        sum += at[0] * even + at[2] * odd;
    }
    return fby_clip(sum);
}

static void vertical_bytes_c(const fby_vertical_row *row, size_t groups, uint8_t *out)
{
    for (size_t x = 0; x < groups * FBY_GROUP; x++) out[x] = vertical_one(row, x);
}

static void convert_plane_c(const fby_sink *sink, int channel, const uint8_t *in, size_t n, void *out)
{
    if (sink->dtype == FBY_U8) {
        memcpy(out, in, n);
    } else if (sink->dtype == FBY_F32) {
        float *to = out;
        for (size_t i = 0; i < n; i++) to[i] = sink->table[channel][in[i]];
    } else {
        uint16_t *to = out;
        for (size_t i = 0; i < n; i++) to[i] = sink->half[channel][in[i]];
    }
}

static void convert_rgb_c(const fby_sink *sink, const uint8_t *in, size_t n, void *out)
{
    if (sink->dtype == FBY_U8) {
        memcpy(out, in, 3 * n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        for (int channel = 0; channel < 3; channel++) {
            uint8_t level = in[3 * i + channel];
            if (sink->dtype == FBY_F32) {
                ((float *)out)[3 * i + channel] = sink->table[channel][level];
            } else {
                ((uint16_t *)out)[3 * i + channel] = sink->half[channel][level];
            }
        }
    }
}

static void vertical_floats_c(const fby_vertical_row *row, const fby_sink *sink, int channel, size_t n,
                              void *out)
{
    char *to = out;
    size_t element = fby_dtype_bytes(sink->dtype);
    for (size_t x = 0; x < n; x++) {
        uint8_t level = vertical_one(row, x);
        convert_plane_c(sink, channel, &level, 1, to + x * element);
    }
}

static void planes_of_rgb_c(const uint8_t *rgb, size_t n, bool flip, uint8_t *planes, size_t plane)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = flip ? n - 1 - i : i;
        for (int channel = 0; channel < 3; channel++) planes[channel * plane + at] = rgb[3 * i + channel];
    }
}

static void rgb_of_planes_c(const uint8_t *planes, size_t plane, size_t n, uint8_t *rgb)
{
    for (size_t i = 0; i < n; i++) {
        for (int channel = 0; channel < 3; channel++) rgb[3 * i + channel] = planes[channel * plane + i];
    }
}

const fby_kernels fby_kernels_c = {
    .horizontal_prepare = horizontal_prepare_c,
    .pair_rows = pair_rows_c,
    .vertical_bytes = vertical_bytes_c,
    .vertical_floats = vertical_floats_c,
    .convert_plane = convert_plane_c,
    .convert_rgb = convert_rgb_c,
    .planes_of_rgb = planes_of_rgb_c,
    .rgb_of_planes = rgb_of_planes_c,
};
