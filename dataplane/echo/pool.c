#include "dataplane/echo/pool.h"

#include <stdlib.h>

bool fby_echo_units_reserve(fby_echo_units *units, uint32_t more)
{
    if (units->room - units->count >= more) return true;
    uint32_t room = units->room ? units->room : 64;
    while (room - units->count < more) room *= 2;
    fby_echo_unit *larger = realloc(units->list, room * sizeof *larger);
    if (!larger) return false;
    units->list = larger;
    units->room = room;
    return true;
}

void fby_echo_units_add(fby_echo_units *units, fby_echo_unit unit)
{
    units->list[units->count++] = unit;
}

fby_echo_unit fby_echo_units_remove(fby_echo_units *units, uint32_t at)
{
    fby_echo_unit unit = units->list[at];
    units->list[at] = units->list[--units->count];
    return unit;
}

void fby_echo_item_leave(fby_echo_item *item)
{
    if (--item->units) return;
    fby_kept_item_release(item->kept);
    free(item);
}

fby_echo_pool *fby_echo_pools_find(fby_echo_pools *pools, uint64_t mask)
{
    for (uint32_t i = 0; i < pools->count; i++)
        if (pools->list[i].mask == mask) return &pools->list[i];
    if (pools->count == pools->room) {
        uint32_t room = pools->room ? pools->room * 2 : 16;
        fby_echo_pool *larger = realloc(pools->list, room * sizeof *larger);
        if (!larger) return NULL;
        pools->list = larger;
        pools->room = room;
    }
    fby_echo_pool *pool = &pools->list[pools->count++];
    *pool = (fby_echo_pool){.mask = mask};
    return pool;
}

void fby_echo_pools_tidy(fby_echo_pools *pools)
{
    for (uint32_t i = 0; i < pools->count;) {
        if (pools->list[i].units.count) {
            i++;
            continue;
        }
        free(pools->list[i].units.list);
        pools->list[i] = pools->list[--pools->count];
    }
}

void fby_echo_pools_leave(fby_echo_pools *pools, uint32_t seat)
{
    uint64_t bit = UINT64_C(1) << seat;
    for (uint32_t i = 0; i < pools->count; i++) {
        fby_echo_pool *pool = &pools->list[i];
        if (!(pool->mask & bit)) continue;
        uint64_t rest = pool->mask & ~bit;
        for (uint32_t k = 0; k < pool->units.count; k++) pool->units.list[k].item->left[seat] = 0;
        uint32_t other = 0;
        while (other < pools->count && (pools->list[other].mask != rest || other == i)) other++;
        fby_echo_units *to = other < pools->count ? &pools->list[other].units : NULL;
        if (rest && !to) {
            pool->mask = rest;
            continue;
        }
        /* Without memory to join them, what is left is let go of: its seats ask for less. */
        bool joined = rest && fby_echo_units_reserve(to, pool->units.count);
        while (pool->units.count) {
            fby_echo_unit unit = fby_echo_units_remove(&pool->units, pool->units.count - 1);
            if (joined)
                fby_echo_units_add(to, unit);
            else
                fby_echo_item_leave(unit.item);
        }
    }
    fby_echo_pools_tidy(pools);
}

void fby_echo_pools_free(fby_echo_pools *pools)
{
    for (uint32_t i = 0; i < pools->count; i++) {
        fby_echo_units *units = &pools->list[i].units;
        while (units->count) fby_echo_item_leave(fby_echo_units_remove(units, units->count - 1).item);
        free(units->list);
    }
    free(pools->list);
    *pools = (fby_echo_pools){0};
}
