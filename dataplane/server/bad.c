/* Which samples were found bad in which epoch, each once: a sample may be met twice in an epoch, as itself
 * and as the substitute of another, and lots of several epochs are under way at once.
 *
 * A set of (epoch, id), open addressing with linear probing. What is older than the epoch being delivered is
 * left out when the table grows. */
#include <stdlib.h>

#include "dataplane/server/internal.h"

enum { LEAST_PLACES = 64 };

static uint32_t place_of(const fby_bad_set *set, uint64_t epoch, uint64_t id)
{
    uint64_t hash = (id + 1) * 0x9e3779b97f4a7c15ull ^
                    (epoch + 1) * 0xc2b2ae3d27d4eb4full; /* odd constants of golden ratio and XXH64 */
    uint32_t place = (uint32_t)(hash >> 32) & (set->room - 1);
    while (set->places[place].used && (set->places[place].epoch != epoch || set->places[place].id != id))
        place = (place + 1) & (set->room - 1);
    return place;
}

static bool set_grow(fby_bad_set *set, uint64_t least_epoch)
{
    uint32_t alive = 0;
    for (uint32_t i = 0; i < set->room; i++)
        alive += set->places[i].used && set->places[i].epoch >= least_epoch;
    fby_bad_set larger = {.room = LEAST_PLACES};
    while (larger.room < alive * 4) larger.room *= 2;
    larger.places = calloc(larger.room, sizeof *larger.places);
    if (!larger.places) return false;
    for (uint32_t i = 0; i < set->room; i++) {
        if (!set->places[i].used || set->places[i].epoch < least_epoch) continue;
        larger.places[place_of(&larger, set->places[i].epoch, set->places[i].id)] = set->places[i];
        larger.count++;
    }
    free(set->places);
    *set = larger;
    return true;
}

bool fby_bad_set_add(fby_bad_set *set, uint64_t epoch, uint64_t id, uint64_t least_epoch)
{
    if (set->count >= set->room / 2 && !set_grow(set, least_epoch))
        return true; /* without memory it may count one twice */
    uint32_t place = place_of(set, epoch, id);
    if (set->places[place].used) return false;
    set->places[place].used = true;
    set->places[place].epoch = epoch;
    set->places[place].id = id;
    set->count++;
    return true;
}

void fby_bad_set_free(fby_bad_set *set)
{
    free(set->places);
    *set = (fby_bad_set){0};
}
