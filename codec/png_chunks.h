/* The chunks of a PNG file, walked and judged as Pillow's PngImagePlugin does: checksums are checked up to
 * the first IDAT and not after it, most malformed ancillary chunks are fatal, a missing end is not. Private
 * to codec/. */
#ifndef FBY_CODEC_PNG_CHUNKS_H
#define FBY_CODEC_PNG_CHUNKS_H

#include "codec/format.h"

enum {
    FBY_PNG_GRAY = 0,
    FBY_PNG_RGB = 2,
    FBY_PNG_PALETTE = 3,
    FBY_PNG_GRAY_ALPHA = 4,
    FBY_PNG_RGB_ALPHA = 6
};

typedef struct fby_png_chunks {
    uint32_t w, h;
    uint32_t bits;  /* of a sample; 0 until a header with a valid combination was seen */
    uint32_t color; /* FBY_PNG_* */
    bool interlaced;
    const uint8_t *palette; /* RGB entries, NULL where there are none */
    size_t palette_length;
    const uint8_t *transparency; /* the chunk tRNS, NULL where there is none */
    size_t transparency_length;
    /* For converting; NULL where there is none. The profile is the whole chunk, the packet isn't compressed.
     */
    const uint8_t *exif, *profile, *xmp;
    size_t exif_length, profile_length, xmp_length;

    bool animated; /* a valid animation header */
    uint64_t frames;
    bool boxed; /* the first frame covers only this part of the canvas */
    fby_region_of box;

    uint32_t exif_orientation;
    uint32_t xmp_orientation;

    size_t data_chunk;   /* where the first chunk of image data begins; 0 before it */
    size_t data_at;      /* and where its data does */
    size_t data_length;  /* what the file holds of all of them together */
    bool data_in_one;    /* they are one chunk */
    fby_reason short_of; /* why the walk over them ended, should more data be needed */
    bool sequence_seen;
    uint32_t sequence;
} fby_png_chunks;

/* Walks the whole file. A failure is one whatever the image data holds. */
fby_reason fby_png_chunks_read(fby_decoder *decoder, fby_png_chunks *out);
/* Copies the contents of all image data chunks, data_length bytes, to `out`. */
void fby_png_chunks_copy(const fby_decoder *decoder, const fby_png_chunks *chunks, uint8_t *out);

#endif
