/* Words of FBL's rans tiles of 8 bits with AVX2: the encoder's side of lean sets, 32 lanes at a time. */
#include <pthread.h>

#include "kernels/fbl_avx2.h"

enum { GROUPS = 4, GROUP = 8 }; /* of lanes, whose states are a vector */

/* Shuffles that bring the words of the lanes of eight that give one away to the end, in their order. */
static _Alignas(64) uint8_t word_shuffle[256][16];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void word_shuffle_make(void)
{
    for (uint32_t mask = 0; mask < 256; mask++) {
        uint32_t to = 16 - 2 * (uint32_t)__builtin_popcount(mask);
        for (uint32_t lane = 0; lane < GROUP; lane++) {
            if (!(mask >> lane & 1)) continue;
            word_shuffle[mask][to++] = (uint8_t)(2 * lane);
            word_shuffle[mask][to++] = (uint8_t)(2 * lane + 1);
        }
    }
}

FBL_AVX2 __m256i lookup(const uint8_t *table, __m256i place)
{
    return _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)table), place);
}

/* Places get a bit where the value is above their bound. */
FBL_AVX2 __m256i step(const uint8_t *bound, __m256i value, __m256i place, char bit)
{
    __m256i above = _mm256_cmpgt_epi8(value, lookup(bound, place));
    return _mm256_or_si256(place, _mm256_and_si256(above, _mm256_set1_epi8(bit)));
}

FBL_AVX2 __m256i places_of(const fby_fbl_push *push, __m256i value, __m256i sum)
{
    __m256i place = _mm256_set1_epi8(FBL_LEAN_CONTEXTS - 1);

    for (uint32_t i = 0; i < FBL_LEAN_CONTEXTS - 1; i++) {
        __m256i threshold = _mm256_loadu_si256((const __m256i *)push->threshold[i]);
        place = _mm256_add_epi8(place, _mm256_cmpgt_epi8(sum, threshold)); /* all ones are -1 */
    }
    value = _mm256_xor_si256(value, _mm256_set1_epi8((char)128));
    return step(push->bound[1], value, step(push->bound[0], value, place, 4), 8);
}

/* What the lanes' classes have, a byte each, to be widened group by group. */
typedef struct classes {
    _Alignas(32) uint8_t place[FBY_LANES];
    uint8_t low[FBY_LANES]; /* the raw bits' value */
    uint8_t leaf[FBL_PUSH_LEAVES][FBY_LANES];
} classes;

FBL_AVX2 void classes_of(const fby_fbl_push *push, __m256i value, __m256i sum, classes *out)
{
    __m256i place = places_of(push, value, sum);

    _mm256_store_si256((__m256i *)out->place, place);
    _mm256_store_si256((__m256i *)out->low, _mm256_sub_epi8(value, lookup(push->leaf[FBL_PUSH_BASE], place)));
    for (uint32_t i = FBL_PUSH_START; i < FBL_PUSH_LEAVES; i++)
        _mm256_store_si256((__m256i *)out->leaf[i], lookup(push->leaf[i], place));
}

FBL_AVX2 __m256i widened(const uint8_t *bytes, int group)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(bytes + (size_t)group * GROUP)));
}

FBL_AVX2 __m256i reciprocals(const fby_fbl_push *push, __m256i place)
{
    const __m256i *table = (const __m256i *)push->reciprocal;
    __m256i low = _mm256_permutevar8x32_epi32(_mm256_loadu_si256(table), place);
    __m256i high = _mm256_permutevar8x32_epi32(_mm256_loadu_si256(table + 1), place);
    __m256i second = _mm256_slli_epi32(place, 28); /* bit 3 */
    return _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), _mm256_castsi256_ps(second)));
}

/* x / f, x being even. */
FBL_AVX2 __m256i divided(__m256i x, __m256i reciprocal, __m256i shift)
{
    __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(x, reciprocal), 32);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(reciprocal, 32));
    return _mm256_srlv_epi32(_mm256_blend_epi32(even, odd, 0xAA), shift);
}

/* Gives the low words of a group's states away, where they would grow out of 32 bits. */
FBL_AVX2 __m256i shrink(__m256i x, const classes *of, int group, uint8_t **at)
{
    const __m256i low_half = _mm256_set1_epi32(0xFFFF);
    __m256i above = _mm256_srlv_epi32(x, widened(of->leaf[FBL_PUSH_ROOM], group));
    __m256i stays = _mm256_cmpgt_epi32(widened(of->leaf[FBL_PUSH_SPAN], group), above);
    uint32_t gives = ~(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(stays)) & 255;
    __m256i low = _mm256_and_si256(x, low_half);
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));

    words = _mm_shuffle_epi8(words, _mm_load_si128((const __m128i *)word_shuffle[gives]));
    _mm_storeu_si128((__m128i *)(*at - 16), words);
    *at -= (size_t)2 * (uint32_t)__builtin_popcount(gives);
    return fbl_choose(_mm256_srli_epi32(x, 16), x, stays);
}

/* A symbol of eight lanes. */
FBL_AVX2 __m256i pushed(const fby_fbl_push *push, const classes *of, int group, __m256i x, uint8_t **at)
{
    x = shrink(x, of, group, at);
    x = _mm256_sllv_epi32(x, widened(of->leaf[FBL_PUSH_RAW], group));
    x = _mm256_or_si256(x, widened(of->low, group));
    __m256i even = _mm256_andnot_si256(_mm256_set1_epi32(1), x);
    __m256i quotient =
        divided(even, reciprocals(push, widened(of->place, group)), widened(of->leaf[FBL_PUSH_SHIFT], group));
    /* 512 x / f + x mod f + start = x + 2 ((256 - f / 2) (x / f) + start / 2) */
    __m256i more = _mm256_mullo_epi32(quotient, widened(of->leaf[FBL_PUSH_GAP], group));
    more = _mm256_add_epi32(more, widened(of->leaf[FBL_PUSH_START], group));
    return _mm256_add_epi32(x, _mm256_add_epi32(more, more));
}

uint8_t *fby_fbl_push_avx2(const fby_fbl_push *push, const uint8_t *values, const uint8_t *sums,
                           uint32_t count, uint32_t *state, uint8_t *at)
{
    __m256i x[GROUPS];

    pthread_once(&once, word_shuffle_make);
    for (int group = 0; group < GROUPS; group++)
        x[group] = _mm256_loadu_si256((const __m256i *)state + group);
    for (size_t i = count; i-- > 0;) {
        classes of;
        classes_of(push, _mm256_loadu_si256((const __m256i *)values + i),
                   _mm256_loadu_si256((const __m256i *)sums + i), &of);
        for (int group = GROUPS; group-- > 0;) x[group] = pushed(push, &of, group, x[group], &at);
    }
    for (int group = 0; group < GROUPS; group++) _mm256_storeu_si256((__m256i *)state + group, x[group]);
    return at;
}
