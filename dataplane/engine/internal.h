/* What the files of the engine share. */
#ifndef FBY_DATAPLANE_ENGINE_INTERNAL_H
#define FBY_DATAPLANE_ENGINE_INTERNAL_H

#include <pthread.h>

#include "dataplane/engine/engine.h"
#include "ringbuf/atomic.h"
#include "ringbuf/layout.h"
#include "ringbuf/mpmc.h"
#include "ringbuf/region.h"

/* Encoded bytes of one sample: filled by a reader, emptied by a worker. */
struct fby_buffer {
    uint8_t *bytes;
    uint64_t capacity;
    fby_buffer *next; /* of the engine's: the conductor's */
};

enum {
    READ_PADDING = 64,             /* readable bytes that decoders ask for past the end */
    BUFFER_KEEP = 4 * 1024 * 1024, /* a larger buffer is given back after use */
    BUFFER_STEP = 64 * 1024,
    READ_RING = 8192,
    UNREAD_MOST = 8192 /* samples on their way for which nothing is read */
};

/* A reader thread sleeps for jobs, for buffers, or for its files alone. */
enum { WANTS_NOTHING = 0, WANTS_JOBS = 1, WANTS_BUFFERS = 2 };

typedef struct fby_input {
    fby_engine *engine;
    pthread_t thread;
    fby_reader *reader;
    _Alignas(FBY_CACHE_PAIR) uint32_t wants; /* written by the thread, read by who brings jobs or buffers */
    uint32_t stop;
    uint32_t dismissed; /* after `stop`: nobody wakes the reader any more */
    bool running;
    fby_reader_stats stats; /* as the thread last wrote them, word by word: for show */
    /* Between the starter and the thread, until `started`. */
    const fby_reader_options *start_options;
    fby_error *start_error;
    int start_status;
    uint32_t started;
    fby_gate start_gate;
} fby_input;

int fby_input_start(fby_input *input, fby_engine *engine, const fby_reader_options *options,
                    fby_error *error);
void fby_input_stop(fby_input *input);
/* Adds what it has read so far. The conductor's. */
void fby_input_get_stats(const fby_input *input, fby_reader_stats *out);
/* Wakes the readers that sleep for `what`. Any thread, after having put it. */
void fby_input_wake(fby_engine *engine, uint32_t what);
/* Gives a buffer back for the next file. Any thread. */
void fby_buffer_return(fby_engine *engine, fby_buffer *buffer);
/* A put on a ring that has a place for everything there is to put. It may still be refused for a moment:
 * while a thread that took an item a whole round ago hasn't yet left its cell. */
void fby_ring_put(fby_mpmc *ring, void *item);

typedef struct fby_worker {
    fby_engine *engine;
    struct fby_worker *next;
    pthread_t thread;
    uint32_t number; /* unique among all workers ever */
    fby_place place;
    fby_scratch *scratch;
    uint32_t retire;     /* written by the conductor */
    bool abandoned;      /* the conductor's, and so are the next three */
    bool owed;           /* abandoned, and nobody could be started in its place yet */
    fby_plan *kept_plan; /* what it was abandoned with, its own until it returns: the plan, */
    fby_buffer *kept;    /* and the buffer, whose place another took */
    uint32_t runs;       /* its own: counts jobs */
    uint32_t returned;   /* 1 once it has left its last decoder */
    /* Written by the worker, read by the conductor. */
    _Alignas(FBY_CACHE_PAIR) fby_job *job;
    uint64_t since_ns;
    uint64_t state; /* of the job's run */
    uint64_t decode_ns, transform_ns, samples, bad, scratch_bytes;
    fby_jpeg_counts jpegs;
} fby_worker;

struct fby_engine {
    fby_engine_options options;
    fby_mpmc *read_ring, *work_ring, *finished_ring, *free_buffers;
    /* Samples for which nothing is read: workers take from here first, since a trainer may wait for them
     * beside others that take long. Each has a token on the work ring, to wake a worker that sleeps there. */
    fby_mpmc *unread_ring;
    fby_buffer *buffers;   /* the conductor's list of all */
    uint32_t buffer_count; /* that go round; those of abandoned workers come on top */
    fby_input *inputs;
    uint32_t input_count;
    fby_worker *workers;
    uint32_t worker_count, next_number;
    int event_fd;
    fby_lot *finished_early; /* the conductor's: finished by look_after itself */
    fby_job **backlog;       /* the conductor's: jobs that the read ring had no place for */
    uint32_t backlog_first, backlog_count, backlog_room;
    uint32_t unread; /* the conductor's: jobs on their way for which nothing is read */
    uint64_t unread_total;
    uint64_t retired_cpu_ns, retired_decode_ns, retired_transform_ns, retired_samples, retired_bad;
    fby_jpeg_counts retired_jpegs;
    uint64_t buffer_bytes;                    /* atomic */
    _Alignas(FBY_CACHE_PAIR) uint32_t parked; /* the conductor sleeps, or is about to */
};

/* A job is done, well or badly: counts its lot down. Any thread. */
void fby_job_finish(fby_engine *engine, fby_job *job);

#endif
