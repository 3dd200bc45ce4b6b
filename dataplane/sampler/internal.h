/* What the sampler's files share: a task's state, and the sampler's. */
#ifndef FBY_DATAPLANE_SAMPLER_INTERNAL_H
#define FBY_DATAPLANE_SAMPLER_INTERNAL_H

#include "dataplane/sampler/choice.h"
#include "dataplane/sampler/generator.h"
#include "dataplane/sampler/permutation.h"
#include "dataplane/sampler/pools.h"
#include "dataplane/sampler/sampler.h"
#include "dataplane/sampler/subset.h"

enum { FBY_SAMPLER_LEAST_WINDOW = 128 };

typedef struct fby_rank_state {
    uint64_t queued; /* samples drawn and not given back */
    uint64_t given;  /* of its part of the current epoch */
    uint64_t limit;  /* ids of its next draw; 0: none is set */
    bool starving;   /* its client holds all that was drawn for it */
} fby_rank_state;

typedef struct fby_task_state {
    bool live;
    bool over; /* its last epoch is drawn */
    fby_order order;
    bool drop_last;
    uint64_t seed, epoch, epochs;
    uint32_t batch, ranks;
    uint64_t window, low; /* samples a rank: ready below the one, urgent below the other */
    fby_subset *subset;   /* NULL: all ids */
    uint32_t ids;         /* of its subset */
    uint64_t whole;       /* samples of an epoch, a rank */
    uint64_t part;   /* of the current one: less, where only what was left of it was dealt to the ranks */
    uint64_t behind; /* ids of the current epoch that were had before that */
    uint64_t given;  /* of the current epoch, all ranks */
    uint64_t served; /* ever */
    fby_rank_state *rank; /* per rank */
    uint32_t hungriest;   /* the rank with quota left that has the fewest queued; FBY_NONE: none has quota */
    fby_permutation order_now; /* a fixed order's, of the current epoch */
    uint32_t *first;           /* shared: the first ids of the epoch, for padding */
    uint32_t first_count, first_most, first_next;
    uint64_t *bad; /* bitmap of bad ids: bits from `ids` of the sampler on are clear */
    uint32_t bad_count;
    uint64_t *awaited; /* bitmap: what a resumed task needs that its pools don't say yet; NULL: nothing */
    uint32_t awaited_count;
    uint32_t awaited_parts, awaited_next; /* of each word; the parts come in this order */
    fby_permutation awaited_order;
    bool resumed;    /* its first epoch goes on from another life */
    uint32_t *spare; /* what that epoch had left when all of it was drawn: for its substitutes */
    uint32_t spare_count;
    uint64_t spare_epoch;
} fby_task_state;

/* A subset that some shared-order tasks have, whose ids come to their strata a bounded step at a time. */
typedef struct fby_arrival {
    fby_subset *subset; /* NULL: free */
    uint64_t tasks;     /* shared-order tasks that have it */
    uint32_t next, end; /* words of the bitmap, in a permuted order */
    fby_permutation words;
} fby_arrival;

struct fby_sampler {
    uint32_t ids;
    uint64_t live; /* a bit per task */
    fby_generator generator;
    uint64_t seed;
    fby_pools pools;
    fby_chooser chooser;
    fby_task_state task[FBY_SAMPLER_TASKS];
    fby_arrival arrival[FBY_SAMPLER_TASKS]; /* one for each subset; as many as tasks can have */
    uint32_t arriving;                      /* arrivals that go on */
    uint64_t resuming;                      /* a bit per task with awaited ids */
    uint32_t visits_before;                 /* of each id, in the lives of resumed tasks */
    fby_sampler_stats stats;
};

/* --- arrival.c --- */

/* The subset of a task that has one, shared with whoever has an equal one. FBY_EINVAL: it is empty;
 * FBY_ENOMEM. */
int fby_arrival_open(fby_sampler *sampler, const fby_sampler_task *what, fby_subset **out);
void fby_arrival_close(fby_sampler *sampler, fby_subset **subset);
/* Whether the strata have room for what this subset would cut them into. Finishes what is arriving where that
 * decides. */
bool fby_arrival_fits(fby_sampler *sampler, const fby_subset *subset);
/* A shared-order task gets its bit in the strata of its subset, now or bit by bit; or loses it. */
void fby_arrival_enter(fby_sampler *sampler, uint32_t task);
void fby_arrival_leave(fby_sampler *sampler, uint32_t task);
/* Moves on all arrivals, about `budget` ids. */
void fby_arrival_step(fby_sampler *sampler, uint32_t budget);

/* Whether the task's subset has all its strata. */
bool fby_arrival_over(const fby_sampler *sampler, uint32_t task);

/* --- resume.c --- */

/* Takes over what a shared-order task had. FBY_OK or FBY_ENOMEM. */
int fby_resume_set(fby_sampler *sampler, fby_task_state *task, const uint64_t *had);
/* It has entered its strata: its needs become those that it had left. */
void fby_resume_enter(fby_sampler *sampler, uint32_t task);
/* They don't matter any more. */
void fby_resume_end(fby_sampler *sampler, uint32_t task);
/* Moves on all resumed tasks, about `budget` ids. */
void fby_resume_step(fby_sampler *sampler, uint32_t budget);
/* All of the epoch that it was resumed in is drawn: keeps what it still needs of it. */
void fby_resume_keep(fby_sampler *sampler, uint32_t task);
/* Until a resumed task has some blocks to choose from, or all it needs. */
void fby_resume_prepare(fby_sampler *sampler, uint32_t task);

/* --- task.c --- */

static inline bool is_shared(const fby_task_state *task)
{
    return task->order == FBY_ORDER_SHARED;
}

/* The id at a place of the task's subset, and whether it is of it. */
static inline uint32_t id_at(const fby_task_state *task, uint32_t place)
{
    return task->subset ? fby_subset_at(task->subset, place) : place;
}

/* The id at a position of a fixed order; `order` is the epoch's permutation. */
static inline uint32_t id_ordered(const fby_task_state *task, const fby_permutation *order, uint32_t position)
{
    return id_at(task, task->order == FBY_ORDER_STRICT ? fby_permutation_at(order, position) : position);
}

static inline bool is_bad(const fby_task_state *task, uint32_t id)
{
    return task->bad[id / 64] >> (id % 64) & 1;
}

static inline bool is_resuming(const fby_sampler *sampler, uint32_t task)
{
    return sampler->resuming >> task & 1;
}

static inline uint64_t quota_of(const fby_task_state *task)
{
    return task->part - task->rank[task->hungriest].given;
}

int fby_sampler_task_set(fby_sampler *sampler, uint32_t task, const fby_sampler_task *what, fby_error *error);
void fby_sampler_task_clear(fby_sampler *sampler, uint32_t task);
/* Looks for the hungriest rank again. */
void fby_sampler_task_seek_rank(fby_task_state *task);
/* Begins the epochs after the tasks' current ones, or ends their work. */
void fby_sampler_task_next_epochs(fby_sampler *sampler, uint64_t tasks);

#endif
