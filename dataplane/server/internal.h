/* What the files of the server share. All structures belong to the conductor's thread, save where said. */
#ifndef FBY_DATAPLANE_SERVER_INTERNAL_H
#define FBY_DATAPLANE_SERVER_INTERNAL_H

#include <jansson.h>
#include <limits.h>
#include <pthread.h>

#include "dataplane/cache/budget.h"
#include "dataplane/echo/echo.h"
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
typedef struct fby_setup_job fby_setup_job;

/* --- places
 * -------------------------------------------------------------------------------------------------------- */

/* A place holds one sample of one branch. Places are numbered block << 16 | index: a block is a segment's
 * one block, its number unique within the source. A draw takes a run of neighbouring places where there is
 * one; who holds a place is kept here alone, a bit for each seat. */
enum { FBY_SEATS = 64, STORE_PLACES_MOST = 32768, BLOCKS_MOST = 65536, SPARE_PLACES = 16 };

typedef struct fby_source fby_source;
typedef struct fby_group fby_group;
typedef struct fby_drawn fby_drawn;
typedef struct fby_crew fby_crew;
typedef struct fby_source_echo fby_source_echo;
typedef struct fby_source_cache fby_source_cache;

/* A segment and its ledger. */
typedef struct fby_store {
    struct fby_store *next;
    fby_group *group; /* NULL while it isn't in use yet, or any more */
    fby_region segment;
    uint32_t block, places;
    uint64_t bytes;           /* of the budget */
    uint64_t *free, *filling; /* bitmaps: nobody's; a worker may be writing to it */
    uint64_t *holders;        /* per place, a bit a seat: drawn for it and not given back */
    uint32_t *generations;    /* per place: counts its rounds */
    uint32_t free_count;
    bool retiring;   /* takes nothing new */
    uint64_t mapped; /* a bit for each seat whose client was sent the segment */
} fby_store;

/* What the set-up thread makes: everything but group and neighbours. */
int fby_store_make(fby_store *store, const fby_branch_info *info, fby_error *error);
void fby_store_free(fby_store *store);

/* The tasks whose pipelines have one output: they share places. */
struct fby_group {
    fby_group *next;
    fby_source *source;
    fby_digest key;
    fby_branch_info info;
    uint32_t branch; /* in the source's plan of now */
    fby_store *stores;
    uint32_t places, free; /* of the stores that don't retire */
};

/* The places that its tasks need: no store stays without which there would be as many. */
uint64_t fby_group_needs(const fby_group *group);
/* Takes `count` places for `seats`, neighbours where it can be; there must be as many. */
void fby_places_take(fby_group *group, uint32_t count, uint64_t seats, uint32_t *places);
/* The worker is done with a place. */
void fby_place_filled(fby_source *source, uint32_t place);
/* Has a place filled anew, if all who hold it are among `seats`. */
bool fby_place_reuse(fby_source *source, uint32_t place, uint64_t seats);
/* Seats that don't need a place any more. */
void fby_place_release(fby_source *source, uint32_t place, uint64_t seats);
fby_target fby_place_target(const fby_source *source, uint32_t place);

/* --- sources
 * ------------------------------------------------------------------------------------------------------- */

/* Fresh samples that a source has made, and how long it was at it. */
typedef struct fby_made {
    uint64_t samples, busy_ns;
} fby_made;

/* Where a task's client was at a moment. */
typedef struct fby_pace {
    uint64_t at_ns, waited_ns, returned;
} fby_pace;

/* A data set, its sampler, and the tasks that draw from it. The set-up thread makes and frees it and counts
 * its users; all from `crews` on is the conductor's. */
struct fby_source {
    fby_server *server;
    fby_source *registered; /* the set-up thread's list */
    uint32_t users;
    fby_digest fingerprint;
    fby_dataset *dataset;
    fby_sampler *sampler;
    uint64_t reserved_bytes;
    struct fby_source_cache *caches; /* the set-up thread's */

    fby_crew *crews[FBY_SAMPLER_TASKS]; /* by the sampler's number */
    fby_subscription *tasks;            /* all with a seat */
    fby_source *next;                   /* the conductor's list: those with tasks */
    uint64_t seats;
    uint32_t batch_most; /* of the members */
    uint32_t out;        /* lots in the engine */
    bool shrinks;        /* a store that retires has all its places back */
    fby_group *groups;
    fby_plan *plan;
    fby_store **stores; /* by block */
    uint32_t store_room, next_block;
    fby_store *gone;        /* retired, but still mapped by a client */
    uint32_t fresh_out;     /* lots of fresh samples in the engine */
    uint64_t busy_since_ns; /* where any are */
    fby_made made;
    fby_source_echo *echoes;
    fby_drawn *waiting;                  /* draws whose lots wait for what they emit again */
    uint64_t again_draws, again_samples; /* draws of what echoes emit again */
    fby_drawn *spare;
};

/* The ranks of one task: the sampler knows them as one. Nothing is drawn before all are there. A rank that
 * leaves has done its duty in the epochs of which it took its whole part: the others get theirs of those, and
 * then `why`. */
struct fby_crew {
    uint32_t bit, ranks;
    fby_digest identity; /* of spec and job: ranks with the same one belong together */
    uint64_t age;        /* the lower, the older */
    uint64_t number;     /* for states; kept by those that go on from one */
    uint32_t present, done;
    bool broken;
    uint64_t end; /* the first epoch that lacks a rank; UINT64_MAX: none does */
    fby_error why;
    fby_subscription *of[]; /* by rank */
};

/* --- crew.c */

/* The crew that waits for this rank, or a new one: it is in the sampler then. FBY_EINVAL where it can't be
 * told which ranks belong together. */
int fby_crew_enter(fby_source *source, fby_subscription *task, fby_error *error);
/* A rank is about to leave: the others end where they need it. */
void fby_crew_part(fby_subscription *task);
/* The last one out tells the sampler. */
void fby_crew_leave(fby_source *source, fby_subscription *task);
/* Whether all ranks are there, or were. */
bool fby_crew_is_whole(const fby_crew *crew);
/* One of a crew has failed: so do the others, for `why`. */
void fby_crew_break(fby_subscription *task, const fby_error *why);

/* --- awaits.c */

/* How many ranks the task's crew waits for; and which, with what may have kept them, as text. */
uint32_t fby_crew_awaits(const fby_subscription *task, char *text, size_t bytes);

/* Puts a task into its source's bookkeeping. 1: done; 0: `job` goes to the set-up thread once more, for the
 * memory listed in it; or a status. */
int fby_source_admit(fby_source *source, fby_subscription *task, fby_setup_job *job, fby_error *error);
/* Takes a task out of the sampler: nothing more is drawn for it. */
void fby_source_part(fby_subscription *task);
/* It is gone: its seat is free, and so is memory that nobody else needs. */
void fby_source_forget(fby_subscription *task);
/* Lets go of memory that has become needless. */
void fby_source_tidy(fby_source *source);
/* One draw, if anybody is hungry; whether there was one. */
bool fby_source_draw(fby_source *source);
void fby_drawn_finished(fby_lot *lot);
/* One task less waits for it. */
void fby_drawn_unref(fby_drawn *drawn);
/* The blocks that the task's client maps and may go on to map, at most `most`; forgets that it maps others.
 */
uint32_t fby_source_blocks(fby_subscription *task, uint32_t *blocks, uint32_t most);
/* The segment of a block of the task's, noted as mapped by it; -1: there is none. */
int fby_source_segment(fby_subscription *task, uint32_t block);
/* Stores that were made for a task that never came to be. */
void fby_source_unmake(fby_server *server, fby_setup_job *job);

/* What one draw gives one group. */
typedef struct fby_part {
    fby_group *group;
    uint64_t seats;
    uint32_t *places; /* one a sample */
} fby_part;

/* A stand-in for a bad sample of a draw, in a lot of its own. */
typedef struct fby_repair {
    fby_drawn *drawn;
    uint32_t part, index;
    uint64_t seats;
} fby_repair;

/* A draw, from the engine's queue to the last task that is done with it. */
struct fby_drawn {
    fby_drawn *next;
    fby_source *source;
    fby_lot lot;
    uint32_t job_room, part_room;
    fby_part *parts;
    uint32_t part_count;
    uint8_t *flags;      /* one a sample: fby_sample_flag */
    fby_repair *repairs; /* one a sample, where this is a lot of stand-ins */
    uint32_t waiting;    /* tasks whose turn of it is still to come, and repairs under way */
    bool filling;
    struct {
        fby_source_echo *echo;
        uint64_t seats; /* that are served fresh and echo there */
    } echoes[FBY_SEATS];
    uint32_t echo_count; /* the first of which the lot keeps results for */
};

/* Stands in for a sample, for one task. */
typedef struct fby_swap {
    uint32_t index, place;
    uint8_t flags;
} fby_swap;

/* A draw that waits for its turn with one task. */
typedef struct fby_pending {
    fby_drawn *drawn;
    uint32_t part;
    uint64_t epoch;
    bool epoch_last;
    bool again;       /* an echo emits it once more */
    uint32_t taken;   /* samples of it that are in batches already */
    uint32_t repairs; /* stand-ins that aren't there yet */
    int64_t failed;   /* the first bad sample that the task fails over, or -1 */
    fby_swap *swaps;
    uint32_t swap_count;
} fby_pending;

/* --- echoes.c: an echo of a source is one for all its tasks that echo at the same stage. */
struct fby_source_echo {
    fby_source_echo *next;
    fby_digest key; /* of the stage whose results are emitted again */
    fby_echo *echo;
};

/* What an epoch of `fresh` samples comes to for the task's client to count: all emissions, or the fresh ones.
 */
uint64_t fby_echoes_samples(const fby_subscription *task, uint64_t fresh);
/* The set-up thread's: what a resumed task that echoes is owed. */
int fby_echoes_restore(fby_subscription *task, uint64_t fresh, fby_error *error);
/* The fresh samples of its epoch, `part` in all, that a resumed task had. */
uint64_t fby_echoes_fresh_had(const fby_subscription *task, uint64_t part);
/* Gives a task that echoes its seat there. */
int fby_echoes_join(fby_subscription *task, fby_error *error);
void fby_echoes_part(fby_subscription *task);
void fby_echoes_free(fby_source *source);
/* The rest of its epoch is given up. */
void fby_echoes_abandon(fby_subscription *task, uint64_t next);
/* The tasks, by the sampler's number, that are to get nothing fresh now; limits the others' next draw. */
uint64_t fby_echoes_sated(fby_source *source);
/* One draw of what is emitted again, if anybody is hungry for it; whether there was one. */
bool fby_echoes_draw(fby_source *source);
/* A fresh draw has its jobs and targets: has what echoes need of it kept, and counts it. Fills in whether it
 * ends the epochs of its tasks. */
void fby_echoes_drawn(fby_drawn *drawn);
/* Whether it emits again what was fresh before. */
static inline bool fby_echoes_is_again(const fby_drawn *drawn)
{
    return drawn->lot.echo_count && !drawn->echo_count;
}

/* Whether what it emits again is still being made: its lot waits for that, since it would be made twice else.
 */
bool fby_echoes_awaits(const fby_drawn *drawn);
/* The lot of a fresh one is back. */
void fby_echoes_finished(fby_drawn *drawn);

/* --- draws: what source.c and echoes.c make of them */

/* Whether the task can be given a draw now. */
bool fby_subscription_able(fby_subscription *task);
/* Room for any draw of now; NULL without memory. */
fby_drawn *fby_drawn_take(fby_source *source);
void fby_drawn_put_away(fby_drawn *drawn);
/* One of those that the draw is for. There must be room for it (fby_subscription_able). */
fby_pending *fby_drawn_target(fby_drawn *drawn, fby_subscription *task, uint64_t epoch, bool epoch_last);
/* All targets and jobs are there: takes places and hands the lot to the engine. */
void fby_drawn_submit(fby_drawn *drawn);
/* The draw as it waits for its turn with the task; NULL: it doesn't. */
fby_pending *fby_pending_of(const fby_subscription *task, const fby_drawn *drawn);

/* --- tasks
 * ----------------------------------------------------------------------------------------------------------
 */

enum { BAD_REMEMBERED = 32 };

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

/* What an event belongs to. */
typedef enum watch_kind {
    WATCH_LISTEN,
    WATCH_SIGNAL,
    WATCH_ENGINE,
    WATCH_SETUP,
    WATCH_SOCKET,
    WATCH_PEER,
    WATCH_RETURNS
} watch_kind;

typedef struct fby_watch {
    watch_kind kind;
    fby_session *session;
    fby_subscription *task;
} fby_watch;

typedef struct fby_extent {
    uint32_t place, count;
    uint8_t flags;
} fby_extent;

/* Extents of one block that a client holds, or that are to be delivered to it again, at their first places.
 */
typedef struct fby_ledger {
    uint32_t block;
    struct fby_ledger_entry {
        uint16_t length; /* 0: none begins here */
        uint16_t times;  /* that it was delivered and not returned */
        bool kept;       /* it is to be delivered again */
    } * entries;
    uint32_t places;
} fby_ledger;

/* A batch that is to be delivered again. */
typedef struct fby_kept_batch {
    fby_extent *extents;
    uint32_t extent_count, samples;
    uint32_t times; /* still to come */
} fby_kept_batch;

struct fby_subscription {
    fby_subscription *next;
    fby_server *server;
    fby_session *session; /* NULL once it is gone */
    uint64_t number;
    /* Made by the set-up thread. */
    fby_spec *spec;
    fby_source *source;
    fby_digest key; /* of what comes out */
    fby_branch_info branch;
    fby_source_cache **caches; /* that its pipeline has; what is in them but `users` doesn't change */
    uint32_t cache_count;
    struct fby_subset *subset;   /* until its crew's join takes it; NULL: all ids */
    fby_task_identity described; /* what tells its states from another task's */
    fby_state_head *resumed;     /* where it goes on; NULL: at the beginning */
    bool again;                  /* its server was lost, and it goes on by itself */
    bool opened_due;             /* its client waits for OPENED */
    fby_region down, up;
    int event_fd, classes_fd;
    uint64_t reserved_bytes;
    uint64_t shared_bytes;   /* rings and window */
    uint32_t window;         /* batches */
    uint32_t window_samples; /* at most so many are out, and the last draw's */
    uint64_t kept_samples;   /* places that kept batches take besides */
    fby_delivery_writer delivery;
    fby_returns_reader returns;
    uint32_t delivery_capacity, return_capacity;
    /* In its source. */
    fby_subscription *next_of_source;
    bool admitted, joined; /* it has a group and a seat; the sampler knows it */
    fby_crew *crew;
    fby_digest identity; /* see fby_crew */
    int process;         /* its client */
    char *job, *base;    /* as its client handed them in */
    uint64_t text_hash;  /* of its spec's text */
    uint32_t bit, rank, seat;
    fby_digest echo_key;   /* of the stage at which it echoes, where it does */
    fby_echo *echo_before; /* what a resumed task is owed, until it has its seat */
    fby_source_echo *echo; /* NULL: it doesn't, or isn't in its source */
    fby_group *group;
    uint64_t batches, samples; /* per epoch */
    fby_pending *pending;      /* in the order they were drawn */
    uint32_t pending_count, pending_room;
    uint32_t gone; /* as published in its down region */
    /* Delivery. */
    uint64_t epoch, batch; /* of the batch being put together */
    fby_extent *extents;   /* of it */
    uint32_t extent_count, batch_fill;
    uint32_t batch_extents;       /* of the last batch that was delivered */
    fby_kept_batch *kept_batches; /* whole batches to be delivered again; spec->echo.buffer of them at most */
    uint32_t kept_count;
    uint64_t fresh_batches; /* of the epoch, delivered; counted where batches are delivered again */
    uint64_t again_batches; /* delivered, all epochs */
    uint64_t least_epoch;   /* older ones were given up */
    uint64_t drawn_epochs;  /* epochs below this are drawn to their end */
    uint64_t whole_epochs;  /* epochs below this are delivered to their end */
    uint64_t end_told;      /* its crew's end, as its client was told; UINT64_MAX: it wasn't */
    bool published;         /* something was put since the last publish */
    bool failed, ended, closing;
    bool starving; /* as the sampler was last told */
    fby_error failure;
    uint32_t under_way; /* draws in the engine with something for it */
    /* What its client holds. */
    fby_ledger *ledgers;
    uint32_t ledger_count;
    uint32_t held_extents, held_samples;
    /* Of a task whose client closed its socket but lives: until it returns what it holds, or dies. */
    fby_peer peer;
    fby_watch peer_watch, returns_watch;
    /* Figures. */
    fby_pace pace, pace_next; /* as of some seconds ago, and of less */
    uint64_t opened_ns, delivered_samples, delivered_batches, contiguous_batches, returned_samples;
    uint64_t bad_total, substituted;
    fby_bad_set bad_known;
    fby_bad_count *bad_counts; /* epoch e's is at e % bad_epochs: no more can be under way */
    uint32_t bad_epochs;
    fby_bad_sample bad[BAD_REMEMBERED]; /* the latest; bad_total counts all */
};

static inline uint64_t fby_seat_bit(const fby_subscription *task)
{
    return UINT64_C(1) << task->seat;
}

/* The place of a pending draw's sample, that of a stand-in before the one that the draw came with; its flags
 * in *flags, where not NULL. */
uint32_t fby_pending_place(const fby_pending *pending, uint32_t index, uint8_t *flags);
/* What the task's ledger has of an extent, which it must have. */
struct fby_ledger_entry *fby_ledger_at(const fby_subscription *task, uint32_t place);
/* Nobody holds it any more, nor will it come again: its places come back. */
void fby_extent_release(fby_subscription *task, uint32_t place);
/* Delivers what is ready, in its turn. */
void fby_subscription_deliver(fby_subscription *task);
/* A block is no more: all of it has come back. */
void fby_subscription_forget(fby_subscription *task, uint32_t block);
/* Its client has taken all that was drawn for it, and asks for more whatever it holds. */
bool fby_subscription_starves(const fby_subscription *task);
/* Makes what was put visible and wakes its client. */
void fby_subscription_publish(fby_subscription *task);
void fby_subscription_take_returns(fby_subscription *task);
/* A place for one more draw; false without memory. */
bool fby_subscription_reserve(fby_subscription *task);
/* Where it begins, once its source has admitted it. */
void fby_subscription_begin(fby_subscription *task);
/* Ends the task with a reason that its client gets, after what was delivered before. */
void fby_subscription_fail(fby_subscription *task, const fby_error *why);
/* Its crew ends before its end (fby_crew.end): what was drawn beyond is dropped; it fails where it has the
 * rest.
 */
void fby_subscription_cut(fby_subscription *task);
/* Where its client is, by what it has taken from its ring: in this epoch, after so many batches. */
void fby_subscription_taken(const fby_subscription *task, uint64_t *epoch, uint64_t *batch);
/* The rest of `epoch` is given up: the next epoch in *next, or FBY_EEND. */
int fby_subscription_abandon(fby_subscription *task, uint64_t epoch, uint64_t *next);
/* Its client has closed, or died: no more draws; what is on its way is dropped. */
void fby_subscription_end(fby_subscription *task, fby_peer *peer);
/* Its client is no more: whatever it held comes back. */
void fby_subscription_bury(fby_subscription *task);
/* Its watches go; the conductor's, before it is freed. */
void fby_subscription_unwatch(fby_subscription *task);
/* True once nothing of it is out: it may be destroyed. */
bool fby_subscription_idle(const fby_subscription *task);
/* The set-up thread's: everything that a task owns. */
void fby_subscription_free(fby_subscription *task);

/* What a bad sample means to a task. True: it is to be replaced; false: the task fails over it in its turn.
 */
bool fby_bad_replace(fby_subscription *task, const fby_job *job, uint64_t epoch);
void fby_bad_fail(fby_subscription *task, const fby_job *job, uint64_t epoch);

/* --- batches.c: whole batches once more (batch.echo) */

static inline bool fby_batches_echo(const fby_subscription *task)
{
    return task->spec->echo.kind == FBY_ECHO_BATCHES;
}

/* Room for what is kept; batches of an epoch, by the fresh ones. */
int fby_batches_begin(fby_subscription *task, fby_error *error);
uint64_t fby_batches_of(const fby_subscription *task, uint64_t fresh);
/* Whether the next batch is one that was delivered before. */
bool fby_batches_again(const fby_subscription *task);
/* The batch that is about to be delivered fresh is kept, where it is to come again. */
void fby_batches_keep(fby_subscription *task);
/* One of those kept, chosen at random: its extents become the batch to be delivered. */
void fby_batches_take(fby_subscription *task);
/* Nothing of the epoch comes again. */
void fby_batches_drop(fby_subscription *task);
void fby_batches_free(fby_subscription *task);

/* --- caches.c: kept results, a cache for each stage that a task has one at */
struct fby_source_cache {
    fby_source_cache *next; /* the set-up thread's */
    fby_digest key;         /* of the stage */
    fby_cache *cache;
    fby_cache_pack pack; /* as the first task with it asked */
    uint64_t bytes;      /* promised to it; the set-up thread's */
    uint32_t users;      /* tasks; the set-up thread's */
};

/* The set-up thread's: opens the caches of the task's pipeline, `plan` being that alone; lets go of them;
 * frees a source's that no task uses, and says whether there were any. */
int fby_caches_enter(fby_subscription *task, const fby_plan *plan, fby_error *error);
void fby_caches_leave(fby_subscription *task);
bool fby_caches_forget(fby_source *source);
/* The conductor's: gives a new plan the caches of the source's tasks. */
void fby_caches_attach(const fby_source *source, fby_plan *plan);

/* --- set-up
 * -------------------------------------------------------------------------------------------------------- */

struct fby_setup_job {
    fby_setup_job *next; /* in the conductor's backlog */
    /* OPEN makes the task, GROW the stores that its source needs more, FREE frees both. */
    enum { SETUP_OPEN, SETUP_GROW, SETUP_FREE, SETUP_STOP } kind;
    uint64_t session; /* number */
    char *name, *base, *text, *job;
    size_t text_bytes;
    int process; /* its client */
    uint32_t rank;
    bool again;             /* its client goes on by itself */
    int state_fd;           /* the state that the task goes on with; -1: none */
    uint32_t cancelled;     /* atomic: the conductor's wish */
    uint64_t found, done;   /* atomic: progress */
    fby_subscription *task; /* result, or what to free */
    struct fby_grown {
        fby_store *store;
        fby_digest key; /* of its group */
        fby_branch_info info;
    } * grown;
    uint32_t grown_count;
    fby_region region; /* to be unmapped, where base isn't NULL */
    int status;
    fby_error error;
};

/* The set-up thread's: takes bytes of --memory, where need be after forgetting caches that no task uses. */
bool fby_setup_budget_take(fby_server *server, uint64_t bytes);
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
/* Takes what the set-up thread made. True: the job went there once more. */
bool fby_session_opened(fby_session *session, fby_setup_job *job);
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
    fby_source *sources;
    fby_source *registry; /* the set-up thread's: all that are open */
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

/* Whether the books agree: part of the status document; the caller's reference. NULL without memory. */
json_t *fby_source_audit(const fby_source *source);
json_t *fby_server_audit(const fby_server *server);

/* --- pace.c: how long a trainer's step takes, and how long a batch of fresh samples takes to be made */

/* Fresh samples go to the engine, and are back. */
void fby_pace_made(fby_source *source, bool back, uint32_t samples);
/* Moves on what "now" means: the last ten seconds or so. Call it several times a second. */
void fby_pace_step(fby_server *server, uint64_t now_ns);
/* Seconds; 0 where it isn't known yet. */
double fby_pace_step_s(const fby_subscription *task, uint64_t now_ns);
double fby_pace_batch_s(const fby_subscription *task);

/* The status document; the caller's reference. */
json_t *fby_server_status(fby_server *server);

#endif
