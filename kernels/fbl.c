#include "kernels/fbl.h"

#include <string.h>

const fby_fbl_kernels *fby_fbl_kernels_of(fby_tier tier)
{
    (void)tier;
    return &fby_fbl_kernels_c;
}

void fby_fbl_set_finish(fby_fbl_set *set)
{
    memset(set->entry, 0, sizeof set->entry);
    memset(set->packed, 0, sizeof set->packed);
    for (uint32_t context = 0; context < set->contexts; context++) {
        for (uint32_t token = 0; token < set->tokens[context]; token++) {
            uint32_t at = context * FBY_FBL_TOKENS + token;
            set->packed[at] = set->frequency[at] | (uint32_t)set->start[at] << 10 |
                              (uint32_t)(set->base[at] & 255) << 19 | (uint32_t)(set->raw[at] & 7) << 27;
            memset(set->entry + (size_t)context * FBY_FBL_SCALE + set->start[at], (int)at,
                   set->frequency[at]);
        }
    }
}
