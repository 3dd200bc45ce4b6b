/* An FBL file's parts before its tiles: header, tables, tile index. Private to codec/fbl/. */
#ifndef FBY_CODEC_FBL_FILE_H
#define FBY_CODEC_FBL_FILE_H

#include <forebay/fbl.h>

#include "kernels/fbl.h"

enum {
    FBL_VERSION = 1,
    FBL_INDEX_ENTRY = 8,
    FBL_PALETTE_SET = FBY_FBL_PLANES, /* behind a set a plane */
    FBL_LOW_SET,                      /* for the low bytes of wide indices */
    FBL_SETS,
    FBL_COLOUR_BYTES = FBY_FBL_PLANES * 2,
    FBL_SET_BYTES = 256, /* at most */
    /* Longest tables: what is present, the palette, and sets of 9 + 64 x 4 + 16 x (3 + 8 x 4 + 7 x 9) bits.
     */
    FBL_TABLE_BYTES = 4 + FBY_FBL_SHARED * FBL_COLOUR_BYTES + FBL_SETS * FBL_SET_BYTES
};

static inline uint32_t fbl_load32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline void fbl_store32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static inline uint16_t fbl_little16(uint16_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return value;
#else
    return (uint16_t)(value << 8 | value >> 8);
#endif
}

typedef struct fbl_file {
    uint32_t width, height, channels, bits;
    uint32_t tile_width, tile_height, across, down, tiles;
    uint32_t table_bytes;
    uint64_t payload_bytes, metadata_bytes;
    uint32_t metadata_checksum, prefix_checksum;
    uint64_t index_at, payload_at, metadata_at, file_bytes; /* follow from the above */
} fbl_file;

/* Bytes of a sample, and of a pixel. */
static inline size_t fbl_sample_bytes(const fbl_file *file)
{
    return file->bits > 8 ? 2 : 1;
}

static inline size_t fbl_pixel_bytes(const fbl_file *file)
{
    return fbl_sample_bytes(file) * file->channels;
}

/* Fills what follows from the sizes. 0, or FBY_FBL_TOO_LARGE. */
int fbl_file_lay_out(fbl_file *file);
/* Reads and checks the header. */
int fbl_file_read(const uint8_t *bytes, size_t length, fbl_file *file, fby_error *error);
void fbl_file_info(const fbl_file *file, fby_fbl_info *info);
void fbl_file_write(const fbl_file *file, const fby_fbl_kernels *kernels, uint8_t *header);

typedef struct fbl_tile {
    uint32_t mode, checksum;
    uint64_t offset, bytes; /* in the file */
    uint32_t x, y, width, height;
} fbl_tile;

/* Tile `index`, by the tile index at `entries`. */
fbl_tile fbl_tile_of(const fbl_file *file, const uint8_t *entries, uint32_t index);
/* Checks that the tiles lie one behind the other within the payload, and have modes. */
int fbl_index_check(const fbl_file *file, const uint8_t *entries, fby_error *error);

/* Shared by all tiles of a picture. */
typedef struct fbl_tables {
    uint32_t present; /* bit s: set[s] */
    fby_fbl_set set[FBL_SETS];
    uint32_t colours;
    uint8_t colour[FBY_FBL_SHARED * FBL_COLOUR_BYTES]; /* as samples of the picture */
} fbl_tables;

int fbl_tables_read(const fbl_file *file, const uint8_t *bytes, fbl_tables *tables, fby_error *error);
/* Returns the bytes written, a multiple of 4, at most FBL_TABLE_BYTES. */
size_t fbl_tables_write(const fbl_file *file, const fbl_tables *tables, uint8_t *bytes);

/* Samples in the file are little-endian; copies `count` of them to the machine's order, or back. */
void fbl_samples_copy(const fbl_file *file, const uint8_t *from, size_t count, uint8_t *to);

#endif
