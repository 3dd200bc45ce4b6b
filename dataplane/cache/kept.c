#include "dataplane/cache/kept.h"

#include <stdlib.h>
#include <string.h>

#include "ringbuf/atomic.h"

bool fby_budget_take(fby_budget *budget, uint64_t bytes)
{
    uint64_t limit = fby_load_relaxed_u64(&budget->limit); /* a figure: nothing is ordered by it */
    uint64_t used = fby_load_relaxed_u64(&budget->used);   /* the swap decides */
    do {
        if (bytes > limit || used > limit - bytes) return false;
    } while (!fby_compare_exchange_relaxed_u64(&budget->used, &used, used + bytes));
    return true;
}

void fby_budget_give(fby_budget *budget, uint64_t bytes)
{
    fby_fetch_add_relaxed_u64(&budget->used, 0 - bytes); /* a sum: nothing is ordered by it */
}

/* What stands before a result. */
typedef struct kept_head {
    fby_budget *budget;
    uint64_t cost;
    fby_kept kept; /* last: it ends in its data */
} kept_head;

static kept_head *head_of(fby_kept *kept)
{
    return (kept_head *)(void *)((char *)kept - offsetof(kept_head, kept));
}

uint64_t fby_kept_cost(uint64_t bytes)
{
    return sizeof(kept_head) + bytes + FBY_KEPT_SLACK;
}

fby_kept *fby_kept_make(fby_budget *budget, uint64_t bytes, uint32_t w, uint32_t h)
{
    uint64_t cost = fby_kept_cost(bytes);
    if (bytes > SIZE_MAX / 2 || !fby_budget_take(budget, cost)) return NULL;
    kept_head *head = malloc(cost);
    if (!head) {
        fby_budget_give(budget, cost);
        return NULL;
    }
    *head = (kept_head){.budget = budget, .cost = cost};
    head->kept.bytes = bytes;
    head->kept.w = w;
    head->kept.h = h;
    memset(head->kept.data + bytes, 0, FBY_KEPT_SLACK);
    return &head->kept;
}

void fby_kept_release(fby_kept *kept)
{
    if (!kept) return;
    kept_head *head = head_of(kept);
    fby_budget_give(head->budget, head->cost);
    free(head);
}

const fby_kept *fby_kept_at(const fby_kept_place *place)
{
    return __atomic_load_n(&place->kept, __ATOMIC_ACQUIRE); /* pairs with fby_kept_put's swap */
}

bool fby_kept_put(fby_kept_place *place, fby_kept *kept)
{
    fby_kept *expected = NULL;
    /* Release: what it holds is there for who finds it. */
    if (__atomic_compare_exchange_n(&place->kept, &expected, kept, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return true;
    fby_kept_release(kept);
    return false;
}

void fby_kept_clear(fby_kept_place *place)
{
    fby_kept_release(place->kept);
    place->kept = NULL;
}

fby_kept_item *fby_kept_item_make(fby_budget *budget)
{
    fby_kept_item *item = calloc(1, sizeof *item);
    if (!item) return NULL;
    item->holders = 1;
    item->budget = budget;
    return item;
}

fby_kept_item *fby_kept_item_hold(fby_kept_item *item)
{
    if (item) __atomic_fetch_add(&item->holders, 1, __ATOMIC_RELAXED); /* by one who holds it */
    return item;
}

void fby_kept_item_release(fby_kept_item *item)
{
    /* The last one sees what all others did to it. */
    if (!item || __atomic_fetch_sub(&item->holders, 1, __ATOMIC_ACQ_REL) != 1) return;
    fby_kept_clear(&item->place);
    free(item);
}
