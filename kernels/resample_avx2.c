/* The AVX2 tier.
 *
 * Horizontally, the lanes of a vector are 8 rows: no output wastes a lane, whatever the scale, and each
 * weight is loaded once for 8 rows and 3 channels. Pixels are transposed for that once, as they come under
 * the window.
 *
 * A 22-bit weight times a u8 pixel takes one multiply-add: with w = low + 256 high, low in 0..255,
 *
 *     p low + 256 (p - 128) high  =  p w - 32768 high,
 *
 * so a pixel is kept as the pair of 16-bit numbers (p, 256 (p - 128)), which are the bytes p, 0, 0, p ^ 0x80,
 * and the sum over the taps of 32768 high is part of each output's start value. All sums are exact modulo
 * 2^32, and a whole sum fits.
 *
 * Vertically, two rows at once: w = low + 2048 high, low in 0..2047, and (sum of p high) 2048 + (sum of p
 * low). */
#include <immintrin.h>
#include <string.h>

#include "kernels/resample_kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ---- horizontal ---- */

enum {
    PIXEL_VECTORS = 3,    /* a pixel of 8 rows in `work`: a vector per channel */
    EXPANDED = 4,         /* pixels transposed at a time */
    LEAST_CAPACITY = 128, /* pixels in `work`: 12 KiB, of the nearest cache */
    UNROLLED_TAPS = 8
};

/* What lies in `table`: per output (their number rounded up to whole groups) its first pixel and start value,
 * per group what pixels it needs, then the weights, taps_per_output each. Outputs are in the order that they
 * are written in: a mirrored picture is read from right to left, its pixel x being the picture's wide - 1 -
 * x. */
typedef struct columns {
    const uint32_t *first;
    const int32_t *start;
    const uint32_t *low,
        *high; /* per group: the lowest pixel that it or a later one needs; the end of what it needs */
    const uint32_t *weight;
    size_t groups;
    uint32_t wide; /* the input's width, rounded up to whole expansions */
} columns;

ALWAYS_INLINE uint32_t wide_of(uint32_t in)
{
    return (in + EXPANDED - 1) / EXPANDED * EXPANDED;
}

ALWAYS_INLINE columns columns_of(const fby_horizontal *horizontal)
{
    columns it = {0};
    it.groups = (horizontal->taps->out + FBY_GROUP - 1) / FBY_GROUP;
    it.wide = wide_of(horizontal->taps->in);
    it.first = horizontal->table.data;
    it.start = (const int32_t *)(it.first + it.groups * FBY_GROUP);
    it.low = (const uint32_t *)(it.start + it.groups * FBY_GROUP);
    it.high = it.low + it.groups;
    it.weight = it.high + it.groups;
    return it;
}

/* Transposes 4 pixels of 8 rows, `at` bytes into each: 12 vectors of 8 rows. */
ALWAYS_INLINE void pixels_expand(const uint8_t *const row[FBY_BLOCK_ROWS], size_t at, __m256i *out,
                                 bool mirrored)
{
    __m256i v[4];
    for (int i = 0; i < 4; i++) {
        __m128i upper = _mm_loadu_si128((const void *)(row[i] + at));
        __m128i lower = _mm_loadu_si128((const void *)(row[i + 4] + at));
        v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(upper), lower, 1);
    }

    /* 4 x 4 words: r0 g0 b0 r1, g1 b1 r2 g2, b2 r3 g3 b3 of rows 0-3 in the low half, 4-7 in the high. */
    __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpacklo_epi32(v[2], v[3]);
    __m256i c = _mm256_unpackhi_epi32(v[0], v[1]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    __m256i word[3] = {_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b), _mm256_unpacklo_epi64(c, d)};

    const __m256i sign = _mm256_set1_epi32((int)0x80000000u);
    const __m256i byte0 =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, -1, 0, 4, -1, -1, 4, 8, -1, -1, 8, 12, -1, -1, 12));
    const __m256i byte1 =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(1, -1, -1, 1, 5, -1, -1, 5, 9, -1, -1, 9, 13, -1, -1, 13));
    const __m256i byte2 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(2, -1, -1, 2, 6, -1, -1, 6, 10, -1, -1, 10, 14, -1, -1, 14));
    const __m256i byte3 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(3, -1, -1, 3, 7, -1, -1, 7, 11, -1, -1, 11, 15, -1, -1, 15));
    const __m256i byte[4] = {byte0, byte1, byte2, byte3};

#pragma GCC unroll 12
    for (int k = 0; k < EXPANDED * PIXEL_VECTORS; k++) {
        int pixel = mirrored ? EXPANDED - 1 - k / 3 : k / 3;
        __m256i wide = _mm256_xor_si256(_mm256_shuffle_epi8(word[k / 4], byte[k % 4]), sign);
        _mm256_store_si256(out + pixel * PIXEL_VECTORS + k % 3, wide);
    }
}

/* Two neighbouring outputs of 8 rows: per channel 16 x u16, [a of rows 0-3, b of 0-3 | a of 4-7, b of 4-7].
 */
ALWAYS_INLINE void outputs_sum(const __m256i *a, const __m256i *b, const uint32_t *weight, uint32_t taps,
                               const int32_t *start, __m256i out[3])
{
    __m256i sum_a[3], sum_b[3];
    sum_a[0] = sum_a[1] = sum_a[2] = _mm256_set1_epi32(start[0]);
    sum_b[0] = sum_b[1] = sum_b[2] = _mm256_set1_epi32(start[1]);

#pragma GCC unroll 8
    for (uint32_t i = 0; i < taps; i++) {
        __m256i weight_a = _mm256_set1_epi32((int)weight[i]);
        __m256i weight_b = _mm256_set1_epi32((int)weight[taps + i]);
        for (int channel = 0; channel < 3; channel++) {
            __m256i pixel_a = _mm256_load_si256(a + i * PIXEL_VECTORS + channel);
            __m256i pixel_b = _mm256_load_si256(b + i * PIXEL_VECTORS + channel);
            sum_a[channel] = _mm256_add_epi32(sum_a[channel], _mm256_madd_epi16(pixel_a, weight_a));
            sum_b[channel] = _mm256_add_epi32(sum_b[channel], _mm256_madd_epi16(pixel_b, weight_b));
        }
    }

    for (int channel = 0; channel < 3; channel++) {
        out[channel] = _mm256_packus_epi32(_mm256_srai_epi32(sum_a[channel], FBY_WEIGHT_BITS),
                                           _mm256_srai_epi32(sum_b[channel], FBY_WEIGHT_BITS));
    }
}

/* 16 outputs of one channel, as outputs_sum leaves them, to a group of each of 4 pairs of rows. */
ALWAYS_INLINE void group_store(const __m256i *sums, uint8_t *out, size_t pair_bytes)
{
    /* Per half, of the outputs i, i+1, i+8, i+9: the pairs of rows 0,1 of i and i+1, then those of rows 2,3.
     */
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 8, 1, 9, 4, 12, 5, 13, 2, 10, 3, 11, 6, 14, 7, 15));

    __m256i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_shuffle_epi8(_mm256_packus_epi16(sums[3 * i], sums[3 * (i + 4)]), order);
    }

    __m256i even_a = _mm256_unpacklo_epi64(v[0], v[1]), even_b = _mm256_unpacklo_epi64(v[2], v[3]);
    __m256i odd_a = _mm256_unpackhi_epi64(v[0], v[1]), odd_b = _mm256_unpackhi_epi64(v[2], v[3]);
    __m128i *pair[4];
    for (int i = 0; i < 4; i++) pair[i] = (__m128i *)(out + i * pair_bytes);
    _mm_storeu_si128(pair[0], _mm256_castsi256_si128(even_a));
    _mm_storeu_si128(pair[0] + 1, _mm256_castsi256_si128(even_b));
    _mm_storeu_si128(pair[1], _mm256_castsi256_si128(odd_a));
    _mm_storeu_si128(pair[1] + 1, _mm256_castsi256_si128(odd_b));
    _mm_storeu_si128(pair[2], _mm256_extracti128_si256(even_a, 1));
    _mm_storeu_si128(pair[2] + 1, _mm256_extracti128_si256(even_b, 1));
    _mm_storeu_si128(pair[3], _mm256_extracti128_si256(odd_a, 1));
    _mm_storeu_si128(pair[3] + 1, _mm256_extracti128_si256(odd_b, 1));
}

ALWAYS_INLINE void horizontal_run(const fby_horizontal *horizontal, const uint8_t *const row[FBY_BLOCK_ROWS],
                                  uint8_t *pairs, size_t pair_bytes, uint32_t taps, bool mirrored)
{
    columns it = columns_of(horizontal);
    size_t channel_bytes = fby_groups(horizontal->taps->out) * FBY_GROUP_BYTES;
    __m256i *pixels = horizontal->work.data;
    uint32_t base = 0, end = 0; /* the pixels that `pixels` holds */

    for (size_t group = 0; group < it.groups; group++) {
        uint32_t low = it.low[group], high = it.high[group];
        if (low >= end) {
            base = end = low;
        } else if (high - base > horizontal->capacity) {
            memmove(pixels, pixels + (size_t)(low - base) * PIXEL_VECTORS,
                    (size_t)(end - low) * PIXEL_VECTORS * sizeof *pixels);
            base = low;
        }
        for (; end < high; end += EXPANDED) {
            size_t pixel = mirrored ? it.wide - EXPANDED - end : end;
            pixels_expand(row, 3 * pixel, pixels + (size_t)(end - base) * PIXEL_VECTORS, mirrored);
        }

        __m256i sums[FBY_GROUP / 2 * 3];
        for (size_t i = 0; i < FBY_GROUP; i += 2) {
            size_t o = group * FBY_GROUP + i;
            outputs_sum(pixels + (size_t)(it.first[o] - base) * PIXEL_VECTORS,
                        pixels + (size_t)(it.first[o + 1] - base) * PIXEL_VECTORS, it.weight + o * taps, taps,
                        it.start + o, sums + i / 2 * 3);
        }
        for (int channel = 0; channel < 3; channel++) {
            group_store(sums + channel, pairs + channel * channel_bytes + group * FBY_GROUP_BYTES,
                        pair_bytes);
        }
    }
}

#define HORIZONTAL(name, taps)                                                                               \
    static void horizontal_##name(const fby_horizontal *horizontal,                                          \
                                  const uint8_t *const row[FBY_BLOCK_ROWS], uint8_t *pairs,                  \
                                  size_t pair_bytes)                                                         \
    {                                                                                                        \
        horizontal_run(horizontal, row, pairs, pair_bytes, taps, false);                                     \
    }                                                                                                        \
    static void horizontal_mirrored_##name(const fby_horizontal *horizontal,                                 \
                                           const uint8_t *const row[FBY_BLOCK_ROWS], uint8_t *pairs,         \
                                           size_t pair_bytes)                                                \
    {                                                                                                        \
        horizontal_run(horizontal, row, pairs, pair_bytes, taps, true);                                      \
    }

HORIZONTAL(1, 1)
HORIZONTAL(2, 2)
HORIZONTAL(3, 3)
HORIZONTAL(4, 4)
HORIZONTAL(5, 5)
HORIZONTAL(6, 6)
HORIZONTAL(7, 7)
HORIZONTAL(8, 8)
HORIZONTAL(any, horizontal->taps_per_output)

typedef void horizontal_routine(const fby_horizontal *, const uint8_t *const[FBY_BLOCK_ROWS], uint8_t *,
                                size_t);

static horizontal_routine *const routines[2][UNROLLED_TAPS + 1] = {
    {horizontal_any, horizontal_1, horizontal_2, horizontal_3, horizontal_4, horizontal_5, horizontal_6,
     horizontal_7, horizontal_8},
    {horizontal_mirrored_any, horizontal_mirrored_1, horizontal_mirrored_2, horizontal_mirrored_3,
     horizontal_mirrored_4, horizontal_mirrored_5, horizontal_mirrored_6, horizontal_mirrored_7,
     horizontal_mirrored_8}};

/* One output's entries: its window, moved left where it would end past `wide`, its missing weights 0. */
static uint32_t column_fill(const fby_horizontal *horizontal, uint32_t output, uint32_t wide, int32_t *start,
                            uint32_t *weight)
{
    const fby_taps *taps = horizontal->taps;
    uint32_t longest = horizontal->taps_per_output, o = horizontal->flip ? taps->out - 1 - output : output;
    uint32_t count = taps->count[o], from = taps->first[o];
    uint32_t first = horizontal->flip ? wide - from - count : from;
    const int32_t *exact = taps->weight + taps->at[o];

    uint32_t moved = first + longest > wide ? first + longest - wide : 0;
    uint32_t sum = FBY_WEIGHT_HALF;
    for (uint32_t i = 0; i < moved; i++) weight[i] = 0;
    for (uint32_t i = moved + count; i < longest; i++) weight[i] = 0;
    for (uint32_t i = 0; i < count; i++) {
        int32_t w = exact[horizontal->flip ? count - 1 - i : i];
        weight[moved + i] = ((uint32_t)w & 255) | (uint32_t)(w >> 8) << 16;
        sum += 32768u * (uint32_t)(w >> 8);
    }
    *start = (int32_t)sum;
    return first - moved;
}

int fby_horizontal_prepare_avx2(fby_horizontal *horizontal)
{
    const fby_taps *taps = horizontal->taps;
    uint32_t longest = taps->longest, wide = wide_of(taps->in);
    size_t groups = (taps->out + FBY_GROUP - 1) / FBY_GROUP, outputs = groups * FBY_GROUP;

    size_t words = outputs * 2 + groups * 2 + outputs * longest;
    if (fby_buffer_reserve(&horizontal->table, words * sizeof(uint32_t))) return -1;
    horizontal->taps_per_output = longest;

    columns it = columns_of(horizontal);
    uint32_t *first = (uint32_t *)it.first, *weight = (uint32_t *)it.weight;
    for (size_t i = 0; i < outputs; i++) {
        uint32_t o = (uint32_t)(i < taps->out ? i : taps->out - 1); /* past the end: the last one again */
        first[i] = column_fill(horizontal, o, wide, (int32_t *)it.start + i, weight + i * longest);
    }

    uint32_t *low = (uint32_t *)it.low, *high = (uint32_t *)it.high, lowest = wide, capacity = LEAST_CAPACITY;
    for (size_t group = groups; group-- > 0;) {
        uint32_t end = 0;
        for (size_t i = group * FBY_GROUP; i < (group + 1) * FBY_GROUP; i++) {
            if (first[i] < lowest) lowest = first[i];
            if (first[i] + longest > end) end = first[i] + longest;
        }
        low[group] = lowest / EXPANDED * EXPANDED;
        high[group] = (end + EXPANDED - 1) / EXPANDED * EXPANDED;
        if (high[group] - low[group] > capacity) capacity = high[group] - low[group];
    }

    horizontal->capacity = capacity;
    if (fby_buffer_reserve(&horizontal->work, (size_t)capacity * PIXEL_VECTORS * sizeof(__m256i))) return -1;
    horizontal->run = routines[horizontal->flip][longest <= UNROLLED_TAPS ? longest : 0];
    return 0;
}

/* ---- vertical ---- */

void fby_pair_rows_avx2(const uint8_t *const row[FBY_BLOCK_ROWS], size_t bytes, uint8_t *pairs,
                        size_t pair_bytes)
{
    const __m128i order = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    for (int pair = 0; pair < FBY_BLOCK_ROWS / 2; pair++) {
        const uint8_t *a = row[2 * pair], *b = row[2 * pair + 1];
        __m128i *out = (__m128i *)(pairs + pair * pair_bytes);
        for (size_t x = 0; x < bytes; x += FBY_GROUP, out += 2) {
            __m128i upper = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(a + x)), order);
            __m128i lower = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(b + x)), order);
            _mm_store_si128(out, _mm_unpacklo_epi16(upper, lower));
            _mm_store_si128(out + 1, _mm_unpackhi_epi16(upper, lower));
        }
    }
}

/* The sums of 16 columns, not clipped: columns 0-7 and 8-15. */
typedef struct sums16 {
    __m256i left, right;
} sums16;

enum { KEPT_PAIRS = 3 }; /* as many pairs have their weights in registers */

typedef struct pair_weights {
    __m256i low[KEPT_PAIRS], high[KEPT_PAIRS];
} pair_weights;

ALWAYS_INLINE pair_weights weights_keep(const fby_vertical_row *row, uint32_t count)
{
    pair_weights kept;
    for (uint32_t i = 0; i < KEPT_PAIRS; i++) {
        uint32_t at = i < count ? i : 0;
        kept.low[i] = _mm256_set1_epi32((int)row->weight[2 * at]);
        kept.high[i] = _mm256_set1_epi32((int)row->weight[2 * at + 1]);
    }
    return kept;
}

/* count: a constant 1..KEPT_PAIRS, whose weights are in `kept`, or 0: row->count. */
ALWAYS_INLINE sums16 columns_sum(const fby_vertical_row *row, const pair_weights *kept, uint32_t count,
                                 size_t group)
{
    const __m256i even_bytes = _mm256_set1_epi16(0x00FF);
    __m256i left_low = _mm256_set1_epi32(FBY_WEIGHT_HALF), right_low = left_low;
    __m256i left_high = _mm256_setzero_si256(), right_high = left_high;
    const uint8_t *at = row->pairs + group * FBY_GROUP_BYTES;

    uint32_t pairs = count ? count : row->count;
#pragma GCC unroll 3
    for (uint32_t i = 0; i < pairs; i++, at += row->pair_bytes) {
        __m256i low = count ? kept->low[i] : _mm256_set1_epi32((int)row->weight[2 * i]);
        __m256i high = count ? kept->high[i] : _mm256_set1_epi32((int)row->weight[2 * i + 1]);
        __m256i both = _mm256_load_si256((const void *)at);
        __m256i left = _mm256_and_si256(both, even_bytes), right = _mm256_srli_epi16(both, 8);
        left_low = _mm256_add_epi32(left_low, _mm256_madd_epi16(left, low));
        left_high = _mm256_add_epi32(left_high, _mm256_madd_epi16(left, high));
        right_low = _mm256_add_epi32(right_low, _mm256_madd_epi16(right, low));
        right_high = _mm256_add_epi32(right_high, _mm256_madd_epi16(right, high));
    }

    left_low = _mm256_add_epi32(left_low, _mm256_slli_epi32(left_high, 11));
    right_low = _mm256_add_epi32(right_low, _mm256_slli_epi32(right_high, 11));
    return (sums16){_mm256_srai_epi32(left_low, FBY_WEIGHT_BITS),
                    _mm256_srai_epi32(right_low, FBY_WEIGHT_BITS)};
}

ALWAYS_INLINE __m128i bytes_of_sums(sums16 sums)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(sums.left, sums.right), 0xD8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

ALWAYS_INLINE void bytes_run(const fby_vertical_row *row, size_t groups, uint8_t *out, uint32_t count)
{
    pair_weights kept = weights_keep(row, count);
    for (size_t group = 0; group < groups; group++) {
        __m128i bytes = bytes_of_sums(columns_sum(row, &kept, count, group));
        _mm_storeu_si128((void *)(out + group * FBY_GROUP), bytes);
    }
}

static void vertical_bytes_avx2(const fby_vertical_row *row, size_t groups, uint8_t *out)
{
    switch (row->count) {
    case 1:
        bytes_run(row, groups, out, 1);
        break;
    case 2:
        bytes_run(row, groups, out, 2);
        break;
    case 3:
        bytes_run(row, groups, out, 3);
        break;
    default:
        bytes_run(row, groups, out, 0);
    }
}

/* ---- levels to floats ---- */

/* What turns levels of one channel, or of 8 neighbours among interleaved ones, into the sink's floats. */
typedef struct conversion {
    __m256 scale_high, scale_low, shift, reciprocal_high, reciprocal_low;
} conversion;

ALWAYS_INLINE conversion conversion_of(const fby_sink *sink, int channel)
{
    return (conversion){
        _mm256_set1_ps(sink->scale_high),
        _mm256_set1_ps(sink->scale_low),
        _mm256_set1_ps(sink->shift[channel]),
        _mm256_set1_ps(sink->reciprocal_high[channel]),
        _mm256_set1_ps(sink->reciprocal_low[channel]),
    };
}

ALWAYS_INLINE __m256 floats_of(__m256i levels, const conversion *by)
{
    __m256 v = _mm256_cvtepi32_ps(levels);
    __m256 unit = _mm256_fmadd_ps(v, by->scale_high, _mm256_mul_ps(v, by->scale_low));
    __m256 centred = _mm256_sub_ps(unit, by->shift);
    return _mm256_fmadd_ps(centred, by->reciprocal_high, _mm256_mul_ps(centred, by->reciprocal_low));
}

/* No value is a NaN: a sink with one isn't exact by multiplication. */
ALWAYS_INLINE __m128i bfloat16s_of(__m256 values)
{
    __m256i bits = _mm256_castps_si256(values);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    __m256i high = _mm256_srli_epi32(rounded, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

/* 8 elements. dtype is a constant: f32, f16 or bf16. */
ALWAYS_INLINE void floats_store(__m256 values, fby_dtype dtype, char *out)
{
    if (dtype == FBY_F32) {
        _mm256_storeu_ps((float *)out, values);
    } else if (dtype == FBY_F16) {
        _mm_storeu_si128((void *)out, _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else {
        _mm_storeu_si128((void *)out, bfloat16s_of(values));
    }
}

ALWAYS_INLINE __m256i levels_clip(__m256i sums)
{
    return _mm256_min_epi32(_mm256_max_epi32(sums, _mm256_setzero_si256()), _mm256_set1_epi32(255));
}

ALWAYS_INLINE void floats_run(const fby_vertical_row *row, const fby_sink *sink, int channel, size_t n,
                              char *out, fby_dtype dtype, uint32_t count)
{
    const size_t element = dtype == FBY_F32 ? 4 : 2;
    pair_weights kept = weights_keep(row, count);
    conversion by = conversion_of(sink, channel);

    size_t groups = n / FBY_GROUP;
    for (size_t group = 0; group < groups; group++, out += FBY_GROUP * element) {
        sums16 sums = columns_sum(row, &kept, count, group);
        floats_store(floats_of(levels_clip(sums.left), &by), dtype, out);
        floats_store(floats_of(levels_clip(sums.right), &by), dtype, out + 8 * element);
    }
    if (n % FBY_GROUP) {
        char last[FBY_GROUP * sizeof(float)];
        sums16 sums = columns_sum(row, &kept, count, groups);
        floats_store(floats_of(levels_clip(sums.left), &by), dtype, last);
        floats_store(floats_of(levels_clip(sums.right), &by), dtype, last + 8 * element);
        memcpy(out, last, n % FBY_GROUP * element);
    }
}

ALWAYS_INLINE void floats_choose(const fby_vertical_row *row, const fby_sink *sink, int channel, size_t n,
                                 char *out, fby_dtype dtype)
{
    switch (row->count) {
    case 1:
        floats_run(row, sink, channel, n, out, dtype, 1);
        break;
    case 2:
        floats_run(row, sink, channel, n, out, dtype, 2);
        break;
    case 3:
        floats_run(row, sink, channel, n, out, dtype, 3);
        break;
    default:
        floats_run(row, sink, channel, n, out, dtype, 0);
    }
}

static void vertical_floats_avx2(const fby_vertical_row *row, const fby_sink *sink, int channel, size_t n,
                                 void *out)
{
    if (sink->dtype == FBY_F32) {
        floats_choose(row, sink, channel, n, out, FBY_F32);
    } else if (sink->dtype == FBY_F16) {
        floats_choose(row, sink, channel, n, out, FBY_F16);
    } else {
        floats_choose(row, sink, channel, n, out, FBY_BF16);
    }
}

ALWAYS_INLINE __m256i levels_load(const uint8_t *in)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)in));
}

ALWAYS_INLINE void plane_run(const fby_sink *sink, int channel, const uint8_t *in, size_t n, char *out,
                             fby_dtype dtype)
{
    const size_t element = dtype == FBY_F32 ? 4 : 2;
    conversion by = conversion_of(sink, channel);
    for (size_t i = 0; i + 8 <= n; i += 8)
        floats_store(floats_of(levels_load(in + i), &by), dtype, out + i * element);

    size_t done = n / 8 * 8;
    fby_kernels_c.convert_plane(sink, channel, in + done, n - done, out + done * element);
}

void fby_convert_plane_avx2(const fby_sink *sink, int channel, const uint8_t *in, size_t n, void *out)
{
    if (!sink->exact_by_multiplication) {
        fby_kernels_c.convert_plane(sink, channel, in, n, out);
    } else if (sink->dtype == FBY_F32) {
        plane_run(sink, channel, in, n, out, FBY_F32);
    } else if (sink->dtype == FBY_F16) {
        plane_run(sink, channel, in, n, out, FBY_F16);
    } else {
        plane_run(sink, channel, in, n, out, FBY_BF16);
    }
}

/* The same for interleaved levels: lane i has the channel (first + i) mod 3. */
static conversion conversion_interleaved(const fby_sink *sink, int first)
{
    float shift[8], high[8], low[8];
    for (int i = 0; i < 8; i++) {
        int channel = (first + i) % 3;
        shift[i] = sink->shift[channel];
        high[i] = sink->reciprocal_high[channel];
        low[i] = sink->reciprocal_low[channel];
    }
    return (conversion){
        _mm256_set1_ps(sink->scale_high),
        _mm256_set1_ps(sink->scale_low),
        _mm256_loadu_ps(shift),
        _mm256_loadu_ps(high),
        _mm256_loadu_ps(low),
    };
}

ALWAYS_INLINE void rgb_run(const fby_sink *sink, const uint8_t *in, size_t n, char *out, fby_dtype dtype)
{
    const size_t element = dtype == FBY_F32 ? 4 : 2;
    conversion by[3];
    for (int k = 0; k < 3; k++) by[k] = conversion_interleaved(sink, 8 * k % 3);

    for (size_t i = 0; i + 8 <= n; i += 8, in += 24, out += 24 * element) {
        floats_store(floats_of(levels_load(in), &by[0]), dtype, out);
        floats_store(floats_of(levels_load(in + 8), &by[1]), dtype, out + 8 * element);
        floats_store(floats_of(levels_load(in + 16), &by[2]), dtype, out + 16 * element);
    }
    fby_kernels_c.convert_rgb(sink, in, n % 8, out);
}

void fby_convert_rgb_avx2(const fby_sink *sink, const uint8_t *in, size_t n, void *out)
{
    if (!sink->exact_by_multiplication) {
        fby_kernels_c.convert_rgb(sink, in, n, out);
    } else if (sink->dtype == FBY_F32) {
        rgb_run(sink, in, n, out, FBY_F32);
    } else if (sink->dtype == FBY_F16) {
        rgb_run(sink, in, n, out, FBY_F16);
    } else {
        rgb_run(sink, in, n, out, FBY_BF16);
    }
}

/* ---- planes and interleaved pixels, 16 at a time ---- */

void fby_planes_of_rgb_avx2(const uint8_t *rgb, size_t n, bool flip, uint8_t *planes, size_t plane)
{
    const __m128i mirror = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    /* Where in each of the three 16-byte parts the bytes of red lie; green's and blue's follow by one and
     * two. */
    const __m128i part0 = _mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i part1 = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1);
    const __m128i part2 = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13);
    const __m128i green0 = _mm_setr_epi8(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i green1 = _mm_setr_epi8(-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1);
    const __m128i green2 = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14);
    const __m128i blue0 = _mm_setr_epi8(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i blue1 = _mm_setr_epi8(-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1);
    const __m128i blue2 = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15);
    const __m128i where[3][3] = {{part0, part1, part2}, {green0, green1, green2}, {blue0, blue1, blue2}};

    size_t done = n / 16 * 16;
    for (size_t i = 0; i < done; i += 16) {
        __m128i a = _mm_loadu_si128((const void *)(rgb + 3 * i));
        __m128i b = _mm_loadu_si128((const void *)(rgb + 3 * i + 16));
        __m128i c = _mm_loadu_si128((const void *)(rgb + 3 * i + 32));
        size_t at = flip ? n - 16 - i : i;
#pragma GCC unroll 3
        for (int channel = 0; channel < 3; channel++) {
            __m128i bytes =
                _mm_or_si128(_mm_shuffle_epi8(a, where[channel][0]), _mm_shuffle_epi8(b, where[channel][1]));
            bytes = _mm_or_si128(bytes, _mm_shuffle_epi8(c, where[channel][2]));
            if (flip) bytes = _mm_shuffle_epi8(bytes, mirror);
            _mm_storeu_si128((void *)(planes + channel * plane + at), bytes);
        }
    }
    fby_kernels_c.planes_of_rgb(rgb + 3 * done, n - done, flip, planes + (flip ? 0 : done), plane);
}

void fby_rgb_of_planes_avx2(const uint8_t *planes, size_t plane, size_t n, uint8_t *rgb)
{
    const __m128i red0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
    const __m128i green0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
    const __m128i blue0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
    const __m128i red1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
    const __m128i green1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
    const __m128i blue1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
    const __m128i red2 = _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
    const __m128i green2 = _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
    const __m128i blue2 = _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
    const __m128i where[3][3] = {{red0, green0, blue0}, {red1, green1, blue1}, {red2, green2, blue2}};

    size_t done = n / 16 * 16;
    for (size_t i = 0; i < done; i += 16) {
        __m128i red = _mm_loadu_si128((const void *)(planes + i));
        __m128i green = _mm_loadu_si128((const void *)(planes + plane + i));
        __m128i blue = _mm_loadu_si128((const void *)(planes + 2 * plane + i));
#pragma GCC unroll 3
        for (int part = 0; part < 3; part++) {
            __m128i bytes =
                _mm_or_si128(_mm_shuffle_epi8(red, where[part][0]), _mm_shuffle_epi8(green, where[part][1]));
            bytes = _mm_or_si128(bytes, _mm_shuffle_epi8(blue, where[part][2]));
            _mm_storeu_si128((void *)(rgb + 3 * i + 16 * part), bytes);
        }
    }
    fby_kernels_c.rgb_of_planes(planes + done, plane, n - done, rgb + 3 * done);
}

const fby_kernels fby_kernels_avx2 = {
    .horizontal_prepare = fby_horizontal_prepare_avx2,
    .pair_rows = fby_pair_rows_avx2,
    .vertical_bytes = vertical_bytes_avx2,
    .vertical_floats = vertical_floats_avx2,
    .convert_plane = fby_convert_plane_avx2,
    .convert_rgb = fby_convert_rgb_avx2,
    .planes_of_rgb = fby_planes_of_rgb_avx2,
    .rgb_of_planes = fby_rgb_of_planes_avx2,
};
