/* What a tier provides to the resampler and the sink: one table of functions per tier, C overridden where it
 * pays.
 *
 * Rows between the passes are u8 in the *paired* layout, which suits every tier: rows 2k and 2k+1 lie in one
 * run of memory, and so do columns x and x+8 of each 16. A group of 16 columns is 32 bytes, dword i of it
 * being
 *
 *     [ row 2k, column i | row 2k, column i+8 | row 2k+1, column i | row 2k+1, column i+8 ]    i = 0..7
 *
 * so that `and 0x00FF00FF` leaves two vertical neighbours of columns 0..7 as a pair of 16-bit numbers, ready
 * for a multiply-add, and a shift by 8 those of columns 8..15. Groups come in twos, for vectors of 64 bytes.
 * A resized picture has its three channels' groups one after the other; a picture before its horizontal pass
 * is paired as rows of 3 w bytes, interleaved as they are. */
#ifndef FBY_KERNELS_RESAMPLE_KERNELS_H
#define FBY_KERNELS_RESAMPLE_KERNELS_H

#include "kernels/taps.h"

enum {
    FBY_BLOCK_ROWS = 8,    /* rows that a horizontal pass takes at once */
    FBY_GROUP = 16,        /* columns of a group */
    FBY_GROUP_BYTES = 32,  /* two rows of it */
    FBY_READ_PAST_END = 64 /* bytes readable past a row's end */
};

/* Groups that hold n columns: an even number. */
static inline size_t fby_groups(size_t n)
{
    return (n + 2 * FBY_GROUP - 1) / (2 * FBY_GROUP) * 2;
}

/* Where column x of row y & 1 lies in a pair of rows. */
static inline size_t fby_paired(size_t x, size_t y)
{
    return x / FBY_GROUP * FBY_GROUP_BYTES + (x & 7) * 4 + (x >> 3 & 1) + (y & 1) * 2;
}

/* The horizontal pass of one picture. */
typedef struct fby_horizontal fby_horizontal;
struct fby_horizontal {
    const fby_taps *taps;
    bool flip;
    fby_buffer table; /* the tier's: taps as it wants them */
    fby_buffer work;  /* the tier's: pixels as it wants them */
    uint32_t taps_per_output;
    uint32_t capacity; /* pixels that `work` holds */
    /* Resamples 8 interleaved rows and writes them as 4 pairs, `pair_bytes` apart. */
    void (*run)(const fby_horizontal *horizontal, const uint8_t *const row[FBY_BLOCK_ROWS], uint8_t *pairs,
                size_t pair_bytes);
};

/* The vertical pass of one picture: what pairs of rows each output row sums, with what weights. */
typedef struct fby_vertical {
    const fby_taps *taps;
    const uint32_t *first_pair, *pairs;
    const size_t *at; /* per output row: its first entry of `weight` */
    const uint32_t
        *weight; /* per pair: low 11 bits of both rows' weights, then the high bits: 16 + 16 bits each */
    fby_buffer memory;
} fby_vertical;

/* One output row's share of it, its pairs of rows beginning at `pairs`, `pair_bytes` apart. */
typedef struct fby_vertical_row {
    const uint8_t *pairs;
    size_t pair_bytes;
    uint32_t count;         /* of pairs */
    const uint32_t *weight; /* two words a pair */
} fby_vertical_row;

typedef struct fby_kernels {
    /* Lays the taps out and chooses `run`. 0, or -1 without memory. */
    int (*horizontal_prepare)(fby_horizontal *horizontal);
    /* Writes `bytes` bytes of 8 rows as 4 pairs. */
    void (*pair_rows)(const uint8_t *const row[FBY_BLOCK_ROWS], size_t bytes, uint8_t *pairs,
                      size_t pair_bytes);
    /* Sums `groups` groups (an even number) to `groups` x 16 bytes. */
    void (*vertical_bytes)(const fby_vertical_row *row, size_t groups, uint8_t *out);
    /* The same, and converts the first n columns of one channel for a sink that is exact by multiplication.
     */
    void (*vertical_floats)(const fby_vertical_row *row, const fby_sink *sink, int channel, size_t n,
                            void *out);
    /* n values of one channel to the sink's element type. */
    void (*convert_plane)(const fby_sink *sink, int channel, const uint8_t *in, size_t n, void *out);
    /* n interleaved pixels to the sink's element type. */
    void (*convert_rgb)(const fby_sink *sink, const uint8_t *in, size_t n, void *out);
    /* n interleaved pixels to three planes, `plane` bytes apart, mirrored where `flip`. */
    void (*planes_of_rgb)(const uint8_t *rgb, size_t n, bool flip, uint8_t *planes, size_t plane);
    void (*rgb_of_planes)(const uint8_t *planes, size_t plane, size_t n, uint8_t *rgb);
} fby_kernels;

extern const fby_kernels fby_kernels_c, fby_kernels_avx2, fby_kernels_avx512;

/* Of a tier that this CPU supports. */
const fby_kernels *fby_kernels_of(fby_tier tier);

/* fby_resampler_create and fby_sink_write over a given table. */
int fby_resampler_create_with(fby_resampler **out, const fby_kernels *kernels);
void fby_sink_write_with(const fby_sink *sink, const fby_kernels *kernels, const uint8_t *rgb, size_t stride,
                         uint32_t w, uint32_t h, bool flip_horizontal, bool flip_vertical, void *out);

/* AVX2 routines that the AVX-512 tier uses as they are; the horizontal pass, where a window is too wide for
 * its own. */
int fby_horizontal_prepare_avx2(fby_horizontal *horizontal);
void fby_pair_rows_avx2(const uint8_t *const row[FBY_BLOCK_ROWS], size_t bytes, uint8_t *pairs,
                        size_t pair_bytes);
void fby_convert_plane_avx2(const fby_sink *sink, int channel, const uint8_t *in, size_t n, void *out);
void fby_convert_rgb_avx2(const fby_sink *sink, const uint8_t *in, size_t n, void *out);
void fby_planes_of_rgb_avx2(const uint8_t *rgb, size_t n, bool flip, uint8_t *planes, size_t plane);
void fby_rgb_of_planes_avx2(const uint8_t *planes, size_t plane, size_t n, uint8_t *rgb);

static inline uint8_t fby_clip(int32_t sum)
{
    int32_t v = sum >> FBY_WEIGHT_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

#endif
