/* Philox4x32-10, the counter-based generator of every augmentation.
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Known-answer vectors of the
 * Random123 distribution are in its test. */
#ifndef FBY_KERNELS_PHILOX_H
#define FBY_KERNELS_PHILOX_H

#include <stdint.h>

typedef struct fby_philox4 {
    uint32_t word[4];
} fby_philox4;

static inline fby_philox4 fby_philox(const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (fby_philox4){{c0, c1, c2, c3}};
}

/* A stream of draws for one random op on one sample. */
typedef struct fby_random {
    uint32_t key[2];
    uint32_t counter[4];
    fby_philox4 block;
    uint32_t used; /* words of `block` used up; 4 = none left */
} fby_random;

/* key: (augment_seed, ordinal of the op among the pipeline's random ops). counter: (turn, id, repeat, n):
 * turn is the epoch in strict order, the visit in shared order; n counts blocks. 64-bit values are folded:
 * word 0 = turn, word 1 = low half of id, word 2 = high half of id << 16 ^ repeat, word 3 = n. */
static inline void fby_random_start(fby_random *random, uint64_t augment_seed, uint32_t ordinal,
                                    uint64_t turn, uint64_t id, uint32_t repeat)
{
    random->key[0] = (uint32_t)augment_seed;
    random->key[1] = (uint32_t)(augment_seed >> 32) ^ (ordinal * 0x9E3779B1u);
    random->counter[0] = (uint32_t)turn;
    random->counter[1] = (uint32_t)id;
    random->counter[2] = ((uint32_t)(id >> 32) << 16) ^ repeat;
    random->counter[3] = 0;
    random->used = 4;
}

static inline uint32_t fby_random_u32(fby_random *random)
{
    if (random->used == 4) {
        random->block = fby_philox(random->counter, random->key);
        random->counter[3]++;
        random->used = 0;
    }
    return random->block.word[random->used++];
}

/* Uniform in [0, 1), 53 bits. */
static inline double fby_random_unit(fby_random *random)
{
    uint64_t high = fby_random_u32(random), low = fby_random_u32(random);
    return (double)((high << 32 | low) >> 11) * (1.0 / 9007199254740992.0);
}

/* Uniform in [0, n), n > 0, without bias: Lemire, "Fast random integer generation in an interval", 2019. */
static inline uint32_t fby_random_below(fby_random *random, uint32_t n)
{
    uint64_t product = (uint64_t)fby_random_u32(random) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = (0u - n) % n;
        while ((uint32_t)product < threshold) product = (uint64_t)fby_random_u32(random) * n;
    }
    return (uint32_t)(product >> 32);
}

#endif
