/* What the Python tests call through ctypes: one decoder for all calls, as a worker keeps one. */
#include "codec/decode.h"

#include <string.h>

#define FOR_PYTHON __attribute__((visibility("default")))

enum { OPTION_FAST = 1, OPTION_EXIF = 2, OPTION_TOLERATE = 4, OPTION_LIBJPEG = 8 };

FOR_PYTHON int codec_test_open(fby_decoder **decoder, const uint8_t *bytes, size_t length,
                               uint64_t max_pixels, int options, fby_picture_info *info);
FOR_PYTHON int codec_test_into(fby_decoder *decoder, const fby_region_of *region, uint8_t *out);
FOR_PYTHON int codec_test_rows(fby_decoder *decoder, const fby_region_of *region, uint32_t most,
                               uint8_t *out);
FOR_PYTHON const char *codec_test_text(const fby_decoder *decoder);
FOR_PYTHON size_t codec_test_bytes(const fby_decoder *decoder);
FOR_PYTHON const char *codec_test_reason(int reason);
FOR_PYTHON int codec_test_own_entropy(void);
FOR_PYTHON void codec_test_jpeg_counts(const fby_decoder *decoder, uint64_t *own, uint64_t *declined);
FOR_PYTHON void codec_test_destroy(fby_decoder **decoder);

int codec_test_open(fby_decoder **decoder, const uint8_t *bytes, size_t length, uint64_t max_pixels,
                    int options, fby_picture_info *info)
{
    fby_decode_options decode = {
        .max_pixels = max_pixels,
        .fast = options & OPTION_FAST,
        .exif = options & OPTION_EXIF,
        .tolerate_missing_eoi = options & OPTION_TOLERATE,
        .libjpeg_entropy = options & OPTION_LIBJPEG,
    };

    if (!*decoder && fby_decoder_create(decoder)) return FBY_REASON_MEMORY;
    return (int)fby_decode_open(*decoder, bytes, length, &decode, info);
}

int codec_test_into(fby_decoder *decoder, const fby_region_of *region, uint8_t *out)
{
    return (int)fby_decode_into(decoder, region, out, (size_t)region->w * 3);
}

int codec_test_rows(fby_decoder *decoder, const fby_region_of *region, uint32_t most, uint8_t *out)
{
    fby_reason reason = fby_decode_begin(decoder, region);
    uint32_t count = 1;

    while (!reason && count) {
        const uint8_t *rows;
        size_t stride;

        reason = fby_decode_rows(decoder, &rows, &stride, most, &count);
        for (uint32_t i = 0; !reason && i < count; i++, out += (size_t)region->w * 3) {
            memcpy(out, rows + i * stride, (size_t)region->w * 3);
        }
    }
    return (int)reason;
}

const char *codec_test_text(const fby_decoder *decoder)
{
    return fby_decode_text(decoder);
}

size_t codec_test_bytes(const fby_decoder *decoder)
{
    return fby_decoder_bytes(decoder);
}

const char *codec_test_reason(int reason)
{
    return fby_reason_name((fby_reason)reason);
}

int codec_test_own_entropy(void)
{
    return fby_decode_own_entropy();
}

void codec_test_jpeg_counts(const fby_decoder *decoder, uint64_t *own, uint64_t *declined)
{
    fby_jpeg_counts counts = fby_decoder_jpeg_counts(decoder);

    *own = counts.own;
    *declined = counts.declined;
}

void codec_test_destroy(fby_decoder **decoder)
{
    fby_decoder_destroy(decoder);
}
