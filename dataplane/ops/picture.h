/* The picture that ops act on: lazily, so that work is done once, late, and only where it is needed.
 *
 * An op says what it wants (crop, pad, resize, flip, adjust). What commutes exactly is kept pending: a crop
 * is a rectangle until somebody needs pixels, so the decoder reads only that region; a resize waits for the
 * end, where the decoder's rows go through the resampler and the conversion while they are in cache; a flip
 * is a mirrored rectangle or a reversed write. What does not commute exactly (a crop after a resize, a resize
 * after a flip) does the pending work first. Padding and colours need pixels: of the pending region only.
 * Nobody can tell from the pixels.
 *
 * A fby_picture is a value: copying it forks it; the copy borrows the original's pixels, which must live
 * longer. A picture and its memory belong to one thread. */
#ifndef FBY_DATAPLANE_PICTURE_H
#define FBY_DATAPLANE_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/decode.h"
#include "dataplane/ops/op.h"
#include "kernels/adjust.h"
#include "kernels/resample.h"

/* Limits of what an op may make; a sample that would pass them is bad, reason FBY_REASON_SHAPE. */
enum { FBY_PICTURE_SIDE = 65535 };
#define FBY_PICTURE_PIXELS (UINT64_C(16384) * 16384)

enum { FBY_TRACE_ADJUSTMENTS = 4 };

/* What an op did to a picture, for tools that do the same with another library. */
typedef struct fby_trace_step {
    const char *op;                          /* borrowed from the table of ops */
    uint32_t crop_x, crop_y, crop_w, crop_h; /* of the picture as it came, random_crop: of the padded one;
                                                crop_w is 0 where nothing was cropped */
    uint32_t pad_left, pad_top; /* added around it; right and bottom follow from out, and from crop */
    uint32_t out_w, out_h;      /* of the picture as it left */
    uint32_t flip_horizontal, flip_vertical; /* 0 or 1 */
    uint32_t adjustment_count;
    fby_adjustment adjustments[FBY_TRACE_ADJUSTMENTS]; /* in this order */
} fby_trace_step;

/* How a picture goes on outside its sides. */
typedef enum fby_border {
    FBY_BORDER_CONSTANT,
    FBY_BORDER_EDGE,     /* its outermost pixels repeated */
    FBY_BORDER_REFLECT,  /* mirrored at its outermost pixels: 2 1 | 0 1 2 | 1 0 */
    FBY_BORDER_SYMMETRIC /* mirrored at its sides: 1 0 | 0 1 2 | 2 1 */
} fby_border;

/* What is put around a picture: pixels at its sides; around the result, more at both sides of each. */
typedef struct fby_padding {
    uint32_t left, top, right, bottom, more_across, more_down;
    fby_border border;
    uint8_t fill[3]; /* of FBY_BORDER_CONSTANT */
} fby_padding;

/* One thread's decoder, resampler and buffers. */
typedef struct fby_picture_memory fby_picture_memory;

int fby_picture_memory_create(fby_picture_memory **out); /* 0, or FBY_ENOMEM */
void fby_picture_memory_destroy(fby_picture_memory **memory);
size_t fby_picture_memory_bytes(const fby_picture_memory *memory);
/* Gives back the buffers that an outsized picture made it take. No picture may be using them. */
void fby_picture_memory_trim(fby_picture_memory *memory);
/* Nanoseconds that decoders took since creation, on the monotonic clock. */
uint64_t fby_picture_memory_decode_ns(const fby_picture_memory *memory);
/* The same of resizes, decoding apart; the conversion of a picture that is written as it is resized included.
 */
uint64_t fby_picture_memory_resample_ns(const fby_picture_memory *memory);
/* JPEGs since creation, by entropy decoder. */
fby_jpeg_counts fby_picture_memory_jpegs(const fby_picture_memory *memory);
/* What the decoder said of its last failure; borrowed; "" where nothing. */
const char *fby_picture_memory_text(const fby_picture_memory *memory);

struct fby_picture {
    fby_picture_memory *memory; /* NULL: a traced picture has a size, but no pixels */
    const uint8_t *bytes;       /* encoded */
    size_t length;
    uint32_t source_w, source_h; /* the whole picture, decoded or not */

    /* Pixels of the rectangle `held` of the source, RGB, rows held.w * 3 bytes apart; NULL: still encoded. */
    const uint8_t *pixels;
    fby_region_of held;
    int32_t buffer; /* the buffer that this picture owns; -1: its pixels are borrowed */

    /* Pending, in this order: region of the source, resize, flips. */
    fby_region_of region;
    bool resize;
    uint32_t resize_w, resize_h;
    fby_filter filter;
    int pillow;
    bool flip_horizontal, flip_vertical;

    bool decode_failed; /* the failure is the decoder's, whatever op needed the pixels */
    /* Traced pictures: */
    bool decoded;         /* its pixels would have been needed */
    fby_region_of wanted; /* … and this is what of the source: valid where decoded */
    fby_trace_step *step; /* filled by the op being applied, where not NULL */
};

/* Starts from encoded bytes, 64 bytes past `length` readable, which must stay until the picture's end. */
void fby_picture_start(fby_picture *picture, fby_picture_memory *memory, const uint8_t *bytes, size_t length);
/* Starts from pixels, w x h, RGB, rows w * 3 bytes apart, with 64 readable bytes past their end; borrowed
 * until the picture's end. */
void fby_picture_start_pixels(fby_picture *picture, fby_picture_memory *memory, const uint8_t *pixels,
                              uint32_t w, uint32_t h);
/* Starts a traced picture of a known size. */
void fby_picture_start_trace(fby_picture *picture, uint32_t w, uint32_t h);
/* A traced picture in the state of `picture`, for looking ahead. */
fby_picture fby_picture_foresee(const fby_picture *picture);
/* A copy that borrows the pixels of `picture`. */
fby_picture fby_picture_fork(const fby_picture *picture);
/* Ends a picture, or a copy: its own buffer can be used again. */
void fby_picture_end(fby_picture *picture);

/* The size as the next op finds it. */
uint32_t fby_picture_w(const fby_picture *picture);
uint32_t fby_picture_h(const fby_picture *picture);

/* What ops do. Each returns FBY_REASON_NONE, or why the sample is bad. Rectangles and sizes are in the
 * picture's current coordinates and must fit. */
fby_reason fby_picture_open(fby_picture *picture, const fby_decode_options *options);
fby_reason fby_picture_crop(fby_picture *picture, uint32_t x, uint32_t y, uint32_t w, uint32_t h);
/* Pads the picture and cuts `window` out of the result; NULL: all of it. What the window doesn't show is not
 * decoded. */
fby_reason fby_picture_pad(fby_picture *picture, const fby_padding *padding, const fby_region_of *window);
/* Adjusts colours, FBY_TRACE_ADJUSTMENTS at most. */
fby_reason fby_picture_adjust(fby_picture *picture, const fby_adjustment *list, uint32_t count);
fby_reason fby_picture_resize(fby_picture *picture, uint32_t w, uint32_t h, fby_filter filter, int pillow);
void fby_picture_flip(fby_picture *picture, bool horizontal, bool vertical);

/* Does the pending resize and flips now, so that copies share the work. Nothing where none is pending. */
fby_reason fby_picture_settle(fby_picture *picture);
/* Decodes `region` of the source now, so that copies share the pixels; it holds the pending region. Nothing
 * where it is decoded. */
fby_reason fby_picture_hold(fby_picture *picture, const fby_region_of *region);
/* Writes the picture as it is now, all pending work done, to fby_picture_w * fby_picture_h RGB pixels. */
fby_reason fby_picture_copy(fby_picture *picture, uint8_t *out);
/* All that is left to do, but for writing: nothing fails or waits after it. */
fby_reason fby_picture_complete(fby_picture *picture);
/* Writes a completed picture, no traced one; nothing else may be done with any picture of its memory in
 * between. */
void fby_picture_write(fby_picture *picture, const fby_sink *sink, void *out);

#endif
