/* Colours of tiles and pictures, for the modes const and palette. Private to codec/fbl/. */
#ifndef FBY_CODEC_FBL_COLOURS_H
#define FBY_CODEC_FBL_COLOURS_H

#include "codec/fbl/file.h"
#include "kernels/buffer.h"

enum { FBL_TOO_MANY = FBY_FBL_COLOURS + 1 };

/* A pixel's samples in one number. */
typedef uint64_t fbl_colour;

/* A tile's colours. */
typedef struct fbl_colours {
    uint32_t count; /* FBL_TOO_MANY: more than a tile's palette holds, or more than pays */
    fbl_colour colour[FBY_FBL_COLOURS];
    uint32_t uses[FBY_FBL_COLOURS];
    uint16_t index[FBY_FBL_TILE_SAMPLES]; /* of each pixel of the tile, row by row */
} fbl_colours;

/* Collects the colours of a tile whose samples are at `from`: the most used first. Gives up (FBL_TOO_MANY)
 * where neighbours differ more often than once in `run` pixels. */
void fbl_colours_collect(const fbl_file *file, const fby_fbl_place *from, uint32_t width, uint32_t height,
                         uint32_t run, fbl_colours *out);
/* A colour as samples. */
void fbl_colour_store(const fbl_file *file, fbl_colour colour, uint8_t *samples);

/* The picture's palette, the most used first, and where each colour is. */
typedef struct fbl_shared {
    uint32_t count;
    fbl_colour colour[FBY_FBL_SHARED];
    uint16_t sorted[FBY_FBL_SHARED]; /* places in `colour`, by its numbers */
} fbl_shared;

/* All colours of the picture. 0; 1 where they are more than `most`, FBY_FBL_SHARED at most; -1 without
 * memory. */
int fbl_shared_collect(const fbl_file *file, const fby_fbl_place *from, uint32_t most, fby_buffer *memory,
                       fbl_shared *out);
/* Those that several tiles use, of all tiles' colours, which are reordered; 256 at most. 0, or -1 without
 * memory. */
int fbl_shared_choose(fbl_colour *colours, size_t count, fbl_shared *out);
/* The colour's place, or -1. */
int32_t fbl_shared_find(const fbl_shared *shared, fbl_colour colour);
/* The places of a tile's pixels in a palette that has all of them. */
void fbl_shared_indices(const fbl_file *file, const fby_fbl_place *from, uint32_t width, uint32_t height,
                        const fbl_shared *shared, uint16_t *index);

#endif
