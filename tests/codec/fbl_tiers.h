/* FBL's tiers that this CPU can run: its own, and AVX-512's emulated wherever there is AVX2. */
#ifndef FBY_TESTS_CODEC_FBL_TIERS_H
#define FBY_TESTS_CODEC_FBL_TIERS_H

#include "kernels/fbl.h"

enum { FBL_TIERS_MOST = FBY_TIERS + 1 };

typedef struct fbl_tier {
    const fby_fbl_kernels *kernels;
    const char *name;
    bool emulated; /* and slow */
} fbl_tier;

/* The first is C. Returns how many there are. */
uint32_t fbl_tiers_here(fbl_tier *tiers);

#endif
