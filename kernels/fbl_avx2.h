/* What FBL's AVX2 bodies share: 32 lanes of bytes are a vector. */
#ifndef FBY_KERNELS_FBL_AVX2_H
#define FBY_KERNELS_FBL_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/fbl.h"

#define FBL_AVX2 static inline __attribute__((always_inline))

void fby_fbl_rans_avx2(fby_fbl_rans *const *tile, uint32_t count);
void fby_fbl_palette_avx2(fby_fbl_palette *tile);
void fby_fbl_pack_avx2(fby_fbl_pack *tile);
void fby_fbl_model_rans_avx2(fby_fbl_work *work, const uint32_t *shift);
void fby_fbl_model_pack_avx2(fby_fbl_work *work);
size_t fby_fbl_encode_pack_avx2(fby_fbl_work *work, uint8_t *out);
uint8_t *fby_fbl_push_avx2(const fby_fbl_push *push, const uint8_t *values, const uint8_t *sums,
                           uint32_t count, uint32_t *state, uint8_t *at);

/* Each lane's left neighbour; the first of each eight keeps `at_edge`. */
FBL_AVX2 __m256i fbl_from_left(__m256i of, __m256i at_edge)
{
    const __m256i first = _mm256_set1_epi64x(0xFF);
    return _mm256_or_si256(_mm256_slli_epi64(of, 8), _mm256_and_si256(at_edge, first));
}

FBL_AVX2 __m256i fbl_from_right(__m256i of, __m256i at_edge)
{
    const __m256i last = _mm256_set1_epi64x((long long)0xFF00000000000000u);
    return _mm256_or_si256(_mm256_srli_epi64(of, 8), _mm256_and_si256(at_edge, last));
}

/* A byte of ones for each lane whose bit is set. */
FBL_AVX2 __m256i fbl_lane_mask(uint32_t bits)
{
    const __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2,
                                          2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
}

FBL_AVX2 __m256i fbl_median(__m256i w, __m256i n, __m256i nw)
{
    __m256i low = _mm256_min_epu8(w, n), high = _mm256_max_epu8(w, n);
    __m256i clamped = _mm256_min_epu8(_mm256_max_epu8(nw, low), high);
    return _mm256_sub_epi8(_mm256_add_epi8(low, high), clamped);
}

/* b where the mask's bytes have bit 7, else a. GCC 12 takes the intrinsic for a comparison and makes one. */
FBL_AVX2 __m256i fbl_choose(__m256i a, __m256i b, __m256i mask)
{
    __m256i chosen;
    __asm__("vpblendvb %3, %2, %1, %0" : "=x"(chosen) : "x"(a), "xm"(b), "x"(mask));
    return chosen;
}

/* Both bits of the predictors, as masks. */
FBL_AVX2 __m256i fbl_predict(__m256i w, __m256i n, __m256i nw, __m256i ne, __m256i low, __m256i high)
{
    __m256i median = fbl_median(w, n, nw), mean = _mm256_avg_epu8(w, n);
    __m256i other = fbl_choose(mean, _mm256_avg_epu8(w, ne), high);
    return fbl_choose(fbl_choose(median, mean, high), _mm256_avg_epu8(median, other), low);
}

/* The size of a zigzag value is what the residual's is; odd values are negative. */
FBL_AVX2 __m256i fbl_size(__m256i z)
{
    return _mm256_avg_epu8(z, _mm256_setzero_si256());
}

FBL_AVX2 __m256i fbl_of_zigzag(__m256i z)
{
    /* Of each byte only bit 7 matters, and that there is another. */
    __m256i sign = _mm256_or_si256(_mm256_slli_epi16(z, 7), _mm256_set1_epi8(1));
    return _mm256_sign_epi8(fbl_size(z), sign);
}

FBL_AVX2 __m256i fbl_zigzag(__m256i difference)
{
    __m256i sign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), difference);
    return _mm256_xor_si256(_mm256_add_epi8(difference, difference), sign);
}

/* 16 vectors of 32 lanes to 16 bytes a lane: out[i] has lane i and, in its high half, lane 16 + i. */
FBL_AVX2 void fbl_transpose(const __m256i *in, __m256i *out)
{
    __m256i a[16], b[16];
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm256_unpacklo_epi8(in[i], in[i + 8]);
        a[2 * i + 1] = _mm256_unpackhi_epi8(in[i], in[i + 8]);
    }
    for (int i = 0; i < 8; i++) {
        b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 8]);
        b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 8]);
    }
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm256_unpacklo_epi8(b[i], b[i + 8]);
        a[2 * i + 1] = _mm256_unpackhi_epi8(b[i], b[i + 8]);
    }
    for (int i = 0; i < 8; i++) {
        out[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 8]);
        out[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 8]);
    }
}

/* Where the lanes' samples of a row step go. */
typedef struct fbl_out {
    uint8_t *row[FBY_LANES]; /* of whole tiles; the others' are found row step by row step */
    bool whole;              /* 16 positions a lane, and no padding */
} fbl_out;

FBL_AVX2 void fbl_out_begin(fbl_out *out, const fby_fbl_coded *coded, uint32_t first)
{
    const fby_fbl_shape *shape = &coded->shape;
    const uint32_t pixel = coded->place.planar ? 1 : coded->channels;

    out->whole = shape->width == FBY_FBL_TILE_SIDE && shape->micro_height >= FBY_FBL_ACROSS &&
                 shape->height == shape->micro_height * shape->down;
    for (uint32_t lane = 0; lane < FBY_LANES && out->whole; lane++) {
        out->row[lane] = coded->place.at + fby_fbl_row_of(shape, first + lane, 0) * coded->place.row +
                         (size_t)(lane % FBY_FBL_ACROSS) * FBY_FBL_MICRO_WIDTH * pixel;
    }
}

/* On to row step `step`: where a lane comes to the tile's first row, it was at the last. */
FBL_AVX2 void fbl_out_next(fbl_out *out, const fby_fbl_coded *coded, uint32_t first, uint32_t step)
{
    if (!out->whole) return;
    for (uint32_t lane = 0; lane < FBY_LANES; lane++) out->row[lane] += coded->place.row;
    if (first == 0 && step < FBY_FBL_ACROSS) out->row[step] -= coded->place.row * coded->shape.height;
}

/* Stores 16 bytes of each lane, `at` bytes behind its row's beginning. */
FBL_AVX2 void fbl_store_lanes(const __m256i *block, uint8_t *const *row, size_t at)
{
    __m256i lane[16];
    fbl_transpose(block, lane);
    for (int i = 0; i < 16; i++) {
        _mm_storeu_si128((__m128i *)(row[i] + at), _mm256_castsi256_si128(lane[i]));
        _mm_storeu_si128((__m128i *)(row[i + 16] + at), _mm256_extracti128_si256(lane[i], 1));
    }
}

/* Bytes of a lane in `staged`, as far as they lie within the tile. */
FBL_AVX2 void fbl_unstage(const fby_fbl_coded *coded, uint32_t first, uint32_t step, uint8_t (*staged)[64],
                          size_t plane, uint32_t pixel)
{
    const fby_fbl_shape *shape = &coded->shape;
    for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
        uint32_t y = fby_fbl_row_of(shape, first + lane, step);
        uint32_t x = lane % FBY_FBL_ACROSS * shape->micro_width;
        if (y >= shape->height || x >= shape->width) continue;
        uint32_t count = shape->width - x < shape->micro_width ? shape->width - x : shape->micro_width;
        memcpy(coded->place.at + plane + y * coded->place.row + (size_t)x * pixel, staged[lane],
               (size_t)count * pixel);
    }
}

/* Writes a row step of 32 lanes whose vectors of channel c are channel[c][x]. */
FBL_AVX2 void fbl_row_out(const fbl_out *out, const fby_fbl_coded *coded, uint32_t first, uint32_t step,
                          const __m256i *const *channel, uint32_t channels)
{
    const uint32_t width = coded->shape.micro_width;
    __m256i block[FBY_FBL_MICRO_WIDTH * FBY_FBL_PLANES];
    uint8_t staged[FBY_LANES][64], *stage[FBY_LANES];

    for (uint32_t lane = 0; lane < FBY_LANES && !out->whole; lane++) stage[lane] = staged[lane];
    if (coded->place.planar) {
        for (uint32_t c = 0; c < channels; c++) {
            if (out->whole) {
                fbl_store_lanes(channel[c], out->row, c * coded->place.plane);
                continue;
            }
            fbl_store_lanes(channel[c], stage, 0);
            fbl_unstage(coded, first, step, staged, c * coded->place.plane, 1);
        }
        return;
    }
    for (uint32_t x = 0; x < width; x++) {
        for (uint32_t c = 0; c < channels; c++) block[x * channels + c] = channel[c][x];
    }
    for (uint32_t i = width * channels; i < FBY_FBL_MICRO_WIDTH * channels; i++)
        block[i] = _mm256_setzero_si256();
    for (uint32_t i = 0; i < channels; i++) {
        fbl_store_lanes(block + (size_t)i * 16, out->whole ? out->row : stage, (size_t)i * 16);
    }
    if (!out->whole) fbl_unstage(coded, first, step, staged, 0, channels);
}

/* Planes to channels: green comes back to what was a difference to it. `with_green` has room for two planes.
 */
FBL_AVX2 void fbl_channels(const __m256i *const *plane, uint32_t channels, uint32_t minus_green,
                           uint32_t width, __m256i (*with_green)[FBY_FBL_MICRO_WIDTH],
                           const __m256i **channel)
{
    const __m256i half = _mm256_set1_epi8((char)128);

    for (uint32_t p = 0; p < channels; p++) {
        channel[fby_fbl_channel_of(p, channels)] = plane[p];
        if (!(minus_green >> p & 1)) continue;
        for (uint32_t x = 0; x < width; x++) {
            with_green[p - 1][x] = _mm256_add_epi8(plane[p][x], _mm256_xor_si256(plane[0][x], half));
        }
        channel[fby_fbl_channel_of(p, channels)] = with_green[p - 1];
    }
}

#endif
