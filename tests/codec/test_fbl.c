/* FBL through its public interface: what was encoded decodes to the same, whole and in regions, in every
 * layout; what can't be encoded or decoded is refused by its reason. */
#include <stdlib.h>
#include <string.h>

#include "tests/codec/fbl_pictures.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

static fby_fbl_encoder *encoder;
static fby_fbl_decoder *decoder;

static void begin(void)
{
    cr_assert(!fby_fbl_encoder_create(&encoder));
    cr_assert(!fby_fbl_decoder_create(&decoder));
}

static void end(void)
{
    fby_fbl_encoder_destroy(&encoder);
    fby_fbl_decoder_destroy(&decoder);
    cr_assert_null(encoder);
    cr_assert_null(decoder);
}

/* Encodes, decodes, compares; *bytes stays borrowed from the encoder. */
static void round_trip(const fbl_picture *picture, const fby_fbl_encode_options *options, const void **bytes,
                       size_t *length)
{
    const fby_fbl_image *image = &picture->image;
    fby_error error = FBY_ERROR_INIT;
    fby_fbl_info info = FBY_FBL_INFO_INIT;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;

    int reason = fby_fbl_encode(encoder, image, options, bytes, length, &error);
    cr_assert_eq(reason, 0, "%ux%u of %u x %u bits: %s", image->width, image->height, image->channels,
                 image->bits, error.text);
    cr_assert(!fby_fbl_open(decoder, *bytes, *length, NULL, &info, &error), "%s", error.text);
    cr_assert_eq(info.width, image->width);
    cr_assert_eq(info.height, image->height);
    cr_assert_eq(info.channels, image->channels);
    cr_assert_eq(info.bits, image->bits);
    cr_assert_eq(info.file_bytes, *length);
    output.data = malloc(picture->bytes);
    cr_assert(!fby_fbl_decode(decoder, NULL, &output, &error), "%s", error.text);
    cr_assert(!memcmp(output.data, picture->samples, picture->bytes), "%ux%u of %u x %u bits differ",
              image->width, image->height, image->channels, image->bits);
    free(output.data);
}

static void kind_round_trip(fbl_kind kind, uint32_t width, uint32_t height, uint32_t channels, uint32_t bits,
                            fby_fbl_level level)
{
    fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
    fbl_picture picture = fbl_picture_make(kind, width, height, channels, bits, width + 3 * height + kind);
    const void *bytes;
    size_t length;

    options.level = level;
    round_trip(&picture, &options, &bytes, &length);
    fbl_picture_free(&picture);
}

Test(fbl, every_small_size, .init = begin, .fini = end)
{
    for (uint32_t height = 1; height <= 19; height++) {
        for (uint32_t width = 1; width <= 35; width++) {
            uint32_t channels = 1 + (width + height) % 4, level = width % 2;
            kind_round_trip(FBL_SMOOTH, width, height, channels, 8, (fby_fbl_level)level);
            kind_round_trip(FBL_AREAS, width, height, 1 + width % 4, 8, (fby_fbl_level)!level);
        }
    }
}

Test(fbl, every_depth_channel_count_kind_and_level, .init = begin, .fini = end)
{
    for (uint32_t bits = 8; bits <= 16; bits++) {
        for (uint32_t channels = 1; channels <= 4; channels++) {
            for (uint32_t kind = 0; kind < FBL_KINDS; kind++) {
                kind_round_trip((fbl_kind)kind, 37 + bits, 21 + channels, channels, bits, FBY_FBL_SMALL);
                kind_round_trip((fbl_kind)kind, 37 + bits, 21 + channels, channels, bits, FBY_FBL_FAST);
            }
        }
    }
}

Test(fbl, several_tiles, .init = begin, .fini = end)
{
    static const uint32_t sides[] = {127, 128, 129, 255, 300};
    for (uint32_t i = 0; i < test_scaled(20); i++) {
        uint32_t width = sides[i % 5], height = sides[(i / 5 + i) % 5];
        kind_round_trip((fbl_kind)(i % FBL_KINDS), width, height, 1 + i % 4, i % 3 ? 8 : 8 + i % 9,
                        (fby_fbl_level)(i & 1));
    }
}

/* The picture with gaps between rows and planes, in the other layout. */
static void *relaid(const fbl_picture *picture, uint32_t layout, size_t *row, size_t *plane, size_t gap)
{
    const fby_fbl_image *image = &picture->image;
    const size_t sample = image->bits > 8 ? 2 : 1, channels = layout == FBY_FBL_CHW ? 1 : image->channels;

    *row = (image->width * channels + gap) * sample;
    *plane = *row * image->height + gap * sample;
    uint8_t *to = calloc(image->channels, *plane);
    const uint8_t *from = picture->samples;
    for (uint32_t y = 0; y < image->height; y++) {
        for (uint32_t x = 0; x < image->width; x++) {
            for (uint32_t c = 0; c < image->channels; c++, from += sample) {
                size_t at = layout == FBY_FBL_CHW ? c * *plane + y * *row + x * sample
                                                  : y * *row + (x * channels + c) * sample;
                memcpy(to + at, from, sample);
            }
        }
    }
    return to;
}

static void layout_round_trip(const fbl_picture *picture, uint32_t layout, fby_fbl_level level)
{
    fby_fbl_image image = picture->image;
    fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    fby_error error = FBY_ERROR_INIT;
    const void *bytes;
    size_t length;
    void *laid = relaid(picture, layout, &image.row_stride, &image.plane_stride, 5);

    image.data = laid;
    image.layout = output.layout = layout;
    options.level = level;
    cr_assert(!fby_fbl_encode(encoder, &image, &options, &bytes, &length, &error), "%s", error.text);
    output.row_stride = image.row_stride;
    output.plane_stride = image.plane_stride;
    output.data = calloc(image.channels, output.plane_stride);
    cr_assert(!fby_fbl_open(decoder, bytes, length, NULL, NULL, &error), "%s", error.text);
    cr_assert(!fby_fbl_decode(decoder, NULL, &output, &error), "%s", error.text);
    /* Gaps are zeros in both: nothing was written there. */
    cr_assert(!memcmp(output.data, laid, image.channels * output.plane_stride), "layout %u, %u bits", layout,
              image.bits);
    free(laid);
    free(output.data);
}

Test(fbl, layouts_and_strides, .init = begin, .fini = end)
{
    for (uint32_t i = 0; i < 4u * FBL_KINDS * 4; i++) {
        fbl_picture picture = fbl_picture_make((fbl_kind)(i / 16), 150, 40, 1 + i % 4, i & 4 ? 16 : 8, i);
        layout_round_trip(&picture, i / 8 % 2 ? FBY_FBL_CHW : FBY_FBL_HWC, (fby_fbl_level)(i / 4 % 2));
        fbl_picture_free(&picture);
    }
}

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static void region_check(const fbl_picture *picture, const fby_fbl_region *region, uint32_t layout,
                         uint32_t threads)
{
    const fby_fbl_image *image = &picture->image;
    const size_t sample = image->bits > 8 ? 2 : 1, pixel = sample * image->channels;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    fby_error error = FBY_ERROR_INIT;
    uint8_t *got = output.data = malloc(region->width * region->height * pixel);

    output.layout = layout;
    output.threads = threads;
    cr_assert(!fby_fbl_decode(decoder, region, &output, &error), "%s", error.text);
    for (uint32_t y = 0; y < region->height; y++) {
        const uint8_t *want =
            (const uint8_t *)picture->samples + ((size_t)(region->y + y) * image->width + region->x) * pixel;
        for (uint32_t x = 0; x < region->width; x++, want += pixel) {
            for (uint32_t c = 0; c < image->channels; c++) {
                size_t at = layout == FBY_FBL_CHW ? ((size_t)c * region->height + y) * region->width + x
                                                  : ((size_t)y * region->width + x) * image->channels + c;
                cr_assert(!memcmp(got + at * sample, want + c * sample, sample), "at %u, %u of %u x %u", x, y,
                          region->width, region->height);
            }
        }
    }
    free(got);
}

Test(fbl, regions, .init = begin, .fini = end)
{
    uint32_t state = 7;
    for (uint32_t i = 0; i < test_scaled(24); i++) {
        fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
        fbl_picture picture = fbl_picture_make((fbl_kind)(i % FBL_KINDS), 100 + draw(&state, 200),
                                               100 + draw(&state, 200), 1 + i % 4, i % 5 ? 8 : 12, i);
        const void *bytes;
        size_t length;

        options.level = i & 1;
        options.tile_width = 16 * (1 + draw(&state, 8));
        options.tile_height = 16 * (1 + draw(&state, 8));
        round_trip(&picture, &options, &bytes, &length);
        for (uint32_t k = 0; k < 6; k++) {
            fby_fbl_region region = {draw(&state, picture.image.width), draw(&state, picture.image.height), 0,
                                     0};
            region.width = 1 + draw(&state, picture.image.width - region.x);
            region.height = 1 + draw(&state, picture.image.height - region.y);
            region_check(&picture, &region, k & 1, 1 + k % 3);
        }
        fbl_picture_free(&picture);
    }
}

Test(fbl, threads_give_the_same_bytes, .init = begin, .fini = end)
{
    for (uint32_t kind = 0; kind < FBL_KINDS; kind++) {
        fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
        fbl_picture picture = fbl_picture_make((fbl_kind)kind, 500, 300, 3, 8, kind);
        const void *bytes;
        size_t length, first_length;

        round_trip(&picture, &options, &bytes, &first_length);
        uint8_t *first = malloc(first_length);
        memcpy(first, bytes, first_length);
        options.threads = 3;
        round_trip(&picture, &options, &bytes, &length);
        cr_assert_eq(length, first_length);
        cr_assert(!memcmp(first, bytes, length));
        free(first);
        fbl_picture_free(&picture);
    }
}

Test(fbl, modes_fit_the_contents, .init = begin, .fini = end)
{
    static const struct {
        fbl_kind kind;
        fby_fbl_level level;
        uint32_t mode;
    } wanted[] = {
        {FBL_NOISE, FBY_FBL_SMALL, FBY_FBL_MODE_RAW},     {FBL_NOISE, FBY_FBL_FAST, FBY_FBL_MODE_RAW},
        {FBL_SMOOTH, FBY_FBL_SMALL, FBY_FBL_MODE_RANS},   {FBL_SMOOTH, FBY_FBL_FAST, FBY_FBL_MODE_PACK},
        {FBL_ONE, FBY_FBL_SMALL, FBY_FBL_MODE_CONST},     {FBL_ONE, FBY_FBL_FAST, FBY_FBL_MODE_CONST},
        {FBL_AREAS, FBY_FBL_SMALL, FBY_FBL_MODE_PALETTE}, {FBL_AREAS, FBY_FBL_FAST, FBY_FBL_MODE_PALETTE},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
        fbl_picture picture = fbl_picture_make(wanted[i].kind, 128, 128, 3, 8, 1);
        fby_fbl_tile tile = FBY_FBL_TILE_INIT;
        const void *bytes;
        size_t length;

        options.level = wanted[i].level;
        round_trip(&picture, &options, &bytes, &length);
        cr_assert(!fby_fbl_tile_read(decoder, 0, &tile, NULL));
        cr_assert_eq(tile.mode, wanted[i].mode, "kind %u, level %u: mode %u", wanted[i].kind, wanted[i].level,
                     tile.mode);
        cr_assert_eq(fby_fbl_tile_read(decoder, 1, &tile, NULL), FBY_FBL_ARGUMENT);
        fbl_picture_free(&picture);
    }
}

Test(fbl, metadata, .init = begin, .fini = end)
{
    const fby_fbl_chunk chunks[] = {{"ICCP", "profile", 7}, {"EXIF", "orientation", 11}, {"XMP ", NULL, 0}};
    fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
    fbl_picture picture = fbl_picture_make(FBL_SMOOTH, 20, 20, 3, 8, 1);
    const void *bytes, *data;
    size_t length, found;

    options.chunks = 3;
    options.chunk = chunks;
    round_trip(&picture, &options, &bytes, &length);
    for (int i = 0; i < 3; i++) {
        cr_assert(!fby_fbl_metadata(decoder, chunks[i].type, &data, &found, NULL));
        cr_assert_not_null(data);
        cr_assert_eq(found, chunks[i].length);
        cr_assert(!found || !memcmp(data, chunks[i].data, found));
    }
    cr_assert(!fby_fbl_metadata(decoder, "none", &data, &found, NULL));
    cr_assert_null(data);
    fbl_picture_free(&picture);
}

Test(fbl, partial_files, .init = begin, .fini = end)
{
    fbl_picture picture = fbl_picture_make(FBL_SMOOTH, 300, 200, 3, 8, 1);
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
    fby_fbl_info info = FBY_FBL_INFO_INIT;
    fby_fbl_tile tile = FBY_FBL_TILE_INIT;
    const void *bytes;
    size_t length;

    round_trip(&picture, NULL, &bytes, &length);
    cr_assert(!fby_fbl_info_read(bytes, FBY_FBL_HEADER_BYTES, &info, NULL));
    uint8_t *part = calloc(1, length);
    memcpy(part, bytes, info.prefix_bytes);
    cr_assert_eq(fby_fbl_open(decoder, part, info.prefix_bytes, NULL, NULL, NULL), FBY_FBL_TRUNCATED);
    options.partial = true;
    cr_assert(!fby_fbl_open(decoder, part, info.prefix_bytes, &options, NULL, NULL));
    cr_assert(!fby_fbl_tile_read(decoder, 1, &tile, NULL));

    uint64_t behind = tile.offset + tile.bytes + FBY_FBL_SLACK_BYTES;
    memcpy(part + tile.offset, (const uint8_t *)bytes + tile.offset, tile.bytes);
    cr_assert(!fby_fbl_open(decoder, part, behind, &options, NULL, NULL));
    fby_fbl_region region = {tile.x, tile.y, tile.width, tile.height};
    region_check(&picture, &region, FBY_FBL_HWC, 1);
    region.x -= 1;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    output.data = malloc(picture.bytes);
    cr_assert_eq(fby_fbl_decode(decoder, &region, &output, NULL), FBY_FBL_CORRUPT, "that tile isn't there");
    free(output.data);
    free(part);
    fbl_picture_free(&picture);
}

Test(fbl, wrong_arguments_are_refused, .init = begin, .fini = end)
{
    fbl_picture picture = fbl_picture_make(FBL_EXTREMES, 20, 20, 3, 16, 1);
    fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    fby_error error = FBY_ERROR_INIT;
    const void *bytes;
    size_t length;

#define REFUSED(field, value)                                                                                \
    do {                                                                                                     \
        fby_fbl_image image = picture.image;                                                                 \
        image.field = value;                                                                                 \
        cr_assert_eq(fby_fbl_encode(encoder, &image, NULL, &bytes, &length, &error), FBY_FBL_ARGUMENT);      \
        cr_assert_neq(error.text[0], 0);                                                                     \
    } while (0)
    REFUSED(width, 0);
    REFUSED(height, 1u << 31);
    REFUSED(channels, 0);
    REFUSED(channels, 5);
    REFUSED(bits, 7);
    REFUSED(bits, 17);
    REFUSED(bits, 12); /* samples have 16 */
    REFUSED(layout, 2);
    REFUSED(data, NULL);
    REFUSED(row_stride, 119);
    options.tile_width = 24;
    cr_assert_eq(fby_fbl_encode(encoder, &picture.image, &options, &bytes, &length, NULL), FBY_FBL_ARGUMENT);
    options.tile_width = 144;
    cr_assert_eq(fby_fbl_encode(encoder, &picture.image, &options, &bytes, &length, NULL), FBY_FBL_ARGUMENT);

    cr_assert_eq(fby_fbl_decode(decoder, NULL, &output, NULL), FBY_FBL_ARGUMENT, "nothing is open");
    round_trip(&picture, NULL, &bytes, &length);
    cr_assert_eq(fby_fbl_decode(decoder, NULL, &output, NULL), FBY_FBL_ARGUMENT, "no memory is given");
    fby_fbl_region region = {0, 0, 21, 20};
    output.data = picture.samples;
    cr_assert_eq(fby_fbl_decode(decoder, &region, &output, NULL), FBY_FBL_REGION);
    region = (fby_fbl_region){UINT32_MAX, 0, 2, 1};
    cr_assert_eq(fby_fbl_decode(decoder, &region, &output, NULL), FBY_FBL_REGION);
    cr_assert_str_eq(fby_fbl_reason_name(FBY_FBL_TRUNCATED), "truncated");
    fbl_picture_free(&picture);
}
