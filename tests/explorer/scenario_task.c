/* A server and its client over one task's regions: role 0 delivers, role 1 consumes and returns. */
#include <string.h>

#include "ringbuf/spsc.h"
#include "ringbuf/wait.h"
#include "tests/explorer/scenarios.h"

#include "ringbuf/sleep.h"

enum { SERVER, CLIENT, BLOCKS = 2, RING = 2, RETURNS = 4, DELIVERIES = 3, EVENT = 0 };

static struct task {
    _Alignas(FBY_PAGE) uint8_t down[FBY_PAGE + RING * sizeof(fby_ring_entry)];
    _Alignas(FBY_PAGE) uint8_t up[FBY_PAGE + RETURNS * sizeof(uint64_t)];
    fby_delivery_writer delivery_writer;
    fby_delivery_reader delivery_reader;
    fby_returns_writer returns_writer;
    fby_returns_reader returns_reader;
    uint64_t payload[BLOCKS];
    uint32_t generation[BLOCKS];
    bool outstanding[BLOCKS];
    int free_blocks[BLOCKS], free_count; /* the server's */
    uint64_t consumed;                   /* the client's */
} task;

static fby_down_words *down_words(void)
{
    return (fby_down_words *)task.down;
}

static fby_up_words *up_words(void)
{
    return (fby_up_words *)task.up;
}

static void task_set_up(void)
{
    memset(&task, 0, sizeof task);
    /* Counters wrap in the middle of every scenario. */
    const uint32_t begin = UINT32_MAX;
    fby_delivery_writer_init(&task.delivery_writer, task.down, RING);
    fby_returns_reader_init(&task.returns_reader, task.up, RETURNS);
    fby_delivery_reader_init(&task.delivery_reader, task.down, sizeof task.down, task.up, NULL);
    fby_returns_writer_init(&task.returns_writer, task.up, sizeof task.up, RETURNS, NULL);
    task.delivery_writer.tail = task.delivery_reader.head = task.delivery_reader.tail = begin;
    task.returns_writer.tail = task.returns_reader.head = begin;
    down_words()->tail = up_words()->return_tail = begin;
    for (int i = 0; i < BLOCKS; i++) task.free_blocks[task.free_count++] = i;
}

/* --- what a server does --------------------------------------------------------------------------------- */

static uint64_t payload_of(uint64_t sequence)
{
    return 100 + sequence;
}

static void deliver(uint64_t sequence)
{
    int block = task.free_blocks[--task.free_count];
    task.outstanding[block] = true;
    task.generation[block]++;
    uint64_t payload = payload_of(sequence);
    fby_data_write(&task.payload[block], &payload, sizeof payload);
    const fby_descriptor descriptor = {
        .block = (uint32_t)block, .generation = task.generation[block], .batch = (uint32_t)sequence};
    fby_delivery_put(&task.delivery_writer, &descriptor);
    fby_delivery_publish(&task.delivery_writer);
}

static int collect(void)
{
    uint64_t entries[RETURNS];
    int count = fby_returns_take(&task.returns_reader, entries, RETURNS);
    if (count < 0) explore_violation("returns_take says %d", count);
    for (int i = 0; i < count; i++) {
        uint32_t block = (uint32_t)entries[i], generation = (uint32_t)(entries[i] >> 32);
        if (block >= BLOCKS || !task.outstanding[block] || task.generation[block] != generation) {
            explore_violation("block %u of generation %u came back, which is not out", block, generation);
            return 0;
        }
        task.outstanding[block] = false;
        task.free_blocks[task.free_count++] = (int)block;
    }
    return count;
}

static void collect_sleeping(void)
{
    while (collect() == 0) {
        fby_conductor_park(down_words());
        if (collect() > 0) {
            fby_conductor_unpark(down_words());
            return;
        }
        explore_event_wait(EVENT);
        fby_conductor_unpark(down_words());
    }
}

static void collect_spinning(void)
{
    while (collect() == 0) fby_spin_pause();
}

/* --- what a client does --------------------------------------------------------------------------------- */

static void use(const fby_descriptor *descriptor)
{
    if (descriptor->batch != task.consumed)
        explore_violation("delivery %llu came instead of %llu", (unsigned long long)descriptor->batch,
                          (unsigned long long)task.consumed);
    uint64_t payload;
    fby_data_read(&payload, &task.payload[descriptor->block], sizeof payload);
    if (payload != payload_of(descriptor->batch)) explore_violation("the payload is not its delivery's");
    task.consumed++;
}

static void give_back(const fby_descriptor *descriptor)
{
    fby_returns_put(&task.returns_writer, descriptor->block, descriptor->generation);
    fby_returns_publish(&task.returns_writer);
}

static uint32_t take_sleeping(fby_descriptor *out, uint64_t spin_ns)
{
    for (;;) {
        uint32_t count = fby_delivery_take(&task.delivery_reader, out, RING);
        if (count > 0) return count;
        fby_wait_delivery(down_words(), up_words(), task.delivery_reader.head, spin_ns, UINT64_MAX);
    }
}

/* --- rings: both rings, slots and blocks used again, nobody sleeps
 * ------------------------------------------ */

static void rings_server(void)
{
    for (uint64_t sequence = 0; sequence < DELIVERIES; sequence++) {
        if (task.free_count == 0) collect_spinning();
        deliver(sequence);
    }
}

static void rings_client(void)
{
    while (task.consumed < DELIVERIES) {
        fby_descriptor out[RING];
        uint32_t count = fby_delivery_take(&task.delivery_reader, out, RING);
        if (count == 0) fby_spin_pause();
        for (uint32_t i = 0; i < count; i++) {
            use(&out[i]);
            give_back(&out[i]);
        }
    }
}

/* --- client sleeps ---------------------------------------------------------------------------------------
 */

static void waking_server(void)
{
    for (uint64_t sequence = 0; sequence < BLOCKS; sequence++) {
        deliver(sequence);
        fby_wake_client(down_words(), up_words());
    }
}

static void sleeping_client(void)
{
    while (task.consumed < BLOCKS) {
        fby_descriptor out[RING];
        uint32_t count = take_sleeping(out, 0);
        for (uint32_t i = 0; i < count; i++) use(&out[i]);
    }
}

static void impatient_client(void)
{
    uint64_t deadline_ns = 1000;
    while (task.consumed < BLOCKS) {
        fby_descriptor out[RING];
        uint32_t count = fby_delivery_take(&task.delivery_reader, out, RING);
        for (uint32_t i = 0; i < count; i++) use(&out[i]);
        if (count > 0) continue;

        if (fby_wait_delivery(down_words(), up_words(), task.delivery_reader.head, 0, deadline_ns) ==
            FBY_WAIT_TIMEOUT)
            deadline_ns = UINT64_MAX;
    }
}

static void spinning_client(void)
{
    while (task.consumed < BLOCKS) {
        fby_descriptor out[RING];
        uint32_t count = take_sleeping(out, 15);
        for (uint32_t i = 0; i < count; i++) use(&out[i]);
    }
}

/* --- conductor parks --------------------------------------------------------------------------------------
 */

static void park_set_up(void)
{
    task_set_up();
    for (int block = 0; block < BLOCKS; block++) task.outstanding[block] = true;
    task.free_count = 0;
}

static void parking_server(void)
{
    while (task.free_count < BLOCKS) collect_sleeping();
}

static void returning_client(void)
{
    for (uint32_t block = 0; block < BLOCKS; block++) {
        give_back(&(fby_descriptor){.block = block});
        fby_wake_conductor(down_words(), EVENT);
    }
}

/* --- all is taken: a conductor that sleeps learns that its client has taken all that was delivered, though
 * nothing came back. The fences are the callers' (fby_engine_park, fby_task_next) --- */

static bool all_taken(void)
{
    return fby_delivery_head(up_words()) == task.delivery_writer.tail;
}

static void asking_server(void)
{
    for (uint64_t sequence = 0; sequence < BLOCKS; sequence++) {
        deliver(sequence);
        fby_wake_client(down_words(), up_words());
    }
    while (!all_taken()) {
        fby_conductor_park(down_words());
        fby_fence_seq_cst();
        if (!all_taken()) explore_event_wait(EVENT);
        fby_conductor_unpark(down_words());
    }
}

static void keeping_client(void)
{
    while (task.consumed < BLOCKS) {
        fby_descriptor out[RING];
        uint32_t count = take_sleeping(out, 0);
        for (uint32_t i = 0; i < count; i++) use(&out[i]);
        fby_fence_seq_cst();
        fby_wake_conductor(down_words(), EVENT);
    }
}

/* --- exchange: all of it -----------------------------------------------------------------------------------
 */

static void exchange_server(void)
{
    for (uint64_t sequence = 0; sequence < DELIVERIES; sequence++) {
        if (task.free_count == 0) collect_sleeping();
        deliver(sequence);
        fby_wake_client(down_words(), up_words());
    }
    while (task.free_count < BLOCKS) collect_sleeping();
}

static void exchange_client(void)
{
    while (task.consumed < DELIVERIES) {
        fby_descriptor out[RING];
        uint32_t count = take_sleeping(out, 0);
        for (uint32_t i = 0; i < count; i++) {
            use(&out[i]);
            give_back(&out[i]);
        }
        fby_wake_conductor(down_words(), EVENT);
    }
}

#define KILLS .killable = {true, true}, .may_starve = {true, true}

/* A server never waits for a client that it only delivers to, dead or not. */
#define KILLS_OF_PEER .killable = {true, true}, .may_starve = {false, true}

const explore_scenario task_scenarios[TASK_SCENARIOS] = {
    {"rings", 2, task_set_up, {rings_server, rings_client}, NULL, KILLS, .bounds = {3, 2, 1, 0}},
    {"client sleeps",
     2,
     task_set_up,
     {waking_server, sleeping_client},
     NULL,
     KILLS_OF_PEER,
     .bounds = {4, 3, 1, 0}},
    {"client spins, then sleeps",
     2,
     task_set_up,
     {waking_server, spinning_client},
     NULL,
     KILLS_OF_PEER,
     .bounds = {2, 2, 0, 0}},
    {"client sleeps, a deadline passes",
     2,
     task_set_up,
     {waking_server, impatient_client},
     NULL,
     .bounds = {3, 2, 0, 1}},
    {"conductor parks",
     2,
     park_set_up,
     {parking_server, returning_client},
     NULL,
     .killable = {true, true},
     .may_starve = {true, false},
     .bounds = {4, 3, 1, 0}},
    {"all is taken", 2, task_set_up, {asking_server, keeping_client}, NULL, KILLS, .bounds = {2, 2, 1, 0}},
    {"exchange", 2, task_set_up, {exchange_server, exchange_client}, NULL, KILLS, .bounds = {2, 1, 1, 0}},
};
