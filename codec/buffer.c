#include "codec/buffer.h"

#include <stdlib.h>
#include <string.h>

bool fby_buffer_reserve(fby_buffer *buffer, size_t length)
{
    size_t capacity;

    if (buffer->bytes && length <= buffer->capacity) return true;
    if (__builtin_add_overflow(length, (size_t)FBY_BUFFER_MARGIN + 63, &capacity)) return false;
    capacity &= ~(size_t)63;
    fby_buffer_free(buffer);
    buffer->bytes = aligned_alloc(64, capacity);
    if (!buffer->bytes) return false;
    buffer->capacity = capacity - FBY_BUFFER_MARGIN;
    /* Readers may look at the margin: it holds nothing of interest, but something. */
    memset(buffer->bytes + buffer->capacity, 0, FBY_BUFFER_MARGIN);
    return true;
}

void fby_buffer_trim(fby_buffer *buffer)
{
    if (buffer->capacity > FBY_BUFFER_KEPT) fby_buffer_free(buffer);
}

void fby_buffer_free(fby_buffer *buffer)
{
    free(buffer->bytes);
    buffer->bytes = NULL;
    buffer->capacity = 0;
}
