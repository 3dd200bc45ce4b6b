/* What one format's decoder offers to decode.c, and the decoder that they share. Private to codec/. */
#ifndef FBY_CODEC_FORMAT_H
#define FBY_CODEC_FORMAT_H

#include "codec/buffer.h"
#include "codec/decode.h"
#include "codec/original.h"

/* Coordinates that a format gets are the file's own: decode.c turns pictures. */
typedef struct fby_codec {
    fby_format format;
    bool always_turned;   /* the orientation is applied whether it is asked for or not: Pillow does so */
    bool blames_the_file; /* the library doesn't say whether the file was wrong or memory was short */
    /* Reads the header: fills decoder->info (w, h as in the file) and checks nothing against max_pixels:
     * decode.c does. */
    fby_reason (*open)(fby_decoder *decoder);
    /* Either both of these, for a format that gives rows as it goes, … */
    fby_reason (*begin)(fby_decoder *decoder, const fby_region_of *region);
    fby_reason (*rows)(fby_decoder *decoder, const uint8_t **rows, size_t *stride, uint32_t most,
                       uint32_t *count);
    /* … or this one: the region as RGB into `out`, and the verdict on the whole file. */
    fby_reason (*region)(fby_decoder *decoder, const fby_region_of *region, uint8_t *out, size_t stride);
    /* For converting: what the file holds, and the whole of it in the file's coordinates. NULL: what RGB
     * becomes when gray has one channel. `metadata` adds what there is by fby_metadata_add(); NULL: none. */
    void (*form)(const fby_decoder *decoder, fby_original *out);
    fby_reason (*original)(fby_decoder *decoder, fby_original *original, uint8_t *out, size_t stride);
    fby_reason (*metadata)(fby_decoder *decoder, fby_metadata *out);
    /* Ends the open picture: memory that belongs to it is given back. May be called without one. */
    void (*close)(fby_decoder *decoder);
    /* Frees decoder->state[format]. */
    void (*destroy)(fby_decoder *decoder);
    size_t (*bytes)(const fby_decoder *decoder);
} fby_codec;

extern const fby_codec fby_codec_jpeg;
extern const fby_codec fby_codec_png;
extern const fby_codec fby_codec_webp;
extern const fby_codec fby_codec_tiff;
extern const fby_codec fby_codec_gif;
extern const fby_codec fby_codec_fbl;

typedef enum fby_decoder_stage { FBY_DECODER_IDLE, FBY_DECODER_OPEN, FBY_DECODER_ROWS } fby_decoder_stage;

struct fby_decoder {
    const uint8_t *bytes; /* borrowed from open to the last row */
    size_t length;
    fby_decode_options options;
    fby_picture_info info;
    const fby_codec *codec; /* of the open picture */
    fby_decoder_stage stage;

    uint32_t file_w, file_h; /* before turning */
    uint32_t turn;           /* 1-8: the orientation that is applied */
    fby_region_of wanted;    /* in the turned picture */
    uint32_t given;          /* rows of it */
    fby_buffer pixels;       /* of formats that decode a region at once */
    fby_buffer turned;
    const uint8_t *ready; /* rows to give from, where they don't come from the codec one by one */

    fby_jpeg_counts jpeg_counts;

    fby_buffer scratch[3];    /* for the codecs' own use during one picture */
    void *state[FBY_FORMATS]; /* made by a codec when it is first needed */
    char text[FBY_DECODE_TEXT];
};

/* Keeps what is to be said and returns `reason`. Text from a library may hold anything: it becomes one line.
 */
__attribute__((format(printf, 3, 4))) fby_reason fby_decode_fail(fby_decoder *decoder, fby_reason reason,
                                                                 const char *format, ...);

/* Appends to what there is of a kind. */
fby_reason fby_metadata_add(fby_decoder *decoder, fby_metadata *metadata, fby_metadata_kind kind,
                            const uint8_t *bytes, size_t length);
/* Keeps the palette, entries of original->channels bytes, if a colour tells the entry: see fby_original. */
void fby_original_palette(fby_original *original, const uint8_t *palette, uint32_t entries,
                          const bool used[256]);

#endif
