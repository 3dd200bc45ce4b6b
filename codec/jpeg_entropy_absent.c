/* In place of jpeg_entropy.c where libjpeg's headers aren't of a version that it was checked with, or lack
 * jpegint.h: libjpeg decodes alone. */
#include <stdint.h>

#include "codec/jpeg_entropy.h"

#define TEXT_OF(Number) #Number
#define TEXT(Macro)     TEXT_OF(Macro)

#ifdef LIBJPEG_TURBO_VERSION
#define BUILT_WITH "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION)
#else
#define BUILT_WITH "a libjpeg that isn't libjpeg-turbo"
#endif

fby_jpeg_entropy *fby_jpeg_entropy_create(void)
{
    static uint8_t nothing;

    return (fby_jpeg_entropy *)&nothing;
}

void fby_jpeg_entropy_destroy(fby_jpeg_entropy **entropy)
{
    *entropy = NULL;
}

size_t fby_jpeg_entropy_bytes(const fby_jpeg_entropy *entropy)
{
    (void)entropy;
    return 0;
}

void fby_jpeg_entropy_trim(fby_jpeg_entropy *entropy)
{
    (void)entropy;
}

fby_jpeg_attached fby_jpeg_entropy_attach(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    (void)entropy;
    (void)jpeg;
    return FBY_JPEG_NOT_ATTACHED;
}

bool fby_jpeg_entropy_declined(const fby_jpeg_entropy *entropy)
{
    (void)entropy;
    return false;
}

const char *fby_jpeg_entropy_refused(void)
{
    return "Forebay was built with " BUILT_WITH ", whose internal interface it doesn't know";
}
