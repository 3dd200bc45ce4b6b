/* The sampler's generator: SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators",
 * OOPSLA 2014), with Stafford's mix 13 as its finaliser. Small enough that the model's port in the tests
 * shares it, number by number. */
#ifndef FBY_DATAPLANE_SAMPLER_GENERATOR_H
#define FBY_DATAPLANE_SAMPLER_GENERATOR_H

#include <stdint.h>

#define FBY_GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t fby_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

typedef struct fby_generator {
    uint64_t state;
} fby_generator;

static inline uint64_t fby_generator_next(fby_generator *generator)
{
    generator->state += FBY_GOLDEN;
    return fby_mix64(generator->state);
}

/* Uniform in 0 … below - 1, but for a bias under below / 2^64. */
static inline uint64_t fby_generator_below(fby_generator *generator, uint64_t below)
{
    return (uint64_t)(((unsigned __int128)fby_generator_next(generator) * below) >> 64);
}

#endif
