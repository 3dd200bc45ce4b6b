/* FBL's rans tiles of 8 bits with AVX-512.
 *
 * A state is a high and a low word, so that 32 lanes of a tile are a vector of each. Three steps of binary
 * search find a slot's token; a permutation of words looks up the bounds of all contexts at once, those of
 * the first step by the sum itself. Each step leaves slot - bound, whose sign is the next bit of the way; the
 * least of them all, as unsigned numbers, is slot - start, the most slot - end. The way and the context are
 * where a token's base and raw bits are found. Words for the lanes that want one are spread by one expansion.
 *
 * Tiles are decoded side by side, statement by statement: the latency of one, from its sizes to its next
 * sizes, hides in the others'. What is counted in bytes is done for two tiles at once, each half a vector. */
#include "kernels/fbl_avx512.h"

enum { WAYS = 4, PAIRS = WAYS / FBL_HALVES };

/* A set's tables where a vector's load doesn't cross lines. Where the tree is shallow, its first step goes
 * left whatever the slot is: that is in the contexts already. */
typedef struct tables {
    _Alignas(64) uint8_t context[FBY_FBL_SUMS];
    _Alignas(64) fby_fbl_tree tree;
} tables;

enum { LEFT_1 = FBY_FBL_CONTEXTS, LEFT_2 = 2 * LEFT_1, LEFT_3 = 4 * LEFT_1 };

typedef struct stream {
    __m512i high, low;
    const uint8_t *words;
    size_t at, most; /* bytes taken of them, and that there are: past the end `at` only counts */
} stream;

/* The row step before, overwritten from the left by this one. */
typedef struct row {
    __m512i value[FBY_FBL_MICRO_WIDTH + 1], size[FBY_FBL_MICRO_WIDTH + 1];
    __m512i left, left_size, low, high; /* low, high: bits of the predictors */
} row;

/* Two tiles, or one and an empty half. */
typedef struct pair {
    row row[FBY_FBL_PLANES];
    __m512i minus_green[FBY_FBL_PLANES];
    fbl_half half[FBL_HALVES];
} pair;

#define EACH      for (int i = 0; i < n; i++)
#define EACH_PAIR for (int i = 0; i < (n + 1) / FBL_HALVES; i++)

FBL_AVX512 __m512i load(const void *from)
{
    return _mm512_load_si512(from);
}

FBL_AVX512 void tables_make(tables *to, const fby_fbl_set *set)
{
    __m512i left = _mm512_set1_epi8(set->tree.shallow ? LEFT_1 : 0);

    to->tree = set->tree;
    _mm512_store_si512(to->context, _mm512_or_si512(_mm512_loadu_si512(set->context), left));
}

/* A step of the search: slot - bound, where the bounds are given, and the bit `left` of the way where that is
 * below zero. Bits from 9 up are all the sign's. */
FBL_AVX512 void search(int n, const __m512i *slot, __m512i *bound, __m512i *behind, __m512i *ahead,
                       __m512i *entry, int sign_to, int left)
{
    EACH bound[i] = _mm512_sub_epi16(slot[i], bound[i]);
    EACH behind[i] = _mm512_min_epu16(behind[i], bound[i]);
    EACH ahead[i] = _mm512_max_epu16(ahead[i], bound[i]);
    EACH bound[i] = _mm512_srli_epi16(bound[i], (unsigned)sign_to);
    EACH entry[i] = _mm512_ternarylogic_epi64(entry[i], bound[i], _mm512_set1_epi16((short)left), FBL_OR_AND);
}

/* Words for the lanes whose high word is 0: the low one moves up. Reads up to 64 bytes behind the end. */
FBL_AVX512 void refill(stream *of)
{
    __mmask32 wanted = _mm512_testn_epi16_mask(of->high, of->high);
    const uint8_t *words = of->words + (of->at < of->most ? of->at : of->most);

    of->high = _mm512_mask_mov_epi16(of->high, wanted, of->low);
    of->low = _mm512_mask_expand_epi16(of->low, wanted, _mm512_loadu_si512(words));
    of->at += (size_t)2 * (uint32_t)__builtin_popcount(wanted);
}

/* One symbol of 32 lanes of n tiles: sums to zigzag values, both of two tiles a vector. */
FBL_AVX512 void symbols(stream *of, int n, const tables *by, bool shallow, const __m512i *sum, __m512i *z)
{
    const __m512i ones = _mm512_set1_epi16(-1);
    const fby_fbl_tree *tree = &by->tree;
    __m512i slot[WAYS], entry[WAYS], bound[WAYS], behind[WAYS], ahead[WAYS], raw[WAYS], frequency[WAYS];
    __mmask32 carry[WAYS];

    EACH entry[i] = _mm512_cvtepu8_epi16(i % FBL_HALVES ? _mm512_extracti64x4_epi64(sum[i / FBL_HALVES], 1)
                                                        : _mm512_castsi512_si256(sum[i / FBL_HALVES]));
    EACH slot[i] = _mm512_and_si512(of[i].low, _mm512_set1_epi16(FBY_FBL_SCALE - 1));
    EACH behind[i] = slot[i];
    EACH ahead[i] = _mm512_sub_epi16(slot[i], _mm512_set1_epi16(FBY_FBL_SCALE));
    if (!shallow) {
        EACH bound[i] = _mm512_permutex2var_epi16(load(tree->first), entry[i], load(tree->first + 32));
    }
    /* High bytes become something that no look-up looks at. */
    EACH entry[i] = _mm512_permutexvar_epi8(entry[i], load(by->context));
    if (!shallow) search(n, slot, bound, behind, ahead, entry, 11, LEFT_1);
    EACH bound[i] = _mm512_permutexvar_epi16(entry[i], load(tree->second));
    search(n, slot, bound, behind, ahead, entry, 10, LEFT_2);
    EACH bound[i] = _mm512_permutex2var_epi16(load(tree->third), entry[i], load(tree->third + 32));
    search(n, slot, bound, behind, ahead, entry, 9, LEFT_3);
    EACH raw[i] =
        _mm512_maskz_permutex2var_epi8(0x5555555555555555u, load(tree->raw), entry[i], load(tree->raw + 64));
    EACH entry[i] = _mm512_permutex2var_epi8(load(tree->base), entry[i], load(tree->base + 64));
    EACH frequency[i] = _mm512_sub_epi16(behind[i], ahead[i]);
    /* x = frequency * (x >> 9) + slot - start, in words. */
    EACH
    {
        __m512i above = _mm512_srli_epi16(of[i].high, FBY_FBL_SCALE_BITS);
        __m512i below = _mm512_shldi_epi16(of[i].high, of[i].low, 16 - FBY_FBL_SCALE_BITS);
        of[i].low = _mm512_add_epi16(_mm512_mullo_epi16(frequency[i], below), behind[i]);
        of[i].high = _mm512_add_epi16(_mm512_mulhi_epu16(frequency[i], below),
                                      _mm512_mullo_epi16(frequency[i], above));
    }
    EACH carry[i] = _mm512_cmplt_epu16_mask(of[i].low, behind[i]);
    EACH entry[i] =
        _mm512_add_epi16(entry[i], _mm512_andnot_si512(_mm512_sllv_epi16(ones, raw[i]), of[i].low));
    EACH of[i].high = _mm512_mask_sub_epi16(of[i].high, carry[i], of[i].high, ones);
    EACH of[i].low = _mm512_shrdv_epi16(of[i].low, of[i].high, raw[i]);
    EACH of[i].high = _mm512_srlv_epi16(of[i].high, raw[i]);
    EACH refill(&of[i]);
    EACH
    {
        __m256i bytes = _mm512_cvtepi16_epi8(entry[i]);
        z[i / FBL_HALVES] =
            i % FBL_HALVES ? _mm512_inserti64x4(z[i / FBL_HALVES], bytes, 1) : _mm512_zextsi256_si512(bytes);
    }
}

FBL_AVX512 __m512i size_of(__m512i z)
{
    return _mm512_avg_epu8(z, _mm512_setzero_si512());
}

FBL_AVX512 __m512i capped(__m512i sum)
{
    return _mm512_min_epu8(sum, _mm512_set1_epi8(FBY_FBL_SUMS - 1));
}

FBL_AVX512 void row_first(pair *d, stream *of, int n, uint32_t plane, uint32_t width, const tables *by)
{
    __m512i w[PAIRS], sum[PAIRS], z[PAIRS];

    EACH_PAIR w[i] = _mm512_set1_epi8((char)128), sum[i] = _mm512_set1_epi8(FBY_FBL_FIRST_SUM);
    for (uint32_t x = 0; x < width; x++) {
        symbols(of, n, by, false, sum, z);
        EACH_PAIR
        {
            row *to = &d[i].row[plane];
            __m512i size = size_of(z[i]);
            w[i] = _mm512_add_epi8(w[i], fbl_wide_of_zigzag(z[i]));
            to->value[x] = w[i];
            to->size[x] = size;
            sum[i] = capped(_mm512_adds_epu8(size, _mm512_adds_epu8(size, size)));
        }
    }
    EACH_PAIR
    {
        row *to = &d[i].row[plane];
        to->left = to->value[0], to->left_size = to->size[0];
    }
}

/* A row step that has one above it. */
FBL_AVX512 void row_next(pair *d, stream *of, int n, uint32_t plane, uint32_t width, const tables *by,
                         bool shallow)
{
    __m512i w[PAIRS], nw[PAIRS], w_size[PAIRS], nw_size[PAIRS], sum[PAIRS], z[PAIRS], predicted[PAIRS];

    EACH_PAIR
    {
        row *to = &d[i].row[plane];
        nw[i] = to->left;
        nw_size[i] = to->left_size;
        to->left = w[i] = fbl_wide_from_left(to->value[width - 1], to->value[0]);
        to->left_size = w_size[i] = fbl_wide_from_left(to->size[width - 1], to->size[0]);
    }
    for (uint32_t x = 0; x < width; x++) {
        EACH_PAIR
        {
            const row *from = &d[i].row[plane];
            __m512i slant = _mm512_avg_epu8(nw_size[i], from->size[x + 1]);
            sum[i] = capped(_mm512_adds_epu8(_mm512_adds_epu8(from->size[x], w_size[i]), slant));
            nw_size[i] = from->size[x];
            predicted[i] =
                fbl_wide_predict(w[i], from->value[x], nw[i], from->value[x + 1], from->low, from->high);
            nw[i] = from->value[x];
        }
        symbols(of, n, by, shallow, sum, z);
        EACH_PAIR
        {
            row *to = &d[i].row[plane];
            to->value[x] = w[i] = _mm512_add_epi8(predicted[i], fbl_wide_of_zigzag(z[i]));
            to->size[x] = w_size[i] = size_of(z[i]);
            if (x) continue;
            to->value[width] = fbl_wide_from_right(to->value[0], to->value[width - 1]);
            to->size[width] = fbl_wide_from_right(to->size[0], to->size[width - 1]);
        }
    }
}

FBL_AVX512 void rows_decode(pair *d, stream *of, int n, uint32_t step, uint32_t channels, const tables *by)
{
    const uint32_t width = d[0].half[0].coded->shape.micro_width;

    for (uint32_t p = 0; p < channels; p++) {
        if (!step)
            row_first(d, of, n, p, width, &by[p]);
        else if (by[p].tree.shallow)
            row_next(d, of, n, p, width, &by[p], true);
        else
            row_next(d, of, n, p, width, &by[p], false);
    }
}

/* False where a state can't be. */
FBL_AVX512 bool stream_begin(stream *of, const fby_fbl_coded *coded)
{
    static const _Alignas(64)
        uint16_t low_words[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                  32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    const __m512i low = load(low_words), high = _mm512_add_epi16(low, _mm512_set1_epi16(1));
    __m512i a = _mm512_loadu_si512(coded->bytes), b = _mm512_loadu_si512(coded->bytes + 64);

    of->low = _mm512_permutex2var_epi16(a, low, b);
    of->high = _mm512_permutex2var_epi16(a, high, b);
    of->words = coded->bytes + (size_t)4 * FBY_LANES;
    of->at = 0;
    of->most = (size_t)(coded->end - of->words);
    return !_mm512_testn_epi16_mask(of->high, of->high);
}

FBL_AVX512 bool stream_ended(const stream *of)
{
    __m512i other = _mm512_xor_si512(of->high, _mm512_set1_epi16(1));
    return of->at <= of->most && of->most - of->at < 4 &&
           !_mm512_test_epi16_mask(_mm512_or_si512(of->low, other), _mm512_set1_epi16(-1));
}

FBL_AVX512 __m512i predictor_lanes(fby_fbl_rans *const *tile, uint32_t halves, uint32_t plane, uint32_t bit)
{
    uint64_t lanes = tile[0]->predictor[plane][bit];
    if (halves == FBL_HALVES) lanes |= (uint64_t)tile[1]->predictor[plane][bit] << 32;
    return _mm512_movm_epi8(lanes);
}

FBL_AVX512 void pair_begin(pair *d, fby_fbl_rans *const *tile, uint32_t halves, uint32_t channels)
{
    for (uint32_t h = 0; h < halves; h++) fbl_half_begin(&d->half[h], &tile[h]->coded, 0);
    for (uint32_t p = 0; p < channels; p++) {
        d->row[p].low = predictor_lanes(tile, halves, p, 0);
        d->row[p].high = predictor_lanes(tile, halves, p, 1);
        d->minus_green[p] = fbl_wide_minus_green(d->half, halves, p);
    }
}

FBL_AVX512 void rows_out(pair *d, int n, uint32_t step, uint32_t channels)
{
    EACH_PAIR
    {
        const __m512i *value[FBY_FBL_PLANES];
        for (uint32_t p = 0; p < channels; p++) value[p] = d[i].row[p].value;
        fbl_wide_row_out(d[i].half, FBL_HALVES * i + 1 < n ? 2 : 1, step, value, d[i].minus_green, channels);
    }
}

FBL_AVX512 void decode(fby_fbl_rans *const *tile, int n, uint32_t channels)
{
    const fby_fbl_shape *shape = &tile[0]->coded.shape;
    tables by[FBY_FBL_PLANES];
    stream of[WAYS];
    pair d[PAIRS];

    for (uint32_t p = 0; p < channels; p++) {
        tables_make(&by[p], tile[0]->set[p]);
    }
    EACH tile[i]->coded.good = stream_begin(&of[i], &tile[i]->coded);
    EACH_PAIR pair_begin(&d[i], tile + FBL_HALVES * i, FBL_HALVES * i + 1 < n ? 2 : 1, channels);
    for (uint32_t step = 0; step < shape->micro_height; step++) {
        rows_decode(d, of, n, step, channels, by);
        rows_out(d, n, step, channels);
    }
    EACH tile[i]->coded.good &= stream_ended(&of[i]);
}

/* A function a number of tiles, so that loops over them are unrolled. */
static __attribute__((noinline)) void decode_1(fby_fbl_rans *const *tile)
{
    decode(tile, 1, tile[0]->coded.channels);
}

static __attribute__((noinline)) void decode_2(fby_fbl_rans *const *tile)
{
    decode(tile, 2, tile[0]->coded.channels);
}

static __attribute__((noinline)) void decode_4(fby_fbl_rans *const *tile)
{
    decode(tile, 4, tile[0]->coded.channels);
}

/* Tiles of 8 bits that share their sets, as all of a picture do. */
static bool in_vectors(fby_fbl_rans *const *tile, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tile[i]->coded.bits > 8) return false;
        for (uint32_t p = 0; p < tile[i]->coded.channels; p++) {
            if (tile[i]->set[p] != tile[0]->set[p]) return false;
        }
    }
    return true;
}

void fby_fbl_rans_avx512(fby_fbl_rans *const *tile, uint32_t count)
{
    uint32_t i = 0;

    if (!in_vectors(tile, count)) {
        fby_fbl_rans_avx2(tile, count);
        return;
    }
    for (; i + 4 <= count; i += 4) decode_4(tile + i);
    for (; i + 2 <= count; i += 2) decode_2(tile + i);
    for (; i < count; i++) decode_1(tile + i);
}
