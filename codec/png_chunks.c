#include "codec/png_chunks.h"

#include <string.h>

#include <libdeflate.h>
#include <zlib.h>

#include "codec/exif.h"

enum {
    SIGNATURE = 8,
    HEAD = 8, /* length and name */
    CRC = 4,
    MOST_INFLATED_TEXT =
        1 << 20, /* Pillow's MAX_TEXT_CHUNK: a text or profile that inflates to more is refused */
};

#define NAME(A, B, C, D) ((uint32_t)(A) << 24 | (uint32_t)(B) << 16 | (uint32_t)(C) << 8 | (uint32_t)(D))

typedef struct chunk {
    uint32_t name;
    const uint8_t *bytes;
    size_t at;     /* of its contents */
    size_t length; /* that it claims */
    size_t there;  /* that is within the file */
} chunk;

typedef struct walk {
    fby_decoder *decoder;
    fby_png_chunks *png;
} walk;

static uint32_t big16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t big32(const uint8_t *at)
{
    return big16(at) << 16 | big16(at + 2);
}

static bool is_word(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

typedef enum head_result { HEAD_READ, HEAD_MISSING, HEAD_BROKEN } head_result;

static head_result read_head(const walk *w, size_t at, chunk *out)
{
    const uint8_t *bytes = w->decoder->bytes;
    size_t length = w->decoder->length;

    if (at > length || length - at < HEAD) return HEAD_MISSING;
    for (int i = 4; i < 8; i++) {
        if (!is_word(bytes[at + i])) return HEAD_BROKEN;
    }
    out->name = big32(bytes + at + 4);
    out->at = at + HEAD;
    out->bytes = bytes + out->at;
    out->length = big32(bytes + at);
    out->there = length - out->at < out->length ? length - out->at : out->length;
    return HEAD_READ;
}

static fby_reason fail(walk *w, const chunk *c, fby_reason reason, const char *what)
{
    char name[5] = {(char)(c->name >> 24), (char)(c->name >> 16), (char)(c->name >> 8), (char)c->name, 0};

    return fby_decode_fail(w->decoder, reason, "PNG chunk %s at byte %zu: %s", name, c->at - HEAD, what);
}

static fby_reason at_least(walk *w, const chunk *c, size_t length)
{
    return c->length < length ? fail(w, c, FBY_REASON_CORRUPT, "too short") : FBY_REASON_NONE;
}

static fby_reason read_header(walk *w, const chunk *c)
{
    static const uint8_t depths[7] = {
        [FBY_PNG_GRAY] = 1 | 2 | 4 | 8 | 16, [FBY_PNG_RGB] = 8 | 16,       [FBY_PNG_PALETTE] = 1 | 2 | 4 | 8,
        [FBY_PNG_GRAY_ALPHA] = 8 | 16,       [FBY_PNG_RGB_ALPHA] = 8 | 16,
    };
    fby_png_chunks *png = w->png;
    uint32_t bits, color;

    if (c->length < 13) return fail(w, c, FBY_REASON_CORRUPT, "too short");
    if (c->bytes[11]) return fail(w, c, FBY_REASON_CORRUPT, "unknown filter method");
    if (png->data_chunk) return FBY_REASON_NONE;
    png->w = big32(c->bytes);
    png->h = big32(c->bytes + 4);
    bits = c->bytes[8];
    color = c->bytes[9];
    if (color <= 6 && bits && !(bits & (bits - 1)) && (depths[color] & bits)) {
        png->bits = bits;
        png->color = color;
    }
    if (c->bytes[12]) png->interlaced = true;
    return FBY_REASON_NONE;
}

/* Whether zlib data inflates to more than Pillow allows; what can't be inflated is harmless. */
static bool inflates_to_too_much(const uint8_t *bytes, size_t length)
{
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)bytes, .avail_in = (uInt)length};
    uint8_t window[4096];
    size_t total = 0;
    int status = Z_OK;

    if (inflateInit(&stream) != Z_OK) return false;
    while (status == Z_OK && total <= MOST_INFLATED_TEXT) {
        stream.next_out = window;
        stream.avail_out = sizeof window;
        status = inflate(&stream, Z_NO_FLUSH);
        total += sizeof window - stream.avail_out;
        if (stream.avail_out) break;
    }
    inflateEnd(&stream);
    return total > MOST_INFLATED_TEXT && status != Z_DATA_ERROR;
}

static fby_reason read_profile(walk *w, const chunk *c)
{
    const uint8_t *zero = memchr(c->bytes, 0, c->length);
    size_t method = zero ? (size_t)(zero - c->bytes) + 1 : 0;

    if (method >= c->length) return fail(w, c, FBY_REASON_CORRUPT, "too short");
    if (c->bytes[method]) return fail(w, c, FBY_REASON_CORRUPT, "unknown compression method");
    if (inflates_to_too_much(c->bytes + method + 1, c->length - method - 1)) {
        return fail(w, c, FBY_REASON_UNSUPPORTED, "a colour profile over 1 MiB");
    }
    w->png->profile = c->bytes;
    w->png->profile_length = c->length;
    return FBY_REASON_NONE;
}

static fby_reason read_compressed_text(walk *w, const chunk *c)
{
    const uint8_t *zero = memchr(c->bytes, 0, c->length);
    size_t method = zero ? (size_t)(zero - c->bytes) + 1 : c->length;

    if (method >= c->length) return FBY_REASON_NONE;
    if (c->bytes[method]) return fail(w, c, FBY_REASON_CORRUPT, "unknown compression method");
    if (inflates_to_too_much(c->bytes + method + 1, c->length - method - 1)) {
        return fail(w, c, FBY_REASON_UNSUPPORTED, "a text over 1 MiB");
    }
    return FBY_REASON_NONE;
}

static fby_reason read_international_text(walk *w, const chunk *c)
{
    static const char xmp[] = "XML:com.adobe.xmp";
    const uint8_t *end = c->bytes + c->length;
    const uint8_t *at = memchr(c->bytes, 0, c->length);

    if (!at || end - at < 3) return FBY_REASON_NONE;
    bool is_xmp = (size_t)(at - c->bytes) == sizeof xmp - 1 && !memcmp(c->bytes, xmp, sizeof xmp - 1);
    bool compressed = at[1];
    bool inflatable = !at[2];
    at += 3;
    for (int i = 0; i < 2; i++) {
        at = memchr(at, 0, (size_t)(end - at));
        if (!at) return FBY_REASON_NONE;
        at++;
    }
    if (compressed && inflatable && inflates_to_too_much(at, (size_t)(end - at))) {
        return fail(w, c, FBY_REASON_UNSUPPORTED, "a text over 1 MiB");
    }
    if (is_xmp && !compressed) {
        w->png->xmp = at;
        w->png->xmp_length = (size_t)(end - at);
        w->png->xmp_orientation = fby_xmp_orientation(at, (size_t)(end - at));
    }
    return FBY_REASON_NONE;
}

static fby_reason read_transparency(walk *w, const chunk *c)
{
    const fby_png_chunks *png = w->png;
    size_t least = 0;

    if (png->bits && png->color == FBY_PNG_GRAY)
        least = 2;
    else if (png->bits && png->color == FBY_PNG_RGB)
        least = 6;
    fby_reason reason = at_least(w, c, least);
    if (!reason && png->bits && !png->data_chunk) {
        w->png->transparency = c->bytes;
        w->png->transparency_length = c->length;
    }
    return reason;
}

static fby_reason read_animation(walk *w, const chunk *c)
{
    fby_png_chunks *png = w->png;

    if (c->length < 8) return fail(w, c, FBY_REASON_CORRUPT, "too short");
    if (png->data_chunk) return FBY_REASON_NONE;

    /* Pillow takes back the first of two headers. */
    uint32_t frames = big32(c->bytes);
    png->animated = !png->animated && frames && frames <= 0x80000000u;
    png->frames = frames;
    return FBY_REASON_NONE;
}

static fby_reason read_sequence(walk *w, const chunk *c, bool may_be_first)
{
    fby_png_chunks *png = w->png;
    uint32_t sequence = big32(c->bytes);
    bool fits = png->sequence_seen ? sequence == png->sequence + 1 && sequence : may_be_first && !sequence;

    if (!fits) return fail(w, c, FBY_REASON_CORRUPT, "animation frames out of sequence");
    png->sequence_seen = true;
    png->sequence = sequence;
    return FBY_REASON_NONE;
}

static fby_reason read_frame(walk *w, const chunk *c)
{
    fby_png_chunks *png = w->png;

    if (c->length < 26) return fail(w, c, FBY_REASON_CORRUPT, "too short");
    fby_reason reason = read_sequence(w, c, true);
    if (reason) return reason;

    fby_region_of box = {big32(c->bytes + 12), big32(c->bytes + 16), big32(c->bytes + 4),
                         big32(c->bytes + 8)};
    if ((uint64_t)box.x + box.w > png->w || (uint64_t)box.y + box.h > png->h) {
        return fail(w, c, FBY_REASON_CORRUPT, "a frame outside the canvas");
    }
    if (!png->data_chunk) {
        png->box = box;
        png->boxed = true;
    }
    return FBY_REASON_NONE;
}

/* Any chunk but image data and the end. */
static fby_reason read_chunk(walk *w, const chunk *c)
{
    fby_png_chunks *png = w->png;

    if (c->there < c->length) return fail(w, c, FBY_REASON_TRUNCATED, "the file ends within it");
    switch (c->name) {
    case NAME('I', 'H', 'D', 'R'):
        return read_header(w, c);
    case NAME('P', 'L', 'T', 'E'):
        if (png->bits && png->color == FBY_PNG_PALETTE && !png->data_chunk) {
            png->palette = c->bytes;
            png->palette_length = c->length;
        }
        return FBY_REASON_NONE;
    case NAME('t', 'R', 'N', 'S'):
        return read_transparency(w, c);
    case NAME('i', 'C', 'C', 'P'):
        return read_profile(w, c);
    case NAME('z', 'T', 'X', 't'):
        return read_compressed_text(w, c);
    case NAME('i', 'T', 'X', 't'):
        return read_international_text(w, c);
    case NAME('g', 'A', 'M', 'A'):
        return at_least(w, c, 4);
    case NAME('c', 'H', 'R', 'M'):
        return at_least(w, c, 32);
    case NAME('s', 'R', 'G', 'B'):
        return at_least(w, c, 1);
    case NAME('p', 'H', 'Y', 's'):
        return at_least(w, c, 9);
    case NAME('e', 'X', 'I', 'f'):
        png->exif = c->bytes;
        png->exif_length = c->length;
        png->exif_orientation = fby_exif_orientation(c->bytes, c->length);
        return FBY_REASON_NONE;
    case NAME('a', 'c', 'T', 'L'):
        return read_animation(w, c);
    case NAME('f', 'c', 'T', 'L'):
        return read_frame(w, c);
    default:
        return FBY_REASON_NONE;
    }
}

static fby_reason check_crc(walk *w, const chunk *c)
{
    size_t left = w->decoder->length - c->at - c->length;

    if (left < CRC) return fail(w, c, FBY_REASON_TRUNCATED, "the file ends at its checksum");
    if (libdeflate_crc32(0, c->bytes - 4, c->length + 4) != big32(c->bytes + c->length)) {
        return fail(w, c, FBY_REASON_CORRUPT, "wrong checksum");
    }
    return FBY_REASON_NONE;
}

static bool is_frame_data(const chunk *c)
{
    return c->name == NAME('f', 'd', 'A', 'T');
}

static bool is_data(const chunk *c)
{
    return c->name == NAME('I', 'D', 'A', 'T') || is_frame_data(c);
}

static fby_reason broken_head(walk *w, head_result result, size_t at)
{
    if (result == HEAD_MISSING) {
        return fby_decode_fail(w->decoder, FBY_REASON_TRUNCATED,
                               "the file ends at byte %zu, before its end chunk", w->decoder->length);
    }
    return fby_decode_fail(w->decoder, FBY_REASON_CORRUPT, "no PNG chunk begins at byte %zu", at);
}

/* Up to the first image data; *at is then its head. */
static fby_reason walk_before_data(walk *w, size_t *at)
{
    fby_png_chunks *png = w->png;

    for (*at = SIGNATURE;;) {
        chunk c;
        head_result result = read_head(w, *at, &c);
        if (result != HEAD_READ) return broken_head(w, result, *at);
        if (c.name == NAME('I', 'E', 'N', 'D'))
            return fail(w, &c, FBY_REASON_CORRUPT, "before any image data");
        if (is_data(&c) && png->bits) return FBY_REASON_NONE;

        fby_reason reason = read_chunk(w, &c);
        if (!reason) reason = check_crc(w, &c);
        if (reason) return reason;
        *at = c.at + c.length + CRC;
    }
}

/* Where the data of an image data chunk begins: an animation's has a sequence number before it. */
static fby_reason enter_data(walk *w, const chunk *c, size_t *skip)
{
    *skip = 0;
    if (!is_frame_data(c)) return FBY_REASON_NONE;
    *skip = 4;
    if (c->length < 4) return fail(w, c, FBY_REASON_CORRUPT, "too short");
    if (c->there < 4) return fail(w, c, FBY_REASON_TRUNCATED, "the file ends within it");
    return read_sequence(w, c, false);
}

/* Over all adjacent image data chunks; *at is then what follows. */
static fby_reason walk_data(walk *w, size_t *at)
{
    fby_png_chunks *png = w->png;
    int chunks = 0;
    chunk c;

    for (;;) {
        head_result result = read_head(w, *at, &c);
        bool data = result == HEAD_READ && (is_data(&c) || (chunks && c.name == NAME('D', 'D', 'A', 'T')));
        if (!data) {
            png->short_of = result == HEAD_BROKEN ? FBY_REASON_CORRUPT : FBY_REASON_TRUNCATED;
            png->data_in_one = chunks == 1;
            return FBY_REASON_NONE;
        }

        size_t skip;
        fby_reason reason = enter_data(w, &c, &skip);
        if (reason) return reason;
        if (!chunks++) {
            png->data_chunk = *at;
            png->data_at = c.at + skip;
        }
        png->data_length += c.there - skip;
        *at = c.at + c.length + CRC;
    }
}

/* After the image data no checksum counts, and what isn't a chunk is the end. */
static fby_reason walk_after_data(walk *w, size_t at)
{
    for (;;) {
        chunk c;
        if (read_head(w, at, &c) != HEAD_READ || c.name == NAME('I', 'E', 'N', 'D')) return FBY_REASON_NONE;
        if (c.name == NAME('f', 'c', 'T', 'L') && w->png->frames > 1) {
            return FBY_REASON_NONE;
        }
        fby_reason reason;
        if (is_data(&c)) {
            size_t skip;
            reason = enter_data(w, &c, &skip);
            if (!reason && c.there < c.length)
                reason = fail(w, &c, FBY_REASON_TRUNCATED, "the file ends within it");
        } else {
            reason = read_chunk(w, &c);
        }
        if (reason) return reason;
        at = c.at + c.length + CRC;
    }
}

fby_reason fby_png_chunks_read(fby_decoder *decoder, fby_png_chunks *out)
{
    walk w = {.decoder = decoder, .png = out};
    size_t at;

    *out = (fby_png_chunks){0};
    fby_reason reason = walk_before_data(&w, &at);
    if (!reason) reason = walk_data(&w, &at);
    if (reason) return reason;
    /* Where no frame header stood before the image data, that is a picture of its own, before the animation.
     */
    out->frames = out->animated ? out->frames + !out->boxed : 1;
    return walk_after_data(&w, at);
}

void fby_png_chunks_copy(const fby_decoder *decoder, const fby_png_chunks *chunks, uint8_t *out)
{
    walk w = {.decoder = (fby_decoder *)(uintptr_t)decoder};
    size_t at = chunks->data_chunk;
    size_t done = 0;
    chunk c;

    while (done < chunks->data_length && read_head(&w, at, &c) == HEAD_READ) {
        size_t skip = is_frame_data(&c) ? 4 : 0;
        memcpy(out + done, c.bytes + skip, c.there - skip);
        done += c.there - skip;
        at = c.at + c.length + CRC;
    }
}
