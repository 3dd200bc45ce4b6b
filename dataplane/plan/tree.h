/* The inside of a plan: its tree of stages. */
#ifndef FBY_DATAPLANE_TREE_H
#define FBY_DATAPLANE_TREE_H

#include <time.h>

#include "dataplane/plan/plan.h"

typedef struct fby_stage {
    fby_digest key;
    int32_t parent, first,
        next;              /* stages: above; its first one below; the next below the same parent. -1: none */
    const fby_op *op;      /* NULL for the source */
    bool fixed;            /* random, in a fixed order: its counter is the epoch */
    void *params;          /* owned */
    uint64_t augment_seed; /* of a random op */
    uint32_t ordinal;      /* of a random op among its pipeline's random ops */
    uint64_t branches;     /* that pass here */
    uint64_t ends;         /* that end here */
    uint64_t echoes;       /* that echo what it makes */
    uint64_t cache_bytes;  /* the most that one of them asks a cache here for; 0: none */
    fby_cache_pack cache_pack;
    fby_cache *cache; /* NULL: nothing is kept; held */
    fby_sink sink;    /* where any ends */
    char text[200];   /* the parameters as in a spec, cut where longer */
} fby_stage;

/* A stage's share of the time that passed, on the monotonic clock. */
typedef struct fby_stage_count {
    uint64_t samples, wall_ns; /* atomic */
} fby_stage_count;

/* Many threads count at every stage of every sample. Each scratch has one of these shards, of its own cache
 * lines, so that few meet at one. */
enum { FBY_PLAN_SHARDS = 16 };

typedef struct fby_plan_shard {
    _Alignas(64) uint64_t cpu_ns,
        wall_ns; /* atomic; of whole samples: their ratio turns stages' time into CPU time */
    fby_stage_count *stages;
} fby_plan_shard;

struct fby_plan {
    uint32_t holders;       /* atomic */
    fby_plan_shard *shards; /* the one thing in a plan that changes */
    uint64_t made_ns;
    fby_stage *stages; /* the source first; a parent before what hangs below it */
    uint32_t stage_count;
    fby_branch_info branches[FBY_PLAN_BRANCHES];
    int32_t last[FBY_PLAN_BRANCHES]; /* the stage that each ends in */
    int32_t echo[FBY_PLAN_BRANCHES]; /* the stage at which each echoes; -1: none */
    uint32_t branch_count;
    bool caches; /* some stage has one */
};

/* Now, on a clock, in nanoseconds. */
uint64_t fby_plan_clock_ns(clockid_t clock);

/* Which emission of an echo's item a stage sees: the work's repeat below the stage that echoes, else 0. */
uint32_t fby_stage_repeat(const fby_plan *plan, int32_t stage, int32_t echo_stage, uint32_t repeat);

/* Applies a stage's op, its draws started for this sample. */
fby_reason fby_stage_apply(const fby_stage *stage, fby_picture *picture, uint64_t id, uint64_t turn,
                           uint32_t repeat);

#endif
