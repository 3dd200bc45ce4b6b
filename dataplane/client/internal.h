/* What the files of the client library share. */
#ifndef FBY_DATAPLANE_CLIENT_INTERNAL_H
#define FBY_DATAPLANE_CLIENT_INTERNAL_H

#include <forebay/forebay.h>
#include <limits.h>
#include <pthread.h>

#include "dataplane/protocol/peer.h"
#include "dataplane/protocol/protocol.h"
#include "ringbuf/region.h"
#include "ringbuf/spsc.h"

enum { FBY_CONNECT_TIMEOUT_MS = 10000 };

/* Counts the forks between the library's loading and now, as seen by this process; a handle made at another
 * count is a parent's. */
uint32_t fby_fork_generation(void);
int fby_fork_check(uint32_t generation, fby_error *error);

/* A connected socket and who is at its other end. */
typedef struct fby_connection {
    int socket;
    fby_peer peer;
    bool embedded;
} fby_connection;

struct fby_client {
    uint32_t fork_generation;
    fby_connection connection;
    char socket_path[PATH_MAX];
};

/* Connects to `path` and exchanges HELLO and WELCOME. */
int fby_connection_open(fby_connection *out, const char *path, int timeout_ms, fby_error *error);
void fby_connection_close(fby_connection *connection);
/* FBY_ELOST with the server's pid and, where known, its signal. */
int fby_connection_lost(const fby_connection *connection, fby_error *error);
/* Waits for one message of at most `bytes`; *fd_count in: room, out: number. Returns its bytes or a negative
 * status. FAILED becomes its own status and text. `timeout_ms` < 0: until the server ends. */
int64_t fby_connection_receive(fby_connection *connection, void *buffer, size_t bytes, int *fds,
                               int *fd_count, int timeout_ms, fby_error *error);
int fby_connection_send(fby_connection *connection, const void *message, size_t bytes, fby_error *error);

/* Where the embedded server listens: PATH_MAX bytes. */
int fby_embedded_path(char *path, fby_error *error);
/* Starts (or finds, where another client was faster) the embedded server; its socket's path in `path`. */
int fby_embedded_start(char *path, const char *program, int timeout_ms, fby_error *error);

/* A segment of the task's. */
typedef struct fby_mapped {
    uint32_t block;
    fby_region segment;
} fby_mapped;

struct fby_batch {
    fby_task *task;
    fby_batch *next_free;
    uint64_t epoch, index;
    bool last;
    uint32_t count;
    uint32_t extent_count, extent_room;
    /* As delivered: each goes back by itself. */
    struct fby_extent_place {
        uint32_t block, generation, first, count;
        const uint8_t *data;
    } * extents;
    uint32_t piece_count; /* runs of extents that are neighbours in memory */
    uint64_t *ids;        /* room for a full batch */
    int64_t *labels;
    uint32_t *flags;
};

struct fby_task {
    uint32_t fork_generation;
    fby_connection connection;
    int event_fd;
    fby_region down, up;
    fby_mapped *mapped; /* segments, as their blocks turned up */
    uint32_t mapped_count;
    uint32_t gone; /* as last seen in the down region */
    fby_delivery_reader reader;
    fby_task_info info;
    uint64_t spin_ns;
    char *class_names; /* NUL-terminated, one after the other */
    const char **classes;
    uint32_t ranks;
    bool under_way;       /* an epoch: a batch of it came, but not its last */
    uint64_t epoch;       /* of the last batch that the caller got */
    uint64_t least_epoch; /* older batches were given up */
    /* What the ring is at: the descriptors say where epochs begin and end, not which they are. */
    uint64_t coming_epoch, coming_batch;
    fby_batch *assembling;
    bool ended;        /* END came */
    fby_error failure; /* sticky, where code != 0 */
    fby_error told;    /* why the task has failed, where its descriptor is still to come */

    /* Shared with whatever thread releases a batch. */
    pthread_mutex_t lock;
    fby_returns_writer returns;
    fby_batch *free_batches;
    uint32_t references; /* the handle and every batch under way or held */
    uint32_t held;       /* batches that the caller holds */
    bool closed;
};

/* Drops one reference to a task; the last frees it. */
void fby_task_unref(fby_task *task);

/* Gives a batch's blocks back and the batch to the free list; the last reference frees the task. */
void fby_batch_drop(fby_batch *batch, bool was_held);

#endif
