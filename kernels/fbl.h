/* FBL's tiles: from their bytes to samples and back. docs/fbl.md is the specification; the names are its own.
 *
 * A tile is cut into micro-tiles, one a lane: 8 x 4 of them (rans, palette) or 8 x 8 (pack). Samples of all
 * lanes are coded in lockstep, `micro_height` row steps of `micro_width` samples. Lane column j lags its left
 * neighbour by one row, so that the samples to the left, above left and above right are known also where they
 * belong to other lanes. What is read has been checked to lie within the file; nothing else is trusted. */
#ifndef FBY_KERNELS_FBL_H
#define FBY_KERNELS_FBL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/lanes.h"
#include "kernels/tier.h"

enum {
    FBY_FBL_PLANES = 4,
    FBY_FBL_ACROSS = 8,       /* lanes side by side */
    FBY_FBL_RANS_DOWN = 4,    /* lanes one above the other, in 32 */
    FBY_FBL_PACK_DOWN = 8,    /* the same, in 64 */
    FBY_FBL_TILE_SIDE = 128,  /* at most */
    FBY_FBL_MICRO_WIDTH = 16, /* at most */
    FBY_FBL_CONTEXTS = 16,    /* of a set, at most */
    FBY_FBL_TOKENS = 8,       /* of a context, at most */
    FBY_FBL_SUMS = 64,        /* what contexts are chosen by */
    FBY_FBL_SCALE_BITS = 9,   /* frequencies of a context sum to 2^9 */
    FBY_FBL_SCALE = 1 << FBY_FBL_SCALE_BITS,
    FBY_FBL_FIRST_SUM = 8,  /* of the first sample of a lane */
    FBY_FBL_STEP_BITS = 7,  /* raw bits that are taken from a state at once */
    FBY_FBL_COLOURS = 252,  /* of a tile's own palette, at most */
    FBY_FBL_SHARED = 8192,  /* of the picture's, at most */
    FBY_FBL_STATES = 8,     /* that the lanes of a palette tile share */
    FBY_FBL_NEIGHBOURS = 4, /* that a palette's index is first compared with */
    FBY_FBL_STATE_END = 1 << 16,
    FBY_FBL_STEP_READS = 64, /* bytes that a step may read behind the end of its tile */
    FBY_FBL_WAYS = 4         /* tiles that a tier may decode at once, at most */
};

/* A token's numbers in bytes. More: raw in bits 0-2 (and anything in 3), the lowest bits of its start in 4,
 * of its end in 5. */
enum { FBL_LEAF_BASE, FBL_LEAF_MORE, FBL_LEAVES };

/* A lean set is one that vectors are quickest with: all frequencies are even and below 512, of up to four
 * tokens a context; contexts are up to four runs of sums. A context c and a token t (of those with slots)
 * have one of 16 places, 3 - c + 4 (t / 2) + 8 (t mod 2), in tables of bytes that fill a vector twice. */
enum { FBL_LEAN_CONTEXTS = 4, FBL_LEAN_TOKENS = 4, FBL_LEAN_PLACES = 16 };

/* Start and span are half of what a token's are; scale is 2^(8 - raw), 0 for 256. */
enum { FBL_LEAN_START, FBL_LEAN_SPAN, FBL_LEAN_BASE, FBL_LEAN_MASK, FBL_LEAN_SCALE, FBL_LEAN_LEAVES };

typedef struct fby_fbl_lean {
    bool possible;
    uint8_t threshold[FBL_LEAN_CONTEXTS - 1][2 * FBL_LEAN_PLACES]; /* the last sum of the contexts so far */
    uint8_t bound[2][2 * FBL_LEAN_PLACES]; /* of the two tokens behind, of the second of two; less 128 */
    uint8_t leaf[FBL_LEAN_LEAVES][2 * FBL_LEAN_PLACES];
} fby_fbl_lean;

/* A set's tokens as a search tree of three steps, for tables that are permuted: see fbl_rans_avx512.c. A step
 * goes left where a slot is below its bound; bit 4 + n of an index says that step n did, bits 0-3 are the
 * context. Only tokens with slots are in it; FBY_FBL_SCALE is the bound of those that there aren't. */
typedef struct fby_fbl_tree {
    uint16_t first[FBY_FBL_SUMS]; /* by sum */
    uint16_t second[2 * FBY_FBL_CONTEXTS], third[4 * FBY_FBL_CONTEXTS];
    uint8_t base[8 * FBY_FBL_CONTEXTS], raw[8 * FBY_FBL_CONTEXTS];
    bool shallow; /* no context has more than four tokens: all first steps go left */
} fby_fbl_tree;

/* What one plane's residuals, or a palette's indices, are coded with. Entry 8 * context + token. */
typedef struct fby_fbl_set {
    uint8_t context[FBY_FBL_SUMS];
    uint32_t shift; /* of the sum, before it is capped */
    uint32_t contexts;
    uint8_t tokens[FBY_FBL_CONTEXTS];
    uint16_t frequency[FBY_FBL_CONTEXTS * FBY_FBL_TOKENS];
    uint16_t start[FBY_FBL_CONTEXTS * FBY_FBL_TOKENS]; /* sum of the frequencies before */
    uint16_t base[FBY_FBL_CONTEXTS * FBY_FBL_TOKENS];  /* the first value of the class */
    uint8_t raw[FBY_FBL_CONTEXTS * FBY_FBL_TOKENS];    /* 2^raw values in it */
    /* Made of the above by fby_fbl_set_finish. */
    uint8_t entry[FBY_FBL_CONTEXTS * FBY_FBL_SCALE]; /* of a slot */
    fby_fbl_tree tree;
    /* For vectors, by context: see fbl_rans_avx2.c. They can do all sets but those with a first slot of its
     * own. */
    bool in_vectors;
    uint8_t bound[2][FBY_FBL_TOKENS][2 * FBY_FBL_CONTEXTS]; /* [slot's lowest bit][token], less 128; twice */
    uint8_t leaf[FBL_LEAVES][FBY_FBL_TOKENS][2 * FBY_FBL_CONTEXTS];
    fby_fbl_lean lean;
} fby_fbl_set;

void fby_fbl_set_finish(fby_fbl_set *set);

typedef struct fby_fbl_shape {
    uint32_t width, height; /* of the tile */
    uint32_t micro_width, micro_height;
    uint32_t down; /* lanes one above the other */
} fby_fbl_shape;

static inline fby_fbl_shape fby_fbl_rans_shape(uint32_t width, uint32_t height)
{
    uint32_t w = (width + FBY_FBL_ACROSS - 1) / FBY_FBL_ACROSS;
    uint32_t h = (height + FBY_FBL_RANS_DOWN - 1) / FBY_FBL_RANS_DOWN;
    return (fby_fbl_shape){width, height, w < 2 ? 2 : w, h < 2 ? 2 : h, FBY_FBL_RANS_DOWN};
}

static inline fby_fbl_shape fby_fbl_pack_shape(uint32_t width, uint32_t height)
{
    uint32_t w = (width + FBY_FBL_ACROSS - 1) / FBY_FBL_ACROSS;
    uint32_t h = (height + FBY_FBL_PACK_DOWN - 1) / FBY_FBL_PACK_DOWN;
    return (fby_fbl_shape){width, height, (w + 3) & ~3u, (h + 1) & ~1u, FBY_FBL_PACK_DOWN};
}

/* The tile's row that a lane codes in a row step; not below its height: padding. */
static inline uint32_t fby_fbl_row_of(const fby_fbl_shape *shape, uint32_t lane, uint32_t step)
{
    uint32_t y = lane / FBY_FBL_ACROSS * shape->micro_height + step, lag = lane % FBY_FBL_ACROSS;
    uint32_t rows = shape->down * shape->micro_height; /* 8 at least, more than any lag */
    return y < lag ? y + rows - lag : y - lag;
}

/* The channel that plane p holds: green comes first. */
static inline uint32_t fby_fbl_channel_of(uint32_t plane, uint32_t channels)
{
    return channels >= 3 && plane < 2 ? 1 - plane : plane;
}

/* Where a tile's samples are: interleaved, or planar, strides in bytes. Of 8 bits a byte each, else two. */
typedef struct fby_fbl_place {
    uint8_t *at;
    size_t row;
    size_t plane; /* planar: from channel to channel */
    bool planar;
} fby_fbl_place;

typedef struct fby_fbl_coded {
    fby_fbl_shape shape;
    uint32_t channels, bits;
    uint32_t minus_green;       /* bit p: plane p is a difference to green */
    const uint8_t *bytes, *end; /* behind the head: FBY_FBL_STEP_READS more are readable */
    fby_fbl_place place;
    bool good; /* after decoding: the tile was what it should be */
} fby_fbl_coded;

typedef struct fby_fbl_rans {
    fby_fbl_coded coded;                   /* bytes: states, then words */
    uint32_t predictor[FBY_FBL_PLANES][2]; /* bit `lane` of both: the low and the high bit */
    const fby_fbl_set *set[FBY_FBL_PLANES];
} fby_fbl_rans;

typedef struct fby_fbl_palette {
    fby_fbl_coded coded; /* bytes: states, then words */
    uint32_t colours;
    const uint8_t *colour; /* samples of all channels for each */
    const fby_fbl_set *set;
    const fby_fbl_set *low; /* indices have two symbols, the second by this set; else NULL */
} fby_fbl_palette;

typedef struct fby_fbl_pack {
    fby_fbl_coded coded; /* bytes: width codes, then groups */
    uint64_t predictor[FBY_FBL_PLANES][2];
    uint32_t left_out[FBY_FBL_PLANES]; /* the width that has no code */
} fby_fbl_pack;

/* Bytes of all width codes of a tile. */
static inline size_t fby_fbl_pack_codes(const fby_fbl_shape *shape, uint32_t channels, uint32_t bits)
{
    return (size_t)shape->micro_height / 2 * (shape->micro_width / 4) * channels * (bits == 8 ? 24 : 32);
}

/* ---- the encoder's side ---- */

enum {
    FBY_FBL_TILE_SAMPLES = FBY_FBL_TILE_SIDE * FBY_FBL_TILE_SIDE,
    FBY_FBL_VALUES = 256,  /* that residuals are counted by, at most */
    FBY_FBL_LOOK_STEPS = 4 /* row steps, of which pack's predictors are chosen by the first two */
};

/* About 2 log2(1 + z) of a value, by its low four bits; by its high four: the larger counts. */
#define FBL_COSTS_LOW  0, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8
#define FBL_COSTS_HIGH 0, 8, 10, 11, 12, 13, 13, 14, 14, 14, 15, 15, 15, 15, 16, 16

/* A tile being encoded. Samples are [plane][row step][x][lane], one or two bytes each; aligned to 64. */
typedef struct fby_fbl_work {
    fby_fbl_shape shape;
    uint32_t channels, bits;
    fby_fbl_place from;
    uint32_t minus_green;
    uint64_t predictor[FBY_FBL_PLANES][2];
    uint32_t left_out[FBY_FBL_PLANES];
    void *samples; /* FBY_FBL_PLANES * FBY_FBL_TILE_SAMPLES * 2 bytes */
    void
        *residuals; /* zigzag values: rans in coding order, [row step][plane][x][lane]; pack as samples are */
    uint8_t *sums;  /* rans and palette: of each residual */
} fby_fbl_work;

/* A lean set as vectors encode with it: tables of places, twice each, as fby_fbl_lean's. With f a frequency,
 * x / f is x * reciprocal >> (32 + shift) for even x. */
enum {
    FBL_PUSH_BASE,
    FBL_PUSH_START,
    FBL_PUSH_SPAN, /* f / 2 */
    FBL_PUSH_GAP,  /* 256 - f / 2 */
    FBL_PUSH_RAW,
    FBL_PUSH_ROOM, /* 24 - raw: a state gives a word away where it has f / 2 or more above as many bits */
    FBL_PUSH_SHIFT,
    FBL_PUSH_LEAVES
};

typedef struct fby_fbl_push {
    bool possible; /* the set is lean, values are of 8 bits */
    uint8_t threshold[FBL_LEAN_CONTEXTS - 1][2 * FBL_LEAN_PLACES];
    uint8_t bound[2][2 * FBL_LEAN_PLACES]; /* of values, as fby_fbl_lean's are of slots */
    uint8_t leaf[FBL_PUSH_LEAVES][2 * FBL_LEAN_PLACES];
    uint32_t reciprocal[FBL_LEAN_PLACES];
} fby_fbl_push;

void fby_fbl_push_make(const fby_fbl_set *set, uint32_t bits, fby_fbl_push *push);

typedef struct fby_fbl_kernels {
    uint32_t ways; /* tiles of one shape and one number of channels that `rans` takes at once */
    void (*rans)(fby_fbl_rans *const *tile, uint32_t count);
    void (*palette)(fby_fbl_palette *tile);
    void (*pack)(fby_fbl_pack *tile);
    /* Samples to lanes; chooses what green is subtracted from, and predictors; makes residuals. `shift` is
     * the sets' (rans). */
    void (*model_rans)(fby_fbl_work *work, const uint32_t *shift);
    void (*model_pack)(fby_fbl_work *work);
    /* Residuals to width codes and groups; returns the bytes written. Up to 8 more are overwritten. */
    size_t (*encode_pack)(fby_fbl_work *work, uint8_t *out);
    /* Codes `count` symbols of 32 lanes, the last first, by a set that it is possible for: words go before
     * `at`, up to 16 bytes more are overwritten. Returns where the words begin. NULL: see codec/fbl/words.c.
     */
    uint8_t *(*push)(const fby_fbl_push *push, const uint8_t *values, const uint8_t *sums, uint32_t count,
                     uint32_t *state, uint8_t *at);
    uint32_t (*crc32c)(uint32_t crc, const void *bytes, size_t length);
} fby_fbl_kernels;

extern const fby_fbl_kernels fby_fbl_kernels_c, fby_fbl_kernels_avx2, fby_fbl_kernels_avx512;

/* Of a tier that this CPU supports. */
const fby_fbl_kernels *fby_fbl_kernels_of(fby_tier tier);

#endif
