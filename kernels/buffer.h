/* Memory that grows by need and is given back after an outsized use. Aligned to a cache line; contents are
 * not kept when it grows. */
#ifndef FBY_KERNELS_BUFFER_H
#define FBY_KERNELS_BUFFER_H

#include <stddef.h>
#include <stdlib.h>

enum { FBY_BUFFER_KEPT = 8 << 20 }; /* bytes: a larger buffer isn't kept from one picture to the next */

typedef struct fby_buffer {
    void *data;
    size_t bytes;
} fby_buffer;

static inline void fby_buffer_free(fby_buffer *buffer)
{
    free(buffer->data);
    *buffer = (fby_buffer){0};
}

/* 0, or -1 without memory. */
static inline int fby_buffer_reserve(fby_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->bytes) return 0;
    if (bytes > (size_t)1 << 62) return -1;

    size_t rounded = (bytes + bytes / 8 + 4095) & ~(size_t)4095;
    fby_buffer_free(buffer);
    buffer->data = aligned_alloc(64, rounded);
    if (!buffer->data) return -1;
    buffer->bytes = rounded;
    return 0;
}

static inline void fby_buffer_trim(fby_buffer *buffer)
{
    if (buffer->bytes > FBY_BUFFER_KEPT) fby_buffer_free(buffer);
}

#endif
