/* FBL: lossless pictures that decode fast and in parallel. docs/fbl.md specifies the format.
 *
 *     fby_error error = FBY_ERROR_INIT;
 *     fby_fbl_encoder *encoder = NULL;
 *     fby_fbl_image image = FBY_FBL_IMAGE_INIT;
 *     image.data = rgb, image.width = 640, image.height = 480, image.channels = 3, image.bits = 8;
 *     if (fby_fbl_encoder_create(&encoder)) return complain("no memory");
 *     if (fby_fbl_encode(encoder, &image, NULL, &bytes, &length, &error)) return complain(error.text);
 *     save(bytes, length);                          borrowed from the encoder until its next call
 *     fby_fbl_encoder_destroy(&encoder);
 *
 *     fby_fbl_decoder *decoder = NULL;
 *     fby_fbl_info info = FBY_FBL_INFO_INIT;
 *     fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
 *     if (fby_fbl_decoder_create(&decoder)) return complain("no memory");
 *     if (fby_fbl_open(decoder, bytes, length, NULL, &info, &error)) return complain(error.text);
 *     output.data = malloc((size_t)info.width * info.height * info.channels);      bits <= 8
 *     if (fby_fbl_decode(decoder, NULL, &output, &error)) return complain(error.text);
 *     fby_fbl_decoder_destroy(&decoder);
 *
 * A picture has 1 to 4 channels of 8 to 16 bits. Samples are uint8_t at 8 bits, else uint16_t in the
 * machine's byte order, in which 9 to 15 bits are the low ones. With 3 and 4 channels the first three are
 * taken to be red, green, blue, which only matters for the size.
 *
 * Handles belong to one thread at a time and share nothing; they keep their memory for the next picture.
 * Structures start with their own size, set by their _INIT macro, so that they can grow. Every function says
 * what went wrong by its reason; the text goes to `error`, which may be NULL. */
#ifndef FOREBAY_FBL_H
#define FOREBAY_FBL_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef FBY_API
#define FBY_API __attribute__((visibility("default")))
#endif

/* 0, or why not. Numbers never change; those below 64 are the reasons of bad samples. */
typedef enum fby_fbl_reason {
    FBY_FBL_OK = 0,
    FBY_FBL_FORMAT = 2,      /* not an FBL file */
    FBY_FBL_TRUNCATED = 3,   /* the data ends early */
    FBY_FBL_CORRUPT = 4,     /* the data contradicts the format, a bad checksum included */
    FBY_FBL_UNSUPPORTED = 5, /* a later version of the format */
    FBY_FBL_TOO_LARGE = 6,   /* more than max_pixels, or more than the format holds */
    FBY_FBL_MEMORY = 7,
    FBY_FBL_REGION = 14,   /* the region isn't within the picture */
    FBY_FBL_ARGUMENT = 64, /* the caller's: an image, option or call that can't be */
    FBY_FBL_VERIFY = 65    /* what was encoded doesn't decode to the same picture: a defect, please report */
} fby_fbl_reason;

/* "truncated", … */
FBY_API const char *fby_fbl_reason_name(int reason);

typedef enum fby_fbl_layout {
    FBY_FBL_HWC = 0, /* a pixel's samples side by side */
    FBY_FBL_CHW = 1  /* a plane a channel */
} fby_fbl_layout;

/* How a tile is coded. */
typedef enum fby_fbl_mode {
    FBY_FBL_MODE_RAW = 0,
    FBY_FBL_MODE_CONST = 1,   /* one colour */
    FBY_FBL_MODE_PALETTE = 2, /* up to 256 colours, coded by what the neighbours are */
    FBY_FBL_MODE_PACK = 3,    /* predicted, differences in fixed widths */
    FBY_FBL_MODE_RANS = 4     /* predicted, differences entropy-coded */
} fby_fbl_mode;

enum { FBY_FBL_HEADER_BYTES = 64, FBY_FBL_SLACK_BYTES = 64 };

/* --- reading
 * ----------------------------------------------------------------------------------------------------- */

typedef struct fby_fbl_info {
    size_t size;
    uint32_t width, height;
    uint32_t channels; /* 1 to 4 */
    uint32_t bits;     /* 8 to 16 */
    uint32_t tile_width, tile_height;
    uint32_t tiles_across, tiles_down;
    uint64_t prefix_bytes; /* header, tables and tile index: what planning needs */
    uint64_t file_bytes;
    uint64_t metadata_offset, metadata_bytes; /* where the chunks lie; 0 bytes: none */
} fby_fbl_info;

#define FBY_FBL_INFO_INIT                                                                                    \
    {                                                                                                        \
        sizeof(fby_fbl_info)                                                                                 \
    }

typedef struct fby_fbl_open_options {
    size_t size;
    uint64_t max_pixels; /* more are refused before anything is allocated; 0: 178,956,970 */
    bool partial;        /* only the prefix, and of the rest what is decoded, is there: see below */
    bool trust;          /* tiles' checksums aren't compared: they were, or the storage does it */
} fby_fbl_open_options;

#define FBY_FBL_OPEN_OPTIONS_INIT                                                                            \
    {                                                                                                        \
        sizeof(fby_fbl_open_options), 0, false, false                                                        \
    }

/* A rectangle of a picture, not empty. */
typedef struct fby_fbl_region {
    uint32_t x, y, width, height;
} fby_fbl_region;

/* Where decoded samples go. */
typedef struct fby_fbl_output {
    size_t size;
    void *data;
    size_t row_stride;   /* bytes from row to row; 0: rows without gaps */
    size_t plane_stride; /* CHW: bytes from plane to plane; 0: planes without gaps */
    uint32_t layout;     /* fby_fbl_layout */
    uint32_t threads; /* how many decode: the caller's and up to threads - 1 that end with the call; 0: 1 */
} fby_fbl_output;

#define FBY_FBL_OUTPUT_INIT                                                                                  \
    {                                                                                                        \
        sizeof(fby_fbl_output), NULL, 0, 0, FBY_FBL_HWC, 1                                                   \
    }

typedef struct fby_fbl_tile {
    size_t size;
    uint32_t mode;                /* fby_fbl_mode */
    uint32_t x, y, width, height; /* in the picture */
    uint64_t offset, bytes;       /* in the file */
    uint32_t checksum;            /* CRC32C of those bytes */
} fby_fbl_tile;

#define FBY_FBL_TILE_INIT                                                                                    \
    {                                                                                                        \
        sizeof(fby_fbl_tile)                                                                                 \
    }

/* Metadata: a type of four characters, and bytes. */
typedef struct fby_fbl_chunk {
    char type[4];
    const void *data;
    size_t length;
} fby_fbl_chunk;

typedef struct fby_fbl_decoder fby_fbl_decoder;

/* Whether the bytes begin as an FBL file does; 8 are enough. */
FBY_API bool fby_fbl_is(const void *bytes, size_t length);
/* Reads the header alone, FBY_FBL_HEADER_BYTES. */
FBY_API int fby_fbl_info_read(const void *bytes, size_t length, fby_fbl_info *info, fby_error *error);

FBY_API int fby_fbl_decoder_create(fby_fbl_decoder **out);
FBY_API void fby_fbl_decoder_destroy(fby_fbl_decoder **decoder);
/* Memory that it holds. */
FBY_API size_t fby_fbl_decoder_bytes(const fby_fbl_decoder *decoder);

/* Reads and checks header, tables and tile index. `options` and `info` may be NULL. `bytes` must stay until
 * the last decode.
 *
 * With `partial`, `length` counts from the file's beginning to the end of what there is, at least
 * prefix_bytes of it; of what lies behind the prefix only the tiles of the regions that are decoded, and
 * FBY_FBL_SLACK_BYTES behind each, have to be filled in, when they are decoded. Tiles are in row-major order,
 * so that a region takes one range of bytes for each row of tiles. Without `partial` the file must be whole.
 */
FBY_API int fby_fbl_open(fby_fbl_decoder *decoder, const void *bytes, size_t length,
                         const fby_fbl_open_options *options, fby_fbl_info *info, fby_error *error);
/* Tile `index` of the open picture, in row-major order. */
FBY_API int fby_fbl_tile_read(const fby_fbl_decoder *decoder, uint32_t index, fby_fbl_tile *out,
                              fby_error *error);
/* Decodes a region (NULL: the whole picture) of the open picture, as often as wanted. Only the tiles that the
 * region touches are read, and only those are judged. On failure the output's contents are undefined. */
FBY_API int fby_fbl_decode(fby_fbl_decoder *decoder, const fby_fbl_region *region,
                           const fby_fbl_output *output, fby_error *error);
/* The first metadata chunk of a type ("ICCP", "EXIF", "XMP "; four characters); borrowed from the file's
 * bytes. *data is NULL where there is none. */
FBY_API int fby_fbl_metadata(const fby_fbl_decoder *decoder, const char *type, const void **data,
                             size_t *length, fby_error *error);
/* Metadata chunk `index`, in the file's order, likewise; out->data is NULL behind the last. */
FBY_API int fby_fbl_metadata_at(const fby_fbl_decoder *decoder, uint32_t index, fby_fbl_chunk *out,
                                fby_error *error);

/* --- writing
 * ----------------------------------------------------------------------------------------------------- */

typedef enum fby_fbl_level {
    FBY_FBL_SMALL = 0, /* entropy-coded */
    FBY_FBL_FAST = 1   /* packed: larger by a fifth, encoded and decoded faster */
} fby_fbl_level;

typedef struct fby_fbl_image {
    size_t size;
    const void *data;
    uint32_t width, height; /* up to 2^31 - 1 each */
    uint32_t channels;      /* 1 to 4 */
    uint32_t bits;          /* 8 to 16; samples must be below 2^bits */
    uint32_t layout;        /* fby_fbl_layout */
    size_t row_stride;      /* as in fby_fbl_output */
    size_t plane_stride;
} fby_fbl_image;

#define FBY_FBL_IMAGE_INIT                                                                                   \
    {                                                                                                        \
        sizeof(fby_fbl_image)                                                                                \
    }

typedef struct fby_fbl_encode_options {
    size_t size;
    uint32_t level;       /* fby_fbl_level */
    uint32_t threads;     /* 0: 1 */
    bool unverified;      /* don't decode what was encoded and compare */
    uint32_t tile_width;  /* 16 to 128, a multiple of 16; 0: 128 */
    uint32_t tile_height; /* smaller tiles cost size, and spare decoding where regions are decoded */
    uint32_t chunks;      /* metadata */
    const fby_fbl_chunk *chunk;
} fby_fbl_encode_options;

#define FBY_FBL_ENCODE_OPTIONS_INIT                                                                          \
    {                                                                                                        \
        sizeof(fby_fbl_encode_options), FBY_FBL_SMALL, 1, false, 0, 0, 0, NULL                               \
    }

typedef struct fby_fbl_encoder fby_fbl_encoder;

FBY_API int fby_fbl_encoder_create(fby_fbl_encoder **out);
FBY_API void fby_fbl_encoder_destroy(fby_fbl_encoder **encoder);
/* Encodes a picture; `options` may be NULL. *bytes is borrowed from the encoder until its next call. The same
 * picture and options give the same bytes on every machine. */
FBY_API int fby_fbl_encode(fby_fbl_encoder *encoder, const fby_fbl_image *image,
                           const fby_fbl_encode_options *options, const void **bytes, size_t *length,
                           fby_error *error);

#ifdef __cplusplus
}
#endif
#endif
