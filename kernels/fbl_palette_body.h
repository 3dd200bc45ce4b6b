/* Decoding FBL's palette tiles: see fbl_near_body.h. */

typedef struct palette_stream {
    uint32_t state[FBY_FBL_STATES];
    const uint8_t *words, *end;
    bool good;
} palette_stream;

FBY_LANE_BODY void palette_begin(palette_stream *stream, const uint8_t *bytes, const uint8_t *end)
{
    *stream = (palette_stream){.words = bytes + 4 * FBY_FBL_STATES, .end = end, .good = true};
    for (uint32_t i = 0; i < FBY_FBL_STATES; i++, bytes += 4) {
        stream->state[i] =
            bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        stream->good &= stream->state[i] >= FBY_FBL_STATE_END;
    }
}

FBY_LANE_BODY bool palette_ended(const palette_stream *stream)
{
    bool good = stream->good && stream->end - stream->words < 4;
    for (uint32_t i = 0; i < FBY_FBL_STATES; i++) good &= stream->state[i] == FBY_FBL_STATE_END;
    return good;
}

/* One symbol of each state that `wanted` has a bit for; the others' values are left. */
FBY_LANE_BODY void palette_symbols(palette_stream *stream, const fby_fbl_set *set, const uint8_t *sum,
                                   uint32_t wanted, uint8_t *value)
{
    for (uint32_t i = 0; i < FBY_FBL_STATES; i++) {
        if (!(wanted >> i & 1)) continue;
        uint32_t x = stream->state[i], slot = x & (FBY_FBL_SCALE - 1);
        uint32_t entry = set->entry[set->context[sum[i]] * FBY_FBL_SCALE + slot];
        x = set->frequency[entry] * (x >> FBY_FBL_SCALE_BITS) + slot - set->start[entry];
        value[i] = (uint8_t)(set->base[entry] + (x & ((1u << set->raw[entry]) - 1)));
        x >>= set->raw[entry];
        if (x < FBY_FBL_STATE_END) {
            x = x << 16 | stream->words[0] | (uint32_t)stream->words[1] << 8;
            stream->words += 2;
        }
        stream->state[i] = x;
    }
    if (stream->words > stream->end) {
        stream->words = stream->end;
        stream->good = false;
    }
}

/* The indices of the eight lanes from `first` on. */
FBY_LANE_BODY void palette_indices(const fby_fbl_palette *tile, palette_stream *stream,
                                   const palette_near *near, uint16_t *index)
{
    uint8_t sum[FBY_FBL_STATES], value[FBY_FBL_STATES], low[FBY_FBL_STATES] = {0};
    uint16_t candidate[FBY_FBL_NEIGHBOURS];
    uint32_t given = 0;

    for (uint32_t i = 0; i < FBY_FBL_STATES; i++) sum[i] = (uint8_t)palette_sum(near[i]);
    palette_symbols(stream, tile->set, sum, (1u << FBY_FBL_STATES) - 1, value);
    for (uint32_t i = 0; i < FBY_FBL_STATES; i++) {
        uint32_t high = (uint8_t)(value[i] - FBY_FBL_NEIGHBOURS);
        given |= (uint32_t)(value[i] >= FBY_FBL_NEIGHBOURS) << i;
        sum[i] = (uint8_t)(high < FBY_FBL_SUMS ? high : FBY_FBL_SUMS - 1);
    }
    if (tile->low && given) palette_symbols(stream, tile->low, sum, given, low);
    for (uint32_t i = 0; i < FBY_FBL_STATES; i++) {
        if (given >> i & 1) {
            uint32_t high = value[i] - FBY_FBL_NEIGHBOURS;
            index[i] = (uint16_t)(tile->low ? high << 8 | low[i] : high);
        } else {
            palette_candidates(near[i], candidate);
            index[i] = candidate[value[i]];
        }
    }
}

FBY_LANE_BODY void palette_row_out(const fby_fbl_palette *tile, uint32_t step, const uint16_t *row)
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
    palette_stream stream;
    palette_rows rows = {0};
    palette_near near[FBY_LANES];
    uint32_t highest = 0;

    palette_begin(&stream, coded->bytes, coded->end);
    for (uint32_t step = 0; step < coded->shape.micro_height && highest < tile->colours; step++) {
        uint16_t *row = rows.row[step % 3];
        for (uint32_t x = 0; x < width; x++) {
            uint16_t *index = row + (size_t)x * FBY_LANES;
            FBY_EACH_LANE near[lane] = palette_near_of(&rows, step, x, lane, width);
            for (uint32_t first = 0; first < FBY_LANES; first += FBY_FBL_STATES) {
                palette_indices(tile, &stream, near + first, index + first);
            }
            FBY_EACH_LANE highest = index[lane] > highest ? index[lane] : highest;
        }
        palette_row_end(&rows, step, width);
        if (highest < tile->colours) palette_row_out(tile, step, row);
    }
    coded->good = highest < tile->colours && palette_ended(&stream);
}
