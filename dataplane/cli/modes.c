/* A picture of how the tiles of an FBL file are coded: a square a tile, a colour a mode. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "dataplane/cli/inspect.h"

enum { SQUARE = 8, MOST_SIDE = 1 << 16 };

/* raw, const, palette, pack, rans, and the lines between tiles. */
static const uint8_t colours[][3] = {{214, 39, 40},  {210, 210, 210}, {44, 160, 44},
                                     {255, 127, 14}, {31, 119, 180},  {255, 255, 255}};
enum { LINES = sizeof colours / sizeof *colours - 1 };

static void store32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static bool chunk_write(FILE *file, const char *name, const uint8_t *bytes, size_t length)
{
    uint8_t head[8], sum[4];
    uLong crc = crc32(0, (const uint8_t *)name, 4);

    store32(head, (uint32_t)length);
    memcpy(head + 4, name, 4);
    store32(sum, (uint32_t)(length ? crc32(crc, bytes, (uInt)length) : crc));
    return fwrite(head, sizeof head, 1, file) == 1 && (!length || fwrite(bytes, length, 1, file) == 1) &&
           fwrite(sum, sizeof sum, 1, file) == 1;
}

static void draw(const fby_fbl_info *info, const uint8_t *modes, uint32_t w, uint32_t h, uint8_t *rows)
{
    for (uint32_t y = 0; y < h; y++) {
        *rows++ = 0; /* the row's filter: none */
        for (uint32_t x = 0; x < w; x++) {
            bool line = x % SQUARE == SQUARE - 1 || y % SQUARE == SQUARE - 1;
            *rows++ = line ? LINES : modes[(size_t)(y / SQUARE) * info->tiles_across + x / SQUARE];
        }
    }
}

static bool png_write(FILE *file, uint32_t w, uint32_t h, const uint8_t *rows)
{
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    uint8_t header[13] = {[8] = 8, [9] = 3}; /* 8 bits, palette */
    const size_t bytes = (size_t)(w + 1) * h;
    uLongf length = compressBound(bytes);
    uint8_t *packed = malloc(length);

    store32(header, w);
    store32(header + 4, h);
    bool good = packed && compress(packed, &length, rows, bytes) == Z_OK &&
                fwrite(signature, sizeof signature, 1, file) == 1 &&
                chunk_write(file, "IHDR", header, sizeof header) &&
                chunk_write(file, "PLTE", colours[0], sizeof colours) &&
                chunk_write(file, "IDAT", packed, length) && chunk_write(file, "IEND", NULL, 0);
    free(packed);
    return good;
}

int fby_modes_draw(const char *path, const fby_fbl_info *info, const uint8_t *modes, fby_error *error)
{
    const uint64_t w = (uint64_t)info->tiles_across * SQUARE, h = (uint64_t)info->tiles_down * SQUARE;

    if (w > MOST_SIDE || h > MOST_SIDE)
        return fby_fail(error, FBY_ENOTSUP, "%u x %u tiles are too many for a picture", info->tiles_across,
                        info->tiles_down);
    uint8_t *rows = malloc((w + 1) * h);
    if (!rows) return fby_fail(error, FBY_ENOMEM, "no memory for a picture of the modes");
    draw(info, modes, (uint32_t)w, (uint32_t)h, rows);

    FILE *file = fopen(path, "wbe");
    bool good = file && png_write(file, (uint32_t)w, (uint32_t)h, rows);
    if (file && fclose(file)) good = false;
    free(rows);
    return good ? 0 : fby_fail(error, FBY_EIO, "can't write %s: %s", path, strerror(errno));
}
