/* Kept results and caches. */
#include "dataplane/cache/cache.h"

#include <pthread.h>
#include <string.h>

#include "tests/support/test.h"

enum { IDS = 500, THREADS = 4, ROUNDS = 20, BYTES = 100 };

Test(kept, a_budget_is_taken_and_given_back)
{
    fby_budget budget = {.limit = fby_kept_cost(10) + fby_kept_cost(20)};
    fby_kept *ten = fby_kept_make(&budget, 10, 0, 0), *twenty = fby_kept_make(&budget, 20, 2, 3);
    cr_assert_not_null(ten);
    cr_assert_not_null(twenty);
    cr_assert_eq(budget.used, budget.limit);
    cr_assert_null(fby_kept_make(&budget, 0, 0, 0), "not a byte more");
    for (uint32_t i = 0; i < FBY_KEPT_SLACK; i++) cr_assert_eq(ten->data[10 + i], 0);
    fby_kept_release(ten);
    fby_kept_release(twenty);
    cr_assert_eq(budget.used, 0);
}

Test(kept, the_first_one_stays)
{
    fby_budget budget = {.limit = 1 << 20};
    fby_kept_item *item = fby_kept_item_make(&budget);
    fby_kept *first = fby_kept_make(&budget, 1, 0, 0), *second = fby_kept_make(&budget, 1, 0, 0);
    cr_assert_null(fby_kept_at(&item->place));
    cr_assert(fby_kept_put(&item->place, first));
    cr_assert(!fby_kept_put(&item->place, second));
    cr_assert_eq(fby_kept_at(&item->place), first);
    fby_kept_item *held = fby_kept_item_hold(item);
    fby_kept_item_release(item);
    cr_assert_eq(fby_kept_at(&held->place), first, "as long as somebody holds it");
    fby_kept_item_release(held);
    cr_assert_eq(budget.used, 0);
}

static void *looker(void *argument)
{
    fby_cache *cache = argument;
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t id = 0; id < IDS; id++) {
            const fby_kept *found = fby_cache_find(cache, id);
            if (found) {
                for (uint32_t i = 0; i < BYTES; i++)
                    if (found->data[i] != (uint8_t)(id + i)) return (void *)"torn";
                continue;
            }
            fby_kept *made = fby_cache_room(cache, BYTES, 0, 0);
            if (!made) continue;
            for (uint32_t i = 0; i < BYTES; i++) made->data[i] = (uint8_t)(id + i);
            fby_cache_put(cache, id, made);
        }
    return NULL;
}

Test(cache, many_threads_keep_as_much_as_fits_and_find_it)
{
    fby_cache *cache;
    cr_assert_eq(fby_cache_create(&cache, IDS, (IDS / 2) * fby_kept_cost(BYTES), NULL), FBY_OK);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, looker, cache);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        cr_assert_null(wrong, "%s", (const char *)wrong);
    }
    fby_cache_stats stats;
    fby_cache_get_stats(cache, &stats);
    cr_assert_eq(stats.samples, IDS / 2);
    cr_assert_eq(stats.bytes, stats.limit);
    cr_assert_eq(stats.hits + stats.misses, (uint64_t)THREADS * ROUNDS * IDS);
    uint64_t there = 0;
    for (uint32_t id = 0; id < IDS; id++) there += fby_cache_has(cache, id);
    cr_assert_eq(there, IDS / 2);
    fby_cache_grow(cache, fby_kept_cost(BYTES));
    cr_assert_null(looker(cache));
    fby_cache_get_stats(cache, &stats);
    cr_assert_eq(stats.samples, IDS / 2 + 1, "room for one more");
    fby_cache *held = fby_cache_hold(cache);
    fby_cache_release(&cache);
    cr_assert_eq(fby_cache_find(held, 0) != NULL, fby_cache_has(held, 0));
    fby_cache_release(&held);
}
