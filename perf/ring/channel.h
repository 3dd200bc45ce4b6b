/* What the rings are measured beside: a duplex channel of bytes between two threads. */
#ifndef FBY_PERF_RING_CHANNEL_H
#define FBY_PERF_RING_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

typedef enum channel_kind { CHANNEL_PIPE, CHANNEL_SOCKET, CHANNEL_CONDVAR } channel_kind;

/* One channel at a time; false where the system refuses. */
bool channel_open(channel_kind kind);
void channel_close(void);

/* `forth` is from the near thread to the far one. Both block until all bytes are through. */
void channel_send(bool forth, const void *data, size_t bytes);
void channel_receive(bool forth, void *data, size_t bytes);

#endif
