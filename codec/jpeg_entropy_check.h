/* What the decoder and the check of it know of each other. Private to codec/jpeg_entropy*.c. */
#ifndef FBY_CODEC_JPEG_ENTROPY_CHECK_H
#define FBY_CODEC_JPEG_ENTROPY_CHECK_H

#include "codec/jpeg_entropy.h"

/* As fby_jpeg_entropy_attach(), whether the check said yes or has yet to. */
fby_jpeg_attached fby_jpeg_entropy_attach_unchecked(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg);

#endif
