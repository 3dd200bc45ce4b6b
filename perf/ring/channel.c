#include "perf/ring/channel.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUEUE_BYTES = 64 * 1024 }; /* as much as a pipe holds */

typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t head, tail; /* free-running */
    uint8_t bytes[QUEUE_BYTES];
} queue;

static channel_kind kind;
static int read_ends[2], write_ends[2]; /* by direction */
static queue queues[2];

bool channel_open(channel_kind wanted)
{
    kind = wanted;
    int ends[2];
    switch (kind) {
    case CHANNEL_PIPE:
        for (int forth = 0; forth < 2; forth++) {
            if (pipe(ends) != 0) return false;
            read_ends[forth] = ends[0];
            write_ends[forth] = ends[1];
        }
        return true;
    case CHANNEL_SOCKET:
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return false;
        write_ends[1] = read_ends[0] = ends[0];
        write_ends[0] = read_ends[1] = ends[1];
        return true;
    case CHANNEL_CONDVAR:
        for (int forth = 0; forth < 2; forth++) {
            queue *it = &queues[forth];
            it->head = it->tail = 0;
            pthread_mutex_init(&it->lock, NULL);
            pthread_cond_init(&it->changed, NULL);
        }
        return true;
    }
    return false;
}

void channel_close(void)
{
    for (int forth = 0; forth < 2; forth++) {
        if (kind == CHANNEL_CONDVAR) {
            pthread_mutex_destroy(&queues[forth].lock);
            pthread_cond_destroy(&queues[forth].changed);
        } else {
            close(read_ends[forth]);
            if (kind == CHANNEL_PIPE) close(write_ends[forth]);
        }
    }
}

/* At most what fits, at least one byte. */
static size_t queue_put(queue *it, const uint8_t *data, size_t bytes)
{
    pthread_mutex_lock(&it->lock);
    while (it->tail - it->head == QUEUE_BYTES) pthread_cond_wait(&it->changed, &it->lock);
    size_t room = QUEUE_BYTES - (it->tail - it->head), at = it->tail % QUEUE_BYTES;
    if (bytes > room) bytes = room;
    if (bytes > QUEUE_BYTES - at) bytes = QUEUE_BYTES - at;
    memcpy(it->bytes + at, data, bytes);
    it->tail += bytes;
    pthread_cond_signal(&it->changed);
    pthread_mutex_unlock(&it->lock);
    return bytes;
}

static size_t queue_take(queue *it, uint8_t *data, size_t bytes)
{
    pthread_mutex_lock(&it->lock);
    while (it->tail == it->head) pthread_cond_wait(&it->changed, &it->lock);
    size_t there = it->tail - it->head, at = it->head % QUEUE_BYTES;
    if (bytes > there) bytes = there;
    if (bytes > QUEUE_BYTES - at) bytes = QUEUE_BYTES - at;
    memcpy(data, it->bytes + at, bytes);
    it->head += bytes;
    pthread_cond_signal(&it->changed);
    pthread_mutex_unlock(&it->lock);
    return bytes;
}

void channel_send(bool forth, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t sent;
        if (kind == CHANNEL_CONDVAR) {
            sent = queue_put(&queues[forth], from, bytes);
        } else {
            ssize_t count = write(write_ends[forth], from, bytes);
            if (count <= 0) abort();
            sent = (size_t)count;
        }
        from += sent;
        bytes -= sent;
    }
}

void channel_receive(bool forth, void *data, size_t bytes)
{
    uint8_t *to = data;
    while (bytes > 0) {
        size_t got;
        if (kind == CHANNEL_CONDVAR) {
            got = queue_take(&queues[forth], to, bytes);
        } else {
            ssize_t count = read(read_ends[forth], to, bytes);
            if (count <= 0) abort();
            got = (size_t)count;
        }
        to += got;
        bytes -= got;
    }
}
