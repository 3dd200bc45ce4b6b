#include "codec/fbl/colours.h"

#include <stdlib.h>
#include <string.h>

enum {
    TILE_SLOTS_BITS = 10,
    SHARED_CHOSEN = 256,
    /* Colours that come more often than one in so many pixels, after the first, are no palette's. */
    MANY_PIXELS = 8,
    MANY_FIRST = 512,
    CHANGING_ROWS = 8
};

/* Of a table of colours, open to both sides: whose number is taken is looked for behind. */
typedef struct slot {
    fbl_colour colour;
    uint32_t index; /* + 1; 0: free */
} slot;

static inline slot *slot_find(slot *slots, uint32_t bits, fbl_colour colour)
{
    uint32_t at = (uint32_t)(colour * 0x9E3779B97F4A7C15u >> (64 - bits));

    while (slots[at].index && slots[at].colour != colour) at = (at + 1) & ((1u << bits) - 1);
    return &slots[at];
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
    rank ranks[FBY_FBL_COLOURS] = {0};
    uint16_t to[FBY_FBL_COLOURS] = {0};

    for (uint32_t i = 0; i < it->count; i++) ranks[i] = (rank){it->uses[i], i, it->colour[i]};
    qsort(ranks, it->count, sizeof *ranks, by_uses);
    for (uint32_t i = 0; i < it->count; i++) {
        to[ranks[i].index] = (uint16_t)i;
        it->colour[i] = ranks[i].colour;
        it->uses[i] = ranks[i].uses;
    }
    for (size_t i = 0; i < pixels; i++) it->index[i] = to[it->index[i]];
}

void fbl_colours_collect(const fbl_file *file, const fby_fbl_place *from, uint32_t width, uint32_t height,
                         uint32_t run, fbl_colours *out)
{
    slot slots[1 << TILE_SLOTS_BITS] = {0};
    slot *last = &slots[0];
    uint16_t *index = out->index;

    uint32_t changes = 0;

    out->count = 0;
    for (uint32_t y = 0; y < height; y++) {

        if (y >= CHANGING_ROWS && changes * run > y * width) {
            out->count = FBL_TOO_MANY;
            return;
        }
        for (uint32_t x = 0; x < width; x++) {
            fbl_colour colour = pixel_load(file, from, x, y);
            if (colour != last->colour || !last->index) {
                last = slot_find(slots, TILE_SLOTS_BITS, colour);
                changes++;
            }
            if (!last->index) {
                uint64_t seen = (uint64_t)y * width + x;
                if (out->count == FBY_FBL_COLOURS || out->count * MANY_PIXELS > seen + MANY_FIRST) {
                    out->count = FBL_TOO_MANY;
                    return;
                }
                out->colour[out->count] = colour;
                out->uses[out->count] = 0;
                *last = (slot){colour, ++out->count};
            }
            out->uses[last->index - 1]++;
            *index++ = (uint16_t)(last->index - 1);
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

static void shared_fill(rank *ranks, uint32_t count, fbl_shared *out)
{
    out->count = count;
    qsort(ranks, count, sizeof *ranks, by_uses);
    for (uint32_t i = 0; i < count; i++) {
        out->colour[i] = ranks[i].colour;
        ranks[i].index = i;
    }
    qsort(ranks, count, sizeof *ranks, by_rank_number);
    for (uint32_t i = 0; i < count; i++) out->sorted[i] = (uint16_t)ranks[i].index;
}

static bool shared_count(const fbl_file *file, const fby_fbl_place *from, uint32_t most, slot *slots,
                         uint32_t bits, rank *ranks, uint32_t *count)
{
    slot *last = &slots[0];

    for (uint32_t y = 0; y < file->height; y++) {
        for (uint32_t x = 0; x < file->width; x++) {
            fbl_colour colour = pixel_load(file, from, x, y);
            if (colour != last->colour || !last->index) last = slot_find(slots, bits, colour);
            if (!last->index) {
                if (*count == most) return false;
                ranks[*count] = (rank){.colour = colour};
                *last = (slot){colour, ++*count};
            }
            ranks[last->index - 1].uses++;
        }
    }
    return true;
}

int fbl_shared_collect(const fbl_file *file, const fby_fbl_place *from, uint32_t most, fby_buffer *memory,
                       fbl_shared *out)
{
    uint32_t count = 0, bits = TILE_SLOTS_BITS;

    out->count = 0;
    while (1u << bits < 2 * most) bits++;
    size_t slot_bytes = sizeof(slot) << bits;
    if (fby_buffer_reserve(memory, slot_bytes + most * sizeof(rank))) return -1;
    slot *slots = memory->data;
    rank *ranks = (rank *)((uint8_t *)memory->data + slot_bytes);
    memset(slots, 0, slot_bytes);
    if (!shared_count(file, from, most, slots, bits, ranks, &count)) return 1;
    shared_fill(ranks, count, out);
    return 0;
}

int fbl_shared_choose(fbl_colour *colours, size_t count, fbl_shared *out)
{
    rank *ranks = malloc((count ? count : 1) * sizeof *ranks);
    size_t distinct = 0;

    out->count = 0;
    if (!ranks) return -1;
    qsort(colours, count, sizeof *colours, by_number);
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && colours[end] == colours[i];) end++;
        if (end - i > 1) ranks[distinct++] = (rank){.uses = (uint32_t)(end - i), .colour = colours[i]};
    }
    qsort(ranks, distinct, sizeof *ranks, by_uses);
    shared_fill(ranks, distinct < SHARED_CHOSEN ? (uint32_t)distinct : SHARED_CHOSEN, out);
    free(ranks);
    return 0;
}

void fbl_shared_indices(const fbl_file *file, const fby_fbl_place *from, uint32_t width, uint32_t height,
                        const fbl_shared *shared, uint16_t *index)
{
    fbl_colour last = 0;
    int32_t place = -1;

    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            fbl_colour colour = pixel_load(file, from, x, y);
            if (place < 0 || colour != last) place = fbl_shared_find(shared, last = colour);
            *index++ = (uint16_t)place;
        }
    }
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
