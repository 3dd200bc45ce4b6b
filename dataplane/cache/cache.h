/* A cache: what a stage makes of each sample of a data set, kept first come, never evicted, capped in bytes.
 *
 * Never evicting is on purpose: under a fresh shuffle every epoch an LRU hits far less than it holds, while
 * what stays here hits once an epoch each. A result is a sample's own: a stage that keeps may stand below no
 * random op.
 *
 * Counted: plans hold it while workers may look. find and room may be called from any thread at once, and
 * beside put; grow is one thread's. */
#ifndef FBY_DATAPLANE_CACHE_H
#define FBY_DATAPLANE_CACHE_H

#include <forebay/error.h>

#include "dataplane/cache/kept.h"

typedef struct fby_cache fby_cache;

/* For the ids 0 … count - 1, at most `bytes` of results. FBY_ENOMEM. */
int fby_cache_create(fby_cache **out, uint64_t count, uint64_t bytes, fby_error *error);
/* Bytes that a cache for so many ids takes besides its results. */
uint64_t fby_cache_table_bytes(uint64_t count);
fby_cache *fby_cache_hold(fby_cache *cache);
void fby_cache_release(fby_cache **cache); /* the last one frees it */

/* Counts a hit or a miss. The result is the cache's: valid as long as the cache is held. */
const fby_kept *fby_cache_find(fby_cache *cache, uint64_t id);
/* The same without counting, for who only asks. */
bool fby_cache_has(const fby_cache *cache, uint64_t id);
/* Room for a result of `bytes`; NULL where there is none any more. */
fby_kept *fby_cache_room(fby_cache *cache, uint64_t bytes, uint32_t w, uint32_t h);
/* Keeps it, unless another thread was first. */
void fby_cache_put(fby_cache *cache, uint64_t id, fby_kept *kept);
/* Raises the cap. */
void fby_cache_grow(fby_cache *cache, uint64_t bytes);

typedef struct fby_cache_stats {
    uint64_t limit, bytes, samples; /* kept */
    uint64_t hits, misses;          /* of looks by workers */
} fby_cache_stats;
void fby_cache_get_stats(const fby_cache *cache, fby_cache_stats *out);

#endif
