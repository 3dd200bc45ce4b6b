/* The decoders' interface; their pixels and verdicts are compared with Pillow's in
 * tests/python/test_codec_*.py. */
#include <stdlib.h>
#include <string.h>

#include "codec/decode.h"
#include "tests/codec/sample_files.h"
#include "tests/support/test.h"

static fby_decoder *make_decoder(void)
{
    fby_decoder *decoder = NULL;

    cr_assert_eq(fby_decoder_create(&decoder), 0);
    return decoder;
}

static fby_reason open_file(fby_decoder *decoder, const sample_file *file, fby_picture_info *info)
{
    return fby_decode_open(decoder, file->bytes, file->length, NULL, info);
}

Test(decode, formats_by_content)
{
    static const struct {
        const char *bytes;
        size_t length;
        fby_format format;
    } cases[] = {
        {"\xff\xd8\xff", 3, FBY_FORMAT_JPEG},
        {"\xff\xd8", 2, FBY_FORMAT_UNKNOWN},
        {"\x89PNG\r\n\x1a\n", 8, FBY_FORMAT_PNG},
        {"RIFF\0\0\0\0WEBP", 12, FBY_FORMAT_WEBP},
        {"RIFF\0\0\0\0WAVE", 12, FBY_FORMAT_UNKNOWN},
        {"II*\0", 4, FBY_FORMAT_TIFF},
        {"MM\0+", 4, FBY_FORMAT_TIFF},
        {"GIF87a", 6, FBY_FORMAT_GIF},
        {"\x89"
         "FBL\r\n\x1a\n",
         8, FBY_FORMAT_FBL},
        {"BM000000000000", 14, FBY_FORMAT_BMP},
        {"P6\n", 3, FBY_FORMAT_PNM},
        {"P6", 2, FBY_FORMAT_UNKNOWN},
        {"\xff\x0a", 2, FBY_FORMAT_JPEG_XL},
        {"\0\0\0\x0cJXL \r\n\x87\n", 12, FBY_FORMAT_JPEG_XL},
        {"0000ftypheic", 12, FBY_FORMAT_HEIF},
        {"0000ftypavif", 12, FBY_FORMAT_AVIF},
        {"0000ftypmp42", 12, FBY_FORMAT_UNKNOWN},
        {" \n<!doctype HTML>", 17, FBY_FORMAT_HTML},
        {"<html", 5, FBY_FORMAT_HTML},
        {"", 0, FBY_FORMAT_UNKNOWN},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fby_format format = fby_format_of((const uint8_t *)cases[i].bytes, cases[i].length);
        cr_assert_eq(format, cases[i].format, "case %zu: %s", i, fby_format_name(format));
    }
}

Test(decode, every_name_is_there)
{
    for (int i = 0; i < FBY_REASONS; i++) cr_assert_not_null(fby_reason_name((fby_reason)i), "reason %d", i);
    for (int i = 0; i < FBY_FORMATS; i++) cr_assert_not_null(fby_format_name((fby_format)i), "format %d", i);
    cr_assert_str_eq(fby_reason_name(FBY_REASON_TRUNCATED), "truncated");
    cr_assert_str_eq(fby_reason_name((fby_reason)999), "unknown");
    cr_assert_str_eq(fby_format_name(FBY_FORMAT_JPEG_XL), "JPEG XL");
    cr_assert_str_eq(fby_format_name((fby_format)999), "unknown");
}

Test(decode, no_bytes_and_other_formats_are_refused_by_name)
{
    fby_decoder *decoder = make_decoder();
    fby_picture_info info;
    sample_file page = sample_file_read("page.html.jpg");
    sample_file bitmap = sample_file_read("bitmap.bmp");

    cr_assert_eq(fby_decode_open(decoder, (const uint8_t *)"", 0, NULL, &info), FBY_REASON_EMPTY);
    cr_assert_eq(open_file(decoder, &page, &info), FBY_REASON_FORMAT);
    cr_assert_eq(info.format, FBY_FORMAT_HTML);
    cr_assert_not_null(strstr(fby_decode_text(decoder), "HTML"));
    cr_assert_eq(open_file(decoder, &bitmap, NULL), FBY_REASON_FORMAT);
    cr_assert_str_eq(fby_decode_text(decoder), "BMP has no decoder here");

    free(page.bytes);
    free(bitmap.bytes);
    fby_decoder_destroy(&decoder);
    cr_assert_null(decoder);
    fby_decoder_destroy(&decoder);
}

Test(decode, calls_out_of_order_are_refused)
{
    fby_decoder *decoder = make_decoder();
    sample_file file = sample_file_read("420.jpg");
    const fby_region_of corner = {0, 0, 1, 1};
    const uint8_t *rows;
    size_t stride;
    uint32_t count;
    uint8_t pixel[3];

    cr_assert_eq(fby_decode_begin(decoder, &corner), FBY_REASON_SHAPE);
    cr_assert_eq(fby_decode_rows(decoder, &rows, &stride, 1, &count), FBY_REASON_SHAPE);
    cr_assert_eq(fby_decode_into(decoder, NULL, pixel, 3), FBY_REASON_SHAPE);
    cr_assert_eq(open_file(decoder, &file, NULL), FBY_REASON_NONE);
    cr_assert_str_eq(fby_decode_text(decoder), "");
    cr_assert_eq(fby_decode_rows(decoder, &rows, &stride, 1, &count), FBY_REASON_SHAPE);
    cr_assert_eq(fby_decode_begin(decoder, &corner), FBY_REASON_NONE);
    cr_assert_eq(fby_decode_begin(decoder, &corner), FBY_REASON_SHAPE);
    cr_assert_gt(strlen(fby_decode_text(decoder)), 10);

    free(file.bytes);
    fby_decoder_destroy(&decoder);
}

Test(decode, regions_outside_the_picture_are_refused)
{
    sample_file file = sample_file_read("420.jpg"); /* 33 x 25 */
    static const fby_region_of outside[] = {
        {0, 0, 0, 1},  {0, 0, 1, 0},  {33, 0, 1, 1},         {0, 25, 1, 1},         {1, 0, 33, 1},
        {0, 1, 1, 25}, {0, 0, 34, 1}, {UINT32_MAX, 0, 2, 1}, {0, UINT32_MAX, 1, 2}, {2, 2, UINT32_MAX, 1},
    };
    fby_decoder *decoder = make_decoder();

    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        cr_assert_eq(open_file(decoder, &file, NULL), FBY_REASON_NONE);
        cr_assert_eq(fby_decode_begin(decoder, &outside[i]), FBY_REASON_SHAPE, "region %zu", i);
        cr_assert_not_null(strstr(fby_decode_text(decoder), "33 x 25"));
    }
    free(file.bytes);
    fby_decoder_destroy(&decoder);
}

/* Reads all rows, at most `most` at once, and checks that they are the whole's. */
static void check_rows(fby_decoder *decoder, const sample_file *file, const uint8_t *whole, uint32_t most)
{
    fby_picture_info info;
    uint32_t done = 0;
    uint32_t count = 1;

    cr_assert_eq(open_file(decoder, file, &info), FBY_REASON_NONE);
    fby_region_of all = {0, 0, info.w, info.h};
    cr_assert_eq(fby_decode_begin(decoder, &all), FBY_REASON_NONE);
    while (count) {
        const uint8_t *rows;
        size_t stride;
        unsigned margin = 0;

        cr_assert_eq(fby_decode_rows(decoder, &rows, &stride, most, &count), FBY_REASON_NONE);
        cr_assert_leq(count, most);
        for (uint32_t i = 0; i < count; i++, done++) {
            const uint8_t *row = rows + i * stride;
            cr_assert_arr_eq(row, whole + (size_t)done * info.w * 3, (size_t)info.w * 3);
            for (int k = 0; k < 64; k++) margin += row[(size_t)info.w * 3 + k];
        }
        (void)*(volatile unsigned *)&margin;
    }
    cr_assert_eq(done, info.h);
    cr_assert_eq(fby_decode_rows(decoder, &(const uint8_t *){NULL}, &(size_t){0}, 1, &count),
                 FBY_REASON_NONE);
    cr_assert_eq(count, 0);
}

Test(decode, rows_come_as_many_as_asked_for)
{
    sample_file files[SAMPLE_FILES_MOST];
    size_t count = sample_files_read(files);
    fby_decoder *decoder = make_decoder();
    int decoded = 0;

    for (size_t i = 0; i < count; i++) {
        fby_picture_info info;
        if (open_file(decoder, &files[i], &info)) continue;
        uint8_t *whole = malloc((size_t)info.w * info.h * 3);
        if (!fby_decode_into(decoder, NULL, whole, (size_t)info.w * 3)) {
            for (uint32_t most = 1; most <= 40; most += 13) check_rows(decoder, &files[i], whole, most);
            decoded++;
        }
        free(whole);
    }
    cr_assert_gt(decoded, 30);
    sample_files_free(files, count);
    fby_decoder_destroy(&decoder);
}

Test(decode, jpeg_rows_avoid_streaming_stores)
{
    sample_file file = sample_file_read("444.jpg");
    fby_decoder *decoder = make_decoder();
    fby_picture_info info;
    const uint8_t *rows;
    size_t stride;
    uint32_t count;

    cr_assert_eq(open_file(decoder, &file, &info), FBY_REASON_NONE);
    fby_region_of all = {0, 0, info.w, info.h};
    cr_assert_eq(fby_decode_begin(decoder, &all), FBY_REASON_NONE);
    cr_assert_eq(fby_decode_rows(decoder, &rows, &stride, 100, &count), FBY_REASON_NONE);
    cr_assert_eq(count, 16);
    cr_assert_eq((uintptr_t)rows % 32, 16);
    cr_assert_eq(stride % 32, 0);
    free(file.bytes);
    fby_decoder_destroy(&decoder);
}

Test(decode, an_open_picture_can_be_left)
{
    sample_file files[SAMPLE_FILES_MOST];
    size_t count = sample_files_read(files);
    fby_decoder *decoder = make_decoder();

    for (size_t i = 0; i < count; i++) {
        fby_picture_info info;
        const uint8_t *rows;
        size_t stride;
        uint32_t given;

        if (open_file(decoder, &files[i], &info)) continue;
        if (i % 3 == 0) continue;
        fby_region_of region = {0, 0, info.w, info.h};
        if (fby_decode_begin(decoder, &region)) continue;
        if (i % 3 == 1) fby_decode_rows(decoder, &rows, &stride, 1, &given);
    }
    fby_decoder_destroy(&decoder);
    sample_files_free(files, count);
}

/* A picture must not depend on the ones before it. */
Test(decode, tables_of_another_picture_are_not_used)
{
    sample_file file = sample_file_read("444.jpg");
    fby_decoder *decoder = make_decoder();
    fby_picture_info info;
    uint8_t pixels[33 * 25 * 3];

    cr_assert_eq(open_file(decoder, &file, &info), FBY_REASON_NONE);
    cr_assert_eq(fby_decode_into(decoder, NULL, pixels, 33 * 3), FBY_REASON_NONE);

    /* The quantization tables become comments. */
    for (size_t i = 0; i + 1 < file.length; i++) {
        if (file.bytes[i] == 0xFF && file.bytes[i + 1] == 0xDB) file.bytes[i + 1] = 0xFE;
    }
    fby_reason reason = open_file(decoder, &file, &info);
    if (!reason) reason = fby_decode_into(decoder, NULL, pixels, 33 * 3);
    cr_assert_eq(reason, FBY_REASON_CORRUPT);
    cr_assert_not_null(strstr(fby_decode_text(decoder), "libjpeg"));
    free(file.bytes);
    fby_decoder_destroy(&decoder);
}
