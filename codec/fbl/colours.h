/* A tile's colours, for the modes const and palette. Private to codec/fbl/. */
#ifndef FBY_CODEC_FBL_COLOURS_H
#define FBY_CODEC_FBL_COLOURS_H

#include "codec/fbl/file.h"

enum { FBL_COLOUR_SLOTS = 1024, FBL_TOO_MANY = FBY_FBL_COLOURS + 1 };

/* A pixel's samples in one number. */
typedef uint64_t fbl_colour;

typedef struct fbl_colours {
    uint32_t count; /* FBL_TOO_MANY: more than a palette holds */
    fbl_colour colour[FBY_FBL_COLOURS];
    uint32_t uses[FBY_FBL_COLOURS];
    uint8_t index[FBY_FBL_TILE_SAMPLES]; /* of each pixel of the tile, row by row */
} fbl_colours;

/* Collects the colours of a tile whose samples are at `from`: the most used first. */
void fbl_colours_collect(const fbl_file *file, const fby_fbl_place *from, uint32_t width, uint32_t height,
                         fbl_colours *out);
/* A colour as samples. */
void fbl_colour_store(const fbl_file *file, fbl_colour colour, uint8_t *samples);

/* The picture's palette: colours that several tiles use, the most used first; and where each is. */
typedef struct fbl_shared {
    uint32_t count;
    fbl_colour colour[FBY_FBL_COLOURS];
    uint32_t sorted[FBY_FBL_COLOURS]; /* places in `colour`, by its numbers */
} fbl_shared;

/* Chooses it from all tiles' colours, which are reordered. */
void fbl_shared_choose(fbl_colour *colours, size_t count, fbl_shared *out);
/* The colour's place, or -1. */
int32_t fbl_shared_find(const fbl_shared *shared, fbl_colour colour);

#endif
