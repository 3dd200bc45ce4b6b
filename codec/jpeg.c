/* JPEG by libjpeg-turbo, a region at a time, with the pixels and the verdicts of Pillow.
 *
 * Pixels: JDCT_ISLOW and fancy upsampling. Fancy upsampling looks one chroma sample to either side, so a
 * region is decoded one column wider on each side where the picture goes on, and at least 8 wide: below two
 * chroma columns libjpeg drops fancy upsampling.
 *
 * Verdicts: Pillow feeds libjpeg from a source that suspends, and refuses a file when the decoder waits for
 * bytes that will not come; what libjpeg only warns about, it takes. So does this file: its source suspends
 * at the end of the data. Pillow also reads to the end of the picture. A region often ends before; then a
 * look at the rest settles almost every file: where the next marker is the end of the image, no reading on
 * could fail, since the decoder never passes that marker and pads what it lacks. Where anything else stands
 * there, the rest is decoded for the verdict.
 *
 * Our own entropy decoder (jpeg_entropy.h) declines what it isn't sure of, at any row. The rows before are
 * right, and have gone their way; the picture is then decoded again by libjpeg alone, those rows are dropped,
 * and it goes on as if nothing had been. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "codec/format.h"
#include "codec/jpeg_entropy.h"
#include "codec/jpeg_header.h"
#include "codec/jpeg_metadata.h"

enum {
    /* One row of 4:2:0 blocks: what the decoder has ready at once, and little enough to stay in cache. */
    ROWS = 16,
    /* libjpeg-turbo's AVX2 colour conversion streams a row around the cache where it is 32-byte aligned, and
     * the next reader fetches it from memory again. Rows at 16 mod 32 bytes made the path to a finished batch
     * 13% faster. */
    ROW_OFFSET = 16,
    ROW_ALIGNMENT = 32,
    NARROWEST = 8,
    /* A file of a few kilobytes can name a huge progressive picture and pass over it a thousand times. */
    MOST_SCANS = 100,
};

typedef struct jpeg_state {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf trap;
    bool created;

    fby_decoder *decoder;
    fby_region_of region;
    bool starved;      /* the decoder asked for bytes past the end */
    bool end_supplied; /* by us, with tolerate_missing_eoi */
    bool padded;       /* data was missing before the end that we supplied */
    bool too_many_scans;
    uint32_t components_seen;

    fby_jpeg_entropy *entropy;
    bool alone;     /* our entropy decoder is not to be used for this picture */
    bool attached;  /* … and is */
    uint32_t given; /* rows of the region */

    uint32_t skip;   /* decoded columns left of the region */
    size_t stride;   /* of rows */
    fby_buffer rows; /* ROWS of them, as decoded */
    fby_buffer rgb;  /* CMYK rows converted */
    fby_buffer rest; /* one row, where rows are decoded for nobody: for the verdict alone, or again */

    /* arguments and results of one guarded step */
    uint32_t most, count;
} jpeg_state;

static jpeg_state *state_of(j_common_ptr jpeg)
{
    return jpeg->client_data;
}

static void on_error(j_common_ptr jpeg)
{
    longjmp(state_of(jpeg)->trap, 1);
}

static void on_message(j_common_ptr jpeg, int level)
{
    jpeg_state *j = state_of(jpeg);

    /* The decoder says once that it pads. After an end that we made up, it means that more than the marker is
     * missing. */
    if (level < 0 && jpeg->err->msg_code == JWRN_HIT_MARKER && j->end_supplied) j->padded = true;
}

static void on_output(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void on_source(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

static boolean on_fill(j_decompress_ptr jpeg)
{
    static const JOCTET end[] = {0xFF, JPEG_EOI};
    jpeg_state *j = state_of((j_common_ptr)jpeg);

    /* An arithmetic decoder can't tell its padding from missing data: nothing is made up for it. */
    if (j->decoder->options.tolerate_missing_eoi && !j->end_supplied && !jpeg->arith_code) {
        j->end_supplied = true;
        jpeg->src->next_input_byte = end;
        jpeg->src->bytes_in_buffer = sizeof end;
        return TRUE;
    }
    j->starved = true;
    return FALSE;
}

static void on_skip(j_decompress_ptr jpeg, long bytes)
{
    struct jpeg_source_mgr *source = jpeg->src;

    if (bytes <= 0) return;
    if ((size_t)bytes > source->bytes_in_buffer) {
        state_of((j_common_ptr)jpeg)->starved = true;
        bytes = (long)source->bytes_in_buffer;
    }
    source->next_input_byte += bytes;
    source->bytes_in_buffer -= (size_t)bytes;
}

static void on_progress(j_common_ptr common)
{
    jpeg_state *j = state_of(common);
    struct jpeg_decompress_struct *jpeg = &j->jpeg;

    for (int i = 0; i < jpeg->comps_in_scan; i++) {
        j->components_seen |= 1u << jpeg->cur_comp_info[i]->component_index;
    }
    if (jpeg->input_scan_number > MOST_SCANS) {
        j->too_many_scans = true;
        on_error(common);
    }
}

static fby_reason truncated(jpeg_state *j)
{
    return fby_decode_fail(j->decoder, FBY_REASON_TRUNCATED, "the data ends at row %u of %u",
                           j->jpeg.output_scanline, j->decoder->info.h ? j->decoder->file_h : 0);
}

static fby_reason no_memory_for_a_row(jpeg_state *j)
{
    return fby_decode_fail(j->decoder, FBY_REASON_MEMORY, "no memory for a row");
}

static fby_reason reason_of_message(int code)
{
    switch (code) {
    case JERR_OUT_OF_MEMORY:
        return FBY_REASON_MEMORY;
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        return FBY_REASON_TOO_LARGE;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
        return FBY_REASON_UNSUPPORTED;
    default:
        return FBY_REASON_CORRUPT;
    }
}

static bool was_declined(const jpeg_state *j)
{
    return j->attached && fby_jpeg_entropy_declined(j->entropy);
}

static fby_reason fail_by_library(jpeg_state *j)
{
    char message[JMSG_LENGTH_MAX];

    if (was_declined(j)) return FBY_REASON_CORRUPT; /* for now: it is decoded again */
    if (j->too_many_scans) {
        return fby_decode_fail(j->decoder, FBY_REASON_UNSUPPORTED, "more than %d scans aren't supported",
                               MOST_SCANS);
    }
    /* Arithmetic decoding can't suspend: it fails with a message of its own where the data ends. */
    if (j->starved && j->errors.msg_code == JERR_CANT_SUSPEND) return truncated(j);
    j->errors.format_message((j_common_ptr)&j->jpeg, message);
    return fby_decode_fail(j->decoder, reason_of_message(j->errors.msg_code), "libjpeg: %s", message);
}

/* libjpeg leaves by longjmp: each call into it happens within a step, and steps keep what they need in `j`.
 */
static fby_reason guarded(jpeg_state *j, fby_reason (*step)(jpeg_state *))
{
    if (setjmp(j->trap)) return fail_by_library(j);
    return step(j);
}

static fby_reason create_step(jpeg_state *j)
{
    jpeg_create_decompress(&j->jpeg);
    j->created = true;
    return FBY_REASON_NONE;
}

/* A libjpeg object per picture: one that is used again remembers the tables of the picture before, and a file
 * that lacks its own would be decoded by them. Making one costs a few allocations. */
static fby_reason make_decompressor(fby_decoder *d, jpeg_state **out)
{
    jpeg_state *j = d->state[FBY_FORMAT_JPEG];

    if (!j) j = d->state[FBY_FORMAT_JPEG] = calloc(1, sizeof *j);
    if (!j) return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a JPEG decoder");
    if (!j->entropy) j->entropy = fby_jpeg_entropy_create();
    if (!j->entropy) return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a JPEG decoder");
    *out = j;
    j->decoder = d;
    j->attached = false;
    j->starved = false;
    j->end_supplied = false;
    j->padded = false;
    j->too_many_scans = false;
    j->components_seen = 0;

    j->jpeg.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = on_error;
    j->errors.emit_message = on_message;
    j->errors.output_message = on_output;
    j->jpeg.client_data = j;
    fby_reason reason = guarded(j, create_step);
    if (reason) {
        jpeg_destroy_decompress(&j->jpeg);
        return reason;
    }
    j->source = (struct jpeg_source_mgr){
        .next_input_byte = d->bytes,
        .bytes_in_buffer = d->length,
        .init_source = on_source,
        .fill_input_buffer = on_fill,
        .skip_input_data = on_skip,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = on_source,
    };
    j->progress.progress_monitor = on_progress;
    j->jpeg.src = &j->source;
    j->jpeg.progress = &j->progress;
    return FBY_REASON_NONE;
}

/* Whether all scans were there. Known once a picture of many scans was read, before its first row. */
static bool scans_are_complete(const jpeg_state *j)
{
    const struct jpeg_decompress_struct *jpeg = &j->jpeg;

    if (j->components_seen != (1u << jpeg->num_components) - 1) return false;
    if (!jpeg->progressive_mode) return true;
    for (int i = 0; i < jpeg->num_components; i++) {
        for (int k = 0; k < DCTSIZE2; k++) {
            if (jpeg->coef_bits[i][k] != 0) return false;
        }
    }
    return true;
}

/* Sampling factors whose region decode is known to be exact: luma at 1, 2 or 4, the rest at 1. Others, which
 * hardly exist, are decoded in their full width. */
static bool columns_can_be_left_out(const struct jpeg_decompress_struct *jpeg)
{
    for (int i = 1; i < jpeg->num_components; i++) {
        const jpeg_component_info *c = &jpeg->comp_info[i];
        bool as_luma = i == 3 && c->h_samp_factor == jpeg->comp_info[0].h_samp_factor &&
                       c->v_samp_factor == jpeg->comp_info[0].v_samp_factor;
        if (!as_luma && (c->h_samp_factor != 1 || c->v_samp_factor != 1)) return false;
    }
    return jpeg->max_h_samp_factor != 3 && jpeg->max_v_samp_factor != 3;
}

/* Where scans are missing, libjpeg smooths each block by its neighbours, two in every direction. */
static bool is_smoothed(const jpeg_state *j)
{
    return j->jpeg.progressive_mode && !scans_are_complete(j);
}

static void leave_out_columns(jpeg_state *j)
{
    struct jpeg_decompress_struct *jpeg = &j->jpeg;
    int64_t width = jpeg->output_width;
    int64_t left = (int64_t)j->region.x - 1;
    int64_t right = (int64_t)j->region.x + j->region.w + 1;

    j->skip = j->region.x;
    if (!columns_can_be_left_out(jpeg) || is_smoothed(j)) return;
    if (left > width - NARROWEST) left = width - NARROWEST;
    if (left < 0) left = 0;
    if (right < left + NARROWEST) right = left + NARROWEST;
    if (right > width) right = width;
    if (right - left == width) return;

    JDIMENSION x = (JDIMENSION)left;
    JDIMENSION w = (JDIMENSION)(right - left);
    jpeg_crop_scanline(jpeg, &x, &w);
    j->skip = j->region.x - x;
}

static fby_reason attach_entropy(jpeg_state *j)
{
    if (j->alone) return FBY_REASON_NONE;
    fby_jpeg_attached attached = fby_jpeg_entropy_attach(j->entropy, &j->jpeg);
    if (attached == FBY_JPEG_NO_MEMORY) {
        return fby_decode_fail(j->decoder, FBY_REASON_MEMORY, "no memory for a copy of %zu bytes",
                               j->decoder->length);
    }
    j->attached = attached == FBY_JPEG_ATTACHED;
    if (j->attached) j->decoder->jpeg_counts.own++;
    return FBY_REASON_NONE;
}

static fby_reason start_step(jpeg_state *j)
{
    struct jpeg_decompress_struct *jpeg = &j->jpeg;
    int header;

    do {
        header = jpeg_read_header(jpeg, FALSE);
    } while (header == JPEG_HEADER_TABLES_ONLY);
    if (header == JPEG_SUSPENDED) return truncated(j);
    if (jpeg->image_width != j->decoder->file_w || jpeg->image_height != j->decoder->file_h ||
        (uint32_t)jpeg->num_components != j->decoder->info.channels) {
        return fby_decode_fail(j->decoder, FBY_REASON_CORRUPT, "two frame headers contradict each other");
    }

    jpeg->out_color_space = jpeg->num_components == 4 ? JCS_CMYK : JCS_RGB;
    if (j->decoder->options.fast) {
        jpeg->dct_method = JDCT_IFAST;
        jpeg->do_fancy_upsampling = FALSE;
    }
    if (!jpeg_start_decompress(jpeg)) return truncated(j);
    fby_reason reason = attach_entropy(j);
    if (reason) return reason;
    leave_out_columns(j);

    size_t row = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
    j->stride = (row + FBY_BUFFER_MARGIN + ROW_ALIGNMENT - 1) & ~(size_t)(ROW_ALIGNMENT - 1);
    if (!fby_buffer_reserve(&j->rows, ROW_OFFSET + ROWS * j->stride) ||
        (jpeg->num_components == 4 && !fby_buffer_reserve(&j->rgb, (size_t)ROWS * j->region.w * 3))) {
        return fby_decode_fail(j->decoder, FBY_REASON_MEMORY, "no memory for rows of %u pixels",
                               jpeg->output_width);
    }
    if (is_smoothed(j)) {
        while (jpeg->output_scanline < j->region.y) {
            JSAMPROW discarded = j->rows.bytes;
            if (!jpeg_read_scanlines(jpeg, &discarded, 1)) return truncated(j);
        }
    } else if (j->region.y) {
        jpeg_skip_scanlines(jpeg, j->region.y);
    }
    return j->starved && !jpeg_has_multiple_scans(jpeg) ? truncated(j) : FBY_REASON_NONE;
}

/* Whether the entropy-coded data still to be read ends at an end-of-image marker, with nothing but restart
 * markers on the way where the file has restarts. */
static bool rest_is_plain(const jpeg_state *j)
{
    const struct jpeg_decompress_struct *jpeg = &j->jpeg;
    const uint8_t *at = jpeg->src->next_input_byte;
    const uint8_t *end = at + jpeg->src->bytes_in_buffer;

    if (jpeg->unread_marker) return jpeg->unread_marker == JPEG_EOI;
    while (at < end && (at = memchr(at, 0xFF, (size_t)(end - at)))) {
        while (at < end && *at == 0xFF) at++;
        if (at == end) return false;

        unsigned marker = *at++;
        bool restart = marker >= JPEG_RST0 && marker <= JPEG_RST0 + 7;
        if (marker == 0 || (restart && jpeg->restart_interval)) continue;
        return marker == JPEG_EOI;
    }
    return false;
}

static bool is_frame_marker(int marker)
{
    enum { SOF0 = 0xC0, DHT = 0xC4, JPG = 0xC8, DAC = 0xCC, SOF15 = 0xCF };

    return marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC;
}

static fby_reason judge_rest(jpeg_state *j)
{
    struct jpeg_decompress_struct *jpeg = &j->jpeg;

    if (jpeg_has_multiple_scans(jpeg)) {
        /* All of it was read before the first row. */
        return j->padded || (j->end_supplied && !scans_are_complete(j)) ? truncated(j) : FBY_REASON_NONE;
    }
    if (jpeg->output_scanline < jpeg->output_height && !j->end_supplied && rest_is_plain(j))
        return FBY_REASON_NONE;

    if (!fby_buffer_reserve(&j->rest, j->stride)) return no_memory_for_a_row(j);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = j->rest.bytes;
        if (!jpeg_read_scanlines(jpeg, &row, 1)) return truncated(j);
    }
    if (j->padded) return truncated(j);
    /* Reads on to the end marker. Pillow doesn't mind where it is missing here, but errors on the way count.
     */
    if (!jpeg_finish_decompress(jpeg) && is_frame_marker(jpeg->unread_marker)) {
        /* Its libjpeg sees at the marker what ours would see behind it, where the file has ended. */
        return fby_decode_fail(j->decoder, FBY_REASON_CORRUPT,
                               "a second frame header at the end of the file");
    }
    return FBY_REASON_NONE;
}

/* Pillow's formula, for Adobe's inverted CMYK. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t *rgb, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++, cmyk += 4, rgb += 3) {
        int light = cmyk[3];
        for (int c = 0; c < 3; c++) {
            int product = (255 - cmyk[c]) * light + 128;
            int value = light - ((product + (product >> 8)) >> 8);
            rgb[c] = (uint8_t)(value < 0 ? 0 : value);
        }
    }
}

static fby_reason rows_step(jpeg_state *j)
{
    struct jpeg_decompress_struct *jpeg = &j->jpeg;
    uint8_t *first = j->rows.bytes + ROW_OFFSET;
    JSAMPROW rows[ROWS];

    for (uint32_t i = 0; i < ROWS; i++) rows[i] = first + i * j->stride;
    while (j->count < j->most) {
        JDIMENSION got = jpeg_read_scanlines(jpeg, rows + j->count, j->most - j->count);
        if (!got) return truncated(j);
        j->count += got;
    }
    if (jpeg->num_components == 4) {
        for (uint32_t i = 0; i < j->count; i++) {
            cmyk_to_rgb(rows[i] + (size_t)j->skip * 4, j->rgb.bytes + (size_t)i * j->region.w * 3,
                        j->region.w);
        }
    }
    return FBY_REASON_NONE;
}

static fby_reason picture_open(fby_decoder *d)
{
    return fby_jpeg_header_read(d);
}

/* Rows that were given before, by the decoder that declined. */
static fby_reason drop_step(jpeg_state *j)
{
    struct jpeg_decompress_struct *jpeg = &j->jpeg;

    if (!fby_buffer_reserve(&j->rest, j->stride)) return no_memory_for_a_row(j);
    while (jpeg->output_scanline < j->region.y + j->given) {
        JSAMPROW row = j->rest.bytes;
        if (!jpeg_read_scanlines(jpeg, &row, 1)) return truncated(j);
    }
    return FBY_REASON_NONE;
}

/* Decodes the picture again, by libjpeg alone, up to the rows that are due. */
static fby_reason begin_alone(fby_decoder *d)
{
    jpeg_state *j = d->state[FBY_FORMAT_JPEG];

    d->jpeg_counts.declined++;
    j->alone = true;
    j->created = false;
    jpeg_destroy_decompress(&j->jpeg);
    fby_reason reason = make_decompressor(d, &j);
    if (!reason) reason = guarded(j, start_step);
    if (!reason) reason = guarded(j, drop_step);
    return reason;
}

static fby_reason picture_begin(fby_decoder *d, const fby_region_of *region)
{
    jpeg_state *j = NULL;
    fby_reason reason = make_decompressor(d, &j);

    if (reason) return reason;
    j->region = *region;
    j->given = 0;
    j->alone = d->options.libjpeg_entropy;
    reason = guarded(j, start_step);
    return was_declined(j) ? begin_alone(d) : reason;
}

static fby_reason decode_rows(jpeg_state *j, uint32_t most)
{
    j->most = most < ROWS ? most : ROWS;
    j->count = 0;
    fby_reason reason = guarded(j, rows_step);
    if (!reason && j->jpeg.output_scanline >= j->region.y + j->region.h) reason = guarded(j, judge_rest);
    return reason;
}

static fby_reason picture_rows(fby_decoder *d, const uint8_t **rows, size_t *stride, uint32_t most,
                               uint32_t *count)
{
    jpeg_state *j = d->state[FBY_FORMAT_JPEG];
    bool cmyk = j->jpeg.num_components == 4;
    fby_reason reason = decode_rows(j, most);

    if (was_declined(j)) {
        reason = begin_alone(d);
        if (!reason) reason = decode_rows(j, most);
    }
    if (reason) return reason;

    *rows = cmyk ? j->rgb.bytes : j->rows.bytes + ROW_OFFSET + (size_t)j->skip * 3;
    *stride = cmyk ? (size_t)j->region.w * 3 : j->stride;
    *count = j->count;
    j->given += j->count;
    return FBY_REASON_NONE;
}

static void picture_close(fby_decoder *d)
{
    jpeg_state *j = d->state[FBY_FORMAT_JPEG];

    if (!j) return;
    if (j->created) jpeg_destroy_decompress(&j->jpeg);
    j->created = false;
    fby_buffer_trim(&j->rows);
    fby_buffer_trim(&j->rgb);
    if (j->entropy) fby_jpeg_entropy_trim(j->entropy);
}

static void picture_destroy(fby_decoder *d)
{
    jpeg_state *j = d->state[FBY_FORMAT_JPEG];

    picture_close(d);
    fby_buffer_free(&j->rows);
    fby_buffer_free(&j->rgb);
    fby_buffer_free(&j->rest);
    fby_jpeg_entropy_destroy(&j->entropy);
    free(j);
    d->state[FBY_FORMAT_JPEG] = NULL;
}

static size_t picture_bytes(const fby_decoder *d)
{
    const jpeg_state *j = d->state[FBY_FORMAT_JPEG];

    size_t entropy = j->entropy ? fby_jpeg_entropy_bytes(j->entropy) : 0;

    return sizeof *j + j->rows.capacity + j->rgb.capacity + j->rest.capacity + entropy;
}

bool fby_decode_own_entropy(void)
{
    return !fby_jpeg_entropy_refused();
}

const char *fby_decode_entropy_about(void)
{
    static _Thread_local char text[200];
    const char *refused = fby_jpeg_entropy_refused();

    if (!refused) return "our own under libjpeg-turbo, checked against its";
    snprintf(text, sizeof text, "libjpeg's: %s", refused);
    return text;
}

const fby_codec fby_codec_jpeg = {
    .format = FBY_FORMAT_JPEG,
    .open = picture_open,
    .begin = picture_begin,
    .rows = picture_rows,
    .metadata = fby_jpeg_metadata,
    .close = picture_close,
    .destroy = picture_destroy,
    .bytes = picture_bytes,
};
