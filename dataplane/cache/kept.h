/* A result that is kept: what a sample was at one point of its pipeline.
 *
 * Made by one thread and filled before anybody else knows of it; immutable from then on. It belongs to
 * one owner, who gives its bytes back to the budget they came from when it lets go of it.
 *
 * A place (fby_kept_place) is empty, or has the first result that was put there, for good. Any number of
 * threads may look and put at once. */
#ifndef FBY_DATAPLANE_KEPT_H
#define FBY_DATAPLANE_KEPT_H

#include <stddef.h>
#include <stdint.h>

#include "dataplane/cache/budget.h"

/* Readable bytes past the end of what is kept: what decoders and vector code ask for. */
enum { FBY_KEPT_SLACK = 64 };

typedef struct fby_kept {
    uint64_t bytes; /* of `data` */
    uint32_t w, h;  /* pixels: RGB rows, w * 3 bytes apart; 0: `data` is an encoded picture */
    uint8_t data[]; /* with FBY_KEPT_SLACK readable bytes more */
} fby_kept;

/* Bytes that a result of `bytes` takes of a budget. */
uint64_t fby_kept_cost(uint64_t bytes);
/* Room for a result, to be filled by the caller, who owns it; NULL where the budget, or memory, is
 * short. The budget must live as long as the result. */
fby_kept *fby_kept_make(fby_budget *budget, uint64_t bytes, uint32_t w, uint32_t h);
void fby_kept_release(fby_kept *kept);

typedef struct fby_kept_place {
    fby_kept *kept; /* atomic */
} fby_kept_place;

/* The result that stands there, or NULL; borrowed from the place. */
const fby_kept *fby_kept_at(const fby_kept_place *place);
/* Puts a result there, which belongs to the place from then on. False where another stands there already: it
 * is let go of. */
bool fby_kept_put(fby_kept_place *place, fby_kept *kept);
/* Empties the place; nobody may be looking. */
void fby_kept_clear(fby_kept_place *place);

/* A counted place of one item of an echo: held by whoever will run it again, and by each thread that does. */
typedef struct fby_kept_item {
    uint32_t holders; /* atomic */
    fby_kept_place place;
    fby_budget *budget;
    bool awaited; /* the owner's own note: the run that fills it isn't over */
} fby_kept_item;

fby_kept_item *fby_kept_item_make(fby_budget *budget); /* one holder; NULL without memory */
fby_kept_item *fby_kept_item_hold(fby_kept_item *item);
void fby_kept_item_release(fby_kept_item *item); /* NULL: nothing */

#endif
