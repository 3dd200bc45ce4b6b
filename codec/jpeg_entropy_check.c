/* Whether the libjpeg that runs is the one whose internal interface we were built for. Asked once a process:
 * - It must introduce itself as the version of the headers.
 * - What we use of its internal structures must be where we look for it: pointers must lead into the library,
 *   and values be those that its public interface gives.
 * - A few pictures, made on the spot, must come out the same with our decoder and without it: whole and by
 *   region. */
#include "codec/jpeg_entropy_check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpegint.h>

enum {
    SIDE = 40, /* more than two units each way, and no whole number of them */
    CHANNELS_MOST = 3,
    PICTURE_BYTES = SIDE * SIDE * CHANNELS_MOST,
    MARGIN = 64,
    REGION_X = 17,
    REGION_W = 9,
    REGION_Y = 34, /* two rows of units are passed over before it, or four */
};

/* libjpeg-turbo 2.1.5 says no version, but these. */
static const char COPYRIGHT[] = "Copyright (C) 1991-2023 The libjpeg-turbo Project and many others";

typedef struct sample {
    int components, across, down; /* sampling factors of the first one */
    int quality;
    unsigned restart;
    bool optimised;
} sample;

static const sample samples[] = {
    {3, 2, 2, 75, 0, false},
    {3, 1, 1, 98, 0, true},
    {3, 2, 1, 40, 2, false},
    {1, 1, 1, 90, 0, true},
};

typedef struct checker {
    struct jpeg_error_mgr errors;
    jmp_buf trap;
    struct jpeg_compress_struct writer;
    struct jpeg_decompress_struct reader;
    fby_jpeg_entropy *entropy;
    unsigned char *file;
    unsigned long length;
    uint8_t pixels[PICTURE_BYTES], ours[PICTURE_BYTES], theirs[PICTURE_BYTES];
} checker;

static void on_error(j_common_ptr jpeg)
{
    longjmp(((checker *)jpeg->client_data)->trap, 1);
}

static void on_message(j_common_ptr jpeg, int level)
{
    (void)jpeg;
    (void)level;
}

static void draw(checker *check)
{
    uint32_t noise = 1;

    for (int i = 0; i < PICTURE_BYTES; i++) {
        noise = noise * 1664525 + 1013904223;
        int x = i / CHANNELS_MOST % SIDE;
        int y = i / CHANNELS_MOST / SIDE;
        check->pixels[i] = (uint8_t)((x * (i % CHANNELS_MOST + 3) + y * 5 + (noise >> 27)) % 256);
    }
}

static void encode(checker *check, const sample *with)
{
    struct jpeg_compress_struct *jpeg = &check->writer;

    free(check->file);
    check->file = NULL;
    check->length = 0;
    /* A writer that is used again keeps the tables that it optimised for the picture before. */
    jpeg_destroy_compress(jpeg);
    jpeg_create_compress(jpeg);
    jpeg_mem_dest(jpeg, &check->file, &check->length);
    jpeg->image_width = jpeg->image_height = SIDE;
    jpeg->input_components = with->components;
    jpeg->in_color_space = with->components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, with->quality, TRUE);
    jpeg->comp_info[0].h_samp_factor = with->across;
    jpeg->comp_info[0].v_samp_factor = with->down;
    jpeg->restart_interval = with->restart;
    jpeg->optimize_coding = with->optimised;
    jpeg_start_compress(jpeg, TRUE);
    while (jpeg->next_scanline < SIDE) {
        JSAMPROW row = check->pixels + (size_t)jpeg->next_scanline * SIDE * (size_t)with->components;
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
}

/* Whether both are functions of one library. */
static bool lie_together(const void *function, const void *other)
{
    Dl_info one, another;

    return dladdr(function, &one) && dladdr(other, &another) && one.dli_fbase == another.dli_fbase;
}

static bool is_laid_out_as_known(const struct jpeg_decompress_struct *jpeg)
{
    /* A function of libjpeg's that its public interface shows, whoever may have replaced its symbols. */
    const void *known = (const void *)(uintptr_t)jpeg->mem->alloc_small;

    return lie_together(known, (const void *)(uintptr_t)jpeg->entropy->start_pass) &&
           lie_together(known, (const void *)(uintptr_t)jpeg->entropy->decode_mcu) &&
           !jpeg->entropy->insufficient_data && jpeg->master->first_iMCU_col == 0 &&
           jpeg->master->last_iMCU_col == jpeg->MCUs_per_row - 1 &&
           !jpeg->inputctl->has_multiple_scans == !jpeg_has_multiple_scans((j_decompress_ptr)jpeg);
}

/* The whole picture, or a region. NULL, or what is wrong. */
static const char *decode(checker *check, bool with_ours, bool region, uint8_t *out)
{
    struct jpeg_decompress_struct *jpeg = &check->reader;

    jpeg_mem_src(jpeg, check->file, check->length);
    jpeg_read_header(jpeg, TRUE);
    jpeg->out_color_space = JCS_RGB;
    jpeg_start_decompress(jpeg);
    if (!is_laid_out_as_known(jpeg)) return "its internal structures aren't laid out as in its headers";
    if (with_ours && fby_jpeg_entropy_attach_unchecked(check->entropy, jpeg) != FBY_JPEG_ATTACHED)
        return "a plain picture couldn't be begun";
    if (region) {
        JDIMENSION x = REGION_X;
        JDIMENSION w = REGION_W;
        JDIMENSION align = (JDIMENSION)(jpeg->max_h_samp_factor * DCTSIZE);
        jpeg_crop_scanline(jpeg, &x, &w);
        if (jpeg->master->first_iMCU_col != x / align ||
            jpeg->master->last_iMCU_col != (x + w + align - 1) / align - 1) {
            return "it crops otherwise than expected";
        }
        jpeg_skip_scanlines(jpeg, REGION_Y);
    }
    memset(out, 0, PICTURE_BYTES);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = out + (size_t)jpeg->output_scanline * SIDE * CHANNELS_MOST;
        jpeg_read_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_decompress(jpeg);
    return NULL;
}

static const char *compare(checker *check)
{
    if (setjmp(check->trap)) return "a picture made for the check couldn't be coded and decoded";
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        encode(check, &samples[i]);
        for (int region = 0; region < 2; region++) {
            const char *wrong = decode(check, false, region, check->theirs);
            if (!wrong) wrong = decode(check, true, region, check->ours);
            if (wrong) return wrong;
            if (memcmp(check->ours, check->theirs, PICTURE_BYTES))
                return "a picture made for the check came out otherwise";
        }
    }
    return NULL;
}

static const char *introduces_itself(const struct jpeg_error_mgr *errors)
{
    /* The library's table ends before its headers' last entry, which isn't a message. */
    if (errors->last_jpeg_message != JMSG_LASTMSGCODE - 1 ||
        strcmp(errors->jpeg_message_table[JMSG_COPYRIGHT], COPYRIGHT)) {
        return "the libjpeg that runs isn't the version that Forebay was built with";
    }
    return NULL;
}

static const char *create_and_compare(checker *check)
{
    const char *wrong;

    check->writer.err = check->reader.err = jpeg_std_error(&check->errors);
    check->errors.error_exit = on_error;
    check->errors.emit_message = on_message;
    wrong = introduces_itself(&check->errors);
    if (wrong) return wrong;

    check->writer.client_data = check->reader.client_data = check;
    if (setjmp(check->trap)) return "libjpeg can't be set up";
    jpeg_create_decompress(&check->reader);
    draw(check);
    return compare(check);
}

static const char *refused;

static void ask(void)
{
    checker *check = calloc(1, sizeof *check);

    refused = "no memory to check it";
    if (!check) return;
    check->entropy = fby_jpeg_entropy_create();
    if (check->entropy) refused = create_and_compare(check);
    /* Both are safe where nothing was created: the structures are zeros then. */
    jpeg_destroy_decompress(&check->reader);
    jpeg_destroy_compress(&check->writer);
    fby_jpeg_entropy_destroy(&check->entropy);
    free(check->file);
    free(check);
}

const char *fby_jpeg_entropy_refused(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, ask);
    return refused;
}
