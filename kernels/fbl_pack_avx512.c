/* FBL's pack tiles of 8 bits with AVX-512.
 *
 * Eight groups are spread to eight bytes each by one expansion, whose mask are the groups' widths in ones;
 * one multishift cuts their values out. A group's bytes of ones are also the mask of its values. Permutations
 * within vectors, then transposes of eights of bytes, make vectors of 64 lanes of what were 64 groups. */
#include "kernels/fbl_avx512.h"

enum { GROUP = 8, GROUPS = 2 * FBY_LANES, CODE_BYTES = 24 };

typedef struct row {
    __m512i value[FBY_FBL_MICRO_WIDTH + 1], left, low, high;
} row;

typedef struct decoding {
    row row[FBY_FBL_PLANES];
    __m512i residual[FBY_FBL_PLANES][2][FBY_FBL_MICRO_WIDTH];
    __m512i minus_green[FBY_FBL_PLANES];
    fbl_half half[FBL_HALVES];
} decoding;

/* What a plane's codes mean, by code. */
typedef struct widths {
    _Alignas(64) uint8_t shift[8][8]; /* where each value of a group begins */
    uint8_t ones[64];                 /* as many ones as its width; eight times */
    uint32_t left_out;
} widths;

/* Byte 8 v + l from byte 8 l + v. */
static const _Alignas(64) uint8_t turned[64] = {
    0,  8,  16, 24, 32, 40, 48, 56, 1,  9,  17, 25, 33, 41, 49, 57, 2,  10, 18, 26, 34, 42,
    50, 58, 3,  11, 19, 27, 35, 43, 51, 59, 4,  12, 20, 28, 36, 44, 52, 60, 5,  13, 21, 29,
    37, 45, 53, 61, 6,  14, 22, 30, 38, 46, 54, 62, 7,  15, 23, 31, 39, 47, 55, 63,
};

static void widths_make(widths *to, uint32_t left_out)
{
    to->left_out = left_out;
    for (uint32_t code = 0; code < 8; code++) {
        uint32_t width = code + (code >= left_out);
        for (uint32_t i = 0; i < 8; i++) {
            to->shift[code][i] = (uint8_t)(i * width);
            to->ones[8 * i + code] = (uint8_t)((1u << width) - 1);
        }
    }
}

/* Bytes of the groups that 64 codes stand for. */
static __attribute__((noinline)) size_t bytes_of(const uint8_t *codes, uint32_t left_out)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < GROUPS; i++) {
        uint32_t bit = i * 3, pair = codes[bit / 8];
        if (bit % 8 > 5) pair |= (uint32_t)codes[bit / 8 + 1] << 8;
        uint32_t code = pair >> bit % 8 & 7;
        bytes += code + (code >= left_out);
    }
    return bytes;
}

/* Eight vectors of eight qwords each, transposed; then zigzag values to residuals. */
FBL_AVX512 void spread(const __m512i *in, __m512i *first, __m512i *second)
{
    __m512i a[8], b[8];

    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm512_unpacklo_epi64(in[2 * i], in[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi64(in[2 * i], in[2 * i + 1]);
    }
    /* a[2i + k]: of inputs 2i and 2i + 1, qwords k, k + 2, k + 4, k + 6, a pair a 128-bit part. */
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++) {
            b[4 * i + k] = _mm512_shuffle_i64x2(a[4 * i + k], a[4 * i + 2 + k], 0x88);
            b[4 * i + 2 + k] = _mm512_shuffle_i64x2(a[4 * i + k], a[4 * i + 2 + k], 0xDD);
        }
    }
    /* b[4i + k], parts: qword k of inputs 4i and 4i + 1, qword k + 4 of these, then of 4i + 2 and 4i + 3. */
    for (int k = 0; k < 4; k++) {
        first[k] = fbl_wide_of_zigzag(_mm512_shuffle_i64x2(b[k], b[4 + k], 0x88));
        second[k] = fbl_wide_of_zigzag(_mm512_shuffle_i64x2(b[k], b[4 + k], 0xDD));
    }
}

/* The groups of a row pair, plane and quad. Reads up to 64 bytes behind their codes and behind them. */
FBL_AVX512 const uint8_t *groups(const uint8_t *codes, const uint8_t *group, const widths *of, __m512i *first,
                                 __m512i *second)
{
    const __m512i threes = _mm512_set1_epi64(0x15120F0C09060300);
    static const _Alignas(64) uint64_t bits[8] = {0, 3, 6, 9, 12, 15, 18, 21};
    const __m512i shifts = _mm512_load_si512(bits), shift = _mm512_load_si512(of->shift);
    const __m512i turn = _mm512_load_si512(turned);
    _Alignas(64) uint64_t ones[8];
    __m512i z[8];

    /* Three bytes of codes to each qword, then three bits to each byte; only these choose. */
    __m512i code = _mm512_maskz_expand_epi8(0x0707070707070707u, _mm512_loadu_si512(codes));
    code = _mm512_multishift_epi64_epi8(threes, code);
    _mm512_store_si512(ones, _mm512_permutexvar_epi8(code, _mm512_load_si512(of->ones)));
    /* By way of memory: compilers would rather take the vector apart, at more instructions. */
    __asm__("" : "+m"(ones));
    for (int i = 0; i < 8; i++, codes += 3) {
        uint32_t eight;
        memcpy(&eight, codes, sizeof eight);
        __m512i spread_out = _mm512_maskz_expand_epi8(ones[i], _mm512_loadu_si512(group));
        __m512i from = _mm512_permutexvar_epi64(_mm512_srlv_epi64(_mm512_set1_epi64(eight), shifts), shift);
        group += __builtin_popcountll(ones[i]);
        z[i] = _mm512_permutexvar_epi8(turn, _mm512_multishift_epi64_epi8(from, spread_out));
        z[i] = _mm512_and_si512(z[i], _mm512_set1_epi64((long long)ones[i]));
    }
    spread(z, first, second);
    return group;
}

FBL_AVX512 void row_first(row *of, const __m512i *residual, uint32_t width)
{
    __m512i w = _mm512_set1_epi8((char)128);
    for (uint32_t x = 0; x < width; x++) of->value[x] = w = _mm512_add_epi8(w, residual[x]);
    of->left = of->value[0];
}

/* All planes of a row step, position by position: each waits for its left neighbour. */
FBL_AVX512 void rows_next(decoding *d, uint32_t second, uint32_t width, uint32_t channels)
{
    __m512i w[FBY_FBL_PLANES], nw[FBY_FBL_PLANES];

    for (uint32_t p = 0; p < channels; p++) {
        row *of = &d->row[p];
        w[p] = fbl_wide_from_left(of->value[width - 1], of->value[0]);
        nw[p] = of->left;
        of->left = w[p];
    }
    for (uint32_t x = 0; x < width; x++) {
        for (uint32_t p = 0; p < channels; p++) {
            row *of = &d->row[p];
            __m512i n = of->value[x];
            __m512i predicted = fbl_wide_predict(w[p], n, nw[p], of->value[x + 1], of->low, of->high);
            w[p] = _mm512_add_epi8(predicted, d->residual[p][second][x]);
            nw[p] = n;
            of->value[x] = w[p];
            if (!x) of->value[width] = fbl_wide_from_right(w[p], of->value[width - 1]);
        }
    }
}

/* The residuals of two row steps; NULL where the tile's bytes don't suffice. */
FBL_AVX512 const uint8_t *residuals(decoding *d, const fby_fbl_coded *coded, const widths *of,
                                    uint32_t channels, const uint8_t **codes, const uint8_t *group)
{
    for (uint32_t p = 0; p < channels; p++) {
        for (uint32_t x = 0; x < coded->shape.micro_width; x += 4, *codes += CODE_BYTES) {
            /* 64 groups are at most 512 bytes: what can't be read safely is told before. */
            if (coded->end - group < GROUPS * GROUP &&
                bytes_of(*codes, of[p].left_out) > (size_t)(coded->end - group)) {
                return NULL;
            }
            group = groups(*codes, group, &of[p], d->residual[p][0] + x, d->residual[p][1] + x);
        }
    }
    return group;
}

FBL_AVX512 void decode(fby_fbl_pack *tile, uint32_t channels)
{
    fby_fbl_coded *coded = &tile->coded;
    const uint32_t width = coded->shape.micro_width;
    const uint8_t *codes = coded->bytes, *group = codes + fby_fbl_pack_codes(&coded->shape, channels, 8);
    const __m512i *value[FBY_FBL_PLANES];
    widths of[FBY_FBL_PLANES];
    decoding d;

    coded->good = false;
    for (uint32_t h = 0; h < FBL_HALVES; h++) fbl_half_begin(&d.half[h], coded, h * FBY_LANES);
    for (uint32_t p = 0; p < channels; p++) {
        widths_make(&of[p], tile->left_out[p]);
        d.row[p].low = _mm512_movm_epi8(tile->predictor[p][0]);
        d.row[p].high = _mm512_movm_epi8(tile->predictor[p][1]);
        d.minus_green[p] = fbl_wide_minus_green(d.half, FBL_HALVES, p);
        value[p] = d.row[p].value;
    }
    for (uint32_t step = 0; step < coded->shape.micro_height; step++) {
        if (step % 2 == 0) group = residuals(&d, coded, of, channels, &codes, group);
        if (!group) return;
        for (uint32_t p = 0; p < channels && !step; p++) row_first(&d.row[p], d.residual[p][0], width);
        if (step) rows_next(&d, step % 2, width, channels);
        fbl_wide_row_out(d.half, FBL_HALVES, step, value, d.minus_green, channels);
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

void fby_fbl_pack_avx512(fby_fbl_pack *tile)
{
    if (tile->coded.bits > 8)
        fby_fbl_pack_avx2(tile);
    else if (tile->coded.channels == 3)
        decode_3(tile);
    else
        decode_any(tile);
}
