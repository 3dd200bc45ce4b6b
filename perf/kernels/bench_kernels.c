/* Times the kernels of each tier on what ImageNet training does: crops of RandomResizedCrop of a 500 x 375
 * picture, resized to 224 x 224 and normalised. One JSON line per kernel and tier, {"name", "samples",
 * "unit"}: a sample is the mean over 256 crops, in microseconds a picture, and the tiers take turns.
 *
 *     bench_kernels [samples]      (default 21) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/adjust.h"
#include "kernels/philox.h"
#include "kernels/resample.h"

enum { WIDTH = 500, HEIGHT = 375, SIDE = 224, CROPS = 256, MOST_SAMPLES = 1000, OUTPUTS = 64, ROWS = 16 };

typedef struct crop {
    uint32_t x, y, w, h;
    bool flip;
} crop;

typedef struct bench {
    uint8_t *picture;
    float *out;
    crop crops[CROPS];
    fby_sink normalized, bytes;
    fby_resampler *resampler[FBY_TIERS];
} bench;

typedef enum kernel {
    RESIZE_NORMALIZED,
    RESIZE_BYTES,
    ROWS_ONLY,
    BEGIN_ONLY,
    NORMALIZE_ONLY,
    COLOUR_JITTER,
    KERNELS
} kernel;

static const char *const kernel_names[KERNELS] = {
    "resize_normalize_f32_chw", "resize_u8_hwc",     "resize_rows_only",
    "resize_begin_only",        "normalize_f32_chw", "color_jitter_u8_hwc",
};

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* torchvision's RandomResizedCrop: scale (0.08, 1), ratio (3/4, 4/3). */
static crop crop_draw(fby_random *random)
{
    for (int i = 0; i < 10; i++) {
        double area = WIDTH * HEIGHT * (0.08 + 0.92 * fby_random_unit(random));
        double ratio = exp(log(0.75) + fby_random_unit(random) * (log(4 / 3.0) - log(0.75)));
        uint32_t w = (uint32_t)lround(sqrt(area * ratio)), h = (uint32_t)lround(sqrt(area / ratio));
        if (w == 0 || h == 0 || w > WIDTH || h > HEIGHT) continue;
        return (crop){
            .x = fby_random_below(random, WIDTH - w + 1),
            .y = fby_random_below(random, HEIGHT - h + 1),
            .w = w,
            .h = h,
            .flip = fby_random_below(random, 2) != 0,
        };
    }
    return (crop){.x = (WIDTH - HEIGHT) / 2, .w = HEIGHT, .h = HEIGHT};
}

/* What torchvision's ColorJitter(0.4, 0.4, 0.4, 0.1) may draw, on a copy: adjusted again and again, a picture
 * would be black. */
static void colours_run(bench *it, fby_tier tier, const crop *at)
{
    static const fby_adjustment list[] = {{FBY_ADJUST_HUE, 0.05f},
                                          {FBY_ADJUST_BRIGHTNESS, 1.2f},
                                          {FBY_ADJUST_CONTRAST, 0.8f},
                                          {FBY_ADJUST_SATURATION, 1.3f}};
    uint8_t *copy = (uint8_t *)it->out;
    size_t first = (size_t)at->y % (HEIGHT - SIDE) * WIDTH * 3;
    for (size_t y = 0; y < SIDE; y++)
        memcpy(copy + y * SIDE * 3, it->picture + first + y * WIDTH * 3, (size_t)SIDE * 3);
    fby_adjust(list, sizeof list / sizeof *list, tier, copy, (size_t)SIDE * 3, SIDE, SIDE);
}

static void crop_run(bench *it, fby_tier tier, kernel which, uint32_t i)
{
    const crop *at = &it->crops[i];
    const uint8_t *rgb = it->picture + ((size_t)at->y * WIDTH + at->x) * 3;
    float *out = it->out + (size_t)(i % OUTPUTS) * 3 * SIDE * SIDE;
    if (which == NORMALIZE_ONLY) {
        fby_sink_write(&it->normalized, tier, it->picture, WIDTH * 3, SIDE, SIDE, at->flip, false, out);
        return;
    }

    if (which == COLOUR_JITTER) {
        colours_run(it, tier, at);
        return;
    }

    fby_resample_job job = {
        .in_w = at->w,
        .in_h = at->h,
        .out_w = SIDE,
        .out_h = SIDE,
        .filter = FBY_FILTER_BILINEAR,
        .pillow = 13,
        .flip_horizontal = at->flip,
    };
    if (fby_resample_begin(it->resampler[tier], &job)) abort();
    if (which == BEGIN_ONLY) return;

    for (uint32_t y = 0; y < at->h; y += ROWS) {
        fby_resample_rows(it->resampler[tier], rgb + (size_t)y * WIDTH * 3, WIDTH * 3, ROWS);
    }
    if (which == ROWS_ONLY) return;
    fby_resample_finish(it->resampler[tier], which == RESIZE_NORMALIZED ? &it->normalized : &it->bytes, out);
}

static double sample_take(bench *it, fby_tier tier, kernel which)
{
    double start = now_us();
    for (uint32_t i = 0; i < CROPS; i++) crop_run(it, tier, which, i);
    return (now_us() - start) / CROPS;
}

static int bench_prepare(bench *it)
{
    size_t bytes = (size_t)WIDTH * HEIGHT * 3 + 64;
    it->picture = malloc(bytes);
    it->out = calloc((size_t)OUTPUTS * 3 * SIDE * SIDE, sizeof *it->out);
    if (!it->picture || !it->out) return -1;

    fby_random random;
    fby_random_start(&random, 1, 0, 0, 0, 0);
    for (size_t i = 0; i < bytes; i++) it->picture[i] = (uint8_t)fby_random_u32(&random);
    for (int i = 0; i < CROPS; i++) it->crops[i] = crop_draw(&random);

    it->bytes = (fby_sink){.dtype = FBY_U8, .layout = FBY_HWC};
    it->normalized = (fby_sink){
        .dtype = FBY_F32,
        .layout = FBY_CHW,
        .normalize = true,
        .mean = {0.485f, 0.456f, 0.406f},
        .std = {0.229f, 0.224f, 0.225f},
    };
    if (fby_sink_prepare(&it->bytes) || fby_sink_prepare(&it->normalized)) return -1;
    for (fby_tier tier = 0; tier < FBY_TIERS; tier++) {
        if (fby_tier_supported(tier) && fby_resampler_create(&it->resampler[tier], tier)) return -1;
    }
    return 0;
}

static void samples_print(const char *name, fby_tier tier, const double *samples, int count)
{
    printf("{\"name\": \"%s/%s\", \"samples\": [", name, fby_tier_name(tier));
    for (int i = 0; i < count; i++) printf("%s%.2f", i ? ", " : "", samples[i]);
    printf("], \"unit\": \"us\"}\n");
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 21;
    if (count < 1 || count > MOST_SAMPLES) {
        fprintf(stderr, "bench_kernels: samples must be 1..%d\n", MOST_SAMPLES);
        return 2;
    }

    static bench it;
    static double samples[FBY_TIERS][MOST_SAMPLES];
    int status = bench_prepare(&it);
    if (status) {
        fprintf(stderr, "bench_kernels: out of memory\n");
    } else {
        for (kernel which = 0; which < KERNELS; which++) {
            for (int i = -1; i < count; i++) {
                for (fby_tier tier = 0; tier < FBY_TIERS; tier++) {
                    if (!fby_tier_supported(tier)) continue;
                    double us = sample_take(&it, tier, which);
                    if (i >= 0) samples[tier][i] = us;
                }
            }
            for (fby_tier tier = 0; tier < FBY_TIERS; tier++) {
                if (fby_tier_supported(tier)) samples_print(kernel_names[which], tier, samples[tier], count);
            }
        }
    }

    for (fby_tier tier = 0; tier < FBY_TIERS; tier++) fby_resampler_destroy(&it.resampler[tier]);
    free(it.picture);
    free(it.out);
    return status ? 1 : 0;
}
