/* An echo: who is owed what of samples that came fresh, and when it is emitted.
 *
 * A seat is a rank of a task that echoes here. In each of its epochs it gets each of its samples fresh, once,
 * and then again as often as its factor says: the i-th of the epoch floor((i + 1) f) - floor(i f) times in
 * all, so that an epoch has floor(n f) emissions for n samples, exactly. What is emitted again is chosen at
 * random from the items that wait, of which a seat has at most `buffer`, or a batch where that is more: as
 * long as one more batch of fresh ones would go beyond that, none are asked for.
 *
 * Shared order: seats share need-pools of what they are owed; the hungriest is served together with all that
 * are owed the same and can take it. Items count once they are made.
 *
 * Fixed orders: the sequence of emissions is a function of (seed, epoch) alone. A batch is fresh or again as
 * a whole, decided where it begins, but for the epoch's end; each seat has its own pool, and seats whose
 * history and place are equal are served together.
 *
 * factor 0 (auto): always fresh, as far as the task has room; again only on demand, whole batches, each item
 * `max` times at most; what goes beyond the buffer is dropped at random, what is owed at an epoch's end too.
 * Where `total` says what an epoch comes to, there are exactly so many emissions: on demand only as many come
 * again as have room beside the fresh ones that are still to come, and the rest of them is *due*, evenly over
 * the fresh ones. What is due comes unasked once the fresh ones are over, or as soon as more is due than the
 * buffer can hold: so nothing is dropped that the epoch needs.
 *
 * Single-threaded. Source of the technique: Choi, Passos, Shallue, Dahl, "Faster neural network training with
 * data echoing", arXiv 1907.05550. */
#ifndef FBY_DATAPLANE_ECHO_H
#define FBY_DATAPLANE_ECHO_H

#include <forebay/error.h>

#include "dataplane/echo/pool.h"

enum { FBY_ECHO_DRAW_MOST = 4096 };

typedef struct fby_echo fby_echo;

typedef struct fby_echo_seat_options {
    double factor;  /* 0: auto */
    double max;     /* of auto */
    uint64_t total; /* of auto: emissions of an epoch, from `part` to what `max` allows; 0: as time goes */
    uint32_t buffer, batch;
    bool drop_last;
    uint64_t part;  /* fresh samples of an epoch */
    uint64_t epoch; /* the first */
    uint64_t fresh; /* of that one, had before; nothing of them is owed */
    /* Fixed orders: what the sequence depends on, beside the epoch; equal ones are served together. */
    bool ordered;
    uint64_t history;
} fby_echo_seat_options;

/* `seed` drives the choices of seats of shared order. */
int fby_echo_create(fby_echo **out, uint64_t seed, fby_error *error);
void fby_echo_destroy(fby_echo **echo);

/* Emissions of an epoch of `part` samples; 0 for auto as time goes: it can't be told. */
uint64_t fby_echo_samples(const fby_echo_seat_options *what);

/* `seat` must be free. */
void fby_echo_enter(fby_echo *echo, uint32_t seat, const fby_echo_seat_options *what);
void fby_echo_leave(fby_echo *echo, uint32_t seat);
/* Gives up the rest of the seat's epoch; `next` begins. */
void fby_echo_abandon(fby_echo *echo, uint32_t seat, uint64_t next);

/* How many fresh samples the seat may be given next; 0: none now. */
uint64_t fby_echo_wants_fresh(fby_echo *echo, uint32_t seat);
/* How many emissions of what it is owed it may be given next; 0: none now. Auto: what it would take if asked.
 */
uint64_t fby_echo_wants_again(fby_echo *echo, uint32_t seat);
/* Whether those come whenever the seat has room, and not on demand alone, as auto's do until they are due. */
bool fby_echo_is_due(const fby_echo *echo, uint32_t seat);

/* `count` fresh samples were drawn for the seat, no more than it wants where its order is fixed; these were
 * added before. True where they end its epoch; the next one begins. */
bool fby_echo_drawn(fby_echo *echo, uint32_t seat, uint32_t count);

/* The epoch that a seat is in. */
uint64_t fby_echo_epoch(const fby_echo *echo, uint32_t seat);

/* A fresh sample of their current epochs is made (shared order), or drawn (fixed ones; in the order of the
 * draw), for `seats`. `kept` is held on their behalf. */
typedef struct fby_echo_fresh {
    uint32_t id;
    uint64_t turn, epoch; /* counters of its random ops */
    fby_kept_item *kept;  /* may be NULL */
} fby_echo_fresh;
/* FBY_ENOMEM: some of them are owed less than they should be, and their epochs would be too short. */
int fby_echo_add(fby_echo *echo, uint64_t seats, const fby_echo_fresh *fresh);

/* --- going on from a state. An echo with one seat, number 0, is made apart; a seat of another one adopts it.
 */

/* Fixed orders: as it is after the first `emitted` emissions of the epoch, in whole batches. Its items' ids
 * are their positions in the order until they are adopted. Takes time in proportion to `emitted`. FBY_ENOMEM.
 */
int fby_echo_replay(fby_echo **out, const fby_echo_seat_options *what, uint64_t emitted, fby_error *error);
/* Shared order: counts[id] emissions of each of `ids` ids were had, `emitted` in all. What is owed is told
 * from that: so much that the epoch comes out at its number, of samples that came less often than they may.
 * Auto with a total owes what its buffer holds of all that may still come again; any sample that came is as
 * likely as another. Not for auto as time goes. FBY_ENOMEM. */
int fby_echo_restore(fby_echo **out, const fby_echo_seat_options *what, uint64_t emitted,
                     const uint8_t *counts, uint64_t ids, fby_error *error);
/* How many of the epoch's samples came fresh. */
uint64_t fby_echo_fresh_of(const fby_echo *echo, uint32_t seat);
/* Takes over *own, which goes, as the seat `seat`, which must be free. `turn` is the counter of the items'
 * random ops; id_of makes ids of positions, NULL where they are ids. `kept` as for fby_echo_add, of none. */
void fby_echo_adopt(fby_echo *echo, uint32_t seat, fby_echo **own, uint64_t turn,
                    uint32_t (*id_of)(void *user, uint64_t position), void *user);

typedef struct fby_echo_draw {
    uint32_t count;
    uint64_t seats;      /* that are served */
    uint64_t epoch_ends; /* of those, whose epoch ends with it */
    uint64_t epochs[FBY_ECHO_SEATS];
    struct fby_echo_emission {
        fby_echo_fresh fresh; /* kept: held for the caller, who releases it */
        uint32_t repeat;
    } emissions[FBY_ECHO_DRAW_MOST];
} fby_echo_draw;

/* Emissions for `seat`, which wants some, and for all of `ready` that are owed the same; at most `most`.
 * False where there are none. */
bool fby_echo_draw_again(fby_echo *echo, uint32_t seat, uint64_t ready, uint32_t most, fby_echo_draw *out);

typedef struct fby_echo_seat_stats {
    uint64_t fresh, again; /* emissions, all epochs */
    uint64_t owed, items;  /* now */
    uint64_t dropped;      /* auto: emissions that never came */
} fby_echo_seat_stats;
void fby_echo_get_seat_stats(const fby_echo *echo, uint32_t seat, fby_echo_seat_stats *out);

#endif
