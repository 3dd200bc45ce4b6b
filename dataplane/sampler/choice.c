#include "dataplane/sampler/choice.h"

#include <forebay/error.h>
#include <stdlib.h>

/* The loops that look through pools are written once and compiled twice: counting bits is most of their work.
 */
#define ALWAYS_INLINE __attribute__((always_inline)) static inline
#if defined(__x86_64__)
#define WITH_POPCNT __attribute__((target("popcnt")))
#else
#define WITH_POPCNT
#endif

/* Up to so many pools, the choice is the best of all. With more, it is the best of at least so many, those
 * that the most tasks need: by measurement as many tasks share its ids (64 tasks at rates from 0.1 to 1,
 * 15,000 pools: 20.0 of either), and it costs a bounded amount of work. */
enum { LOOKS = 4096 };

enum {
    RUN = 16,
    FEW_STRATA = 32
}; /* pools passed over at once; strata whose shares are looked at for every choice */

fby_choice_tier fby_choice_best_tier(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("popcnt")) return FBY_CHOICE_POPCNT;
#endif
    return FBY_CHOICE_PLAIN;
}

int fby_chooser_create(fby_chooser *chooser, fby_pools *pools, fby_choice_tier tier)
{
    *chooser = (fby_chooser){.pools = pools, .tier = tier};
    chooser->heap = malloc(LOOKS * sizeof *chooser->heap);
    return chooser->heap ? FBY_OK : FBY_ENOMEM;
}

void fby_chooser_destroy(fby_chooser *chooser)
{
    free(chooser->heap);
    chooser->heap = NULL;
}

/* The part of the order that both choices end with: larger first, then the smaller key. */
static bool larger(const fby_pools *pools, uint32_t a, uint32_t b)
{
    uint32_t count_a = pools->pool[pools->record[a]].count, count_b = pools->pool[pools->record[b]].count;
    if (count_a != count_b) return count_a > count_b;
    if (pools->mask[a] != pools->mask[b]) return pools->mask[a] < pools->mask[b];
    return pools->strata.all[pools->stratum[a]].members < pools->strata.all[pools->stratum[b]].members;
}

/* How good a pool is: more tasks that it serves first, then fewer that need its ids and aren't served. */
ALWAYS_INLINE int score_of(uint64_t mask, uint64_t serves)
{
    return __builtin_popcountll(serves) * 2 * FBY_LEVELS - __builtin_popcountll(mask & ~serves);
}

/* For each stratum, who may be served from it; where strata are many, who may at most: that is found out for
 * those that matter. */
static void allowed_set(fby_chooser *chooser, uint64_t ready, uint32_t block)
{
    fby_strata *strata = &chooser->pools->strata;
    for (uint32_t i = 0; i < strata->count; i++) {
        chooser->allowed[i] =
            strata->count <= FEW_STRATA ? fby_strata_allowed(strata, i, ready, block) : ready;
    }
}

/* The best score among the pools at `from` … `to` - 1, at least; 0: none serves the hungriest. No branch
 * depends on a mask: most pools are passed over, at about a nanosecond each. */
ALWAYS_INLINE int best_in_run(const fby_chooser *chooser, uint32_t from, uint32_t to, uint32_t hungriest)
{
    const uint64_t *masks = chooser->pools->mask;
    const uint16_t *strata = chooser->pools->stratum;
    uint64_t any = 0;
    for (uint32_t i = from; i < to; i++) any |= masks[i];
    if (!(any >> hungriest & 1)) return 0;

    int best = 0;
    for (uint32_t i = from; i < to; i++) {
        uint64_t mask = masks[i], serves = mask & chooser->allowed[strata[i]];
        int score = score_of(mask, serves) & -(int)(serves >> hungriest & 1);
        best = score > best ? score : best;
    }
    return best;
}

typedef struct best_pool {
    uint32_t place; /* FBY_NONE: none yet */
    int score;
    uint64_t serves;
} best_pool;

ALWAYS_INLINE void look_closely(const fby_chooser *chooser, uint32_t i, uint32_t hungriest, uint64_t ready,
                                uint32_t block, best_pool *best)
{
    fby_pools *pools = chooser->pools;
    uint64_t mask = pools->mask[i];
    uint64_t serves = mask & fby_strata_allowed(&pools->strata, pools->stratum[i], ready, block);
    if (!(serves >> hungriest & 1)) return;
    int score = score_of(mask, serves);
    if (score < best->score || (score == best->score && !larger(pools, i, best->place))) return;
    *best = (best_pool){i, score, serves};
}

ALWAYS_INLINE uint32_t look_for_first(fby_chooser *chooser, uint32_t hungriest, uint64_t ready,
                                      uint32_t block, uint64_t *served)
{
    fby_pools *pools = chooser->pools;
    best_pool best = {.place = FBY_NONE, .score = 0};
    uint32_t looked = 0;
    allowed_set(chooser, ready, block);
    /* A pool serves no more tasks than its level says. */
    for (int level = FBY_LEVELS - 1; level > 0 && level * 2 * FBY_LEVELS >= best.score; level--) {
        uint32_t end = pools->end[level];
        for (uint32_t i = pools->end[level + 1]; i < end; i += RUN) {
            if (best.place != FBY_NONE && looked > LOOKS) goto enough;
            uint32_t to = end - i < RUN ? end : i + RUN;
            looked += to - i;
            int here = best_in_run(chooser, i, to, hungriest);
            if (!here || here < best.score) continue;
            for (uint32_t k = i; k < to; k++) look_closely(chooser, k, hungriest, ready, block, &best);
        }
    }
enough:
    chooser->looks += looked;
    if (best.place == FBY_NONE) return FBY_NONE;
    *served = best.serves;
    return pools->record[best.place];
}

ALWAYS_INLINE bool before(const fby_pools *pools, uint32_t record_a, uint32_t record_b)
{
    uint32_t a = pools->pool[record_a].place, b = pools->pool[record_b].place;
    int bits_a = __builtin_popcountll(pools->mask[a]), bits_b = __builtin_popcountll(pools->mask[b]);
    return bits_a != bits_b ? bits_a < bits_b : larger(pools, a, b);
}

ALWAYS_INLINE void sink(fby_chooser *chooser, uint32_t at)
{
    uint32_t *heap = chooser->heap, record = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= chooser->heap_count) break;
        if (child + 1 < chooser->heap_count && before(chooser->pools, heap[child + 1], heap[child])) child++;
        if (!before(chooser->pools, heap[child], record)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = record;
}

ALWAYS_INLINE void look_for_rest(fby_chooser *chooser, uint64_t served, uint64_t ready, uint32_t block)
{
    fby_pools *pools = chooser->pools;
    uint32_t end = pools->end[__builtin_popcountll(served)], from = end > LOOKS ? end - LOOKS : 0;
    chooser->heap_count = 0;
    for (uint32_t i = from; i < end; i++) {
        uint64_t serves = pools->mask[i] & ready;
        if (served & ~serves) continue;
        serves &= fby_strata_allowed(&pools->strata, pools->stratum[i], ready, block);
        uint32_t record = pools->record[i];
        if (serves == served && pools->pool[record].count) chooser->heap[chooser->heap_count++] = record;
    }
    chooser->looks += end - from;
    for (uint32_t i = chooser->heap_count / 2; i-- > 0;) sink(chooser, i);
}

static uint32_t first_plain(fby_chooser *chooser, uint32_t hungriest, uint64_t ready, uint32_t block,
                            uint64_t *served)
{
    return look_for_first(chooser, hungriest, ready, block, served);
}

WITH_POPCNT static uint32_t first_popcnt(fby_chooser *chooser, uint32_t hungriest, uint64_t ready,
                                         uint32_t block, uint64_t *served)
{
    return look_for_first(chooser, hungriest, ready, block, served);
}

static void rest_plain(fby_chooser *chooser, uint64_t served, uint64_t ready, uint32_t block)
{
    look_for_rest(chooser, served, ready, block);
}

WITH_POPCNT static void rest_popcnt(fby_chooser *chooser, uint64_t served, uint64_t ready, uint32_t block)
{
    look_for_rest(chooser, served, ready, block);
}

uint32_t fby_choice_first(fby_chooser *chooser, uint32_t hungriest, uint64_t ready, uint32_t block,
                          uint64_t *served)
{
    return chooser->tier == FBY_CHOICE_POPCNT ? first_popcnt(chooser, hungriest, ready, block, served)
                                              : first_plain(chooser, hungriest, ready, block, served);
}

void fby_choice_prepare(fby_chooser *chooser, uint64_t served, uint64_t ready, uint32_t block)
{
    if (chooser->tier == FBY_CHOICE_POPCNT)
        rest_popcnt(chooser, served, ready, block);
    else
        rest_plain(chooser, served, ready, block);
}

uint32_t fby_choice_next(fby_chooser *chooser)
{
    if (!chooser->heap_count) return FBY_NONE;
    uint32_t record = chooser->heap[0];
    chooser->heap[0] = chooser->heap[--chooser->heap_count];
    if (chooser->heap_count) sink(chooser, 0);
    return record;
}
