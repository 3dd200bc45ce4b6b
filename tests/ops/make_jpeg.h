/* Pictures for tests: a JPEG of waves and noise, made by libjpeg. */
#ifndef FBY_TESTS_MAKE_JPEG_H
#define FBY_TESTS_MAKE_JPEG_H

#include <stddef.h>
#include <stdint.h>

typedef struct made_jpeg {
    uint8_t *bytes; /* 64 more are readable; free() it */
    size_t length;
} made_jpeg;

/* `subsampled`: 4:2:0, else 4:4:4. Equal arguments make equal pictures. */
made_jpeg make_jpeg(uint32_t w, uint32_t h, int subsampled, uint64_t seed);

/* A random number generator for schedules: xorshift64. */
static inline uint64_t test_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
