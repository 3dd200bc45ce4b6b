/* Times the decoding of JPEGs with our entropy decoder and with libjpeg's, which take turns. The pictures are
 * photographs, coded again in the ways that files are coded. One JSON line a kind, {"name", "samples",
 * "unit"}: a sample is libjpeg's time over ours for all pictures of a kind; the microseconds go to the table,
 * on lines of their own.
 *
 *     bench_jpeg SAMPLES PHOTOGRAPH...  */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

#include "codec/decode.h"

enum { MOST_PICTURES = 64, MOST_SAMPLES = 1000, MARGIN = 64, SMALL_SIDE = 64, LARGE_TIMES = 4, ROWS = 16 };

typedef enum part { WHOLE, MIDDLE, LAST_ROWS } part;

typedef struct kind {
    const char *name;
    int quality, across, down; /* the first component's sampling factors */
    bool gray, optimised;
    unsigned restart_rows;
    bool small;
    uint32_t times; /* the picture beside and below itself, so many times each way */
    part part;
} kind;

static const kind kinds[] = {
    {"420", 85, 2, 2, false, false, 0, false, 1, WHOLE},
    {"420_region", 85, 2, 2, false, false, 0, false, 1, MIDDLE},
    {"420_last_rows", 85, 2, 2, false, false, 0, false, 1, LAST_ROWS},
    {"420_optimised", 85, 2, 2, false, true, 0, false, 1, WHOLE},
    {"420_optimised_region", 85, 2, 2, false, true, 0, false, 1, MIDDLE},
    {"420_restart", 85, 2, 2, false, false, 1, false, 1, WHOLE},
    {"420_quality_50", 50, 2, 2, false, false, 0, false, 1, WHOLE},
    {"420_quality_98", 98, 2, 2, false, false, 0, false, 1, WHOLE},
    {"422", 85, 2, 1, false, false, 0, false, 1, WHOLE},
    {"444", 85, 1, 1, false, false, 0, false, 1, WHOLE},
    {"gray", 85, 1, 1, true, false, 0, false, 1, WHOLE},
    {"small", 85, 2, 2, false, false, 0, true, 1, WHOLE},
    {"small_optimised", 85, 2, 2, false, true, 0, true, 1, WHOLE},
    {"large", 85, 2, 2, false, false, 0, false, LARGE_TIMES, WHOLE},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct picture {
    uint8_t *rgb;
    uint32_t w, h;
} picture;

typedef struct file {
    uint8_t *bytes; /* and MARGIN more */
    unsigned long length;
} file;

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static void stop(const char *what)
{
    fprintf(stderr, "bench_jpeg: %s\n", what);
    exit(1);
}

static void *need(void *memory)
{
    if (!memory) stop("out of memory");
    return memory;
}

static picture picture_read(fby_decoder *decoder, const char *path)
{
    FILE *stream = fopen(path, "rb");
    if (!stream || fseek(stream, 0, SEEK_END)) stop(path);
    size_t length = (size_t)ftell(stream);
    rewind(stream);
    uint8_t *bytes = need(calloc(1, length + MARGIN));
    if (fread(bytes, 1, length, stream) != length) stop(path);
    fclose(stream);

    fby_picture_info info;
    if (fby_decode_open(decoder, bytes, length, NULL, &info)) stop(fby_decode_text(decoder));
    picture read = {.rgb = need(malloc((size_t)info.w * info.h * 3)), .w = info.w, .h = info.h};
    if (fby_decode_into(decoder, NULL, read.rgb, (size_t)info.w * 3)) stop(fby_decode_text(decoder));
    free(bytes);
    return read;
}

static void row_copy(const picture *from, const kind *as, uint32_t w, uint32_t y, uint8_t *row)
{
    const uint8_t *at = from->rgb + (size_t)(y % from->h) * from->w * 3;

    for (uint32_t x = 0; x < w; x++) {
        const uint8_t *pixel = at + (size_t)(x % from->w) * 3;
        if (as->gray)
            row[x] = pixel[1];
        else
            memcpy(row + (size_t)x * 3, pixel, 3);
    }
}

static file file_make(const picture *from, const kind *as)
{
    uint32_t w = as->small ? SMALL_SIDE : from->w * as->times;
    uint32_t h = as->small ? SMALL_SIDE : from->h * as->times;
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *coded = NULL;
    file made = {.length = 0};

    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &coded, &made.length);
    jpeg.image_width = w;
    jpeg.image_height = h;
    jpeg.input_components = as->gray ? 1 : 3;
    jpeg.in_color_space = as->gray ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, as->quality, TRUE);
    jpeg.comp_info[0].h_samp_factor = as->across;
    jpeg.comp_info[0].v_samp_factor = as->down;
    jpeg.optimize_coding = as->optimised;
    jpeg.restart_in_rows = (int)as->restart_rows;
    jpeg_start_compress(&jpeg, TRUE);
    JSAMPROW row = need(malloc((size_t)w * 3));
    for (uint32_t y = 0; y < h; y++) {
        row_copy(from, as, w, y, row);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(row);
    made.bytes = need(calloc(1, made.length + MARGIN));
    memcpy(made.bytes, coded, made.length);
    free(coded);
    return made;
}

static fby_region_of region_of(part of, const fby_picture_info *info)
{
    if (of == MIDDLE)
        return (fby_region_of){info->w / 4, info->h / 4, info->w - info->w / 2, info->h - info->h / 2};
    if (of == LAST_ROWS) return (fby_region_of){0, info->h - ROWS, info->w, ROWS};
    return (fby_region_of){0, 0, info->w, info->h};
}

/* Microseconds for all files. Rows are left where the decoder makes them. */
static double files_decode(fby_decoder *decoder, const file *files, int count, part of, bool libjpegs)
{
    fby_decode_options options = {.libjpeg_entropy = libjpegs};
    double start = now_us();

    for (int i = 0; i < count; i++) {
        fby_picture_info info;
        fby_reason reason = fby_decode_open(decoder, files[i].bytes, files[i].length, &options, &info);
        if (!reason) {
            fby_region_of region = region_of(of, &info);
            reason = fby_decode_begin(decoder, &region);
        }
        for (uint32_t rows = 1; !reason && rows;) {
            const uint8_t *at;
            size_t stride;
            reason = fby_decode_rows(decoder, &at, &stride, ROWS, &rows);
        }
        if (reason) stop(fby_decode_text(decoder));
    }
    return now_us() - start;
}

static int by_size(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;

    return (first > second) - (first < second);
}

static void kind_measure(fby_decoder *decoder, const picture *pictures, int count, const kind *as,
                         int sample_count)
{
    static double samples[MOST_SAMPLES], times[2][MOST_SAMPLES];
    file files[MOST_PICTURES];

    for (int i = 0; i < count; i++) files[i] = file_make(&pictures[i], as);
    for (int i = -1; i < sample_count; i++) {
        double us[2];
        for (int turn = 0; turn < 2; turn++) {
            bool libjpegs = (i + turn) & 1;
            us[libjpegs] = files_decode(decoder, files, count, as->part, libjpegs);
        }
        if (i < 0) continue; /* the first run warms up */
        samples[i] = us[1] / us[0];
        times[0][i] = us[0] / count;
        times[1][i] = us[1] / count;
    }
    printf("{\"name\": \"jpeg_%s\", \"samples\": [", as->name);
    for (int i = 0; i < sample_count; i++) printf("%s%.4f", i ? ", " : "", samples[i]);
    printf("], \"unit\": \"time, libjpeg's entropy decoder / ours\"}\n");
    for (int side = 0; side < 2; side++)
        qsort(times[side], (size_t)sample_count, sizeof *times[side], by_size);
    printf("jpeg_%s: %.1f us a picture, %.1f with libjpeg's\n", as->name, times[0][sample_count / 2],
           times[1][sample_count / 2]);
    for (int i = 0; i < count; i++) free(files[i].bytes);
}

int main(int argc, char **argv)
{
    int sample_count = argc > 1 ? atoi(argv[1]) : 0;
    int count = argc - 2;

    if (sample_count < 1 || sample_count > MOST_SAMPLES || count < 1 || count > MOST_PICTURES) {
        fprintf(stderr, "usage: bench_jpeg SAMPLES PHOTOGRAPH...     1 to %d samples, 1 to %d photographs\n",
                MOST_SAMPLES, MOST_PICTURES);
        return 2;
    }
    if (!fby_decode_own_entropy()) stop(fby_decode_entropy_about());

    fby_decoder *decoder = NULL;
    picture pictures[MOST_PICTURES];
    if (fby_decoder_create(&decoder)) stop("out of memory");
    for (int i = 0; i < count; i++) pictures[i] = picture_read(decoder, argv[2 + i]);
    for (int i = 0; i < KINDS; i++) kind_measure(decoder, pictures, count, &kinds[i], sample_count);
    for (int i = 0; i < count; i++) free(pictures[i].rgb);
    fby_decoder_destroy(&decoder);
    return 0;
}
