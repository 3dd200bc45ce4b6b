/* FBL's palette tiles: an index a pixel, coded by which of the neighbours it equals. A lane-group body as
 * those of fbl_body.h, whose stream it uses. */

enum { FBL_PALETTE_ROW = (FBY_FBL_MICRO_WIDTH + 1) * FBY_LANES };

/* A lane's neighbours. */
typedef struct palette_near {
    uint8_t w, ww, n, nn, nw, ne;
} palette_near;

/* Which of them are equal: what the context is chosen by. */
FBY_LANE_BODY uint32_t palette_sum(palette_near near)
{
    return (uint32_t)(near.w == near.n) | (uint32_t)(near.w == near.nw) << 1 |
           (uint32_t)(near.n == near.ne) << 2 | (uint32_t)(near.n == near.nw) << 3 |
           (uint32_t)(near.w == near.ww) << 4 | (uint32_t)(near.n == near.nn) << 5;
}

/* Symbols below FBY_FBL_NEIGHBOURS name a neighbour, the likeliest first; above them are indices. */
FBY_LANE_BODY void palette_candidates(palette_near near, uint8_t candidate[FBY_FBL_NEIGHBOURS])
{
    bool upright = near.w == near.nw;
    candidate[0] = upright ? near.n : near.w;
    candidate[1] = upright ? near.w : near.n;
    candidate[2] = near.ne;
    candidate[3] = near.nw;
}

/* The rows of indices that the lanes need: this one, written from the left, and two above. */
typedef struct palette_rows {
    uint8_t row[3][FBL_PALETTE_ROW];
    uint8_t left[FBY_LANES]; /* left of the row above's first */
} palette_rows;

/* Neighbours of lane `lane` at x in row step `step`; what doesn't exist is stood for by what does. */
FBY_LANE_BODY palette_near palette_near_of(const palette_rows *rows, uint32_t step, uint32_t x, uint32_t lane,
                                           uint32_t width)
{
    const uint8_t *now = rows->row[step % 3], *above = rows->row[(step + 2) % 3];
    const uint8_t *second = rows->row[(step + 1) % 3];
    const uint32_t at = x * FBY_LANES + lane, last = (width - 1) * FBY_LANES + lane;
    palette_near near;

    if (step == 0) {
        near.w = x ? now[at - FBY_LANES] : 0;
        near.ww = x > 1 ? now[at - 2 * FBY_LANES] : near.w;
        near.n = near.nn = near.nw = near.ne = near.w;
        return near;
    }
    bool edge = lane % FBY_FBL_ACROSS == 0, right_edge = lane % FBY_FBL_ACROSS == FBY_FBL_ACROSS - 1;
    near.n = above[at];
    near.w = x ? now[at - FBY_LANES] : edge ? near.n : above[last - 1];
    near.ww = x > 1 ? now[at - 2 * FBY_LANES] : near.w;
    near.nw = x ? above[at - FBY_LANES] : rows->left[lane];
    near.ne = x + 1 < width ? above[at + FBY_LANES] : right_edge ? near.n : now[lane + 1];
    near.nn = step > 1 ? second[at] : near.n;
    return near;
}

/* After row step `step`: what will be above left of the next one's first. */
FBY_LANE_BODY void palette_row_end(palette_rows *rows, uint32_t step, uint32_t width)
{
    const uint8_t *above = rows->row[(step + 2) % 3], *now = rows->row[step % 3];
    const uint32_t last = (width - 1) * FBY_LANES;

    FBY_EACH_LANE
    {
        bool edge = lane % FBY_FBL_ACROSS == 0 || step == 0;
        rows->left[lane] = step == 0 ? now[lane] : edge ? above[lane] : above[last + lane - 1];
    }
}

/* Symbols of the active lanes; the others' are 0, and their states stay. */
FBY_LANE_BODY void active_symbols(stream_u8 *stream, const fby_fbl_set *set, const uint8_t *sum,
                                  uint32_t active, uint32_t *value)
{
    uint32_t kept[FBY_LANES];

    memcpy(kept, stream->state, sizeof kept);
    FBY_EACH_LANE
    {
        uint32_t x = stream->state[lane], slot = x & (FBY_FBL_SCALE - 1);
        uint32_t entry = set->entry[set->context[sum[lane]] * FBY_FBL_SCALE + slot];
        x = set->frequency[entry] * (x >> FBY_FBL_SCALE_BITS) + slot - set->start[entry];
        value[lane] = set->base[entry] + (x & ((1u << set->raw[entry]) - 1));
        stream->state[lane] = x >> set->raw[entry];
    }
    FBY_EACH_LANE
    {
        if (active >> lane & 1) continue;
        value[lane] = 0;
        stream->state[lane] = kept[lane];
    }
    stream_refill_u8(stream);
}

FBY_LANE_BODY void palette_row_out(const fby_fbl_palette *tile, uint32_t step, const uint8_t *row)
{
    const fby_fbl_coded *coded = &tile->coded;
    const fby_fbl_place *to = &coded->place;
    const size_t sample = coded->bits > 8 ? 2 : 1, colour = sample * coded->channels;

    FBY_EACH_LANE
    {
        uint32_t y = fby_fbl_row_of(&coded->shape, lane, step);
        uint32_t x0 = lane % FBY_FBL_ACROSS * coded->shape.micro_width;
        if (y >= coded->shape.height) continue;
        for (uint32_t x = 0; x < coded->shape.micro_width && x0 + x < coded->shape.width; x++) {
            const uint8_t *from = tile->colour + row[x * FBY_LANES + lane] * colour;
            if (!to->planar) {
                memcpy(to->at + y * to->row + (x0 + x) * colour, from, colour);
                continue;
            }
            for (uint32_t channel = 0; channel < coded->channels; channel++) {
                memcpy(to->at + channel * to->plane + y * to->row + (x0 + x) * sample,
                       from + channel * sample, sample);
            }
        }
    }
}

FBY_LANE_BODY void palette_decode(fby_fbl_palette *tile)
{
    fby_fbl_coded *coded = &tile->coded;
    const uint32_t width = coded->shape.micro_width;
    stream_u8 stream;
    palette_rows rows = {0};
    uint32_t value[FBY_LANES];
    uint8_t sum[FBY_LANES], highest = 0, candidate[FBY_LANES][FBY_FBL_NEIGHBOURS];

    bool good = stream_begin_u8(&stream, coded->bytes, coded->end, tile->active);
    for (uint32_t step = 0; step < coded->shape.micro_height; step++) {
        uint8_t *row = rows.row[step % 3];
        for (uint32_t x = 0; x < width; x++) {
            FBY_EACH_LANE
            {
                palette_near near = palette_near_of(&rows, step, x, lane, width);
                palette_candidates(near, candidate[lane]);
                sum[lane] = (uint8_t)palette_sum(near);
            }
            active_symbols(&stream, tile->set, sum, tile->active, value);
            FBY_EACH_LANE
            {
                uint8_t z = (uint8_t)value[lane];
                uint8_t index =
                    z < FBY_FBL_NEIGHBOURS ? candidate[lane][z] : (uint8_t)(z - FBY_FBL_NEIGHBOURS);
                row[x * FBY_LANES + lane] = index;
                highest = index > highest ? index : highest;
            }
        }
        palette_row_end(&rows, step, width);
        if (highest >= tile->colours) break;
        palette_row_out(tile, step, row);
    }
    coded->good = good && highest < tile->colours && stream_ended_u8(&stream);
}
