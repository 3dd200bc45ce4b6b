#include "ringbuf/mpmc.h"

#include <stdlib.h>

#include "ringbuf/atomic.h"

/* Cell i holds the turn of its next use: `position` when it waits for a put at that position, position + 1
 * when it waits for the take, position + capacity when the next round's put may come.
 *
 *   M1  put's turn store   ->  take's turn load   the item, and all that happened before put, reach the taker
 *   M2  take's turn store  ->  put's turn load    the taker has read the cell before it is written again
 *
 * The positions only hand out cells: nothing is published by them. */

typedef struct cell {
    uint64_t turn;
    void *item;
} cell;

struct fby_mpmc {
    _Alignas(FBY_CACHE_PAIR) uint64_t put_position;
    _Alignas(FBY_CACHE_PAIR) uint64_t take_position;
    _Alignas(FBY_CACHE_PAIR) uint32_t interruptions; /* bumped by wake_all */
    fby_gate gate;
    _Alignas(FBY_CACHE_PAIR) uint64_t mask;
    cell cells[];
};

int fby_mpmc_create(fby_mpmc **out, uint32_t capacity, fby_error *error)
{
    *out = NULL;
    if (capacity == 0 || capacity > UINT32_C(1) << 31)
        return fby_fail(error, FBY_EINVAL, "a ring of %u places was asked for; 1 to 2147483648 are possible",
                        capacity);

    uint64_t places = 2; /* with one place, position + 1 would mean both "filled" and "free again" */
    while (places < capacity) places *= 2;
    uint64_t bytes = sizeof(fby_mpmc) + places * sizeof(cell);
    bytes = (bytes + FBY_CACHE_PAIR - 1) / FBY_CACHE_PAIR * FBY_CACHE_PAIR;

    fby_mpmc *ring = aligned_alloc(FBY_CACHE_PAIR, bytes);
    if (!ring)
        return fby_fail(error, FBY_ENOMEM, "no memory for a ring of %llu places (%llu bytes)",
                        (unsigned long long)places, (unsigned long long)bytes);

    memset(ring, 0, sizeof *ring);
    ring->mask = places - 1;
    for (uint64_t i = 0; i < places; i++) {
        ring->cells[i].turn = i;
        ring->cells[i].item = NULL;
    }
    *out = ring;
    return 0;
}

void fby_mpmc_destroy(fby_mpmc **ring)
{
    free(*ring);
    *ring = NULL;
}

bool fby_mpmc_put(fby_mpmc *ring, void *item)
{
    /* Relaxed: a stale position only costs another round. */
    uint64_t position = fby_load_relaxed_u64(&ring->put_position);
    cell *at;
    for (;;) {
        at = &ring->cells[position & ring->mask];
        int64_t lead = (int64_t)(fby_load_acquire_u64(&at->turn) - position); // M2'
        if (lead < 0) return false;

        if (lead > 0) {
            position = fby_load_relaxed_u64(&ring->put_position);
            continue;
        }
        /* Relaxed: claims the cell, publishes nothing. */
        if (fby_compare_exchange_relaxed_u64(&ring->put_position, &position, position + 1)) break;
    }

    fby_data_write(&at->item, &item, sizeof item);
    fby_store_release_u64(&at->turn, position + 1); // M1
    fby_gate_signal(&ring->gate, 1);
    return true;
}

bool fby_mpmc_take(fby_mpmc *ring, void **item)
{
    /* Relaxed: as in put. */
    uint64_t position = fby_load_relaxed_u64(&ring->take_position);
    cell *at;
    for (;;) {
        at = &ring->cells[position & ring->mask];
        int64_t lead = (int64_t)(fby_load_acquire_u64(&at->turn) - (position + 1)); // M1'
        if (lead < 0) return false;

        if (lead > 0) {
            position = fby_load_relaxed_u64(&ring->take_position);
            continue;
        }
        /* Relaxed: claims the cell, publishes nothing. */
        if (fby_compare_exchange_relaxed_u64(&ring->take_position, &position, position + 1)) break;
    }

    fby_data_read(item, &at->item, sizeof *item);
    fby_store_release_u64(&at->turn, position + ring->mask + 1); // M2
    return true;
}

static bool take_spinning(fby_mpmc *ring, void **item, uint64_t until_ns)
{
    do {
        if (fby_mpmc_take(ring, item)) return true;
        fby_spin_pause();
    } while (fby_now_ns() < until_ns);
    return false;
}

/* A put that is overtaken by the next one makes that one's signal fall flat: the thread it woke finds the
 * first cell unfilled and sleeps again. The late put then signals once for two items. So whoever was woken
 * and took an item hands the signal on while there are more. */
static void pass_on_signal(fby_mpmc *ring)
{
    /* The fence of the last prepare (G') came after the wake, so a put whose signal fell flat is counted. */
    if (fby_mpmc_size(ring) > 0) fby_gate_signal(&ring->gate, 1);
}

bool fby_mpmc_take_wait(fby_mpmc *ring, void **item, uint64_t spin_ns, uint64_t deadline_ns)
{
    /* Relaxed, here and below: the gate's fence orders it against wake_all's bump. */
    uint32_t interruptions = fby_load_relaxed_u32(&ring->interruptions);
    if (fby_mpmc_take(ring, item)) return true;

    if (spin_ns > 0) {
        uint64_t now = fby_now_ns();
        uint64_t until = now + spin_ns < now ? UINT64_MAX : now + spin_ns;
        if (take_spinning(ring, item, until < deadline_ns ? until : deadline_ns)) return true;
    }

    bool slept = false;
    for (;;) {
        uint32_t ticket = fby_gate_prepare(&ring->gate);
        if (fby_mpmc_take(ring, item)) {
            fby_gate_cancel(&ring->gate);
            if (slept) pass_on_signal(ring);
            return true;
        }
        if (fby_load_relaxed_u32(&ring->interruptions) != interruptions) {
            fby_gate_cancel(&ring->gate);
            return false;
        }
        if (!fby_gate_wait(&ring->gate, ticket, deadline_ns)) return fby_mpmc_take(ring, item);
        slept = true;
    }
}

void fby_mpmc_wake_all(fby_mpmc *ring)
{
    fby_fetch_add_relaxed_u32(&ring->interruptions, 1);
    fby_gate_signal(&ring->gate, UINT32_MAX);
}

uint32_t fby_mpmc_size(const fby_mpmc *ring)
{
    /* Relaxed: a snapshot. Takes first, so that the difference is never negative by this thread's order; it
     * may still be, or exceed the ring, by the other threads'. */
    uint64_t takes = fby_load_relaxed_u64(&ring->take_position);
    uint64_t puts = fby_load_relaxed_u64(&ring->put_position);
    if ((int64_t)(puts - takes) < 0) return 0;
    return puts - takes > ring->mask + 1 ? (uint32_t)(ring->mask + 1) : (uint32_t)(puts - takes);
}
