/* Counting files for the caller's progress report, from several threads. */
#ifndef FBY_IO_PROGRESS_H
#define FBY_IO_PROGRESS_H

#include "io/dataset.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct fby_progress {
    fby_dataset_progress *call; /* may be NULL */
    void *user;
    atomic_uint_least64_t found, done;
    atomic_bool cancelled;
    pthread_mutex_t turn; /* whose turn it is to call; guards next_ns */
    uint64_t next_ns;
} fby_progress;

void fby_progress_begin(fby_progress *progress, fby_dataset_progress *call, void *user);
void fby_progress_end(fby_progress *progress);

/* Adds to the counts, and reports them where it is time; any thread. Returns false once the caller cancelled.
 */
bool fby_progress_add(fby_progress *progress, uint64_t found, uint64_t done);

#endif
