/* FBL's pack tiles of 8 bits with AVX2.
 *
 * A group is spread to its eight bytes by one PDEP, whose mask follows from its width; 8 x 8 byte transposes
 * make vectors of 32 lanes of them. The 64 lanes are two vectors, which don't meet: their edges are lane
 * columns'. */
#include "kernels/fbl_avx2.h"

enum { HALVES = 2, GROUP = 8, GROUPS = 2 * FBY_LANES };

typedef struct row {
    __m256i value[FBY_FBL_MICRO_WIDTH + 1], left, low, high;
} row;

typedef struct decoding {
    row row[HALVES][FBY_FBL_PLANES];
    __m256i residual[FBY_FBL_PLANES][2][HALVES][FBY_FBL_MICRO_WIDTH];
    fbl_out out[HALVES];
} decoding;

/* What a plane's codes mean. */
typedef struct widths {
    uint64_t code[8]; /* width of each code */
} widths;

static const uint64_t masks[9] = {
    0,
    0x0101010101010101u * 1,
    0x0101010101010101u * 3,
    0x0101010101010101u * 7,
    0x0101010101010101u * 15,
    0x0101010101010101u * 31,
    0x0101010101010101u * 63,
    0x0101010101010101u * 127,
    0x0101010101010101u * 255,
};

/* Eight lanes of eight bytes to eight vectors' bytes: 8 x 8 transposes of two halves at once. */
FBL_AVX2 void spread(const uint64_t *lanes, __m256i *out, size_t out_step)
{
    /* in[i]: lanes 2i, 2i + 1 of each 16; the high half has those 16 lanes on. */
    __m256i in[8], a[8], b[8];
    for (int i = 0; i < 8; i++) {
        __m128i low = _mm_loadu_si128((const __m128i *)(lanes + 2 * i));
        in[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                        _mm_loadu_si128((const __m128i *)(lanes + 16 + 2 * i)), 1);
    }
    /* Bytes of lane l, value v: unpacking i with i + 4 brings lanes l and l + 8 side by side, and so on. */
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi8(in[i], in[i + 4]);
        a[2 * i + 1] = _mm256_unpackhi_epi8(in[i], in[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 4]);
        b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi8(b[i], b[i + 4]);
        a[2 * i + 1] = _mm256_unpackhi_epi8(b[i], b[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = _mm256_unpacklo_epi8(a[i], a[i + 4]);
        b[2 * i + 1] = _mm256_unpackhi_epi8(a[i], a[i + 4]);
    }
    for (int i = 0; i < 8; i++) out[(size_t)(i / 4) * out_step + (size_t)(i % 4)] = fbl_of_zigzag(b[i]);
}

/* The groups of a row pair, plane and quad. */
FBL_AVX2 const uint8_t *groups(const uint8_t *codes, const uint8_t *group, const widths *of, uint64_t *lanes)
{
    for (int i = 0; i < GROUPS; i += 8, codes += 3) {
        uint32_t eight = codes[0] | (uint32_t)codes[1] << 8 | (uint32_t)codes[2] << 16;
        for (int k = 0; k < 8; k++, eight >>= 3) {
            uint64_t width = of->code[eight & 7], bytes;
            memcpy(&bytes, group, sizeof bytes);
            lanes[i + k] = _pdep_u64(bytes, masks[width]);
            group += width;
        }
    }
    return group;
}

FBL_AVX2 void row_first(row *of, const __m256i *residual, uint32_t width)
{
    __m256i w = _mm256_set1_epi8((char)128);
    for (uint32_t x = 0; x < width; x++) of->value[x] = w = _mm256_add_epi8(w, residual[x]);
    of->left = of->value[0];
}

/* All planes and both halves of a row step, position by position: each waits for its left neighbour. */
FBL_AVX2 void rows_next(decoding *d, uint32_t half, uint32_t second, uint32_t width, uint32_t channels)
{
    __m256i w[FBY_FBL_PLANES], nw[FBY_FBL_PLANES];

    for (uint32_t p = 0; p < channels; p++) {
        row *of = &d->row[half][p];
        w[p] = fbl_from_left(of->value[width - 1], of->value[0]);
        nw[p] = of->left;
        of->left = w[p];
    }
    for (uint32_t x = 0; x < width; x++) {
        for (uint32_t p = 0; p < channels; p++) {
            row *of = &d->row[half][p];
            __m256i n = of->value[x];
            __m256i predicted = fbl_predict(w[p], n, nw[p], of->value[x + 1], of->low, of->high);
            w[p] = _mm256_add_epi8(predicted, d->residual[p][second][half][x]);
            nw[p] = n;
            of->value[x] = w[p];
            if (!x) of->value[width] = fbl_from_right(w[p], of->value[width - 1]);
        }
    }
}

FBL_AVX2 void row_out(decoding *d, const fby_fbl_coded *coded, uint32_t half, uint32_t step,
                      uint32_t channels)
{
    __m256i with_green[2][FBY_FBL_MICRO_WIDTH];
    const __m256i *plane[FBY_FBL_PLANES], *channel[FBY_FBL_PLANES];

    for (uint32_t p = 0; p < channels; p++) plane[p] = d->row[half][p].value;
    fbl_channels(plane, channels, coded->minus_green, coded->shape.micro_width, with_green, channel);
    if (step) fbl_out_next(&d->out[half], coded, half * FBY_LANES, step);
    fbl_row_out(&d->out[half], coded, half * FBY_LANES, step, channel, channels);
}

/* The residuals of two row steps; NULL where the tile's bytes don't suffice. */
FBL_AVX2 const uint8_t *residuals(decoding *d, const fby_fbl_coded *coded, const widths *of,
                                  uint32_t channels, const uint8_t **codes, const uint8_t *group)
{
    _Alignas(64) uint64_t lanes[GROUPS];

    for (uint32_t p = 0; p < channels; p++) {
        for (uint32_t x = 0; x < coded->shape.micro_width; x += 4, *codes += 24) {
            const size_t second = (size_t)HALVES * FBY_FBL_MICRO_WIDTH;
            /* 64 groups are at most 512 bytes: what can't be read safely is told before. */
            if (coded->end - group < GROUPS * GROUP) {
                size_t bytes = 0;
                for (uint32_t i = 0; i < GROUPS; i++) {
                    uint32_t bit = i * 3, pair = (*codes)[bit / 8];
                    if (bit % 8 > 5) pair |= (uint32_t)(*codes)[bit / 8 + 1] << 8;
                    bytes += of[p].code[pair >> bit % 8 & 7];
                }
                if (bytes > (size_t)(coded->end - group)) return NULL;
            }
            group = groups(*codes, group, &of[p], lanes);
            spread(lanes, d->residual[p][0][0] + x, second);
            spread(lanes + FBY_LANES, d->residual[p][0][1] + x, second);
        }
    }
    return group;
}

FBL_AVX2 void decode(fby_fbl_pack *tile, uint32_t channels)
{
    fby_fbl_coded *coded = &tile->coded;
    const uint32_t width = coded->shape.micro_width;
    const uint8_t *codes = coded->bytes, *group = codes + fby_fbl_pack_codes(&coded->shape, channels, 8);
    widths of[FBY_FBL_PLANES];
    decoding d;

    coded->good = false;
    for (uint32_t p = 0; p < channels; p++) {
        for (uint32_t code = 0; code < 8; code++) of[p].code[code] = code + (code >= tile->left_out[p]);
        for (uint32_t half = 0; half < HALVES; half++) {
            d.row[half][p].low = fbl_lane_mask((uint32_t)(tile->predictor[p][0] >> 32 * half));
            d.row[half][p].high = fbl_lane_mask((uint32_t)(tile->predictor[p][1] >> 32 * half));
        }
    }
    for (uint32_t half = 0; half < HALVES; half++) fbl_out_begin(&d.out[half], coded, half * FBY_LANES);
    for (uint32_t step = 0; step < coded->shape.micro_height; step++) {
        if (step % 2 == 0) group = residuals(&d, coded, of, channels, &codes, group);
        if (!group) return;
        for (uint32_t half = 0; half < HALVES; half++) {
            for (uint32_t p = 0; p < channels && !step; p++)
                row_first(&d.row[half][p], d.residual[p][0][half], width);
            if (step) rows_next(&d, half, step % 2, width, channels);
            row_out(&d, coded, half, step, channels);
        }
    }
    coded->good = coded->end - group < 4;
}

static __attribute__((noinline)) void decode_3(fby_fbl_pack *tile)
{
    decode(tile, 3);
}

static __attribute__((noinline)) void decode_any(fby_fbl_pack *tile)
{
    decode(tile, tile->coded.channels);
}

void fby_fbl_pack_avx2(fby_fbl_pack *tile)
{
    if (tile->coded.bits > 8)
        fby_fbl_kernels_c.pack(tile);
    else if (tile->coded.channels == 3)
        decode_3(tile);
    else
        decode_any(tile);
}
