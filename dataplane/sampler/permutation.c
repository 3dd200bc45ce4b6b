#include "dataplane/sampler/permutation.h"

#include "dataplane/sampler/generator.h"

void fby_permutation_set(fby_permutation *permutation, uint32_t n, uint64_t seed, uint64_t epoch)
{
    uint64_t a =
        2; /* even: else every round, and so every order, would be an even permutation of the pairs */
    while (a * a < n) a += 2;

    permutation->n = n;
    permutation->a = (uint32_t)a;
    permutation->b = (uint32_t)((n + a - 1) / a);

    fby_generator generator = {fby_mix64(seed ^ fby_mix64(epoch + FBY_GOLDEN))};
    for (int i = 0; i < FBY_PERMUTATION_ROUNDS; i++) permutation->keys[i] = fby_generator_next(&generator);
}

/* A number in 0 … below - 1 that depends on the round's key and the other half. */
static inline uint32_t round_value(uint64_t key, uint32_t half, uint32_t below)
{
    return (uint32_t)(((fby_mix64(key ^ half) >> 32) * below) >> 32);
}

static inline uint32_t add_modulo(uint32_t x, uint32_t y, uint32_t modulus)
{
    uint64_t sum = (uint64_t)x + y;
    return (uint32_t)(sum >= modulus ? sum - modulus : sum);
}

uint32_t fby_permutation_at(const fby_permutation *permutation, uint32_t position)
{
    uint32_t a = permutation->a, b = permutation->b;
    uint64_t x = position;
    do {
        uint32_t low = (uint32_t)x % a, high = (uint32_t)x / a;
        for (int i = 0; i < FBY_PERMUTATION_ROUNDS; i += 2) {
            low = add_modulo(low, round_value(permutation->keys[i], high, a), a);
            high = add_modulo(high, round_value(permutation->keys[i + 1], low, b), b);
        }
        x = (uint64_t)high * a + low;
    } while (x >= permutation->n);
    return (uint32_t)x;
}

uint32_t fby_permutation_find(const fby_permutation *permutation, uint32_t value)
{
    uint32_t a = permutation->a, b = permutation->b;
    uint64_t x = value;
    do {
        uint32_t low = (uint32_t)x % a, high = (uint32_t)x / a;
        for (int i = FBY_PERMUTATION_ROUNDS - 2; i >= 0; i -= 2) {
            high = add_modulo(high, b - round_value(permutation->keys[i + 1], low, b), b);
            low = add_modulo(low, a - round_value(permutation->keys[i], high, a), a);
        }
        x = (uint64_t)high * a + low;
    } while (x >= permutation->n);
    return (uint32_t)x;
}
