/* A task's part of the ids: a bitmap with a directory of counts, so that the k-th id and an id's rank are
 * found in a few steps. Tasks of the same subset share one. Immutable but for its use count. */
#ifndef FBY_DATAPLANE_SAMPLER_SUBSET_H
#define FBY_DATAPLANE_SAMPLER_SUBSET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fby_subset {
    uint64_t *words;  /* bits from `ids` on are clear */
    uint32_t *before; /* per 512 ids: how many of the subset stand before them */
    uint64_t hash;
    uint32_t ids;  /* of the whole set */
    uint32_t size; /* of the subset; may be 0 */
    uint32_t uses;
} fby_subset;

/* Bits of `words` from `ids` on don't count. */
fby_subset *fby_subset_create(const uint64_t *words, uint32_t ids); /* NULL without memory */
void fby_subset_destroy(fby_subset **subset);

/* Tells most bitmaps apart; whether two are equal. */
uint64_t fby_subset_hash(const uint64_t *words, uint32_t ids);
bool fby_subset_equal(const fby_subset *subset, const uint64_t *words, uint64_t hash);
uint32_t fby_subset_at(const fby_subset *subset, uint32_t rank); /* rank < size */
uint32_t fby_subset_rank(const fby_subset *subset, uint32_t id); /* how many stand before it */
uint64_t fby_subset_bytes(const fby_subset *subset);

static inline bool fby_subset_has(const fby_subset *subset, uint32_t id)
{
    return subset->words[id / 64] >> (id % 64) & 1;
}

#endif
