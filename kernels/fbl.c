#include "kernels/fbl.h"

#include <string.h>

const fby_fbl_kernels *fby_fbl_kernels_of(fby_tier tier)
{
#if defined(FBY_KERNELS_X86)
    if (tier >= FBY_TIER_AVX512) return &fby_fbl_kernels_avx512;
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

/* False where the context isn't a lean set's. */
static bool lean_context(fby_fbl_set *set, uint32_t context)
{
    fby_fbl_lean *lean = &set->lean;
    uint32_t token = 0;

    for (uint32_t t = 0; t < set->tokens[context]; t++) {
        uint32_t at = context * FBY_FBL_TOKENS + t, start = set->start[at], frequency = set->frequency[at];
        if (!frequency) continue;
        if (token == FBL_LEAN_TOKENS || frequency % 2 || frequency == FBY_FBL_SCALE) return false;
        uint32_t of_two = FBL_LEAN_CONTEXTS - 1 - context + token / 2 * 4, place = of_two + token % 2 * 8;
        uint8_t bound = (uint8_t)(start / 2 - 129), raw = set->raw[at] & 7;
        if (token == 2) lean->bound[0][FBL_LEAN_CONTEXTS - 1 - context] = bound;
        if (token % 2) lean->bound[1][of_two] = bound;
        lean->leaf[FBL_LEAN_START][place] = (uint8_t)(start / 2);
        lean->leaf[FBL_LEAN_SPAN][place] = (uint8_t)(frequency / 2);
        lean->leaf[FBL_LEAN_BASE][place] = (uint8_t)set->base[at];
        lean->leaf[FBL_LEAN_MASK][place] = (uint8_t)((1u << raw) - 1);
        lean->leaf[FBL_LEAN_SCALE][place] = (uint8_t)(256u >> raw);
        token++;
    }
    return true;
}

static void lean_make(fby_fbl_set *set)
{
    fby_fbl_lean *lean = &set->lean;

    memset(lean, 0, sizeof *lean);
    memset(lean->bound, 127, sizeof lean->bound);
    memset(lean->threshold, 127, sizeof lean->threshold);
    if (set->contexts > FBL_LEAN_CONTEXTS) return;
    for (uint32_t sum = 0, before = 0; sum < FBY_FBL_SUMS; sum++) {
        uint32_t context = set->context[sum];
        if (context < before) return;
        for (; before < context; before++) /* sums are compared as signed bytes: -1 is before all */
            memset(lean->threshold[before], (int)sum - 1, sizeof lean->threshold[before]);
    }
    for (uint32_t context = 0; context < set->contexts; context++) {
        if (!lean_context(set, context)) return;
    }
    for (uint32_t i = 0; i < 2; i++)
        memcpy(lean->bound[i] + FBL_LEAN_PLACES, lean->bound[i], FBL_LEAN_PLACES);
    for (uint32_t i = 0; i < FBL_LEAN_LEAVES; i++)
        memcpy(lean->leaf[i] + FBL_LEAN_PLACES, lean->leaf[i], FBL_LEAN_PLACES);
    lean->possible = true;
}

/* A context's branch of the tree. */
static void tree_make(fby_fbl_set *set, uint32_t context)
{
    const uint32_t first = context * FBY_FBL_TOKENS;
    uint16_t bound[FBY_FBL_TOKENS];
    uint32_t token[FBY_FBL_TOKENS] = {0}, tokens = 0;

    for (uint32_t t = 0; t < set->tokens[context]; t++) {
        if (!set->frequency[first + t]) continue;
        token[tokens] = first + t;
        bound[tokens++] = set->start[first + t];
    }
    for (uint32_t t = tokens; t < FBY_FBL_TOKENS; t++) bound[t] = FBY_FBL_SCALE;
    set->tree.shallow &= tokens <= FBY_FBL_TOKENS / 2;
    for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) {
        if (set->context[sum] == context) set->tree.first[sum] = bound[4];
    }
    for (uint32_t t = 0; t < FBY_FBL_TOKENS; t++) {
        /* The steps to it, the first one's bit lowest. */
        uint32_t left = (~t >> 2 & 1) | (~t & 2) | (~t & 1) << 2;
        set->tree.base[left * FBY_FBL_CONTEXTS + context] = (uint8_t)set->base[token[t]];
        set->tree.raw[left * FBY_FBL_CONTEXTS + context] = set->raw[token[t]] & 7;
        if (t == 2 || t == 6) set->tree.second[(left & 1) * FBY_FBL_CONTEXTS + context] = bound[t];
        if (t % 2) set->tree.third[(left & 3) * FBY_FBL_CONTEXTS + context] = bound[t];
    }
}

void fby_fbl_set_finish(fby_fbl_set *set)
{
    memset(set->entry, 0, sizeof set->entry);
    memset(&set->tree, 0, sizeof set->tree);
    memset(set->leaf, 0, sizeof set->leaf);
    memset(set->bound, 127, sizeof set->bound);
    set->in_vectors = set->tree.shallow = true;
    for (uint32_t context = 0; context < set->contexts; context++) {
        for (uint32_t token = 0; token < set->tokens[context]; token++) {
            uint32_t at = context * FBY_FBL_TOKENS + token;
            memset(set->entry + (size_t)context * FBY_FBL_SCALE + set->start[at], (int)at,
                   set->frequency[at]);
        }
        vectors_make(set, context);
        tree_make(set, context);
    }
    lean_make(set);
    for (uint32_t t = 0; t < FBY_FBL_TOKENS; t++) {
        for (uint32_t b = 0; b < 2; b++)
            memcpy(set->bound[b][t] + FBY_FBL_CONTEXTS, set->bound[b][t], FBY_FBL_CONTEXTS);
        for (uint32_t k = 0; k < FBL_LEAVES; k++)
            memcpy(set->leaf[k][t] + FBY_FBL_CONTEXTS, set->leaf[k][t], FBY_FBL_CONTEXTS);
    }
}

void fby_fbl_push_make(const fby_fbl_set *set, uint32_t bits, fby_fbl_push *push)
{
    const fby_fbl_lean *lean = &set->lean;

    memset(push, 0, sizeof *push);
    push->possible = lean->possible && bits == 8;
    if (!push->possible) return;
    memcpy(push->threshold, lean->threshold, sizeof push->threshold);
    memset(push->bound, 127, sizeof push->bound);
    for (uint32_t i = 0; i < 2 * FBL_LEAN_PLACES; i++) {
        uint32_t place = i % FBL_LEAN_PLACES, half = lean->leaf[FBL_LEAN_SPAN][place], raw = 0, shift = 0;
        if (!half) continue; /* no token */
        uint8_t base = lean->leaf[FBL_LEAN_BASE][place], mask = lean->leaf[FBL_LEAN_MASK][place];
        while (mask >> raw) raw++;
        while (1u << shift < half) shift++;
        /* The tokens of a context: 0 and 1 have no bit 2, 1 and 3 have bit 3. */
        uint32_t column = i - place + place % FBL_LEAN_CONTEXTS;
        if ((place & 12) == 4) push->bound[0][column] = (uint8_t)(base - 129);
        if (place & 8) push->bound[1][column + (place & 4)] = (uint8_t)(base - 129);
        push->leaf[FBL_PUSH_BASE][i] = base;
        push->leaf[FBL_PUSH_START][i] = lean->leaf[FBL_LEAN_START][place];
        push->leaf[FBL_PUSH_SPAN][i] = (uint8_t)half;
        push->leaf[FBL_PUSH_GAP][i] = (uint8_t)(256 - half);
        push->leaf[FBL_PUSH_RAW][i] = (uint8_t)raw;
        push->leaf[FBL_PUSH_ROOM][i] = (uint8_t)(24 - raw);
        push->leaf[FBL_PUSH_SHIFT][i] = (uint8_t)shift;
        push->reciprocal[place] = (uint32_t)((((uint64_t)1 << (32 + shift)) + 2 * half - 1) / (2 * half));
    }
}
