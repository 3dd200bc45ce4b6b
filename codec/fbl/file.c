#include "codec/fbl/file.h"

#include <string.h>

#include "kernels/crc32c.h"

static const uint8_t magic[8] = {0x89, 'F', 'B', 'L', '\r', '\n', 0x1A, '\n'};

static uint64_t load64(const uint8_t *at)
{
    return fbl_load32(at) | (uint64_t)fbl_load32(at + 4) << 32;
}

static void store64(uint8_t *at, uint64_t value)
{
    fbl_store32(at, (uint32_t)value);
    fbl_store32(at + 4, (uint32_t)(value >> 32));
}

bool fby_fbl_is(const void *bytes, size_t length)
{
    return length >= sizeof magic && !memcmp(bytes, magic, sizeof magic);
}

int fbl_file_lay_out(fbl_file *file)
{
    file->across = (file->width + file->tile_width - 1) / file->tile_width;
    file->down = (file->height + file->tile_height - 1) / file->tile_height;

    uint64_t tiles = (uint64_t)file->across * file->down;
    if (tiles > UINT32_MAX / FBL_INDEX_ENTRY || file->payload_bytes >> 31 || file->metadata_bytes >> 32) {
        return FBY_FBL_TOO_LARGE;
    }
    file->tiles = (uint32_t)tiles;
    file->index_at = FBY_FBL_HEADER_BYTES + (uint64_t)file->table_bytes;
    file->payload_at = file->index_at + tiles * FBL_INDEX_ENTRY;
    file->metadata_at = file->payload_at + file->payload_bytes;
    file->file_bytes = file->metadata_at + file->metadata_bytes + FBY_FBL_SLACK_BYTES;
    return FBY_FBL_OK;
}

static int corrupt(fby_error *error, const char *what, uint64_t value)
{
    fby_fail(error, FBY_ESAMPLE, "FBL: the header gives %s %llu, which can't be: the file is damaged", what,
             (unsigned long long)value);
    return FBY_FBL_CORRUPT;
}

static bool side_good(uint32_t side)
{
    return side >= 16 && side <= FBY_FBL_TILE_SIDE && side % 16 == 0;
}

static int fields_check(const fbl_file *file, fby_error *error)
{
    if (!file->channels || file->channels > FBY_FBL_PLANES) return corrupt(error, "channels", file->channels);
    if (file->bits < 8 || file->bits > 16) return corrupt(error, "bits", file->bits);
    if (!file->width || file->width >> 31) return corrupt(error, "a width of", file->width);
    if (!file->height || file->height >> 31) return corrupt(error, "a height of", file->height);
    if (!side_good(file->tile_width)) return corrupt(error, "a tile width of", file->tile_width);
    if (!side_good(file->tile_height)) return corrupt(error, "a tile height of", file->tile_height);
    if (file->table_bytes % 4 || file->table_bytes > FBL_TABLE_BYTES) {
        return corrupt(error, "bytes of tables:", file->table_bytes);
    }
    if (file->payload_bytes % 4) return corrupt(error, "bytes of tiles:", file->payload_bytes);
    if (file->metadata_bytes % 4) return corrupt(error, "bytes of metadata:", file->metadata_bytes);
    return FBY_FBL_OK;
}

int fbl_file_read(const uint8_t *bytes, size_t length, fbl_file *file, fby_error *error)
{
    if (!fby_fbl_is(bytes, length)) {
        fby_fail(error, FBY_ESAMPLE, "not an FBL file: its first bytes are others");
        return length < sizeof magic && !memcmp(bytes, magic, length) ? FBY_FBL_TRUNCATED : FBY_FBL_FORMAT;
    }
    if (length < FBY_FBL_HEADER_BYTES) {
        fby_fail(error, FBY_ESAMPLE, "FBL: the data end within the header, after %zu bytes", length);
        return FBY_FBL_TRUNCATED;
    }
    if (fby_crc32c_c(0, bytes, FBY_FBL_HEADER_BYTES - 4) != fbl_load32(bytes + 60)) {
        fby_fail(error, FBY_ESAMPLE, "FBL: the header's checksum is wrong: the file is damaged");
        return FBY_FBL_CORRUPT;
    }
    if (bytes[8] != FBL_VERSION) {
        fby_fail(error, FBY_ENOTSUP, "FBL: the file is of version %u, this build reads %u", bytes[8],
                 (unsigned)FBL_VERSION);
        return FBY_FBL_UNSUPPORTED;
    }
    *file = (fbl_file){
        .channels = bytes[9],
        .bits = bytes[10],
        .width = fbl_load32(bytes + 12),
        .height = fbl_load32(bytes + 16),
        .tile_width = fbl_load32(bytes + 20) & 0xFFFF,
        .tile_height = fbl_load32(bytes + 20) >> 16,
        .table_bytes = fbl_load32(bytes + 28),
        .payload_bytes = load64(bytes + 32),
        .metadata_bytes = load64(bytes + 40),
        .metadata_checksum = fbl_load32(bytes + 48),
        .prefix_checksum = fbl_load32(bytes + 52),
    };
    int reason = fields_check(file, error);
    if (reason) return reason;
    if (bytes[11] || fbl_load32(bytes + 56)) return corrupt(error, "reserved bytes other than", 0);
    if (fbl_file_lay_out(file)) return corrupt(error, "bytes of tiles:", file->payload_bytes);
    if (fbl_load32(bytes + 24) != file->tiles) return corrupt(error, "tiles:", fbl_load32(bytes + 24));
    return FBY_FBL_OK;
}

void fbl_file_write(const fbl_file *file, const fby_fbl_kernels *kernels, uint8_t *header)
{
    memset(header, 0, FBY_FBL_HEADER_BYTES);
    memcpy(header, magic, sizeof magic);
    header[8] = FBL_VERSION;
    header[9] = (uint8_t)file->channels;
    header[10] = (uint8_t)file->bits;
    fbl_store32(header + 12, file->width);
    fbl_store32(header + 16, file->height);
    fbl_store32(header + 20, file->tile_width | file->tile_height << 16);
    fbl_store32(header + 24, file->tiles);
    fbl_store32(header + 28, file->table_bytes);
    store64(header + 32, file->payload_bytes);
    store64(header + 40, file->metadata_bytes);
    fbl_store32(header + 48, file->metadata_checksum);
    fbl_store32(header + 52, file->prefix_checksum);
    fbl_store32(header + 60, kernels->crc32c(0, header, FBY_FBL_HEADER_BYTES - 4));
}

static uint64_t offset_of(const fbl_file *file, const uint8_t *entries, uint32_t index)
{
    if (index == file->tiles) return file->payload_bytes;
    return (uint64_t)(fbl_load32(entries + (size_t)index * FBL_INDEX_ENTRY) >> 3) * 4;
}

fbl_tile fbl_tile_of(const fbl_file *file, const uint8_t *entries, uint32_t index)
{
    const uint8_t *entry = entries + (size_t)index * FBL_INDEX_ENTRY;
    fbl_tile tile = {
        .mode = fbl_load32(entry) & 7,
        .checksum = fbl_load32(entry + 4),
        .x = index % file->across * file->tile_width,
        .y = index / file->across * file->tile_height,
    };
    uint64_t offset = offset_of(file, entries, index);
    tile.offset = file->payload_at + offset;
    tile.bytes = offset_of(file, entries, index + 1) - offset;
    tile.width = file->width - tile.x < file->tile_width ? file->width - tile.x : file->tile_width;
    tile.height = file->height - tile.y < file->tile_height ? file->height - tile.y : file->tile_height;
    return tile;
}

int fbl_index_check(const fbl_file *file, const uint8_t *entries, fby_error *error)
{
    uint64_t before = 0;

    for (uint32_t i = 0; i <= file->tiles; i++) {
        uint64_t offset = offset_of(file, entries, i);
        bool mode_good =
            i == file->tiles || (fbl_load32(entries + (size_t)i * FBL_INDEX_ENTRY) & 7) <= FBY_FBL_MODE_RANS;
        if ((i ? offset <= before : offset != 0) || !mode_good) {
            fby_fail(error, FBY_ESAMPLE, "FBL: tile %u of the index can't be: the file is damaged", i);
            return FBY_FBL_CORRUPT;
        }
        before = offset;
    }
    return FBY_FBL_OK;
}

void fbl_file_info(const fbl_file *file, fby_fbl_info *info)
{
    *info = (fby_fbl_info){
        .size = info->size,
        .width = file->width,
        .height = file->height,
        .channels = file->channels,
        .bits = file->bits,
        .tile_width = file->tile_width,
        .tile_height = file->tile_height,
        .tiles_across = file->across,
        .tiles_down = file->down,
        .prefix_bytes = file->payload_at,
        .file_bytes = file->file_bytes,
        .metadata_offset = file->metadata_at,
        .metadata_bytes = file->metadata_bytes,
    };
}

int fby_fbl_info_read(const void *bytes, size_t length, fby_fbl_info *info, fby_error *error)
{
    fbl_file file;
    int reason = fbl_file_read(bytes, length, &file, error);
    if (!reason) fbl_file_info(&file, info);
    return reason;
}

void fbl_samples_copy(const fbl_file *file, const uint8_t *from, size_t count, uint8_t *to)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(to, from, count * fbl_sample_bytes(file));
#else
    if (file->bits == 8) {
        memcpy(to, from, count);
        return;
    }
    for (size_t i = 0; i < count; i++) to[2 * i] = from[2 * i + 1], to[2 * i + 1] = from[2 * i];
#endif
}
