#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ringbuf/atomic.h"
#include "ringbuf/mpmc.h"
#include "tests/ringbuf/random.h"
#include "tests/support/test.h"

#define MILLISECOND UINT64_C(1000000)
#define SECOND      (1000 * MILLISECOND)

static void *item_of(uint64_t number)
{
    return (void *)(uintptr_t)number;
}

Test(mpmc, capacity_is_rounded_up_and_checked)
{
    const uint32_t asked[] = {1, 2, 3, 8, 9}, given[] = {2, 2, 4, 8, 16};
    for (int i = 0; i < 5; i++) {
        fby_mpmc *ring;
        cr_assert_eq(fby_mpmc_create(&ring, asked[i], NULL), 0);
        uint32_t places = 0;
        while (fby_mpmc_put(ring, item_of(places + 1))) places++;
        cr_assert_eq(places, given[i]);
        cr_assert_eq(fby_mpmc_size(ring), given[i]);
        fby_mpmc_destroy(&ring);
        cr_assert_null(ring);
    }
    fby_mpmc *ring;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_mpmc_create(&ring, 0, &error), FBY_EINVAL);
    cr_assert_null(ring);
    cr_assert_eq(fby_mpmc_create(&ring, UINT32_MAX, &error), FBY_EINVAL);
    fby_mpmc_destroy(&ring);
}

Test(mpmc, random_schedules_are_first_in_first_out)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t random = seed, put = 0, taken = 0;
        fby_mpmc *ring;
        cr_assert_eq(fby_mpmc_create(&ring, 8, NULL), 0);
        for (int step = 0; step < 5000; step++) {
            void *item;
            if (random_below(&random, 2)) {
                bool done = fby_mpmc_put(ring, item_of(put + 1));
                cr_assert_eq(done, put - taken < 8, "seed %llu step %d", (unsigned long long)seed, step);
                put += done;
            } else {
                bool done = fby_mpmc_take(ring, &item);
                cr_assert_eq(done, put > taken, "seed %llu step %d", (unsigned long long)seed, step);
                if (done)
                    cr_assert_eq(item, item_of(++taken), "seed %llu step %d", (unsigned long long)seed, step);
            }
            cr_assert_eq(fby_mpmc_size(ring), put - taken);
        }
        fby_mpmc_destroy(&ring);
    }
}

Test(mpmc, deadline_is_kept)
{
    fby_mpmc *ring;
    cr_assert_eq(fby_mpmc_create(&ring, 4, NULL), 0);
    void *item;
    for (int spins = 0; spins < 2; spins++) {
        uint64_t start = fby_now_ns();
        cr_assert_not(fby_mpmc_take_wait(ring, &item, spins ? UINT64_MAX : 0, start + 20 * MILLISECOND));
        cr_assert_geq(fby_now_ns() - start, 20 * MILLISECOND);
    }
    fby_mpmc_put(ring, item_of(5));
    cr_assert(fby_mpmc_take_wait(ring, &item, 0, 0));
    cr_assert_eq(item, item_of(5));
    fby_mpmc_destroy(&ring);
}

typedef struct waiter {
    fby_mpmc *ring;
    uint64_t spin_ns;
    uint32_t began;
    bool took;
} waiter;

static void *wait_for_item(void *context)
{
    waiter *me = context;
    void *item;
    fby_store_release_u32(&me->began, 1);
    me->took = fby_mpmc_take_wait(me->ring, &item, me->spin_ns, fby_now_ns() + 30 * SECOND);
    return NULL;
}

Test(mpmc, wake_all_ends_every_wait)
{
    fby_mpmc *ring;
    cr_assert_eq(fby_mpmc_create(&ring, 4, NULL), 0);
    waiter waiters[4] = {0};
    pthread_t threads[4];
    uint64_t start = fby_now_ns();
    for (int i = 0; i < 4; i++) {
        /* Half of them are still spinning when the call comes. */
        waiters[i] = (waiter){.ring = ring, .spin_ns = i % 2 ? 200 * MILLISECOND : 0};
        cr_assert_eq(pthread_create(&threads[i], NULL, wait_for_item, &waiters[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        while (fby_load_acquire_u32(&waiters[i].began) == 0) usleep(100);
    usleep(20000);
    fby_mpmc_wake_all(ring);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_not(waiters[i].took);
    }
    cr_assert_lt(fby_now_ns() - start, 20 * SECOND);
    fby_mpmc_destroy(&ring);
}

enum { PRODUCERS = 3, CONSUMERS = 3, ITEMS = 30000 };

typedef struct stress {
    fby_mpmc *ring;
    uint64_t spin_ns;
    uint32_t seen[PRODUCERS][ITEMS]; /* how often */
    uint32_t disorder, lost_wakes;
} stress;

typedef struct stress_role {
    stress *all;
    uint32_t number;
} stress_role;

static void *produce(void *context)
{
    const stress_role *me = context;
    uint64_t random = me->number + 1;
    for (uint32_t i = 0; i < ITEMS; i++) {
        void *item = item_of((uint64_t)(me->number + 1) << 32 | i);
        while (!fby_mpmc_put(me->all->ring, item)) sched_yield();
        if (random_below(&random, 500) == 0) usleep(100);
    }
    return NULL;
}

static void *consume(void *context)
{
    const stress_role *me = context;
    stress *all = me->all;
    int64_t last[PRODUCERS];
    for (int i = 0; i < PRODUCERS; i++) last[i] = -1;

    for (;;) {
        void *item;
        if (!fby_mpmc_take_wait(all->ring, &item, all->spin_ns, fby_now_ns() + 30 * SECOND)) {
            fby_fetch_add_relaxed_u32(&all->lost_wakes, 1);
            return NULL;
        }
        uint64_t number = (uintptr_t)item;
        if (number == 0) return NULL;

        uint32_t producer = (uint32_t)(number >> 32) - 1, sequence = (uint32_t)number;
        if ((int64_t)sequence <= last[producer]) fby_fetch_add_relaxed_u32(&all->disorder, 1);
        last[producer] = sequence;
        fby_fetch_add_relaxed_u32(&all->seen[producer][sequence], 1);
    }
}

static void run_stress(uint32_t capacity, uint64_t spin_ns)
{
    static stress all;
    all = (stress){.spin_ns = spin_ns};
    cr_assert_eq(fby_mpmc_create(&all.ring, capacity, NULL), 0);
    pthread_t producers[PRODUCERS], consumers[CONSUMERS];
    stress_role roles[PRODUCERS + CONSUMERS];
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        roles[i] = (stress_role){&all, i};
        cr_assert_eq(pthread_create(&consumers[i], NULL, consume, &roles[i]), 0);
    }
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        roles[CONSUMERS + i] = (stress_role){&all, i};
        cr_assert_eq(pthread_create(&producers[i], NULL, produce, &roles[CONSUMERS + i]), 0);
    }
    for (int i = 0; i < PRODUCERS; i++) pthread_join(producers[i], NULL);
    for (int i = 0; i < CONSUMERS; i++)
        while (!fby_mpmc_put(all.ring, NULL)) sched_yield();
    for (int i = 0; i < CONSUMERS; i++) pthread_join(consumers[i], NULL);

    cr_assert_eq(all.lost_wakes, 0);
    cr_assert_eq(all.disorder, 0, "items of one producer overtook each other");
    for (int producer = 0; producer < PRODUCERS; producer++)
        for (int i = 0; i < ITEMS; i++)
            cr_assert_eq(all.seen[producer][i], 1, "item %d of producer %d was taken %u times", i, producer,
                         all.seen[producer][i]);
    cr_assert_eq(fby_mpmc_size(all.ring), 0);
    fby_mpmc_destroy(&all.ring);
}

Test(mpmc, stress_with_sleep)
{
    run_stress(64, 0);
}

Test(mpmc, stress_with_spin_in_a_tiny_ring)
{
    run_stress(2, 5000);
}
