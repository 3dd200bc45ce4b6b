/* The pools: ids keyed by (stratum, mask), mask being the set of tasks that still need them in their current
 * epoch.
 *
 * A pool is a list of ids that can be read at any place, appended to and cut at its end. It is a tree of
 * fixed cells (leaves of 16 ids, inner cells of 64 children), so it takes an id or gives one in a few steps
 * whatever its length, and two pools are joined by moving whole leaves. Taking from place k puts the last id
 * there: a uniform k gives a uniform order.
 *
 * A task whose epoch ends flips its bit in all masks of its strata; keys are hashed with the bits relative to
 * `polarity`, so that this moves no pool. Where a bit changes that not all pools of the stratum have alike (a
 * task left, gave its epoch up, or ended it with ids to spare), pools may come to have equal keys: all that
 * counts stays right, and fby_pools_sweep() joins them, a bounded step at a time.
 *
 * All pools also stand in one array ordered by level, an upper bound of how many bits their mask has, so that
 * whoever looks for the pool that most tasks share need not look at all of them. */
#ifndef FBY_DATAPLANE_SAMPLER_POOLS_H
#define FBY_DATAPLANE_SAMPLER_POOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/sampler/arena.h"
#include "dataplane/sampler/strata.h"

enum { FBY_LEAF_IDS = 16, FBY_INNER_CHILDREN = 64, FBY_LEVELS = FBY_SAMPLER_TASKS + 1 };

typedef struct fby_pool {
    uint32_t count;      /* ids; 0 for no longer than a call of this module's user */
    uint32_t root, tail; /* cells: of the tree, and its last leaf */
    uint32_t place;      /* in the ordered arrays; FBY_NONE: this record is free */
    uint32_t hash;       /* under which it is linked */
    uint32_t next;       /* in its hash chain, or among the free records */
    uint32_t depth;      /* inner levels above the leaves */
} fby_pool;

typedef struct fby_pool_id {
    uint32_t leaf;
    uint32_t visits; /* how often it was drawn */
} fby_pool_id;

typedef struct fby_pools {
    uint32_t ids;
    uint32_t capacity; /* records */
    fby_pool_id *id;
    fby_arena leaves, inner;
    uint32_t *owner; /* per leaf: its pool */

    fby_pool *pool;
    uint32_t pool_free, pool_used;

    uint32_t count; /* pools, in the arrays ordered by falling level */
    uint64_t *mask;
    uint32_t *record;
    uint16_t *stratum;
    uint32_t
        end[FBY_LEVELS + 1]; /* per level: where it ends and the next lower one begins; end[FBY_LEVELS] = 0 */

    uint32_t *chains; /* hash chains; grown by one at a time (Litwin's linear hashing) */
    uint32_t chain_count;

    uint64_t polarity;
    uint32_t sweep_next, sweep_left;
    fby_strata strata;
} fby_pools;

/* All ids in one pool of no task. */
int fby_pools_create(fby_pools *pools,
                     uint32_t ids); /* 0 or FBY_ENOMEM; after a failure it still has to be destroyed */
void fby_pools_destroy(fby_pools *pools);
uint64_t fby_pools_bytes(const fby_pools *pools);

static inline uint32_t fby_pools_of(const fby_pools *pools, uint32_t id)
{
    return pools->owner[pools->id[id].leaf];
}

static inline uint64_t fby_pools_mask(const fby_pools *pools, uint32_t pool)
{
    return pools->mask[pools->pool[pool].place];
}

static inline uint32_t fby_pools_stratum(const fby_pools *pools, uint32_t pool)
{
    return pools->stratum[pools->pool[pool].place];
}

/* The pool of this key, made (empty) where there is none. */
uint32_t fby_pools_find(fby_pools *pools, uint32_t stratum, uint64_t mask);
/* Gives an empty pool back; one with ids in it stays. */
void fby_pools_tidy(fby_pools *pools, uint32_t pool);

uint32_t fby_pools_at(const fby_pools *pools, uint32_t pool, uint32_t k); /* k < count */
/* Moves the k-th id of one pool to the end of another and returns it. */
uint32_t fby_pools_move(fby_pools *pools, uint32_t from, uint32_t k, uint32_t to);
void fby_pools_move_id(fby_pools *pools, uint32_t id, uint32_t to);

/* Each of `tasks` needs all ids of the strata it is a member of; `task` needs none any more. */
void fby_pools_need_all(fby_pools *pools, uint64_t tasks);
void fby_pools_need_none(fby_pools *pools, uint32_t task);
/* `task` becomes a member of all strata, or of those that `of` is a member of, and needs all their ids. */
void fby_pools_enter(fby_pools *pools, uint32_t task, uint64_t of);
/* `task` is a member of no stratum and needs nothing. */
void fby_pools_leave(fby_pools *pools, uint32_t task);
/* Strata without ids go. */
void fby_pools_drop_empty_strata(fby_pools *pools);

/* Joins pools of equal keys, at most `budget` steps of some ten nanoseconds; true while some is left to do.
 */
bool fby_pools_sweep(fby_pools *pools, uint32_t budget);

#endif
