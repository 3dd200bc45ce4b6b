/* A picture of any format as an FBL file. A converter belongs to one thread and keeps its memory for reuse.
 */
#ifndef FBY_CODEC_CONVERT_H
#define FBY_CODEC_CONVERT_H

#include "codec/decode.h"

typedef struct fby_convert_options {
    uint32_t level;    /* fby_fbl_level */
    uint32_t max_side; /* a longer side is shrunk to it, the other by the same factor; 0: as it is */
} fby_convert_options;

typedef struct fby_converted {
    const void *bytes; /* borrowed until the converter's next call */
    size_t length;
    fby_picture_info source;
    uint32_t w, h;
} fby_converted;

typedef struct fby_converter fby_converter;

int fby_converter_create(fby_converter **out); /* 0, or -1 without memory */
void fby_converter_destroy(fby_converter **converter);

/* 64 bytes past `length` must be readable. What was encoded was decoded again and compared. */
fby_reason fby_convert(fby_converter *converter, const uint8_t *bytes, size_t length,
                       const fby_convert_options *options, fby_converted *out);
/* Why the last picture wasn't converted, one line. */
const char *fby_converter_text(const fby_converter *converter);

#endif
