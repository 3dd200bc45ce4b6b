/* Every tier decodes rans tiles as C does whatever their sets are: of 1 to 16 contexts and 1 to 8 tokens,
 * with even frequencies or any, good or bad states, and words enough or not. What lean sets are is known here
 * too, so that each of the ways a tier has to decode is taken. */
#include <stdlib.h>
#include <string.h>

#include "codec/fbl/words.h"
#include "tests/codec/fbl_tiers.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

static uint32_t state = 11;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

typedef struct kind {
    uint32_t contexts, tokens; /* at most */
    uint32_t unit;             /* of frequencies */
    bool runs;                 /* contexts are runs of sums */
    bool nothing;              /* some tokens have no slots */
} kind;

/* Frequencies of a context, in units: they sum to all slots, and but for 0 none is below 2. */
static void frequencies_draw(const kind *of, uint32_t tokens, uint16_t *frequency)
{
    uint32_t left = FBY_FBL_SCALE / of->unit;

    for (uint32_t t = 0; t < tokens; t++) {
        uint32_t others = 2 * (tokens - t - 1), most = left - others;
        bool none = of->nothing && t + 1 < tokens && !draw(3);
        frequency[t] = (uint16_t)(t + 1 == tokens ? left : none ? 0 : 2 + draw(most - 1) / (1 + draw(4)));
        left -= frequency[t];
    }
}

static fby_fbl_set *set_draw(const kind *of)
{
    fby_fbl_set *set = calloc(1, sizeof *set);

    set->contexts = of->runs ? of->contexts : 1 + draw(of->contexts);
    for (uint32_t sum = 0, context = 0; sum < FBY_FBL_SUMS; sum++) {
        if (of->runs && sum && !draw(4) && context + 1 < set->contexts) context++;
        set->context[sum] = (uint8_t)(of->runs ? context : draw(set->contexts));
    }
    for (uint32_t c = 0; c < set->contexts; c++) {
        uint16_t frequency[FBY_FBL_TOKENS];
        uint32_t base = 0, start = 0, least = of->unit > 1 && of->tokens > 1 ? 2 : 1;
        set->tokens[c] = (uint8_t)(least + draw(of->tokens - least + 1));
        frequencies_draw(of, set->tokens[c], frequency);
        for (uint32_t t = 0; t < set->tokens[c]; t++) {
            uint32_t at = c * FBY_FBL_TOKENS + t;
            set->raw[at] = (uint8_t)draw(8);
            set->frequency[at] = (uint16_t)(frequency[t] * of->unit);
            set->start[at] = (uint16_t)start;
            set->base[at] = (uint8_t)base;
            start += set->frequency[at];
            base += 1u << set->raw[at];
        }
    }
    fby_fbl_set_finish(set);
    return set;
}

enum { WAYS = 3, SLACK = FBY_FBL_STEP_READS };

typedef struct tiles {
    fby_fbl_rans tile[WAYS];
    uint8_t *bytes[WAYS], *pixels[FBL_TIERS_MOST][WAYS];
    size_t pixel_bytes;
} tiles;

/* Tiles of one shape, of nothing but chance. */
static void tiles_draw(tiles *all, uint32_t channels, fby_fbl_set *const *set)
{
    const uint32_t width = draw(3) ? 1 + draw(128) : 128, height = draw(3) ? 1 + draw(128) : 128;
    const fby_fbl_shape shape = fby_fbl_rans_shape(width, height);
    const size_t symbols = (size_t)shape.micro_width * shape.micro_height * FBY_LANES * channels;

    all->pixel_bytes = (size_t)width * height * channels;
    for (uint32_t i = 0; i < WAYS; i++) {
        size_t words = draw(4) ? symbols + 2 : draw((uint32_t)symbols);
        size_t length = (4 * FBY_LANES + 2 * words + 3) & ~(size_t)3;
        fby_fbl_rans *tile = &all->tile[i];

        *tile = (fby_fbl_rans){.coded = {.shape = shape, .channels = channels, .bits = 8}};
        all->bytes[i] = calloc(1, length + SLACK);
        for (size_t at = 0; at < length; at++) all->bytes[i][at] = (uint8_t)draw(256);
        for (uint32_t lane = 0; lane < FBY_LANES && draw(8); lane++) all->bytes[i][4 * lane + 3] |= 1;
        tile->coded.bytes = all->bytes[i];
        tile->coded.end = all->bytes[i] + length;
        tile->coded.minus_green = channels > 2 ? draw(4) << 1 : 0;
        tile->coded.place.row = (size_t)width * channels;
        for (uint32_t p = 0; p < channels; p++) {
            tile->set[p] = set[p];
            tile->predictor[p][0] = draw(1 << 16) | draw(1 << 16) << 16;
            tile->predictor[p][1] = draw(1 << 16) | draw(1 << 16) << 16;
        }
        for (uint32_t t = 0; t < FBL_TIERS_MOST; t++) all->pixels[t][i] = calloc(1, all->pixel_bytes);
    }
}

static void tiles_compare(tiles *all)
{
    fbl_tier tier[FBL_TIERS_MOST];
    uint32_t tiers = fbl_tiers_here(tier);
    bool good[WAYS] = {false};

    for (uint32_t t = 0; t < tiers; t++) {
        fby_fbl_rans *tile[WAYS];
        for (uint32_t i = 0; i < WAYS; i++) {
            tile[i] = &all->tile[i];
            tile[i]->coded.place.at = all->pixels[t][i];
        }
        tier[t].kernels->rans(tile, WAYS);
        for (uint32_t i = 0; i < WAYS; i++) {
            if (!t) good[i] = tile[i]->coded.good;
            cr_assert_eq(tile[i]->coded.good, good[i], "%s", tier[t].name);
            cr_assert(!memcmp(all->pixels[0][i], all->pixels[t][i], all->pixel_bytes), "%s", tier[t].name);
        }
    }
    for (uint32_t i = 0; i < WAYS; i++) {
        free(all->bytes[i]);
        for (uint32_t t = 0; t < FBL_TIERS_MOST; t++) free(all->pixels[t][i]);
    }
}

/* Tiles with sets of a kind, those of one tile others at times. */
static void kind_compare(const kind *of, bool lean)
{
    for (uint32_t i = 0; i < test_scaled(6); i++) {
        fby_fbl_set *set[FBY_FBL_PLANES], *other = set_draw(of);
        tiles all;
        for (uint32_t p = 0; p < FBY_FBL_PLANES; p++) {
            set[p] = set_draw(of);
            cr_assert_eq(set[p]->lean.possible, lean);
        }
        tiles_draw(&all, 1 + draw(FBY_FBL_PLANES), set);
        if (!draw(3)) all.tile[draw(WAYS)].set[0] = other;
        tiles_compare(&all);
        for (uint32_t p = 0; p < FBY_FBL_PLANES; p++) free(set[p]);
        free(other);
    }
}

Test(fbl_sets, lean)
{
    for (uint32_t contexts = 1; contexts <= FBL_LEAN_CONTEXTS; contexts++) {
        for (uint32_t tokens = 2; tokens <= FBL_LEAN_TOKENS; tokens++) {
            kind_compare(&(kind){.contexts = contexts, .tokens = tokens, .unit = 2, .runs = true}, true);
        }
    }
}

Test(fbl_sets, of_any_number_of_contexts_and_tokens)
{
    for (uint32_t contexts = 1; contexts <= FBY_FBL_CONTEXTS; contexts += 3) {
        for (uint32_t tokens = 1; tokens <= FBY_FBL_TOKENS; tokens++) {
            kind of = {.contexts = contexts, .tokens = tokens, .unit = 1, .nothing = tokens % 2};
            for (uint32_t i = 0; i < 2; i++, of.unit++) {
                fby_fbl_set *set = set_draw(&of);
                tiles all;
                tiles_draw(&all, 1, &set);
                tiles_compare(&all);
                free(set);
            }
        }
    }
}

/* Each of these is lean but for one thing. */
Test(fbl_sets, nearly_lean)
{
    kind_compare(&(kind){.contexts = 5, .tokens = 4, .unit = 2, .runs = true}, false);
    kind_compare(&(kind){.contexts = 3, .tokens = 1, .unit = 2, .runs = true}, false);

    for (uint32_t i = 0; i < 3; i++) {
        fby_fbl_set *set = set_draw(&(kind){.contexts = 4, .tokens = 4, .unit = 2, .runs = true});
        tiles all;
        cr_assert(set->lean.possible);
        if (i == 0) { /* a fifth token */
            set->tokens[1] = 5;
            for (uint32_t t = 0; t < 5; t++) {
                set->frequency[FBY_FBL_TOKENS + t] = (uint16_t)(t < 4 ? 102 : 104);
                set->start[FBY_FBL_TOKENS + t] = (uint16_t)(t * 102);
            }
        } else if (i == 1) { /* odd frequencies */
            set->frequency[0]++;
            set->start[1]++;
            set->frequency[1]--;
        } else { /* contexts that go back */
            set->context[0] = 1;
            set->context[1] = 0;
        }
        fby_fbl_set_finish(set);
        cr_assert_not(set->lean.possible);
        tiles_draw(&all, 1, &set);
        tiles_compare(&all);
        free(set);
    }
}

enum { RUN = 16, SYMBOLS = 40 * RUN, BEFORE = 64 };

/* Symbols that the set has classes for. */
static void symbols_draw(const fby_fbl_set *set, uint8_t *values, uint8_t *sums)
{
    for (uint32_t i = 0; i < SYMBOLS * FBY_LANES; i++) {
        sums[i] = (uint8_t)draw(FBY_FBL_SUMS);
        uint32_t context = set->context[sums[i]];
        uint32_t at = context * FBY_FBL_TOKENS + draw(set->tokens[context]);
        values[i] = (uint8_t)(set->base[at] + draw(1u << set->raw[at]));
    }
}

/* Classes of at most 32 values, so that none ends behind 255. */
static void classes_narrow(fby_fbl_set *set)
{
    for (uint32_t at = 0; at < FBY_FBL_CONTEXTS * FBY_FBL_TOKENS; at++) {
        set->raw[at] %= 6;
        set->base[at] = (uint16_t)(at % FBY_FBL_TOKENS ? set->base[at - 1] + (1u << set->raw[at - 1]) : 0);
    }
    fby_fbl_set_finish(set);
}

Test(fbl_sets, every_tier_writes_the_words_that_c_does)
{
    static uint8_t values[SYMBOLS * FBY_LANES], sums[SYMBOLS * FBY_LANES];
    const kind kinds[] = {{4, 4, 2, true, false}, {3, 2, 2, true, false}, {4, 4, 1, true, false}};

    for (uint32_t i = 0; i < test_scaled(6); i++) {
        fby_fbl_set *set = set_draw(&kinds[i % 3]);
        fbl_coder *coder = calloc(1, sizeof *coder);
        fbl_symbols symbols = {values, sums, SYMBOLS, RUN, 1, {coder}, &fby_fbl_kernels_c};
        size_t bytes = fbl_words_bytes(&symbols), first_length = 0;
        uint8_t *room[2] = {calloc(1, BEFORE + bytes), calloc(1, BEFORE + bytes)}, *first = NULL;

        classes_narrow(set);
        cr_assert_eq(set->lean.possible, kinds[i % 3].unit == 2);
        fbl_coder_make(set, 8, coder);
        symbols_draw(set, values, sums);
        for (uint32_t tier = 0; tier < FBY_TIERS && fby_tier_supported((fby_tier)tier); tier++) {
            symbols.kernels = fby_fbl_kernels_of((fby_tier)tier);
            uint8_t *at = fbl_words_write(&symbols, room[tier > 0] + BEFORE, bytes);
            size_t length = (size_t)(room[tier > 0] + BEFORE + bytes - at);
            if (!tier) first = at, first_length = length;
            cr_assert(length == first_length && !memcmp(at, first, length), "%s",
                      fby_tier_name((fby_tier)tier));
        }
        free(room[0]);
        free(room[1]);
        free(coder);
        free(set);
    }
}
