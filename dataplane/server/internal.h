/* What the files of the server share. All structures belong to the conductor's thread, save where said. */
#ifndef FBY_DATAPLANE_SERVER_INTERNAL_H
#define FBY_DATAPLANE_SERVER_INTERNAL_H

#include <jansson.h>
#include <limits.h>
#include <pthread.h>

#include "dataplane/engine/engine.h"
#include "dataplane/protocol/peer.h"
#include "dataplane/protocol/protocol.h"
#include "dataplane/sampler/sampler.h"
#include "dataplane/server/server.h"
#include "ringbuf/mpmc.h"
#include "ringbuf/region.h"
#include "ringbuf/spsc.h"

typedef struct fby_server fby_server;
typedef struct fby_session fby_session;
typedef struct fby_subscription fby_subscription;

/* --- memory
 * ------------------------------------------------------------------------------------------------------- */

/* Bytes promised and granted; shared with the set-up thread. */
typedef struct fby_budget {
    uint64_t limit;
    uint64_t used; /* atomic */
} fby_budget;

bool fby_budget_take(fby_budget *budget, uint64_t bytes);
void fby_budget_give(fby_budget *budget, uint64_t bytes);

/* --- tasks
 * ----------------------------------------------------------------------------------------------------------
 */

/* A block, the lot that fills it, and where it is in its round. */
typedef enum slot_state {
    SLOT_FREE,
    SLOT_FILLING,
    SLOT_READY,      /* filled; waits for its turn */
    SLOT_DELIVERED,  /* the client's until it returns */
    SLOT_QUARANTINED /* nobody's until the stuck worker returns: it couldn't be taken from it */
} slot_state;

typedef struct fby_slot {
    fby_lot lot;
    fby_subscription *task;
    uint32_t index; /* block number less the segment's first */
    uint32_t generation;
    slot_state state;
    bool dropped; /* its epoch was given up, or its task ended: of no use when it comes back */
    bool failed;  /* ready, but what comes is its sample's failure */
    uint64_t epoch;
    bool epoch_last;
    uint32_t *again; /* indexes of jobs to run again */
} fby_slot;

enum { BAD_REMEMBERED = 32, FIRST_BLOCK = 1 };

/* Samples found bad, by epoch; zero-initialised. */
typedef struct fby_bad_set {
    struct fby_bad_place {
        uint64_t epoch, id;
        bool used;
    } * places;
    uint32_t room, count;
} fby_bad_set;

/* True where it wasn't there yet. Epochs below `least_epoch` are never asked for again. */
bool fby_bad_set_add(fby_bad_set *set, uint64_t epoch, uint64_t id, uint64_t least_epoch);
void fby_bad_set_free(fby_bad_set *set);

/* Bad samples of one epoch. */
typedef struct fby_bad_count {
    uint64_t epoch, samples;
} fby_bad_count;

typedef struct fby_bad_sample {
    uint64_t id;
    fby_reason reason;
    char op[32];
    char text[FBY_DECODE_TEXT];
} fby_bad_sample;

struct fby_subscription {
    fby_subscription *next;
    fby_server *server;
    fby_session *session; /* NULL once it is gone */
    uint64_t number;
    /* Made by the set-up thread. */
    fby_spec *spec;
    fby_dataset *dataset;
    fby_plan *plan;
    fby_branch_info branch;
    fby_sampler *sampler;
    uint32_t bit;
    fby_region segment, down, up;
    int event_fd, classes_fd;
    uint64_t reserved_bytes, shared_bytes;
    uint32_t window;  /* batches */
    uint64_t batches; /* per epoch */
    fby_delivery_writer delivery;
    fby_returns_reader returns;
    uint32_t return_capacity;
    fby_slot *slots;
    uint32_t slot_count;
    fby_slot **free_slots;
    uint32_t free_count;
    fby_slot **pending; /* in the order they were drawn */
    uint32_t pending_count;
    /* Delivery. */
    uint64_t epoch, batch; /* of the next batch to be delivered */
    uint64_t least_epoch;  /* older ones were given up */
    uint64_t drawn_epochs; /* epochs below this are drawn to their end */
    bool published;        /* something was put since the last publish */
    bool failed, ended, closing;
    fby_error failure;
    uint32_t out; /* lots in the engine */
    void **moved; /* where blocks were moved to, away from abandoned workers */
    uint32_t moved_count;
    /* Figures. */
    uint64_t opened_ns, delivered_samples, delivered_batches, returned_batches;
    uint64_t bad_total, substituted;
    fby_bad_set bad_known;
    fby_bad_count *bad_counts; /* one per slot: as many epochs can be under way at once; epoch e's is at e %
                                  slot_count */
    fby_bad_sample bad[BAD_REMEMBERED]; /* the latest; bad_total counts all */
};

/* Draws while somebody is hungry, submits, delivers, wakes. */
void fby_subscription_advance(fby_subscription *task);
void fby_subscription_take_returns(fby_subscription *task);
void fby_subscription_lot_finished(fby_lot *lot);
void fby_subscription_lot_released(fby_lot *lot);
/* The rest of `epoch` is given up: the next epoch in *next, or FBY_EEND. */
int fby_subscription_abandon(fby_subscription *task, uint64_t epoch, uint64_t *next);
/* No more draws; what is out is dropped when it comes back. */
void fby_subscription_end(fby_subscription *task);
/* True once nothing of it is out: it may be destroyed. */
bool fby_subscription_idle(const fby_subscription *task);
/* Workers that were given up inside a decoder with one of its samples. */
uint32_t fby_subscription_abandoned(const fby_subscription *task);
/* The set-up thread's: everything that a task owns. */
void fby_subscription_free(fby_subscription *task);

/* --- set-up
 * -------------------------------------------------------------------------------------------------------- */

typedef struct fby_setup_job {
    struct fby_setup_job *next; /* in the conductor's backlog */
    enum { SETUP_OPEN, SETUP_FREE, SETUP_STOP } kind;
    uint64_t session; /* number */
    char *name, *base, *text;
    size_t text_bytes;
    uint32_t cancelled;     /* atomic: the conductor's wish */
    uint64_t found, done;   /* atomic: progress */
    fby_subscription *task; /* result, or what to free */
    int status;
    fby_error error;
} fby_setup_job;

int fby_setup_start(fby_server *server, fby_error *error);
void fby_setup_stop(fby_server *server);
/* Never waits: what the ring has no place for stands in a backlog. */
void fby_setup_submit(fby_server *server, fby_setup_job *job);
/* Hands over the backlog; false where there is one still: call it again soon. */
bool fby_setup_hand_over(fby_server *server);
/* The next finished opening, or NULL; the conductor's from then on. */
fby_setup_job *fby_setup_finished(fby_server *server);
void fby_setup_job_free(fby_setup_job *job);

/* --- sessions
 * ----------------------------------------------------------------------------------------------------------
 */

typedef enum watch_kind {
    WATCH_LISTEN,
    WATCH_SIGNAL,
    WATCH_ENGINE,
    WATCH_SETUP,
    WATCH_SOCKET,
    WATCH_PEER,
    WATCH_RETURNS
} watch_kind;

/* What an event belongs to. */
typedef struct fby_watch {
    watch_kind kind;
    fby_session *session;
} fby_watch;

struct fby_session {
    fby_session *next;
    fby_server *server;
    uint64_t number;
    int socket;
    fby_peer peer;
    fby_watch socket_watch, peer_watch, returns_watch;
    bool greeted, closed;
    fby_cpus cpus;          /* the client's affinity */
    fby_setup_job *opening; /* the set-up thread's until it is finished */
    uint64_t told_found, told_done;
    fby_subscription *task;
};

void fby_session_accept(fby_server *server);
void fby_session_read(fby_session *session);
/* Ends it: the socket is closed, its task ended; freed at the end of the conductor's round. */
void fby_session_close(fby_session *session, const char *why);
/* FAILED, or TASK_FAILED where `type` says so. */
void fby_session_fail(fby_session *session, fby_message_type type, const fby_error *error);
void fby_session_opened(fby_session *session, fby_setup_job *job);
void fby_session_progress(fby_session *session);

/* --- the conductor
 * ------------------------------------------------------------------------------------------------------ */

struct fby_server {
    fby_server_options options;
    fby_budget budget;
    fby_topology *topology;
    fby_engine *engine;
    int epoll, listener, signals, setup_event;
    fby_watch listen_watch, signal_watch, engine_watch, setup_watch;
    fby_session *sessions;
    fby_subscription *tasks;
    uint64_t next_number;
    uint64_t idle_since_ns;
    uint64_t started_ns;
    fby_cpus own_cpus, cpus;
    bool stopping;
    pthread_t setup_thread;
    fby_mpmc *setup_requests, *setup_results;
    fby_setup_job *setup_backlog, **setup_backlog_end;
    bool setup_running;
    /* Clients get descriptors below fd_end: those above are for files and for opening tasks. */
    int fd_end;
    int spare_fd; /* given up for a moment where descriptors run out all the same, to turn clients away */
    uint64_t rounds, sleeps, disconnected;
};

void fby_server_log(fby_server *server, const char *format, ...) __attribute__((format(printf, 2, 3)));
int fby_server_watch(fby_server *server, int fd, fby_watch *watch, fby_error *error);
/* The CPUs of an embedded server are the union of those of clients with a task: call when tasks come and go.
 */
void fby_server_cpus_update(fby_server *server);

/* The status document; the caller's reference. */
json_t *fby_server_status(fby_server *server);

#endif
