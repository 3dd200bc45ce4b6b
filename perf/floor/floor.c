/* The floor: ImageNet's training preprocessing as a plain C loop, what one writes without a loader and
 * without caring for exact pixels. Read the file, decode with libjpeg-turbo only the window of a
 * RandomResizedCrop, resize it to 224 with a triangle filter in float, flip, normalise, store as f32 CHW.
 * Threads take pictures from one counter.
 *
 * usage: perf_floor LIST THREADS [full]     LIST: a path a line; full: decode the whole picture, as
 * torchvision does */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

#include "perf/side/side.h"

enum {
    OUT = 224,
    BATCH = 64,
    TAPS = 64, /* weights kept for each output pixel */
    FILE_BYTES = 4 << 20,
    PICTURE_BYTES = 64 << 20,
    WIDEST = 4096,
    MOST_THREADS = 64
};

static char **paths;
static int count;
static bool whole;
static _Atomic int next_picture;
static float *batch; /* two batches' worth, written round and round */

typedef struct generator {
    uint64_t state;
} generator;

static double uniform(generator *g)
{
    g->state ^= g->state << 13;
    g->state ^= g->state >> 7;
    g->state ^= g->state << 17;
    return (double)(g->state >> 11) * (1.0 / 9007199254740992.0);
}

typedef struct crop {
    int x, y, w, h;
} crop;

static crop draw_crop(generator *g, int width, int height)
{
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (double)width * height * (.08 + .92 * uniform(g));
        double ratio = exp(log(.75) + uniform(g) * (log(4 / 3.) - log(.75)));
        int w = (int)lround(sqrt(area * ratio));
        int h = (int)lround(sqrt(area / ratio));
        if (w > 0 && h > 0 && w <= width && h <= height) {
            int x = (int)(uniform(g) * (width - w + 1));
            int y = (int)(uniform(g) * (height - h + 1));
            return (crop){x, y, w, h};
        }
    }
    int side = width < height ? width : height;
    return (crop){(width - side) / 2, (height - side) / 2, side, side};
}

/* For each output pixel its first input pixel, how many, and their weights: the triangle filter, widened to
 * `in` / OUT where that is more than one pixel. */
typedef struct filter {
    int *first, *taps; /* OUT */
    float
        *weights; /* OUT * TAPS; from malloc: within a page-aligned array the whole loop is a sixth slower */
} filter;

static filter filter_memory(void)
{
    filter f = {malloc(OUT * sizeof *f.first), malloc(OUT * sizeof *f.taps),
                malloc(OUT * TAPS * sizeof *f.weights)};
    return f;
}

static void make_filter(filter *f, int in)
{
    double scale = (double)in / OUT;
    double support = scale > 1 ? scale : 1;
    for (int i = 0; i < OUT; i++) {
        double center = (i + .5) * scale;
        int from = (int)(center - support + .5);
        int to = (int)(center + support + .5);
        if (from < 0) from = 0;
        if (to > in) to = in;
        double total = 0;
        for (int j = from; j < to; j++) {
            double distance = fabs((j + .5 - center) / support);
            double weight = distance < 1 ? 1 - distance : 0;
            f->weights[i * TAPS + j - from] = (float)weight;
            total += weight;
        }
        for (int j = 0; j < to - from; j++) f->weights[i * TAPS + j] /= (float)total;
        f->first[i] = from;
        f->taps[i] = to - from;
    }
}

static void resize_vertically(float *out, const uint8_t *in, size_t stride, int values, const filter *f)
{
    for (int row = 0; row < OUT; row++) {
        float *to = out + (size_t)row * values;
        const uint8_t *from = in + f->first[row] * stride;
        float weight = f->weights[row * TAPS];
        for (int k = 0; k < values; k++) to[k] = weight * from[k];
        for (int j = 1; j < f->taps[row]; j++) {
            from += stride;
            weight = f->weights[row * TAPS + j];
            for (int k = 0; k < values; k++) to[k] += weight * from[k];
        }
    }
}

static void finish(float *out, const float *in, int values, const filter *f, bool flip)
{
    static const float mean[3] = {123.675f, 116.28f, 103.53f};
    static const float inverse[3] = {1 / 58.395f, 1 / 57.12f, 1 / 57.375f};
    for (int row = 0; row < OUT; row++) {
        const float *line = in + (size_t)row * values;
        for (int column = 0; column < OUT; column++) {
            float red = 0, green = 0, blue = 0;
            const float *weights = f->weights + column * TAPS;
            const float *from = line + f->first[column] * 3;
            for (int j = 0, taps = f->taps[column]; j < taps; j++, from += 3) {
                red += weights[j] * from[0];
                green += weights[j] * from[1];
                blue += weights[j] * from[2];
            }
            int at = row * OUT + (flip ? OUT - 1 - column : column);
            out[at] = (red - mean[0]) * inverse[0];
            out[OUT * OUT + at] = (green - mean[1]) * inverse[1];
            out[2 * OUT * OUT + at] = (blue - mean[2]) * inverse[2];
        }
    }
}

typedef struct worker {
    pthread_t thread;
    uint64_t seed;
    uint8_t *file, *pixels;
    float *rows;
    filter across, down;
} worker;

static void work_on(worker *w, generator *g, int index)
{
    int fd = open(paths[index], O_RDONLY | O_CLOEXEC);
    ssize_t length = read(fd, w->file, FILE_BYTES);
    close(fd);
    if (length <= 0) perf_side_fail("can't read %s", paths[index]);

    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, w->file, (unsigned long)length);
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);

    crop c = draw_crop(g, (int)jpeg.output_width, (int)jpeg.output_height);
    JDIMENSION left = 0;
    JDIMENSION decoded_width = jpeg.output_width;
    int rows = (int)jpeg.output_height;
    if (!whole) {
        left = (JDIMENSION)c.x;
        decoded_width = (JDIMENSION)c.w;
        rows = c.h;
        jpeg_crop_scanline(&jpeg, &left, &decoded_width);
        if (c.y) jpeg_skip_scanlines(&jpeg, (JDIMENSION)c.y);
    }
    size_t stride = (size_t)decoded_width * 3;
    for (int row = 0; row < rows;) {
        JSAMPROW to = w->pixels + row * stride;
        row += (int)jpeg_read_scanlines(&jpeg, &to, 1);
    }
    jpeg_abort_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);

    const uint8_t *pixels = w->pixels + (size_t)(c.x - (int)left) * 3 + (whole ? (size_t)c.y * stride : 0);
    make_filter(&w->across, c.w);
    make_filter(&w->down, c.h);
    resize_vertically(w->rows, pixels, stride, c.w * 3, &w->down);
    bool flip = uniform(g) < .5;
    finish(batch + (size_t)(index % (BATCH * 2)) * 3 * OUT * OUT, w->rows, c.w * 3, &w->across, flip);
}

static void *work(void *argument)
{
    worker *w = argument;
    generator g = {0x9E3779B97F4A7C15ull * (w->seed + 1)};
    for (int index; (index = atomic_fetch_add(&next_picture, 1)) < count;) work_on(w, &g, index);
    return NULL;
}

static void read_list(const char *list)
{
    FILE *file = fopen(list, "r");
    if (!file) perf_side_fail("can't open %s", list);
    char line[4096];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        paths = realloc(paths, (size_t)(count + 1) * sizeof *paths);
        paths[count++] = strdup(line);
    }
    fclose(file);
    for (int i = count - 1; i > 0; i--) {
        int j = rand() % (i + 1);
        char *path = paths[i];
        paths[i] = paths[j];
        paths[j] = path;
    }
}

int main(int argc, char **argv)
{
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > MOST_THREADS) perf_side_fail("usage: perf_floor LIST THREADS [full]");
    whole = argc > 3;
    read_list(argv[1]);
    batch = malloc(sizeof *batch * BATCH * 2 * 3 * OUT * OUT);

    static worker workers[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        workers[i].file = malloc(FILE_BYTES);
        workers[i].pixels = malloc(PICTURE_BYTES);
        workers[i].across = filter_memory();
        workers[i].down = filter_memory();
        workers[i].rows = malloc(sizeof(float) * OUT * WIDEST * 3);
    }
    for (uint64_t turn = 0; perf_side_asked(); turn++) {
        atomic_store(&next_picture, 0);
        perf_instant from = perf_side_now(0);
        for (int i = 0; i < threads; i++) {
            workers[i].seed = (uint64_t)i + turn * MOST_THREADS + 128;
            pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        }
        for (int i = 0; i < threads; i++) pthread_join(workers[i].thread, NULL);
        perf_side_answer((uint64_t)count, from, perf_side_now(0));
    }
    return 0;
}
