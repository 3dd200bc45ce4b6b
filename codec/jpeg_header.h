/* The marker segments of a JPEG file up to its first scan, judged as Pillow's JpegImagePlugin judges them
 * before it calls libjpeg: it refuses some files there that libjpeg would take. Private to codec/. */
#ifndef FBY_CODEC_JPEG_HEADER_H
#define FBY_CODEC_JPEG_HEADER_H

#include "codec/format.h"

/* Fills decoder->info from its bytes. */
fby_reason fby_jpeg_header_read(fby_decoder *decoder);

#endif
