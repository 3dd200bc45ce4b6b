/* FBL by our own decoder. Only the tiles that a region touches are decoded and judged: that is what the
 * format is for. A large picture is decoded some rows of tiles at a time, so that pixels are still in cache
 * when whoever takes the rows gets to them. */
#include <stdlib.h>
#include <string.h>

#include <forebay/fbl.h>

#include "codec/exif.h"
#include "codec/format.h"

/* Tiles of one shape are decoded side by side: bands must hold a few. */
enum { LEAST_TILES_IN_BAND = 16 };

typedef struct fbl_state {
    fby_fbl_decoder *decoder;
    fby_fbl_info info;
    fby_region_of region;
    uint32_t next;        /* row of the region that is decoded next */
    uint32_t given, held; /* rows of the band: given out, and there */
    uint32_t band;        /* its height, but for the first and last */
    uint8_t *rgb;         /* the band, as RGB */
} fbl_state;

/* The reasons of both are the same numbers, as far as a file can be their cause. */
static fby_reason fail_as(fby_decoder *d, int reason, const fby_error *error)
{
    return fby_decode_fail(d, (fby_reason)reason, "%s", error->text);
}

static fby_reason read_orientation(fby_decoder *d, const fbl_state *f)
{
    static const struct {
        const char *type;
        uint32_t (*read)(const uint8_t *bytes, size_t length);
    } chunks[] = {{"EXIF", fby_exif_orientation}, {"XMP ", fby_xmp_orientation}};
    uint32_t orientation = 0;

    for (size_t i = 0; i < sizeof chunks / sizeof *chunks && !orientation; i++) {
        const void *chunk;
        size_t length;
        fby_error error = FBY_ERROR_INIT;
        int reason = fby_fbl_metadata(f->decoder, chunks[i].type, &chunk, &length, &error);
        if (reason) return fail_as(d, reason, &error);
        if (chunk) orientation = chunks[i].read(chunk, length);
    }
    if (orientation) d->info.orientation = orientation;
    return FBY_REASON_NONE;
}

static fby_reason picture_open(fby_decoder *d)
{
    fbl_state *f = d->state[FBY_FORMAT_FBL];
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
    fby_error error = FBY_ERROR_INIT;

    if (!f) f = d->state[FBY_FORMAT_FBL] = calloc(1, sizeof *f);
    if (!f || (!f->decoder && fby_fbl_decoder_create(&f->decoder))) {
        return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for an FBL decoder");
    }
    options.max_pixels = d->options.max_pixels;
    f->info = (fby_fbl_info)FBY_FBL_INFO_INIT;
    int reason = fby_fbl_open(f->decoder, d->bytes, d->length, &options, &f->info, &error);
    if (reason) return fail_as(d, reason, &error);

    d->info.w = f->info.width;
    d->info.h = f->info.height;
    d->info.channels = f->info.channels;
    d->info.bits = f->info.bits;
    return read_orientation(d, f);
}

static fby_reason picture_begin(fby_decoder *d, const fby_region_of *region)
{
    fbl_state *f = d->state[FBY_FORMAT_FBL];
    uint32_t across = (region->x + region->w - 1) / f->info.tile_width - region->x / f->info.tile_width + 1;
    uint32_t down = (LEAST_TILES_IN_BAND + across - 1) / across;

    f->region = *region;
    f->next = f->given = f->held = 0;
    f->band = down * f->info.tile_height;
    uint32_t most = f->band < region->h ? f->band : region->h;
    if (!fby_buffer_reserve(&d->scratch[1], (size_t)region->w * 3 * most)) {
        return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for %u x %u pixels", region->w, most);
    }
    f->rgb = d->scratch[1].bytes;
    return FBY_REASON_NONE;
}

static void bytes_to_rgb(const uint8_t *in, uint32_t channels, size_t pixels, uint8_t *out)
{
    if (channels == 4) {
        for (size_t i = 0; i < pixels; i++, in += 4, out += 3) memcpy(out, in, 3);
        return;
    }
    for (size_t i = 0; i < pixels; i++, in += channels, out += 3) memset(out, *in, 3);
}

/* Of more than 8 bits the upper 8. */
static void words_to_rgb(const uint16_t *in, const fby_fbl_info *info, size_t pixels, uint8_t *out)
{
    const uint32_t shift = info->bits - 8;
    const uint32_t step = info->channels < 3 ? 0 : 1;

    for (size_t i = 0; i < pixels; i++, in += info->channels, out += 3) {
        for (uint32_t c = 0; c < 3; c++) out[c] = (uint8_t)(in[c * step] >> shift);
    }
}

static fby_reason decode_band(fby_decoder *d, fbl_state *f, const fby_fbl_region *band)
{
    const size_t pixels = (size_t)band->width * band->height;
    const size_t bytes = pixels * f->info.channels * (f->info.bits == 8 ? 1 : 2);
    const bool as_it_is = f->info.channels == 3 && f->info.bits == 8;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    fby_error error = FBY_ERROR_INIT;

    if (!as_it_is && !fby_buffer_reserve(&d->scratch[0], bytes)) {
        return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for %zu bytes", bytes);
    }
    output.data = as_it_is ? f->rgb : d->scratch[0].bytes;
    int reason = fby_fbl_decode(f->decoder, band, &output, &error);
    if (reason) return fail_as(d, reason, &error);
    if (as_it_is) return FBY_REASON_NONE;
    if (f->info.bits == 8)
        bytes_to_rgb(output.data, f->info.channels, pixels, f->rgb);
    else
        words_to_rgb(output.data, &f->info, pixels, f->rgb);
    return FBY_REASON_NONE;
}

static fby_reason picture_rows(fby_decoder *d, const uint8_t **rows, size_t *stride, uint32_t most,
                               uint32_t *count)
{
    fbl_state *f = d->state[FBY_FORMAT_FBL];

    if (f->given == f->held) {
        /* Bands end where tiles do, so that no tile is decoded twice. */
        uint32_t y = f->region.y + f->next;
        uint32_t end = (y / f->info.tile_height) * f->info.tile_height + f->band;
        uint32_t left = f->region.h - f->next;
        fby_fbl_region band = {f->region.x, y, f->region.w, end - y < left ? end - y : left};
        fby_reason reason = decode_band(d, f, &band);
        if (reason) return reason;
        f->next += band.height;
        f->held = band.height;
        f->given = 0;
    }
    *stride = (size_t)f->region.w * 3;
    *rows = f->rgb + *stride * f->given;
    *count = f->held - f->given < most ? f->held - f->given : most;
    f->given += *count;
    return FBY_REASON_NONE;
}

static void picture_form(const fby_decoder *d, fby_original *out)
{
    const fbl_state *f = d->state[FBY_FORMAT_FBL];

    out->channels = f->info.channels;
    out->bits = f->info.bits;
}

static fby_reason picture_original(fby_decoder *d, fby_original *original, uint8_t *out, size_t stride)
{
    const fbl_state *f = d->state[FBY_FORMAT_FBL];
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    fby_error error = FBY_ERROR_INIT;
    const void *palette = NULL;
    size_t length = 0;

    output.data = out;
    output.row_stride = stride;
    int reason = fby_fbl_decode(f->decoder, NULL, &output, &error);
    if (!reason) reason = fby_fbl_metadata(f->decoder, "PLTE", &palette, &length, &error);
    if (reason) return fail_as(d, reason, &error);
    if (original->bits == 8 && original->channels >= 3 && length <= 256 * (size_t)original->channels) {
        original->entries = (uint32_t)(length / original->channels);
        if (length) memcpy(original->palette, palette, length);
    }
    return FBY_REASON_NONE;
}

static fby_reason picture_metadata(fby_decoder *d, fby_metadata *out)
{
    static const char *const types[FBY_METADATA_KINDS] = {
        [FBY_METADATA_EXIF] = "EXIF", [FBY_METADATA_ICC] = "ICCP", [FBY_METADATA_XMP] = "XMP "};
    const fbl_state *f = d->state[FBY_FORMAT_FBL];

    for (int kind = 0; kind < FBY_METADATA_KINDS; kind++) {
        const void *chunk;
        size_t length;
        fby_error error = FBY_ERROR_INIT;
        int failed = fby_fbl_metadata(f->decoder, types[kind], &chunk, &length, &error);
        if (failed) return fail_as(d, failed, &error);
        fby_reason reason = fby_metadata_add(d, out, (fby_metadata_kind)kind, chunk, length);
        if (reason) return reason;
    }
    return FBY_REASON_NONE;
}

static void picture_close(fby_decoder *d)
{
    (void)d;
}

static void picture_destroy(fby_decoder *d)
{
    fbl_state *f = d->state[FBY_FORMAT_FBL];

    fby_fbl_decoder_destroy(&f->decoder);
    free(f);
    d->state[FBY_FORMAT_FBL] = NULL;
}

static size_t picture_bytes(const fby_decoder *d)
{
    const fbl_state *f = d->state[FBY_FORMAT_FBL];

    return sizeof *f + (f->decoder ? fby_fbl_decoder_bytes(f->decoder) : 0);
}

const fby_codec fby_codec_fbl = {
    .format = FBY_FORMAT_FBL,
    .open = picture_open,
    .begin = picture_begin,
    .rows = picture_rows,
    .form = picture_form,
    .original = picture_original,
    .metadata = picture_metadata,
    .close = picture_close,
    .destroy = picture_destroy,
    .bytes = picture_bytes,
};
