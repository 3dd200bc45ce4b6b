#include "codec/jpeg_header.h"

#include <string.h>

#include "codec/exif.h"

enum {
    SOF0 = 0xC0,
    DHT = 0xC4,
    JPG = 0xC8,
    DAC = 0xCC,
    SOF15 = 0xCF,
    RST0 = 0xD0,
    EOI = 0xD9,
    SOS = 0xDA,
    DQT = 0xDB,
    DHP = 0xDE,
    APP0 = 0xE0,
    APP1 = 0xE1,
    APP2 = 0xE2,
    APP13 = 0xED,
    APP14 = 0xEE,
    APP15 = 0xEF,
    JPG0 = 0xF0,
    JPG13 = 0xFD,
    COM = 0xFE,
};

typedef struct header_reader {
    fby_decoder *decoder;
    size_t at;
    bool frame_seen;
    bool exif_seen;
    uint32_t exif_orientation;
    uint32_t xmp_orientation;
    /* The smallest of the ICC segments since the last frame header, in the order that Python sorts bytes;
     * Pillow fails where that one has no sequence numbers. 256: none yet. */
    unsigned icc_first;
    bool icc_first_is_short;
} header_reader;

static uint32_t big16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t big32(const uint8_t *at)
{
    return big16(at) << 16 | big16(at + 2);
}

#define SEGMENT_IS(Name) (length >= sizeof(Name) - 1 && !memcmp(segment, Name, sizeof(Name) - 1))

static fby_reason bad_segment(header_reader *h, const char *what)
{
    return fby_decode_fail(h->decoder, FBY_REASON_CORRUPT, "%s near byte %zu", what, h->at);
}

static void read_icc(header_reader *h, const uint8_t *segment, size_t length)
{
    unsigned number = length > 12 ? segment[12] : 0;
    bool is_short = length < 14;

    if (length == 12) {
        /* Nothing sorts before the bare name. */
        h->icc_first = 0;
        h->icc_first_is_short = true;
    } else if (number < h->icc_first || (number == h->icc_first && is_short)) {
        h->icc_first = number;
        h->icc_first_is_short = is_short;
    }
}

/* Photoshop's image resources. Pillow stops at the first one that doesn't fit, but fails where a name's
 * length is missing. */
static fby_reason read_photoshop(header_reader *h, const uint8_t *segment, size_t length)
{
    size_t at = 14;

    while (at + 4 <= length && !memcmp(segment + at, "8BIM", 4)) {
        at += 4;
        if (length - at < 2) break;
        uint32_t code = big16(segment + at);
        at += 2;
        if (at >= length) return bad_segment(h, "Photoshop resource without a name");
        at += 1 + (size_t)segment[at];
        at += at & 1;
        if (at > length || length - at < 4) break;
        uint64_t size = big32(segment + at);
        at += 4;
        uint64_t present = length - at < size ? length - at : size;
        if (code == 0x03ED && present < 14) break;
        if (size >= length) break;
        at += size;
        at += at & 1;
    }
    return FBY_REASON_NONE;
}

static fby_reason read_application(header_reader *h, unsigned marker, const uint8_t *segment, size_t length)
{
    if (marker == APP0 && SEGMENT_IS("JFIF")) {
        if (length < 7) return bad_segment(h, "JFIF segment too short");
    } else if (marker == APP1 && SEGMENT_IS("Exif\0\0")) {
        /* A second segment continues the first; the directory stands at the start. */
        if (!h->exif_seen) h->exif_orientation = fby_exif_orientation(segment, length);
        h->exif_seen = true;
    } else if (marker == APP1 && SEGMENT_IS("http://ns.adobe.com/xap/1.0/\0")) {
        h->xmp_orientation = fby_xmp_orientation(segment, length);
    } else if (marker == APP2 && SEGMENT_IS("ICC_PROFILE\0")) {
        read_icc(h, segment, length);
    } else if (marker == APP13 && SEGMENT_IS("Photoshop 3.0\0")) {
        return read_photoshop(h, segment, length);
    } else if (marker == APP14 && SEGMENT_IS("Adobe")) {
        if (length < 7) return bad_segment(h, "Adobe segment too short");
    }
    return FBY_REASON_NONE;
}

static fby_reason read_frame(header_reader *h, const uint8_t *segment, size_t length)
{
    fby_picture_info *info = &h->decoder->info;

    if (length < 6) return bad_segment(h, "frame header too short");
    info->bits = segment[0];
    info->h = big16(segment + 1);
    info->w = big16(segment + 3);
    info->channels = segment[5];
    if (info->bits != 8) {
        return fby_decode_fail(h->decoder, FBY_REASON_UNSUPPORTED,
                               "JPEG with %u bits a sample isn't supported, only with 8", info->bits);
    }
    if (info->channels != 1 && info->channels != 3 && info->channels != 4) {
        return fby_decode_fail(h->decoder, FBY_REASON_UNSUPPORTED,
                               "JPEG with %u components isn't supported, only with 1, 3 or 4",
                               info->channels);
    }
    if ((length - 6) % 3) return bad_segment(h, "frame header of a wrong length");
    if (h->icc_first < 256 && h->icc_first_is_short) return bad_segment(h, "ICC profile segment too short");
    h->icc_first = 256;
    h->frame_seen = true;
    return FBY_REASON_NONE;
}

static fby_reason check_quantization(header_reader *h, const uint8_t *segment, size_t length)
{
    while (length) {
        size_t table = segment[0] >> 4 ? 129 : 65;
        if (length < table) return bad_segment(h, "quantization table too short");
        segment += table;
        length -= table;
    }
    return FBY_REASON_NONE;
}

static bool has_segment(unsigned marker)
{
    return marker != JPG && !(marker >= RST0 && marker <= EOI) && !(marker >= JPG0 && marker <= JPG13);
}

static fby_reason read_segment(header_reader *h, unsigned marker)
{
    const uint8_t *bytes = h->decoder->bytes;
    size_t left = h->decoder->length - h->at;

    if (left < 2) {
        return fby_decode_fail(h->decoder, FBY_REASON_TRUNCATED, "the file ends at a marker, byte %zu",
                               h->at);
    }
    size_t length = big16(bytes + h->at);
    length = length < 2 ? 0 : length - 2;
    h->at += 2;
    if (left - 2 < length) {
        return fby_decode_fail(h->decoder, FBY_REASON_TRUNCATED,
                               "the file ends within the segment of marker ff%02x at byte %zu", marker,
                               h->at);
    }
    const uint8_t *segment = bytes + h->at;
    h->at += length;

    if (marker >= APP0 && marker <= APP15) return read_application(h, marker, segment, length);
    if (marker == DQT) return check_quantization(h, segment, length);
    if ((marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != DAC) || marker == DHP) {
        return read_frame(h, segment, length);
    }
    return FBY_REASON_NONE;
}

static fby_reason finish(header_reader *h)
{
    if (!h->frame_seen) return bad_segment(h, "no frame header before the first scan");
    if (h->exif_orientation)
        h->decoder->info.orientation = h->exif_orientation;
    else if (h->xmp_orientation)
        h->decoder->info.orientation = h->xmp_orientation;
    return FBY_REASON_NONE;
}

fby_reason fby_jpeg_header_read(fby_decoder *decoder)
{
    const uint8_t *bytes = decoder->bytes;
    size_t length = decoder->length;
    header_reader h = {.decoder = decoder, .at = 3, .icc_first = 256};
    unsigned byte = 0xFF;

    for (;;) {
        if (byte == 0xFF) {
            if (h.at >= length) break;
            unsigned marker = bytes[h.at++];
            if (marker == 0xFF) continue;
            if (marker >= SOF0) {
                fby_reason reason = has_segment(marker) ? read_segment(&h, marker) : FBY_REASON_NONE;
                if (reason) return reason;
                if (marker == SOS) return finish(&h);
            } else if (marker) {
                return fby_decode_fail(decoder, FBY_REASON_CORRUPT, "ff%02x at byte %zu is no marker", marker,
                                       h.at - 2);
            }
        }
        if (h.at >= length) break;
        byte = bytes[h.at++];
    }
    return fby_decode_fail(decoder, FBY_REASON_TRUNCATED, "the file ends before its first scan");
}
