/* GIF: the first frame, as Pillow gives it. giflib reads the file and its LZW codes; strings are expanded
 * here, since giflib takes codes that no encoder can have meant and makes pixels of them, where Pillow
 * refuses the file. Where that frame doesn't cover the canvas, the rest has the frame's transparent colour,
 * or colour 0; the background colour of the file is not used. A palette that is the gray ramp as far as it
 * goes counts as none: pixels are then gray values. */
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

#include "codec/format.h"

typedef struct gif_state {
    GifFileType *gif; /* of the open picture, its first frame's header read */
    const fby_decoder *decoder;
    size_t at;    /* of the next byte to give to giflib */
    bool missing; /* it asked for bytes past the end, and got zeros */
    bool transparent;
    unsigned transparent_color;
    uint32_t x, y, w, h; /* of the frame */
    unsigned code_bits;  /* of a pixel in its LZW data */
    size_t pixel;        /* bytes that a pixel becomes: 3, or 4 with alpha */
    uint8_t colors[256][4];
} gif_state;

static int give_bytes(GifFileType *gif, GifByteType *out, int count)
{
    gif_state *g = gif->UserData;
    size_t left = g->decoder->length - g->at;
    size_t given = (size_t)count < left ? (size_t)count : left;

    memcpy(out, g->decoder->bytes + g->at, given);
    memset(out + given, 0, (size_t)count - given);
    g->at += given;
    if (given < (size_t)count) g->missing = true;
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
    for (int i = 0; i < 256; i++) g->colors[i][3] = UINT8_MAX;
    if (g->transparent) g->colors[g->transparent_color][3] = 0;
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
    /* The last byte that giflib read: the frame's header ends with it. */
    g->code_bits = d->bytes[g->at - 1];
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

enum { MOST_CODES = 4096 };

/* The strings of LZW codes: each is that of its link and one more pixel. */
typedef struct gif_strings {
    int clear;          /* the code after the pixels' own; the end's follows it */
    int next;           /* the code that will be given out next */
    int last;           /* the code before, -1 after a clear code */
    uint8_t last_first; /* the first pixel of its string */
    uint8_t pixel[MOST_CODES];
    int16_t link[MOST_CODES];
} gif_strings;

static void clear_strings(gif_strings *s)
{
    s->next = s->clear + 2;
    s->last = -1;
}

/* Writes the string of `code` to `out`, room for MOST_CODES + 1, and returns its length: 0 for a code that
 * can't be. */
static size_t expand_code(gif_strings *s, int code, uint8_t *out)
{
    uint8_t reversed[MOST_CODES + 1];
    size_t length = 0;
    int at = code;

    if (s->last < 0) {
        if (code >= s->clear) return 0;
    } else {
        if (code > s->next) return 0;
        if (code == s->next) {
            /* The string that this very code will get: the last one and its own first pixel. */
            reversed[length++] = s->last_first;
            at = s->last;
        }
        while (at >= s->clear) {
            if (length >= MOST_CODES || at >= MOST_CODES) return 0;
            reversed[length++] = s->pixel[at];
            at = s->link[at];
        }
        if (s->next < MOST_CODES) {
            s->pixel[s->next] = (uint8_t)at;
            s->link[s->next] = (int16_t)s->last;
            s->next++;
        }
    }
    s->last = code;
    s->last_first = (uint8_t)at;
    reversed[length++] = (uint8_t)at;
    for (size_t i = 0; i < length; i++) out[i] = reversed[length - 1 - i];
    return length;
}

/* Where the next pixel goes, in the frame. */
typedef struct gif_cursor {
    uint32_t x, y;
    bool interlaced;
    int pass;
} gif_cursor;

static void step_row(gif_cursor *cursor, uint32_t height)
{
    static const uint32_t starts[] = {0, 4, 2, 1};
    static const uint32_t steps[] = {8, 8, 4, 2};

    cursor->x = 0;
    if (!cursor->interlaced) {
        cursor->y++;
        return;
    }
    cursor->y += steps[cursor->pass];
    while (cursor->y >= height && cursor->pass < 3) cursor->y = starts[++cursor->pass];
}

static void place_line(const gif_state *g, const uint8_t *line, uint32_t row, const fby_region_of *region,
                       uint8_t *out, size_t stride)
{
    uint32_t y = g->y + row;

    if (y < region->y || y - region->y >= region->h) return;
    out += (size_t)(y - region->y) * stride;
    for (uint32_t x = 0; x < region->w; x++, out += g->pixel) {
        uint32_t at = region->x + x;
        if (at >= g->x && at - g->x < g->w) memcpy(out, g->colors[line[at - g->x]], g->pixel);
    }
}

/* The next code that stands for pixels; strings are cleared on the way. */
static fby_reason next_code(fby_decoder *d, gif_state *g, gif_strings *strings, int *code)
{
    do {
        if (DGifGetLZCodes(g->gif, code) == GIF_ERROR) {
            if (g->gif->Error == D_GIF_ERR_IMAGE_DEFECT) {
                return fby_decode_fail(d, FBY_REASON_TRUNCATED, "the frame's data ends early");
            }
            return fail_by_code(d, g, g->gif->Error);
        }
        if (g->missing) return fail_by_code(d, g, 0);
        if (*code < 0) return fby_decode_fail(d, FBY_REASON_TRUNCATED, "the frame's data ends early");
        if (*code == strings->clear) clear_strings(strings);
    } while (*code == strings->clear);
    return FBY_REASON_NONE;
}

static fby_reason read_frame(fby_decoder *d, gif_state *g, gif_strings *strings, const fby_region_of *region,
                             uint8_t *out, size_t stride)
{
    gif_cursor cursor = {.interlaced = g->gif->Image.Interlace};
    uint8_t *line = d->scratch[0].bytes;
    uint8_t string[MOST_CODES + 1];

    clear_strings(strings);
    for (uint32_t rows = 0; rows < g->h;) {
        int code;
        fby_reason reason = next_code(d, g, strings, &code);
        if (reason) return reason;

        size_t length = expand_code(strings, code, string);
        if (!length)
            return fby_decode_fail(d, FBY_REASON_CORRUPT, "LZW code %d can't stand in row %u", code, rows);
        for (size_t i = 0; i < length && rows < g->h; i++) {
            line[cursor.x++] = string[i];
            if (cursor.x < g->w) continue;
            place_line(g, line, cursor.y, region, out, stride);
            step_row(&cursor, g->h);
            rows++;
        }
    }
    return FBY_REASON_NONE;
}

static fby_reason read_region(fby_decoder *d, gif_state *g, const fby_region_of *region, uint8_t *out,
                              size_t stride)
{
    const uint8_t *rest = g->colors[g->transparent ? g->transparent_color : 0];

    if (!fby_buffer_reserve(&d->scratch[0], g->w) ||
        !fby_buffer_reserve(&d->scratch[1], sizeof(gif_strings))) {
        return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a frame of %u x %u pixels", g->w, g->h);
    }
    for (uint32_t y = 0; y < region->h; y++) {
        for (uint32_t x = 0; x < region->w; x++) memcpy(out + y * stride + x * g->pixel, rest, g->pixel);
    }
    gif_strings *strings = (gif_strings *)d->scratch[1].bytes;
    *strings = (gif_strings){.clear = 1 << g->code_bits};
    return read_frame(d, g, strings, region, out, stride);
}

static fby_reason picture_region(fby_decoder *d, const fby_region_of *region, uint8_t *out, size_t stride)
{
    gif_state *g = d->state[FBY_FORMAT_GIF];

    g->pixel = 3;
    return read_region(d, g, region, out, stride);
}

static void picture_form(const fby_decoder *d, fby_original *out)
{
    const gif_state *g = d->state[FBY_FORMAT_GIF];

    out->channels = g->transparent ? 4 : 3;
}

static fby_reason picture_original(fby_decoder *d, fby_original *original, uint8_t *out, size_t stride)
{
    gif_state *g = d->state[FBY_FORMAT_GIF];
    const fby_region_of whole = {0, 0, d->file_w, d->file_h};

    g->pixel = original->channels;
    return read_region(d, g, &whole, out, stride);
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
    .blames_the_file = true,
    .open = picture_open,
    .region = picture_region,
    .form = picture_form,
    .original = picture_original,
    .close = picture_close,
    .destroy = picture_destroy,
    .bytes = picture_bytes,
};
