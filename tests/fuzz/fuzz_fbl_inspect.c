/* What plans the reading of FBL files: header, tile index and metadata of any content. */
#include <forebay/fbl.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/fuzz/fbl_sealed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inspect(const uint8_t *data, size_t size)
{
    static fby_fbl_decoder *decoder;
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
    fby_fbl_info info = FBY_FBL_INFO_INIT;
    fby_fbl_tile tile = FBY_FBL_TILE_INIT;
    fby_error error = FBY_ERROR_INIT;
    const void *chunk;
    size_t length;

    if (!decoder && fby_fbl_decoder_create(&decoder)) abort();
    options.partial = size % 2;
    int header = fby_fbl_info_read(data, size, &info, &error);
    if (fby_fbl_open(decoder, data, size, &options, &info, &error)) return;
    if (header) abort();
    uint64_t end = info.prefix_bytes;
    for (uint32_t i = 0; !fby_fbl_tile_read(decoder, i, &tile, NULL); i++) {
        if (tile.offset != end || !tile.bytes || !tile.width || !tile.height) abort();
        end = tile.offset + tile.bytes;
    }
    if (end != info.metadata_offset) abort();
    if (!fby_fbl_metadata(decoder, "EXIF", &chunk, &length, NULL) && chunk) {
        const uint8_t *bytes = chunk;
        if (length && bytes + length > data + size) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = fbl_sealed(data, size);
    inspect(data, size);
    inspect(bytes, size);
    free(bytes);
    return 0;
}
