/* A libjpeg that isn't the one that Forebay was built for: our entropy decoder sees it, says so, and stays
 * out. The library's functions are replaced by ones that answer otherwise; each test is a process of its own,
 * since a process asks once. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "codec/decode.h"
#include "tests/codec/sample_files.h"
#include "tests/support/test.h"

#define REPLACED __attribute__((visibility("default")))

static enum { HONEST, OTHER_VERSION, OTHER_LAYOUT, OTHER_CROP, OTHER_PIXELS } lie;

REPLACED struct jpeg_error_mgr *jpeg_std_error(struct jpeg_error_mgr *errors)
{
    static const char *messages[JMSG_LASTMSGCODE + 1];
    struct jpeg_error_mgr *(*real)(struct jpeg_error_mgr *);

    *(void **)&real = dlsym(RTLD_NEXT, "jpeg_std_error");
    real(errors);
    memcpy(messages, errors->jpeg_message_table, (size_t)errors->last_jpeg_message * sizeof *messages);
    messages[JMSG_COPYRIGHT] = "Copyright (C) 2031 somebody else";
    if (lie == OTHER_VERSION) errors->jpeg_message_table = messages;
    return errors;
}

REPLACED boolean jpeg_has_multiple_scans(j_decompress_ptr jpeg)
{
    boolean (*real)(j_decompress_ptr);

    *(void **)&real = dlsym(RTLD_NEXT, "jpeg_has_multiple_scans");
    return lie == OTHER_LAYOUT ? !real(jpeg) : real(jpeg);
}

REPLACED void jpeg_crop_scanline(j_decompress_ptr jpeg, JDIMENSION *x, JDIMENSION *w)
{
    void (*real)(j_decompress_ptr, JDIMENSION *, JDIMENSION *);

    *(void **)&real = dlsym(RTLD_NEXT, "jpeg_crop_scanline");
    if (lie != OTHER_CROP)
        real(jpeg, x, w);
    else
        *w = 24; /* … and does nothing */
}

REPLACED JDIMENSION jpeg_read_scanlines(j_decompress_ptr jpeg, JSAMPARRAY rows, JDIMENSION most)
{
    static int calls;
    JDIMENSION (*real)(j_decompress_ptr, JSAMPARRAY, JDIMENSION);

    *(void **)&real = dlsym(RTLD_NEXT, "jpeg_read_scanlines");
    JDIMENSION got = real(jpeg, rows, most);
    if (lie == OTHER_PIXELS && ++calls == 60) rows[0][5] ^= 1;
    return got;
}

static uint64_t decode_by_own(uint8_t *pixels)
{
    sample_file file = sample_file_read("420.jpg");
    fby_decoder *decoder = NULL;
    fby_picture_info info;

    cr_assert_eq(fby_decoder_create(&decoder), 0);
    cr_assert_eq(fby_decode_open(decoder, file.bytes, file.length, NULL, &info), FBY_REASON_NONE);
    cr_assert_eq(fby_decode_into(decoder, NULL, pixels, (size_t)info.w * 3), FBY_REASON_NONE);
    uint64_t own = fby_decoder_jpeg_counts(decoder).own;
    fby_decoder_destroy(&decoder);
    free(file.bytes);
    return own;
}

static void check_refused(const char *why)
{
    static uint8_t pixels[256 * 256 * 3];

    cr_assert(!fby_decode_own_entropy());
    const char *about = fby_decode_entropy_about();
    cr_assert_not_null(strstr(about, "libjpeg's: "), "%s", about);
    cr_assert_not_null(strstr(about, why), "%s", about);
    lie = HONEST;
    cr_assert_eq(decode_by_own(pixels), 0);
}

Test(jpeg_refused, another_version)
{
    lie = OTHER_VERSION;
    check_refused("isn't the version");
}

Test(jpeg_refused, structures_that_mean_something_else)
{
    lie = OTHER_LAYOUT;
    check_refused("laid out");
}

Test(jpeg_refused, another_way_to_crop)
{
    lie = OTHER_CROP;
    check_refused("crops otherwise");
}

Test(jpeg_refused, other_pixels)
{
    lie = OTHER_PIXELS;
    check_refused("came out otherwise");
}

/* Without a lie, replaced functions are no reason. */
Test(jpeg_refused, nothing_without_a_reason)
{
    static uint8_t pixels[256 * 256 * 3];

    cr_assert(fby_decode_own_entropy(), "%s", fby_decode_entropy_about());
    cr_assert_eq(decode_by_own(pixels), 1);
}
