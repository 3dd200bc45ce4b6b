/* What is owed, in pools keyed by the set of seats that are owed it: the sampler's need-pools, for emissions.
 *
 * A unit is one more emission of one item, for some seats: number `repeat` of the item, from 1 on. Who is
 * served from a unit leaves it; a unit that nobody is owed any more is gone, an item without units too. */
#ifndef FBY_DATAPLANE_ECHO_POOL_H
#define FBY_DATAPLANE_ECHO_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/cache/kept.h"

enum { FBY_ECHO_SEATS = 64 };

/* A sample as it came: what tells its result at the point of the echo. */
typedef struct fby_echo_item {
    uint32_t id;
    uint32_t units; /* that it is in */
    uint64_t turn, epoch;
    uint64_t mark;                /* the last draw that took it */
    fby_kept_item *kept;          /* held; may be NULL */
    uint8_t left[FBY_ECHO_SEATS]; /* emissions owed, by seat */
} fby_echo_item;

typedef struct fby_echo_unit {
    fby_echo_item *item;
    uint32_t repeat;
} fby_echo_unit;

typedef struct fby_echo_units {
    fby_echo_unit *list;
    uint32_t count, room;
} fby_echo_units;

/* Room for `more`; false without memory. */
bool fby_echo_units_reserve(fby_echo_units *units, uint32_t more);
void fby_echo_units_add(fby_echo_units *units, fby_echo_unit unit);
/* Takes out one; another takes its place. */
fby_echo_unit fby_echo_units_remove(fby_echo_units *units, uint32_t at);

/* An item loses a unit: with the last one it goes. */
void fby_echo_item_leave(fby_echo_item *item);

typedef struct fby_echo_pool {
    uint64_t mask; /* never 0 */
    fby_echo_units units;
} fby_echo_pool;

typedef struct fby_echo_pools {
    fby_echo_pool *list;
    uint32_t count, room;
} fby_echo_pools;

/* The pool of this mask, made where there is none; NULL without memory. */
fby_echo_pool *fby_echo_pools_find(fby_echo_pools *pools, uint64_t mask);
/* Forgets pools without units. */
void fby_echo_pools_tidy(fby_echo_pools *pools);
/* Takes a seat out of all masks; what nobody else is owed goes. */
void fby_echo_pools_leave(fby_echo_pools *pools, uint32_t seat);
void fby_echo_pools_free(fby_echo_pools *pools);

#endif
