/* The AVX2 tier: 8 pixels at a time, as three vectors of floats that hold whole numbers, through all steps.
 *
 * Where the C tier divides by 65025, this multiplies by a reciprocal; q and t are further from a half than
 * that is wrong. Nothing but a trial of all colours says so: tests/kernels/test_adjust.c. */
#include <immintrin.h>
#include <string.h>

#include "kernels/adjust_kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { PIXELS = 8, PIXEL_BYTES = 3 * PIXELS };

typedef struct colours {
    __m256 r, g, b;
} colours;

ALWAYS_INLINE __m256 whole(__m256 v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

/* 24 bytes to 8 dwords r, g, b, 0; bytes 8..23 give the upper 4. */
ALWAYS_INLINE __m256i pixels_load(const uint8_t *rgb)
{
    const __m256i spread = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, /* */
                                            4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)rgb);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(rgb + 8));
    return _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), spread);
}

ALWAYS_INLINE void pixels_store(uint8_t *rgb, __m256i pixels)
{
    const __m256i join = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, /* */
                                          0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i dwords = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    __m256i joined = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(pixels, join), dwords);
    _mm_storeu_si128((__m128i *)(void *)rgb, _mm256_castsi256_si128(joined));
    _mm_storel_epi64((__m128i *)(void *)(rgb + 16), _mm256_extracti128_si256(joined, 1));
}

ALWAYS_INLINE colours colours_of(__m256i pixels)
{
    const __m256i byte = _mm256_set1_epi32(255);
    return (colours){_mm256_cvtepi32_ps(_mm256_and_si256(pixels, byte)),
                     _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(pixels, 8), byte)),
                     _mm256_cvtepi32_ps(_mm256_srli_epi32(pixels, 16))};
}

ALWAYS_INLINE __m256i pixels_of(colours c)
{
    __m256i g = _mm256_slli_epi32(_mm256_cvttps_epi32(c.g), 8);
    __m256i b = _mm256_slli_epi32(_mm256_cvttps_epi32(c.b), 16);
    return _mm256_or_si256(_mm256_cvttps_epi32(c.r), _mm256_or_si256(g, b));
}

/* Sums below 2^24: exact in floats. */
ALWAYS_INLINE __m256 gray_of(colours c)
{
    __m256 sum = _mm256_fmadd_ps(c.b, _mm256_set1_ps(7471), _mm256_set1_ps(0x8000));
    sum = _mm256_fmadd_ps(c.g, _mm256_set1_ps(38470), sum);
    sum = _mm256_fmadd_ps(c.r, _mm256_set1_ps(19595), sum);
    return whole(_mm256_mul_ps(sum, _mm256_set1_ps(1 / 65536.0f)));
}

/* Product and sum are rounded each, as Pillow does. */
ALWAYS_INLINE __m256 blended(__m256 base, __m256 factor, __m256 level)
{
    __m256 v = _mm256_add_ps(base, _mm256_mul_ps(factor, _mm256_sub_ps(level, base)));
    return whole(_mm256_min_ps(_mm256_max_ps(v, _mm256_setzero_ps()), _mm256_set1_ps(255)));
}

ALWAYS_INLINE colours colours_blended(__m256 base, __m256 factor, colours c)
{
    return (colours){blended(base, factor, c.r), blended(base, factor, c.g), blended(base, factor, c.b)};
}

ALWAYS_INLINE __m256 least_of(colours c)
{
    return _mm256_min_ps(_mm256_min_ps(c.r, c.g), c.b);
}

ALWAYS_INLINE __m256 most_of(colours c)
{
    return _mm256_max_ps(_mm256_max_ps(c.r, c.g), c.b);
}

/* Hue in steps of 1/255 turn. Gray has chroma 1 here, and some hue. */
ALWAYS_INLINE __m256i hue_of(colours c, __m256 most, __m256 least, __m256 chroma)
{
    __m256 is_red = _mm256_cmp_ps(c.r, most, _CMP_EQ_OQ), is_green = _mm256_cmp_ps(c.g, most, _CMP_EQ_OQ);
    __m256 up = _mm256_blendv_ps(_mm256_blendv_ps(c.g, c.r, is_green), c.b, is_red);
    __m256 down = _mm256_blendv_ps(_mm256_blendv_ps(c.r, c.b, is_green), c.g, is_red);
    __m256 middle = _mm256_blendv_ps(_mm256_set1_ps(4), _mm256_set1_ps(2), is_green);
    middle = _mm256_andnot_ps(is_red, middle);

    __m256 falls = _mm256_cmp_ps(up, least, _CMP_EQ_OQ);
    __m256 other = _mm256_blendv_ps(up, down, falls);
    __m256 quotient = _mm256_div_ps(_mm256_sub_ps(most, other), chroma);
    __m256 sign = _mm256_and_ps(falls, _mm256_set1_ps(-0.0f));
    __m256 start = _mm256_sub_ps(middle, _mm256_xor_ps(_mm256_set1_ps(1), sign));
    __m256 turns = _mm256_div_ps(_mm256_add_ps(start, _mm256_xor_ps(quotient, sign)), _mm256_set1_ps(6));

    __m256 negative = _mm256_cmp_ps(turns, _mm256_setzero_ps(), _CMP_LT_OQ);
    turns = _mm256_add_ps(turns, _mm256_and_ps(negative, _mm256_set1_ps(1)));
    return _mm256_cvttps_epi32(_mm256_mul_ps(turns, _mm256_set1_ps(255)));
}

/* round(value - part * value / 65025) as the lowest byte of each dword: adding 2^23 rounds. */
ALWAYS_INLINE __m256i faded(__m256 shifted_value, __m256 value_over_65025, __m256 part)
{
    __m256 rounded = _mm256_fnmadd_ps(part, value_over_65025, shifted_value);
    return _mm256_and_si256(_mm256_castps_si256(rounded), _mm256_set1_epi32(255));
}

ALWAYS_INLINE colours turned(colours c, __m256i by)
{
    const __m256 one = _mm256_set1_ps(1), full = _mm256_set1_ps(255);
    __m256 most = most_of(c), least = least_of(c), difference = _mm256_sub_ps(most, least);
    __m256i hue = hue_of(c, most, least, _mm256_max_ps(difference, one));
    hue = _mm256_and_si256(_mm256_add_epi32(hue, by), _mm256_set1_epi32(255));
    __m256 saturation = whole(_mm256_mul_ps(_mm256_div_ps(difference, _mm256_max_ps(most, one)), full));

    __m256 turns = _mm256_cvtepi32_ps(hue);
    __m256 sixth = whole(_mm256_mul_ps(turns, _mm256_set1_ps((float)(6 / 255.0))));
    __m256 within = _mm256_fnmadd_ps(sixth, full, _mm256_mul_ps(turns, _mm256_set1_ps(6)));
    __m256 part = _mm256_mul_ps(most, _mm256_set1_ps(1 / 65025.0f));
    __m256 shifted = _mm256_add_ps(most, _mm256_set1_ps(8388608));
    __m256i p = faded(shifted, part, _mm256_mul_ps(saturation, full));
    __m256i q = faded(shifted, part, _mm256_mul_ps(saturation, within));
    __m256i t = faded(shifted, part, _mm256_mul_ps(saturation, _mm256_sub_ps(full, within)));
    __m256i v = _mm256_cvttps_epi32(most);

    /* Dwords of the bytes v, q, p, t, from which each sixth of the circle takes its three. */
    __m256i bytes = _mm256_or_si256(_mm256_or_si256(v, _mm256_slli_epi32(q, 8)),
                                    _mm256_or_si256(_mm256_slli_epi32(p, 16), _mm256_slli_epi32(t, 24)));
    const __m256i taken =
        _mm256_setr_epi32(0x020300, 0x020001, 0x030002, 0x000102, 0x000203, 0x010200, 0x020300, 0x020300);
    const __m256i dword = _mm256_setr_epi32(0, 0x040404, 0x080808, 0x0C0C0C, 0, 0x040404, 0x080808, 0x0C0C0C);
    __m256i which = _mm256_permutevar8x32_epi32(taken, _mm256_cvttps_epi32(sixth));
    which = _mm256_or_si256(_mm256_or_si256(which, dword), _mm256_set1_epi32((int)0x80000000));
    return colours_of(_mm256_shuffle_epi8(bytes, which));
}

ALWAYS_INLINE void pixels_adjust(const fby_adjust_step *steps, uint32_t count, uint8_t *rgb)
{
    colours c = colours_of(pixels_load(rgb));
    for (uint32_t i = 0; i < count; i++) {
        __m256 factor = _mm256_set1_ps(steps[i].factor);
        switch (steps[i].kind) {
        case FBY_STEP_LEVEL:
            c = colours_blended(_mm256_set1_ps(steps[i].base), factor, c);
            break;
        case FBY_STEP_SATURATE:
            c = colours_blended(gray_of(c), factor, c);
            break;
        case FBY_STEP_TURN:
            c = turned(c, _mm256_set1_epi32((int)steps[i].turn));
            break;
        }
    }
    pixels_store(rgb, pixels_of(c));
}

static void row_avx2(const fby_adjust_step *steps, uint32_t count, uint8_t *rgb, size_t n)
{
    size_t i = 0;
    for (; i + PIXELS <= n; i += PIXELS) pixels_adjust(steps, count, rgb + 3 * i);
    if (i == n) return;

    uint8_t rest[PIXEL_BYTES] = {0};
    memcpy(rest, rgb + 3 * i, 3 * (n - i));
    pixels_adjust(steps, count, rest);
    memcpy(rgb + 3 * i, rest, 3 * (n - i));
}

static uint64_t gray_sum_avx2(const uint8_t *rgb, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n;) {
        /* 2^16 additions of a byte don't fill a lane. */
        __m256i lanes = _mm256_setzero_si256();
        size_t end = n - i > (size_t)PIXELS << 16 ? i + ((size_t)PIXELS << 16) : n;
        for (; i + PIXELS <= end; i += PIXELS) {
            lanes =
                _mm256_add_epi32(lanes, _mm256_cvttps_epi32(gray_of(colours_of(pixels_load(rgb + 3 * i)))));
        }
        if (i < end) {
            uint8_t rest[PIXEL_BYTES] = {0}; /* whose black counts nothing */
            memcpy(rest, rgb + 3 * i, 3 * (end - i));
            lanes = _mm256_add_epi32(lanes, _mm256_cvttps_epi32(gray_of(colours_of(pixels_load(rest)))));
            i = end;
        }
        uint32_t lane[8];
        _mm256_storeu_si256((__m256i *)(void *)lane, lanes);
        for (int k = 0; k < 8; k++) sum += lane[k];
    }
    return sum;
}

const fby_adjust_kernels fby_adjust_kernels_avx2 = {.row = row_avx2, .gray_sum = gray_sum_avx2};
