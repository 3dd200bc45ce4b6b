/* Pictures of any content through the decoders, as a worker calls them: nothing may crash, hang or leak, and
 * a region must have the verdict and the pixels of the whole. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/decode.h"

enum { MOST_PIXELS = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What to try follows from the bytes, so that a finding repeats. */
static uint32_t hash_of(const uint8_t *data, size_t size)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 16777619u;
    return hash;
}

static uint8_t *decode_whole(fby_decoder *decoder, const uint8_t *data, size_t size,
                             const fby_decode_options *options, fby_picture_info *info, fby_reason *reason)
{
    *reason = fby_decode_open(decoder, data, size, options, info);
    if (*reason) return NULL;

    uint8_t *pixels = malloc((size_t)info->w * info->h * 3);
    if (!pixels) abort();
    *reason = fby_decode_into(decoder, NULL, pixels, (size_t)info->w * 3);
    return pixels;
}

static void decode_region(fby_decoder *decoder, const uint8_t *data, size_t size,
                          const fby_decode_options *options, uint32_t hash, const uint8_t *whole,
                          fby_reason verdict)
{
    fby_picture_info info;
    fby_reason reason = fby_decode_open(decoder, data, size, options, &info);

    if (reason) abort();
    fby_region_of region = {.x = hash % info.w, .y = (hash >> 8) % info.h};
    region.w = 1 + (hash >> 4) % (info.w - region.x);
    region.h = 1 + (hash >> 12) % (info.h - region.y);

    reason = fby_decode_begin(decoder, &region);
    for (uint32_t done = 0, count = 1; !reason && count; done += count) {
        const uint8_t *rows;
        size_t stride;

        reason = fby_decode_rows(decoder, &rows, &stride, 1 + hash % 32, &count);
        for (uint32_t i = 0; !reason && !verdict && i < count; i++) {
            const uint8_t *want = whole + ((size_t)(region.y + done + i) * info.w + region.x) * 3;
            if (memcmp(rows + i * stride, want, (size_t)region.w * 3)) abort();
        }
    }
    if (!reason != !verdict) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fby_decoder *decoder;
    uint32_t hash = hash_of(data, size);
    fby_decode_options options = {
        .max_pixels = MOST_PIXELS,
        .fast = hash >> 20 & 1,
        .exif = hash >> 21 & 1,
        .tolerate_missing_eoi = hash >> 22 & 1,
    };
    fby_picture_info info;
    fby_reason reason;

    if (!decoder && fby_decoder_create(&decoder)) abort();
    uint8_t *whole = decode_whole(decoder, data, size, &options, &info, &reason);
    if (whole) decode_region(decoder, data, size, &options, hash, whole, reason);
    free(whole);
    return 0;
}
