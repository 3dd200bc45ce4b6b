/* Our entropy decoder against libjpeg's: damaged files have the same verdict, the same text and, where they
 * are good, the same pixels. That both are Pillow's is tested in tests/python/test_codec_jpeg.py. */
#include <stdlib.h>
#include <string.h>

#include "codec/decode.h"
#include "tests/codec/jpeg_paths.h"
#include "tests/codec/sample_files.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

enum { DAMAGES = 400, MARKER_DHT = 0xC4, MARKER_SOS = 0xDA, MARKER_RST0 = 0xD0 };

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* One below `most`. */
static size_t pick(uint64_t *state, size_t most)
{
    return draw(state) % most;
}

/* Where the marker's segment begins, behind the marker; 0: nowhere. */
static size_t find_marker(const uint8_t *bytes, size_t length, uint8_t low, uint8_t high, size_t nth)
{
    for (size_t at = 2; at + 1 < length; at++) {
        if (bytes[at] == 0xFF && bytes[at + 1] >= low && bytes[at + 1] <= high && !nth--) return at + 2;
    }
    return 0;
}

static size_t cut_out(uint8_t *bytes, size_t length, size_t at, size_t count)
{
    if (count > length - at) count = length - at;
    memmove(bytes + at, bytes + at + count, length - at - count);
    return length - count;
}

/* Damages a file in place, in one of the ways that files get damaged, and returns its new length, which is at
 * most twice the old one. */
static size_t damage(uint8_t *bytes, size_t length, const sample_file *other, uint64_t *state)
{
    size_t scan = find_marker(bytes, length, MARKER_SOS, MARKER_SOS, 0);
    size_t data = scan && scan + 14 < length ? scan + 12 : 2;
    size_t tables = find_marker(bytes, length, MARKER_DHT, MARKER_DHT, pick(state, 4));
    size_t restart = find_marker(bytes, length, MARKER_RST0, MARKER_RST0 + 7, pick(state, 4));
    size_t at = data + pick(state, length - data);

    switch (pick(state, 10)) {
    case 0: /* bits of the data flip */
        for (size_t n = 1 + pick(state, 6); n; n--)
            bytes[data + pick(state, length - data)] ^= (uint8_t)(1u << pick(state, 8));
        return length;
    case 1: /* … or of all of it */
        for (size_t n = 1 + pick(state, 6); n; n--)
            bytes[2 + pick(state, length - 2)] ^= (uint8_t)(1u << pick(state, 8));
        return length;
    case 2: /* the end is lost */
        return length - 1 - pick(state, length / 2);
    case 3:
        return length - 1 - pick(state, 12);
    case 4: /* some is lost on the way */
        return cut_out(bytes, length, at, 1 + pick(state, 40));
    case 5: /* another file goes on from here */
        at = at < other->length ? at : other->length - 1;
        memcpy(bytes + at, other->bytes + at, (other->length < 2 * length ? other->length : length) - at);
        return other->length < 2 * length ? other->length : length;
    case 6: /* a restart marker is lost, or says another number */
        if (!restart) return cut_out(bytes, length, at, 1);
        if (pick(state, 2)) return cut_out(bytes, length, restart - 2, 2);
        bytes[restart - 1] = (uint8_t)(MARKER_RST0 + pick(state, 8));
        return length;
    case 7: /* tables are broken: how many codes, or what they mean */
        if (tables && tables + 40 < length)
            bytes[tables + 2 + pick(state, 38)] = (uint8_t)pick(state, pick(state, 2) ? 4 : 256);
        return length;
    case 8: /* a marker where none should be */
        at = at + 1 < length ? at : length - 2;
        bytes[at] = 0xFF;
        bytes[at + 1] = (uint8_t)(pick(state, 2) ? 0xC0 + pick(state, 64) : pick(state, 256));
        return length;
    default: /* more data than there should be */
        at = pick(state, 2) ? at : length - 2;
        memmove(bytes + at + 3, bytes + at, length - at);
        for (int i = 0; i < 3; i++) bytes[at + (size_t)i] = (uint8_t)pick(state, 255);
        return length + 3;
    }
}

static size_t read_jpegs(sample_file *files)
{
    sample_file all[SAMPLE_FILES_MOST];
    size_t count = sample_files_read(all);
    size_t jpegs = 0;

    for (size_t i = 0; i < count; i++) {
        if (fby_format_of(all[i].bytes, all[i].length) == FBY_FORMAT_JPEG)
            files[jpegs++] = all[i];
        else
            sample_files_free(&all[i], 1);
    }
    cr_assert_gt(jpegs, 8);
    return jpegs;
}

/* A copy of exactly the file's length: a sanitizer sees whoever reads past it. */
static void check_damaged(jpeg_paths *paths, const sample_file *file, const sample_file *other, uint64_t seed)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    uint8_t *work = malloc(2 * file->length + 64);
    cr_assert_not_null(work);
    memcpy(work, file->bytes, file->length);
    size_t length = damage(work, file->length, other, &state);
    uint8_t *exact = malloc(length);
    cr_assert_not_null(exact);
    memcpy(exact, work, length);

    bool agree = jpeg_paths_agree(paths, exact, length, draw(&state));
    free(exact);
    free(work);
    cr_assert(agree, "%s, seed %llu: %s", file->name, (unsigned long long)seed, paths->difference);
}

Test(jpeg_entropy, damaged_files_have_libjpegs_verdict, .timeout = 3600)
{
    sample_file files[SAMPLE_FILES_MOST];
    size_t count = read_jpegs(files);
    uint64_t damages = test_scaled(DAMAGES);
    jpeg_paths paths;

    jpeg_paths_create(&paths);
    for (uint64_t n = 0; n < damages; n++) {
        for (size_t i = 0; i < count; i++)
            check_damaged(&paths, &files[i], &files[(i + n) % count], n * count + i);
    }
    cr_assert_gt(paths.good, damages);
    cr_assert_gt(paths.bad, damages);
    if (fby_decode_own_entropy()) {
        fby_jpeg_counts counts = fby_decoder_jpeg_counts(paths.ours);
        cr_assert_gt(counts.declined, damages);
        cr_assert_gt(counts.own - counts.declined, damages);
    }
    cr_assert_eq(fby_decoder_jpeg_counts(paths.libjpegs).own, 0, "asked for libjpeg's, ours was used");
    jpeg_paths_destroy(&paths);
    sample_files_free(files, count);
}

/* Every length that a file can be cut to. */
Test(jpeg_entropy, cut_files_have_libjpegs_verdict, .timeout = 600)
{
    sample_file files[SAMPLE_FILES_MOST];
    size_t count = read_jpegs(files);
    jpeg_paths paths;

    jpeg_paths_create(&paths);
    for (size_t i = 0; i < count; i++) {
        for (size_t length = 1; length <= files[i].length; length++) {
            uint8_t *exact = malloc(length);
            cr_assert_not_null(exact);
            memcpy(exact, files[i].bytes, length);
            bool agree = jpeg_paths_agree(&paths, exact, length, (uint32_t)length);
            free(exact);
            cr_assert(agree, "%s cut to %zu: %s", files[i].name, length, paths.difference);
        }
    }
    jpeg_paths_destroy(&paths);
    sample_files_free(files, count);
}

/* What is ours to decode is decoded by us to the end. */
Test(jpeg_entropy, plain_files_are_not_declined)
{
    static const char *const names[] = {"411.jpg",     "420.jpg",  "422-optimised.jpg", "440.jpg",
                                        "444.jpg",     "cmyk.jpg", "exif.jpg",          "gray.jpg",
                                        "restart.jpg", "ycck.jpg"};
    enum { COUNT = sizeof names / sizeof *names };
    static uint8_t pixels[256 * 256 * 3];
    fby_decoder *decoder = NULL;

    cr_assert_eq(fby_decoder_create(&decoder), 0);
    for (size_t i = 0; i < COUNT; i++) {
        sample_file file = sample_file_read(names[i]);
        fby_picture_info info;
        cr_assert_eq(fby_decode_open(decoder, file.bytes, file.length, NULL, &info), FBY_REASON_NONE);
        cr_assert_leq(info.w * info.h * 3, sizeof pixels);
        cr_assert_eq(fby_decode_into(decoder, NULL, pixels, (size_t)info.w * 3), FBY_REASON_NONE);
        fby_jpeg_counts counts = fby_decoder_jpeg_counts(decoder);
        cr_assert_eq(counts.own, fby_decode_own_entropy() ? i + 1 : 0, "%s", names[i]);
        cr_assert_eq(counts.declined, 0, "%s", names[i]);
        free(file.bytes);
    }
    fby_decoder_destroy(&decoder);
}

Test(jpeg_entropy, says_which_decoder_is_used)
{
    const char *about = fby_decode_entropy_about();

    cr_assert_eq(strstr(about, "our own") != NULL, fby_decode_own_entropy(), "%s", about);
    cr_assert_eq(strstr(about, "libjpeg's: ") != NULL, !fby_decode_own_entropy(), "%s", about);
#ifdef OURS_IS_BUILT
    cr_assert(fby_decode_own_entropy(), "it was built, and isn't used: %s", about);
#endif
}
