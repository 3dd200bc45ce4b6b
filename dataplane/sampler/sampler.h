/* The sampler: which ids are drawn next, and for whom. Need-pools, as the design's section 3 and its
 * executable model say.
 *
 * Plain single-threaded bookkeeping, called by the conductor only: no locks, no clocks, no I/O. All memory is
 * taken at create and join; draw and give_back allocate nothing. Cost: O(1) per id drawn on average, no step
 * over a bounded amount of work (epochs, joins and leaves move whole pools, a bounded step at a time). */
#ifndef FBY_DATAPLANE_SAMPLER_H
#define FBY_DATAPLANE_SAMPLER_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stdint.h>

#include "dataplane/spec/spec.h"

enum { FBY_SAMPLER_TASKS = 64, FBY_SAMPLER_RANKS = 1024, FBY_SAMPLER_STRATA = 1024, FBY_DRAW_MOST = 4096 };

typedef struct fby_sampler fby_sampler;

/* Over the ids 0 … count - 1; 1 <= count < 2^32 - 1. `seed` drives the shared order's choices within pools.
 */
int fby_sampler_create(fby_sampler **out, uint64_t count, uint64_t seed, fby_error *error);
void fby_sampler_destroy(fby_sampler **sampler);

typedef struct fby_sampler_task {
    fby_order order;
    uint64_t seed;        /* strict: of the permutation */
    uint64_t first_epoch; /* 0, or where a resumed task goes on */
    uint64_t epochs;      /* the last epoch is epochs - 1, also for a resumed task; 0: unlimited */
    uint32_t batch;       /* samples */
    bool drop_last;
    uint32_t ranks;
    uint32_t window; /* batches per rank; at least 128 samples of window are kept, as the design says */
    const uint64_t *subset; /* bitmap of count bits, read during the call only; NULL: all ids */
    /* Instead of `subset`, which takes the join a millisecond for ten million ids: as the sampler keeps it,
     * made ahead, by any thread, by fby_subset_create (subset.h). The join takes it, and leaves NULL there,
     * unless it fails before or another task has an equal one. NULL, or NULL there: `subset` says. */
    struct fby_subset **made;
    /* A resumed task's: what it had of its first epoch before. */
    uint64_t behind; /* so many of the epoch's ids were had when the rest was dealt to these ranks */
    const uint64_t
        *given; /* per rank: samples of its part of the rest; NULL: none. Read during the call only */
    const uint64_t *had; /* shared order: bitmap of the ids, read during the call only; NULL: none */
    uint32_t visits;     /* at most FBY_SAMPLER_VISITS; visits that are handed out from now on are no less */
} fby_sampler_task;

/* Far beyond all training, and no more than half of what the counters of random ops hold. */
#define FBY_SAMPLER_VISITS (UINT32_C(1) << 30)

/* Adds a task: its bit in `task`. FBY_EFULL for the 65th, and where the subsets of the tasks here would cut
 * the ids into more than FBY_SAMPLER_STRATA parts; FBY_EINVAL where its subset has no id, an epoch would
 * have no batch, or it claims to have had more than there is; FBY_ENOMEM.
 *
 * A resumed task gets the rest of its first epoch: in a fixed order what comes after each rank's place, in
 * shared order each id of its subset that isn't among those it had, once. An epoch that it had whole is
 * behind it: the next one comes. So it is where what is left makes no part for its ranks (drop_last).
 *
 * `behind` is for an epoch that goes on with another number of ranks than it began with. In a fixed order the
 * first so many places of the epoch are done, and those after them are dealt to the ranks in turn, as all
 * are in other epochs; in shared order as many ids are done, those in `had` at least. */
int fby_sampler_join(fby_sampler *sampler, const fby_sampler_task *what, uint32_t *task, fby_error *error);
void fby_sampler_leave(fby_sampler *sampler, uint32_t task);

/* Samples of an epoch of which so many ids are left, a rank. Without drop_last, ranks' parts are made equal
 * by padding; with it, by leaving ids out. */
static inline uint64_t fby_sampler_part(uint64_t left, uint32_t ranks, uint32_t batch, bool drop_last)
{
    if (!drop_last) return (left + ranks - 1) / ranks;
    uint64_t part = left / ranks;
    return part - part % batch;
}

/* Exact, fixed before the epoch, equal for all ranks; of a whole epoch. */
uint64_t fby_sampler_batches(const fby_sampler *sampler, uint32_t task); /* per epoch and rank */
uint64_t fby_sampler_samples(const fby_sampler *sampler,
                             uint32_t task); /* per epoch and rank, padding included */

typedef enum fby_draw_flag {
    FBY_DRAW_PADDED =
        1, /* repeats an id: to make the ranks' parts equal, or in place of an id that a substitute used up */
} fby_draw_flag;

/* For one of the tasks a draw serves. */
typedef struct fby_draw_target {
    uint32_t task, rank;
    uint64_t epoch;
    uint64_t position; /* of the draw's first id within the rank's part of the epoch, or of its rest */
    bool epoch_last;   /* the draw's last id ends the rank's part */
} fby_draw_target;

typedef struct fby_draw {
    uint32_t count;
    uint64_t tasks; /* bit per task served; = targets */
    uint32_t target_count;
    fby_draw_target targets[FBY_SAMPLER_TASKS];
    uint32_t ids[FBY_DRAW_MOST];
    /* Per id: the counter of random ops. The visit, where a target's order is shared; the epoch, where none's
     * is. A fixed order's counter is always its target's epoch, also where shared tasks ride along. */
    uint64_t turns[FBY_DRAW_MOST];
    uint8_t flags[FBY_DRAW_MOST]; /* fby_draw_flag */
} fby_draw;

/* One draw, of at most g ids: g is the batch of the tasks served, or the hungriest's where they differ; a
 * draw never crosses an epoch's end of a task it serves, nor (for a task served alone) a batch's end.
 * `blocked` has a bit for each task that can't take a block now. Returns 1 with `out` filled, 0 while nobody
 * is urgent or can be served. */
int fby_sampler_draw(fby_sampler *sampler, uint64_t blocked, fby_draw *out);

/* `count` samples that were drawn for a rank of a task came back from its client (or were dropped). */
void fby_sampler_give_back(fby_sampler *sampler, uint32_t task, uint32_t rank, uint32_t count);

/* A fixed order's id at a position of a rank's part of an epoch. */
uint32_t fby_sampler_id_at(const fby_sampler *sampler, uint32_t task, uint32_t rank, uint64_t position,
                           uint64_t epoch);

/* `count` samples more are out for a rank of a task: what it gets without a draw of this sampler. */
void fby_sampler_take(fby_sampler *sampler, uint32_t task, uint32_t rank, uint32_t count);

/* Whether it has room for a block, and whether it needs one soon. */
bool fby_sampler_ready(const fby_sampler *sampler, uint32_t task, uint32_t rank);
bool fby_sampler_urgent(const fby_sampler *sampler, uint32_t task, uint32_t rank);

/* The epoch that a task's next draw belongs to: all ranks' parts of those before it are drawn. */
uint64_t fby_sampler_epoch(const fby_sampler *sampler, uint32_t task);

/* The rank that a task's next draw is for; FBY_SAMPLER_RANKS where none needs anything any more. */
uint32_t fby_sampler_next_rank(const fby_sampler *sampler, uint32_t task);
/* The next draw for this rank has at most `most` ids; 0: no such limit, as after join. */
void fby_sampler_limit(fby_sampler *sampler, uint32_t task, uint32_t rank, uint64_t most);

/* Samples that were drawn for a rank of a task and haven't come back. */
uint64_t fby_sampler_queued(const fby_sampler *sampler, uint32_t task, uint32_t rank);

/* Whether the rank's client holds all that was drawn for it. It then counts as urgent up to its whole window:
 * a trainer that keeps more than half of it would wait for ever otherwise. Clear after join; the caller keeps
 * it up to date. */
void fby_sampler_starve(fby_sampler *sampler, uint32_t task, uint32_t rank, bool starving);

/* Ends the task's current epoch at once; its next draw begins the next one. Returns the epoch that comes
 * next. An epoch of which nothing was drawn yet, nor lies behind, is not skipped: it comes next. */
uint64_t fby_sampler_abandon(fby_sampler *sampler, uint32_t task);

/* Another id in place of a bad one that was drawn for the task in `epoch`: one that it still needs there,
 * taken as drawn (shared order); where none is left, the epoch is over, or the order is fixed, one that it
 * had: *repeat is set. A fixed order's substitute depends on (seed, epoch, bad) alone: the nearest id before
 * it in the order that isn't bad, from the end again where there is none before. `bad` never comes again as a
 * substitute; it counts as served for this epoch. Returns 0, or FBY_EEND where the task has no other ids than
 * bad ones. */
int fby_sampler_substitute(fby_sampler *sampler, uint32_t task, uint64_t epoch, uint32_t bad, uint32_t *id,
                           uint64_t *turn, bool *repeat);

/* The same for a bad sample that comes again in its epoch: always one that it had, or may have; nothing that
 * is still needed is used up. */
int fby_sampler_substitute_again(fby_sampler *sampler, uint32_t task, uint64_t epoch, uint32_t bad,
                                 uint32_t *id, uint64_t *turn);

/* Draws made, ids drawn, ids delivered (one per id and task). */
typedef struct fby_sampler_stats {
    uint64_t draws, drawn, delivered;
    uint32_t visits; /* all visits handed out so far are below this */
} fby_sampler_stats;
void fby_sampler_get_stats(const fby_sampler *sampler, fby_sampler_stats *out);
uint64_t fby_sampler_bytes(const fby_sampler *sampler);

#endif
