/* Threads of the server at a gate. What they wait for is a count of tokens, accessed by relaxed operations
 * alone: the gate has to make up for that. */
#include "ringbuf/wait.h"
#include "tests/explorer/scenarios.h"

#include "ringbuf/sleep.h"

static fby_gate gate;
static uint32_t tokens;
static int taken;

static void gate_set_up(void)
{
    gate = (fby_gate){.epoch = UINT32_MAX};
    tokens = 0;
    taken = 0;
}

static bool token_take(void)
{
    uint32_t seen = fby_load_relaxed_u32(&tokens);
    while (seen > 0) {
        if (fby_compare_exchange_relaxed_u32(&tokens, &seen, seen - 1)) {
            taken++;
            return true;
        }
    }
    return false;
}

/* False when the deadline passed without a token. */
static bool token_wait(uint64_t deadline_ns)
{
    for (;;) {
        if (token_take()) return true;
        uint32_t ticket = fby_gate_prepare(&gate);
        if (token_take()) {
            fby_gate_cancel(&gate);
            return true;
        }
        if (!fby_gate_wait(&gate, ticket, deadline_ns)) return false;
    }
}

static void token_give(uint32_t count, uint32_t wakes)
{
    fby_fetch_add_relaxed_u32(&tokens, count);
    fby_gate_signal(&gate, wakes);
}

static void wait_for_one(void)
{
    token_wait(UINT64_MAX);
}

static void give_one(void)
{
    token_give(1, 1);
}

static void give_two_at_once(void)
{
    token_give(2, UINT32_MAX);
}

/* Takes a token and passes it on, or gives up. In either case the other waiter must get it. */
static void borrow_before_deadline(void)
{
    if (!token_wait(1000)) return;
    taken--;
    token_give(1, 1);
}

static void all_taken(void)
{
    if (taken != 2) explore_violation("%d tokens of 2 were taken", taken);
    if (gate.sleepers != 0) explore_violation("%u sleepers are left", gate.sleepers);
}

static void one_taken(void)
{
    if (taken != 1) explore_violation("%d tokens of 1 were taken", taken);
    if (gate.sleepers != 0) explore_violation("%u sleepers are left", gate.sleepers);
}

const explore_scenario gate_scenarios[GATE_SCENARIOS] = {
    {"gate: two waiters, two signals",
     4,
     gate_set_up,
     {wait_for_one, wait_for_one, give_one, give_one},
     all_taken,
     .bounds = {2, 1, 0, 0}},
    {"gate: two waiters, one signal for all",
     3,
     gate_set_up,
     {wait_for_one, wait_for_one, give_two_at_once},
     all_taken,
     .bounds = {2, 2, 0, 0}},
    {"gate: a deadline passes",
     3,
     gate_set_up,
     {borrow_before_deadline, wait_for_one, give_one},
     one_taken,
     .bounds = {2, 1, 0, 1}},
};
