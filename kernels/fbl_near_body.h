/* FBL's palette tiles: an index a pixel, coded by which of the neighbours it equals. 32 lanes know their
 * neighbours at once, as in fbl_body.h, but share 8 states, one a column of lanes: such tiles are small, and
 * states would be much of them. */

enum { FBL_PALETTE_ROW = (FBY_FBL_MICRO_WIDTH + 1) * FBY_LANES };

/* A lane's neighbours. */
typedef struct palette_near {
    uint16_t w, ww, n, nn, nw, ne;
} palette_near;

/* Which of them are equal: what the context is chosen by. */
FBY_LANE_BODY uint32_t palette_sum(palette_near near)
{
    return (uint32_t)(near.w == near.n) | (uint32_t)(near.w == near.nw) << 1 |
           (uint32_t)(near.n == near.ne) << 2 | (uint32_t)(near.n == near.nw) << 3 |
           (uint32_t)(near.w == near.ww) << 4 | (uint32_t)(near.n == near.nn) << 5;
}

/* Symbols below FBY_FBL_NEIGHBOURS name a neighbour, the likeliest first; above them are indices. */
FBY_LANE_BODY void palette_candidates(palette_near near, uint16_t candidate[FBY_FBL_NEIGHBOURS])
{
    bool upright = near.w == near.nw;
    candidate[0] = upright ? near.n : near.w;
    candidate[1] = upright ? near.w : near.n;
    candidate[2] = near.ne;
    candidate[3] = near.nw;
}

/* The rows of indices that the lanes need: this one, written from the left, and two above. */
typedef struct palette_rows {
    uint16_t row[3][FBL_PALETTE_ROW];
    uint16_t left[FBY_LANES]; /* left of the row above's first */
} palette_rows;

/* Neighbours of lane `lane` at x in row step `step`; what doesn't exist is stood for by what does. */
FBY_LANE_BODY palette_near palette_near_of(const palette_rows *rows, uint32_t step, uint32_t x, uint32_t lane,
                                           uint32_t width)
{
    const uint16_t *now = rows->row[step % 3], *above = rows->row[(step + 2) % 3];
    const uint16_t *second = rows->row[(step + 1) % 3];
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
    const uint16_t *above = rows->row[(step + 2) % 3], *now = rows->row[step % 3];
    const uint32_t last = (width - 1) * FBY_LANES;

    FBY_EACH_LANE
    {
        bool edge = lane % FBY_FBL_ACROSS == 0 || step == 0;
        rows->left[lane] = step == 0 ? now[lane] : edge ? above[lane] : above[last + lane - 1];
    }
}
