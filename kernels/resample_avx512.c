/* The AVX-512 tier: F, BW, VL, VBMI and VNNI.
 *
 * Horizontally, a vector holds 16 outputs of 4 taps each. One byte permutation of a 128-byte window of the
 * row fetches all 64 pixels of a channel; the other channels are the same permutation, one and two bytes on.
 * A 22-bit weight is d0 + 256 d1 + 65536 d2 with digits in -128..127, so three u8 x s8 dot products are
 * exact: s0 + (s1 << 8) + (s2 << 16), modulo 2^32, which the whole sum fits. Two rows share what is loaded of
 * the table. Where 16 outputs' first 4 taps don't lie within 128 bytes (from a scale of about 2.5), AVX2's
 * routine serves.
 *
 * Vertically, as AVX2 does, 32 columns at a time, with the 16-bit dot product. */
#ifdef FBY_AVX512_INTRINSICS
#include FBY_AVX512_INTRINSICS
#else
#include <immintrin.h>
#endif
#include <string.h>

#include "kernels/resample_kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ---- horizontal ---- */

enum { LANES = FBY_GROUP, STEP = 4, WINDOW = 128, VECTOR = 64 };

/* 16 outputs, 4 of their taps. */
typedef struct step {
    uint8_t index[VECTOR]; /* of red, in the window */
    int8_t digit[3][VECTOR];
} step;

/* What lies in `table`: the steps of each group of 16 outputs, then where each group's first window starts in
 * a row. */
typedef struct gather {
    step *steps;
    uint32_t *window;
    size_t groups;
    uint32_t steps_per_group;
} gather;

static gather gather_of(const fby_horizontal *horizontal)
{
    gather it = {0};
    it.groups = (horizontal->taps->out + LANES - 1) / LANES;
    it.steps_per_group = (horizontal->taps->longest + STEP - 1) / STEP;
    it.steps = horizontal->table.data;
    it.window = (uint32_t *)(it.steps + it.groups * it.steps_per_group);
    return it;
}

/* The bytes of 64 that lie before a row's end, `left` bytes on. */
ALWAYS_INLINE __mmask64 bytes_left(int64_t left)
{
    return left >= VECTOR ? ~(__mmask64)0 : left <= 0 ? 0 : ((__mmask64)1 << left) - 1;
}

typedef struct window_of_row {
    __m512i low, high;
} window_of_row;

/* 128 bytes of a row. Near its end (`masked`, a constant) nothing past it is read; what is missing has no
 * weight. */
ALWAYS_INLINE window_of_row window_load(const uint8_t *at, bool masked, int64_t left)
{
    if (!masked) return (window_of_row){_mm512_loadu_si512(at), _mm512_loadu_si512(at + VECTOR)};
    return (window_of_row){
        _mm512_maskz_loadu_epi8(bytes_left(left), at),
        _mm512_maskz_loadu_epi8(bytes_left(left - VECTOR), at + VECTOR),
    };
}

typedef struct digit_sums {
    __m512i sum[3];
} digit_sums;

ALWAYS_INLINE void digits_add(digit_sums *to, __m512i pixels, const __m512i digit[3])
{
    for (int i = 0; i < 3; i++) to->sum[i] = _mm512_dpbusd_epi32(to->sum[i], pixels, digit[i]);
}

ALWAYS_INLINE __m512i digits_join(const digit_sums *from)
{
    __m512i high = _mm512_add_epi32(_mm512_slli_epi32(from->sum[1], 8), _mm512_slli_epi32(from->sum[2], 16));
    return _mm512_srai_epi32(_mm512_add_epi32(from->sum[0], high), FBY_WEIGHT_BITS);
}

/* 16 sums of two rows as a group of a pair. */
ALWAYS_INLINE void group_store(__m512i upper, __m512i lower, uint8_t *out)
{
    /* Four columns of the upper row, then four of the lower, become neighbours two by two. */
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
    __m512i words = _mm512_min_epu16(_mm512_packus_epi32(upper, lower), _mm512_set1_epi16(255));
    __m256i left = _mm512_castsi512_si256(words), right = _mm512_extracti64x4_epi64(words, 1);
    __m256i both = _mm256_or_si256(left, _mm256_slli_epi16(right, 8));
    _mm256_storeu_si256((void *)out, _mm256_shuffle_epi8(both, order));
}

ALWAYS_INLINE void group_run(const step *steps, uint32_t count, const uint8_t *upper, const uint8_t *lower,
                             int64_t left, bool masked, uint8_t *out, size_t channel_bytes)
{
    const __m512i half = _mm512_set1_epi32(FBY_WEIGHT_HALF), zero = _mm512_setzero_si512();
    const __m512i one = _mm512_set1_epi8(1);
    digit_sums a[3], b[3];
    for (int channel = 0; channel < 3; channel++) a[channel] = b[channel] = (digit_sums){{half, zero, zero}};

    for (uint32_t i = 0; i < count; i++, steps++) {
        window_of_row x = window_load(upper, masked, left), y = window_load(lower, masked, left);
        __m512i index = _mm512_load_si512(steps->index);
        __m512i digit[3];
        for (int k = 0; k < 3; k++) digit[k] = _mm512_load_si512(steps->digit[k]);

#pragma GCC unroll 3
        for (int channel = 0; channel < 3; channel++) {
            digits_add(&a[channel], _mm512_permutex2var_epi8(x.low, index, x.high), digit);
            digits_add(&b[channel], _mm512_permutex2var_epi8(y.low, index, y.high), digit);
            index = _mm512_add_epi8(index, one);
        }
        upper += 3 * STEP;
        lower += 3 * STEP;
        left -= 3 * STEP;
    }

    for (int channel = 0; channel < 3; channel++) {
        group_store(digits_join(&a[channel]), digits_join(&b[channel]), out + channel * channel_bytes);
    }
}

static void horizontal_avx512(const fby_horizontal *horizontal, const uint8_t *const row[FBY_BLOCK_ROWS],
                              uint8_t *pairs, size_t pair_bytes)
{
    gather it = gather_of(horizontal);
    size_t channel_bytes = fby_groups(horizontal->taps->out) * FBY_GROUP_BYTES;
    int64_t row_bytes = (int64_t)3 * horizontal->taps->in;
    /* The farthest that the last step's window may start for its 128 bytes to be readable. */
    int64_t safe = row_bytes + FBY_READ_PAST_END - WINDOW - (int64_t)3 * STEP * (it.steps_per_group - 1);

    for (int pair = 0; pair < FBY_BLOCK_ROWS / 2; pair++) {
        const uint8_t *upper = row[2 * pair], *lower = row[2 * pair + 1];
        uint8_t *out = pairs + pair * pair_bytes;
        const step *steps = it.steps;
        for (size_t group = 0; group < it.groups;
             group++, out += FBY_GROUP_BYTES, steps += it.steps_per_group) {
            size_t at = it.window[group];
            int64_t left = row_bytes - (int64_t)at;
            if ((int64_t)at <= safe) {
                group_run(steps, it.steps_per_group, upper + at, lower + at, left, false, out, channel_bytes);
            } else {
                group_run(steps, it.steps_per_group, upper + at, lower + at, left, true, out, channel_bytes);
            }
        }
    }
}

/* Balanced digits of base 256. */
static void weight_split(int32_t weight, int8_t *d0, int8_t *d1, int8_t *d2)
{
    *d0 = (int8_t)weight;
    int32_t rest = (weight - *d0) >> 8;
    *d1 = (int8_t)rest;
    *d2 = (int8_t)((rest - *d1) >> 8);
}

/* The output that lane `lane` of group `group` computes; false past the end. */
static bool lane_output(const fby_horizontal *horizontal, size_t group, size_t lane, uint32_t *output)
{
    size_t at = group * LANES + lane, out = horizontal->taps->out;
    if (at >= out) return false;
    *output = (uint32_t)(horizontal->flip ? out - 1 - at : at);
    return true;
}

/* Fills one group's steps; false where its outputs are too far apart for a window. */
static bool group_fill(const fby_horizontal *horizontal, const gather *it, size_t group)
{
    const fby_taps *taps = horizontal->taps;
    uint32_t first = taps->in, last = 0, o;
    for (size_t lane = 0; lane < LANES && lane_output(horizontal, group, lane, &o); lane++) {
        if (taps->first[o] < first) first = taps->first[o];
        if (taps->first[o] > last) last = taps->first[o];
    }
    if ((last - first + STEP) * (uint64_t)3 > WINDOW) return false;

    step *steps = it->steps + group * it->steps_per_group;
    memset(steps, 0, it->steps_per_group * sizeof *steps);
    it->window[group] = 3 * first;
    for (size_t lane = 0; lane < LANES && lane_output(horizontal, group, lane, &o); lane++) {
        const int32_t *weight = taps->weight + taps->at[o];
        for (uint32_t tap = 0; tap < it->steps_per_group * STEP; tap++) {
            step *to = steps + tap / STEP;
            size_t at = lane * STEP + tap % STEP;
            to->index[at] = (uint8_t)(3 * (taps->first[o] - first + tap % STEP));
            if (tap >= taps->count[o]) continue;
            weight_split(weight[tap], &to->digit[0][at], &to->digit[1][at], &to->digit[2][at]);
        }
    }
    return true;
}

static int horizontal_prepare_avx512(fby_horizontal *horizontal)
{
    gather it = gather_of(horizontal);
    size_t bytes = it.groups * (it.steps_per_group * sizeof(step) + sizeof(uint32_t));
    if (fby_buffer_reserve(&horizontal->table, bytes)) return -1;

    it = gather_of(horizontal);
    for (size_t group = 0; group < it.groups; group++) {
        if (!group_fill(horizontal, &it, group)) return fby_horizontal_prepare_avx2(horizontal);
    }
    horizontal->run = horizontal_avx512;
    return 0;
}

/* ---- vertical ---- */

enum { COLUMNS = 2 * FBY_GROUP, KEPT_PAIRS = 3 };

/* The sums of 32 columns, not clipped: columns 0-15 and 16-31. */
typedef struct sums32 {
    __m512i first, second;
} sums32;

typedef struct pair_weights {
    __m512i low[KEPT_PAIRS], high[KEPT_PAIRS];
} pair_weights;

ALWAYS_INLINE pair_weights weights_keep(const fby_vertical_row *row, uint32_t count)
{
    pair_weights kept;
    for (uint32_t i = 0; i < KEPT_PAIRS; i++) {
        uint32_t at = i < count ? i : 0;
        kept.low[i] = _mm512_set1_epi32((int)row->weight[2 * at]);
        kept.high[i] = _mm512_set1_epi32((int)row->weight[2 * at + 1]);
    }
    return kept;
}

/* count: a constant 1..KEPT_PAIRS, whose weights are in `kept`, or 0: row->count. */
ALWAYS_INLINE sums32 columns_sum(const fby_vertical_row *row, const pair_weights *kept, uint32_t count,
                                 size_t group)
{
    const __m512i even_bytes = _mm512_set1_epi16(0x00FF);
    __m512i left_low = _mm512_set1_epi32(FBY_WEIGHT_HALF), right_low = left_low;
    __m512i left_high = _mm512_setzero_si512(), right_high = left_high;
    const uint8_t *at = row->pairs + group * FBY_GROUP_BYTES;

    uint32_t pairs = count ? count : row->count;
#pragma GCC unroll 3
    for (uint32_t i = 0; i < pairs; i++, at += row->pair_bytes) {
        __m512i low = count ? kept->low[i] : _mm512_set1_epi32((int)row->weight[2 * i]);
        __m512i high = count ? kept->high[i] : _mm512_set1_epi32((int)row->weight[2 * i + 1]);
        __m512i both = _mm512_load_si512(at);
        __m512i left = _mm512_and_si512(both, even_bytes), right = _mm512_srli_epi16(both, 8);
        left_low = _mm512_dpwssd_epi32(left_low, left, low);
        left_high = _mm512_dpwssd_epi32(left_high, left, high);
        right_low = _mm512_dpwssd_epi32(right_low, right, low);
        right_high = _mm512_dpwssd_epi32(right_high, right, high);
    }

    __m512i left =
        _mm512_srai_epi32(_mm512_add_epi32(left_low, _mm512_slli_epi32(left_high, 11)), FBY_WEIGHT_BITS);
    __m512i right =
        _mm512_srai_epi32(_mm512_add_epi32(right_low, _mm512_slli_epi32(right_high, 11)), FBY_WEIGHT_BITS);
    return (sums32){_mm512_shuffle_i64x2(left, right, 0x44), _mm512_shuffle_i64x2(left, right, 0xEE)};
}

ALWAYS_INLINE __m512i not_negative(__m512i sums)
{
    return _mm512_max_epi32(sums, _mm512_setzero_si512());
}

ALWAYS_INLINE void bytes_run(const fby_vertical_row *row, size_t groups, uint8_t *out, uint32_t count)
{
    pair_weights kept = weights_keep(row, count);
    for (size_t group = 0; group < groups; group += 2, out += COLUMNS) {
        sums32 sums = columns_sum(row, &kept, count, group);
        _mm_storeu_si128((void *)out, _mm512_cvtusepi32_epi8(not_negative(sums.first)));
        _mm_storeu_si128((void *)(out + FBY_GROUP), _mm512_cvtusepi32_epi8(not_negative(sums.second)));
    }
}

static void vertical_bytes_avx512(const fby_vertical_row *row, size_t groups, uint8_t *out)
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

typedef struct conversion {
    __m512 scale_high, scale_low, shift, reciprocal_high, reciprocal_low;
} conversion;

ALWAYS_INLINE conversion conversion_of(const fby_sink *sink, int channel)
{
    return (conversion){
        _mm512_set1_ps(sink->scale_high),
        _mm512_set1_ps(sink->scale_low),
        _mm512_set1_ps(sink->shift[channel]),
        _mm512_set1_ps(sink->reciprocal_high[channel]),
        _mm512_set1_ps(sink->reciprocal_low[channel]),
    };
}

ALWAYS_INLINE __m512 floats_of(__m512i sums, const conversion *by)
{
    __m512 v = _mm512_cvtepi32_ps(_mm512_min_epi32(not_negative(sums), _mm512_set1_epi32(255)));
    __m512 unit = _mm512_fmadd_ps(v, by->scale_high, _mm512_mul_ps(v, by->scale_low));
    __m512 centred = _mm512_sub_ps(unit, by->shift);
    return _mm512_fmadd_ps(centred, by->reciprocal_high, _mm512_mul_ps(centred, by->reciprocal_low));
}

/* No value is a NaN: a sink with one isn't exact by multiplication. */
ALWAYS_INLINE __m256i bfloat16s_of(__m512 values)
{
    __m512i bits = _mm512_castps_si512(values);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

/* 16 elements. dtype is a constant: f32, f16 or bf16. */
ALWAYS_INLINE void floats_store(__m512 values, fby_dtype dtype, char *out)
{
    if (dtype == FBY_F32) {
        _mm512_storeu_ps(out, values);
    } else if (dtype == FBY_F16) {
        _mm256_storeu_si256((void *)out,
                            _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else {
        _mm256_storeu_si256((void *)out, bfloat16s_of(values));
    }
}

ALWAYS_INLINE void floats_run(const fby_vertical_row *row, const fby_sink *sink, int channel, size_t n,
                              char *out, fby_dtype dtype, uint32_t count)
{
    const size_t element = dtype == FBY_F32 ? 4 : 2;
    pair_weights kept = weights_keep(row, count);
    conversion by = conversion_of(sink, channel);

    size_t whole = n / COLUMNS;
    for (size_t i = 0; i < whole; i++, out += COLUMNS * element) {
        sums32 sums = columns_sum(row, &kept, count, 2 * i);
        floats_store(floats_of(sums.first, &by), dtype, out);
        floats_store(floats_of(sums.second, &by), dtype, out + FBY_GROUP * element);
    }
    if (n % COLUMNS) {
        char last[COLUMNS * sizeof(float)];
        sums32 sums = columns_sum(row, &kept, count, 2 * whole);
        floats_store(floats_of(sums.first, &by), dtype, last);
        floats_store(floats_of(sums.second, &by), dtype, last + FBY_GROUP * element);
        memcpy(out, last, n % COLUMNS * element);
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

static void vertical_floats_avx512(const fby_vertical_row *row, const fby_sink *sink, int channel, size_t n,
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

const fby_kernels fby_kernels_avx512 = {
    .horizontal_prepare = horizontal_prepare_avx512,
    .pair_rows = fby_pair_rows_avx2,
    .vertical_bytes = vertical_bytes_avx512,
    .vertical_floats = vertical_floats_avx512,
    .convert_plane = fby_convert_plane_avx2,
    .convert_rgb = fby_convert_rgb_avx2,
    .planes_of_rgb = fby_planes_of_rgb_avx2,
    .rgb_of_planes = fby_rgb_of_planes_avx2,
};
