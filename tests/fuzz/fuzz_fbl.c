/* FBL files of any content through the decoder, by every tier: nothing may crash, hang or leak, and all tiers
 * have the same verdict and the same pixels. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/fbl/decode.h"
#include "codec/fbl/file.h"
#include "kernels/crc32c.h"

enum { MOST_PIXELS = 1 << 16, MOST_BYTES = MOST_PIXELS * 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Makes the checksums of header, tables and index right, so that what lies behind them is reached. */
static uint8_t *sealed(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size ? size : 1);
    fbl_file file;

    if (!bytes) abort();
    if (size) memcpy(bytes, data, size);
    if (size < FBY_FBL_HEADER_BYTES) return bytes;
    fbl_store32(bytes + 60, fby_crc32c_c(0, bytes, 60));
    if (fbl_file_read(bytes, size, &file, NULL) || size < file.payload_at) return bytes;
    fbl_store32(bytes + 52, fby_crc32c_c(0, bytes + FBY_FBL_HEADER_BYTES,
                                         (size_t)file.payload_at - FBY_FBL_HEADER_BYTES));
    fbl_store32(bytes + 60, fby_crc32c_c(0, bytes, 60));
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fby_fbl_decoder *decoder[FBY_TIERS];
    static uint8_t pixels[FBY_TIERS][MOST_BYTES];
    uint8_t *bytes = sealed(data, size);
    int first = 0;

    for (uint32_t i = 0; i < FBY_TIERS && fby_tier_supported((fby_tier)i); i++) {
        fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
        fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
        fby_fbl_info info = FBY_FBL_INFO_INIT;

        if (!decoder[i] && fbl_decoder_create_with(&decoder[i], fby_fbl_kernels_of((fby_tier)i))) abort();
        options.max_pixels = MOST_PIXELS;
        options.trust = true; /* checksums would stop nearly all that is changed */
        output.data = pixels[i];
        output.layout = size % 2;
        int reason = fby_fbl_open(decoder[i], bytes, size, &options, &info, NULL);
        if (!reason) reason = fby_fbl_decode(decoder[i], NULL, &output, NULL);
        if (!i) first = reason;
        size_t length = (size_t)info.width * info.height * info.channels * (info.bits > 8 ? 2 : 1);
        if (reason != first || (!reason && memcmp(pixels[0], pixels[i], length))) abort();
    }
    free(bytes);
    return 0;
}
