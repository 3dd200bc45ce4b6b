/* The two ways to decode a JPEG's entropy-coded data, ours and libjpeg's, on the same bytes: for the test and
 * the fuzz target, which both want them to agree. */
#ifndef FBY_TESTS_CODEC_JPEG_PATHS_H
#define FBY_TESTS_CODEC_JPEG_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/decode.h"

enum { JPEG_PATHS_PIXELS = 1 << 18 };

typedef struct jpeg_paths {
    fby_decoder *ours, *libjpegs;
    uint64_t good, bad; /* verdicts */
    char difference[400];
} jpeg_paths;

void jpeg_paths_create(jpeg_paths *paths);
void jpeg_paths_destroy(jpeg_paths *paths);

/* The whole picture, and a region that follows from `seed`, with options that do so too. False where verdict,
 * what is said of it, or a pixel differs: then paths->difference says how. */
bool jpeg_paths_agree(jpeg_paths *paths, const uint8_t *bytes, size_t length, uint32_t seed);

#endif
