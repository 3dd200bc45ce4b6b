#include "kernels/tier.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const tier_names[FBY_TIERS] = {"c", "avx2", "avx512"};

const char *fby_tier_name(fby_tier tier)
{
    return (unsigned)tier < FBY_TIERS ? tier_names[tier] : "unknown";
}

#if defined(FBY_KERNELS_X86)
#include <cpuid.h>

/* Bits of XCR0: the operating system saves these registers on a context switch. */
enum { STATE_AVX = 0x06, STATE_AVX512 = 0xE6 };

static unsigned saved_state(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;

    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static fby_tier tier_of_cpu(void)
{
    unsigned a, b1, c1, d, b7, c7;
    unsigned state = saved_state();
    if (!__get_cpuid(1, &a, &b1, &c1, &d)) return FBY_TIER_C;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d)) return FBY_TIER_C;

    const unsigned base = bit_AVX | bit_FMA | bit_F16C | bit_SSSE3 | bit_SSE4_1;
    if ((state & STATE_AVX) != STATE_AVX || (c1 & base) != base || !(b7 & bit_AVX2)) return FBY_TIER_C;

    const unsigned wide = bit_AVX512F | bit_AVX512BW | bit_AVX512VL;
    const unsigned narrow = bit_AVX512VBMI | bit_AVX512VBMI2 | bit_AVX512VNNI | bit_GFNI;
    if ((state & STATE_AVX512) != STATE_AVX512 || (b7 & wide) != wide || (c7 & narrow) != narrow) {
        return FBY_TIER_AVX2;
    }
    return FBY_TIER_AVX512;
}
#else
static fby_tier tier_of_cpu(void)
{
    return FBY_TIER_C;
}
#endif

int fby_tier_supported(fby_tier tier)
{
    return (unsigned)tier <= (unsigned)tier_of_cpu();
}

fby_tier fby_tier_best(void)
{
    fby_tier best = tier_of_cpu();
    const char *wanted = getenv("FOREBAY_TIER");
    if (!wanted) return best;

    for (fby_tier tier = FBY_TIER_C; tier < best; tier++) {
        if (strcmp(wanted, tier_names[tier]) == 0) return tier;
    }
    return best;
}
