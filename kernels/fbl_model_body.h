/* The encoder's lane-group bodies: samples to lanes, choices, residuals. Included as fbl_body.h is, after it.
 * `lanes` is 32 (rans) or 64 (pack). */

FBY_LANE_BODY FBL_SAMPLE *FBL(plane_of)(const fby_fbl_work *work, uint32_t plane)
{
    return (FBL_SAMPLE *)work->samples + (size_t)plane * FBY_FBL_TILE_SAMPLES;
}

/* Samples to [plane][row step][x][lane]. Padding repeats the last column and row. Red and blue become
 * differences to green. */
FBY_LANE_BODY void FBL(split)(const fby_fbl_work *work, uint32_t lanes)
{
    const fby_fbl_shape *shape = &work->shape;
    const fby_fbl_place *from = &work->from;
    const uint32_t mask = (1u << work->bits) - 1, half = 1u << (work->bits - 1), channels = work->channels;
    const size_t sample = sizeof(FBL_SAMPLE), pixel = from->planar ? sample : sample * channels;
    const size_t step_to_channel = from->planar ? from->plane : sample;

    for (uint32_t step = 0; step < shape->micro_height; step++) {
        for (uint32_t lane = 0; lane < lanes; lane++) {
            uint32_t y = FBL(least)(fby_fbl_row_of(shape, lane, step), shape->height - 1);
            uint32_t x0 = lane % FBY_FBL_ACROSS * shape->micro_width;
            for (uint32_t plane = 0; plane < channels; plane++) {
                FBL_SAMPLE *to =
                    FBL(plane_of)(work, plane) + (size_t)step * shape->micro_width * lanes + lane;
                const uint8_t *row =
                    from->at + y * from->row + fby_fbl_channel_of(plane, channels) * step_to_channel;
                const uint8_t *green = from->at + y * from->row + step_to_channel;
                bool minus = channels >= 3 && (plane == 1 || plane == 2);
                for (uint32_t x = 0; x < shape->micro_width; x++) {
                    size_t at = FBL(least)(x0 + x, shape->width - 1) * pixel;
                    uint32_t value = FBL(load)(row + at);
                    if (minus) value = (value - FBL(load)(green + at) + half) & mask;
                    to[(size_t)x * lanes] = (FBL_SAMPLE)value;
                }
            }
        }
    }
}

/* About 2 log2(1 + z), for comparing what entropy coding makes of residuals. */
FBY_LANE_BODY uint32_t FBL(cost)(uint32_t z)
{
    static const uint8_t low[16] = {FBL_COSTS_LOW}, high[16] = {FBL_COSTS_HIGH};
    if (z < 256) return FBL(most)(low[z & 15], high[z >> 4]);
    return 2 * (31 - (uint32_t)__builtin_clz(z + 1)) + 1;
}

/* The bits of a group whose values have these in one or another. */
FBY_LANE_BODY uint32_t FBL(width_of)(uint32_t all)
{
    return 31 - (uint32_t)__builtin_clz(2 * all + 1);
}

/* Residuals of `lanes` lanes at `at`, predicted by the mean, where the plane is a difference to green, and
 * where it isn't. */
FBY_LANE_BODY void FBL(green_residuals)(const fby_fbl_work *work, const FBL_SAMPLE *v, size_t at,
                                        uint32_t lanes, FBL_SAMPLE *with, FBL_SAMPLE *without)
{
    const uint32_t mask = (1u << work->bits) - 1, half = 1u << (work->bits - 1);
    const size_t w = at - lanes, n = at - (size_t)work->shape.micro_width * lanes;
    const FBL_SAMPLE *green = FBL(plane_of)(work, 0);

    for (uint32_t lane = 0; lane < lanes; lane++) {
        uint32_t own = v[at + lane] + green[at + lane] - half;
        uint32_t own_w = (v[w + lane] + green[w + lane] - half) & mask;
        uint32_t own_n = (v[n + lane] + green[n + lane] - half) & mask;
        with[lane] = (FBL_SAMPLE)FBL(zigzag)(v[at + lane] - FBL(mean)(v[w + lane], v[n + lane]), work->bits);
        without[lane] = (FBL_SAMPLE)FBL(zigzag)(own - FBL(mean)(own_w, own_n), work->bits);
    }
}

/* Whether a plane is smaller as a difference to green: by what entropy coding would make of a third of its
 * rows, … */
FBY_LANE_BODY bool FBL(green_helps)(const fby_fbl_work *work, const FBL_SAMPLE *v)
{
    const uint32_t width = work->shape.micro_width;
    FBL_SAMPLE z[FBY_LANES], plain[FBY_LANES];
    uint64_t with = 0, without = 0;

    for (uint32_t step = 1; step < work->shape.micro_height; step += 3) {
        uint32_t costs[2] = {0, 0};
        for (uint32_t x = 1; x < width; x++) {
            FBL(green_residuals)(work, v, ((size_t)step * width + x) * FBY_LANES, FBY_LANES, z, plain);
            FBY_EACH_LANE costs[0] += FBL(cost)(z[lane]), costs[1] += FBL(cost)(plain[lane]);
        }
        with += costs[0];
        without += costs[1];
    }
    return with <= without;
}

/* … or by the widths of the same part of the groups. */
FBY_LANE_BODY bool FBL(green_narrows)(const fby_fbl_work *work, const FBL_SAMPLE *v)
{
    enum { LANES = 2 * FBY_LANES };
    const uint32_t width = work->shape.micro_width;
    FBL_SAMPLE z[LANES], plain[LANES], all[2][LANES];
    uint32_t with = 0, without = 0;

    for (uint32_t step = 2; step < work->shape.micro_height; step += FBY_FBL_LOOK_STEPS) {
        for (uint32_t x = 0; x < width; x += 4) {
            memset(all, 0, sizeof all);
            for (uint32_t i = 0; i < 8; i++) {
                if (x + i % 4 == 0) continue;
                size_t at = ((size_t)(step + i / 4) * width + x + i % 4) * LANES;
                FBL(green_residuals)(work, v, at, LANES, z, plain);
                for (uint32_t lane = 0; lane < LANES; lane++)
                    all[0][lane] |= z[lane], all[1][lane] |= plain[lane];
            }
            for (uint32_t lane = 0; lane < LANES; lane++) {
                with += FBL(width_of)(all[0][lane]);
                without += FBL(width_of)(all[1][lane]);
            }
        }
    }
    return with <= without;
}

/* Chooses whether red and blue stay differences to green; undoes it where they don't. */
FBY_LANE_BODY void FBL(choose_green)(fby_fbl_work *work, uint32_t lanes)
{
    const size_t samples = (size_t)work->shape.micro_width * work->shape.micro_height * lanes;
    const uint32_t mask = (1u << work->bits) - 1, half = 1u << (work->bits - 1);
    const FBL_SAMPLE *green = FBL(plane_of)(work, 0);

    work->minus_green = 0;
    for (uint32_t plane = 1; plane < 3 && work->channels >= 3; plane++) {
        FBL_SAMPLE *v = FBL(plane_of)(work, plane);
        if (lanes == FBY_LANES ? FBL(green_helps)(work, v) : FBL(green_narrows)(work, v)) {
            work->minus_green |= 1u << plane;
            continue;
        }
        for (size_t i = 0; i < samples; i++) v[i] = (FBL_SAMPLE)((v[i] + green[i] - half) & mask);
    }
}

/* The neighbours of 32 lanes at x of a row step other than the first. */
typedef struct FBL(around) {
    FBL_SAMPLE w[FBY_LANES], n[FBY_LANES], nw[FBY_LANES], ne[FBY_LANES];
} FBL(around);

FBY_LANE_BODY void FBL(around_of)(const FBL_SAMPLE *v, uint32_t step, uint32_t x, uint32_t width,
                                  uint32_t lanes, FBL(around) * to)
{
    const size_t row = (size_t)width * lanes;
    const FBL_SAMPLE *at = v + step * row + (size_t)x * lanes, *above = at - row;
    const FBL_SAMPLE *first = v + step * row, *first_above = first - row, *last_above = first - lanes;

    memcpy(to->n, above, sizeof to->n);
    if (x) {
        memcpy(to->w, at - lanes, sizeof to->w);
        memcpy(to->nw, above - lanes, sizeof to->nw);
    } else {
        FBL(from_left)(last_above, first_above, to->w);
        if (step > 1)
            FBL(from_left)(last_above - row, first_above - row, to->nw);
        else
            memcpy(to->nw, v, sizeof to->nw);
    }
    if (x + 1 < width)
        memcpy(to->ne, above + lanes, sizeof to->ne);
    else
        FBL(from_right)(first, above, to->ne);
}

/* Residuals of all predictors for 32 lanes at x of a row step other than the first. */
FBY_LANE_BODY void FBL(all_residuals)(const fby_fbl_work *work, const FBL_SAMPLE *v, uint32_t lanes,
                                      uint32_t step, uint32_t x, FBL_SAMPLE z[4][FBY_LANES])
{
    const FBL_SAMPLE *own = v + ((size_t)step * work->shape.micro_width + x) * lanes;
    FBL(around) around;

    FBL(around_of)(v, step, x, work->shape.micro_width, lanes, &around);
    for (uint32_t k = 0; k < 4; k++) {
        FBY_EACH_LANE
        {
            uint32_t p = FBL(predict)(k, around.w[lane], around.n[lane], around.nw[lane], around.ne[lane]);
            z[k][lane] = (FBL_SAMPLE)FBL(zigzag)(own[lane] - p, work->bits);
        }
    }
}

/* Costs of all predictors for 32 lanes of a plane, beginning at `v`: what entropy coding would make of them.
 * A row step counts up to 255, as in vectors of bytes. */
FBY_LANE_BODY void FBL(predictor_costs)(const fby_fbl_work *work, const FBL_SAMPLE *v, uint32_t lanes,
                                        uint32_t costs[4][FBY_LANES])
{
    FBL_SAMPLE z[4][FBY_LANES];
    uint32_t row[4][FBY_LANES];

    memset(costs, 0, 4 * sizeof costs[0]);
    for (uint32_t step = 1; step < work->shape.micro_height; step++) {
        memset(row, 0, sizeof row);
        for (uint32_t x = 0; x < work->shape.micro_width; x++) {
            FBL(all_residuals)(work, v, lanes, step, x, z);
            for (uint32_t k = 0; k < 4; k++) FBY_EACH_LANE row[k][lane] += FBL(cost)(z[k][lane]);
        }
        for (uint32_t k = 0; k < 4; k++) FBY_EACH_LANE costs[k][lane] += FBL(least)(row[k][lane], 255);
    }
}

/* The same for pack: the widths that groups get, up to 255. */
FBY_LANE_BODY void FBL(predictor_widths)(const fby_fbl_work *work, const FBL_SAMPLE *v, uint32_t lanes,
                                         uint32_t costs[4][FBY_LANES])
{
    FBL_SAMPLE z[4][FBY_LANES], all[4][FBY_LANES];

    memset(costs, 0, 4 * sizeof costs[0]);
    for (uint32_t step = 0; step < work->shape.micro_height; step += FBY_FBL_LOOK_STEPS) {
        for (uint32_t x = 0; x < work->shape.micro_width; x += 4) {
            memset(all, 0, sizeof all);
            for (uint32_t i = 0; i < 8; i++) {
                if (step + i / 4 == 0) continue;
                FBL(all_residuals)(work, v, lanes, step + i / 4, x + i % 4, z);
                for (uint32_t k = 0; k < 4; k++) FBY_EACH_LANE all[k][lane] |= z[k][lane];
            }
            for (uint32_t k = 0; k < 4; k++) FBY_EACH_LANE costs[k][lane] += FBL(width_of)(all[k][lane]);
        }
    }
    for (uint32_t k = 0; k < 4; k++) FBY_EACH_LANE costs[k][lane] = FBL(least)(costs[k][lane], 255);
}

FBY_LANE_BODY void FBL(choose_predictors)(fby_fbl_work *work, uint32_t plane, uint32_t lanes)
{
    uint32_t costs[4][FBY_LANES];

    work->predictor[plane][0] = work->predictor[plane][1] = 0;
    for (uint32_t first = 0; first < lanes; first += FBY_LANES) {
        if (lanes == FBY_LANES)
            FBL(predictor_costs)(work, FBL(plane_of)(work, plane) + first, lanes, costs);
        else
            FBL(predictor_widths)(work, FBL(plane_of)(work, plane) + first, lanes, costs);
        for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
            uint64_t best = 0;
            for (uint32_t k = 1; k < 4; k++) {
                if (costs[k][lane] < costs[best][lane]) best = k;
            }
            work->predictor[plane][0] |= (best & 1) << (first + lane);
            work->predictor[plane][1] |= (best >> 1) << (first + lane);
        }
    }
}

/* Residuals of 32 lanes of a row step: zigzag values. */
FBY_LANE_BODY void FBL(residuals_row)(const fby_fbl_work *work, const FBL_SAMPLE *v, uint32_t lanes,
                                      uint32_t step, const uint32_t *predictor, FBL_SAMPLE *to, size_t x_step)
{
    const uint32_t width = work->shape.micro_width;
    FBL(around) around;

    for (uint32_t x = 0; x < width; x++) {
        const FBL_SAMPLE *own = v + ((size_t)step * width + x) * lanes;
        FBL_SAMPLE *z = to + x * x_step;
        if (step == 0) {
            const FBL_SAMPLE *w = own - lanes;
            const uint32_t start = 1u << (work->bits - 1);
            FBY_EACH_LANE z[lane] = (FBL_SAMPLE)FBL(zigzag)(own[lane] - (x ? w[lane] : start), work->bits);
            continue;
        }
        FBL(around_of)(v, step, x, width, lanes, &around);
        FBY_EACH_LANE
        {
            uint32_t p = FBL(predict)(predictor[lane], around.w[lane], around.n[lane], around.nw[lane],
                                      around.ne[lane]);
            z[lane] = (FBL_SAMPLE)FBL(zigzag)(own[lane] - p, work->bits);
        }
    }
}

/* The sums of a row step, from its residuals and those above. */
FBY_LANE_BODY void FBL(sums_row)(FBL(row) * row, const FBL_SAMPLE *z, uint32_t step, uint32_t shift,
                                 uint32_t width, uint8_t *sums)
{
    FBL(near) near;

    if (step) FBL(row_begin)(row, &near, width);
    for (uint32_t x = 0; x < width; x++, z += FBY_LANES, sums += FBY_LANES) {
        FBL_SAMPLE *size = row->size + (size_t)x * FBY_LANES;
        FBY_EACH_LANE
        {
            uint32_t n = size[lane];
            if (step == 0) {
                sums[lane] = (uint8_t)(x ? FBL(first_sum)(near.w_size[lane], shift) : FBY_FBL_FIRST_SUM);
            } else {
                sums[lane] = (uint8_t)FBL(sum)(n, near.w_size[lane], near.nw_size[lane],
                                               size[FBY_LANES + lane], shift);
            }
            near.w_size[lane] = size[lane] = (FBL_SAMPLE)((z[lane] + 1u) >> 1);
            near.nw_size[lane] = (FBL_SAMPLE)n;
        }
        if (x == 0 && step) FBL(row_turn)(row, width);
    }
    if (!step) FBL(row_first_end)(row);
}

FBY_LANE_BODY void FBL(model_rans)(fby_fbl_work *work, const uint32_t *shift)
{
    const uint32_t width = work->shape.micro_width;
    uint32_t predictor[FBY_LANES];
    FBL(row) row;

    FBL(split)(work, FBY_LANES);
    FBL(choose_green)(work, FBY_LANES);
    for (uint32_t plane = 0; plane < work->channels; plane++) {
        memset(&row, 0, sizeof row);
        FBL(choose_predictors)(work, plane, FBY_LANES);
        FBL(predictors)(work->predictor[plane], 0, predictor);
        for (uint32_t step = 0; step < work->shape.micro_height; step++) {
            size_t at = ((size_t)step * work->channels + plane) * width * FBY_LANES;
            FBL_SAMPLE *z = (FBL_SAMPLE *)work->residuals + at;
            FBL(residuals_row)(work, FBL(plane_of)(work, plane), FBY_LANES, step, predictor, z, FBY_LANES);
            FBL(sums_row)(&row, z, step, shift[plane], width, work->sums + at);
        }
    }
}

FBY_LANE_BODY void FBL(model_pack)(fby_fbl_work *work)
{
    const uint32_t width = work->shape.micro_width, lanes = 2 * FBY_LANES;
    uint32_t predictor[FBY_LANES];

    FBL(split)(work, lanes);
    FBL(choose_green)(work, lanes);
    for (uint32_t plane = 0; plane < work->channels; plane++) {
        FBL(choose_predictors)(work, plane, lanes);
        for (uint32_t half = 0; half < 2; half++) {
            FBL(predictors)(work->predictor[plane], half * FBY_LANES, predictor);
            for (uint32_t step = 0; step < work->shape.micro_height; step++) {
                FBL_SAMPLE *to = (FBL_SAMPLE *)work->residuals + (size_t)plane * FBY_FBL_TILE_SAMPLES +
                                 (size_t)step * width * lanes + half * FBY_LANES;
                FBL(residuals_row)
                (work, FBL(plane_of)(work, plane) + half * FBY_LANES, lanes, step, predictor, to, lanes);
            }
        }
    }
}

/* The largest value of a group, and its width. */
FBY_LANE_BODY uint32_t FBL(group_width)(const FBL_SAMPLE *z, size_t row_step, uint32_t lanes)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < 4; i++) all |= z[i * lanes] | z[row_step + i * lanes];
    return FBL(width_of)(all);
}

/* The width that fewest groups need: it gets no code, and its groups take one more. The widest can only be
 * left out where no group needs it. */
FBY_LANE_BODY uint32_t FBL(width_to_leave_out)(const uint32_t *count, uint32_t widest)
{
    uint32_t least = widest - 1;
    if (!count[widest]) return widest;
    for (uint32_t w = 0; w < widest; w++) {
        if (count[w] < count[least]) least = w;
    }
    return least;
}

FBY_LANE_BODY size_t FBL(encode_pack)(fby_fbl_work *work, uint8_t *out)
{
    const fby_fbl_shape *shape = &work->shape;
    const uint32_t lanes = 2 * FBY_LANES, widest = 8 * sizeof(FBL_SAMPLE), code_bits = widest == 8 ? 3 : 4;
    const size_t row = (size_t)shape->micro_width * lanes;
    const size_t code_bytes = fby_fbl_pack_codes(shape, work->channels, work->bits);
    uint8_t *codes = out, *group = out + code_bytes;

    memset(codes, 0, code_bytes);
    for (uint32_t plane = 0; plane < work->channels; plane++) {
        const FBL_SAMPLE *z = (const FBL_SAMPLE *)work->residuals + (size_t)plane * FBY_FBL_TILE_SAMPLES;
        uint32_t count[17] = {0};
        for (uint32_t step = 0; step < shape->micro_height; step += 2) {
            for (uint32_t i = 0; i < shape->micro_width / 4 * lanes; i++) {
                count[FBL(group_width)(z + step * row + (size_t)(i / lanes) * 4 * lanes + i % lanes, row,
                                       lanes)]++;
            }
        }
        work->left_out[plane] = FBL(width_to_leave_out)(count, widest);
    }
    for (uint32_t step = 0; step < shape->micro_height; step += 2) {
        for (uint32_t plane = 0; plane < work->channels; plane++) {
            const FBL_SAMPLE *z =
                (const FBL_SAMPLE *)work->residuals + (size_t)plane * FBY_FBL_TILE_SAMPLES + step * row;
            for (uint32_t x = 0; x < shape->micro_width; x += 4, z += (size_t)4 * lanes) {
                for (uint32_t lane = 0; lane < lanes; lane++) {
                    uint32_t width = FBL(group_width)(z + lane, row, lanes), bit = lane * code_bits,
                             left_out = work->left_out[plane];
                    if (width == left_out) width++;
                    uint32_t code = width - (width > left_out);
                    codes[bit / 8] |= (uint8_t)(code << bit % 8);
                    if (bit % 8 + code_bits > 8) codes[bit / 8 + 1] |= (uint8_t)(code >> (8 - bit % 8));
                    memset(group, 0, width);
                    for (uint32_t i = 0; i < 8; i++) {
                        uint32_t value = z[i / 4 * row + (size_t)(i % 4) * lanes + lane];
                        for (uint32_t b = 0; b < width; b++) {
                            uint32_t to = i * width + b;
                            group[to / 8] |= (uint8_t)((value >> b & 1) << to % 8);
                        }
                    }
                    group += width;
                }
                codes += 8 * code_bits;
            }
        }
    }
    return (size_t)(group - out);
}
