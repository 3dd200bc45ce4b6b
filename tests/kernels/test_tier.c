/* Which tier is chosen. */
#include <stdlib.h>
#include <string.h>

#include "kernels/tier.h"
#include "tests/support/test.h"

Test(tier, environment_lowers_and_never_raises)
{
    unsetenv("FOREBAY_TIER");
    fby_tier best = fby_tier_best();
    cr_assert(fby_tier_supported(best));
    cr_assert(fby_tier_supported(FBY_TIER_C));

    for (fby_tier tier = FBY_TIER_C; tier < FBY_TIERS; tier++) {
        setenv("FOREBAY_TIER", fby_tier_name(tier), 1);
        fby_tier chosen = fby_tier_best();
        cr_assert_eq(chosen, tier < best ? tier : best, "FOREBAY_TIER=%s", fby_tier_name(tier));
    }
    setenv("FOREBAY_TIER", "sse9", 1);
    cr_assert_eq(fby_tier_best(), best);
    unsetenv("FOREBAY_TIER");
}

Test(tier, names)
{
    cr_assert_str_eq(fby_tier_name(FBY_TIER_C), "c");
    cr_assert_str_eq(fby_tier_name(FBY_TIER_AVX2), "avx2");
    cr_assert_str_eq(fby_tier_name(FBY_TIER_AVX512), "avx512");
    cr_assert_str_eq(fby_tier_name(FBY_TIERS), "unknown");
    cr_assert(!fby_tier_supported(FBY_TIERS));
}
