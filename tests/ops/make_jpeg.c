#include "tests/ops/make_jpeg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

made_jpeg make_jpeg(uint32_t w, uint32_t h, int subsampled, uint64_t seed)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    uint64_t state = seed * 2 + 1;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, &length);
    jpeg.image_width = w;
    jpeg.image_height = h;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 90, TRUE);
    jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = subsampled ? 2 : 1;
    jpeg_start_compress(&jpeg, TRUE);
    uint8_t *row = malloc((size_t)w * 3);
    for (uint32_t y = 0; y < h; y++) {
        for (uint32_t i = 0; i < w * 3; i++)
            row[i] = (uint8_t)(127 + 80 * sin(i / (3.0 + seed % 7) + y / 5.0) +
                               (double)(test_random(&state) % 40));
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    free(row);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    made_jpeg made = {calloc(1, length + 64), length};
    memcpy(made.bytes, bytes, length);
    free(bytes);
    return made;
}
