/* From counted residuals to the sets that code them in least bits. Integers only, so that every machine makes
 * the same. Private to codec/fbl/. */
#ifndef FBY_CODEC_FBL_TRAIN_H
#define FBY_CODEC_FBL_TRAIN_H

#include "kernels/fbl.h"

enum { FBL_BUCKETS = 256 };

/* How values are counted: 8-bit ones each, longer ones in runs that grow with them. A class begins and ends
 * where buckets do. */
typedef struct fbl_buckets {
    uint32_t count;
    uint32_t first[FBL_BUCKETS + 1]; /* value; the last is the end */
} fbl_buckets;

static inline uint32_t fbl_bucket_of(uint32_t value, uint32_t bits)
{
    if (bits == 8 || value < 32) return value;
    uint32_t top = 31 - (uint32_t)__builtin_clz(value);
    return 32 + (top - 5) * 16 + (value >> (top - 4) & 15);
}

void fbl_buckets_make(uint32_t bits, fbl_buckets *buckets);

typedef uint32_t fbl_counts[FBY_FBL_SUMS][FBL_BUCKETS];

/* Contexts are runs of sums, as residuals' sums have an order. */
void fbl_train_residuals(const fbl_counts counts, uint32_t bits, uint32_t shift, fby_fbl_set *set);
/* Contexts are any sets of sums: which neighbours of an index are equal. */
void fbl_train_indices(const fbl_counts counts, fby_fbl_set *set);

/* What `counts` would take with an ideal code for each row, in bits. */
uint64_t fbl_entropy_bits(const uint32_t (*counts)[FBL_BUCKETS], uint32_t rows, const fbl_buckets *buckets);

#endif
