/* Producers and consumers at the pointer ring. Items point to memory that their producer wrote right before.
 */
#include "ringbuf/mpmc.h"
#include "tests/explorer/scenarios.h"

#include "ringbuf/sleep.h"

enum { ITEMS = 4 };

static fby_mpmc *ring;
static uint64_t payload[ITEMS];
static int taken[ITEMS];

static void mpmc_set_up(void)
{
    if (ring) fby_mpmc_destroy(&ring);
    fby_mpmc_create(&ring, 2, NULL);
    for (int i = 0; i < ITEMS; i++) {
        payload[i] = 0;
        taken[i] = 0;
    }
}

static void put(int number)
{
    const uint64_t value = 100 + (uint64_t)number;
    fby_data_write(&payload[number], &value, sizeof value);
    while (!fby_mpmc_put(ring, &payload[number])) fby_spin_pause();
}

/* Returns the item's number. */
static int use(void *item)
{
    uint64_t *at = item, value;
    int number = at ? (int)(at - payload) : -1;
    if (number < 0 || number >= ITEMS) {
        explore_violation("an item came that nobody put");
        return 0;
    }
    fby_data_read(&value, at, sizeof value);
    if (value != 100 + (uint64_t)number) explore_violation("item %d is not what its producer wrote", number);
    if (++taken[number] > 1) explore_violation("item %d came twice", number);
    return number;
}

static int take_spinning(void)
{
    void *item;
    while (!fby_mpmc_take(ring, &item)) fby_spin_pause();
    return use(item);
}

static void take_waiting(uint64_t spin_ns)
{
    void *item;
    if (fby_mpmc_take_wait(ring, &item, spin_ns, UINT64_MAX))
        use(item);
    else
        explore_violation("a wait without a deadline ended without an item");
}

static void check_taken(int count)
{
    for (int i = 0; i < count; i++)
        if (taken[i] != 1) explore_violation("item %d was taken %d times", i, taken[i]);
}

static void three_taken(void)
{
    check_taken(3);
}

static void two_taken(void)
{
    check_taken(2);
}

/* --- the ring alone, one place used again
 * ------------------------------------------------------------------- */

static void put_0_and_1(void)
{
    put(0);
    put(1);
}

static void put_2(void)
{
    put(2);
}

static void take_two(void)
{
    int first = take_spinning(), second = take_spinning();
    if (first == 1 && second == 0) explore_violation("an item overtook another of its producer");
}

static void take_one(void)
{
    take_spinning();
}

static void put_0_to_2(void)
{
    put(0);
    put(1);
    put(2);
}

static void take_three(void)
{
    for (int i = 0; i < 3; i++)
        if (take_spinning() != i) explore_violation("an item came out of turn");
}

/* --- sleeping
 * ------------------------------------------------------------------------------------------------ */

static void put_0(void)
{
    put(0);
}

static void put_1(void)
{
    put(1);
}

static void wait_for_item(void)
{
    take_waiting(0);
}

static void spin_for_item(void)
{
    take_waiting(15);
}

static void wait_before_deadline(void)
{
    void *item;
    if (fby_mpmc_take_wait(ring, &item, 0, 1000)) use(item);
}

static void one_taken_at_least(void)
{
    if (taken[0] + taken[1] < 1) explore_violation("no item was taken");
}

/* --- interrupting
 * ---------------------------------------------------------------------------------------------- */

static void wait_to_be_interrupted(void)
{
    void *item;
    if (fby_mpmc_take_wait(ring, &item, 0, UINT64_MAX)) explore_violation("an item came that nobody put");
}

static void interrupt(void)
{
    /* "In progress" begins with the wait's first step. */
    while (explore_steps_of(0) == 0) fby_spin_pause();
    fby_mpmc_wake_all(ring);
}

const explore_scenario mpmc_scenarios[MPMC_SCENARIOS] = {
    {"mpmc: one to one, a place is used again",
     2,
     mpmc_set_up,
     {put_0_to_2, take_three},
     three_taken,
     .bounds = {3, 2, 0, 0}},
    {"mpmc: two to two",
     4,
     mpmc_set_up,
     {put_0_and_1, put_2, take_two, take_one},
     three_taken,
     .bounds = {1, 1, 0, 0}},
    {"mpmc: two sleepers, two producers",
     4,
     mpmc_set_up,
     {wait_for_item, wait_for_item, put_0, put_1},
     two_taken,
     .bounds = {1, 1, 0, 0}},
    {"mpmc: a spinner and a sleeper",
     3,
     mpmc_set_up,
     {spin_for_item, wait_for_item, put_0_and_1},
     two_taken,
     .bounds = {1, 1, 0, 0}},
    {"mpmc: a deadline passes",
     3,
     mpmc_set_up,
     {wait_before_deadline, wait_for_item, put_0_and_1},
     one_taken_at_least,
     .bounds = {1, 1, 0, 1}},
    {"mpmc: interrupted", 2, mpmc_set_up, {wait_to_be_interrupted, interrupt}, NULL, .bounds = {3, 3, 0, 0}},
};
