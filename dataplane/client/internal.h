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

enum { FBY_CONNECT_TIMEOUT_MS = 10000, FBY_RECONNECT_MS = 30000 };

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

/* Where a client's server is found, and again where it is lost. */
typedef struct fby_address {
    char socket_path[PATH_MAX];
    char program[PATH_MAX]; /* to start; "": whatever is found */
    bool starts;            /* an embedded server is started where none is */
    int reconnect_ms;       /* how long a lost one's successor is waited for; 0: not at all */
} fby_address;

struct fby_client {
    uint32_t fork_generation;
    fby_connection connection;
    fby_address address;
};

/* Connects to `path` and exchanges HELLO and WELCOME. */
int fby_connection_open(fby_connection *out, const char *path, int timeout_ms, fby_error *error);
void fby_connection_close(fby_connection *connection);
/* The same with the server of an address, which is started where it is an embedded one and isn't there. */
int fby_connection_dial(fby_connection *out, const fby_address *address, int timeout_ms, fby_error *error);
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

/* What a server gave a task: its rings and its segments. A task whose server is lost gets another one from
 * the next server; the old one goes with the last batch of it. */
typedef struct fby_stream {
    uint32_t references; /* under the task's lock: the task's own, and each batch's */
    int event_fd;
    fby_region down, up;
    fby_mapped *mapped; /* segments, as their blocks turned up */
    uint32_t mapped_count;
    uint32_t gone; /* as last seen in the down region */
    fby_delivery_reader reader;
    fby_returns_writer returns; /* under the task's lock */
} fby_stream;

struct fby_batch {
    fby_task *task;
    fby_stream *stream;
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

/* A task's tie to its server. */
typedef enum fby_tie {
    FBY_TIE_HELD,
    FBY_TIE_LOST,   /* the next server is looked for */
    FBY_TIE_OPENING /* it was found, and asked to go on with the task */
} fby_tie;

enum { FBY_RECONNECTS = 5 }; /* a minute */

struct fby_task {
    uint32_t fork_generation;
    fby_connection connection;
    fby_stream *stream;
    fby_task_info info;
    fby_task_identity identity;
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
    /* A descriptor that was taken and waits for an answer, and the question that is out: a wait may end
     * before it is answered, and the next one goes on. */
    fby_descriptor current;
    bool has_current;
    uint32_t asked;      /* fby_message_type, or 0 */
    uint32_t asked_gone; /* BLOCKS: what the down region said then */
    uint64_t wait_until; /* the caller's deadline */
    bool ended;          /* END came */
    fby_error failure;   /* sticky, where code != 0 */
    fby_error told;      /* why the task has failed, where its descriptor is still to come */

    /* What the caller got so far: the state. */
    uint64_t waited_ns;  /* for batches, all in all */
    uint8_t *had_counts; /* by id, of a task that echoes: how often it was had; NULL: not counted */
    uint64_t had_epoch, had_behind, had_part, had_samples; /* as in fby_state_head */
    uint64_t *had;                                         /* shared order: bitmap of its ids */
    uint32_t visits;                                       /* of servers before this one's */

    /* How it is opened again where its server is lost. */
    fby_address address;
    char *name, *base, *spec, *job;
    uint32_t rank;
    fby_tie tie;
    fby_error lost;                    /* why it isn't held */
    uint64_t lost_ns;                  /* since when */
    uint64_t tries_ns[FBY_RECONNECTS]; /* when it was opened again, or a server started: the latest */
    uint32_t tries;

    /* Of one of several ranks, until all are known to have come: awaits.c. */
    bool all_came;
    bool awaits_asked;        /* and not answered yet */
    uint64_t awaits_since_ns; /* 0: it hasn't waited yet */
    uint64_t awaits_asked_ns;
    char awaits[FBY_ERROR_TEXT]; /* the last answer; "": there was none */
    fby_notice *notice;          /* NULL: nobody is told, or was already */
    void *notice_user;
    uint64_t notice_ns;

    /* Of one of several ranks: keeper.c. */
    bool kept;
    pthread_t keeper;
    pthread_mutex_t turn; /* held by whoever works on the task: its caller, or its keeper */
    int keeper_stop;      /* an eventfd */

    /* Shared with whatever thread releases a batch. */
    pthread_mutex_t lock;
    fby_batch *free_batches;
    uint32_t references; /* the handle and every batch under way or held */
    uint32_t held;       /* batches that the caller holds */
    bool closed;
};

/* --- task.c --- */

/* Asks the task's server to open it: at its beginning, or where `state` says. `again`: it was open, and goes
 * on by itself. */
int fby_task_ask(fby_task *task, const fby_state_head *state, bool again, fby_error *error);
/* What came as an answer. 1: the task is open; 0: how far it is; or a status. */
int fby_task_answer(fby_task *task, int timeout_ms, uint64_t *found, uint64_t *done, fby_error *error);
/* Whether the server's process, or its end of the connection, is gone. */
bool fby_task_server_gone(const fby_task *task);
/* What TASK_FAILED says, in a message of `bytes`; false where it isn't one. */
bool fby_task_failure_read(const fby_failed *failed, int64_t bytes, fby_error *why);
/* Remembers a failure for good: every further call repeats it. */
int fby_task_fail(fby_task *task, int status, const fby_error *why, fby_error *error);

/* --- awaits.c --- */

/* One of several ranks waits for a batch: asks the server now and then whether all have come, and has its
 * program told where they haven't. Waits for nothing. */
void fby_awaits_step(fby_task *task, uint64_t now_ns);
/* Takes a message that answers it, whatever it was received for; false where it isn't one. */
bool fby_awaits_take(fby_task *task, const void *message, int64_t bytes);
/* The task's server is gone, and so is a question that is out. */
void fby_awaits_forget(fby_task *task);

/* --- state.c --- */

/* Where the server says that the task begins. */
void fby_had_set(fby_task *task, const fby_opened *opened);
/* Makes room for what the caller will have had, from where `state` says (NULL: the beginning). */
int fby_had_begin(fby_task *task, const fby_state_head *state, fby_error *error);
/* The caller gets a batch. */
void fby_had_add(fby_task *task, const fby_batch *batch);
/* It gives up the rest of the epoch that it is in. */
void fby_had_leave(fby_task *task, uint64_t next);
/* malloc'd; NULL without memory. */
fby_state_head *fby_had_state(fby_task *task);

/* --- reconnect.c --- */

/* The server is gone. 0: the next one is to be looked for; or FBY_ELOST
 * for good. */
int fby_task_lose(fby_task *task, fby_error *error);
/* Looks for it until the deadline. 0: the task goes on. FBY_ETIMEDOUT and FBY_EINTR: call again. */
int fby_task_tie(fby_task *task, uint64_t deadline_ns, fby_error *error);

/* --- keeper.c --- */

/* Where the task is one of several ranks and outlives its server. */
int fby_keeper_start(fby_task *task, fby_error *error);
void fby_keeper_stop(fby_task *task);
/* Around all that a caller does with a task. FBY_ETIMEDOUT: its keeper is at work. */
int fby_turn_begin(fby_task *task, uint64_t deadline_ns, fby_error *error);
void fby_turn_end(fby_task *task);

/* --- batch.c --- */

/* Under the task's lock. Returns the stream if that was its last reference, for fby_stream_free outside. */
fby_stream *fby_stream_unref(fby_stream *stream);
void fby_stream_free(fby_stream *stream);

/* Drops one reference to a task; the last frees it. */
void fby_task_unref(fby_task *task);

/* Gives a batch's blocks back and the batch to the free list; the last reference frees the task. */
void fby_batch_drop(fby_batch *batch, bool was_held);

#endif
