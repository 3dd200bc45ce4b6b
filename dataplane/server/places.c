/* Places: which samples of a group's segments are whose.
 *
 * A place goes round: free; taken for the seats of a draw, a worker writing to it; filled; free again once
 * the last seat has given it back. It is free only when nobody holds it and nobody writes to it; each round
 * has a generation of its own. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/server/internal.h"

enum { WORD = 64 };

static bool bit_get(const uint64_t *bitmap, uint32_t index)
{
    return bitmap[index / WORD] >> (index % WORD) & 1;
}

static void bit_set(uint64_t *bitmap, uint32_t index)
{
    bitmap[index / WORD] |= UINT64_C(1) << (index % WORD);
}

static void bit_clear(uint64_t *bitmap, uint32_t index)
{
    bitmap[index / WORD] &= ~(UINT64_C(1) << (index % WORD));
}

/* --- stores
 * -------------------------------------------------------------------------------------------------------- */

int fby_store_make(fby_store *store, const fby_branch_info *info, fby_error *error)
{
    fby_segment_shape shape = {.segment = store->block,
                               .first_block = store->block,
                               .blocks = 1,
                               .capacity = store->places,
                               .sample_bytes = info->sample_bytes,
                               .dtype = info->dtype,
                               .dimensions = info->dimensions};
    memcpy(shape.shape, info->shape, sizeof shape.shape);
    uint32_t words = (store->places + WORD - 1) / WORD;
    store->free = calloc(words, sizeof *store->free);
    store->filling = calloc(words, sizeof *store->filling);
    store->holders = calloc(store->places, sizeof *store->holders);
    store->generations = calloc(store->places, sizeof *store->generations);
    if (!store->free || !store->filling || !store->holders || !store->generations)
        return fby_fail(error, FBY_ENOMEM, "no memory for the bookkeeping of %u places", store->places);
    for (uint32_t i = 0; i < store->places; i++) bit_set(store->free, i);
    store->free_count = store->places;
    int status = fby_segment_create(&store->segment, &shape, -1, error);
    return status ? status : fby_region_seal(&store->segment, error);
}

void fby_store_free(fby_store *store)
{
    if (!store) return;
    fby_region_close(&store->segment);
    free(store->free);
    free(store->filling);
    free(store->holders);
    free(store->generations);
    free(store);
}

static fby_store *store_of(const fby_source *source, uint32_t place)
{
    return source->stores[place >> 16];
}

/* --- taking
 * -------------------------------------------------------------------------------------------------------- */

/* The length of the free run that begins at `index`, up to `most`. */
static uint32_t run_length(const fby_store *store, uint32_t index, uint32_t most)
{
    uint32_t length = 0;
    while (length < most && index + length < store->places) {
        uint32_t at = index + length;
        uint64_t word = store->free[at / WORD] >> (at % WORD);
        uint32_t ones = ~word ? (uint32_t)__builtin_ctzll(~word) : WORD;
        uint32_t left = WORD - at % WORD;
        length += ones < left ? ones : left;
        if (ones < left) break;
    }
    return length < most ? length : most;
}

/* The next free place at or after `index`, or the store's end. */
static uint32_t next_free(const fby_store *store, uint32_t index)
{
    while (index < store->places) {
        uint64_t word = store->free[index / WORD] >> (index % WORD);
        if (word) {
            index += (uint32_t)__builtin_ctzll(word);
            return index < store->places ? index : store->places;
        }
        index += WORD - index % WORD;
    }
    return store->places;
}

/* A run of `count` free places: at a multiple of `count`, so that whole batches leave no odd gaps, else
 * anywhere; else the longest there is. Its length. */
static uint32_t run_find(const fby_group *group, uint32_t count, fby_store **in, uint32_t *at)
{
    uint32_t best = 0;
    for (int aligned = 1; aligned >= 0; aligned--) {
        for (fby_store *store = group->stores; store; store = store->next) {
            if (store->retiring || !store->free_count) continue;
            uint32_t index = 0;
            while ((index = next_free(store, index)) < store->places) {
                if (aligned && index % count) {
                    index += count - index % count;
                    if (index >= store->places || !bit_get(store->free, index)) continue;
                }
                uint32_t length = run_length(store, index, count);
                if (length > best) {
                    best = length;
                    *in = store;
                    *at = index;
                }
                if (best == count) return best;
                index += length;
            }
        }
    }
    return best;
}

void fby_places_take(fby_group *group, uint32_t count, uint64_t seats, uint32_t *places)
{
    while (count) {
        fby_store *store = NULL;
        uint32_t index = 0, length = run_find(group, count, &store, &index);
        for (uint32_t i = index; i < index + length; i++) {
            bit_clear(store->free, i);
            bit_set(store->filling, i);
            store->holders[i] = seats;
            *places++ = store->block << 16 | i;
        }
        store->free_count -= length;
        group->free -= length;
        count -= length;
    }
}

/* --- giving back
 * --------------------------------------------------------------------------------------------------- */

static void settle(fby_store *store, uint32_t index)
{
    if (store->holders[index] || bit_get(store->filling, index) || bit_get(store->free, index)) return;
    bit_set(store->free, index);
    store->generations[index]++;
    store->free_count++;
    if (!store->retiring)
        store->group->free++;
    else if (store->free_count == store->places)
        store->group->source->shrinks = true;
}

void fby_place_filled(fby_source *source, uint32_t place)
{
    fby_store *store = store_of(source, place);
    bit_clear(store->filling, place & UINT16_MAX);
    settle(store, place & UINT16_MAX);
}

bool fby_place_reuse(fby_source *source, uint32_t place, uint64_t seats)
{
    fby_store *store = store_of(source, place);
    uint32_t index = place & UINT16_MAX;
    if (!store->holders[index] || store->holders[index] & ~seats || bit_get(store->filling, index))
        return false;
    bit_set(store->filling, index);
    return true;
}

void fby_place_release(fby_source *source, uint32_t place, uint64_t seats)
{
    fby_store *store = store_of(source, place);
    store->holders[place & UINT16_MAX] &= ~seats;
    settle(store, place & UINT16_MAX);
}

fby_target fby_place_target(const fby_source *source, uint32_t place)
{
    fby_store *store = store_of(source, place);
    const fby_segment_header *head = fby_segment_head(&store->segment);
    uint32_t index = place & UINT16_MAX;
    return (fby_target){(uint8_t *)fby_block_payload(&store->segment, 0) + index * head->sample_stride,
                        fby_sample_meta_at(fby_block_meta_at(&store->segment, 0), index)};
}
