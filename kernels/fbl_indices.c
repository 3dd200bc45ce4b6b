#include "kernels/fbl_indices.h"

#include <string.h>

#define FBL_SAMPLE uint8_t
#define FBL(name)  name##_u8
#include "kernels/fbl_body.h"
#include "kernels/fbl_palette_body.h"

static uint8_t index_at(const fby_fbl_shape *shape, const uint8_t *index, uint32_t lane, uint32_t step,
                        uint32_t x)
{
    uint32_t y = least_u8(fby_fbl_row_of(shape, lane, step), shape->height - 1);
    uint32_t column = least_u8(lane % FBY_FBL_ACROSS * shape->micro_width + x, shape->width - 1);
    return index[y * shape->width + column];
}

static uint8_t symbol_of(palette_near near, uint8_t index)
{
    uint8_t candidate[FBY_FBL_NEIGHBOURS];

    palette_candidates(near, candidate);
    for (uint32_t i = 0; i < FBY_FBL_NEIGHBOURS; i++) {
        if (candidate[i] == index) return (uint8_t)i;
    }
    return (uint8_t)(FBY_FBL_NEIGHBOURS + index);
}

uint32_t fby_fbl_indices_model(const fby_fbl_shape *shape, const uint8_t *index, uint8_t *symbols,
                               uint8_t *sums)
{
    palette_rows rows = {0};
    uint32_t active = 0;

    for (uint32_t step = 0; step < shape->micro_height; step++) {
        uint8_t *row = rows.row[step % 3];
        for (uint32_t x = 0; x < shape->micro_width; x++) {
            FBY_EACH_LANE row[x * FBY_LANES + lane] = index_at(shape, index, lane, step, x);
        }
        for (uint32_t x = 0; x < shape->micro_width; x++, symbols += FBY_LANES, sums += FBY_LANES) {
            for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
                palette_near near = palette_near_of(&rows, step, x, lane, shape->micro_width);
                symbols[lane] = symbol_of(near, row[x * FBY_LANES + lane]);
                sums[lane] = (uint8_t)palette_sum(near);
                active |= (uint32_t)(symbols[lane] != 0) << lane;
            }
        }
        palette_row_end(&rows, step, shape->micro_width);
    }
    return active;
}
