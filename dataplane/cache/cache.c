#include "dataplane/cache/cache.h"

#include <stdlib.h>

#include "ringbuf/atomic.h"

struct fby_cache {
    uint32_t holders; /* atomic */
    uint64_t count;
    fby_budget budget;
    uint64_t samples, hits, misses; /* atomic */
    fby_kept_place *places;         /* by id */
};

int fby_cache_create(fby_cache **out, uint64_t count, uint64_t bytes, fby_error *error)
{
    *out = NULL;
    fby_cache *cache = calloc(1, sizeof *cache);
    /* calloc: pages of the table that no id comes to are never touched. */
    if (cache) cache->places = calloc(count ? count : 1, sizeof *cache->places);
    if (!cache || !cache->places) {
        free(cache);
        return fby_fail(error, FBY_ENOMEM, "no memory for the table of a cache of %llu samples",
                        (unsigned long long)count);
    }
    cache->holders = 1;
    cache->count = count;
    cache->budget.limit = bytes;
    *out = cache;
    return FBY_OK;
}

uint64_t fby_cache_table_bytes(uint64_t count)
{
    return sizeof(fby_cache) + count * sizeof(fby_kept_place);
}

fby_cache *fby_cache_hold(fby_cache *cache)
{
    __atomic_fetch_add(&cache->holders, 1, __ATOMIC_RELAXED); /* by one who holds it */
    return cache;
}

void fby_cache_release(fby_cache **handle)
{
    fby_cache *cache = *handle;
    *handle = NULL;
    /* The last one sees what all others did to it. */
    if (!cache || __atomic_fetch_sub(&cache->holders, 1, __ATOMIC_ACQ_REL) != 1) return;
    for (uint64_t i = 0; i < cache->count; i++) fby_kept_clear(&cache->places[i]);
    free(cache->places);
    free(cache);
}

const fby_kept *fby_cache_find(fby_cache *cache, uint64_t id)
{
    const fby_kept *kept = fby_kept_at(&cache->places[id]);
    fby_fetch_add_relaxed_u64(kept ? &cache->hits : &cache->misses, 1); /* counts for show */
    return kept;
}

bool fby_cache_has(const fby_cache *cache, uint64_t id)
{
    return fby_kept_at(&cache->places[id]) != NULL;
}

fby_kept *fby_cache_room(fby_cache *cache, uint64_t bytes, uint32_t w, uint32_t h)
{
    return fby_kept_make(&cache->budget, bytes, w, h);
}

void fby_cache_put(fby_cache *cache, uint64_t id, fby_kept *kept)
{
    if (fby_kept_put(&cache->places[id], kept))
        fby_fetch_add_relaxed_u64(&cache->samples, 1); /* a count for show */
}

void fby_cache_grow(fby_cache *cache, uint64_t bytes)
{
    fby_fetch_add_relaxed_u64(&cache->budget.limit, bytes); /* a figure: nothing is ordered by it */
}

void fby_cache_get_stats(const fby_cache *cache, fby_cache_stats *out)
{
    /* Figures for show, each true by itself. */
    *out = (fby_cache_stats){.limit = fby_load_relaxed_u64(&cache->budget.limit),
                             .bytes = fby_load_relaxed_u64(&cache->budget.used),
                             .samples = fby_load_relaxed_u64(&cache->samples),
                             .hits = fby_load_relaxed_u64(&cache->hits),
                             .misses = fby_load_relaxed_u64(&cache->misses)};
}
