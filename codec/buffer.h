/* Memory that a decoder keeps from one picture to the next, unless a picture made it outsized. */
#ifndef FBY_CODEC_BUFFER_H
#define FBY_CODEC_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FBY_BUFFER_KEPT = 16 << 20, /* more than this is given back after the picture */
    FBY_BUFFER_MARGIN = 64,     /* readable bytes past what was asked for */
};

typedef struct fby_buffer {
    uint8_t *bytes; /* 64-byte aligned; NULL until something was asked for */
    size_t capacity;
} fby_buffer;

/* At least `length` bytes, and the margin; what was in it is lost when it grows. False without memory. */
bool fby_buffer_reserve(fby_buffer *buffer, size_t length);
/* Gives an outsized buffer back. */
void fby_buffer_trim(fby_buffer *buffer);
void fby_buffer_free(fby_buffer *buffer);

#endif
