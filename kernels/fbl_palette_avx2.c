/* FBL's palette tiles of own palettes with AVX2: neighbours are compared in vectors; symbols are decoded one
 * by one, eight states side by side, since each waits for the last word that another took. */
#include "kernels/fbl_avx2.h"

enum { ROW = FBY_FBL_MICRO_WIDTH };

typedef struct stream {
    uint32_t state[FBY_FBL_STATES];
    const uint8_t *words, *end;
    bool overrun;
} stream;

/* What a symbol needs: a token's numbers in a word. */
typedef struct tables {
    const uint8_t *entry;
    uint32_t packed[FBY_FBL_CONTEXTS * FBY_FBL_TOKENS]; /* frequency from bit 0, start 10, base 19, raw 27 */
    uint16_t first[FBY_FBL_SUMS];                       /* slot of a sum's context */
} tables;

FBL_AVX2 void tables_make(const fby_fbl_set *set, tables *to)
{
    to->entry = set->entry;
    for (uint32_t i = 0; i < FBY_FBL_CONTEXTS * FBY_FBL_TOKENS; i++) {
        to->packed[i] = set->frequency[i] | (uint32_t)set->start[i] << 10 |
                        (uint32_t)(set->base[i] & 255) << 19 | (uint32_t)(set->raw[i] & 7) << 27;
    }
    for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) {
        to->first[sum] = (uint16_t)(set->context[sum] * FBY_FBL_SCALE);
    }
}

/* The symbols of 32 lanes. */
FBL_AVX2 void symbols(stream *of, const tables *by, const uint8_t *sum, uint8_t *value)
{
    const uint8_t *words = of->words;

    for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
        uint32_t x = of->state[lane % FBY_FBL_STATES], slot = x & (FBY_FBL_SCALE - 1);
        uint32_t token = by->packed[by->entry[by->first[sum[lane]] + slot]], raw = token >> 27;
        uint16_t word;
        x = (token & 1023) * (x >> FBY_FBL_SCALE_BITS) + slot - (token >> 10 & 511);
        value[lane] = (uint8_t)((token >> 19) + _bzhi_u32(x, raw));
        x >>= raw;
        memcpy(&word, words, sizeof word);
        bool wanted = x < FBY_FBL_STATE_END;
        of->state[lane % FBY_FBL_STATES] = wanted ? x << 16 | word : x;
        words += wanted ? 2 : 0;
    }
    of->overrun |= words > of->end;
    of->words = of->overrun ? of->end : words;
}

/* The neighbours of a position. */
typedef struct near {
    __m256i w, ww, n, nn, nw, ne;
} near;

FBL_AVX2 __m256i sum_of(const near *it)
{
    const __m256i equal[6] = {
        _mm256_cmpeq_epi8(it->w, it->n),  _mm256_cmpeq_epi8(it->w, it->nw), _mm256_cmpeq_epi8(it->n, it->ne),
        _mm256_cmpeq_epi8(it->n, it->nw), _mm256_cmpeq_epi8(it->w, it->ww), _mm256_cmpeq_epi8(it->n, it->nn),
    };
    __m256i sum = _mm256_setzero_si256();
    for (int i = 0; i < 6; i++) {
        sum = _mm256_or_si256(sum, _mm256_and_si256(equal[i], _mm256_set1_epi8((char)(1 << i))));
    }
    return sum;
}

FBL_AVX2 __m256i index_of(const near *it, __m256i z)
{
    __m256i upright = _mm256_cmpeq_epi8(it->w, it->nw);
    __m256i index = _mm256_sub_epi8(z, _mm256_set1_epi8(FBY_FBL_NEIGHBOURS));
    const __m256i candidate[FBY_FBL_NEIGHBOURS] = {
        _mm256_blendv_epi8(it->w, it->n, upright),
        _mm256_blendv_epi8(it->n, it->w, upright),
        it->ne,
        it->nw,
    };
    for (int i = 0; i < FBY_FBL_NEIGHBOURS; i++) {
        index = _mm256_blendv_epi8(index, candidate[i], _mm256_cmpeq_epi8(z, _mm256_set1_epi8((char)i)));
    }
    return index;
}

/* Colours of up to 16 pixels. A whole word is stored where more pixels follow. */
FBL_AVX2 void colours_out(uint8_t *to, const uint8_t *index, uint32_t count, const uint32_t *colour,
                          uint32_t channels)
{
    if (channels == 1) {
        for (uint32_t x = 0; x < count; x++) to[x] = (uint8_t)colour[index[x]];
        return;
    }
    for (uint32_t x = 0; x + 1 < count; x++) memcpy(to + (size_t)x * channels, &colour[index[x]], 4);
    memcpy(to + (size_t)(count - 1) * channels, &colour[index[count - 1]], channels);
}

FBL_AVX2 void row_out(const fby_fbl_palette *tile, uint32_t step, const __m256i *row, const uint32_t *colour)
{
    const fby_fbl_coded *coded = &tile->coded;
    const fby_fbl_shape *shape = &coded->shape;
    const fby_fbl_place *to = &coded->place;
    __m256i lanes[16];

    fbl_transpose(row, lanes);
    for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
        const uint8_t *index = (const uint8_t *)&lanes[lane % 16] + lane / 16 * 16;
        uint32_t y = fby_fbl_row_of(shape, lane, step), x = lane % FBY_FBL_ACROSS * shape->micro_width;
        if (y >= shape->height || x >= shape->width) continue;
        uint32_t count = shape->width - x < shape->micro_width ? shape->width - x : shape->micro_width;
        uint8_t *at = to->at + y * to->row;
        if (!to->planar) {
            colours_out(at + (size_t)x * coded->channels, index, count, colour, coded->channels);
            continue;
        }
        for (uint32_t c = 0; c < coded->channels; c++, at += to->plane) {
            for (uint32_t i = 0; i < count; i++) at[x + i] = (uint8_t)(colour[index[i]] >> 8 * c);
        }
    }
}

FBL_AVX2 void row_decode(stream *of, const tables *by, __m256i (*rows)[ROW], uint32_t step, uint32_t width,
                         __m256i *left, __m256i *highest)
{
    __m256i *now = rows[step % 3];
    const __m256i *above = rows[(step + 2) % 3], *second = rows[(step + 1) % 3];
    _Alignas(32) uint8_t sum[FBY_LANES], value[FBY_LANES];
    near it = {0};

    if (step) {
        it.nw = *left;
        it.w = it.ww = *left = fbl_from_left(above[width - 1], above[0]);
    }
    for (uint32_t x = 0; x < width; x++) {
        if (x < 2) it.ww = it.w;
        if (step) {
            it.n = above[x];
            it.ne = x + 1 < width ? above[x + 1] : fbl_from_right(now[0], above[x]);
            it.nn = step > 1 ? second[x] : it.n;
        } else {
            it.n = it.ne = it.nn = it.nw = it.w;
        }
        _mm256_store_si256((__m256i *)sum, sum_of(&it));
        symbols(of, by, sum, value);
        now[x] = index_of(&it, _mm256_load_si256((const __m256i *)value));
        *highest = _mm256_max_epu8(*highest, now[x]);
        it.nw = it.n;
        it.ww = it.w;
        it.w = now[x];
    }
    if (!step) *left = now[0];
}

void fby_fbl_palette_avx2(fby_fbl_palette *tile)
{
    fby_fbl_coded *coded = &tile->coded;
    stream of = {.words = coded->bytes + (size_t)4 * FBY_FBL_STATES, .end = coded->end};
    __m256i rows[3][ROW], left = _mm256_setzero_si256(), highest = left;
    uint32_t colour[256] = {0};
    tables by;

    if (coded->bits > 8 || tile->low) {
        fby_fbl_kernels_c.palette(tile);
        return;
    }
    memset(rows, 0, sizeof rows);
    tables_make(tile->set, &by);
    for (uint32_t i = 0; i < tile->colours; i++) {
        memcpy(&colour[i], tile->colour + (size_t)i * coded->channels, coded->channels);
    }
    memcpy(of.state, coded->bytes, sizeof of.state);
    coded->good = true;
    for (uint32_t i = 0; i < FBY_FBL_STATES; i++) coded->good &= of.state[i] >= FBY_FBL_STATE_END;
    for (uint32_t step = 0; step < coded->shape.micro_height; step++) {
        row_decode(&of, &by, rows, step, coded->shape.micro_width, &left, &highest);
        row_out(tile, step, rows[step % 3], colour);
    }
    uint8_t found[FBY_LANES];
    _mm256_storeu_si256((__m256i *)found, highest);
    for (uint32_t lane = 0; lane < FBY_LANES; lane++) coded->good &= found[lane] < tile->colours;
    for (uint32_t i = 0; i < FBY_FBL_STATES; i++) coded->good &= of.state[i] == FBY_FBL_STATE_END;
    coded->good &= !of.overrun && of.end - of.words < 4;
}
