/* The inside of a plan: its tree of stages. */
#ifndef FBY_DATAPLANE_TREE_H
#define FBY_DATAPLANE_TREE_H

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
    fby_sink sink;         /* where any ends */
    char text[200];        /* the parameters as in a spec, cut where longer */
} fby_stage;

struct fby_plan {
    uint32_t holders;  /* atomic */
    fby_stage *stages; /* the source first; a parent before what hangs below it */
    uint32_t stage_count;
    fby_branch_info branches[FBY_PLAN_BRANCHES];
    int32_t last[FBY_PLAN_BRANCHES]; /* the stage that each ends in */
    uint32_t branch_count;
};

/* Applies a stage's op, its draws started for this sample. */
fby_reason fby_stage_apply(const fby_stage *stage, fby_picture *picture, uint64_t id, uint64_t turn,
                           uint32_t repeat);

#endif
