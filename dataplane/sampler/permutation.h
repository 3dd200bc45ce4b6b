/* A keyed permutation of 0 … n - 1 that needs no table: what a fixed order is read from, at any position, in
 * both directions.
 *
 * A generalised Feistel network on pairs (x mod a, x div a) with a * b >= n, a and b as near to sqrt(n) as
 * they can be, and cycle walking for the few values beyond n: Black and Rogaway, "Ciphers with Arbitrary
 * Finite Domains", CT-RSA 2002, methods 2 and 3. The round function is a mixed 64-bit hash, which is plenty
 * for shuffling and not meant for secrets. */
#ifndef FBY_DATAPLANE_SAMPLER_PERMUTATION_H
#define FBY_DATAPLANE_SAMPLER_PERMUTATION_H

#include <stdint.h>

enum { FBY_PERMUTATION_ROUNDS = 24 };

typedef struct fby_permutation {
    uint32_t n, a, b;
    uint64_t keys[FBY_PERMUTATION_ROUNDS];
} fby_permutation;

/* The permutation that belongs to (seed, epoch); n >= 1. The same on every machine and in every version:
 * orders depend on it. */
void fby_permutation_set(fby_permutation *permutation, uint32_t n, uint64_t seed, uint64_t epoch);
uint32_t fby_permutation_at(const fby_permutation *permutation, uint32_t position);
/* The position at which `value` stands. */
uint32_t fby_permutation_find(const fby_permutation *permutation, uint32_t value);

#endif
