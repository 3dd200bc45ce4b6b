#include "codec/jpeg_metadata.h"

#include <string.h>

enum { APP1 = 0xE1, APP2 = 0xE2, SOS = 0xDA, TEM = 0x01, RST0 = 0xD0, EOI = 0xD9, MOST_PIECES = 256 };

static const char exif_start[] = "Exif\0";
static const char xmp_start[] = "http://ns.adobe.com/xap/1.0/";
static const char icc_start[] = "ICC_PROFILE";

/* A profile's pieces by their numbers. */
typedef struct icc_pieces {
    const uint8_t *bytes[MOST_PIECES];
    size_t length[MOST_PIECES];
} icc_pieces;

/* The terminating zeros are part of the names. */
static bool starts(const uint8_t *segment, size_t length, const char *name, size_t name_length)
{
    return length >= name_length && !memcmp(segment, name, name_length);
}

static fby_reason read_segment(fby_decoder *d, unsigned marker, const uint8_t *segment, size_t length,
                               icc_pieces *icc, fby_metadata *out)
{
    if (marker == APP1 && starts(segment, length, exif_start, sizeof exif_start)) {
        /* A second segment goes on where the first ended. */
        return fby_metadata_add(d, out, FBY_METADATA_EXIF, segment + sizeof exif_start,
                                length - sizeof exif_start);
    }
    if (marker == APP1 && starts(segment, length, xmp_start, sizeof xmp_start)) {
        out->of[FBY_METADATA_XMP].length = 0; /* the last one counts */
        return fby_metadata_add(d, out, FBY_METADATA_XMP, segment + sizeof xmp_start,
                                length - sizeof xmp_start);
    }
    if (marker == APP2 && starts(segment, length, icc_start, sizeof icc_start) &&
        length >= sizeof icc_start + 2) {
        unsigned number = segment[sizeof icc_start];
        icc->bytes[number] = segment + sizeof icc_start + 2;
        icc->length[number] = length - sizeof icc_start - 2;
    }
    return FBY_REASON_NONE;
}

fby_reason fby_jpeg_metadata(fby_decoder *d, fby_metadata *out)
{
    icc_pieces icc = {0};
    size_t at = 2;
    fby_reason reason = FBY_REASON_NONE;

    while (!reason && d->length - at >= 4) {
        if (d->bytes[at] != 0xFF || d->bytes[at + 1] == 0xFF || !d->bytes[at + 1]) {
            at++; /* fill bytes, and what others pass over */
            continue;
        }
        unsigned marker = d->bytes[at + 1];
        if (marker == SOS) break;
        at += 2;
        if (marker == TEM || (marker >= RST0 && marker <= EOI)) continue;
        size_t length = (size_t)d->bytes[at] << 8 | d->bytes[at + 1];
        if (length < 2 || length > d->length - at) break;
        reason = read_segment(d, marker, d->bytes + at + 2, length - 2, &icc, out);
        at += length;
    }
    for (int i = 0; i < MOST_PIECES && !reason; i++) {
        reason = fby_metadata_add(d, out, FBY_METADATA_ICC, icc.bytes[i], icc.length[i]);
    }
    return reason;
}
