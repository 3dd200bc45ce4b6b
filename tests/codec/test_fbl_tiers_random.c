/* Every tier of FBL decodes alike what no encoder writes: sets, predictors, words, widths and places drawn at
 * random, whole tiles and any others. A tile's bytes end 64 bytes before a page that can't be touched, and
 * often before the tile does. */
#include <stdlib.h>
#include <string.h>

#include "tests/codec/fbl_tiers.h"
#include "tests/kernels/guarded.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

enum { STRIDE = FBY_FBL_TILE_SIDE * FBY_FBL_PLANES + 5, PLANE = STRIDE * FBY_FBL_TILE_SIDE };

static uint32_t state = 7;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 8) * below >> 24);
}

/* Small frequencies, none, and all there is are as likely as others. */
static uint32_t frequency_draw(uint32_t left)
{
    switch (draw(5)) {
    case 0:
        return 0;
    case 1:
        return left ? 1 : 0;
    case 2:
        return left;
    default:
        return draw(left + 1);
    }
}

static void set_draw(fby_fbl_set *set)
{
    const uint32_t most = draw(2) ? FBY_FBL_TOKENS : FBY_FBL_TOKENS / 2;

    memset(set, 0, sizeof *set);
    set->contexts = 1 + draw(FBY_FBL_CONTEXTS);
    for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) set->context[sum] = (uint8_t)draw(set->contexts);
    for (uint32_t context = 0; context < set->contexts; context++) {
        uint32_t start = 0, base = 0, last = draw(most);
        set->tokens[context] = (uint8_t)(last + 1);
        for (uint32_t t = 0; t <= last; t++) {
            uint32_t at = context * FBY_FBL_TOKENS + t, left = FBY_FBL_SCALE - start;
            set->frequency[at] = (uint16_t)(t < last ? frequency_draw(left) : left);
            set->start[at] = (uint16_t)start;
            set->base[at] = (uint16_t)(base & 255);
            set->raw[at] = (uint8_t)draw(8);
            start += set->frequency[at];
            base += 1u << set->raw[at];
        }
    }
    fby_fbl_set_finish(set);
}

static void coded_draw(fby_fbl_coded *coded, uint32_t channels, bool pack, uint32_t width, uint32_t height)
{
    coded->shape = pack ? fby_fbl_pack_shape(width, height) : fby_fbl_rans_shape(width, height);
    coded->channels = channels;
    coded->bits = 8;
    coded->minus_green = channels < 3 ? 0 : draw(4) << 1;
    coded->place = (fby_fbl_place){.row = STRIDE, .plane = PLANE, .planar = draw(2)};
}

/* Half of them are a whole tile's. */
static uint32_t side_draw(void)
{
    return draw(2) ? FBY_FBL_TILE_SIDE : 1 + draw(FBY_FBL_TILE_SIDE);
}

static guarded bytes_draw(fby_fbl_coded *coded, size_t length)
{
    guarded memory = guarded_make(length + FBY_FBL_STEP_READS);

    cr_assert_not_null(memory.bytes);
    for (size_t i = 0; i < length; i++) memory.bytes[i] = (uint8_t)draw(256);
    coded->bytes = memory.bytes;
    coded->end = memory.bytes + length;
    return memory;
}

enum { PIXEL_BYTES = PLANE * FBY_FBL_PLANES };

static uint8_t *pixels_make(uint32_t tiles)
{
    uint8_t *pixels = malloc((size_t)PIXEL_BYTES * tiles);
    cr_assert_not_null(pixels);
    return pixels;
}

static void compare(const fby_fbl_coded *is, const fby_fbl_coded *expected, const uint8_t *pixels,
                    const uint8_t *expected_pixels, const char *tier)
{
    cr_assert_eq(is->good, expected->good, "%s, %u x %u: good", tier, is->shape.width, is->shape.height);
    cr_assert(!memcmp(pixels, expected_pixels, PIXEL_BYTES), "%s, %u x %u of %u channels: pixels", tier,
              is->shape.width, is->shape.height, is->channels);
}

typedef struct rans_call {
    fby_fbl_rans tile[FBY_FBL_WAYS];
    guarded memory[FBY_FBL_WAYS];
    uint32_t tiles;
} rans_call;

static void rans_draw(rans_call *call, const fby_fbl_set *set)
{
    uint32_t channels = 1 + draw(FBY_FBL_PLANES), width = side_draw(), height = side_draw();

    call->tiles = 1 + draw(FBY_FBL_WAYS);
    for (uint32_t i = 0; i < call->tiles; i++) {
        fby_fbl_rans *tile = &call->tile[i];
        size_t most = (size_t)width * height * channels * 2;
        coded_draw(&tile->coded, channels, false, width, height);
        call->memory[i] = bytes_draw(&tile->coded, (size_t)4 * FBY_LANES + draw((uint32_t)most) / 2 * 2);
        for (uint32_t lane = 0; lane < FBY_LANES; lane++) {
            /* A tile in 16 has a state that can't be. */
            if (lane || draw(16)) call->memory[i].bytes[4 * lane + 2] |= 1;
        }
        for (uint32_t p = 0; p < channels; p++) {
            tile->set[p] = &set[p];
            for (uint32_t bit = 0; bit < 2; bit++)
                tile->predictor[p][bit] = draw(1 << 16) << 16 | draw(1 << 16);
        }
    }
}

static void rans_run(const rans_call *call, const fbl_tier *tier, rans_call *out, uint8_t *pixels)
{
    fby_fbl_rans *tiles[FBY_FBL_WAYS];

    *out = *call;
    memset(pixels, 0xAA, (size_t)PIXEL_BYTES * call->tiles);
    for (uint32_t i = 0; i < call->tiles; i++) {
        out->tile[i].coded.place.at = pixels + (size_t)PIXEL_BYTES * i;
        tiles[i] = &out->tile[i];
    }
    tier->kernels->rans(tiles, call->tiles);
}

Test(fbl_tiers_random, rans_of_any_set)
{
    fbl_tier tier[FBL_TIERS_MOST];
    uint32_t tiers = fbl_tiers_here(tier);
    uint8_t *expected = pixels_make(FBY_FBL_WAYS), *pixels = pixels_make(FBY_FBL_WAYS);
    fby_fbl_set *set = malloc(FBY_FBL_PLANES * sizeof *set);

    cr_assert_not_null(set);
    for (uint32_t turn = 0; turn < test_scaled(40); turn++) {
        rans_call call = {0}, first = {0}, other = {0};
        for (uint32_t p = 0; p < FBY_FBL_PLANES; p++) set_draw(&set[p]);
        rans_draw(&call, set);
        rans_run(&call, &tier[0], &first, expected);
        for (uint32_t i = 1; i < tiers; i++) {
            rans_run(&call, &tier[i], &other, pixels);
            for (uint32_t k = 0; k < call.tiles; k++) {
                compare(&other.tile[k].coded, &first.tile[k].coded, pixels + (size_t)PIXEL_BYTES * k,
                        expected + (size_t)PIXEL_BYTES * k, tier[i].name);
            }
        }
        for (uint32_t k = 0; k < call.tiles; k++) guarded_free(&call.memory[k]);
    }
    free(set);
    free(pixels);
    free(expected);
}

/* Bytes of the groups that the codes from `codes` on stand for, `count` of them. */
static size_t group_bytes(const uint8_t *codes, size_t count, uint32_t left_out)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t code = 0;
        for (uint32_t bit = 0; bit < 3; bit++)
            code |= (uint32_t)(codes[(3 * i + bit) / 8] >> (3 * i + bit) % 8 & 1) << bit;
        bytes += code + (code >= left_out);
    }
    return bytes;
}

static guarded pack_draw(fby_fbl_pack *tile)
{
    uint32_t channels = 1 + draw(FBY_FBL_PLANES);
    fby_fbl_coded *coded = &tile->coded;

    coded_draw(coded, channels, true, side_draw(), side_draw());
    for (uint32_t p = 0; p < channels; p++) {
        tile->left_out[p] = draw(9);
        for (uint32_t bit = 0; bit < 2; bit++) {
            uint64_t high = draw(1 << 16) << 16 | draw(1 << 16);
            tile->predictor[p][bit] = high << 32 | draw(1 << 16) << 16 | draw(1 << 16);
        }
    }
    size_t codes = fby_fbl_pack_codes(&coded->shape, channels, 8), quads = coded->shape.micro_width / 4;
    guarded memory = bytes_draw(coded, codes + codes / 24 * 512);
    size_t needed = codes;
    for (size_t i = 0; i < codes / 24; i++)
        needed += group_bytes(memory.bytes + i * 24, 64, tile->left_out[i / quads % channels]);

    /* As many bytes as are needed, or a few more or less, or any number of them; the slack lies behind. */
    size_t length = draw(4) ? needed + draw(7) - 3 : codes + draw((uint32_t)(needed - codes) + 1);
    size_t room = codes + codes / 24 * 512;
    if (length > room) length = room;
    if (length < codes) length = codes;
    memmove(memory.bytes + room - length, memory.bytes, length);
    memset(memory.bytes + room, 0, FBY_FBL_STEP_READS);
    coded->bytes = memory.bytes + room - length;
    return memory;
}

Test(fbl_tiers_random, pack_of_any_widths)
{
    fbl_tier tier[FBL_TIERS_MOST];
    uint32_t tiers = fbl_tiers_here(tier), good = 0;
    uint8_t *expected = pixels_make(1), *pixels = pixels_make(1);

    for (uint32_t turn = 0; turn < test_scaled(60); turn++) {
        fby_fbl_pack call = {0}, first = {0}, other = {0};
        guarded memory = pack_draw(&call);
        for (uint32_t i = 0; i < tiers; i++) {
            fby_fbl_pack *out = i ? &other : &first;
            *out = call;
            out->coded.place.at = i ? pixels : expected;
            memset(out->coded.place.at, 0xAA, PIXEL_BYTES);
            tier[i].kernels->pack(out);
            if (i) compare(&other.coded, &first.coded, pixels, expected, tier[i].name);
        }
        good += first.coded.good;
        guarded_free(&memory);
    }
    cr_assert_gt(good, 10);
    free(pixels);
    free(expected);
}
