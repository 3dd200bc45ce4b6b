#include "tests/codec/fbl_tiers.h"

#if defined(FBY_KERNELS_X86)
extern const fby_fbl_kernels fby_fbl_kernels_avx512_emulated;
#endif

uint32_t fbl_tiers_here(fbl_tier *tiers)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < FBY_TIERS && fby_tier_supported((fby_tier)i); i++) {
        tiers[count++] = (fbl_tier){fby_fbl_kernels_of((fby_tier)i), fby_tier_name((fby_tier)i), false};
    }
#if defined(FBY_KERNELS_X86)
    if (fby_tier_supported(FBY_TIER_AVX2)) {
        tiers[count++] = (fbl_tier){&fby_fbl_kernels_avx512_emulated, "avx512 emulated", true};
    }
#endif
    return count;
}
