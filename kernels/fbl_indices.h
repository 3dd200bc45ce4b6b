/* The encoder's side of palette tiles. */
#ifndef FBY_KERNELS_FBL_INDICES_H
#define FBY_KERNELS_FBL_INDICES_H

#include "kernels/fbl.h"

/* Makes the symbols of a tile's indices (row by row), and the sums that choose their contexts, each as
 * [row step][x][lane]; of `wide` indices, symbols have the high byte and `low` is the other. */
void fby_fbl_indices_model(const fby_fbl_shape *shape, const uint16_t *index, bool wide, uint8_t *symbols,
                           uint8_t *sums, uint8_t *low);

/* The sum that chooses the context of a low byte. */
static inline uint8_t fby_fbl_low_sum(uint8_t symbol)
{
    uint32_t high = (uint32_t)symbol - FBY_FBL_NEIGHBOURS;
    return (uint8_t)(high < FBY_FBL_SUMS ? high : FBY_FBL_SUMS - 1);
}

#endif
