/* FBL's lane-group bodies, for one sample type: included once with FBL_SAMPLE uint8_t (8 bits) and once with
 * uint16_t (9 to 16), FBL(name) giving the functions their names. Arithmetic is modulo 2^bits. */

/* What the lanes of a group know of one plane: the row step before, overwritten from the left by this one. */
typedef struct FBL(row) {
    FBL_SAMPLE value[(FBY_FBL_MICRO_WIDTH + 1) * FBY_LANES]; /* one more: what is above right of the last */
    FBL_SAMPLE size[(FBY_FBL_MICRO_WIDTH + 1) * FBY_LANES];  /* of the residuals */
    FBL_SAMPLE left[FBY_LANES], left_size[FBY_LANES]; /* left of the row step before's first: above left */
} FBL(row);

/* What a lane predicts from, and the sum that chooses its context. */
typedef struct FBL(near) {
    FBL_SAMPLE w[FBY_LANES], nw[FBY_LANES], w_size[FBY_LANES], nw_size[FBY_LANES];
} FBL(near);

FBY_LANE_BODY void FBL(from_left)(const FBL_SAMPLE *of, const FBL_SAMPLE *at_edge, FBL_SAMPLE *to)
{
    FBY_EACH_LANE to[lane] = lane % FBY_FBL_ACROSS ? of[lane - 1] : at_edge[lane];
}

FBY_LANE_BODY void FBL(from_right)(const FBL_SAMPLE *of, const FBL_SAMPLE *at_edge, FBL_SAMPLE *to)
{
    FBY_EACH_LANE to[lane] = (lane + 1) % FBY_FBL_ACROSS ? of[lane + 1] : at_edge[lane];
}

FBY_LANE_BODY uint32_t FBL(mean)(uint32_t a, uint32_t b)
{
    return (a + b + 1) >> 1;
}

FBY_LANE_BODY uint32_t FBL(least)(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

FBY_LANE_BODY uint32_t FBL(most)(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

FBY_LANE_BODY uint32_t FBL(median)(uint32_t w, uint32_t n, uint32_t nw)
{
    uint32_t low = FBL(least)(w, n), high = FBL(most)(w, n);
    return low + high - FBL(least)(FBL(most)(nw, low), high);
}

FBY_LANE_BODY uint32_t FBL(predict)(uint32_t predictor, uint32_t w, uint32_t n, uint32_t nw, uint32_t ne)
{
    uint32_t median = FBL(median)(w, n, nw), mean = FBL(mean)(w, n);
    uint32_t both = FBL(mean)(mean, median), right = FBL(mean)(median, FBL(mean)(w, ne));
    return predictor & 2 ? (predictor & 1 ? right : mean) : (predictor & 1 ? both : median);
}

/* Zigzag: 0, -1, 1, -2, … are 0, 1, 2, 3, … */
FBY_LANE_BODY uint32_t FBL(of_zigzag)(uint32_t z)
{
    return z >> 1 ^ (0u - (z & 1));
}

FBY_LANE_BODY uint32_t FBL(zigzag)(uint32_t difference, uint32_t bits)
{
    uint32_t mask = (1u << bits) - 1, e = difference & mask;
    return (e << 1 ^ (0u - (e >> (bits - 1)))) & mask;
}

FBY_LANE_BODY uint32_t FBL(sum)(uint32_t n, uint32_t w, uint32_t nw, uint32_t ne, uint32_t shift)
{
    return FBL(least)((n + w + FBL(mean)(nw, ne)) >> shift, FBY_FBL_SUMS - 1);
}

FBY_LANE_BODY uint32_t FBL(first_sum)(uint32_t w, uint32_t shift)
{
    return FBL(least)(3 * w >> shift, FBY_FBL_SUMS - 1);
}

/* Begins a row step that has one above it. */
FBY_LANE_BODY void FBL(row_begin)(FBL(row) * row, FBL(near) * near, uint32_t width)
{
    const uint32_t last = (width - 1) * FBY_LANES;
    memcpy(near->nw, row->left, sizeof near->nw);
    memcpy(near->nw_size, row->left_size, sizeof near->nw_size);
    FBL(from_left)(row->value + last, row->value, near->w);
    FBL(from_left)(row->size + last, row->size, near->w_size);
    memcpy(row->left, near->w, sizeof row->left);
    memcpy(row->left_size, near->w_size, sizeof row->left_size);
}

/* After the first sample of a row step: the right neighbours' are above right of the last. */
FBY_LANE_BODY void FBL(row_turn)(FBL(row) * row, uint32_t width)
{
    const uint32_t last = (width - 1) * FBY_LANES;
    FBL(from_right)(row->value, row->value + last, row->value + last + FBY_LANES);
    FBL(from_right)(row->size, row->size + last, row->size + last + FBY_LANES);
}

FBY_LANE_BODY void FBL(row_first_end)(FBL(row) * row)
{
    memcpy(row->left, row->value, sizeof row->left);
    memcpy(row->left_size, row->size, sizeof row->left_size);
}

/* ---- rans ---- */

typedef struct FBL(stream) {
    uint32_t state[FBY_LANES];
    const uint8_t *words, *end;
    bool overrun;
} FBL(stream);

FBY_LANE_BODY void FBL(stream_refill)(FBL(stream) * stream)
{
    uint32_t wanted[FBY_LANES];
    FBY_EACH_LANE wanted[lane] = stream->state[lane] < FBY_FBL_STATE_END;
    stream->words += (size_t)2 * fby_lanes_take(stream->words, wanted, stream->state);
    if (stream->words > stream->end) {
        stream->overrun = true;
        stream->words = stream->end;
    }
}

/* One symbol of every lane. */
FBY_LANE_BODY void FBL(symbols)(FBL(stream) * stream, const fby_fbl_set *set, const uint8_t *sum,
                                uint32_t *value)
{
    uint32_t raw[FBY_LANES];

    FBY_EACH_LANE
    {
        uint32_t x = stream->state[lane], slot = x & (FBY_FBL_SCALE - 1);
        uint32_t entry = set->entry[set->context[sum[lane]] * FBY_FBL_SCALE + slot];
        uint32_t low = FBL(least)(set->raw[entry], FBY_FBL_STEP_BITS);
        x = set->frequency[entry] * (x >> FBY_FBL_SCALE_BITS) + slot - set->start[entry];
        value[lane] = set->base[entry] + (x & ((1u << low) - 1));
        raw[lane] = set->raw[entry] - low;
        stream->state[lane] = x >> low;
    }
    FBL(stream_refill)(stream);
    if (sizeof(FBL_SAMPLE) == 1) return;

    FBY_EACH_LANE
    {
        uint32_t x = stream->state[lane];
        value[lane] += (x & ((1u << raw[lane]) - 1)) << FBY_FBL_STEP_BITS;
        stream->state[lane] = x >> raw[lane];
    }
    FBL(stream_refill)(stream);
}

/* The states that a tile begins with; false where one can't be. */
FBY_LANE_BODY bool FBL(stream_begin)(FBL(stream) * stream, const uint8_t *bytes, const uint8_t *end,
                                     uint32_t active)
{
    bool good = true;
    for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
        stream->state[lane] = FBY_FBL_STATE_END;
        if (!(active >> lane & 1)) continue;
        stream->state[lane] =
            bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        good &= stream->state[lane] >= FBY_FBL_STATE_END;
        bytes += 4;
    }
    stream->words = bytes;
    stream->end = end;
    stream->overrun = false;
    return good;
}

/* A tile is whole if its words are used up, but for padding, and its states are those that encoding began
 * with. */
FBY_LANE_BODY bool FBL(stream_ended)(const FBL(stream) * stream)
{
    bool good = !stream->overrun && stream->end - stream->words < 4;
    FBY_EACH_LANE good &= stream->state[lane] == FBY_FBL_STATE_END;
    return good;
}

FBY_LANE_BODY void FBL(store)(uint8_t *at, uint32_t value)
{
    FBL_SAMPLE sample = (FBL_SAMPLE)value;
    memcpy(at, &sample, sizeof sample);
}

FBY_LANE_BODY uint32_t FBL(load)(const uint8_t *at)
{
    FBL_SAMPLE sample;
    memcpy(&sample, at, sizeof sample);
    return sample;
}

/* Writes a row step of 32 lanes, the first being `first`, as far as it lies within the tile. `planes` holds
 * [x][lane] of each plane. */
FBY_LANE_BODY void FBL(row_out)(const fby_fbl_coded *coded, uint32_t step, uint32_t first,
                                const FBL_SAMPLE *const *planes)
{
    const fby_fbl_shape *shape = &coded->shape;
    const fby_fbl_place *to = &coded->place;
    const uint32_t half = 1u << (coded->bits - 1), mask = (1u << coded->bits) - 1;
    const size_t sample = sizeof(FBL_SAMPLE), pixel = to->planar ? sample : sample * coded->channels;
    const size_t plane_step = to->planar ? to->plane : sample;

    FBY_EACH_LANE
    {
        uint32_t y = fby_fbl_row_of(shape, first + lane, step);
        uint32_t x0 = (first + lane) % FBY_FBL_ACROSS * shape->micro_width;
        if (y >= shape->height) continue;
        for (uint32_t x = 0; x < shape->micro_width && x0 + x < shape->width; x++) {
            uint8_t *at = to->at + y * to->row + (x0 + x) * pixel;
            for (uint32_t plane = 0; plane < coded->channels; plane++) {
                uint32_t value = planes[plane][x * FBY_LANES + lane];
                if (coded->minus_green >> plane & 1) value += planes[0][x * FBY_LANES + lane] - half;
                FBL(store)(at + fby_fbl_channel_of(plane, coded->channels) * plane_step, value & mask);
            }
        }
    }
}

FBY_LANE_BODY void FBL(rans_row_first)(FBL(stream) * stream, FBL(row) * row, const fby_fbl_set *set,
                                       uint32_t width, uint32_t bits)
{
    const uint32_t mask = (1u << bits) - 1;
    uint32_t value[FBY_LANES], w[FBY_LANES];
    uint8_t sum[FBY_LANES];

    FBY_EACH_LANE w[lane] = 1u << (bits - 1), sum[lane] = FBY_FBL_FIRST_SUM;
    for (uint32_t x = 0; x < width; x++) {
        FBL(symbols)(stream, set, sum, value);
        FBY_EACH_LANE
        {
            uint32_t z = value[lane] & mask, size = (z + 1) >> 1;
            w[lane] = (w[lane] + FBL(of_zigzag)(z)) & mask;
            row->value[x * FBY_LANES + lane] = (FBL_SAMPLE)w[lane];
            row->size[x * FBY_LANES + lane] = (FBL_SAMPLE)size;
            sum[lane] = (uint8_t)FBL(first_sum)(size, set->shift);
        }
    }
    FBL(row_first_end)(row);
}

FBY_LANE_BODY void FBL(rans_row)(FBL(stream) * stream, FBL(row) * row, const fby_fbl_set *set,
                                 const uint32_t *predictor, uint32_t width, uint32_t bits)
{
    const uint32_t mask = (1u << bits) - 1;
    FBL(near) near;
    uint32_t value[FBY_LANES];
    uint8_t sum[FBY_LANES];

    FBL(row_begin)(row, &near, width);
    for (uint32_t x = 0; x < width; x++) {
        FBL_SAMPLE *above = row->value + (size_t)x * FBY_LANES,
                   *above_size = row->size + (size_t)x * FBY_LANES;
        FBY_EACH_LANE sum[lane] = (uint8_t)FBL(sum)(above_size[lane], near.w_size[lane], near.nw_size[lane],
                                                    above_size[FBY_LANES + lane], set->shift);
        FBL(symbols)(stream, set, sum, value);
        FBY_EACH_LANE
        {
            uint32_t z = value[lane] & mask, n = above[lane], n_size = above_size[lane];
            uint32_t w =
                FBL(predict)(predictor[lane], near.w[lane], n, near.nw[lane], above[FBY_LANES + lane]);
            near.w[lane] = above[lane] = (FBL_SAMPLE)((w + FBL(of_zigzag)(z)) & mask);
            near.w_size[lane] = above_size[lane] = (FBL_SAMPLE)((z + 1) >> 1);
            near.nw[lane] = (FBL_SAMPLE)n;
            near.nw_size[lane] = (FBL_SAMPLE)n_size;
        }
        if (x == 0) FBL(row_turn)(row, width);
    }
}

FBY_LANE_BODY void FBL(predictors)(const uint64_t *bits, uint32_t first, uint32_t *predictor)
{
    FBY_EACH_LANE predictor[lane] =
        (uint32_t)((bits[0] >> (first + lane) & 1) | (bits[1] >> (first + lane) & 1) << 1);
}

FBY_LANE_BODY void FBL(rans_decode)(fby_fbl_rans *tile)
{
    fby_fbl_coded *coded = &tile->coded;
    const uint32_t width = coded->shape.micro_width;
    FBL(stream) stream;
    FBL(row) row[FBY_FBL_PLANES];
    uint32_t predictor[FBY_FBL_PLANES][FBY_LANES];
    const FBL_SAMPLE *planes[FBY_FBL_PLANES];

    bool good = FBL(stream_begin)(&stream, coded->bytes, coded->end, UINT32_MAX);
    for (uint32_t plane = 0; plane < coded->channels; plane++) {
        uint64_t bits[2] = {tile->predictor[plane][0], tile->predictor[plane][1]};
        FBL(predictors)(bits, 0, predictor[plane]);
        FBL(rans_row_first)(&stream, &row[plane], tile->set[plane], width, coded->bits);
        planes[plane] = row[plane].value;
    }
    FBL(row_out)(coded, 0, 0, planes);
    for (uint32_t step = 1; step < coded->shape.micro_height; step++) {
        for (uint32_t plane = 0; plane < coded->channels; plane++) {
            FBL(rans_row)(&stream, &row[plane], tile->set[plane], predictor[plane], width, coded->bits);
        }
        FBL(row_out)(coded, step, 0, planes);
    }
    coded->good = good && FBL(stream_ended)(&stream);
}

/* ---- pack ---- */

/* Reads the width codes of 64 lanes, and steps over them. */
FBY_LANE_BODY void FBL(widths)(const uint8_t **codes, uint32_t left_out, uint8_t *width)
{
    const uint32_t code_bits = sizeof(FBL_SAMPLE) == 1 ? 3 : 4;
    for (uint32_t i = 0; i < 2 * FBY_LANES; i++) {
        uint32_t bit = i * code_bits, pair = (*codes)[bit / 8];
        if (bit / 8 < 8 * code_bits - 1) pair |= (uint32_t)(*codes)[bit / 8 + 1] << 8;
        uint32_t code = pair >> bit % 8 & ((1u << code_bits) - 1);
        width[i] = (uint8_t)(code + (code >= left_out));
    }
    *codes += 8 * code_bits;
}

/* The groups of 64 lanes: residuals of four columns and two rows to [row][x][lane], `row_step` apart. Where
 * the tile's bytes don't suffice, false. */
FBY_LANE_BODY bool FBL(groups)(const uint8_t **group, const uint8_t *end, const uint8_t *width,
                               FBL_SAMPLE *residual, size_t row_step)
{
    size_t bytes = 0;
    for (uint32_t lane = 0; lane < 2 * FBY_LANES; lane++) bytes += width[lane];
    if (bytes > (size_t)(end - *group)) return false;

    for (uint32_t lane = 0; lane < 2 * FBY_LANES; lane++) {
        for (uint32_t i = 0, bit = 0; i < 8; i++, bit += width[lane]) {
            uint32_t value = 0;
            for (uint32_t b = 0; b < width[lane]; b++) {
                value |= (uint32_t)((*group)[(bit + b) / 8] >> (bit + b) % 8 & 1) << b;
            }
            residual[i / 4 * row_step + (size_t)(i % 4) * 2 * FBY_LANES + lane] = (FBL_SAMPLE)value;
        }
        *group += width[lane];
    }
    return true;
}

/* One row step of 32 of the 64 lanes. */
FBY_LANE_BODY void FBL(pack_row)(FBL(row) * row, const FBL_SAMPLE *residual, const uint32_t *predictor,
                                 uint32_t width, uint32_t bits, bool first)
{
    const uint32_t mask = (1u << bits) - 1;
    FBL(near) near;

    if (first) {
        FBY_EACH_LANE near.w[lane] = (FBL_SAMPLE)(1u << (bits - 1));
    } else {
        FBL(row_begin)(row, &near, width);
    }
    for (uint32_t x = 0; x < width; x++) {
        FBL_SAMPLE *above = row->value + (size_t)x * FBY_LANES;
        FBY_EACH_LANE
        {
            uint32_t n = above[lane], w = near.w[lane];
            if (!first) w = FBL(predict)(predictor[lane], w, n, near.nw[lane], above[FBY_LANES + lane]);
            w = (w + FBL(of_zigzag)(residual[(size_t)x * 2 * FBY_LANES + lane])) & mask;
            near.w[lane] = above[lane] = (FBL_SAMPLE)w;
            near.nw[lane] = (FBL_SAMPLE)n;
        }
        if (x == 0 && !first) FBL(row_turn)(row, width);
    }
    if (first) FBL(row_first_end)(row);
}

FBY_LANE_BODY void FBL(pack_decode)(fby_fbl_pack *tile)
{
    fby_fbl_coded *coded = &tile->coded;
    const fby_fbl_shape *shape = &coded->shape;
    const size_t row_step = (size_t)FBY_FBL_MICRO_WIDTH * 2 * FBY_LANES;
    const uint8_t *codes = coded->bytes;
    const uint8_t *group = codes + fby_fbl_pack_codes(shape, coded->channels, coded->bits);
    FBL_SAMPLE residual[FBY_FBL_PLANES][2 * FBY_FBL_MICRO_WIDTH * 2 * FBY_LANES];
    FBL(row) row[2][FBY_FBL_PLANES];
    uint32_t predictor[2][FBY_FBL_PLANES][FBY_LANES];
    uint8_t width[2 * FBY_LANES];

    memset(row, 0, sizeof row);
    coded->good = false;
    for (uint32_t plane = 0; plane < coded->channels; plane++) {
        FBL(predictors)(tile->predictor[plane], 0, predictor[0][plane]);
        FBL(predictors)(tile->predictor[plane], FBY_LANES, predictor[1][plane]);
    }
    for (uint32_t step = 0; step < shape->micro_height; step++) {
        for (uint32_t plane = 0; plane < coded->channels && step % 2 == 0; plane++) {
            for (uint32_t x = 0; x < shape->micro_width; x += 4) {
                FBL(widths)(&codes, tile->left_out[plane], width);
                if (!FBL(groups)(&group, coded->end, width, residual[plane] + (size_t)x * 2 * FBY_LANES,
                                 row_step))
                    return;
            }
        }
        for (uint32_t half = 0; half < 2; half++) {
            const FBL_SAMPLE *planes[FBY_FBL_PLANES];
            for (uint32_t plane = 0; plane < coded->channels; plane++) {
                FBL(pack_row)
                (&row[half][plane], residual[plane] + step % 2 * row_step + half * FBY_LANES,
                 predictor[half][plane], shape->micro_width, coded->bits, step == 0);
                planes[plane] = row[half][plane].value;
            }
            FBL(row_out)(coded, step, half * FBY_LANES, planes);
        }
    }
    coded->good = coded->end - group < 4;
}
