/* Which instruction sets a kernel table uses. Chosen once at start-up, forced in tests. */
#ifndef FBY_KERNELS_TIER_H
#define FBY_KERNELS_TIER_H

typedef enum fby_tier { FBY_TIER_C, FBY_TIER_AVX2, FBY_TIER_AVX512, FBY_TIERS } fby_tier;

/* The best tier that this CPU and this build offer (AVX512 means F, BW, VL, VBMI, VBMI2, VNNI and GFNI,
 * which came together in Ice Lake and Zen 4), lowered by the environment variable FOREBAY_TIER=c|avx2|avx512
 * where it is set. */
fby_tier fby_tier_best(void);
int fby_tier_supported(fby_tier tier);
const char *fby_tier_name(fby_tier tier);

#endif
