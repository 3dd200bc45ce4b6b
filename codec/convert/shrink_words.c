/* Resizing of more than 8 bits. Source of the arithmetic: ImagingResampleHorizontal_16bpc() and its brother
 * of Pillow's src/libImaging/Resample.c: weights and sums in double precision, rounded to 16 bits after each
 * pass. */
#include <math.h>
#include <stdlib.h>

#include "codec/convert/shrink.h"

/* Of one output: the first of the inputs that it is made of, how many, and where their weights start. */
typedef struct window {
    uint32_t first, count;
    size_t at;
} window;

typedef struct axis {
    window *window; /* [out] */
    double *weight;
} axis;

static void axis_free(axis *of)
{
    free(of->window);
    free(of->weight);
}

static int axis_fill(axis *of, uint32_t in, uint32_t out)
{
    const double scale = (double)in / out;
    const double support = scale < 1 ? 1 : scale; /* bilinear reaches one pixel, stretched by the scale */
    const size_t most = (size_t)ceil(support) * 2 + 1;

    of->window = malloc(out * sizeof *of->window);
    of->weight = malloc(most * out * sizeof *of->weight);
    if (!of->window || !of->weight) return -1;
    for (uint32_t x = 0; x < out; x++) {
        const double centre = (x + 0.5) * scale;
        int64_t from = (int64_t)(centre - support + 0.5), to = (int64_t)(centre + support + 0.5);
        if (from < 0) from = 0;
        if (to > (int64_t)in) to = in;
        double *weight = of->weight + most * x, sum = 0;
        for (int64_t i = 0; i < to - from; i++) {
            double distance = fabs((double)(i + from) - centre + 0.5) * (1.0 / support);
            weight[i] = distance < 1 ? 1 - distance : 0;
            sum += weight[i];
        }
        for (int64_t i = 0; i < to - from && sum != 0; i++) weight[i] /= sum;
        of->window[x] = (window){(uint32_t)from, (uint32_t)(to - from), most * x};
    }
    return 0;
}

/* `count` outputs `out_step` apart, of inputs `in_step` apart. */
static void line_resize(const axis *of, uint32_t count, const uint16_t *in, size_t in_step, uint16_t *out,
                        size_t out_step)
{
    for (uint32_t x = 0; x < count; x++) {
        const window *from = &of->window[x];
        const double *weight = of->weight + from->at;
        double sum = 0;
        for (uint32_t i = 0; i < from->count; i++) sum += in[(from->first + i) * in_step] * weight[i];
        out[x * out_step] = (uint16_t)floor(sum + 0.5);
    }
}

static void rows_resize(const axis *of, const uint16_t *in, uint32_t in_w, uint16_t *out, uint32_t out_w,
                        uint32_t h, uint32_t channels)
{
    for (uint32_t y = 0; y < h; y++) {
        for (uint32_t c = 0; c < channels; c++) {
            line_resize(of, out_w, in + (size_t)y * in_w * channels + c, channels,
                        out + (size_t)y * out_w * channels + c, channels);
        }
    }
}

static void columns_resize(const axis *of, const uint16_t *in, uint16_t *out, uint32_t out_h, size_t row)
{
    for (size_t x = 0; x < row; x++) line_resize(of, out_h, in + x, row, out + x, row);
}

int fby_shrink_words(const fby_shrink *shrink, const uint16_t *in, uint16_t *out)
{
    const uint32_t w = shrink->w, h = shrink->h, channels = shrink->channels;
    const int64_t lost_w = (int64_t)w - shrink->out_w, lost_h = (int64_t)h - shrink->out_h;
    const bool columns_first = lost_h > 0 && lost_h > 2 * lost_w; /* Pillow 13's order */
    const size_t between = (columns_first ? (size_t)w * shrink->out_h : (size_t)shrink->out_w * h) * channels;
    axis across = {0}, down = {0};
    uint16_t *middle = malloc(between * sizeof *middle);
    int status =
        middle && !axis_fill(&across, w, shrink->out_w) && !axis_fill(&down, h, shrink->out_h) ? 0 : -1;

    if (!status && columns_first) {
        columns_resize(&down, in, middle, shrink->out_h, (size_t)w * channels);
        rows_resize(&across, middle, w, out, shrink->out_w, shrink->out_h, channels);
    } else if (!status) {
        rows_resize(&across, in, w, middle, shrink->out_w, h, channels);
        columns_resize(&down, middle, out, shrink->out_h, (size_t)shrink->out_w * channels);
    }
    axis_free(&across);
    axis_free(&down);
    free(middle);
    return status;
}
