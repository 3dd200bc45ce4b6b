/* TIFF by libtiff: the first page, in the kinds that Pillow turns into RGB. Each strip or tile is read as
 * Pillow reads it, the whole file for the verdict; only the region's part is kept. As Pillow does for this
 * format, and for this one alone, the orientation tag is always applied. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "codec/format.h"

enum { MOST_SAMPLES = 6, CORELDRAW_ALPHA = 999, MOST_AT_ONCE = 256 << 20 };

typedef enum tiff_kind {
    KIND_GRAY,
    KIND_GRAY_16, /* in the machine's byte order, the high byte is kept */
    KIND_PALETTE,
    KIND_RGB,
    KIND_RGB_PREMULTIPLIED,
    KIND_CMYK,
} tiff_kind;

typedef struct tiff_state {
    TIFF *tiff; /* of the open picture */
    const fby_decoder *decoder;
    uint64_t at;
    char message[FBY_DECODE_TEXT];

    tiff_kind kind;
    uint16_t bits, samples, planar, compression;
    bool inverted; /* 0 is white */
    bool alpha;    /* the sample after the colours is that */
    uint8_t colors[256][3];
} tiff_state;

static tmsize_t on_read(thandle_t handle, void *out, tmsize_t count)
{
    tiff_state *t = (tiff_state *)handle;
    uint64_t length = t->decoder->length;
    uint64_t left = t->at < length ? length - t->at : 0;
    uint64_t given = count < 0 ? 0 : (uint64_t)count < left ? (uint64_t)count : left;

    if (given) memcpy(out, t->decoder->bytes + t->at, given);
    t->at += given;
    return (tmsize_t)given;
}

static tmsize_t on_write(thandle_t handle, void *bytes, tmsize_t count)
{
    (void)handle, (void)bytes, (void)count;
    return 0;
}

static toff_t on_seek(thandle_t handle, toff_t offset, int whence)
{
    tiff_state *t = (tiff_state *)handle;

    if (whence == SEEK_CUR)
        offset += t->at;
    else if (whence == SEEK_END)
        offset += t->decoder->length;
    t->at = offset;
    return offset;
}

static int on_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t on_size(thandle_t handle)
{
    return ((tiff_state *)handle)->decoder->length;
}

static int on_map(thandle_t handle, void **base, toff_t *size)
{
    tiff_state *t = (tiff_state *)handle;

    *base = (void *)(uintptr_t)t->decoder->bytes;
    *size = t->decoder->length;
    return 1;
}

static void on_unmap(thandle_t handle, void *base, toff_t size)
{
    (void)handle, (void)base, (void)size;
}

static int on_error(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments)
{
    tiff_state *t = user;

    /* The first of several says what was wrong, the others what came of it. */
    (void)tiff, (void)module;
    if (*t->message) return 1;
    vsnprintf(t->message, sizeof t->message, format, arguments);
    return 1;
}

static int on_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments)
{
    (void)tiff, (void)user, (void)module, (void)format, (void)arguments;
    return 1;
}

/* libtiff has no codes, only words. */
static fby_reason fail_by_message(fby_decoder *d, const tiff_state *t)
{
    static const char *const memory[] = {"emory", "allocat"};
    static const char *const early[] = {
        "Read error",   "Not enough data", "Premature EOF", "not enough bytes",
        "Can not read", "Cannot read",     "got 0 bytes",   "EOF"};

    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        if (strstr(t->message, memory[i]))
            return fby_decode_fail(d, FBY_REASON_MEMORY, "libtiff: %.140s", t->message);
    }
    for (size_t i = 0; i < sizeof early / sizeof *early; i++) {
        if (strstr(t->message, early[i]))
            return fby_decode_fail(d, FBY_REASON_TRUNCATED, "libtiff: %.140s", t->message);
    }
    return fby_decode_fail(d, FBY_REASON_CORRUPT, "libtiff: %.140s",
                           *t->message ? t->message : "the file is broken");
}

static fby_reason open_library(fby_decoder *d, tiff_state *t)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();

    if (!options) return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a TIFF decoder");
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, t);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, t);
    /* What libtiff allocates by itself are tables of strips and one strip's compressed bytes. */
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, MOST_AT_ONCE);
    t->tiff = TIFFClientOpenExt("picture", "rC", t, on_read, on_write, on_seek, on_close, on_size, on_map,
                                on_unmap, options);
    TIFFOpenOptionsFree(options);
    return t->tiff ? FBY_REASON_NONE : fail_by_message(d, t);
}

static bool compression_is_read(uint16_t compression)
{
    switch (compression) {
    case COMPRESSION_NONE:
    case COMPRESSION_CCITTRLE:
    case COMPRESSION_CCITTFAX3:
    case COMPRESSION_CCITTFAX4:
    case COMPRESSION_LZW:
    case COMPRESSION_JPEG:
    case COMPRESSION_ADOBE_DEFLATE:
    case COMPRESSION_DEFLATE:
    case COMPRESSION_PACKBITS:
        return true;
    default:
        return false;
    }
}

/* Extra samples after the colours: at most three, of which only the first may be alpha. */
static bool extras_are_read(const uint16_t *types, uint16_t count)
{
    for (uint16_t i = 1; i < count; i++) {
        if (types[i] != EXTRASAMPLE_UNSPECIFIED) return false;
    }
    return count <= 3;
}

static fby_reason unsupported(fby_decoder *d, const tiff_state *t, uint16_t photometric)
{
    return fby_decode_fail(
        d, FBY_REASON_UNSUPPORTED,
        "TIFF with photometric interpretation %u, %u samples of %u bits and compression %u isn't supported",
        photometric, t->samples, t->bits, t->compression);
}

static bool gray_is_read(tiff_state *t, uint16_t photometric, uint16_t format, uint16_t extra,
                         uint16_t extra_type)
{
    t->inverted = photometric == PHOTOMETRIC_MINISWHITE;
    if (t->samples != 1 + extra || extra > 1) return false;
    if (extra) {
        return t->bits == 8 && !t->inverted && format == SAMPLEFORMAT_UINT &&
               extra_type != EXTRASAMPLE_ASSOCALPHA;
    }
    if (t->bits == 16) {
        /* Pillow doesn't invert these, and knows the white-is-zero ones in little-endian files only. */
        bool big = TIFFIsBigEndian(t->tiff);
        bool read = format == SAMPLEFORMAT_UINT && !(t->inverted && big);
        t->kind = KIND_GRAY_16;
        t->inverted = false;
        return read;
    }
    if (t->bits != 1 && t->bits != 2 && t->bits != 4 && t->bits != 8) return false;
    return format == SAMPLEFORMAT_UINT || (format == SAMPLEFORMAT_INT && t->bits == 8 && !t->inverted);
}

static bool rgb_is_read(tiff_state *t, uint16_t extra, const uint16_t *types)
{
    t->kind = KIND_RGB;
    if (t->bits != 8 && t->bits != 16) return false;
    if (!extra) return t->samples == 3 || t->samples == 4;
    if (t->samples != 3 + extra || (t->bits == 16 && extra > 1)) return false;
    if (types[0] == EXTRASAMPLE_ASSOCALPHA) {
        t->kind = KIND_RGB_PREMULTIPLIED;
        return t->bits == 8;
    }
    return types[0] == EXTRASAMPLE_UNSPECIFIED || types[0] == EXTRASAMPLE_UNASSALPHA ||
           types[0] == CORELDRAW_ALPHA;
}

static bool read_palette(tiff_state *t, uint16_t extra, uint16_t extra_type)
{
    uint16_t *red, *green, *blue;

    t->kind = KIND_PALETTE;
    if (t->samples != 1 + extra || extra > 1 || (extra && t->bits != 8) ||
        extra_type == EXTRASAMPLE_ASSOCALPHA)
        return false;
    if (t->bits != 1 && t->bits != 2 && t->bits != 4 && t->bits != 8) return false;
    if (!TIFFGetField(t->tiff, TIFFTAG_COLORMAP, &red, &green, &blue)) return false;
    for (int i = 0; i < 1 << t->bits; i++) {
        t->colors[i][0] = (uint8_t)(red[i] >> 8);
        t->colors[i][1] = (uint8_t)(green[i] >> 8);
        t->colors[i][2] = (uint8_t)(blue[i] >> 8);
    }
    return true;
}

/* Finds how samples become RGB. */
static fby_reason read_kind(fby_decoder *d, tiff_state *t)
{
    uint16_t photometric = PHOTOMETRIC_MINISWHITE;
    uint16_t format = SAMPLEFORMAT_UINT;
    uint16_t extra = 0;
    uint16_t *types = NULL;
    static const uint16_t none[1] = {EXTRASAMPLE_UNSPECIFIED};

    TIFFGetField(t->tiff, TIFFTAG_PHOTOMETRIC, &photometric);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_COMPRESSION, &t->compression);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_BITSPERSAMPLE, &t->bits);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_SAMPLESPERPIXEL, &t->samples);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_PLANARCONFIG, &t->planar);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_SAMPLEFORMAT, &format);
    if (!TIFFGetField(t->tiff, TIFFTAG_EXTRASAMPLES, &extra, &types)) extra = 0;
    const uint16_t *extra_types = extra ? types : none;
    t->alpha = extra && (types[0] == EXTRASAMPLE_ASSOCALPHA || types[0] == EXTRASAMPLE_UNASSALPHA);

    if (!compression_is_read(t->compression) || !TIFFIsCODECConfigured(t->compression))
        return unsupported(d, t, photometric);
    if (!t->samples || t->samples > MOST_SAMPLES || !extras_are_read(extra_types, extra))
        return unsupported(d, t, photometric);
    if (t->planar == PLANARCONFIG_SEPARATE && t->samples > 1 &&
        (t->bits < 8 || (t->bits == 16 && t->compression == COMPRESSION_NONE))) {
        /* Pillow reads uncompressed planes of 16 bits as if they had 8. */
        return unsupported(d, t, photometric);
    }

    bool read = false;
    t->kind = KIND_GRAY;
    switch (photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
        read = gray_is_read(t, photometric, format, extra, extra_types[0]);
        break;
    case PHOTOMETRIC_PALETTE:
        read = format == SAMPLEFORMAT_UINT && read_palette(t, extra, extra_types[0]);
        break;
    case PHOTOMETRIC_RGB:
        read = format == SAMPLEFORMAT_UINT && rgb_is_read(t, extra, extra_types);
        break;
    case PHOTOMETRIC_SEPARATED:
        t->kind = KIND_CMYK;
        read = format == SAMPLEFORMAT_UINT && t->samples == 4 + extra &&
               (t->bits == 8 || (t->bits == 16 && !extra)) && extra_types[0] == EXTRASAMPLE_UNSPECIFIED;
        break;
    case PHOTOMETRIC_YCBCR:
        t->kind = KIND_RGB;
        read = t->compression == COMPRESSION_JPEG && t->planar == PLANARCONFIG_CONTIG && t->samples == 3 &&
               t->bits == 8;
        if (read) TIFFSetField(t->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
        break;
    default:
        break;
    }
    return read ? FBY_REASON_NONE : unsupported(d, t, photometric);
}

static fby_reason picture_open(fby_decoder *d)
{
    tiff_state *t = d->state[FBY_FORMAT_TIFF];
    uint16_t orientation = 1;

    if (!t) t = d->state[FBY_FORMAT_TIFF] = calloc(1, sizeof *t);
    if (!t) return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a TIFF decoder");
    *t = (tiff_state){.decoder = d};

    fby_reason reason = open_library(d, t);
    if (reason) return reason;
    if (!TIFFGetField(t->tiff, TIFFTAG_IMAGEWIDTH, &d->info.w) ||
        !TIFFGetField(t->tiff, TIFFTAG_IMAGELENGTH, &d->info.h)) {
        return fby_decode_fail(d, FBY_REASON_CORRUPT, "the first page has no size");
    }
    reason = read_kind(d, t);
    if (reason) return reason;

    TIFFGetField(t->tiff, TIFFTAG_ORIENTATION, &orientation);
    if (orientation >= 1 && orientation <= 8) d->info.orientation = orientation;
    d->info.channels = t->kind == KIND_PALETTE ? 3 : t->samples > 4 ? 4 : t->samples;
    d->info.bits = t->bits;
    d->info.frames = TIFFLastDirectory(t->tiff) ? 1 : 2;
    return FBY_REASON_NONE;
}

/* One block, a strip or a tile, of one plane, as libtiff gives it. */
typedef struct tiff_block {
    uint32_t x, y, w, h; /* its place in the picture, cut at its edges */
    uint16_t plane;
    const uint8_t *bytes;
    size_t stride;
} tiff_block;

static uint8_t clip(unsigned value)
{
    return (uint8_t)(value > 255 ? 255 : value);
}

static void unpremultiply(uint8_t *out, const uint8_t *in)
{
    unsigned alpha = in[3];

    for (int c = 0; c < 3; c++) out[c] = !alpha ? 0 : alpha == 255 ? in[c] : clip(in[c] * 255u / alpha);
}

/* Pillow's formula. */
static void cmyk_to_rgb(uint8_t *out, const uint8_t *in)
{
    int light = 255 - in[3];

    for (int c = 0; c < 3; c++) {
        int product = in[c] * light + 128;
        int value = light - ((product + (product >> 8)) >> 8);
        out[c] = (uint8_t)(value < 0 ? 0 : value);
    }
}

static void single_to_rgb(const tiff_state *t, const uint8_t *row, uint32_t x, uint8_t *out)
{
    if (t->kind == KIND_GRAY_16) {
        uint16_t value;
        memcpy(&value, row + (size_t)x * 2, 2);
        memset(out, value >> 8, 3);
        return;
    }

    unsigned value;
    if (t->bits == 8) {
        value = row[(size_t)x * (t->planar == PLANARCONFIG_SEPARATE ? 1 : t->samples)];
    } else {
        size_t at = (size_t)x * t->bits;
        value = row[at / 8] >> (8 - t->bits - at % 8) & ((1u << t->bits) - 1);
    }
    if (t->kind == KIND_PALETTE) {
        memcpy(out, t->colors[value], 3);
        return;
    }
    value = value * 255 / ((1u << t->bits) - 1);
    memset(out, (int)(t->inverted ? 255 - value : value), 3);
}

static uint8_t high_byte(const tiff_state *t, const uint8_t *sample)
{
    uint16_t value;

    if (t->bits == 8) return *sample;
    memcpy(&value, sample, 2);
    return (uint8_t)(value >> 8);
}

/* What becomes of a pixel whose samples lie side by side. */
static void samples_to_rgb(const tiff_state *t, const uint8_t *in, uint8_t *out)
{
    size_t size = t->bits / 8;
    uint8_t four[4];

    switch (t->kind) {
    case KIND_RGB_PREMULTIPLIED:
        unpremultiply(out, in);
        break;
    case KIND_CMYK:
        for (int c = 0; c < 4; c++) four[c] = high_byte(t, in + c * size);
        cmyk_to_rgb(out, four);
        break;
    default:
        for (int c = 0; c < 3; c++) out[c] = high_byte(t, in + c * size);
        break;
    }
}

static bool has_colors(const tiff_state *t)
{
    return t->kind == KIND_RGB || t->kind == KIND_RGB_PREMULTIPLIED || t->kind == KIND_CMYK;
}

static void samples_to_original(const tiff_state *t, const fby_original *original, const uint8_t *in,
                                uint8_t *out)
{
    if (t->kind == KIND_RGB) {
        memcpy(out, in, fby_original_pixel_bytes(original));
        return;
    }
    samples_to_rgb(t, in, out);
    if (original->channels == 4) out[3] = in[3];
}

static void single_to_original(const tiff_state *t, const fby_original *original, const uint8_t *row,
                               uint32_t x, uint8_t *out)
{
    uint8_t rgb[3];

    if (t->kind == KIND_GRAY_16) {
        memcpy(out, row + (size_t)x * 2, 2);
        return;
    }
    single_to_rgb(t, row, x, rgb);
    memcpy(out, rgb, original->channels == 3 ? 3 : 1);
    if (original->channels == 2) out[1] = row[(size_t)x * 2 + 1];
}

/* As RGB, or in the form that converting keeps. */
static void place_pixel(const tiff_state *t, const fby_original *original, const uint8_t *row, uint32_t x,
                        uint8_t *out)
{
    const uint8_t *samples = row + (size_t)x * t->samples * (t->bits / 8);

    if (has_colors(t) && original)
        samples_to_original(t, original, samples, out);
    else if (has_colors(t))
        samples_to_rgb(t, samples, out);
    else if (original)
        single_to_original(t, original, row, x, out);
    else
        single_to_rgb(t, row, x, out);
}

/* Where pixels go, and as what. */
typedef struct tiff_target {
    const fby_original *original; /* NULL: RGB */
    uint8_t *out;
    size_t stride, pixel;
    uint8_t *planes; /* separate planes first gather here, four samples for each pixel of the region */
} tiff_target;

/* Puts what of the block lies within the region where it belongs. */
static void place_block(const tiff_state *t, const tiff_block *block, const fby_region_of *region,
                        const tiff_target *to)
{
    const size_t size = t->bits / 8;
    uint32_t x0 = block->x > region->x ? block->x : region->x;
    uint32_t y0 = block->y > region->y ? block->y : region->y;
    uint32_t x1 = block->x + block->w < region->x + region->w ? block->x + block->w : region->x + region->w;
    uint32_t y1 = block->y + block->h < region->y + region->h ? block->y + block->h : region->y + region->h;

    for (uint32_t y = y0; y < y1; y++) {
        const uint8_t *row = block->bytes + (size_t)(y - block->y) * block->stride;
        for (uint32_t x = x0; x < x1; x++) {
            if (to->planes) {
                size_t pixel = (size_t)(y - region->y) * region->w + (x - region->x);
                memcpy(to->planes + (pixel * 4 + block->plane) * size, row + (size_t)(x - block->x) * size,
                       size);
            } else {
                place_pixel(t, to->original, row, x - block->x,
                            to->out + (size_t)(y - region->y) * to->stride + (x - region->x) * to->pixel);
            }
        }
    }
}

static void join_planes(const tiff_state *t, const fby_region_of *region, const tiff_target *to)
{
    const uint8_t *planes = to->planes;

    for (uint32_t y = 0; y < region->h; y++) {
        for (uint32_t x = 0; x < region->w; x++, planes += (size_t)4 * (t->bits / 8)) {
            uint8_t *pixel = to->out + (size_t)y * to->stride + x * to->pixel;
            if (to->original)
                samples_to_original(t, to->original, planes, pixel);
            else
                samples_to_rgb(t, planes, pixel);
        }
    }
}

typedef struct tiff_grid {
    bool tiled;
    uint32_t w, h;  /* of a block */
    tmsize_t bytes; /* of a whole one */
    tmsize_t stride;
    uint16_t planes; /* to be read */
} tiff_grid;

static fby_reason read_grid(fby_decoder *d, const tiff_state *t, tiff_grid *grid)
{
    bool separate = t->planar == PLANARCONFIG_SEPARATE && t->samples > 1;
    uint32_t rows = 0;

    grid->tiled = TIFFIsTiled(t->tiff);
    grid->planes = 1;
    if (separate) grid->planes = has_colors(t) ? (t->samples < 4 ? t->samples : 4) : 1;
    if (grid->tiled) {
        if (!TIFFGetField(t->tiff, TIFFTAG_TILEWIDTH, &grid->w) ||
            !TIFFGetField(t->tiff, TIFFTAG_TILELENGTH, &grid->h)) {
            return fby_decode_fail(d, FBY_REASON_CORRUPT, "the tiles have no size");
        }
        grid->bytes = TIFFTileSize(t->tiff);
        grid->stride = TIFFTileRowSize(t->tiff);
    } else {
        if (!TIFFGetField(t->tiff, TIFFTAG_ROWSPERSTRIP, &rows) || rows > d->file_h) rows = d->file_h;
        grid->w = d->file_w;
        grid->h = rows;
        grid->bytes = TIFFStripSize(t->tiff);
        grid->stride = TIFFScanlineSize(t->tiff);
    }

    uint64_t pixel = separate ? t->bits : (uint64_t)t->bits * t->samples;
    uint64_t row = ((uint64_t)grid->w * pixel + 7) / 8;
    if (!grid->w || !grid->h || grid->w > INT32_MAX || grid->h > INT32_MAX || grid->stride <= 0 ||
        grid->bytes <= 0 || (uint64_t)grid->stride != row || (uint64_t)grid->bytes > row * grid->h ||
        grid->bytes > INT32_MAX - 1) {
        return *t->message ? fail_by_message(d, t)
                           : fby_decode_fail(d, FBY_REASON_CORRUPT,
                                             "blocks of %u x %u pixels and %lld bytes contradict the picture",
                                             grid->w, grid->h, (long long)grid->bytes);
    }
    return FBY_REASON_NONE;
}

static fby_reason read_block(fby_decoder *d, tiff_state *t, const tiff_grid *grid, tiff_block *block)
{
    uint8_t *bytes = d->scratch[0].bytes;
    tmsize_t got;

    if (grid->tiled)
        got = TIFFReadTile(t->tiff, bytes, block->x, block->y, 0, block->plane);
    else
        got = TIFFReadEncodedStrip(t->tiff, TIFFComputeStrip(t->tiff, block->y, block->plane), bytes,
                                   grid->bytes);
    if (got < 0) return fail_by_message(d, t);
    block->bytes = bytes;
    block->stride = (size_t)grid->stride;
    return FBY_REASON_NONE;
}

static fby_reason read_region(fby_decoder *d, const fby_region_of *region, tiff_target *to)
{
    tiff_state *t = d->state[FBY_FORMAT_TIFF];
    tiff_grid grid;

    *t->message = 0;
    fby_reason reason = read_grid(d, t, &grid);
    if (reason) return reason;
    size_t block_bytes = (size_t)grid.stride * grid.h;
    size_t plane_bytes = grid.planes > 1 ? (size_t)region->w * region->h * 4 * (t->bits / 8) : 0;
    if (!fby_buffer_reserve(&d->scratch[0], block_bytes) ||
        !fby_buffer_reserve(&d->scratch[1], plane_bytes)) {
        return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for blocks of %zu bytes", block_bytes);
    }
    /* A block may decode to fewer rows than it should have: what stays must not be another picture's. */
    memset(d->scratch[0].bytes, 0, block_bytes);
    if (plane_bytes) {
        to->planes = d->scratch[1].bytes;
        memset(to->planes, 0, plane_bytes);
    }

    for (uint32_t y = 0; y < d->file_h; y += grid.h) {
        for (uint16_t plane = 0; plane < grid.planes; plane++) {
            for (uint32_t x = 0; x < d->file_w; x += grid.w) {
                tiff_block block = {
                    .x = x,
                    .y = y,
                    .w = grid.w < d->file_w - x ? grid.w : d->file_w - x,
                    .h = grid.h < d->file_h - y ? grid.h : d->file_h - y,
                    .plane = plane,
                };
                reason = read_block(d, t, &grid, &block);
                if (reason) return reason;
                place_block(t, &block, region, to);
            }
        }
    }
    if (to->planes) join_planes(t, region, to);
    return FBY_REASON_NONE;
}

static fby_reason picture_region(fby_decoder *d, const fby_region_of *region, uint8_t *out, size_t stride)
{
    tiff_target to = {NULL, out, stride, 3, NULL};

    return read_region(d, region, &to);
}

static void picture_form(const fby_decoder *d, fby_original *out)
{
    const tiff_state *t = d->state[FBY_FORMAT_TIFF];
    /* Of separate planes of a gray picture only the first is read. */
    const bool alpha = t->alpha && (has_colors(t) || t->planar == PLANARCONFIG_CONTIG);

    if (t->kind == KIND_GRAY || t->kind == KIND_GRAY_16) out->channels = 1;
    if (alpha && t->kind != KIND_PALETTE && t->kind != KIND_CMYK) out->channels++;
    out->bits = t->bits == 16 && t->kind != KIND_CMYK ? 16 : 8;
}

static fby_reason picture_original(fby_decoder *d, fby_original *original, uint8_t *out, size_t stride)
{
    const fby_region_of whole = {0, 0, d->file_w, d->file_h};
    tiff_target to = {original, out, stride, fby_original_pixel_bytes(original), NULL};

    return read_region(d, &whole, &to);
}

static fby_reason picture_metadata(fby_decoder *d, fby_metadata *out)
{
    const tiff_state *t = d->state[FBY_FORMAT_TIFF];
    uint32_t length = 0;
    const void *bytes = NULL;

    /* EXIF of a TIFF is the file's own directory: what it says of the pixels is applied. */
    if (!TIFFGetField(t->tiff, TIFFTAG_ICCPROFILE, &length, &bytes)) return FBY_REASON_NONE;
    return fby_metadata_add(d, out, FBY_METADATA_ICC, bytes, length);
}

static void picture_close(fby_decoder *d)
{
    tiff_state *t = d->state[FBY_FORMAT_TIFF];

    if (!t || !t->tiff) return;
    TIFFClose(t->tiff);
    t->tiff = NULL;
}

static void picture_destroy(fby_decoder *d)
{
    picture_close(d);
    free(d->state[FBY_FORMAT_TIFF]);
    d->state[FBY_FORMAT_TIFF] = NULL;
}

static size_t picture_bytes(const fby_decoder *d)
{
    (void)d;
    return sizeof(tiff_state);
}

const fby_codec fby_codec_tiff = {
    .format = FBY_FORMAT_TIFF,
    .blames_the_file = true,
    .always_turned = true,
    .open = picture_open,
    .region = picture_region,
    .form = picture_form,
    .original = picture_original,
    .metadata = picture_metadata,
    .close = picture_close,
    .destroy = picture_destroy,
    .bytes = picture_bytes,
};
