/* Every tier of FBL writes the same files and decodes them to the same pixels; the vectors in the tree decode
 * to the samples beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/fbl/decode.h"
#include "kernels/crc32c.h"
#include "tests/codec/fbl_pictures.h"
#include "tests/codec/fbl_tiers.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static void decode_equal(fby_fbl_decoder *decoder, const fbl_picture *picture, const void *bytes,
                         size_t length, const char *tier)
{
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    fby_error error = FBY_ERROR_INIT;

    output.data = calloc(1, picture->bytes);
    cr_assert(!fby_fbl_open(decoder, bytes, length, NULL, NULL, &error), "%s: %s", tier, error.text);
    cr_assert(!fby_fbl_decode(decoder, NULL, &output, &error), "%s: %s", tier, error.text);
    cr_assert(!memcmp(output.data, picture->samples, picture->bytes), "%s", tier);
    free(output.data);
}

static void compare(const fbl_picture *picture, const fby_fbl_encode_options *options)
{
    fbl_tier tiers[FBL_TIERS_MOST];
    uint32_t count = fbl_tiers_here(tiers);
    void *first = NULL;
    size_t first_length = 0;

    for (uint32_t i = 0; i < count; i++) {
        const fby_fbl_kernels *kernels = tiers[i].kernels;
        fby_fbl_encoder *encoder;
        fby_fbl_decoder *decoder;
        fby_error error = FBY_ERROR_INIT;
        const void *bytes;
        size_t length;

        cr_assert(!fbl_encoder_create_with(&encoder, kernels) && !fbl_decoder_create_with(&decoder, kernels));
        cr_assert(!fby_fbl_encode(encoder, &picture->image, options, &bytes, &length, &error), "%s",
                  error.text);
        if (!first) {
            first = malloc(length);
            memcpy(first, bytes, first_length = length);
        }
        cr_assert(length == first_length && !memcmp(first, bytes, length),
                  "%s writes another file than C: %ux%u", tiers[i].name, picture->image.width,
                  picture->image.height);
        decode_equal(decoder, picture, first, first_length, tiers[i].name);
        fby_fbl_encoder_destroy(&encoder);
        fby_fbl_decoder_destroy(&decoder);
    }
    free(first);
}

Test(fbl_tiers, agree_on_pictures_of_every_kind)
{
    uint32_t state = 3;
    for (uint32_t i = 0; i < test_scaled(60); i++) {
        fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
        uint32_t width = i % 4 ? 1 + draw(&state, 150) : 128 * (1 + draw(&state, 2));
        uint32_t height = i % 4 ? 1 + draw(&state, 150) : 128;
        fbl_picture picture = fbl_picture_make((fbl_kind)(i % FBL_KINDS), width, height, 1 + draw(&state, 4),
                                               i % 6 ? 8 : 13, i);

        options.level = i / 2 % 2;
        compare(&picture, &options);
        fbl_picture_free(&picture);
    }
}

static void *file_read(const char *name, const char *end, size_t *length)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/%s.%s", VECTOR_FOLDER, name, end);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    cr_assert(!fseek(file, 0, SEEK_END));
    *length = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*length + 1);
    cr_assert_eq(fread(bytes, 1, *length, file), *length);
    ((char *)bytes)[*length] = 0;
    fclose(file);
    return bytes;
}

Test(fbl_tiers, decode_the_vectors)
{
    size_t length;
    char *list = file_read("vectors", "txt", &length), name[64];
    uint32_t count = 0, width, height, channels, bits;
    fbl_tier tiers[FBL_TIERS_MOST];
    uint32_t tier_count = fbl_tiers_here(tiers);
    int used;

    for (char *line = list;
         sscanf(line, "%63s %u %u %u %u\n%n", name, &width, &height, &channels, &bits, &used) == 5;
         line += used, count++) {
        fbl_picture picture = {.samples = file_read(name, "raw", &picture.bytes)};
        void *bytes = file_read(name, "fbl", &length);
        for (uint32_t i = 0; i < tier_count; i++) {
            fby_fbl_decoder *decoder;
            cr_assert(!fbl_decoder_create_with(&decoder, tiers[i].kernels));
            decode_equal(decoder, &picture, bytes, length, name);
            fby_fbl_decoder_destroy(&decoder);
        }
        cr_assert_eq(picture.bytes, (size_t)width * height * channels * (bits > 8 ? 2 : 1), "%s", name);
        free(bytes);
        free(picture.samples);
    }
    cr_assert_geq(count, 20);
    free(list);
}

Test(fbl_tiers, checksums_are_crc32c)
{
    uint8_t bytes[10000];
    uint32_t state = 5;

    cr_assert_eq(fby_crc32c_c(0, "123456789", 9), 0xE3069283u);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)draw(&state, 256);
    for (uint32_t i = 0; i < FBY_TIERS && fby_tier_supported((fby_tier)i); i++) {
        const fby_fbl_kernels *kernels = fby_fbl_kernels_of((fby_tier)i);
        cr_assert_eq(kernels->crc32c(0, "123456789", 9), 0xE3069283u);
        for (size_t length = 0; length < sizeof bytes; length += 1 + length / 3) {
            cr_assert_eq(kernels->crc32c(7, bytes + length % 5, length),
                         fby_crc32c_c(7, bytes + length % 5, length));
        }
    }
}
