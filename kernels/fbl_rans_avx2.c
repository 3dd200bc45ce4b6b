/* FBL's rans tiles of 8 bits with AVX2.
 *
 * A context is one of 16, as is a byte's place in a shuffle of 16: tables are shuffled, not gathered. A slot
 * has 9 bits, h and its lowest, and each bound two bytes, one for either lowest bit; a binary search of three
 * steps finds the token between two bounds. From these follow its start and frequency, but for their lowest
 * bits; two more bytes hold those, the class's first value and its raw bits.
 *
 * Lean sets, which our encoder makes for 8 bits, take a fifth of the shuffles: their frequencies are even, so
 * that the slot's lowest bit stays as it is, and a context and a token have one of 16 places together.
 *
 * States are two vectors of high and two of low halves, in the order that bytes widen to: lanes 0-7 and
 * 16-23, then 8-15 and 24-31. Tiles are decoded side by side, statement by statement: the latency of one,
 * from its sizes to its next sizes, hides in the other's. */
#include <pthread.h>

#include "kernels/fbl_avx2.h"

enum { WAYS = 2 };

typedef struct stream {
    __m256i high[2], low[2];
    const uint8_t *words, *end;
    size_t taken, there; /* words; of more than are there the rest stand at the end */
} stream;

/* The row step before, overwritten from the left by this one. */
typedef struct row {
    __m256i value[FBY_FBL_MICRO_WIDTH + 1], size[FBY_FBL_MICRO_WIDTH + 1];
    __m256i left, left_size, low, high; /* low, high: bits of the predictors */
} row;

typedef struct decoding {
    stream stream;
    row row[FBY_FBL_PLANES];
    fbl_out out;
} decoding;

#define EACH for (int i = 0; i < n; i++)

/* Shuffles that bring words to the lanes of eight that take one, and zeros to the others. */
static _Alignas(64) uint8_t word_shuffle[256][16];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void word_shuffle_make(void)
{
    for (uint32_t mask = 0; mask < 256; mask++) {
        for (uint32_t lane = 0, taken = 0; lane < 8; lane++) {
            bool takes = mask >> lane & 1;
            word_shuffle[mask][2 * lane] = (uint8_t)(takes ? 2 * taken : 128);
            word_shuffle[mask][2 * lane + 1] = (uint8_t)(takes ? 2 * taken + 1 : 128);
            taken += takes;
        }
    }
}

/* Bytes of a table of 64. */
FBL_AVX2 __m256i lookup64(const uint8_t *table, __m256i at)
{
    const __m128i *part = (const __m128i *)table;
    __m256i a = _mm256_broadcastsi128_si256(_mm_loadu_si128(part));
    __m256i b = _mm256_broadcastsi128_si256(_mm_loadu_si128(part + 1));
    __m256i c = _mm256_broadcastsi128_si256(_mm_loadu_si128(part + 2));
    __m256i d = _mm256_broadcastsi128_si256(_mm_loadu_si128(part + 3));
    __m256i bit4 = _mm256_slli_epi16(at, 3), bit5 = _mm256_slli_epi16(at, 2);
    a = fbl_choose(_mm256_shuffle_epi8(a, at), _mm256_shuffle_epi8(b, at), bit4);
    c = fbl_choose(_mm256_shuffle_epi8(c, at), _mm256_shuffle_epi8(d, at), bit4);
    return fbl_choose(a, c, bit5);
}

FBL_AVX2 __m256i lookup16(const uint8_t *table, __m256i at)
{
    return _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)table), at);
}

/* Where h is above token t's bound. */
FBL_AVX2 __m256i bound_of(const fby_fbl_set *set, uint32_t t, __m256i context, __m256i odd)
{
    return fbl_choose(lookup16(set->bound[0][t], context), lookup16(set->bound[1][t], context), odd);
}

/* A number of the token that three steps of search have led to. */
FBL_AVX2 __m256i leaf_of(const fby_fbl_set *set, uint32_t which, __m256i context, __m256i step4,
                         __m256i step2, __m256i step1)
{
    const uint8_t(*leaf)[2 * FBY_FBL_CONTEXTS] = set->leaf[which];
    __m256i a = fbl_choose(lookup16(leaf[0], context), lookup16(leaf[1], context), step1);
    __m256i b = fbl_choose(lookup16(leaf[2], context), lookup16(leaf[3], context), step1);
    __m256i c = fbl_choose(lookup16(leaf[4], context), lookup16(leaf[5], context), step1);
    __m256i d = fbl_choose(lookup16(leaf[6], context), lookup16(leaf[7], context), step1);
    return fbl_choose(fbl_choose(a, b, step2), fbl_choose(c, d, step2), step4);
}

/* Words for the lanes of one vector of low halves that take one; `entry` is a mask's, in bytes. */
FBL_AVX2 __m256i words_of(const uint8_t *first, uint32_t first_entry, const uint8_t *second,
                          uint32_t second_entry)
{
    const uint8_t *shuffles = word_shuffle[0];
    __m128i low = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)first),
                                   _mm_load_si128((const __m128i *)(shuffles + first_entry)));
    __m128i high = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)second),
                                    _mm_load_si128((const __m128i *)(shuffles + second_entry)));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

FBL_AVX2 const uint8_t *words_after(const uint8_t *words, uint32_t mask)
{
    return words + (size_t)2 * (uint32_t)__builtin_popcount(mask);
}

/* Takes words for the lanes whose bytes are ones; their low halves are 0. */
FBL_AVX2 void refill(stream *of, __m256i lanes)
{
    const uint32_t all = (uint32_t)_mm256_movemask_epi8(lanes), entry = 255 << 4;
    const uint32_t entry0 = all << 4 & entry, entry1 = all >> 4 & entry, entry2 = all >> 12 & entry,
                   entry3 = all >> 20 & entry;
    const uint8_t *word0 = of->words, *word1 = words_after(word0, entry0);
    const uint8_t *word2 = words_after(word1, entry1), *word3 = words_after(word2, entry2);
    const uint8_t *next = words_after(word0, all);

    of->low[0] = _mm256_or_si256(of->low[0], words_of(word0, entry0, word2, entry2));
    of->low[1] = _mm256_or_si256(of->low[1], words_of(word1, entry1, word3, entry3));
    of->taken += (uint32_t)__builtin_popcount(all);
    of->words = next < of->end ? next : of->end;
}

/* One symbol of 32 lanes of n tiles: sums to zigzag values. */
FBL_AVX2 void symbols(decoding *d, int n, const fby_fbl_set *const *set, const __m256i *sum, __m256i *z)
{
    const __m256i zero = _mm256_setzero_si256(), top = _mm256_set1_epi8((char)128);
    const __m256i one8 = _mm256_set1_epi8(1);
    __m256i context[WAYS], odd[WAYS], h[WAYS], step4[WAYS], step2[WAYS], step1[WAYS];
    __m256i lower[WAYS], upper[WAYS], base[WAYS], more[WAYS];

    EACH context[i] = lookup64(set[i]->context, sum[i]);
    EACH
    {
        const __m256i byte = _mm256_set1_epi16(255);
        const __m256i *low = d[i].stream.low;
        h[i] = _mm256_packus_epi16(_mm256_and_si256(_mm256_srli_epi16(low[0], 1), byte),
                                   _mm256_and_si256(_mm256_srli_epi16(low[1], 1), byte));
        h[i] = _mm256_xor_si256(h[i], top);
        /* In bit 7 of each byte, the others being anything. */
        odd[i] = _mm256_slli_epi16(
            _mm256_packus_epi16(_mm256_and_si256(low[0], byte), _mm256_and_si256(low[1], byte)), 7);
    }
    /* Bounds of what is left of the search: the highest below h, and the lowest that isn't. */
    EACH
    {
        __m256i bound = bound_of(set[i], 4, context[i], odd[i]);
        step4[i] = _mm256_cmpgt_epi8(h[i], bound);
        lower[i] = fbl_choose(_mm256_set1_epi8(127), bound, step4[i]); /* before the first token: 255 - 128 */
        upper[i] = fbl_choose(bound, _mm256_set1_epi8(127), step4[i]); /* behind the last: the same */
    }
    EACH
    {
        __m256i bound = fbl_choose(bound_of(set[i], 2, context[i], odd[i]),
                                   bound_of(set[i], 6, context[i], odd[i]), step4[i]);
        step2[i] = _mm256_cmpgt_epi8(h[i], bound);
        lower[i] = fbl_choose(lower[i], bound, step2[i]);
        upper[i] = fbl_choose(bound, upper[i], step2[i]);
    }
    EACH
    {
        __m256i below = fbl_choose(bound_of(set[i], 1, context[i], odd[i]),
                                   bound_of(set[i], 3, context[i], odd[i]), step2[i]);
        __m256i above = fbl_choose(bound_of(set[i], 5, context[i], odd[i]),
                                   bound_of(set[i], 7, context[i], odd[i]), step2[i]);
        __m256i bound = fbl_choose(below, above, step4[i]);
        step1[i] = _mm256_cmpgt_epi8(h[i], bound);
        lower[i] = fbl_choose(lower[i], bound, step1[i]);
        upper[i] = fbl_choose(bound, upper[i], step1[i]);
    }
    EACH more[i] = leaf_of(set[i], FBL_LEAF_MORE, context[i], step4[i], step2[i], step1[i]);
    EACH base[i] = leaf_of(set[i], FBL_LEAF_BASE, context[i], step4[i], step2[i], step1[i]);
    EACH
    {
        /* By raw: 2^(8 - raw), 0 for 256; and the mask of its bits. */
        const __m256i scales = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, (char)128, 64, 32, 16, 8, 4, 2, 0, (char)128, 64, 32, 16, 8, 4, 2));
        const __m256i masks = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 1, 3, 7, 15, 31, 63, 127, 0, 1, 3, 7, 15, 31, 63, 127));
        stream *of = &d[i].stream;
        /* Bits 4 and 5 of `more` don't matter to a shuffle. */
        __m256i scale = _mm256_shuffle_epi8(scales, more[i]), mask = _mm256_shuffle_epi8(masks, more[i]);
        /* slot - start = 2 (h - lower - 1) + its lowest bit, where the lowest bits of slot and start differ;
         * and frequency = end - start = 2 (upper - lower) + (end - start) mod 2, which counts down for even
         * slots. */
        __m256i even = _mm256_cmpgt_epi8(odd[i], _mm256_set1_epi8(-1)); /* all ones: even */
        __m256i slot_bit = _mm256_add_epi8(one8, even);
        __m256i start_bit = _mm256_and_si256(_mm256_srli_epi16(more[i], 4), one8);
        __m256i end_bit = _mm256_and_si256(_mm256_srli_epi16(more[i], 5), one8);
        __m256i behind = _mm256_sub_epi8(_mm256_sub_epi8(h[i], lower[i]), one8);
        __m256i behind_bit = _mm256_xor_si256(slot_bit, start_bit);
        /* Less 1, which leaves room for 256; the rest of it is 2 more. */
        __m256i span = _mm256_sub_epi8(_mm256_sub_epi8(upper[i], lower[i]), one8);
        /* end_bit - start_bit, negated for even slots: -1, 0 or 1. */
        __m256i odd_part = _mm256_sub_epi8(_mm256_xor_si256(_mm256_sub_epi8(end_bit, start_bit), even), even);
        __m256i rest = _mm256_add_epi8(odd_part, _mm256_set1_epi8(2));
        const __m256i twice = _mm256_set1_epi16(0x0102);
        __m256i bits[2], wanted[2];

        for (int k = 0; k < 2; k++) {
            __m256i f = k ? _mm256_unpackhi_epi8(span, rest) : _mm256_unpacklo_epi8(span, rest);
            __m256i add =
                k ? _mm256_unpackhi_epi8(behind, behind_bit) : _mm256_unpacklo_epi8(behind, behind_bit);
            __m256i m = k ? _mm256_unpackhi_epi8(zero, scale) : _mm256_unpacklo_epi8(zero, scale);
            __m256i b = k ? _mm256_unpackhi_epi8(mask, zero) : _mm256_unpacklo_epi8(mask, zero);
            /* x = f * (x >> 9) + slot - start, in halves. */
            f = _mm256_maddubs_epi16(f, twice);
            add = _mm256_maddubs_epi16(add, twice);
            __m256i x_low =
                _mm256_or_si256(_mm256_slli_epi16(of->high[k], 7), _mm256_srli_epi16(of->low[k], 9));
            __m256i x_high = _mm256_srli_epi16(of->high[k], 9);
            __m256i low = _mm256_add_epi16(_mm256_mullo_epi16(f, x_low), add);
            __m256i kept = _mm256_cmpeq_epi16(_mm256_min_epu16(low, add), add); /* all ones: no carry */
            __m256i high = _mm256_add_epi16(_mm256_mulhi_epu16(f, x_low), _mm256_mullo_epi16(f, x_high));
            high = _mm256_add_epi16(_mm256_add_epi16(high, _mm256_set1_epi16(1)), kept);
            bits[k] = _mm256_and_si256(low, b);
            /* x >>= raw, by multiplying with 2^(16 - raw); where that is 2^16, nothing moves. */
            __m256i still = _mm256_cmpeq_epi16(m, zero);
            __m256i moved = _mm256_or_si256(_mm256_mulhi_epu16(low, m), _mm256_mullo_epi16(high, m));
            low = fbl_choose(moved, low, still);
            high = fbl_choose(_mm256_mulhi_epu16(high, m), high, still);
            wanted[k] = _mm256_cmpeq_epi16(high, zero);
            of->high[k] = _mm256_or_si256(high, _mm256_and_si256(low, wanted[k]));
            of->low[k] = _mm256_andnot_si256(wanted[k], low);
        }
        z[i] = _mm256_add_epi8(base[i], _mm256_packus_epi16(bits[0], bits[1]));
        refill(of, _mm256_packs_epi16(wanted[0], wanted[1]));
    }
}

/* Numbers in memory: GCC would make them anew in each step, did it know them. */
typedef struct numbers {
    __m256i low_byte, one_above, one, top, contexts, bit2, bit3, most_sum;
} numbers;

FBL_AVX2 void numbers_make(numbers *number)
{
    *number = (numbers){
        .low_byte = _mm256_set1_epi16(0xFF),
        .one_above = _mm256_set1_epi16(0x100),
        .one = _mm256_set1_epi16(1),
        .top = _mm256_set1_epi8((char)128),
        .contexts = _mm256_set1_epi8(FBL_LEAN_CONTEXTS - 1),
        .bit2 = _mm256_set1_epi8(4),
        .bit3 = _mm256_set1_epi8(8),
        .most_sum = _mm256_set1_epi8(FBY_FBL_SUMS - 1),
    };
    __asm__("" : "+m"(*number));
}

/* ---- lean sets ---- */

/* Places, as yet of contexts only: the last one's is 0. */
FBL_AVX2 __m256i lean_context(const fby_fbl_lean *lean, const numbers *number, __m256i sum)
{
    const __m256i *threshold = (const __m256i *)lean->threshold;
    __m256i above[FBL_LEAN_CONTEXTS - 1]; /* all ones, which is -1 */

    for (int i = 0; i < FBL_LEAN_CONTEXTS - 1; i++)
        above[i] = _mm256_cmpgt_epi8(sum, _mm256_loadu_si256(threshold + i));
    return _mm256_add_epi8(_mm256_add_epi8(above[0], number->contexts), _mm256_add_epi8(above[1], above[2]));
}

/* Slots without their lowest bits, less 128. */
FBL_AVX2 __m256i lean_slot(const stream *of, const numbers *number)
{
    __m256i a = _mm256_and_si256(_mm256_srli_epi16(of->low[0], 1), number->low_byte);
    __m256i b = _mm256_and_si256(_mm256_srli_epi16(of->low[1], 1), number->low_byte);
    return _mm256_xor_si256(_mm256_packus_epi16(a, b), number->top);
}

/* A step of the search: places get a bit where the slot is above their bound. */
FBL_AVX2 __m256i lean_step(const uint8_t *bound, __m256i slot, __m256i place, __m256i bit)
{
    __m256i above = _mm256_cmpgt_epi8(slot, lookup16(bound, place));
    return _mm256_or_si256(place, _mm256_and_si256(above, bit));
}

FBL_AVX2 __m256i lean_half(__m256i a, __m256i b, int half)
{
    return half ? _mm256_unpackhi_epi8(a, b) : _mm256_unpacklo_epi8(a, b);
}

/* Takes a symbol from half of a tile's states. Returns their low bytes, raw bits lowest; all ones in *wanted
 * say which states need a word. */
FBL_AVX2 __m256i lean_advance(stream *of, int half, const numbers *number, __m256i start, __m256i span,
                              __m256i scale, __m256i *wanted)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i low = of->low[half], high = of->high[half];
    __m256i factor = lean_half(zero, span, half); /* 128 times the frequency */
    /* x = frequency * (x >> 9) + slot - start = factor * (x >> 16) + rest, where rest is what that gives for
     * x mod 2^16: x - (512 - frequency) * (x >> 9) - start, in which all but x is even. */
    __m256i gap = lean_half(_mm256_sub_epi8(zero, span), start, half);
    __m256i less = _mm256_maddubs_epi16(gap, _mm256_or_si256(_mm256_srli_epi16(low, 9), number->one_above));
    __m256i rest = _mm256_sub_epi16(_mm256_sub_epi16(low, less), less);
    low = _mm256_add_epi16(_mm256_mullo_epi16(factor, high), rest);
    __m256i kept = _mm256_cmpeq_epi16(_mm256_min_epu16(low, rest), rest); /* all ones: no carry */
    high = _mm256_add_epi16(_mm256_add_epi16(_mm256_mulhi_epu16(factor, high), number->one), kept);
    __m256i bits = _mm256_and_si256(low, number->low_byte);
    /* x >>= raw, by multiplying with 2^(16 - raw); where that is 2^16, nothing moves. */
    __m256i by = lean_half(zero, scale, half), still = _mm256_cmpeq_epi16(by, zero);
    __m256i moved = _mm256_or_si256(_mm256_mulhi_epu16(low, by), _mm256_mullo_epi16(high, by));
    low = fbl_choose(moved, low, still);
    high = fbl_choose(_mm256_mulhi_epu16(high, by), high, still);
    *wanted = _mm256_cmpeq_epi16(high, zero);
    of->high[half] = _mm256_or_si256(high, _mm256_and_si256(low, *wanted));
    of->low[half] = _mm256_andnot_si256(*wanted, low);
    return bits;
}

/* One symbol of 32 lanes of n tiles by a lean set that all of them have. */
FBL_AVX2 void lean_symbols(decoding *d, int n, const fby_fbl_lean *lean, const numbers *number,
                           const __m256i *sum, __m256i *z)
{
    __m256i place[WAYS], slot[WAYS], start[WAYS], span[WAYS], scale[WAYS], mask[WAYS], base[WAYS];
    __m256i bits[WAYS][2], wanted[WAYS][2];

    EACH
    {
        place[i] = lean_context(lean, number, sum[i]);
        slot[i] = lean_slot(&d[i].stream, number);
    }
    EACH place[i] = lean_step(lean->bound[0], slot[i], place[i], number->bit2);
    EACH place[i] = lean_step(lean->bound[1], slot[i], place[i], number->bit3);
    EACH span[i] = lookup16(lean->leaf[FBL_LEAN_SPAN], place[i]);
    EACH start[i] = lookup16(lean->leaf[FBL_LEAN_START], place[i]);
    EACH scale[i] = lookup16(lean->leaf[FBL_LEAN_SCALE], place[i]);
    EACH mask[i] = lookup16(lean->leaf[FBL_LEAN_MASK], place[i]);
    EACH base[i] = lookup16(lean->leaf[FBL_LEAN_BASE], place[i]);
    for (int half = 0; half < 2; half++) {
        EACH bits[i][half] =
            lean_advance(&d[i].stream, half, number, start[i], span[i], scale[i], &wanted[i][half]);
    }
    EACH
    {
        __m256i raw = _mm256_and_si256(_mm256_packus_epi16(bits[i][0], bits[i][1]), mask[i]);
        z[i] = _mm256_add_epi8(base[i], raw);
    }
    EACH refill(&d[i].stream, _mm256_packs_epi16(wanted[i][0], wanted[i][1]));
}

/* ---- tiles ---- */

/* How a plane's symbols are decoded. */
typedef struct coding {
    const fby_fbl_set *const *set; /* of each tile */
    bool lean;                     /* a constant; then all tiles have set[0] */
    const numbers *number;
} coding;

FBL_AVX2 void plane_symbols(decoding *d, int n, coding by, const __m256i *sum, __m256i *z)
{
    if (by.lean)
        lean_symbols(d, n, &by.set[0]->lean, by.number, sum, z);
    else
        symbols(d, n, by.set, sum, z);
}

FBL_AVX2 __m256i capped(coding by, __m256i sum)
{
    return _mm256_min_epu8(sum, by.number->most_sum);
}

FBL_AVX2 void row_first(decoding *d, int n, uint32_t plane, uint32_t width, coding by)
{
    __m256i w[WAYS], sum[WAYS], z[WAYS];

    EACH w[i] = _mm256_set1_epi8((char)128), sum[i] = _mm256_set1_epi8(FBY_FBL_FIRST_SUM);
    for (uint32_t x = 0; x < width; x++) {
        plane_symbols(d, n, by, sum, z);
        EACH
        {
            row *of = &d[i].row[plane];
            __m256i size = fbl_size(z[i]);
            w[i] = _mm256_add_epi8(w[i], fbl_of_zigzag(z[i]));
            of->value[x] = w[i];
            of->size[x] = size;
            sum[i] = capped(by, _mm256_adds_epu8(size, _mm256_adds_epu8(size, size)));
        }
    }
    EACH d[i].row[plane].left = d[i].row[plane].value[0], d[i].row[plane].left_size = d[i].row[plane].size[0];
}

/* A row step that has one above it. */
FBL_AVX2 void row_next(decoding *d, int n, uint32_t plane, uint32_t width, coding by)
{
    __m256i w[WAYS], nw[WAYS], w_size[WAYS], nw_size[WAYS], sum[WAYS], z[WAYS], predicted[WAYS];

    EACH
    {
        row *of = &d[i].row[plane];
        nw[i] = of->left;
        nw_size[i] = of->left_size;
        of->left = w[i] = fbl_from_left(of->value[width - 1], of->value[0]);
        of->left_size = w_size[i] = fbl_from_left(of->size[width - 1], of->size[0]);
    }
    for (uint32_t x = 0; x < width; x++) {
        EACH
        {
            const row *of = &d[i].row[plane];
            __m256i slant = _mm256_avg_epu8(nw_size[i], of->size[x + 1]);
            sum[i] = capped(by, _mm256_adds_epu8(_mm256_adds_epu8(of->size[x], w_size[i]), slant));
            nw_size[i] = of->size[x];
            predicted[i] = fbl_predict(w[i], of->value[x], nw[i], of->value[x + 1], of->low, of->high);
            nw[i] = of->value[x];
        }
        plane_symbols(d, n, by, sum, z);
        EACH
        {
            row *of = &d[i].row[plane];
            of->value[x] = w[i] = _mm256_add_epi8(predicted[i], fbl_of_zigzag(z[i]));
            of->size[x] = w_size[i] = fbl_size(z[i]);
            if (x) continue;
            of->value[width] = fbl_from_right(of->value[0], of->value[width - 1]);
            of->size[width] = fbl_from_right(of->size[0], of->size[width - 1]);
        }
    }
}

FBL_AVX2 bool stream_begin(stream *of, const fby_fbl_coded *coded)
{
    const __m256i low_half = _mm256_set1_epi32(0xFFFF), zero = _mm256_setzero_si256();
    __m256i x[4], none = zero;

    for (int q = 0; q < 4; q++) x[q] = _mm256_loadu_si256((const __m256i *)coded->bytes + q);
    for (int k = 0; k < 2; k++) {
        __m256i low =
            _mm256_packus_epi32(_mm256_and_si256(x[k], low_half), _mm256_and_si256(x[k + 2], low_half));
        __m256i high = _mm256_packus_epi32(_mm256_srli_epi32(x[k], 16), _mm256_srli_epi32(x[k + 2], 16));
        of->low[k] = _mm256_permute4x64_epi64(low, 0xD8);
        of->high[k] = _mm256_permute4x64_epi64(high, 0xD8);
        none = _mm256_or_si256(none, _mm256_cmpeq_epi16(high, zero));
    }
    of->words = coded->bytes + (size_t)4 * FBY_LANES;
    of->end = coded->end;
    of->taken = 0;
    of->there = (size_t)(of->end - of->words) / 2;
    return _mm256_testz_si256(none, none);
}

FBL_AVX2 bool stream_ended(const stream *of)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i other = _mm256_or_si256(of->low[0], of->low[1]);

    for (int k = 0; k < 2; k++) other = _mm256_or_si256(other, _mm256_xor_si256(of->high[k], one));
    return of->taken <= of->there && of->end - of->words < 4 && _mm256_testz_si256(other, other);
}

FBL_AVX2 void rows_out(decoding *d, fby_fbl_rans *const *tile, int n, uint32_t step, uint32_t channels)
{
    EACH
    {
        __m256i with_green[2][FBY_FBL_MICRO_WIDTH];
        const __m256i *plane[FBY_FBL_PLANES], *channel[FBY_FBL_PLANES];
        const fby_fbl_coded *coded = &tile[i]->coded;

        for (uint32_t p = 0; p < channels; p++) plane[p] = d[i].row[p].value;
        fbl_channels(plane, channels, coded->minus_green, coded->shape.micro_width, with_green, channel);
        if (step) fbl_out_next(&d[i].out, coded, 0, step);
        fbl_row_out(&d[i].out, coded, 0, step, channel, channels);
    }
}

FBL_AVX2 void decode(fby_fbl_rans *const *tile, int n, uint32_t channels, bool lean)
{
    const fby_fbl_shape *shape = &tile[0]->coded.shape;
    const fby_fbl_set *set[FBY_FBL_PLANES][WAYS];
    decoding d[WAYS];
    numbers number;

    numbers_make(&number);
    EACH
    {
        tile[i]->coded.good = stream_begin(&d[i].stream, &tile[i]->coded);
        fbl_out_begin(&d[i].out, &tile[i]->coded, 0);
        for (uint32_t p = 0; p < channels; p++) {
            set[p][i] = tile[i]->set[p];
            d[i].row[p].low = fbl_lane_mask(tile[i]->predictor[p][0]);
            d[i].row[p].high = fbl_lane_mask(tile[i]->predictor[p][1]);
        }
    }
    for (uint32_t p = 0; p < channels; p++)
        row_first(d, n, p, shape->micro_width, (coding){set[p], lean, &number});
    rows_out(d, tile, n, 0, channels);
    for (uint32_t step = 1; step < shape->micro_height; step++) {
        for (uint32_t p = 0; p < channels; p++)
            row_next(d, n, p, shape->micro_width, (coding){set[p], lean, &number});
        rows_out(d, tile, n, step, channels);
    }
    EACH tile[i]->coded.good &= stream_ended(&d[i].stream);
}

/* A function a number of tiles and a kind of sets, so that loops over them are unrolled. */
static __attribute__((noinline)) void decode_1(fby_fbl_rans *const *tile)
{
    decode(tile, 1, tile[0]->coded.channels, false);
}

static __attribute__((noinline)) void decode_2(fby_fbl_rans *const *tile)
{
    decode(tile, 2, tile[0]->coded.channels, false);
}

static __attribute__((noinline)) void decode_lean_1(fby_fbl_rans *const *tile)
{
    decode(tile, 1, tile[0]->coded.channels, true);
}

static __attribute__((noinline)) void decode_lean_2(fby_fbl_rans *const *tile)
{
    decode(tile, 2, tile[0]->coded.channels, true);
}

static bool in_vectors(const fby_fbl_rans *tile)
{
    bool all = tile->coded.bits == 8;
    for (uint32_t p = 0; p < tile->coded.channels; p++) all &= tile->set[p]->in_vectors;
    return all;
}

/* Whether all tiles have the same sets, and those are lean. */
static bool all_lean(fby_fbl_rans *const *tile, uint32_t count)
{
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t p = 0; p < tile[i]->coded.channels; p++)
            all &= tile[i]->set[p] == tile[0]->set[p] && tile[i]->set[p]->lean.possible;
    }
    return all;
}

void fby_fbl_rans_avx2(fby_fbl_rans *const *tile, uint32_t count)
{
    uint32_t i = 0;

    for (uint32_t k = 0; k < count; k++) {
        if (in_vectors(tile[k])) continue;
        fby_fbl_kernels_c.rans(tile, count);
        return;
    }
    pthread_once(&once, word_shuffle_make);
    const bool lean = all_lean(tile, count);
    for (; i + 2 <= count; i += 2) (lean ? decode_lean_2 : decode_2)(tile + i);
    for (; i < count; i++) (lean ? decode_lean_1 : decode_1)(tile + i);
}
