/* The C tier. Sources: Pillow's ImagingBlend() (Blend.c), rgb2l(), rgb2hsv_row() and hsv2rgb() (Convert.c).
 *
 * Of Pillow's conversions, which mix float and double, only the roundings that can show are kept. That the
 * results are equal is not proven but tried, for every colour: tests/python/test_kernels.py. */
#include <string.h>

#include "kernels/adjust_kernels.h"

static uint8_t gray_of(const uint8_t p[3])
{
    return (uint8_t)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >> 16);
}

static uint8_t blended(float base, float factor, uint8_t level)
{
    float v = base + factor * ((float)level - base);
    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

/* Hue in steps of 1/255 turn. `pixel` is not gray. Of the two quotients by which Pillow computes the hue,
 * that of the channel which is the least is 1. */
static uint32_t hue_of(const uint8_t p[3], uint8_t most, uint8_t least)
{
    float chroma = (float)(most - least);
    int sector = p[0] == most ? 0 : p[1] == most ? 1 : 2;
    uint8_t up = p[(sector + 2) % 3], down = p[(sector + 1) % 3]; /* bc - gc, 2 + rc - bc, 4 + gc - rc */
    float hue = up == least ? (float)(2 * sector + 1) - (float)(most - down) / chroma
                            : (float)(2 * sector - 1) + (float)(most - up) / chroma;
    float turns = hue / 6.0f;
    return (uint32_t)((turns < 0 ? turns + 1.0f : turns) * 255.0f);
}

/* round(value * (1 - part / 65025)), which is never halfway between two numbers: 65025 is odd. */
static uint8_t faded(uint32_t value, uint32_t part)
{
    return (uint8_t)((2 * value * (65025 - part) + 65025) / (2 * 65025));
}

static void turn(uint8_t pixel[3], uint32_t by)
{
    uint8_t most = pixel[0] > pixel[1] ? pixel[0] : pixel[1],
            least = pixel[0] < pixel[1] ? pixel[0] : pixel[1];
    if (pixel[2] > most) most = pixel[2];
    if (pixel[2] < least) least = pixel[2];
    if (most == least) return;

    uint32_t hue = (hue_of(pixel, most, least) + by) & 255;
    uint32_t saturation = (uint32_t)((float)(most - least) / (float)most * 255.0f);
    uint32_t sixth = hue * 6 / 255, within = hue * 6 % 255;
    uint8_t p = faded(most, saturation * 255), q = faded(most, saturation * within),
            t = faded(most, saturation * (255 - within));
    const uint8_t colours[6][3] = {{most, t, p}, {q, most, p}, {p, most, t},
                                   {p, q, most}, {t, p, most}, {most, p, q}};
    memcpy(pixel, colours[sixth % 6], 3);
}

static void row_c(const fby_adjust_step *steps, uint32_t count, uint8_t *rgb, size_t n)
{
    for (const fby_adjust_step *step = steps; step < steps + count; step++) {
        if (step->kind == FBY_STEP_TURN) {
            for (size_t i = 0; i < n; i++) turn(rgb + 3 * i, step->turn);
            continue;
        }
        if (step->kind == FBY_STEP_SATURATE) {
            for (size_t i = 0; i < n; i++) {
                uint8_t *pixel = rgb + 3 * i, gray = gray_of(pixel);
                for (int c = 0; c < 3; c++) pixel[c] = blended(gray, step->factor, pixel[c]);
            }
            continue;
        }
        uint8_t table[256];
        for (uint32_t v = 0; v < 256; v++) table[v] = blended(step->base, step->factor, (uint8_t)v);
        for (size_t i = 0; i < 3 * n; i++) rgb[i] = table[rgb[i]];
    }
}

static uint64_t gray_sum_c(const uint8_t *rgb, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += gray_of(rgb + 3 * i);
    return sum;
}

const fby_adjust_kernels fby_adjust_kernels_c = {.row = row_c, .gray_sum = gray_sum_c};
