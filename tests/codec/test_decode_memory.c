/* Every allocation of a decode fails once, within most libraries too: the picture is then refused for want of
 * memory, and the decoder goes on to decode it. The allocator's functions are replaced for the whole program,
 * which a sanitizer's own replacement forbids: this program is not built with one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "codec/decode.h"
#include "tests/codec/sample_files.h"
#include "tests/support/test.h"

#define REPLACED __attribute__((visibility("default")))

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static __thread bool armed;
static __thread bool ours_only; /* spare the libraries' */
static __thread long left;      /* allocations until one fails */

static bool fails(void)
{
    if (!armed || left-- != 0) return false;
    errno = ENOMEM;
    return true;
}

REPLACED void *malloc(size_t size)
{
    return !ours_only && fails() ? NULL : __libc_malloc(size);
}

REPLACED void *calloc(size_t count, size_t size)
{
    return !ours_only && fails() ? NULL : __libc_calloc(count, size);
}

REPLACED void *realloc(void *old, size_t size)
{
    return !ours_only && fails() ? NULL : __libc_realloc(old, size);
}

REPLACED void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}

/* Two libraries of Debian 12 crash by themselves where memory is refused, which no caller can prevent:
 * libwebp 1.2.4 frees an uninitialised list when it gets none for a lossless picture's Huffman tables (or for
 * the alpha of a lossy one), and libtiff 4.5.0 goes on without its colour map, or with half a JPEG decoder.
 * Of their files only our own allocations, the only ones to be aligned, are refused. */
static bool library_survives(const sample_file *file)
{
    return strcmp(file->name, "lossless.webp") && strcmp(file->name, "alpha.webp") &&
           !strstr(file->name, ".tif");
}

static fby_reason decode(fby_decoder *decoder, const sample_file *file, uint8_t *pixels)
{
    fby_picture_info info;
    fby_reason reason = fby_decode_open(decoder, file->bytes, file->length, NULL, &info);

    return reason ? reason : fby_decode_into(decoder, NULL, pixels, (size_t)info.w * 3);
}

static void fail_each_allocation(const sample_file *file)
{
    static uint8_t pixels[64 * 64 * 3];
    static uint8_t wanted[sizeof pixels];
    fby_decoder *decoder = NULL;

    cr_assert_eq(fby_decoder_create(&decoder), 0);
    fby_reason verdict = decode(decoder, file, wanted);
    memcpy(pixels, wanted, sizeof pixels);
    fby_decoder_destroy(&decoder);

    for (long n = 0;; n++) {
        cr_assert_eq(fby_decoder_create(&decoder), 0);
        left = n;
        armed = true;
        fby_reason reason = decode(decoder, file, pixels);
        armed = false;
        bool failed = left < 0;
        cr_assert(reason == verdict || reason == FBY_REASON_MEMORY, "%s, allocation %ld: %s, %s", file->name,
                  n, fby_reason_name(reason), fby_decode_text(decoder));
        cr_assert_eq(decode(decoder, file, pixels), verdict, "%s after allocation %ld failed", file->name, n);
        if (!verdict) cr_assert_arr_eq(pixels, wanted, sizeof pixels);
        fby_decoder_destroy(&decoder);
        if (!failed) break;
        cr_assert_lt(n, 5000);
    }
}

Test(decode, failing_allocations, .timeout = 60)
{
    sample_file files[SAMPLE_FILES_MOST];
    size_t count = sample_files_read(files);

    for (size_t i = 0; i < count; i++) {
        ours_only = !library_survives(&files[i]);
        fail_each_allocation(&files[i]);
    }
    sample_files_free(files, count);
}

Test(decode, a_decoder_without_memory)
{
    fby_decoder *decoder = NULL;

    left = 0;
    ours_only = false;
    armed = true;
    int made = fby_decoder_create(&decoder);
    armed = false;
    cr_assert_eq(made, -1);
    cr_assert_null(decoder);
}
