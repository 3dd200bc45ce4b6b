#include "kernels/fbl_indices.h"

#include <string.h>

#include "kernels/fbl_near_body.h"

static uint16_t index_at(const fby_fbl_shape *shape, const uint16_t *index, uint32_t lane, uint32_t step,
                         uint32_t x)
{
    uint32_t y = fby_fbl_row_of(shape, lane, step), column = lane % FBY_FBL_ACROSS * shape->micro_width + x;
    if (y >= shape->height) y = shape->height - 1;
    if (column >= shape->width) column = shape->width - 1;
    return index[y * shape->width + column];
}

static uint8_t symbol_of(palette_near near, uint16_t index, bool wide)
{
    uint16_t candidate[FBY_FBL_NEIGHBOURS];

    palette_candidates(near, candidate);
    for (uint32_t i = 0; i < FBY_FBL_NEIGHBOURS; i++) {
        if (candidate[i] == index) return (uint8_t)i;
    }
    return (uint8_t)(FBY_FBL_NEIGHBOURS + (wide ? index >> 8 : index));
}

void fby_fbl_indices_model(const fby_fbl_shape *shape, const uint16_t *index, bool wide, uint8_t *symbols,
                           uint8_t *sums, uint8_t *low)
{
    palette_rows rows = {0};

    for (uint32_t step = 0; step < shape->micro_height; step++) {
        uint16_t *row = rows.row[step % 3];
        for (uint32_t x = 0; x < shape->micro_width; x++) {
            FBY_EACH_LANE row[x * FBY_LANES + lane] = index_at(shape, index, lane, step, x);
        }
        for (uint32_t x = 0; x < shape->micro_width;
             x++, symbols += FBY_LANES, sums += FBY_LANES, low += FBY_LANES) {
            for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
                palette_near near = palette_near_of(&rows, step, x, lane, shape->micro_width);
                symbols[lane] = symbol_of(near, row[x * FBY_LANES + lane], wide);
                sums[lane] = (uint8_t)palette_sum(near);
                low[lane] = (uint8_t)row[x * FBY_LANES + lane];
            }
        }
        palette_row_end(&rows, step, shape->micro_width);
    }
}
