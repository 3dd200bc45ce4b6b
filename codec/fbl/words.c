#include "codec/fbl/words.h"

#include <string.h>

#include "codec/fbl/file.h"
#include "kernels/fbl_indices.h"

enum { TOP_BITS = 32 - FBY_FBL_SCALE_BITS };

/* x / f is the high half of x * reciprocal. For f = 1 that gives x - 1, which `add` makes up for:
 * (x - 1) * 511 + x + 511 = 512 x. */
static void class_make(const fby_fbl_set *set, uint32_t at, fbl_class *class)
{
    uint32_t f = set->frequency[at];
    uint32_t low = set->raw[at] < FBY_FBL_STEP_BITS ? set->raw[at] : FBY_FBL_STEP_BITS;

    *class = (fbl_class){
        .reciprocal = f > 1 ? UINT64_MAX / f + 1 : UINT64_MAX,
        .most = (uint32_t)(((uint64_t)f << (TOP_BITS - low)) - 1),
        .rest = (uint16_t)(FBY_FBL_SCALE - f),
        .add = (uint16_t)(set->start[at] + (f == 1 ? FBY_FBL_SCALE - 1 : 0)),
        .base = set->base[at],
        .raw = set->raw[at],
        .scale = (uint8_t)(1u << low),
    };
}

void fbl_coder_make(const fby_fbl_set *set, uint32_t bits, fbl_coder *coder)
{
    fbl_buckets buckets;

    fbl_buckets_make(bits, &buckets);
    coder->bits = bits;
    fby_fbl_push_make(set, bits, &coder->push);
    for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) {
        coder->row_of[sum] = (uint16_t)(set->context[sum] * FBL_BUCKETS);
    }
    for (uint32_t context = 0; context < set->contexts; context++) {
        uint32_t token = 0, end = 0;
        for (uint32_t t = 0; t < set->tokens[context]; t++) {
            class_make(set, context * FBY_FBL_TOKENS + t, &coder->class[context * FBY_FBL_TOKENS + t]);
        }
        for (uint32_t bucket = 0; bucket < buckets.count; bucket++) {
            if (!bucket) end = 1u << set->raw[context * FBY_FBL_TOKENS];
            while (buckets.first[bucket] >= end && token + 1 < set->tokens[context]) {
                token++;
                end += 1u << set->raw[context * FBY_FBL_TOKENS + token];
            }
            coder->class_of[context * FBL_BUCKETS + bucket] = (uint8_t)(context * FBY_FBL_TOKENS + token);
        }
    }
}

size_t fbl_words_bytes(const fbl_symbols *symbols)
{
    return (size_t)4 * FBY_LANES +
           (size_t)symbols->count * FBY_LANES * (symbols->coder[0]->bits > 8 ? 4 : 2) + 8;
}

/* Puts the low word before what is written, where the state would grow out of 32 bits. */
static inline uint32_t state_shrink(uint32_t x, bool grows, uint8_t **at)
{
    uint16_t word = fbl_little16((uint16_t)x);
    memcpy(*at - 2, &word, 2);
    *at -= grows ? 2 : 0;
    return grows ? x >> 16 : x;
}

static inline uint32_t class_push(const fbl_class *class, uint32_t x, uint32_t low, uint8_t **at)
{
    x = state_shrink(x, x > class->most, at);
    x = x * class->scale + low;
    uint32_t quotient = (uint32_t)((unsigned __int128)x * class->reciprocal >> 64);
    return quotient * class->rest + x + class->add;
}

static inline void push_bytes(const fbl_coder *coder, const uint8_t *value, const uint8_t *sum,
                              uint32_t *state, uint8_t **to)
{
    uint8_t *at = *to;
    for (uint32_t lane = FBY_LANES; lane-- > 0;) {

        const fbl_class *class = &coder->class[coder->class_of[coder->row_of[sum[lane]] + value[lane]]];
        state[lane] = class_push(class, state[lane], (uint32_t)value[lane] - class->base, &at);
    }
    *to = at;
}

static inline void push_longs(const fbl_coder *coder, const uint16_t *value, const uint8_t *sum,
                              uint32_t *state, uint8_t **to)
{
    const fbl_class *class[FBY_LANES];
    uint8_t *at = *to;

    for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
        uint32_t bucket = fbl_bucket_of(value[lane], coder->bits);
        class[lane] = &coder->class[coder->class_of[coder->row_of[sum[lane]] + bucket]];
    }
    /* The decoder takes the low bits of all lanes before the high ones. */
    for (uint32_t lane = FBY_LANES; lane-- > 0;) {
        if (class[lane] -> raw <= FBY_FBL_STEP_BITS) continue;
        uint32_t bits = class[lane]->raw - FBY_FBL_STEP_BITS, x = state[lane];
        uint32_t high = (uint32_t)(value[lane] - class[lane] -> base) >> FBY_FBL_STEP_BITS;
        x = state_shrink(x, x >> (32 - bits) != 0, &at);
        state[lane] = x << bits | high;
    }
    for (uint32_t lane = FBY_LANES; lane-- > 0;) {

        uint32_t low = (uint32_t)(value[lane] - class[lane] -> base) & (class[lane] -> scale - 1u);
        state[lane] = class_push(class[lane], state[lane], low, &at);
    }
    *to = at;
}

/* A run of symbols, from its last. */
static void run_push(const fbl_symbols *symbols, uint32_t first, const fbl_coder *coder, uint32_t *state,
                     uint8_t **at)
{
    const uint8_t *sums = symbols->sums + (size_t)first * FBY_LANES;
    const uint8_t *bytes = (const uint8_t *)symbols->values + (size_t)first * FBY_LANES;
    const uint16_t *longs = (const uint16_t *)symbols->values + (size_t)first * FBY_LANES;

    if (coder->push.possible && symbols->kernels->push) {
        *at = symbols->kernels->push(&coder->push, bytes, sums, symbols->run, state, *at);
        return;
    }
    for (size_t i = symbols->run; i-- > 0;) {
        if (coder->bits == 8)
            push_bytes(coder, bytes + i * FBY_LANES, sums + i * FBY_LANES, state, at);
        else
            push_longs(coder, longs + i * FBY_LANES, sums + i * FBY_LANES, state, at);
    }
}

uint8_t *fbl_words_write(const fbl_symbols *symbols, uint8_t *room, size_t bytes)
{
    uint32_t state[FBY_LANES];
    uint8_t *at = room + bytes;

    for (uint32_t lane = 0; lane < FBY_LANES; lane++) state[lane] = FBY_FBL_STATE_END;
    for (uint32_t i = symbols->count / symbols->run; i-- > 0;)
        run_push(symbols, i * symbols->run, symbols->coder[i % symbols->coders], state, &at);
    for (uint32_t lane = FBY_LANES; lane-- > 0;) {

        at -= 4;
        fbl_store32(at, state[lane]);
    }
    return at;
}

static inline void push_one(const fbl_coder *coder, uint32_t sum, uint32_t value, uint32_t *state,
                            uint8_t **at)
{
    const fbl_class *class = &coder->class[coder->class_of[coder->row_of[sum] + value]];
    *state = class_push(class, *state, value - class->base, at);
}

size_t fbl_indices_bytes(const fbl_indices *indices)
{
    return (size_t)4 * FBY_FBL_STATES + (size_t)indices->count * FBY_LANES * (indices->low ? 4 : 2) + 8;
}

uint8_t *fbl_indices_write(const fbl_indices *indices, uint8_t *room, size_t bytes)
{
    uint32_t state[FBY_FBL_STATES];
    uint8_t *at = room + bytes;

    for (uint32_t i = 0; i < FBY_FBL_STATES; i++) state[i] = FBY_FBL_STATE_END;
    for (size_t group = (size_t)indices->count * FBY_LANES; group; group -= FBY_FBL_STATES) {
        const size_t first = group - FBY_FBL_STATES;
        const uint8_t *symbol = indices->symbols + first, *sum = indices->sums + first;
        for (uint32_t i = FBY_FBL_STATES; indices->low && i-- > 0;) {
            if (symbol[i] < FBY_FBL_NEIGHBOURS) continue;
            push_one(indices->low_coder, fby_fbl_low_sum(symbol[i]), indices->low[first + i], &state[i], &at);
        }
        for (uint32_t i = FBY_FBL_STATES; i-- > 0;)
            push_one(indices->coder, sum[i], symbol[i], &state[i], &at);
    }
    for (uint32_t i = FBY_FBL_STATES; i-- > 0;) {
        at -= 4;
        fbl_store32(at, state[i]);
    }
    return at;
}
