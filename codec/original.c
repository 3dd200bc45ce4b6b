#include "codec/original.h"

#include <stdlib.h>
#include <string.h>

#include "codec/format.h"

fby_reason fby_metadata_add(fby_decoder *decoder, fby_metadata *metadata, fby_metadata_kind kind,
                            const uint8_t *bytes, size_t length)
{
    if (!length) return FBY_REASON_NONE;
    uint8_t *larger = realloc(metadata->of[kind].bytes, metadata->of[kind].length + length);
    if (!larger)
        return fby_decode_fail(decoder, FBY_REASON_MEMORY, "no memory for metadata of %zu bytes", length);
    memcpy(larger + metadata->of[kind].length, bytes, length);
    metadata->of[kind].bytes = larger;
    metadata->of[kind].length += length;
    return FBY_REASON_NONE;
}

void fby_metadata_free(fby_metadata *metadata)
{
    for (int kind = 0; kind < FBY_METADATA_KINDS; kind++) free(metadata->of[kind].bytes);
    *metadata = (fby_metadata){0};
}

void fby_original_palette(fby_original *original, const uint8_t *palette, uint32_t entries,
                          const bool used[256])
{
    const size_t pixel = original->channels;

    for (uint32_t i = 0; i < 256; i++) {
        if (!used[i]) continue;
        if (i >= entries) return;
        for (uint32_t before = 0; before < i; before++) {
            if (!memcmp(palette + before * pixel, palette + i * pixel, pixel)) return;
        }
    }
    original->entries = entries;
    memcpy(original->palette, palette, entries * pixel);
}
