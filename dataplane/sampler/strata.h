/* Strata: the parts into which the subsets of the shared-order tasks cut the ids, and how much each task got
 * from each.
 *
 * A task takes from a stratum only while it got less than a block more than its proportional share, so what
 * others want never sorts its epoch. All ids of a stratum belong to the subsets of exactly the tasks in
 * `members`. */
#ifndef FBY_DATAPLANE_SAMPLER_STRATA_H
#define FBY_DATAPLANE_SAMPLER_STRATA_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/sampler/sampler.h"

typedef struct fby_stratum {
    uint64_t members;
    uint64_t size;                   /* ids; each of the members wants them all */
    uint32_t tag;                    /* stands for it in hashes: it moves, the tag stays */
    uint32_t split;                  /* fby_strata_split()'s last answer, if it still is one */
    uint64_t allowed, allowed_when;  /* kept answer of fby_strata_allowed() */
    uint32_t got[FBY_SAMPLER_TASKS]; /* per member: ids of it in its current epoch */
} fby_stratum;

typedef struct fby_strata {
    fby_stratum all[FBY_SAMPLER_STRATA];
    uint32_t count;
    uint32_t tags;
    uint64_t now;                       /* changes whenever a kept answer may be wrong */
    uint64_t got[FBY_SAMPLER_TASKS];    /* per task: the sum over its strata */
    uint64_t wanted[FBY_SAMPLER_TASKS]; /* per task: ids of its strata */
} fby_strata;

/* The stratum of exactly these members, made where there is none; the caller sees to it that there is room.
 */
uint32_t fby_strata_find(fby_strata *strata, uint64_t members);

/* The stratum of these tasks besides the members of another one. */
static inline uint32_t fby_strata_split(fby_strata *strata, uint32_t stratum, uint64_t tasks)
{
    fby_stratum *s = &strata->all[stratum];
    uint64_t members = s->members | tasks;
    if (s->split >= strata->count || strata->all[s->split].members != members) {
        s->split = fby_strata_find(strata, members);
    }
    return s->split;
}

/* Those of `tasks`, members all, that are not ahead of their share of the stratum by `block` or more. */
uint64_t fby_strata_fair(const fby_strata *strata, uint32_t stratum, uint64_t tasks, uint32_t block);

/* The same for the stratum's members among `ready`, kept until strata->now changes: one `ready` and `block` a
 * value of it. */
static inline uint64_t fby_strata_allowed(fby_strata *strata, uint32_t stratum, uint64_t ready,
                                          uint32_t block)
{
    fby_stratum *s = &strata->all[stratum];
    if (strata->count == 1) return ready & s->members; /* what a task got here is all it got */
    if (s->allowed_when != strata->now) {
        s->allowed = fby_strata_fair(strata, stratum, ready & s->members, block);
        s->allowed_when = strata->now;
    }
    return s->allowed;
}

/* Each of `tasks` got `count` ids of the stratum. */
void fby_strata_take(fby_strata *strata, uint32_t stratum, uint64_t tasks, uint32_t count);

/* One id goes from one stratum to another; the tasks in `needing` haven't got it in their epochs. */
void fby_strata_move(fby_strata *strata, uint32_t from, uint32_t to, uint64_t needing);

#endif
