/* Runs a data plane. */
#ifndef FBY_DATAPLANE_SERVER_H
#define FBY_DATAPLANE_SERVER_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/reader.h"

typedef struct fby_server_options {
    const char *socket; /* where to listen; a stale socket there is replaced, a live server is not */
    bool embedded;      /* ends `linger_ns` after the last connection; its CPUs are its clients' */
    int ready_fd;       /* gets "R" once it listens, or why it can't; closed then. -1: none */
    uint64_t memory;    /* bytes that segments, indexes and buffers may take; 0: half of what is granted */
    uint32_t workers;   /* 0: what affinity and cgroup quota allow */
    fby_reader_options reader;
    uint64_t linger_ns;
    const char *cache; /* folder for indexes; NULL: the default */
    /* One line for the log; never called from two threads at once. */
    void (*log)(void *user, const char *line);
    void *user;
} fby_server_options;

/* Serves until SIGTERM or SIGINT (or, embedded, until nobody needs it). Returns 0, or why it couldn't start.
 * Blocks those two signals in the calling thread, which must be the process's only one. */
int fby_server_run(const fby_server_options *options, fby_error *error);

#endif
