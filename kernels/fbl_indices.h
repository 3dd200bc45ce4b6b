/* The encoder's side of palette tiles. */
#ifndef FBY_KERNELS_FBL_INDICES_H
#define FBY_KERNELS_FBL_INDICES_H

#include "kernels/fbl.h"

/* Makes the symbols of a tile's indices (row by row), and the sums that choose their contexts, each as
 * [row step][x][lane]. Returns the lanes that have other symbols than 0. */
uint32_t fby_fbl_indices_model(const fby_fbl_shape *shape, const uint8_t *index, uint8_t *symbols,
                               uint8_t *sums);

#endif
