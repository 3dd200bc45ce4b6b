/* What FBL's AVX-512 bodies share: 64 lanes of bytes are a vector, its two halves 32 lanes of one tile each:
 * of two tiles (rans) or of one (pack). */
#ifndef FBY_KERNELS_FBL_AVX512_H
#define FBY_KERNELS_FBL_AVX512_H

#ifdef FBY_AVX512_INTRINSICS
#include FBY_AVX512_INTRINSICS
#else
#include <immintrin.h>
#endif
#include <string.h>

#include "kernels/fbl.h"
#include "kernels/fbl_avx2.h"

#define FBL_AVX512 static inline __attribute__((always_inline))

enum {
    FBL_HALVES = 2,
    /* vpternlog's results, of its operands a, b, c: */
    FBL_CHOOSE = 0xCA, /* where a: b, else c */
    FBL_OR_AND = 0xF8, /* a | (b & c) */
    FBL_AND_XOR = 0x28 /* (a ^ b) & c */
};

void fby_fbl_rans_avx512(fby_fbl_rans *const *tile, uint32_t count);
void fby_fbl_pack_avx512(fby_fbl_pack *tile);

/* Each lane's left neighbour; the first of each eight keeps `at_edge`. */
FBL_AVX512 __m512i fbl_wide_from_left(__m512i of, __m512i at_edge)
{
    const __m512i first = _mm512_set1_epi64(0xFF);
    return _mm512_ternarylogic_epi64(_mm512_slli_epi64(of, 8), at_edge, first, FBL_OR_AND);
}

FBL_AVX512 __m512i fbl_wide_from_right(__m512i of, __m512i at_edge)
{
    const __m512i last = _mm512_set1_epi64((long long)0xFF00000000000000u);
    return _mm512_ternarylogic_epi64(_mm512_srli_epi64(of, 8), at_edge, last, FBL_OR_AND);
}

/* Both bits of the predictors, as masks. */
FBL_AVX512 __m512i fbl_wide_predict(__m512i w, __m512i n, __m512i nw, __m512i ne, __m512i low, __m512i high)
{
    __m512i least = _mm512_min_epu8(w, n), most = _mm512_max_epu8(w, n);
    __m512i clamped = _mm512_min_epu8(_mm512_max_epu8(nw, least), most);
    __m512i median = _mm512_sub_epi8(_mm512_add_epi8(w, n), clamped), mean = _mm512_avg_epu8(w, n);
    __m512i other = _mm512_ternarylogic_epi64(high, _mm512_avg_epu8(w, ne), mean, FBL_CHOOSE);
    return _mm512_ternarylogic_epi64(low, _mm512_avg_epu8(median, other),
                                     _mm512_ternarylogic_epi64(high, mean, median, FBL_CHOOSE), FBL_CHOOSE);
}

/* z >> 1, all of it inverted where z is odd: a product of bit matrices. Row i, from the highest byte down,
 * says which bits of z make bit i: bit i + 1 and bit 0. */
FBL_AVX512 __m512i fbl_wide_of_zigzag(__m512i z)
{
    return _mm512_gf2p8affine_epi64_epi8(z, _mm512_set1_epi64(0x0305091121418101), 0);
}

/* ---- row steps out ---- */

typedef struct fbl_half {
    const fby_fbl_coded *coded;
    uint32_t first; /* of its lanes in the tile */
    fbl_out out;
} fbl_half;

FBL_AVX512 void fbl_half_begin(fbl_half *half, const fby_fbl_coded *coded, uint32_t first)
{
    half->coded = coded;
    half->first = first;
    fbl_out_begin(&half->out, coded, first);
}

/* Where a plane is a difference to green, by lane. */
FBL_AVX512 __m512i fbl_wide_minus_green(const fbl_half *half, uint32_t halves, uint32_t plane)
{
    uint64_t lanes = 0;
    for (uint32_t h = 0; h < halves; h++) {
        if (half[h].coded->minus_green >> plane & 1) lanes |= (uint64_t)UINT32_MAX << 32 * h;
    }
    return _mm512_movm_epi8(lanes);
}

/* 16 vectors of 64 lanes to 16 bytes a lane, which are stored so many bytes behind the lane's row. */
FBL_AVX512 void fbl_wide_store_lanes(const __m512i *in, uint8_t *const *row1, size_t at1,
                                     uint8_t *const *row2, size_t at2, uint32_t halves)
{
    __m512i a[16], b[16];
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm512_unpacklo_epi8(in[i], in[i + 8]);
        a[2 * i + 1] = _mm512_unpackhi_epi8(in[i], in[i + 8]);
    }
    for (int i = 0; i < 8; i++) {
        b[2 * i] = _mm512_unpacklo_epi8(a[i], a[i + 8]);
        b[2 * i + 1] = _mm512_unpackhi_epi8(a[i], a[i + 8]);
    }
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm512_unpacklo_epi8(b[i], b[i + 8]);
        a[2 * i + 1] = _mm512_unpackhi_epi8(b[i], b[i + 8]);
    }
    for (int i = 0; i < 8; i++) {
        b[2 * i] = _mm512_unpacklo_epi8(a[i], a[i + 8]);
        b[2 * i + 1] = _mm512_unpackhi_epi8(a[i], a[i + 8]);
    }
    for (int i = 0; i < 16; i++) _mm_storeu_si128((__m128i *)(row1[i] + at1), _mm512_castsi512_si128(b[i]));
    for (int i = 0; i < 16; i++)
        _mm_storeu_si128((__m128i *)(row1[i + 16] + at1), _mm512_extracti32x4_epi32(b[i], 1));
    if (halves < FBL_HALVES) return;
    for (int i = 0; i < 16; i++)
        _mm_storeu_si128((__m128i *)(row2[i] + at2), _mm512_extracti32x4_epi32(b[i], 2));
    for (int i = 0; i < 16; i++)
        _mm_storeu_si128((__m128i *)(row2[i + 16] + at2), _mm512_extracti32x4_epi32(b[i], 3));
}

/* Planes to channels, of lanes that are interleaved: by position, then channel; or planar: the other way
 * round. Green comes back to what was a difference to it. */
FBL_AVX512 void fbl_wide_channels(const __m512i *const *value, const __m512i *minus_green, uint32_t channels,
                                  uint32_t width, bool planar, __m512i *block)
{
    const __m512i half = _mm512_set1_epi8((char)128);
    const uint32_t across = planar ? 1 : channels, between = planar ? FBY_FBL_MICRO_WIDTH : 1;

    for (uint32_t p = 0; p < channels; p++) {
        __m512i *to = block + (size_t)fby_fbl_channel_of(p, channels) * between;
        const bool differs = channels >= 3 && (p == 1 || p == 2);
        for (uint32_t x = 0; x < width; x++) {
            __m512i green = _mm512_ternarylogic_epi64(value[0][x], half, minus_green[p], FBL_AND_XOR);
            to[(size_t)x * across] = differs ? _mm512_add_epi8(value[p][x], green) : value[p][x];
        }
        for (uint32_t x = width; x < FBY_FBL_MICRO_WIDTH; x++)
            to[(size_t)x * across] = _mm512_setzero_si512();
    }
}

/* Writes those of the halves that `wanted` has bits of, all planar or all interleaved. */
FBL_AVX512 void fbl_halves_out(fbl_half *half, uint32_t halves, uint32_t wanted, bool planar, uint32_t step,
                               const __m512i *const *value, const __m512i *minus_green, uint32_t channels)
{
    __m512i block[FBY_FBL_MICRO_WIDTH * FBY_FBL_PLANES];
    uint8_t staged[FBL_HALVES][FBY_LANES][64], *stage[FBL_HALVES][FBY_LANES], *const *row[FBL_HALVES] = {0};
    bool straight[FBL_HALVES];

    const uint32_t width = half[0].coded->shape.micro_width;

    if (width == FBY_FBL_MICRO_WIDTH)
        fbl_wide_channels(value, minus_green, channels, FBY_FBL_MICRO_WIDTH, planar, block);
    else
        fbl_wide_channels(value, minus_green, channels, width, planar, block);
    for (uint32_t h = 0; h < halves; h++) {
        straight[h] = half[h].out.whole && (wanted >> h & 1);
        row[h] = straight[h] ? half[h].out.row : stage[h];
        for (uint32_t lane = 0; lane < FBY_LANES && !straight[h]; lane++) stage[h][lane] = staged[h][lane];
    }
    for (uint32_t i = 0; i < channels; i++) {
        size_t at[FBL_HALVES] = {0};
        for (uint32_t h = 0; h < halves; h++) {
            size_t plane = straight[h] ? i * half[h].coded->place.plane : 0;
            at[h] = planar ? plane : (size_t)i * FBY_FBL_MICRO_WIDTH;
        }
        fbl_wide_store_lanes(block + (size_t)i * FBY_FBL_MICRO_WIDTH, row[0], at[0], row[1], at[1], halves);
        for (uint32_t h = 0; h < halves; h++) {
            if (straight[h] || !(wanted >> h & 1) || (!planar && i + 1 < channels)) continue;
            fbl_unstage(half[h].coded, half[h].first, step, staged[h],
                        planar ? i * half[h].coded->place.plane : 0, planar ? 1 : channels);
        }
    }
}

/* Writes a row step of 64 lanes, or of 32 where there is one half: value[plane][x] are its vectors. */
FBL_AVX512 void fbl_wide_row_out(fbl_half *half, uint32_t halves, uint32_t step, const __m512i *const *value,
                                 const __m512i *minus_green, uint32_t channels)
{
    uint32_t planar = 0, all = (1u << halves) - 1;

    for (uint32_t h = 0; h < halves; h++) {
        planar |= (uint32_t)half[h].coded->place.planar << h;
        if (step) fbl_out_next(&half[h].out, half[h].coded, half[h].first, step);
    }
    /* Two tiles of a region needn't go to one kind of place. */
    if (planar) fbl_halves_out(half, halves, planar, true, step, value, minus_green, channels);
    if (planar == all) return;
    if (channels == 3)
        fbl_halves_out(half, halves, all & ~planar, false, step, value, minus_green, 3);
    else
        fbl_halves_out(half, halves, all & ~planar, false, step, value, minus_green, channels);
}

#endif
