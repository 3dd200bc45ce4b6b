/* EXIF, ICC profile and XMP packet of a JPEG. Private to codec/. */
#ifndef FBY_CODEC_JPEG_METADATA_H
#define FBY_CODEC_JPEG_METADATA_H

#include "codec/format.h"

/* Of a file whose header was read. */
fby_reason fby_jpeg_metadata(fby_decoder *decoder, fby_metadata *out);

#endif
