/* Which pool a draw takes from: need-pools' rule. */
#ifndef FBY_DATAPLANE_SAMPLER_CHOICE_H
#define FBY_DATAPLANE_SAMPLER_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/sampler/pools.h"

/* How pools are looked through: with the CPU's instruction that counts bits, or without. All find the same.
 */
typedef enum fby_choice_tier { FBY_CHOICE_PLAIN, FBY_CHOICE_POPCNT } fby_choice_tier;
fby_choice_tier fby_choice_best_tier(void);

typedef struct fby_chooser {
    fby_pools *pools;
    uint32_t *heap; /* pools that would serve the same tasks, best first */
    uint32_t heap_count;
    uint64_t allowed[FBY_SAMPLER_STRATA]; /* a choice's own */
    fby_choice_tier tier;
    uint64_t looks; /* pools looked at, ever */
} fby_chooser;

int fby_chooser_create(fby_chooser *chooser, fby_pools *pools, fby_choice_tier tier); /* 0 or FBY_ENOMEM */
void fby_chooser_destroy(fby_chooser *chooser);

/* Among the pools whose ids `hungriest`, one of `ready`, needs and may take: the one that most of `ready`
 * share; of those, the one that costs tasks that aren't ready least; then the largest; then the one of the
 * smallest mask, and of the smallest members. Returns FBY_NONE where there is none. `served`: whom its ids go
 * to. */
uint32_t fby_choice_first(fby_chooser *chooser, uint32_t hungriest, uint64_t ready, uint32_t block,
                          uint64_t *served);

/* Then, for the rest of the block, one after the other: pools that would serve exactly `served` of `ready`,
 * those with the fewest tasks besides first, then the largest, then as above. _prepare() once, and again
 * whenever shares may have changed. */
void fby_choice_prepare(fby_chooser *chooser, uint64_t served, uint64_t ready, uint32_t block);
uint32_t fby_choice_next(fby_chooser *chooser);

#endif
