#include <pthread.h>
#include <unistd.h>

#include "ringbuf/atomic.h"
#include "ringbuf/wait.h"
#include "tests/support/test.h"

#define MILLISECOND UINT64_C(1000000)
#define SECOND      (1000 * MILLISECOND)

static fby_gate *gate_create(uint32_t epoch)
{
    /* Not on the stack: AddressSanitizer's fake frames keep no alignment beyond 64. */
    static fby_gate gate;
    gate = (fby_gate){.epoch = epoch};
    return &gate;
}

Test(gate, deadline_is_kept)
{
    fby_gate *gate = gate_create(0);
    uint64_t start = fby_now_ns();
    uint32_t ticket = fby_gate_prepare(gate);
    cr_assert_not(fby_gate_wait(gate, ticket, start + 20 * MILLISECOND));
    cr_assert_geq(fby_now_ns() - start, 20 * MILLISECOND);
    cr_assert_eq(gate->sleepers, 0);
}

Test(gate, signal_after_prepare_counts)
{
    fby_gate *gate = gate_create(0);
    uint32_t ticket = fby_gate_prepare(gate);
    fby_gate_signal(gate, 1);
    cr_assert(fby_gate_wait(gate, ticket, 0), "the signal came before the wait, but after prepare");
    cr_assert_eq(gate->sleepers, 0);
}

Test(gate, signal_before_prepare_does_not)
{
    fby_gate *gate = gate_create(0);
    fby_gate_signal(gate, 1);
    uint32_t ticket = fby_gate_prepare(gate);
    cr_assert_not(fby_gate_wait(gate, ticket, 0));
}

Test(gate, signal_to_nobody_changes_nothing)
{
    fby_gate *gate = gate_create(0);
    uint32_t ticket = fby_gate_prepare(gate);
    fby_gate_cancel(gate);
    fby_gate_signal(gate, 1);
    cr_assert_eq(gate->epoch, ticket);
    cr_assert_eq(gate->sleepers, 0);
}

Test(gate, epoch_wraps_around)
{
    fby_gate *gate = gate_create(UINT32_MAX);
    uint32_t ticket = fby_gate_prepare(gate);
    fby_gate_signal(gate, 1);
    cr_assert_eq(gate->epoch, 0);
    cr_assert(fby_gate_wait(gate, ticket, 0));
}

enum { TAKERS = 4, GIVERS = 3, TOKENS = 20000 };

/* Givers add tokens one by one and signal one thread each; takers sleep for them. A missed wake shows as a
 * deadline. */
typedef struct purse {
    fby_gate gate;
    _Alignas(FBY_CACHE_PAIR) uint32_t tokens;
    uint32_t taken, missed;
} purse;

static bool token_take(purse *it)
{
    uint32_t tokens = fby_load_relaxed_u32(&it->tokens);
    while (tokens > 0)
        if (fby_compare_exchange_relaxed_u32(&it->tokens, &tokens, tokens - 1)) return true;
    return false;
}

static void *give(void *context)
{
    purse *it = context;
    for (int i = 0; i < TOKENS; i++) {
        fby_fetch_add_relaxed_u32(&it->tokens, 1);
        fby_gate_signal(&it->gate, 1);
        if (i % 97 == 0) usleep(50);
    }
    return NULL;
}

static void *take(void *context)
{
    purse *it = context;
    while (fby_load_relaxed_u32(&it->taken) < GIVERS * TOKENS) {
        if (token_take(it)) {
            if (fby_fetch_add_relaxed_u32(&it->taken, 1) + 1 == GIVERS * TOKENS)
                fby_gate_signal(&it->gate, UINT32_MAX);
            continue;
        }
        uint32_t ticket = fby_gate_prepare(&it->gate);
        if (fby_load_relaxed_u32(&it->tokens) > 0 || fby_load_relaxed_u32(&it->taken) == GIVERS * TOKENS) {
            fby_gate_cancel(&it->gate);
            continue;
        }
        if (!fby_gate_wait(&it->gate, ticket, fby_now_ns() + 30 * SECOND)) {
            fby_fetch_add_relaxed_u32(&it->missed, 1);
            break;
        }
    }
    return NULL;
}

Test(gate, no_wake_is_missed)
{
    static purse it;
    it = (purse){0};
    pthread_t threads[TAKERS + GIVERS];
    for (int i = 0; i < TAKERS + GIVERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, i < TAKERS ? take : give, &it), 0);
    for (int i = 0; i < TAKERS + GIVERS; i++) pthread_join(threads[i], NULL);
    cr_assert_eq(it.missed, 0);
    cr_assert_eq(it.taken, GIVERS * TOKENS);
    cr_assert_eq(it.gate.sleepers, 0);
}
