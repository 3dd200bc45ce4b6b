/* Pictures from bytes: one decoder interface over libjpeg-turbo, zlib, libwebp, libtiff, giflib and our
 * own FBL.
 *
 * The format is found by content. What comes out is 3-channel interleaved u8 RGB, as Pillow's
 * Image.open(...).convert("RGB") gives it bit for bit (16-bit gray by >> 8; README.md lists all exceptions).
 * As with Pillow, a TIFF's orientation is always applied, the other formats' only with `exif`. Of an
 * animation or a multi-page file the first frame, counted in fby_picture_info.frames.
 *
 * A decoder belongs to one thread; it keeps its memory for reuse and gives back what an outsized picture made
 * it take. */
#ifndef FBY_CODEC_DECODE_H
#define FBY_CODEC_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fby_format {
    FBY_FORMAT_UNKNOWN,
    FBY_FORMAT_JPEG,
    FBY_FORMAT_PNG,
    FBY_FORMAT_WEBP,
    FBY_FORMAT_TIFF,
    FBY_FORMAT_GIF,
    FBY_FORMAT_FBL,
    /* recognised, to be refused by name */
    FBY_FORMAT_BMP,
    FBY_FORMAT_PNM,
    FBY_FORMAT_JPEG_XL,
    FBY_FORMAT_HEIF,
    FBY_FORMAT_AVIF,
    FBY_FORMAT_HTML,
    FBY_FORMATS
} fby_format;

/* Why a sample is bad; the reason codes that users see. Numbers never change. */
typedef enum fby_reason {
    FBY_REASON_NONE = 0,
    FBY_REASON_EMPTY = 1,       /* zero bytes */
    FBY_REASON_FORMAT = 2,      /* no known picture format, or one without a decoder */
    FBY_REASON_TRUNCATED = 3,   /* the data ends early */
    FBY_REASON_CORRUPT = 4,     /* the data contradicts the format, a bad checksum included */
    FBY_REASON_UNSUPPORTED = 5, /* a valid variant that isn't decoded (12-bit JPEG, …) */
    FBY_REASON_TOO_LARGE = 6,   /* more than max_pixels, or a side over the library's limit */
    FBY_REASON_MEMORY = 7,
    FBY_REASON_MISSING = 8,    /* the file is gone */
    FBY_REASON_UNREADABLE = 9, /* permission, or it is a folder */
    FBY_REASON_CHANGED = 10,   /* not the size that the index knows */
    FBY_REASON_IO = 11,
    FBY_REASON_TIMEOUT = 12, /* no answer within sample_timeout */
    FBY_REASON_CRASHED = 13, /* was in flight at two crashes */
    FBY_REASON_SHAPE = 14,   /* an op can't take a picture of this shape */
    FBY_REASONS
} fby_reason;

const char *fby_reason_name(fby_reason reason); /* "truncated", … */
const char *fby_format_name(fby_format format); /* "JPEG", … */

typedef struct fby_picture_info {
    fby_format format;
    uint32_t w, h;        /* after EXIF orientation where that is asked for */
    uint32_t channels;    /* in the file: 1 gray, 2 gray + alpha, 3, 4 */
    uint32_t bits;        /* of a sample in the file */
    uint32_t frames;      /* 1, or how many an animation or multi-page file has (counting may stop at 2) */
    uint32_t orientation; /* EXIF, 1-8; 1 where absent */
} fby_picture_info;

typedef struct fby_decode_options {
    uint64_t max_pixels; /* checked against the header before anything is allocated; 0: 178956970, Pillow's
                            bomb limit x 2 */
    bool fast;           /* JPEG: DCT-scaled and IFAST decoding may be used: pixels differ */
    bool exif;           /* apply EXIF orientation */
    bool tolerate_missing_eoi; /* JPEG: data that only lacks its end marker is good */
    bool libjpeg_entropy; /* JPEG: libjpeg's entropy decoder also where ours could do it: the pixels are the
                             same */
} fby_decode_options;

/* A rectangle of a picture: x + w <= picture's w, y + h <= its h, w and h >= 1. */
typedef struct fby_region_of {
    uint32_t x, y, w, h;
} fby_region_of;

enum { FBY_DECODE_TEXT = 160 };

typedef struct fby_decoder fby_decoder;

int fby_decoder_create(fby_decoder **out); /* 0, or -1 without memory */
void fby_decoder_destroy(fby_decoder **decoder);
size_t fby_decoder_bytes(const fby_decoder *decoder);

/* By content alone; reads at most the first 64 bytes. */
fby_format fby_format_of(const uint8_t *bytes, size_t length);
/* Whether a format has a decoder. */
bool fby_format_decoded(fby_format format);

/* Reads the header. `bytes` must stay until the last row is read. 64 bytes past `length` must be readable. */
fby_reason fby_decode_open(fby_decoder *decoder, const uint8_t *bytes, size_t length,
                           const fby_decode_options *options, fby_picture_info *info);
/* All of these return FBY_REASON_SHAPE for a region outside the picture or a call out of order; any failure
 * ends the picture: open the next.
 *
 * Starts decoding one region, exactly the pixels that a whole decode has there. Formats that can't decode
 * less decode whole and cut. Call after open, once per open. */
fby_reason fby_decode_begin(fby_decoder *decoder, const fby_region_of *region);
/* The next rows of the region, 1..`most` of them (a JPEG gives up to 16 at a time while they are in cache).
 * On return *rows is borrowed until the next call, *stride bytes apart, 64 bytes readable past each row's
 * end; *count is 0 after the last row. A failure may come at any row: what was read before counts for
 * nothing. After the last row the whole file has been judged the way Pillow judges it when it loads it: a
 * file that Pillow refuses is refused, also for a region; of an FBL its head and the tiles of the region. */
fby_reason fby_decode_rows(fby_decoder *decoder, const uint8_t **rows, size_t *stride, uint32_t most,
                           uint32_t *count);
/* What the library said, one line, for the last failure; borrowed until the next open; "" where nothing was
 * said. */
const char *fby_decode_text(const fby_decoder *decoder);

/* JPEG: which entropy decoder is used, and why, one line; fby_decode_own_entropy(): whether it is ours. The
 * first call, or the first JPEG, tries it on a few pictures, in a millisecond or two. */
const char *fby_decode_entropy_about(void);
bool fby_decode_own_entropy(void);

typedef struct fby_jpeg_counts {
    uint64_t own;      /* pictures that our entropy decoder began … */
    uint64_t declined; /* … and those of them that libjpeg's then decoded from the start */
} fby_jpeg_counts;

/* Since the decoder was created. */
fby_jpeg_counts fby_decoder_jpeg_counts(const fby_decoder *decoder);

/* The whole picture (or region) into `out`, rows `stride` bytes apart: open, begin, rows, with the rows
 * copied. */
fby_reason fby_decode_into(fby_decoder *decoder, const fby_region_of *region, uint8_t *out, size_t stride);

#endif
