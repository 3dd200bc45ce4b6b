/* Tiles' heads: what stands before the coded samples. Private to codec/fbl/. */
#ifndef FBY_CODEC_FBL_HEAD_H
#define FBY_CODEC_FBL_HEAD_H

#include "codec/fbl/file.h"

/* A tile and where its samples go, ready for a kernel. */
typedef struct fbl_job {
    uint32_t mode;
    union {
        fby_fbl_rans rans;
        fby_fbl_palette palette;
        fby_fbl_pack pack;
    } as;
    uint8_t colour[FBY_FBL_COLOURS * FBL_COLOUR_BYTES]; /* of a palette, as samples */
} fbl_job;

/* Reads the head of a tile whose mode is palette, pack or rans. False where it can't be. */
bool fbl_head_read(const fbl_file *file, const fbl_tables *tables, const fbl_tile *tile, const uint8_t *bytes,
                   const fby_fbl_place *place, fbl_job *job);

/* Bytes of a head at most. */
enum { FBL_HEAD_BYTES = 16 + FBY_FBL_COLOURS * (FBL_COLOUR_BYTES + 1) };

/* Each writes a head and returns its bytes. */
size_t fbl_rans_head_write(const fby_fbl_work *work, uint8_t *out);
size_t fbl_pack_head_write(const fby_fbl_work *work, uint8_t *out);
/* `reference`: per colour its place in the picture's palette of `shared` colours, or -1. No colours: the tile
 * uses that palette as it is. */
size_t fbl_palette_head_write(const fbl_file *file, uint32_t shared, const uint8_t *colour, uint32_t colours,
                              const int32_t *reference, uint8_t *out);

#endif
