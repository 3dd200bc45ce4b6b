/* The encoder's side of FBL's tiles of 8 bits with AVX2: the same choices and residuals as in
 * fbl_model_body.h. */
#include "kernels/fbl_avx2.h"

enum {
    ROW = FBY_FBL_MICRO_WIDTH + 1,
    HALVES = 2,       /* of pack's 64 lanes */
    GROUP_VALUES = 8, /* 4 x 2 */
    WIDTHS = 9
};

/* Samples are [row step][x][group of 32 lanes]. */
typedef struct planes {
    __m256i *plane[FBY_FBL_PLANES];
    uint32_t width, height; /* of micro-tiles */
    uint32_t groups;        /* of 32 lanes */
} planes;

FBL_AVX2 planes planes_of(const fby_fbl_work *work, uint32_t groups)
{
    planes it = {.width = work->shape.micro_width, .height = work->shape.micro_height, .groups = groups};
    for (uint32_t p = 0; p < work->channels; p++) {
        it.plane[p] = (__m256i *)((uint8_t *)work->samples + (size_t)p * FBY_FBL_TILE_SAMPLES);
    }
    return it;
}

FBL_AVX2 size_t place_of(const planes *of, uint32_t step, uint32_t x, uint32_t group)
{
    return ((size_t)step * of->width + x) * of->groups + group;
}

/* ---- samples to lanes ---- */

/* A lane's samples of a row step: where they are, or staged, with the last column repeated. */
FBL_AVX2 const uint8_t *lane_row(const fby_fbl_work *work, uint32_t lane, uint32_t step, size_t channel,
                                 uint32_t pixel, uint8_t *staged)
{
    const fby_fbl_shape *shape = &work->shape;
    uint32_t y = fby_fbl_row_of(shape, lane, step), x = lane % FBY_FBL_ACROSS * shape->micro_width;

    if (y >= shape->height) y = shape->height - 1;
    const uint8_t *row = work->from.at + channel + y * work->from.row;
    if (x + FBY_FBL_MICRO_WIDTH <= shape->width) return row + (size_t)x * pixel;
    for (uint32_t i = 0; i < shape->micro_width; i++) {
        uint32_t column = x + i < shape->width ? x + i : shape->width - 1;
        memcpy(staged + (size_t)i * pixel, row + (size_t)column * pixel, pixel);
    }
    return staged;
}

/* `pixel` bytes a position of a row step: vectors of 32 lanes for each byte. */
FBL_AVX2 void gather(const fby_fbl_work *work, uint32_t first, uint32_t step, size_t channel, uint32_t pixel,
                     __m256i *out)
{
    uint8_t staged[FBY_LANES][64];
    const uint8_t *row[FBY_LANES];

    for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
        row[lane] = lane_row(work, first + lane, step, channel, pixel, staged[lane]);
    }
    for (uint32_t block = 0; block < pixel; block++) {
        __m256i in[16];
        for (int i = 0; i < 16; i++) {
            __m128i low = _mm_loadu_si128((const __m128i *)(row[i] + (size_t)block * 16));
            __m128i high = _mm_loadu_si128((const __m128i *)(row[i + 16] + (size_t)block * 16));
            in[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
        }
        fbl_transpose(in, out + (size_t)block * 16);
    }
}

FBL_AVX2 void split(const fby_fbl_work *work, const planes *to)
{
    const __m256i half = _mm256_set1_epi8((char)128);
    const uint32_t channels = work->channels;
    __m256i bytes[FBY_FBL_MICRO_WIDTH * FBY_FBL_PLANES];

    memset(bytes, 0, sizeof bytes);
    for (uint32_t step = 0; step < to->height; step++) {
        for (uint32_t group = 0; group < to->groups; group++) {
            const bool planar = work->from.planar;
            for (uint32_t c = 0; c < (planar ? channels : 1); c++) {
                gather(work, group * FBY_LANES, step, planar ? c * work->from.plane : 0,
                       planar ? 1 : channels, bytes + (size_t)c * FBY_FBL_MICRO_WIDTH);
            }
            for (uint32_t p = 0; p < channels; p++) {
                const uint32_t c = fby_fbl_channel_of(p, channels);
                const __m256i *from = planar ? bytes + (size_t)c * FBY_FBL_MICRO_WIDTH : bytes + c;
                const __m256i *green = planar ? bytes + FBY_FBL_MICRO_WIDTH : bytes + 1;
                const uint32_t stride = planar ? 1 : channels;
                for (uint32_t x = 0; x < to->width; x++) {
                    __m256i value = from[x * stride];
                    if (channels >= 3 && (p == 1 || p == 2))
                        value = _mm256_sub_epi8(value, _mm256_xor_si256(green[x * stride], half));
                    to->plane[p][place_of(to, step, x, group)] = value;
                }
            }
        }
    }
}

/* ---- green ---- */

FBL_AVX2 __m256i cost_of(__m256i z)
{
    const __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(FBL_COSTS_LOW));
    const __m256i high = _mm256_broadcastsi128_si256(_mm_setr_epi8(FBL_COSTS_HIGH));
    const __m256i nibble = _mm256_set1_epi8(15);
    return _mm256_max_epu8(_mm256_shuffle_epi8(low, _mm256_and_si256(z, nibble)),
                           _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(z, 4), nibble)));
}

FBL_AVX2 __m256i width_of(__m256i all)
{
    const __m256i low =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4));
    const __m256i high =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8));
    const __m256i nibble = _mm256_set1_epi8(15);
    return _mm256_max_epu8(_mm256_shuffle_epi8(low, _mm256_and_si256(all, nibble)),
                           _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(all, 4), nibble)));
}

FBL_AVX2 uint64_t total_of(__m256i sums)
{
    __m128i both = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    return (uint64_t)_mm_cvtsi128_si64(both) + (uint64_t)_mm_extract_epi64(both, 1);
}

/* A plane with green added back. */
FBL_AVX2 __m256i plain_of(const __m256i *v, const __m256i *green, size_t at)
{
    return _mm256_add_epi8(v[at], _mm256_xor_si256(green[at], _mm256_set1_epi8((char)128)));
}

/* Residuals at a place as differences to green, and without. */
FBL_AVX2 void green_residuals(const planes *of, uint32_t p, size_t at, __m256i *with, __m256i *without)
{
    const __m256i *v = of->plane[p], *green = of->plane[0];
    const size_t w = at - of->groups, n = at - (size_t)of->width * of->groups;

    *with = fbl_zigzag(_mm256_sub_epi8(v[at], _mm256_avg_epu8(v[w], v[n])));
    *without = fbl_zigzag(_mm256_sub_epi8(plain_of(v, green, at),
                                          _mm256_avg_epu8(plain_of(v, green, w), plain_of(v, green, n))));
}

FBL_AVX2 bool green_helps(const planes *of, uint32_t p)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i with = zero, without = zero, z, plain;

    for (uint32_t step = 1; step < of->height; step += 3) {
        for (uint32_t x = 1; x < of->width; x++) {
            green_residuals(of, p, place_of(of, step, x, 0), &z, &plain);
            with = _mm256_add_epi64(with, _mm256_sad_epu8(cost_of(z), zero));
            without = _mm256_add_epi64(without, _mm256_sad_epu8(cost_of(plain), zero));
        }
    }
    return total_of(with) <= total_of(without);
}

FBL_AVX2 bool green_narrows(const planes *of, uint32_t p)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i with = zero, without = zero, z, plain;

    for (uint32_t step = 2; step < of->height; step += 4) {
        for (uint32_t x = 0; x < of->width; x += 4) {
            for (uint32_t group = 0; group < HALVES; group++) {
                __m256i all = zero, all_plain = zero;
                for (uint32_t i = x ? 0 : 1; i < GROUP_VALUES; i++) {
                    if (x + i % 4 == 0) continue;
                    green_residuals(of, p, place_of(of, step + i / 4, x + i % 4, group), &z, &plain);
                    all = _mm256_or_si256(all, z);
                    all_plain = _mm256_or_si256(all_plain, plain);
                }
                with = _mm256_add_epi64(with, _mm256_sad_epu8(width_of(all), zero));
                without = _mm256_add_epi64(without, _mm256_sad_epu8(width_of(all_plain), zero));
            }
        }
    }
    return total_of(with) <= total_of(without);
}

FBL_AVX2 void choose_green(fby_fbl_work *work, const planes *of)
{
    const size_t count = (size_t)of->width * of->height * of->groups;

    work->minus_green = 0;
    for (uint32_t p = 1; p < 3 && work->channels >= 3; p++) {
        if (of->groups == 1 ? green_helps(of, p) : green_narrows(of, p)) {
            work->minus_green |= 1u << p;
            continue;
        }
        for (size_t i = 0; i < count; i++) of->plane[p][i] = plain_of(of->plane[p], of->plane[0], i);
    }
}

/* ---- predictors and residuals ---- */

/* What a row step other than the first begins with. */
typedef struct before {
    __m256i w, nw;
} before;

FBL_AVX2 before row_begin(const planes *of, uint32_t p, uint32_t group, uint32_t step)
{
    const __m256i *v = of->plane[p];
    before it;

    it.w =
        fbl_from_left(v[place_of(of, step - 1, of->width - 1, group)], v[place_of(of, step - 1, 0, group)]);
    it.nw = v[place_of(of, 0, 0, group)];
    if (step > 1)
        it.nw = fbl_from_left(v[place_of(of, step - 2, of->width - 1, group)],
                              v[place_of(of, step - 2, 0, group)]);
    return it;
}

/* What is above right. */
FBL_AVX2 __m256i right_of(const planes *of, uint32_t p, uint32_t group, uint32_t step, uint32_t x)
{
    const __m256i *v = of->plane[p];
    if (x + 1 < of->width) return v[place_of(of, step - 1, x + 1, group)];
    return fbl_from_right(v[place_of(of, step, 0, group)], v[place_of(of, step - 1, x, group)]);
}

/* Residuals of the four predictors. */
FBL_AVX2 void all_residuals(__m256i own, __m256i w, __m256i n, __m256i nw, __m256i ne, __m256i z[4])
{
    __m256i median = fbl_median(w, n, nw), mean = _mm256_avg_epu8(w, n);
    z[0] = fbl_zigzag(_mm256_sub_epi8(own, median));
    z[1] = fbl_zigzag(_mm256_sub_epi8(own, _mm256_avg_epu8(mean, median)));
    z[2] = fbl_zigzag(_mm256_sub_epi8(own, mean));
    z[3] = fbl_zigzag(_mm256_sub_epi8(own, _mm256_avg_epu8(median, _mm256_avg_epu8(w, ne))));
}

/* Adds bytes of 32 lanes to their sums. */
FBL_AVX2 void sums_add(uint16_t *sums, __m256i bytes)
{
    __m256i *to = (__m256i *)sums;
    to[0] = _mm256_add_epi16(to[0], _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes)));
    to[1] = _mm256_add_epi16(to[1], _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1)));
}

FBL_AVX2 void predictor_costs(const planes *of, uint32_t p, uint16_t sums[4][FBY_LANES])
{
    const __m256i *v = of->plane[p];
    __m256i z[4], row[4];

    for (uint32_t step = 1; step < of->height; step++) {
        before it = row_begin(of, p, 0, step);
        for (int k = 0; k < 4; k++) row[k] = _mm256_setzero_si256();
        for (uint32_t x = 0; x < of->width; x++) {
            __m256i n = v[place_of(of, step - 1, x, 0)], own = v[place_of(of, step, x, 0)];
            all_residuals(own, it.w, n, it.nw, right_of(of, p, 0, step, x), z);
            for (int k = 0; k < 4; k++) row[k] = _mm256_adds_epu8(row[k], cost_of(z[k]));
            it = (before){own, n};
        }
        for (int k = 0; k < 4; k++) sums_add(sums[k], row[k]);
    }
}

FBL_AVX2 void predictor_widths(const planes *of, uint32_t p, uint32_t group, uint16_t sums[4][FBY_LANES])
{
    const __m256i *v = of->plane[p];
    __m256i z[4], all[FBY_FBL_MICRO_WIDTH / 4][4], total[4];

    for (int k = 0; k < 4; k++) total[k] = _mm256_setzero_si256();
    for (uint32_t step = 0; step < of->height; step++) {
        if (step % FBY_FBL_LOOK_STEPS > 1) continue;
        if (step % 2 == 0) memset(all, 0, sizeof all);
        if (step) {
            before it = row_begin(of, p, group, step);
            for (uint32_t x = 0; x < of->width; x++) {
                __m256i n = v[place_of(of, step - 1, x, group)], own = v[place_of(of, step, x, group)];
                all_residuals(own, it.w, n, it.nw, right_of(of, p, group, step, x), z);
                for (int k = 0; k < 4; k++) all[x / 4][k] = _mm256_or_si256(all[x / 4][k], z[k]);
                it = (before){own, n};
            }
        }
        for (uint32_t q = 0; step % 2 && q < of->width / 4; q++) {
            for (int k = 0; k < 4; k++) total[k] = _mm256_adds_epu8(total[k], width_of(all[q][k]));
        }
    }
    for (int k = 0; k < 4; k++) sums_add(sums[k], total[k]);
}

/* The cheapest predictor of 32 lanes: the first of several. */
FBL_AVX2 void choose_predictors(fby_fbl_work *work, const planes *of, uint32_t p, uint32_t group)
{
    _Alignas(32) uint16_t sums[4][FBY_LANES] = {{0}};

    if (of->groups == 1)
        predictor_costs(of, p, sums);
    else
        predictor_widths(of, p, group, sums);
    if (!group) work->predictor[p][0] = work->predictor[p][1] = 0;
    for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
        uint64_t best = 0;
        for (uint64_t k = 1; k < 4; k++) best = sums[k][lane] < sums[best][lane] ? k : best;
        work->predictor[p][0] |= (best & 1) << (group * FBY_LANES + lane);
        work->predictor[p][1] |= (best >> 1) << (group * FBY_LANES + lane);
    }
}

/* Residuals of 32 lanes of a row step, `stride` vectors apart. */
FBL_AVX2 void residuals_row(const planes *of, uint32_t p, uint32_t group, uint32_t step, __m256i low,
                            __m256i high, __m256i *to, size_t stride)
{
    const __m256i *v = of->plane[p];

    if (step == 0) {
        __m256i w = _mm256_set1_epi8((char)128);
        for (uint32_t x = 0; x < of->width; x++) {
            __m256i own = v[place_of(of, 0, x, group)];
            to[x * stride] = fbl_zigzag(_mm256_sub_epi8(own, w));
            w = own;
        }
        return;
    }
    before it = row_begin(of, p, group, step);
    for (uint32_t x = 0; x < of->width; x++) {
        __m256i n = v[place_of(of, step - 1, x, group)], own = v[place_of(of, step, x, group)];
        __m256i predicted = fbl_predict(it.w, n, it.nw, right_of(of, p, group, step, x), low, high);
        to[x * stride] = fbl_zigzag(_mm256_sub_epi8(own, predicted));
        it = (before){own, n};
    }
}

/* The sums of a row step; `size` holds the row step before's sizes and gets this one's. */
typedef struct sizes {
    __m256i size[ROW], left;
} sizes;

FBL_AVX2 __m256i capped(__m256i sum)
{
    return _mm256_min_epu8(sum, _mm256_set1_epi8(FBY_FBL_SUMS - 1));
}

FBL_AVX2 void sums_row(sizes *of, const __m256i *z, uint32_t step, uint32_t width, __m256i *sums)
{
    if (step == 0) {
        sums[0] = _mm256_set1_epi8(FBY_FBL_FIRST_SUM);
        for (uint32_t x = 0; x < width; x++) {
            __m256i size = of->size[x] = fbl_size(z[x]);
            if (x + 1 < width) sums[x + 1] = capped(_mm256_adds_epu8(size, _mm256_adds_epu8(size, size)));
        }
        of->left = of->size[0];
        return;
    }
    __m256i w = fbl_from_left(of->size[width - 1], of->size[0]), nw = of->left;
    of->left = w;
    for (uint32_t x = 0; x < width; x++) {
        __m256i n = of->size[x];
        sums[x] = capped(_mm256_adds_epu8(_mm256_adds_epu8(n, w), _mm256_avg_epu8(nw, of->size[x + 1])));
        of->size[x] = w = fbl_size(z[x]);
        nw = n;
        if (!x) of->size[width] = fbl_from_right(w, of->size[width - 1]);
    }
}

void fby_fbl_model_rans_avx2(fby_fbl_work *work, const uint32_t *shift)
{
    if (work->bits > 8) {
        fby_fbl_kernels_c.model_rans(work, shift);
        return;
    }
    const planes of = planes_of(work, 1);

    split(work, &of);
    choose_green(work, &of);
    for (uint32_t p = 0; p < work->channels; p++) {
        sizes size = {0}; /* set by the first row; compilers under sanitizers don't see it */
        choose_predictors(work, &of, p, 0);
        __m256i low = fbl_lane_mask((uint32_t)work->predictor[p][0]);
        __m256i high = fbl_lane_mask((uint32_t)work->predictor[p][1]);
        for (uint32_t step = 0; step < of.height; step++) {
            size_t at = ((size_t)step * work->channels + p) * of.width;
            __m256i *z = (__m256i *)work->residuals + at, *sums = (__m256i *)work->sums + at;
            residuals_row(&of, p, 0, step, low, high, z, 1);
            sums_row(&size, z, step, of.width, sums);
        }
    }
}

void fby_fbl_model_pack_avx2(fby_fbl_work *work)
{
    if (work->bits > 8) {
        fby_fbl_kernels_c.model_pack(work);
        return;
    }
    const planes of = planes_of(work, HALVES);

    split(work, &of);
    choose_green(work, &of);
    for (uint32_t p = 0; p < work->channels; p++) {
        __m256i *to = (__m256i *)((uint8_t *)work->residuals + (size_t)p * FBY_FBL_TILE_SAMPLES);
        for (uint32_t half = 0; half < HALVES; half++) {
            choose_predictors(work, &of, p, half);
            __m256i low = fbl_lane_mask((uint32_t)(work->predictor[p][0] >> half * FBY_LANES));
            __m256i high = fbl_lane_mask((uint32_t)(work->predictor[p][1] >> half * FBY_LANES));
            for (uint32_t step = 0; step < of.height; step++) {
                residuals_row(&of, p, half, step, low, high, to + place_of(&of, step, 0, half), HALVES);
            }
        }
    }
}

/* ---- groups ---- */

/* Widths of all groups of a plane, [row pair][quad][lane], and how many there are of each. */
FBL_AVX2 void widths_find(const fby_fbl_work *work, const __m256i *z, __m256i *widths, uint32_t *count)
{
    const size_t width = work->shape.micro_width, row = width * HALVES;

    memset(count, 0, WIDTHS * sizeof *count);
    for (uint32_t step = 0; step < work->shape.micro_height; step += 2) {
        for (size_t x = 0; x < width; x += 4) {
            for (uint32_t half = 0; half < HALVES; half++) {
                const __m256i *at = z + step * row + x * HALVES + half;
                __m256i all = _mm256_setzero_si256();
                for (uint32_t i = 0; i < 4; i++) {
                    all = _mm256_or_si256(all, _mm256_or_si256(at[i * HALVES], at[row + i * HALVES]));
                }
                __m256i found = width_of(all);
                for (uint32_t w = 0; w < WIDTHS; w++) {
                    __m256i same = _mm256_cmpeq_epi8(found, _mm256_set1_epi8((char)w));
                    count[w] += (uint32_t)__builtin_popcount((uint32_t)_mm256_movemask_epi8(same));
                }
                *widths++ = found;
            }
        }
    }
}

FBL_AVX2 uint32_t width_to_leave_out(const uint32_t *count)
{
    uint32_t least = WIDTHS - 2;
    if (!count[WIDTHS - 1]) return WIDTHS - 1;
    for (uint32_t w = 0; w < WIDTHS - 1; w++) {
        if (count[w] < count[least]) least = w;
    }
    return least;
}

/* Eight vectors of 32 lanes to eight bytes a lane. */
FBL_AVX2 void lanes_of(const __m256i *in, uint64_t *lanes)
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[i] = _mm256_unpacklo_epi8(in[2 * i], in[2 * i + 1]);
        a[i + 4] = _mm256_unpackhi_epi8(in[2 * i], in[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi16(a[i], a[i + 1]);
        b[i + 2] = _mm256_unpacklo_epi16(a[i + 2], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi16(a[i + 2], a[i + 3]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int k = 0; k < 2; k++) {
            __m256i first = _mm256_unpacklo_epi32(b[i + k], b[i + k + 2]);
            __m256i second = _mm256_unpackhi_epi32(b[i + k], b[i + k + 2]);
            uint64_t *to = lanes + 2 * i + 4 * k;
            _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(first));
            _mm_storeu_si128((__m128i *)(to + 2), _mm256_castsi256_si128(second));
            _mm_storeu_si128((__m128i *)(to + 16), _mm256_extracti128_si256(first, 1));
            _mm_storeu_si128((__m128i *)(to + 18), _mm256_extracti128_si256(second, 1));
        }
    }
}

/* Codes and groups of 32 lanes. */
FBL_AVX2 uint8_t *groups_write(const __m256i *z, size_t row, __m256i width, uint32_t left_out,
                               uint8_t **codes, uint8_t *group)
{
    const __m256i missing = _mm256_set1_epi8((char)left_out);
    _Alignas(32) uint64_t lanes[FBY_LANES], eight[4];
    _Alignas(32) uint8_t bits[FBY_LANES];
    __m256i in[GROUP_VALUES];

    width = _mm256_sub_epi8(width, _mm256_cmpeq_epi8(width, missing));
    _mm256_store_si256((__m256i *)bits, width);
    _mm256_store_si256((__m256i *)eight, _mm256_add_epi8(width, _mm256_cmpgt_epi8(width, missing)));
    for (int i = 0; i < 4; i++, *codes += 3) {
        uint64_t code = _pext_u64(eight[i], 0x0707070707070707u);
        (*codes)[0] = (uint8_t)code;
        (*codes)[1] = (uint8_t)(code >> 8);
        (*codes)[2] = (uint8_t)(code >> 16);
    }
    for (uint32_t i = 0; i < GROUP_VALUES; i++) in[i] = z[i / 4 * row + (size_t)(i % 4) * HALVES];
    lanes_of(in, lanes);
    for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
        uint64_t bytes = _pext_u64(lanes[lane], 0x0101010101010101u * ((1u << bits[lane]) - 1));
        memcpy(group, &bytes, sizeof bytes);
        group += bits[lane];
    }
    return group;
}

size_t fby_fbl_encode_pack_avx2(fby_fbl_work *work, uint8_t *out)
{
    if (work->bits > 8) return fby_fbl_kernels_c.encode_pack(work, out);

    const size_t width = work->shape.micro_width, row = width * HALVES;
    uint8_t *codes = out, *group = out + fby_fbl_pack_codes(&work->shape, work->channels, 8);
    __m256i widths[FBY_FBL_PLANES][FBY_FBL_TILE_SAMPLES / GROUP_VALUES / FBY_LANES];
    const __m256i *next[FBY_FBL_PLANES];

    for (uint32_t p = 0; p < work->channels; p++) {
        uint32_t count[WIDTHS];
        widths_find(work, (const __m256i *)((uint8_t *)work->residuals + (size_t)p * FBY_FBL_TILE_SAMPLES),
                    widths[p], count);
        work->left_out[p] = width_to_leave_out(count);
        next[p] = widths[p];
    }
    for (uint32_t step = 0; step < work->shape.micro_height; step += 2) {
        for (uint32_t p = 0; p < work->channels; p++) {
            const __m256i *z =
                (const __m256i *)((uint8_t *)work->residuals + (size_t)p * FBY_FBL_TILE_SAMPLES);
            for (size_t x = 0; x < width; x += 4) {
                for (uint32_t half = 0; half < HALVES; half++) {
                    group = groups_write(z + step * row + x * HALVES + half, row, *next[p]++,
                                         work->left_out[p], &codes, group);
                }
            }
        }
    }
    return (size_t)(group - out);
}
