/* Damaged FBL files: cut off or changed anywhere, each is refused or gives a picture of its size, and all
 * tiers say the same. Files lie before a page that can't be touched, with nothing behind them. */
#include <stdlib.h>
#include <string.h>

#include "codec/fbl/decode.h"
#include "codec/fbl/file.h"
#include "kernels/crc32c.h"
#include "tests/codec/fbl_pictures.h"
#include "tests/codec/fbl_tiers.h"
#include "tests/kernels/guarded.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

enum { FILES = 10, CHANNELS = 3, WIDTH = 60, HEIGHT = 44 };

static fby_fbl_encoder *encoder;
static fby_fbl_decoder *decoder[FBL_TIERS_MOST];
static fbl_tier tier[FBL_TIERS_MOST];
static uint32_t tiers;

static void begin(void)
{
    cr_assert(!fby_fbl_encoder_create(&encoder));
    tiers = fbl_tiers_here(tier);
    for (uint32_t i = 0; i < tiers; i++) {
        cr_assert(!fbl_decoder_create_with(&decoder[i], tier[i].kernels));
    }
}

static void end(void)
{
    fby_fbl_encoder_destroy(&encoder);
    for (uint32_t i = 0; i < tiers; i++) fby_fbl_decoder_destroy(&decoder[i]);
}

/* One of ten files that between them have all modes. */
static fbl_picture file_make(uint32_t number, const void **bytes, size_t *length)
{
    static const struct {
        fbl_kind kind;
        uint32_t channels, bits, level;
    } files[FILES] = {
        {FBL_SMOOTH, 3, 8, FBY_FBL_SMALL},  {FBL_SMOOTH, 1, 8, FBY_FBL_SMALL},
        {FBL_SMOOTH, 3, 8, FBY_FBL_FAST},   {FBL_SMOOTH, 4, 8, FBY_FBL_FAST},
        {FBL_DOTS, 3, 8, FBY_FBL_SMALL},    {FBL_AREAS, 3, 8, FBY_FBL_SMALL},
        {FBL_SMOOTH, 1, 12, FBY_FBL_SMALL}, {FBL_SMOOTH, 1, 16, FBY_FBL_FAST},
        {FBL_NOISE, 1, 8, FBY_FBL_SMALL},   {FBL_SPECKS, 3, 8, FBY_FBL_SMALL},
    };
    fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
    fbl_picture picture = fbl_picture_make(files[number].kind, WIDTH, HEIGHT, files[number].channels,
                                           files[number].bits, number + 1);

    options.level = files[number].level;
    if (number % 3 == 1) options.tile_width = options.tile_height = 32;
    cr_assert(!fby_fbl_encode(encoder, &picture.image, &options, bytes, length, NULL));
    return picture;
}

enum { EMULATED_TURNS = 7 }; /* no multiple of the bits that are changed by turns */

/* Decodes with every tier, one that is emulated by turns: all agree. Returns the reason. */
static int decode_all(const uint8_t *bytes, size_t length, uint8_t **pixels, size_t pixel_bytes)
{
    static uint32_t turn;
    int first = 0;

    turn++;
    for (uint32_t i = 0; i < tiers; i++) {
        if (tier[i].emulated && turn % EMULATED_TURNS) continue;
        fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
        fby_fbl_info info = FBY_FBL_INFO_INIT;
        fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
        options.max_pixels = WIDTH * HEIGHT;
        int reason = fby_fbl_open(decoder[i], bytes, length, &options, &info, NULL);
        if (!reason &&
            (size_t)info.width * info.height * info.channels * (info.bits > 8 ? 2 : 1) > pixel_bytes) {
            reason = FBY_FBL_TOO_LARGE;
        }
        output.data = pixels[i];
        if (!reason) reason = fby_fbl_decode(decoder[i], NULL, &output, NULL);
        if (!i) first = reason;
        cr_assert_eq(reason, first, "tier %s says %d, C %d", tier[i].name, reason, first);
        if (i && !reason) cr_assert(!memcmp(pixels[0], pixels[i], pixel_bytes), "tier %s", tier[i].name);
    }
    return first;
}

static void pixels_make(uint8_t **pixels, size_t bytes)
{
    for (uint32_t i = 0; i < tiers; i++) pixels[i] = calloc(1, bytes);
}

static void pixels_free(uint8_t **pixels)
{
    for (uint32_t i = 0; i < tiers; i++) free(pixels[i]);
}

Test(fbl_hostile, cut_off_anywhere, .init = begin, .fini = end)
{
    for (uint32_t number = 0; number < FILES; number++) {
        uint8_t *pixels[FBL_TIERS_MOST];
        const void *bytes;
        size_t length;
        fbl_picture picture = file_make(number, &bytes, &length);

        pixels_make(pixels, picture.bytes);
        for (size_t cut = 0; cut < length; cut++) {
            guarded part = guarded_make(cut ? cut : 1);
            memcpy(part.bytes, bytes, cut);
            int reason = decode_all(part.bytes, cut, pixels, picture.bytes);
            cr_assert_eq(reason, FBY_FBL_TRUNCATED, "file %u of %zu bytes at %zu: %d", number, length, cut,
                         reason);
            guarded_free(&part);
        }
        pixels_free(pixels);
        fbl_picture_free(&picture);
    }
}

/* Makes all checksums right again, so that what lies behind them is tested. */
static void seal(uint8_t *bytes, size_t length)
{
    fbl_file file;

    fbl_store32(bytes + 60, fby_crc32c_c(0, bytes, 60));
    if (fbl_file_read(bytes, length, &file, NULL) || length < file.file_bytes) return;
    if (!fbl_index_check(&file, bytes + file.index_at, NULL)) {
        for (uint32_t i = 0; i < file.tiles; i++) {
            fbl_tile tile = fbl_tile_of(&file, bytes + file.index_at, i);
            fbl_store32(bytes + file.index_at + (size_t)i * FBL_INDEX_ENTRY + 4,
                        fby_crc32c_c(0, bytes + tile.offset, tile.bytes));
        }
    }
    fbl_store32(bytes + 52, fby_crc32c_c(0, bytes + 64, file.payload_at - 64));
    fbl_store32(bytes + 60, fby_crc32c_c(0, bytes, 60));
}

static void change_everywhere(bool sealed)
{
    for (uint32_t number = 0; number < FILES; number++) {
        uint8_t *pixels[FBL_TIERS_MOST];
        const void *bytes;
        size_t length;
        fbl_picture picture = file_make(number, &bytes, &length);
        guarded file = guarded_make(length);

        pixels_make(pixels, picture.bytes);
        for (size_t at = 0; at < length; at++) {
            memcpy(file.bytes, bytes, length);
            file.bytes[at] ^= (uint8_t)(1u << at % 8);
            if (sealed) seal(file.bytes, length);
            int reason = decode_all(file.bytes, length, pixels, picture.bytes);
            /* Without new checksums only the zeros at the end and metadata can change unseen. */
            bool slack = at >= length - FBY_FBL_SLACK_BYTES;
            cr_assert(sealed || slack ? true : reason != 0, "file %u, byte %zu of %zu", number, at, length);
            if (slack) cr_assert(!memcmp(pixels[0], picture.samples, picture.bytes));
        }
        guarded_free(&file);
        pixels_free(pixels);
        fbl_picture_free(&picture);
    }
}

Test(fbl_hostile, a_changed_bit_anywhere, .init = begin, .fini = end)
{
    change_everywhere(false);
}

Test(fbl_hostile, a_changed_bit_under_right_checksums, .init = begin, .fini = end)
{
    change_everywhere(true);
}

Test(fbl_hostile, many_changes_under_right_checksums, .init = begin, .fini = end)
{
    uint32_t state = 1;

    for (uint32_t number = 0; number < FILES; number++) {
        uint8_t *pixels[FBL_TIERS_MOST];
        const void *bytes;
        size_t length;
        fbl_picture picture = file_make(number, &bytes, &length);
        guarded file = guarded_make(length);

        pixels_make(pixels, picture.bytes);
        for (uint32_t turn = 0; turn < test_scaled(300); turn++) {
            memcpy(file.bytes, bytes, length);
            for (uint32_t i = 0; i <= turn % 9; i++) {
                state = state * 1664525u + 1013904223u;
                size_t at = 64 + (state >> 8) % (length - 64);
                state = state * 1664525u + 1013904223u;
                file.bytes[at] = (uint8_t)(state >> 24);
            }
            seal(file.bytes, length);
            decode_all(file.bytes, length, pixels, picture.bytes);
        }
        guarded_free(&file);
        pixels_free(pixels);
        fbl_picture_free(&picture);
    }
}

Test(fbl_hostile, a_claimed_size_is_refused_before_memory_is_taken, .init = begin, .fini = end)
{
    const void *bytes;
    size_t length;
    fbl_picture picture = file_make(0, &bytes, &length);
    uint8_t *file = malloc(length);
    size_t before = fby_fbl_decoder_bytes(decoder[0]);
    fby_error error = FBY_ERROR_INIT;

    memcpy(file, bytes, length);
    fbl_store32(file + 12, INT32_MAX);
    fbl_store32(file + 16, INT32_MAX);
    seal(file, length);
    cr_assert_neq(fby_fbl_open(decoder[0], file, length, NULL, NULL, &error), 0);
    fbl_store32(file + 12, 20000);
    fbl_store32(file + 16, 10000);
    fbl_store32(file + 24, 157 * 79);
    seal(file, length);
    cr_assert_eq(fby_fbl_open(decoder[0], file, length, NULL, NULL, &error), FBY_FBL_TOO_LARGE, "%s",
                 error.text);
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
    options.max_pixels = UINT64_MAX;
    cr_assert_eq(fby_fbl_open(decoder[0], file, length, &options, NULL, &error), FBY_FBL_TRUNCATED, "%s",
                 error.text);
    cr_assert_eq(fby_fbl_decoder_bytes(decoder[0]), before);
    file[8] = 2;
    seal(file, length);
    cr_assert_eq(fby_fbl_open(decoder[0], file, length, NULL, NULL, NULL), FBY_FBL_UNSUPPORTED);
    file[0] = 'P';
    cr_assert_eq(fby_fbl_open(decoder[0], file, length, NULL, NULL, NULL), FBY_FBL_FORMAT);
    free(file);
    fbl_picture_free(&picture);
}
