/* FBL files of any content through the decoder, by every tier: nothing may crash, hang or leak, and all tiers
 * have the same verdict and the same pixels. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/fbl/decode.h"
#include "tests/fuzz/fbl_sealed.h"

enum { MOST_PIXELS = 1 << 16, MOST_BYTES = MOST_PIXELS * 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fby_fbl_decoder *decoder[FBY_TIERS];
    static uint8_t pixels[FBY_TIERS][MOST_BYTES];
    uint8_t *bytes = fbl_sealed(data, size);
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
