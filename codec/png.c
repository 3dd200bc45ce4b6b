/* PNG, with Pillow's verdicts: see png_chunks.h for the chunks. Of the image data Pillow reads as much as the
 * rows need, and never the checksum behind them; data that ends at the end of a row leaves the rest black.
 * libpng and libspng judge otherwise in all three, so the rows are inflated here: at once by libdeflate where
 * all is well, else step by step by zlib as Pillow does it. */
#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>
#include <zlib.h>

#include "codec/format.h"
#include "codec/png_chunks.h"
#include "codec/png_filter.h"

enum { PASSES = 7, MOST_PROFILE = 1 << 20 /* chunks that inflate to more were refused */ };

typedef struct png_pass {
    uint32_t x, y;   /* of its first pixel */
    uint32_t dx, dy; /* from pixel to pixel */
    uint32_t w, h;   /* pixels a row, rows; 0 where there are none */
    size_t row;      /* bytes of a row, without the filter's number */
} png_pass;

typedef struct png_state {
    fby_png_chunks chunks;
    struct libdeflate_decompressor *inflater;

    uint32_t w, h;  /* of the image data: the canvas, or the first frame of an animation */
    size_t samples; /* a pixel */
    size_t pixel_bits;
    int passes;
    png_pass pass[PASSES];
    size_t raw_length; /* all rows of all passes with their filters' numbers */

    /* For converting: */
    uint32_t channels;       /* that a pixel becomes */
    uint8_t entry[256][4];   /* the palette with its alpha */
    uint16_t transparent[3]; /* the colour that is, where the file has one and no channel for alpha */
    bool used[256];          /* entries of the palette */
} png_state;

static fby_reason no_memory(fby_decoder *d)
{
    return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a PNG of %u x %u pixels", d->file_w,
                           d->file_h);
}

static fby_reason picture_open(fby_decoder *d)
{
    static const uint8_t samples[7] = {1, 0, 3, 1, 2, 0, 4};
    png_state *p = d->state[FBY_FORMAT_PNG];

    if (!p) p = d->state[FBY_FORMAT_PNG] = calloc(1, sizeof *p);
    if (!p) return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a PNG decoder");

    fby_reason reason = fby_png_chunks_read(d, &p->chunks);
    if (reason) return reason;
    const fby_png_chunks *c = &p->chunks;
    if (c->boxed && (!c->box.w || !c->box.h)) {
        return fby_decode_fail(d, FBY_REASON_CORRUPT, "the first frame of the animation is empty");
    }
    if (c->color == FBY_PNG_PALETTE && c->palette_length / 3 > 256) {
        return fby_decode_fail(d, FBY_REASON_CORRUPT, "the palette has more than 256 entries");
    }

    p->w = c->boxed ? c->box.w : c->w;
    p->h = c->boxed ? c->box.h : c->h;
    p->samples = samples[c->color];
    p->pixel_bits = p->samples * c->bits;
    d->info.w = c->w;
    d->info.h = c->h;
    d->info.bits = c->bits;
    d->info.channels = c->color == FBY_PNG_PALETTE ? 3 : (uint32_t)p->samples;
    d->info.frames = c->frames > UINT32_MAX ? UINT32_MAX : (uint32_t)c->frames;
    if (c->exif_orientation)
        d->info.orientation = c->exif_orientation;
    else if (c->xmp_orientation)
        d->info.orientation = c->xmp_orientation;
    return FBY_REASON_NONE;
}

static void plan_passes(png_state *p)
{
    static const png_pass adam7[PASSES] = {
        {0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2},
    };
    static const png_pass whole = {0, 0, 1, 1};

    p->passes = p->chunks.interlaced ? PASSES : 1;
    p->raw_length = 0;
    for (int i = 0; i < p->passes; i++) {
        png_pass *pass = &p->pass[i];
        *pass = p->chunks.interlaced ? adam7[i] : whole;
        pass->w = p->w > pass->x ? (p->w - pass->x - 1) / pass->dx + 1 : 0;
        pass->h = p->h > pass->y ? (p->h - pass->y - 1) / pass->dy + 1 : 0;
        if (!pass->w || !pass->h) pass->w = pass->h = 0;
        pass->row = (pass->w * p->pixel_bits + 7) / 8;
        p->raw_length += (pass->row + 1) * pass->h;
    }
}

/* zlib, row by row, exactly as far as Pillow goes: *rows_of gets the rows that were filled, and the rest is
 * zero. */
static fby_reason inflate_by_rows(fby_decoder *d, const png_state *p, const uint8_t *data, uint8_t *raw,
                                  size_t *filled)
{
    size_t left = p->chunks.data_length;
    size_t done = 0;
    fby_reason reason = FBY_REASON_NONE;
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)data};

    if (inflateInit(&stream) != Z_OK) return no_memory(d);
    for (int i = 0; !reason && i < p->passes; i++) {
        const png_pass *pass = &p->pass[i];
        for (uint32_t y = 0; !reason && y < pass->h; y++) {
            size_t wanted = pass->row + 1;
            int status = Z_OK;

            while (wanted) {
                if (!stream.avail_in) {
                    stream.avail_in = left < 1u << 30 ? (uInt)left : 1u << 30;
                    left -= stream.avail_in;
                }
                if (!stream.avail_in) break;
                stream.next_out = raw + done;
                stream.avail_out = wanted < 1u << 30 ? (uInt)wanted : 1u << 30;
                uInt room = stream.avail_out;
                status = inflate(&stream, Z_NO_FLUSH);
                done += room - stream.avail_out;
                wanted -= room - stream.avail_out;
                if (status != Z_OK) break;
            }
            if (status < 0 && status != Z_BUF_ERROR) {
                reason = fby_decode_fail(d, status == Z_MEM_ERROR ? FBY_REASON_MEMORY : FBY_REASON_CORRUPT,
                                         "zlib: %s", stream.msg ? stream.msg : "the data can't be inflated");
            } else if (wanted) {
                reason =
                    fby_decode_fail(d, p->chunks.short_of, "the image data ends at row %u of %u", y, p->h);
            } else if (status == Z_STREAM_END) {
                memset(raw + done, 0, p->raw_length - done);
                goto end;
            }
        }
    }
end:
    *filled = done;
    inflateEnd(&stream);
    return reason;
}

static fby_reason inflate_all(fby_decoder *d, png_state *p, uint8_t **raw, size_t *filled)
{
    const uint8_t *data = d->bytes + p->chunks.data_at;
    size_t length = p->chunks.data_length;
    size_t got;

    if (!fby_buffer_reserve(&d->scratch[0], p->raw_length)) return no_memory(d);
    *raw = d->scratch[0].bytes;
    if (!p->chunks.data_in_one) {
        if (!fby_buffer_reserve(&d->scratch[1], length)) return no_memory(d);
        fby_png_chunks_copy(d, &p->chunks, d->scratch[1].bytes);
        data = d->scratch[1].bytes;
    }

    if (!p->inflater) p->inflater = libdeflate_alloc_decompressor();
    if (!p->inflater) return no_memory(d);
    if (libdeflate_zlib_decompress(p->inflater, data, length, *raw, p->raw_length, &got) ==
            LIBDEFLATE_SUCCESS &&
        got == p->raw_length) {
        *filled = got;
        return FBY_REASON_NONE;
    }
    return inflate_by_rows(d, p, data, *raw, filled);
}

/* Undoes the filters of the rows that were filled; of an uninterlaced picture those up to `last`, since the
 * others only need a look at their filter's number. */
static fby_reason unfilter_all(fby_decoder *d, const png_state *p, uint8_t *raw, size_t filled, uint32_t last)
{
    size_t pixel = p->pixel_bits < 8 ? 1 : p->pixel_bits / 8;
    uint8_t *at = raw;

    if (!fby_buffer_reserve(&d->scratch[2], p->pass[p->passes - 1].row + p->pass[0].row + 8))
        return no_memory(d);
    for (int i = 0; i < p->passes; i++) {
        const png_pass *pass = &p->pass[i];
        const uint8_t *above = d->scratch[2].bytes;

        if (pass->h) memset(d->scratch[2].bytes, 0, pass->row);
        for (uint32_t y = 0; y < pass->h && at < raw + filled; y++) {
            if (*at >= FBY_PNG_FILTERS) {
                return fby_decode_fail(d, FBY_REASON_CORRUPT, "row %u has an unknown filter, %u", y, *at);
            }
            if (p->passes > 1 || y <= last) fby_png_unfilter(*at, at + 1, above, pass->row, pixel);
            above = at + 1;
            at += pass->row + 1;
        }
    }
    return FBY_REASON_NONE;
}

static void gray_to_rgb(uint8_t *out, uint8_t gray)
{
    out[0] = gray;
    out[1] = gray;
    out[2] = gray;
}

static void entry_to_rgb(const png_state *p, uint8_t *out, size_t entry)
{
    const fby_png_chunks *c = &p->chunks;

    if (3 * entry + 3 <= c->palette_length)
        memcpy(out, c->palette + 3 * entry, 3);
    else
        memset(out, 0, 3);
}

/* `count` pixels of an undone row, from its pixel `first`, to RGB; `step` bytes from one to the next in
 * `out`. */
static void to_rgb(png_state *p, const uint8_t *row, uint32_t first, uint32_t count, uint8_t *out,
                   size_t step)
{
    const uint32_t bits = p->chunks.bits;
    const uint32_t color = p->chunks.color;

    if (bits < 8) {
        static const uint8_t scale[5] = {0, 255, 85, 0, 17};
        const unsigned mask = (1u << bits) - 1;

        for (uint32_t i = 0; i < count; i++, out += step) {
            size_t at = (size_t)(first + i) * bits;
            unsigned value = row[at / 8] >> (8 - bits - at % 8) & mask;
            if (color == FBY_PNG_PALETTE)
                entry_to_rgb(p, out, value);
            else
                gray_to_rgb(out, (uint8_t)(value * scale[bits]));
        }
        return;
    }

    /* The high byte of a 16-bit sample comes first, and is all that is kept. */
    const size_t sample = bits / 8;
    const size_t pixel = p->samples * sample;
    const uint8_t *in = row + (size_t)first * pixel;

    if (color == FBY_PNG_PALETTE) {
        for (uint32_t i = 0; i < count; i++, out += step) entry_to_rgb(p, out, in[i]);
    } else if (p->samples < 3) {
        for (uint32_t i = 0; i < count; i++, out += step, in += pixel) gray_to_rgb(out, *in);
    } else if (pixel == 3 && step == 3) {
        memcpy(out, in, (size_t)count * 3);
    } else {
        for (uint32_t i = 0; i < count; i++, out += step, in += pixel) {
            out[0] = in[0];
            out[1] = in[sample];
            out[2] = in[2 * sample];
        }
    }
}

/* A sample of an undone row, whatever its bits. */
static uint16_t sample_at(const uint8_t *row, size_t index, uint32_t bits)
{
    if (bits == 8) return row[index];
    if (bits == 16) return (uint16_t)(row[2 * index] << 8 | row[2 * index + 1]);
    size_t at = index * bits;
    return row[at / 8] >> (8 - bits - at % 8) & ((1u << bits) - 1);
}

/* As to_rgb(), but in the form that converting keeps. */
static void to_original(png_state *p, const uint8_t *row, uint32_t first, uint32_t count, uint8_t *out,
                        size_t step)
{
    static const uint8_t scale[17] = {[1] = 255, [2] = 85, [4] = 17, [8] = 1, [16] = 1};
    const uint32_t bits = p->chunks.bits;
    const bool keyed = p->channels > p->samples;

    for (uint32_t i = 0; i < count; i++, out += step) {
        size_t at = (size_t)(first + i) * p->samples;
        uint16_t pixel[4];
        if (p->chunks.color == FBY_PNG_PALETTE) {
            uint16_t entry = sample_at(row, at, bits);
            p->used[entry] = true;
            memcpy(out, p->entry[entry], p->channels);
            continue;
        }
        bool transparent = true;
        for (size_t s = 0; s < p->samples; s++) {
            pixel[s] = sample_at(row, at + s, bits);
            if (keyed) transparent = transparent && pixel[s] == p->transparent[s];
            pixel[s] = (uint16_t)(pixel[s] * scale[bits]);
        }
        if (keyed) pixel[p->samples] = transparent ? 0 : bits == 16 ? UINT16_MAX : UINT8_MAX;
        if (bits == 16) {
            memcpy(out, pixel, p->channels * sizeof *pixel);
        } else {
            for (uint32_t c = 0; c < p->channels; c++) out[c] = (uint8_t)pixel[c];
        }
    }
}

static void picture_form(const fby_decoder *d, fby_original *out)
{
    const png_state *p = d->state[FBY_FORMAT_PNG];
    const bool transparent = p->chunks.transparency != NULL;

    out->channels = p->chunks.color == FBY_PNG_PALETTE ? 3 : (uint32_t)p->samples;
    if (transparent && (out->channels & 1)) out->channels++;
    out->bits = p->chunks.bits == 16 ? 16 : 8;
}

static void prepare_original(png_state *p, const fby_original *original)
{
    const fby_png_chunks *c = &p->chunks;

    p->channels = original->channels;
    memset(p->used, 0, sizeof p->used);
    for (size_t i = 0; i < 256; i++) {
        bool there = 3 * i + 3 <= c->palette_length;
        for (size_t s = 0; s < 3; s++) p->entry[i][s] = there ? c->palette[3 * i + s] : 0;
        p->entry[i][3] = i < c->transparency_length ? c->transparency[i] : UINT8_MAX;
    }
    if (c->color == FBY_PNG_PALETTE) return;
    for (size_t s = 0; s < 3 && 2 * s + 2 <= c->transparency_length; s++) {
        p->transparent[s] =
            (uint16_t)((c->transparency[2 * s] << 8 | c->transparency[2 * s + 1]) & ((1u << c->bits) - 1));
    }
}

/* The first index >= 0 of a pass whose coordinate start + index * by is >= from. */
static uint32_t first_at(uint32_t from, uint32_t start, uint32_t by)
{
    return from <= start ? 0 : (from - start + by - 1) / by;
}

/* Where pixels go, and as what. */
typedef struct png_target {
    void (*write)(png_state *p, const uint8_t *row, uint32_t first, uint32_t count, uint8_t *out,
                  size_t step);
    uint8_t *out;
    size_t stride, pixel;
} png_target;

/* What of the canvas the image data doesn't cover is what pixels of zeros are. */
static void clear_canvas(png_state *p, const fby_region_of *region, const png_target *to)
{
    static const uint8_t zeros[8];

    for (uint32_t y = 0; y < region->h; y++) {
        for (uint32_t x = 0; x < region->w; x++) {
            to->write(p, zeros, 0, 1, to->out + y * to->stride + x * to->pixel, to->pixel);
        }
    }
}

/* `region` in the coordinates of the canvas. */
static void expand(png_state *p, const uint8_t *raw, const fby_region_of *region, const png_target *target)
{
    uint32_t box_x = p->chunks.boxed ? p->chunks.box.x : 0;
    uint32_t box_y = p->chunks.boxed ? p->chunks.box.y : 0;
    uint32_t right = region->x + region->w;
    uint32_t bottom = region->y + region->h;

    for (int i = 0; i < p->passes; i++) {
        const png_pass *pass = &p->pass[i];
        uint32_t x0 = first_at(region->x, pass->x + box_x, pass->dx);
        uint32_t x1 = first_at(right, pass->x + box_x, pass->dx);
        uint32_t y0 = first_at(region->y, pass->y + box_y, pass->dy);
        uint32_t y1 = first_at(bottom, pass->y + box_y, pass->dy);

        if (x1 > pass->w) x1 = pass->w;
        if (y1 > pass->h) y1 = pass->h;
        for (uint32_t y = y0; y < y1 && x0 < x1; y++) {
            uint8_t *to = target->out +
                          (size_t)(box_y + pass->y + y * pass->dy - region->y) * target->stride +
                          (size_t)(box_x + pass->x + x0 * pass->dx - region->x) * target->pixel;
            target->write(p, raw + y * (pass->row + 1) + 1, x0, x1 - x0, to, pass->dx * target->pixel);
        }
        raw += (pass->row + 1) * pass->h;
    }
}

static fby_reason read_region(fby_decoder *d, png_state *p, const fby_region_of *region, const png_target *to)
{
    uint8_t *raw = NULL;
    size_t filled = 0;

    plan_passes(p);
    fby_reason reason = inflate_all(d, p, &raw, &filled);
    if (!reason) reason = unfilter_all(d, p, raw, filled, region->y + region->h - 1);
    if (reason) return reason;
    if (p->chunks.boxed) clear_canvas(p, region, to);
    expand(p, raw, region, to);
    return FBY_REASON_NONE;
}

static fby_reason picture_region(fby_decoder *d, const fby_region_of *region, uint8_t *out, size_t stride)
{
    const png_target to = {to_rgb, out, stride, 3};

    return read_region(d, d->state[FBY_FORMAT_PNG], region, &to);
}

static fby_reason picture_original(fby_decoder *d, fby_original *original, uint8_t *out, size_t stride)
{
    png_state *p = d->state[FBY_FORMAT_PNG];
    const fby_region_of whole = {0, 0, d->file_w, d->file_h};
    const png_target to = {to_original, out, stride, fby_original_pixel_bytes(original)};
    uint8_t palette[sizeof p->entry];

    prepare_original(p, original);
    fby_reason reason = read_region(d, p, &whole, &to);
    if (reason || p->chunks.color != FBY_PNG_PALETTE) return reason;
    uint32_t entries = (uint32_t)(p->chunks.palette_length / 3);
    for (uint32_t i = 0; i < entries; i++) memcpy(palette + i * p->channels, p->entry[i], p->channels);
    fby_original_palette(original, palette, entries, p->used);
    return FBY_REASON_NONE;
}

static fby_reason read_profile(fby_decoder *d, const png_state *p, fby_metadata *out)
{
    const fby_png_chunks *c = &p->chunks;
    const uint8_t *zero = c->profile ? memchr(c->profile, 0, c->profile_length) : NULL;
    uLongf length = MOST_PROFILE;

    /* After the name its end and the method: fby_png_chunks_read() saw to it that they are there. */
    if (!zero) return FBY_REASON_NONE;
    const uint8_t *data = zero + 2;
    if (!fby_buffer_reserve(&d->scratch[0], MOST_PROFILE)) return no_memory(d);
    /* What can't be inflated is no profile to Pillow either. */
    if (uncompress(d->scratch[0].bytes, &length, data, (uLong)(c->profile + c->profile_length - data)) !=
        Z_OK)
        return FBY_REASON_NONE;
    return fby_metadata_add(d, out, FBY_METADATA_ICC, d->scratch[0].bytes, length);
}

static fby_reason picture_metadata(fby_decoder *d, fby_metadata *out)
{
    const png_state *p = d->state[FBY_FORMAT_PNG];

    fby_reason reason = read_profile(d, p, out);
    if (!reason) reason = fby_metadata_add(d, out, FBY_METADATA_EXIF, p->chunks.exif, p->chunks.exif_length);
    if (!reason) reason = fby_metadata_add(d, out, FBY_METADATA_XMP, p->chunks.xmp, p->chunks.xmp_length);
    return reason;
}

static void picture_close(fby_decoder *d)
{
    (void)d;
}

static void picture_destroy(fby_decoder *d)
{
    png_state *p = d->state[FBY_FORMAT_PNG];

    if (p->inflater) libdeflate_free_decompressor(p->inflater);
    free(p);
    d->state[FBY_FORMAT_PNG] = NULL;
}

static size_t picture_bytes(const fby_decoder *d)
{
    (void)d;
    return sizeof(png_state);
}

const fby_codec fby_codec_png = {
    .format = FBY_FORMAT_PNG,
    .open = picture_open,
    .region = picture_region,
    .form = picture_form,
    .original = picture_original,
    .metadata = picture_metadata,
    .close = picture_close,
    .destroy = picture_destroy,
    .bytes = picture_bytes,
};
