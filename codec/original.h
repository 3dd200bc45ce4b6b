/* Pictures as their files have them, for converting: gray stays gray, alpha and 16 bits stay, metadata comes
 * along. What `decode.h` gives of the same file is the upper 8 bits of the colours, bit for bit. */
#ifndef FBY_CODEC_ORIGINAL_H
#define FBY_CODEC_ORIGINAL_H

#include "codec/decode.h"

typedef struct fby_original {
    uint32_t channels; /* 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha; alpha isn't premultiplied */
    uint32_t bits;     /* 8: uint8_t; 9 to 16: uint16_t in the machine's byte order */
    /* The palette whose colours the pixels are, `channels` bytes an entry, where a pixel's entry can be told
     * from its colour: it is the first with that colour. Else no entries. Valid after fby_original_decode().
     */
    uint32_t entries;
    uint8_t palette[256 * 4];
} fby_original;

static inline size_t fby_original_pixel_bytes(const fby_original *original)
{
    return (size_t)original->channels * (original->bits == 8 ? 1 : 2);
}

typedef enum fby_metadata_kind {
    FBY_METADATA_EXIF, /* TIFF-structured data, without "Exif\0\0" */
    FBY_METADATA_ICC,
    FBY_METADATA_XMP,
    FBY_METADATA_KINDS
} fby_metadata_kind;

typedef struct fby_metadata {
    struct {
        uint8_t *bytes;
        size_t length; /* 0: none */
    } of[FBY_METADATA_KINDS];
} fby_metadata;

/* After fby_decode_open(), whose info has the size. A TIFF is turned, and says so no more; others are as they
 * lie. */
fby_reason fby_original_form(fby_decoder *decoder, fby_original *out);
/* The whole picture, rows without gaps; ends it as fby_decode_into() does. */
fby_reason fby_original_decode(fby_decoder *decoder, fby_original *original, void *out);
/* Before fby_original_decode(). `out` starts zeroed. */
fby_reason fby_original_metadata(fby_decoder *decoder, fby_metadata *out);
void fby_metadata_free(fby_metadata *metadata);

#endif
