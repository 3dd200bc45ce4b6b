/* The engine: lots in, finished lots out.
 *
 * A lot is what one draw asks for: samples, each read and decoded once, taken through the branches that want
 * it, and written in place. The conductor owns every lot; between fby_engine_submit and fby_engine_finished
 * it must not touch it, save through this interface.
 *
 * A sample that takes longer than its lot allows is given up: it comes back bad, its worker is replaced, and
 * whatever that worker still does, it writes nothing to any output any more.
 *
 * All functions are the conductor's alone (one thread), but for those marked otherwise. */
#ifndef FBY_DATAPLANE_ENGINE_H
#define FBY_DATAPLANE_ENGINE_H

#include "dataplane/engine/placement.h"
#include "dataplane/plan/plan.h"
#include "io/dataset.h"
#include "io/reader.h"

typedef struct fby_engine fby_engine;
typedef struct fby_lot fby_lot;
typedef struct fby_buffer fby_buffer;

/* Echoes for which one lot keeps what they emit again. */
enum { FBY_LOT_ECHOES = 4 };

/* One sample of a lot. The conductor fills what is marked `in`. */
typedef struct fby_job {
    fby_read_request read;
    fby_lot *lot;
    fby_buffer *buffer;
    uint64_t id;                          /* in */
    uint64_t turn;                        /* in: counter of random ops in shared order */
    uint64_t epoch;                       /* in: and of those in a fixed order */
    uint32_t repeat;                      /* in: which emission of an echo's item it is, from 0 on */
    fby_kept_item *items[FBY_LOT_ECHOES]; /* in: what keeps it, for each of the lot's echoes; NULL: nothing.
                                             Held by the conductor as long as the lot is out */
    bool unread;                          /* all that it needs is kept: no file was read */
    uint64_t state;                       /* whose run it is, and how far: see engine.c */
    fby_reason reason;
    char op[32]; /* where it failed */
    char text[FBY_DECODE_TEXT];
} fby_job;

/* Where one sample of one branch goes. */
typedef struct fby_target {
    uint8_t *payload; /* NULL: the branch doesn't want this sample */
    struct fby_sample_meta *meta;
} fby_target;

/* One branch of a lot. */
typedef struct fby_output {
    uint32_t branch;
    fby_target *targets; /* one a job */
} fby_output;

struct fby_lot {
    void *owner; /* the conductor's */
    fby_job *jobs;
    uint32_t count;
    const fby_plan *plan;
    const fby_dataset *dataset;
    fby_output *outputs;
    uint32_t output_count;
    uint64_t timeout_ns;
    uint32_t echo_count;
    int32_t echo_stages[FBY_LOT_ECHOES]; /* of the plan; the first is that of the jobs' repeats */

    /* Read after it came back. */
    uint32_t bad; /* jobs whose reason isn't NONE */

    /* The engine's. */
    uint32_t remaining;
    fby_lot *next;
};

typedef struct fby_engine_options {
    fby_cpus cpus;
    uint32_t workers; /* 0: what affinity and quota allow */
    uint32_t readers; /* 0: 1 */
    fby_reader_options reader;
    const fby_topology *topology;
} fby_engine_options;

int fby_engine_create(fby_engine **out, const fby_engine_options *options, fby_error *error);
/* Ends the threads: waits for those that work, gives up on abandoned ones. Every lot must be back, or its
 * memory leaked. Returns whether abandoned workers are still inside a decoder (their memory then can't be
 * freed). */
bool fby_engine_destroy(fby_engine **engine);

void fby_engine_submit(fby_engine *engine, fby_lot *lot);
/* The next finished lot, or NULL. */
fby_lot *fby_engine_finished(fby_engine *engine);

/* Readable when something finished while the conductor was parked. */
int fby_engine_event(const fby_engine *engine);
/* About to sleep: after it, look for finished lots once more. */
void fby_engine_park(fby_engine *engine);
void fby_engine_unpark(fby_engine *engine);

/* Hands over what didn't fit into the rings, and abandons workers whose sample took longer than its lot
 * allows. Call it at least four times a second while lots are out. Returns whether there is a backlog. */
bool fby_engine_look_after(fby_engine *engine, uint64_t now_ns);

/* Another set of CPUs: workers are added, retired and pinned anew. */
int fby_engine_use_cpus(fby_engine *engine, const fby_cpus *cpus, fby_error *error);

typedef struct fby_engine_stats {
    uint32_t workers, readers, abandoned;
    uint64_t worker_cpu_ns, reader_cpu_ns; /* threads that live now and those that ended */
    uint64_t decode_ns, transform_ns;
    uint64_t samples, bad;
    fby_jpeg_counts jpegs;
    uint64_t unread; /* samples for which nothing was read: all was kept */
    fby_reader_stats reader;
    uint64_t buffer_bytes, scratch_bytes;
    uint32_t work_waiting; /* samples read but not yet taken by a worker */
    uint32_t read_waiting; /* samples not yet taken by a reader */
} fby_engine_stats;
void fby_engine_get_stats(const fby_engine *engine, fby_engine_stats *out);
const char *fby_engine_reader_about(const fby_engine *engine);

#endif
