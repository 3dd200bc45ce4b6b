/* Finds the format, checks sizes, turns pictures, and hands out rows; the formats' own files do the decoding.
 */
#include "codec/decode.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <forebay/fbl.h>

#include "codec/format.h"

enum { CHANNELS = 3 };

static const uint64_t DEFAULT_MAX_PIXELS = 178956970; /* Pillow: twice MAX_IMAGE_PIXELS is an error */

static const fby_codec *const codecs[FBY_FORMATS] = {
    [FBY_FORMAT_JPEG] = &fby_codec_jpeg, [FBY_FORMAT_PNG] = &fby_codec_png,
    [FBY_FORMAT_WEBP] = &fby_codec_webp, [FBY_FORMAT_TIFF] = &fby_codec_tiff,
    [FBY_FORMAT_GIF] = &fby_codec_gif,   [FBY_FORMAT_FBL] = &fby_codec_fbl,
};

fby_reason fby_decode_fail(fby_decoder *decoder, fby_reason reason, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(decoder->text, sizeof decoder->text, format, arguments);
    va_end(arguments);
    for (char *c = decoder->text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 127) *c = ' ';
    }
    return reason;
}

int fby_decoder_create(fby_decoder **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : -1;
}

void fby_decoder_destroy(fby_decoder **decoder)
{
    fby_decoder *d = *decoder;

    if (!d) return;
    for (int f = 0; f < FBY_FORMATS; f++) {
        if (d->state[f]) codecs[f]->destroy(d);
    }
    fby_buffer_free(&d->pixels);
    fby_buffer_free(&d->turned);
    for (size_t i = 0; i < sizeof d->scratch / sizeof *d->scratch; i++) fby_buffer_free(&d->scratch[i]);
    free(d);
    *decoder = NULL;
}

size_t fby_decoder_bytes(const fby_decoder *decoder)
{
    size_t bytes = sizeof *decoder + decoder->pixels.capacity + decoder->turned.capacity;

    for (size_t i = 0; i < sizeof decoder->scratch / sizeof *decoder->scratch; i++) {
        bytes += decoder->scratch[i].capacity;
    }
    for (int f = 0; f < FBY_FORMATS; f++) {
        if (decoder->state[f]) bytes += codecs[f]->bytes(decoder);
    }
    return bytes;
}

fby_jpeg_counts fby_decoder_jpeg_counts(const fby_decoder *decoder)
{
    return decoder->jpeg_counts;
}

/* Ends the open picture, whether it was read to its end or not. */
static void close_picture(fby_decoder *d)
{
    if (d->codec) d->codec->close(d);
    d->codec = NULL;
    d->stage = FBY_DECODER_IDLE;
    d->ready = NULL;
    d->bytes = NULL;
    d->length = 0;
    fby_buffer_trim(&d->pixels);
    fby_buffer_trim(&d->turned);
    for (size_t i = 0; i < sizeof d->scratch / sizeof *d->scratch; i++) fby_buffer_trim(&d->scratch[i]);
}

static bool starts_with(const uint8_t *bytes, size_t length, const char *magic, size_t magic_length)
{
    return length >= magic_length && !memcmp(bytes, magic, magic_length);
}

#define STARTS(Magic) starts_with(bytes, length, Magic, sizeof(Magic) - 1)

/* ISO base media files: the brand after "ftyp" says which kind. */
static fby_format media_format(const uint8_t *bytes, size_t length)
{
    if (length < 12 || memcmp(bytes + 4, "ftyp", 4)) return FBY_FORMAT_UNKNOWN;
    if (!memcmp(bytes + 8, "avif", 4) || !memcmp(bytes + 8, "avis", 4)) return FBY_FORMAT_AVIF;

    static const char brands[][5] = {"heic", "heix", "hevc", "hevx", "heim", "heis", "mif1", "msf1"};
    for (size_t i = 0; i < sizeof brands / sizeof *brands; i++) {
        if (!memcmp(bytes + 8, brands[i], 4)) return FBY_FORMAT_HEIF;
    }
    return FBY_FORMAT_UNKNOWN;
}

/* "<!doctype", "<html" and the like, whatever stands before them of white space and a byte order mark. */
static bool looks_like_html(const uint8_t *bytes, size_t length)
{
    static const char *const openings[] = {"<!doctype", "<html",   "<head", "<body",
                                           "<?xml",     "<script", "<!--"};
    size_t limit = length < 64 ? length : 64;
    size_t at = STARTS("\xef\xbb\xbf") ? 3 : 0;

    while (at < limit && (bytes[at] == ' ' || (bytes[at] >= '\t' && bytes[at] <= '\r'))) at++;
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        size_t n = strlen(openings[i]);
        if (limit - at >= n && !strncasecmp((const char *)bytes + at, openings[i], n)) return true;
    }
    return false;
}

fby_format fby_format_of(const uint8_t *bytes, size_t length)
{
    if (STARTS("\xff\xd8\xff")) return FBY_FORMAT_JPEG;
    if (STARTS("\x89PNG\r\n\x1a\n")) return FBY_FORMAT_PNG;
    if (STARTS("RIFF") && length >= 12 && !memcmp(bytes + 8, "WEBP", 4)) return FBY_FORMAT_WEBP;
    if (STARTS("II*\0") || STARTS("MM\0*") || STARTS("II+\0") || STARTS("MM\0+")) return FBY_FORMAT_TIFF;
    if (STARTS("GIF87a") || STARTS("GIF89a")) return FBY_FORMAT_GIF;
    if (fby_fbl_is(bytes, length)) return FBY_FORMAT_FBL;
    if (STARTS("BM") && length >= 14) return FBY_FORMAT_BMP;
    if (length >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7' &&
        strchr(" \t\r\n#", bytes[2]) && bytes[2]) {
        return FBY_FORMAT_PNM;
    }
    if (STARTS("\xff\x0a") || STARTS("\0\0\0\x0cJXL \r\n\x87\n")) return FBY_FORMAT_JPEG_XL;

    fby_format media = media_format(bytes, length);
    if (media != FBY_FORMAT_UNKNOWN) return media;
    return looks_like_html(bytes, length) ? FBY_FORMAT_HTML : FBY_FORMAT_UNKNOWN;
}

bool fby_format_decoded(fby_format format)
{
    return codecs[format] != NULL;
}

static fby_reason refuse_format(fby_decoder *d, fby_format format)
{
    if (format == FBY_FORMAT_HTML) {
        return fby_decode_fail(d, FBY_REASON_FORMAT, "this is a web page (HTML), not a picture");
    }
    if (format != FBY_FORMAT_UNKNOWN) {
        return fby_decode_fail(d, FBY_REASON_FORMAT, "%s has no decoder here", fby_format_name(format));
    }
    char shown[3 * 8 + 1] = "";
    size_t n = d->length < 8 ? d->length : 8;
    for (size_t i = 0; i < n; i++) snprintf(shown + 3 * i, 4, " %02x", d->bytes[i]);
    return fby_decode_fail(d, FBY_REASON_FORMAT, "no known picture format: it starts with%s", shown);
}

static fby_reason check_size(fby_decoder *d)
{
    uint64_t most = d->options.max_pixels ? d->options.max_pixels : DEFAULT_MAX_PIXELS;
    uint64_t w = d->info.w;
    uint64_t h = d->info.h;

    if (!w || !h) {
        return fby_decode_fail(d, FBY_REASON_CORRUPT, "the header says %llu x %llu pixels",
                               (unsigned long long)w, (unsigned long long)h);
    }
    /* Everything further on counts in 64 bits with a factor of up to 8 bytes a pixel, and coordinates are int
     * in the libraries: what passes here can't overflow there. */
    if (w > INT32_MAX || h > INT32_MAX || w * h > most || w * h > (uint64_t)1 << 56) {
        return fby_decode_fail(d, FBY_REASON_TOO_LARGE, "%llu x %llu pixels are more than max_pixels = %llu",
                               (unsigned long long)w, (unsigned long long)h, (unsigned long long)most);
    }
    return FBY_REASON_NONE;
}

/* Where a library blames the file for short memory too, the second try tells: a bad file is bad again. */
static bool is_worth_a_second_try(const fby_decoder *d, fby_reason reason)
{
    return d->codec->blames_the_file && (reason == FBY_REASON_CORRUPT || reason == FBY_REASON_TRUNCATED);
}

static fby_reason open_picture(fby_decoder *d)
{
    fby_reason reason = d->codec->open(d);

    if (!is_worth_a_second_try(d, reason)) return reason;
    d->codec->close(d);
    d->info = (fby_picture_info){.format = d->codec->format, .frames = 1, .orientation = 1};
    return d->codec->open(d);
}

fby_reason fby_decode_open(fby_decoder *d, const uint8_t *bytes, size_t length,
                           const fby_decode_options *options, fby_picture_info *info)
{
    close_picture(d);
    d->text[0] = 0;
    d->bytes = bytes;
    d->length = length;
    d->options = options ? *options : (fby_decode_options){0};
    d->info = (fby_picture_info){.frames = 1, .orientation = 1};
    if (info) *info = d->info;

    if (!length) return fby_decode_fail(d, FBY_REASON_EMPTY, "the file has no bytes");

    fby_format format = fby_format_of(bytes, length);
    d->info.format = format;
    if (info) info->format = format;
    if (!codecs[format]) return refuse_format(d, format);

    d->codec = codecs[format];
    fby_reason reason = open_picture(d);
    if (!reason) reason = check_size(d);
    if (info) *info = d->info;
    if (reason) {
        close_picture(d);
        return reason;
    }

    d->file_w = d->info.w;
    d->file_h = d->info.h;
    d->turn = d->options.exif || d->codec->always_turned ? d->info.orientation : 1;
    if (d->turn >= 5) {
        d->info.w = d->file_h;
        d->info.h = d->file_w;
    }
    d->stage = FBY_DECODER_OPEN;
    if (info) *info = d->info;
    return FBY_REASON_NONE;
}

/* Where pixel (x, y) of the turned picture lies in the file's: EXIF's eight orientations. */
static void unturn(const fby_decoder *d, uint32_t x, uint32_t y, uint32_t *file_x, uint32_t *file_y)
{
    uint32_t right = d->file_w - 1;
    uint32_t bottom = d->file_h - 1;

    switch (d->turn) {
    case 2:
        *file_x = right - x, *file_y = y;
        break;
    case 3:
        *file_x = right - x, *file_y = bottom - y;
        break;
    case 4:
        *file_x = x, *file_y = bottom - y;
        break;
    case 5:
        *file_x = y, *file_y = x;
        break;
    case 6:
        *file_x = y, *file_y = bottom - x;
        break;
    case 7:
        *file_x = right - y, *file_y = bottom - x;
        break;
    case 8:
        *file_x = right - y, *file_y = x;
        break;
    default:
        *file_x = x, *file_y = y;
        break;
    }
}

static fby_region_of unturn_region(const fby_decoder *d, const fby_region_of *region)
{
    uint32_t x0, y0, x1, y1;

    unturn(d, region->x, region->y, &x0, &y0);
    unturn(d, region->x + region->w - 1, region->y + region->h - 1, &x1, &y1);

    uint32_t left = x0 < x1 ? x0 : x1;
    uint32_t top = y0 < y1 ? y0 : y1;
    return (fby_region_of){
        .x = left,
        .y = top,
        .w = (x0 < x1 ? x1 : x0) - left + 1,
        .h = (y0 < y1 ? y1 : y0) - top + 1,
    };
}

static void turn_pixels(const fby_decoder *d, const fby_region_of *in_file, size_t pixel, const uint8_t *from,
                        uint8_t *to, size_t to_stride)
{
    for (uint32_t y = 0; y < d->wanted.h; y++) {
        uint8_t *row = to + (size_t)y * to_stride;
        for (uint32_t x = 0; x < d->wanted.w; x++) {
            uint32_t file_x, file_y;
            unturn(d, d->wanted.x + x, d->wanted.y + y, &file_x, &file_y);
            memcpy(row + (size_t)x * pixel,
                   from + ((size_t)(file_y - in_file->y) * in_file->w + (file_x - in_file->x)) * pixel,
                   pixel);
        }
    }
}

static fby_reason no_memory(fby_decoder *d, size_t bytes)
{
    return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for %zu bytes", bytes);
}

static fby_reason decode_at_once(fby_decoder *d, const fby_region_of *in_file, uint8_t *out, size_t stride)
{
    fby_reason reason = d->codec->region(d, in_file, out, stride);

    if (!is_worth_a_second_try(d, reason)) return reason;
    fby_picture_info info = d->info;
    d->codec->close(d);
    fby_reason again = d->codec->open(d);
    d->info = info;
    return again ? again : d->codec->region(d, in_file, out, stride);
}

/* A region in the file's coordinates, whichever way its codec gives it. */
static fby_reason decode_region(fby_decoder *d, const fby_region_of *in_file, uint8_t *out, size_t stride)
{
    if (d->codec->region) return decode_at_once(d, in_file, out, stride);

    fby_reason reason = d->codec->begin(d, in_file);
    uint32_t done = 0;
    while (!reason && done < in_file->h) {
        const uint8_t *rows;
        size_t rows_stride;
        uint32_t count;

        reason = d->codec->rows(d, &rows, &rows_stride, in_file->h - done, &count);
        if (reason) break;
        for (uint32_t i = 0; i < count; i++, done++) {
            memcpy(out + (size_t)done * stride, rows + i * rows_stride, (size_t)in_file->w * CHANNELS);
        }
    }
    return reason;
}

static fby_reason decode_turned(fby_decoder *d, uint8_t *out, size_t stride)
{
    fby_region_of in_file = unturn_region(d, &d->wanted);
    size_t row = (size_t)in_file.w * CHANNELS;

    if (d->turn == 1) return decode_region(d, &in_file, out, stride);
    if (!fby_buffer_reserve(&d->pixels, row * in_file.h)) return no_memory(d, row * in_file.h);

    fby_reason reason = decode_region(d, &in_file, d->pixels.bytes, row);
    if (!reason) turn_pixels(d, &in_file, CHANNELS, d->pixels.bytes, out, stride);
    return reason;
}

/* A call out of its order, or a region outside the picture, is the caller's mistake: said, never undefined.
 */
static fby_reason check_begin(fby_decoder *d, const fby_region_of *region)
{
    if (d->stage != FBY_DECODER_OPEN) {
        return fby_decode_fail(d, FBY_REASON_SHAPE, "no picture is open, or its decoding has begun");
    }
    if (!region->w || !region->h || region->w > d->info.w || region->h > d->info.h ||
        region->x > d->info.w - region->w || region->y > d->info.h - region->h) {
        return fby_decode_fail(d, FBY_REASON_SHAPE,
                               "region %u x %u at (%u, %u) isn't within the picture's %u x %u", region->w,
                               region->h, region->x, region->y, d->info.w, d->info.h);
    }
    return FBY_REASON_NONE;
}

static fby_reason settle(fby_decoder *d, fby_reason reason)
{
    if (reason) close_picture(d);
    return reason;
}

fby_reason fby_decode_begin(fby_decoder *d, const fby_region_of *region)
{
    fby_reason reason = check_begin(d, region);

    if (reason) return settle(d, reason);
    d->wanted = *region;
    d->given = 0;
    d->stage = FBY_DECODER_ROWS;
    if (d->turn == 1 && d->codec->begin) return settle(d, d->codec->begin(d, region));

    size_t row = (size_t)region->w * CHANNELS;
    fby_buffer *out = d->turn == 1 ? &d->pixels : &d->turned;
    if (!fby_buffer_reserve(out, row * region->h)) return settle(d, no_memory(d, row * region->h));

    reason = decode_turned(d, out->bytes, row);
    if (!reason) d->ready = out->bytes;
    return settle(d, reason);
}

fby_reason fby_decode_rows(fby_decoder *d, const uint8_t **rows, size_t *stride, uint32_t most,
                           uint32_t *count)
{
    *rows = NULL;
    *stride = 0;
    *count = 0;
    if (d->stage != FBY_DECODER_ROWS) {
        return fby_decode_fail(d, FBY_REASON_SHAPE, "no region's decoding has begun");
    }

    uint32_t left = d->wanted.h - d->given;
    if (!left || !most) return FBY_REASON_NONE;
    if (most > left) most = left;

    if (!d->ready) {
        fby_reason reason = d->codec->rows(d, rows, stride, most, count);
        d->given += *count;
        return settle(d, reason);
    }
    *stride = (size_t)d->wanted.w * CHANNELS;
    *rows = d->ready + *stride * d->given;
    *count = most;
    d->given += most;
    return FBY_REASON_NONE;
}

const char *fby_decode_text(const fby_decoder *decoder)
{
    return decoder->text;
}

fby_reason fby_decode_into(fby_decoder *d, const fby_region_of *region, uint8_t *out, size_t stride)
{
    fby_region_of whole = {0, 0, d->info.w, d->info.h};
    fby_region_of wanted = region ? *region : whole;
    fby_reason reason = check_begin(d, &wanted);

    if (!reason) {
        d->wanted = wanted;
        d->stage = FBY_DECODER_ROWS;
        reason = decode_turned(d, out, stride);
    }
    close_picture(d);
    return reason;
}

/* --- as the file has it ------------------------------------------------------------------------------- */

fby_reason fby_original_form(fby_decoder *d, fby_original *out)
{
    *out = (fby_original){.channels = CHANNELS, .bits = 8};
    if (d->stage != FBY_DECODER_OPEN) return fby_decode_fail(d, FBY_REASON_SHAPE, "no picture is open");
    if (d->codec->form)
        d->codec->form(d, out);
    else if (d->info.channels == 1)
        out->channels = 1;
    return FBY_REASON_NONE;
}

/* The whole picture in the file's coordinates. */
static fby_reason original_in_file(fby_decoder *d, fby_original *original, uint8_t *out)
{
    const size_t row = (size_t)d->file_w * fby_original_pixel_bytes(original);
    const fby_region_of whole = {0, 0, d->file_w, d->file_h};
    const size_t pixels = (size_t)d->file_w * d->file_h;

    if (d->codec->original) return d->codec->original(d, original, out, row);
    if (original->channels == CHANNELS) return decode_region(d, &whole, out, row);
    if (!fby_buffer_reserve(&d->pixels, pixels * CHANNELS)) return no_memory(d, pixels * CHANNELS);
    fby_reason reason = decode_region(d, &whole, d->pixels.bytes, (size_t)d->file_w * CHANNELS);
    if (reason) return reason;
    for (size_t i = 0; i < pixels; i++) out[i] = d->pixels.bytes[i * CHANNELS];
    return FBY_REASON_NONE;
}

static fby_reason original_turned(fby_decoder *d, fby_original *original, uint8_t *out)
{
    const size_t pixel = fby_original_pixel_bytes(original);
    const size_t bytes = (size_t)d->file_w * d->file_h * pixel;
    const fby_region_of whole = {0, 0, d->file_w, d->file_h};

    if (d->turn == 1) return original_in_file(d, original, out);
    if (!fby_buffer_reserve(&d->turned, bytes)) return no_memory(d, bytes);
    fby_reason reason = original_in_file(d, original, d->turned.bytes);
    d->wanted = (fby_region_of){0, 0, d->info.w, d->info.h};
    if (!reason) turn_pixels(d, &whole, pixel, d->turned.bytes, out, (size_t)d->info.w * pixel);
    return reason;
}

fby_reason fby_original_decode(fby_decoder *d, fby_original *original, void *out)
{
    fby_region_of whole = {0, 0, d->info.w, d->info.h};
    fby_reason reason = check_begin(d, &whole);

    if (!reason) {
        d->stage = FBY_DECODER_ROWS;
        original->entries = 0;
        reason = original_turned(d, original, out);
    }
    close_picture(d);
    return reason;
}

fby_reason fby_original_metadata(fby_decoder *d, fby_metadata *out)
{
    if (d->stage != FBY_DECODER_OPEN) return fby_decode_fail(d, FBY_REASON_SHAPE, "no picture is open");
    return d->codec->metadata ? d->codec->metadata(d, out) : FBY_REASON_NONE;
}
