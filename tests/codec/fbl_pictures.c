#include "tests/codec/fbl_pictures.h"

#include <stdlib.h>

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static uint32_t sample_of(fbl_kind kind, uint32_t x, uint32_t y, uint32_t channel, uint32_t bits,
                          uint32_t seed, uint32_t *state)
{
    uint32_t most = (1u << bits) - 1, slope = x * (3 + seed % 5) + y * (2 + channel) + seed;

    switch (kind) {
    case FBL_NOISE:
        return draw(state) & most;
    case FBL_SMOOTH:
        return (slope << (bits - 8)) / 2 + draw(state) % 5;
    case FBL_ONE:
        return seed * 7 + channel;
    case FBL_AREAS:
        return ((x / 13 + seed) * 5 + (x + y) / 17 * 3 + channel) % 9 * (most / 9);
    case FBL_DOTS:
        return (draw(state) % 15 == 0 ? seed + (x * y) % 40 : seed) * (most / 64) + channel;
    case FBL_SPECKS:
        return draw(state) % 4 ? seed : seed + draw(state) % 300 * 217;
    default:
        return draw(state) & 1 ? most : 0;
    }
}

fbl_picture fbl_picture_make(fbl_kind kind, uint32_t width, uint32_t height, uint32_t channels, uint32_t bits,
                             uint32_t seed)
{
    fbl_picture made = {.image = FBY_FBL_IMAGE_INIT};
    uint32_t state = seed * 2654435761u + width * 31 + height, mask = (1u << bits) - 1;

    made.bytes = (size_t)width * height * channels * (bits > 8 ? 2 : 1);
    made.samples = malloc(made.bytes);
    if (!made.samples) abort();
    made.image.data = made.samples;
    made.image.width = width;
    made.image.height = height;
    made.image.channels = channels;
    made.image.bits = bits;
    for (uint32_t y = 0, i = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            /* A few kinds draw a pixel's colour at once, so that there are not too many. */
            uint32_t pixel = sample_of(kind, x, y, 0, bits, seed, &state);
            for (uint32_t channel = 0; channel < channels; channel++, i++) {
                uint32_t value = pixel + channel;
                if (kind == FBL_SPECKS)
                    value = pixel >> 4 * channel;
                else if (kind != FBL_DOTS)
                    value = sample_of(kind, x, y, channel, bits, seed, &state);
                if (bits > 8)
                    ((uint16_t *)made.samples)[i] = (uint16_t)(value & mask);
                else
                    ((uint8_t *)made.samples)[i] = (uint8_t)value;
            }
        }
    }
    return made;
}

void fbl_picture_free(fbl_picture *picture)
{
    free(picture->samples);
    *picture = (fbl_picture){.image = FBY_FBL_IMAGE_INIT};
}
