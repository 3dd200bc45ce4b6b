#include "kernels/fbl.h"

#include <string.h>

const fby_fbl_kernels *fby_fbl_kernels_of(fby_tier tier)
{
#if defined(FBY_KERNELS_X86)
    if (tier >= FBY_TIER_AVX2) return &fby_fbl_kernels_avx2;
#else
    (void)tier;
#endif
    return &fby_fbl_kernels_c;
}

/* A context's tokens that have slots; the others can't be met. */
static void vectors_make(fby_fbl_set *set, uint32_t context)
{
    uint32_t token = 0;

    for (uint32_t t = 0; t < FBY_FBL_TOKENS; t++) {
        set->bound[0][t][context] = set->bound[1][t][context] = 127;
    }
    for (uint32_t t = 0; t < set->tokens[context]; t++) {
        uint32_t at = context * FBY_FBL_TOKENS + t, start = set->start[at], frequency = set->frequency[at];
        if (!frequency) continue;
        if (start == 1) set->in_vectors = false;
        if (token) {
            /* A slot of 2 h + b is at or behind the start where h is above these. */
            set->bound[0][token][context] = (uint8_t)((start + 1) / 2 - 129);
            set->bound[1][token][context] = (uint8_t)(start / 2 - 129);
        }
        set->leaf[FBL_LEAF_BASE][token][context] = (uint8_t)set->base[at];
        set->leaf[FBL_LEAF_MORE][token][context] =
            (uint8_t)((set->raw[at] & 7) | (start & 1) << 4 | ((start + frequency) & 1) << 5);
        token++;
    }
}

void fby_fbl_set_finish(fby_fbl_set *set)
{
    memset(set->entry, 0, sizeof set->entry);
    memset(set->leaf, 0, sizeof set->leaf);
    memset(set->bound, 127, sizeof set->bound);
    set->in_vectors = true;
    for (uint32_t context = 0; context < set->contexts; context++) {
        for (uint32_t token = 0; token < set->tokens[context]; token++) {
            uint32_t at = context * FBY_FBL_TOKENS + token;
            memset(set->entry + (size_t)context * FBY_FBL_SCALE + set->start[at], (int)at,
                   set->frequency[at]);
        }
        vectors_make(set, context);
    }
    for (uint32_t t = 0; t < FBY_FBL_TOKENS; t++) {
        for (uint32_t b = 0; b < 2; b++)
            memcpy(set->bound[b][t] + FBY_FBL_CONTEXTS, set->bound[b][t], FBY_FBL_CONTEXTS);
        for (uint32_t k = 0; k < FBL_LEAVES; k++)
            memcpy(set->leaf[k][t] + FBY_FBL_CONTEXTS, set->leaf[k][t], FBY_FBL_CONTEXTS);
    }
}
