#include "codec/fbl/colours.h"

#include <stdlib.h>
#include <string.h>

typedef struct slot {
    fbl_colour colour;
    uint16_t index; /* + 1; 0: free */
} slot;

static inline uint32_t slot_of(fbl_colour colour)
{
    return (uint32_t)(colour * 0x9E3779B97F4A7C15u >> 54);
}

static inline fbl_colour pixel_load(const fbl_file *file, const fby_fbl_place *from, uint32_t x, uint32_t y)
{
    const size_t sample = fbl_sample_bytes(file);
    const uint8_t *row = from->at + y * from->row;
    fbl_colour colour = 0;

    for (uint32_t channel = 0; channel < file->channels; channel++) {
        const uint8_t *at = from->planar ? row + channel * from->plane + x * sample
                                         : row + ((size_t)x * file->channels + channel) * sample;
        uint16_t value = *at;
        if (sample == 2) memcpy(&value, at, 2);
        colour |= (fbl_colour)value << 16 * channel;
    }
    return colour;
}

void fbl_colour_store(const fbl_file *file, fbl_colour colour, uint8_t *samples)
{
    for (uint32_t channel = 0; channel < file->channels; channel++, colour >>= 16) {
        uint16_t value = (uint16_t)colour;
        if (file->bits > 8)
            memcpy(samples + (size_t)channel * 2, &value, 2);
        else
            samples[channel] = (uint8_t)value;
    }
}

typedef struct rank {
    uint32_t uses, index;
    fbl_colour colour;
} rank;

static int by_uses(const void *a, const void *b)
{
    const rank *first = a, *second = b;
    if (first->uses != second->uses) return first->uses < second->uses ? 1 : -1;
    return (first->colour > second->colour) - (first->colour < second->colour);
}

static void sort_by_uses(fbl_colours *it, size_t pixels)
{
    rank ranks[FBY_FBL_COLOURS];
    uint8_t to[FBY_FBL_COLOURS];

    for (uint32_t i = 0; i < it->count; i++) ranks[i] = (rank){it->uses[i], i, it->colour[i]};
    qsort(ranks, it->count, sizeof *ranks, by_uses);
    for (uint32_t i = 0; i < it->count; i++) {
        to[ranks[i].index] = (uint8_t)i;
        it->colour[i] = ranks[i].colour;
        it->uses[i] = ranks[i].uses;
    }
    for (size_t i = 0; i < pixels; i++) it->index[i] = to[it->index[i]];
}

void fbl_colours_collect(const fbl_file *file, const fby_fbl_place *from, uint32_t width, uint32_t height,
                         fbl_colours *out)
{
    slot slots[FBL_COLOUR_SLOTS] = {0};
    uint8_t *index = out->index;
    fbl_colour last = 0;
    uint32_t last_index = FBL_TOO_MANY;

    out->count = 0;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            fbl_colour colour = pixel_load(file, from, x, y);
            if (colour != last || last_index == FBL_TOO_MANY) {
                uint32_t at = slot_of(colour);
                while (slots[at].index && slots[at].colour != colour) at = (at + 1) % FBL_COLOUR_SLOTS;
                if (!slots[at].index) {
                    if (out->count == FBY_FBL_COLOURS) {
                        out->count = FBL_TOO_MANY;
                        return;
                    }
                    out->colour[out->count] = colour;
                    out->uses[out->count] = 0;
                    slots[at] = (slot){colour, (uint16_t)++out->count};
                }
                last = colour;
                last_index = slots[at].index - 1u;
            }
            out->uses[last_index]++;
            *index++ = (uint8_t)last_index;
        }
    }
    sort_by_uses(out, (size_t)width * height);
}

static int by_number(const void *a, const void *b)
{
    fbl_colour first = *(const fbl_colour *)a, second = *(const fbl_colour *)b;
    return (first > second) - (first < second);
}

static int by_rank_number(const void *a, const void *b)
{
    const rank *first = a, *second = b;
    return (first->colour > second->colour) - (first->colour < second->colour);
}

void fbl_shared_choose(fbl_colour *colours, size_t count, fbl_shared *out)
{
    rank *ranks = (rank *)malloc((count ? count : 1) * sizeof *ranks);
    size_t distinct = 0;

    out->count = 0;
    if (!ranks) return;
    qsort(colours, count, sizeof *colours, by_number);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && colours[end] == colours[i];) end++;
        if (end - i > 1) ranks[distinct++] = (rank){.uses = (uint32_t)(end - i), .colour = colours[i]};
    }
    qsort(ranks, distinct, sizeof *ranks, by_uses);
    out->count = distinct < FBY_FBL_COLOURS ? (uint32_t)distinct : FBY_FBL_COLOURS;
    for (uint32_t i = 0; i < out->count; i++) {
        out->colour[i] = ranks[i].colour;
        ranks[i].index = i;
    }
    qsort(ranks, out->count, sizeof *ranks, by_rank_number);
    for (uint32_t i = 0; i < out->count; i++) out->sorted[i] = ranks[i].index;
    free(ranks);
}

int32_t fbl_shared_find(const fbl_shared *shared, fbl_colour colour)
{
    uint32_t low = 0, high = shared->count;

    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (shared->colour[shared->sorted[middle]] < colour)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == shared->count || shared->colour[shared->sorted[low]] != colour) return -1;
    return (int32_t)shared->sorted[low];
}
