/* GIF by giflib: the first frame, as Pillow gives it. Where that frame doesn't cover the canvas, the rest has
 * the frame's transparent colour, or colour 0; the background colour of the file is not used. A palette that
 * is the gray ramp as far as it goes counts as none: pixels are then gray values. */
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

#include "codec/format.h"

typedef struct gif_state {
    GifFileType *gif; /* of the open picture, its first frame's header read */
    const fby_decoder *decoder;
    size_t at;             /* of the next byte to give to giflib */
    size_t missing;        /* bytes that it asked for past the end: it got zeros */
    bool only_end_missing; /* the first of them was the count of a block: a zero there ends the data */
    bool transparent;
    unsigned transparent_color;
    uint32_t x, y, w, h; /* of the frame */
    uint8_t colors[256][3];
} gif_state;

static int give_bytes(GifFileType *gif, GifByteType *out, int count)
{
    gif_state *g = gif->UserData;
    size_t left = g->decoder->length - g->at;
    size_t given = (size_t)count < left ? (size_t)count : left;
    size_t missing = (size_t)count - given;

    memcpy(out, g->decoder->bytes + g->at, given);
    memset(out + given, 0, missing);
    g->at += given;
    if (missing && !g->missing) g->only_end_missing = count == 1;
    g->missing += missing;
    return count;
}

static fby_reason fail_by_code(fby_decoder *d, const gif_state *g, int code)
{
    const char *text = GifErrorString(code);

    if (code == D_GIF_ERR_NOT_ENOUGH_MEM) return fby_decode_fail(d, FBY_REASON_MEMORY, "giflib: no memory");
    if (g->missing) return fby_decode_fail(d, FBY_REASON_TRUNCATED, "the file ends early");
    return fby_decode_fail(d, FBY_REASON_CORRUPT, "giflib: %s", text ? text : "the file is broken");
}

static fby_reason read_extension(fby_decoder *d, gif_state *g)
{
    int code;
    GifByteType *block;

    if (DGifGetExtension(g->gif, &code, &block) == GIF_ERROR) return fail_by_code(d, g, g->gif->Error);
    if (code == GRAPHICS_EXT_FUNC_CODE && block && block[0] >= 4 && (block[1] & 1)) {
        g->transparent = true;
        g->transparent_color = block[4];
    }
    while (block && !g->missing) {
        if (DGifGetExtensionNext(g->gif, &block) == GIF_ERROR) return fail_by_code(d, g, g->gif->Error);
    }
    return FBY_REASON_NONE;
}

/* Up to the header of the first frame. */
static fby_reason find_frame(fby_decoder *d, gif_state *g)
{
    for (;;) {
        GifRecordType record;

        if (DGifGetRecordType(g->gif, &record) == GIF_ERROR || g->missing)
            return fail_by_code(d, g, g->gif->Error);
        if (record == TERMINATE_RECORD_TYPE)
            return fby_decode_fail(d, FBY_REASON_CORRUPT, "the file has no frame");
        if (record == IMAGE_DESC_RECORD_TYPE) {
            if (DGifGetImageDesc(g->gif) == GIF_ERROR || g->missing) return fail_by_code(d, g, g->gif->Error);
            return FBY_REASON_NONE;
        }
        if (record == EXTENSION_RECORD_TYPE) {
            fby_reason reason = read_extension(d, g);
            if (reason) return reason;
        }
    }
}

/* The position after a sequence of data blocks. */
static size_t skip_blocks(const fby_decoder *d, size_t at)
{
    while (at < d->length && d->bytes[at]) at += 1 + (size_t)d->bytes[at];
    return at + 1;
}

/* Whether a second frame follows the data blocks at `at`. */
static bool has_second_frame(const fby_decoder *d, size_t at)
{
    for (at = skip_blocks(d, at); at < d->length;) {
        switch (d->bytes[at]) {
        case ',':
            return true;
        case ';':
            return false;
        case '!':
            at = skip_blocks(d, at + 2);
            break;
        default:
            at++;
            break;
        }
    }
    return false;
}

static void read_colors(gif_state *g)
{
    const ColorMapObject *map = g->gif->Image.ColorMap ? g->gif->Image.ColorMap : g->gif->SColorMap;
    bool is_ramp = true;

    memset(g->colors, 0, sizeof g->colors);
    for (int i = 0; map && i < map->ColorCount && i < 256; i++) {
        GifColorType color = map->Colors[i];
        g->colors[i][0] = color.Red;
        g->colors[i][1] = color.Green;
        g->colors[i][2] = color.Blue;
        is_ramp &= color.Red == i && color.Green == i && color.Blue == i;
    }
    for (int i = 0; is_ramp && i < 256; i++) memset(g->colors[i], i, 3);
}

static fby_reason picture_open(fby_decoder *d)
{
    gif_state *g = d->state[FBY_FORMAT_GIF];
    int code = 0;

    if (!g) g = d->state[FBY_FORMAT_GIF] = calloc(1, sizeof *g);
    if (!g) return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a GIF decoder");
    *g = (gif_state){.decoder = d};

    g->gif = DGifOpen(g, give_bytes, &code);
    if (!g->gif || g->missing) return fail_by_code(d, g, code);
    fby_reason reason = find_frame(d, g);
    if (reason) return reason;

    const GifImageDesc *frame = &g->gif->Image;
    if (frame->Width <= 0 || frame->Height <= 0)
        return fby_decode_fail(d, FBY_REASON_CORRUPT, "the first frame is empty");
    g->x = (uint32_t)frame->Left;
    g->y = (uint32_t)frame->Top;
    g->w = (uint32_t)frame->Width;
    g->h = (uint32_t)frame->Height;
    read_colors(g);

    uint32_t screen_w = (uint32_t)g->gif->SWidth;
    uint32_t screen_h = (uint32_t)g->gif->SHeight;
    d->info.w = g->x + g->w > screen_w ? g->x + g->w : screen_w;
    d->info.h = g->y + g->h > screen_h ? g->y + g->h : screen_h;
    d->info.channels = 3;
    d->info.bits = 8;
    d->info.frames = has_second_frame(d, g->at) ? 2 : 1;
    return FBY_REASON_NONE;
}

/* The frame's row that the next line of an interlaced frame belongs to. */
static uint32_t next_row(uint32_t row, uint32_t height, bool interlaced, int *pass)
{
    static const uint32_t starts[] = {0, 4, 2, 1};
    static const uint32_t steps[] = {8, 8, 4, 2};

    if (!interlaced) return row + 1;
    row += steps[*pass];
    while (row >= height && *pass < 3) row = starts[++*pass];
    return row;
}

static fby_reason read_line(fby_decoder *d, gif_state *g, uint8_t *line, bool last)
{
    bool good = DGifGetLine(g->gif, line, (int)g->w) != GIF_ERROR;

    /* After the last line giflib reads on to the end of the data; Pillow doesn't mind where that is missing.
     */
    if (good && g->missing && !(last && g->only_end_missing)) good = false;
    return good ? FBY_REASON_NONE : fail_by_code(d, g, g->gif->Error);
}

static void place_line(const gif_state *g, const uint8_t *line, uint32_t row, const fby_region_of *region,
                       uint8_t *out, size_t stride)
{
    uint32_t y = g->y + row;

    if (y < region->y || y - region->y >= region->h) return;
    out += (size_t)(y - region->y) * stride;
    for (uint32_t x = 0; x < region->w; x++, out += 3) {
        uint32_t at = region->x + x;
        if (at >= g->x && at - g->x < g->w) memcpy(out, g->colors[line[at - g->x]], 3);
    }
}

static fby_reason picture_region(fby_decoder *d, const fby_region_of *region, uint8_t *out, size_t stride)
{
    gif_state *g = d->state[FBY_FORMAT_GIF];
    const uint8_t *rest = g->colors[g->transparent ? g->transparent_color : 0];
    bool interlaced = g->gif->Image.Interlace;
    uint32_t row = 0;
    int pass = 0;

    for (uint32_t y = 0; y < region->h; y++) {
        for (uint32_t x = 0; x < region->w; x++) memcpy(out + y * stride + (size_t)x * 3, rest, 3);
    }
    if (!fby_buffer_reserve(&d->scratch[0], g->w))
        return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a row");
    for (uint32_t i = 0; i < g->h; i++) {
        fby_reason reason = read_line(d, g, d->scratch[0].bytes, i + 1 == g->h);
        if (reason) return reason;
        place_line(g, d->scratch[0].bytes, row, region, out, stride);
        row = next_row(row, g->h, interlaced, &pass);
    }
    return FBY_REASON_NONE;
}

static void picture_close(fby_decoder *d)
{
    gif_state *g = d->state[FBY_FORMAT_GIF];
    int code;

    if (!g || !g->gif) return;
    DGifCloseFile(g->gif, &code);
    g->gif = NULL;
}

static void picture_destroy(fby_decoder *d)
{
    picture_close(d);
    free(d->state[FBY_FORMAT_GIF]);
    d->state[FBY_FORMAT_GIF] = NULL;
}

static size_t picture_bytes(const fby_decoder *d)
{
    (void)d;
    return sizeof(gif_state);
}

const fby_codec fby_codec_gif = {
    .format = FBY_FORMAT_GIF,
    .open = picture_open,
    .region = picture_region,
    .close = picture_close,
    .destroy = picture_destroy,
    .bytes = picture_bytes,
};
