/* FBL files of any content, a region at a time: where the whole is good, a region has its pixels. */
#include <forebay/fbl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fbl_sealed.h"

enum { MOST_PIXELS = 1 << 16, MOST_BYTES = MOST_PIXELS * 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What to try follows from the bytes, so that a finding repeats. */
static uint32_t hash_of(const uint8_t *data, size_t size)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 16777619u;
    return hash;
}

static void decode_region(const uint8_t *data, size_t size)
{
    static fby_fbl_decoder *decoder;
    static uint8_t whole[MOST_BYTES], part[MOST_BYTES];
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    fby_fbl_info info = FBY_FBL_INFO_INIT;
    uint32_t hash = hash_of(data, size);

    if (!decoder && fby_fbl_decoder_create(&decoder)) abort();
    options.max_pixels = MOST_PIXELS;
    options.trust = true;
    options.partial = hash >> 31;
    if (fby_fbl_open(decoder, data, size, &options, &info, NULL)) return;
    output.data = whole;
    int verdict = fby_fbl_decode(decoder, NULL, &output, NULL);

    fby_fbl_region region = {hash % info.width, (hash >> 8) % info.height, 0, 0};
    region.width = 1 + (hash >> 4) % (info.width - region.x);
    region.height = 1 + (hash >> 12) % (info.height - region.y);
    output.data = part;
    if (fby_fbl_decode(decoder, &region, &output, NULL)) {
        if (!verdict) abort();
        return;
    }
    const size_t pixel = (size_t)info.channels * (info.bits > 8 ? 2 : 1);
    for (uint32_t y = 0; y < region.height && !verdict; y++) {
        const uint8_t *want = whole + ((size_t)(region.y + y) * info.width + region.x) * pixel;
        if (memcmp(part + (size_t)y * region.width * pixel, want, region.width * pixel)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = fbl_sealed(data, size);
    decode_region(bytes, size);
    free(bytes);
    return 0;
}
