/* Writes FBL's test vectors: make_fbl_vectors FOLDER. Each NAME.fbl is beside its samples, NAME.raw, which
 * come from the formulas of fbl_pictures.c; vectors.txt lists them. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/codec/fbl_pictures.h"

typedef struct vector {
    const char *name;
    fbl_kind kind;
    uint32_t width, height, channels, bits, level, tile;
} vector;

static const vector vectors[] = {
    {"raw", FBL_NOISE, 9, 7, 3, 8, FBY_FBL_SMALL, 0},
    {"raw_16", FBL_NOISE, 5, 6, 2, 16, FBY_FBL_FAST, 0},
    {"const", FBL_ONE, 30, 20, 4, 8, FBY_FBL_SMALL, 0},
    {"const_12", FBL_ONE, 17, 1, 1, 12, FBY_FBL_SMALL, 0},
    {"rans_gray", FBL_SMOOTH, 70, 45, 1, 8, FBY_FBL_SMALL, 0},
    {"rans_gray_alpha", FBL_SMOOTH, 41, 50, 2, 8, FBY_FBL_SMALL, 0},
    {"rans_rgb", FBL_SMOOTH, 50, 37, 3, 8, FBY_FBL_SMALL, 0},
    {"rans_rgba", FBL_SMOOTH, 33, 37, 4, 8, FBY_FBL_SMALL, 0},
    {"rans_9", FBL_SMOOTH, 40, 30, 1, 9, FBY_FBL_SMALL, 0},
    {"rans_12", FBL_SMOOTH, 40, 30, 3, 12, FBY_FBL_SMALL, 0},
    {"rans_16", FBL_SMOOTH, 36, 33, 3, 16, FBY_FBL_SMALL, 0},
    {"rans_tiles", FBL_SMOOTH, 75, 50, 3, 8, FBY_FBL_SMALL, 32},
    {"pack_gray", FBL_SMOOTH, 70, 45, 1, 8, FBY_FBL_FAST, 0},
    {"pack_rgb", FBL_SMOOTH, 50, 37, 3, 8, FBY_FBL_FAST, 0},
    {"pack_rgba", FBL_SMOOTH, 64, 33, 4, 8, FBY_FBL_FAST, 0},
    {"pack_10", FBL_SMOOTH, 40, 40, 1, 10, FBY_FBL_FAST, 0},
    {"pack_16", FBL_SMOOTH, 40, 30, 3, 16, FBY_FBL_FAST, 0},
    {"pack_tiles", FBL_SMOOTH, 70, 70, 3, 8, FBY_FBL_FAST, 48},
    {"palette_gray", FBL_AREAS, 90, 60, 1, 8, FBY_FBL_SMALL, 0},
    {"palette_rgb", FBL_AREAS, 60, 60, 3, 8, FBY_FBL_SMALL, 0},
    {"palette_tiles", FBL_DOTS, 80, 50, 3, 8, FBY_FBL_SMALL, 32},
    {"palette_16", FBL_AREAS, 50, 50, 2, 16, FBY_FBL_SMALL, 0},
    {"palette_wide", FBL_SPECKS, 100, 128, 3, 8, FBY_FBL_SMALL, 0},
    {"one_pixel", FBL_NOISE, 1, 1, 3, 8, FBY_FBL_SMALL, 0},
};

static void write_file(const char *folder, const char *name, const char *end, const void *bytes,
                       size_t length)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s.%s", folder, name, end);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, length, file) != length || fclose(file)) {
        perror(path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const fby_fbl_chunk chunk = {"EXIF", "vector", 6};
    fby_error error = FBY_ERROR_INIT;
    fby_fbl_encoder *encoder;
    char list[8192];
    size_t listed = 0;

    if (argc != 2 || fby_fbl_encoder_create(&encoder)) {
        fprintf(stderr, "usage: make_fbl_vectors FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const vector *it = &vectors[i];
        fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
        fbl_picture picture =
            fbl_picture_make(it->kind, it->width, it->height, it->channels, it->bits, (uint32_t)i + 1);
        const void *bytes;
        size_t length;

        options.level = it->level;
        options.tile_width = options.tile_height = it->tile;
        options.chunks = i % 2;
        options.chunk = &chunk;
        if (fby_fbl_encode(encoder, &picture.image, &options, &bytes, &length, &error)) {
            fprintf(stderr, "%s: %s\n", it->name, error.text);
            return 1;
        }
        write_file(argv[1], it->name, "fbl", bytes, length);
        write_file(argv[1], it->name, "raw", picture.samples, picture.bytes);
        listed += (size_t)snprintf(list + listed, sizeof list - listed, "%s %u %u %u %u\n", it->name,
                                   it->width, it->height, it->channels, it->bits);
        fbl_picture_free(&picture);
    }
    write_file(argv[1], "vectors", "txt", list, listed);
    fby_fbl_encoder_destroy(&encoder);
    return 0;
}
