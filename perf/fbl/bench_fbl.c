/* FBL beside PNG, which libpng writes with zlib's level 9 and reads: sizes, decoding, encoding, on one core.
 * The pictures are binary PNM files, of kinds that their folders name. Decoders take turns, picture by
 * picture. One line of JSON a figure, {"name", "samples", "unit"}: a size is the geometric mean over a kind's
 * pictures, a sample of decoding that of the ratios of one round, a sample of encoding one round's MB/s. The
 * MB/s of decoding go to the table, on lines of their own.
 *
 *     bench_fbl SAMPLES FOLDER...  */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <png.h>

#include <forebay/fbl.h>

enum { MOST_PICTURES = 64, MOST_SAMPLES = 1000, LEVELS = 2, LARGE_PIXELS = 500000 };

static const char *const level_names[LEVELS] = {"small", "fast"};

typedef struct bytes {
    uint8_t *data;
    size_t length, room, at;
} bytes;

typedef struct picture {
    uint8_t *samples; /* in the machine's order */
    uint8_t *decoded;
    uint32_t width, height, channels, bits;
    size_t length;
    bytes png, fbl[LEVELS];
} picture;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void stop(const char *what)
{
    fprintf(stderr, "bench_fbl: %s\n", what);
    exit(1);
}

static void *need(void *memory)
{
    if (!memory) stop("out of memory");
    return memory;
}

/* ---- PNG ---- */

static void png_put(png_structp png, png_bytep data, png_size_t length)
{
    bytes *to = png_get_io_ptr(png);

    if (to->length + length > to->room) {
        to->room = 2 * (to->length + length);
        to->data = need(realloc(to->data, to->room));
    }
    memcpy(to->data + to->length, data, length);
    to->length += length;
}

static void png_done(png_structp png)
{
    (void)png;
}

static void png_get(png_structp png, png_bytep data, png_size_t length)
{
    bytes *from = png_get_io_ptr(png);

    if (length > from->length - from->at) png_error(png, "short");
    memcpy(data, from->data + from->at, length);
    from->at += length;
}

static void png_encode(picture *it)
{
    png_structp png = need(png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL));
    png_infop info = need(png_create_info_struct(png));
    const size_t row = it->length / it->height;

    if (setjmp(png_jmpbuf(png))) stop("libpng can't write");
    png_set_write_fn(png, &it->png, png_put, png_done);
    png_set_compression_level(png, 9);
    png_set_IHDR(png, info, it->width, it->height, (int)it->bits,
                 it->channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    if (it->bits == 16) png_set_swap(png);
    for (uint32_t y = 0; y < it->height; y++) png_write_row(png, it->samples + y * row);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
}

static void png_decode(picture *it)
{
    png_structp png = need(png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL));
    png_infop info = need(png_create_info_struct(png));
    const size_t row = it->length / it->height;

    if (setjmp(png_jmpbuf(png))) stop("libpng can't read");
    it->png.at = 0;
    png_set_read_fn(png, &it->png, png_get);
    png_read_info(png, info);
    if (it->bits == 16) png_set_swap(png);
    for (uint32_t y = 0; y < it->height; y++) png_read_row(png, it->decoded + y * row, NULL);
    png_read_end(png, NULL);
    png_destroy_read_struct(&png, &info, NULL);
}

/* ---- FBL ---- */

static void fbl_encode(fby_fbl_encoder *encoder, picture *it, uint32_t level, bool keep)
{
    fby_fbl_image image = FBY_FBL_IMAGE_INIT;
    fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
    fby_error error = FBY_ERROR_INIT;
    const void *made;
    size_t length;

    image.data = it->samples;
    image.width = it->width;
    image.height = it->height;
    image.channels = it->channels;
    image.bits = it->bits;
    options.level = level;
    options.unverified = !keep;
    if (fby_fbl_encode(encoder, &image, &options, &made, &length, &error)) stop(error.text);
    if (!keep) return;
    it->fbl[level].data = need(malloc(length));
    it->fbl[level].length = length;
    memcpy(it->fbl[level].data, made, length);
}

static void fbl_decode(fby_fbl_decoder *decoder, picture *it, uint32_t level)
{
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;
    fby_error error = FBY_ERROR_INIT;

    output.data = it->decoded;
    if (fby_fbl_open(decoder, it->fbl[level].data, it->fbl[level].length, NULL, NULL, &error) ||
        fby_fbl_decode(decoder, NULL, &output, &error)) {
        stop(error.text);
    }
}

/* ---- a kind of pictures ---- */

static picture picture_read(const char *path)
{
    picture it = {0};
    unsigned most = 0;
    char kind = 0;
    FILE *file = fopen(path, "rb");

    if (!file || fscanf(file, "P%c %u %u %u", &kind, &it.width, &it.height, &most) != 4 || fgetc(file) == EOF)
        stop(path);
    it.channels = kind == '6' ? 3 : 1;
    it.bits = most > 255 ? 16 : 8;
    it.length = (size_t)it.width * it.height * it.channels * (it.bits / 8);
    it.samples = need(malloc(it.length));
    it.decoded = need(calloc(1, it.length));
    if (fread(it.samples, 1, it.length, file) != it.length) stop(path);
    fclose(file);
    /* PNM has the high byte first. */
    for (size_t i = 0; it.bits == 16 && i < it.length; i += 2) {
        uint16_t value = (uint16_t)(it.samples[i] << 8 | it.samples[i + 1]);
        memcpy(it.samples + i, &value, 2);
    }
    return it;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int picture_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int folder_read(const char *folder, picture *pictures)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, picture_name, by_name);
    char path[4096];

    if (count < 1 || count > MOST_PICTURES) stop(folder);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        pictures[i] = picture_read(path);
        free(entries[i]);
    }
    free(entries);
    return count;
}

static void figure_print(const char *kind, const char *level, const char *what, const double *samples,
                         int count, const char *unit)
{
    printf("{\"name\": \"fbl_%s_%s_%s\", \"samples\": [", kind, level, what);
    for (int i = 0; i < count; i++) printf("%s%.4f", i ? ", " : "", samples[i]);
    printf("], \"unit\": \"%s\"}\n", unit);
}

static void sizes_print(const char *kind, const picture *pictures, int count)
{
    for (uint32_t level = 0; level < LEVELS; level++) {
        double log_sum = 0;
        for (int i = 0; i < count; i++)
            log_sum += log((double)pictures[i].fbl[level].length / (double)pictures[i].png.length);
        double mean = exp(log_sum / count);
        figure_print(kind, level_names[level], "size", &mean, 1, "bytes, FBL / PNG at level 9");
    }
}

/* One round of decoding: the geometric means of PNG's time over FBL's. Adds the seconds to `spent`. */
static void decode_round(fby_fbl_decoder *decoder, picture *pictures, int count, double *ratio, double *spent)
{
    double log_sum[LEVELS] = {0};

    for (int i = 0; i < count; i++) {
        double start = now();
        png_decode(&pictures[i]);
        double png = now() - start;
        spent[LEVELS] += png;
        for (uint32_t level = 0; level < LEVELS; level++) {
            start = now();
            fbl_decode(decoder, &pictures[i], level);
            double fbl = now() - start;
            spent[level] += fbl;
            log_sum[level] += log(png / fbl);
        }
    }
    for (uint32_t level = 0; level < LEVELS; level++) ratio[level] = exp(log_sum[level] / count);
}

/* MB/s of encoding the pictures that are large, or those that aren't; 0 where there are none. */
static double encode_round(fby_fbl_encoder *encoder, picture *pictures, int count, uint32_t level, bool large)
{
    double bytes_done = 0, spent = 0;

    for (int i = 0; i < count; i++) {
        if (((uint64_t)pictures[i].width * pictures[i].height >= LARGE_PIXELS) != large) continue;
        double start = now();
        fbl_encode(encoder, &pictures[i], level, false);
        spent += now() - start;
        bytes_done += (double)pictures[i].length;
    }
    return spent > 0 ? bytes_done / spent / 1e6 : 0;
}

static void kind_measure(fby_fbl_encoder *encoder, fby_fbl_decoder *decoder, const char *folder,
                         int sample_count)
{
    static double decoded[LEVELS][MOST_SAMPLES], encoded[LEVELS][2][MOST_SAMPLES];
    picture pictures[MOST_PICTURES];
    int count = folder_read(folder, pictures);
    const char *kind = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    double spent[LEVELS + 1] = {0}, total = 0;

    for (int i = 0; i < count; i++) {
        png_encode(&pictures[i]);
        for (uint32_t level = 0; level < LEVELS; level++) {
            fbl_encode(encoder, &pictures[i], level, true);
            fbl_decode(decoder, &pictures[i], level);
            if (memcmp(pictures[i].samples, pictures[i].decoded, pictures[i].length))
                stop("a picture came out otherwise");
        }
        total += (double)pictures[i].length;
    }
    sizes_print(kind, pictures, count);
    for (int i = 0; i < sample_count; i++) {
        double ratio[LEVELS];
        decode_round(decoder, pictures, count, ratio, spent);
        for (uint32_t level = 0; level < LEVELS; level++) {
            decoded[level][i] = ratio[level];
            for (int large = 0; large < 2; large++) {
                encoded[level][large][i] = encode_round(encoder, pictures, count, level, large);
            }
        }
    }
    for (uint32_t level = 0; level < LEVELS; level++) {
        const char *name = level_names[level];
        figure_print(kind, name, "decode", decoded[level], sample_count, "decoding time, libpng / FBL");
        if (encoded[level][0][0] > 0)
            figure_print(kind, name, "encode", encoded[level][0], sample_count, "MB/s, under 0.5 MP");
        if (encoded[level][1][0] > 0)
            figure_print(kind, name, "encode_large", encoded[level][1], sample_count, "MB/s");
    }
    printf("%s, %d pictures: MB/s of decoding: libpng %.0f, small %.0f, fast %.0f\n", kind, count,
           total * sample_count / spent[LEVELS] / 1e6, total * sample_count / spent[0] / 1e6,
           total * sample_count / spent[1] / 1e6);
    for (int i = 0; i < count; i++) {
        free(pictures[i].samples);
        free(pictures[i].decoded);
        free(pictures[i].png.data);
        for (uint32_t level = 0; level < LEVELS; level++) free(pictures[i].fbl[level].data);
    }
}

int main(int argc, char **argv)
{
    int sample_count = argc > 2 ? atoi(argv[1]) : 0;
    fby_fbl_encoder *encoder;
    fby_fbl_decoder *decoder;

    if (sample_count < 1 || sample_count > MOST_SAMPLES) {
        fprintf(stderr, "usage: bench_fbl SAMPLES FOLDER...     1 to %d samples; folders of PNM files\n",
                MOST_SAMPLES);
        return 2;
    }
    if (fby_fbl_encoder_create(&encoder) || fby_fbl_decoder_create(&decoder)) stop("out of memory");
    for (int i = 2; i < argc; i++) kind_measure(encoder, decoder, argv[i], sample_count);
    fby_fbl_encoder_destroy(&encoder);
    fby_fbl_decoder_destroy(&decoder);
    return 0;
}
