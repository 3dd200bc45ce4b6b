#include "tests/ringbuf/exchange.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ringbuf/wait.h"
#include "tests/ringbuf/random.h"

#define SECOND UINT64_C(1000000000)

enum { SAMPLE_BYTES = 256, FIRST_BLOCK = 1000 };

int exchange_create(exchange *out, uint32_t deliveries, uint64_t seed, fby_error *error)
{
    *out = (exchange){.deliveries = deliveries, .seed = seed};
    const fby_segment_shape shape = {
        .first_block = FIRST_BLOCK, .blocks = EXCHANGE_BLOCKS, .capacity = 1, .sample_bytes = SAMPLE_BYTES};
    int status = fby_segment_create(&out->segment, &shape, -1, error);
    if (status == 0)
        status = fby_region_create(&out->down, FBY_REGION_DOWN, fby_down_bytes(EXCHANGE_RING), -1, error);
    if (status == 0)
        status = fby_region_create(&out->up, FBY_REGION_UP, fby_up_bytes(EXCHANGE_RING), -1, error);
    if (status == 0) {
        fby_delivery_writer_init(&out->delivery, out->down.base, EXCHANGE_RING);
        fby_returns_reader_init(&out->returns, out->up.base, EXCHANGE_RING);
    }
    if (status == 0) status = fby_region_seal(&out->segment, error);
    if (status == 0) status = fby_region_seal(&out->down, error);
    if (status == 0) status = fby_region_seal(&out->up, error);
    out->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return status;
}

void exchange_close(exchange *it)
{
    fby_region_close(&it->segment);
    fby_region_close(&it->down);
    fby_region_close(&it->up);
    close(it->event_fd);
}

/* What stands in word `i` of the payload of delivery `sequence`. */
static uint64_t pattern(uint64_t sequence, uint64_t i)
{
    return sequence * 0x9e3779b97f4a7c15u + i;
}

/* --- server --------------------------------------------------------------------------------------------- */

typedef struct ledger {
    uint32_t generation[EXCHANGE_BLOCKS];
    bool outstanding[EXCHANGE_BLOCKS];
    uint32_t free_blocks[EXCHANGE_BLOCKS], free_count;
} ledger;

/* Takes what came back; returns how many, or -1 with the fault written. */
static int collect(exchange *it, ledger *books)
{
    uint64_t entries[EXCHANGE_RING];
    int count = fby_returns_take(&it->returns, entries, EXCHANGE_RING);
    if (count < 0) snprintf(it->fault, sizeof it->fault, "returns_take says %d", count);
    for (int i = 0; i < count; i++) {
        uint32_t block = (uint32_t)entries[i] - FIRST_BLOCK, generation = (uint32_t)(entries[i] >> 32);
        if (block >= EXCHANGE_BLOCKS || !books->outstanding[block] ||
            books->generation[block] != generation) {
            snprintf(it->fault, sizeof it->fault, "block %u generation %u came back, which is not out", block,
                     generation);
            return -1;
        }
        books->outstanding[block] = false;
        books->free_blocks[books->free_count++] = block;
    }
    return count;
}

/* Sleeps until something came back. */
static int collect_parked(exchange *it, ledger *books)
{
    fby_conductor_park(it->down.base);
    int count = collect(it, books);
    if (count == 0) {
        struct pollfd event = {.fd = it->event_fd, .events = POLLIN};
        if (poll(&event, 1, 30000) != 1) {
            snprintf(it->fault, sizeof it->fault, "the server slept through a return");
            count = -1;
        }
    }
    fby_conductor_unpark(it->down.base);
    uint64_t posts;
    if (read(it->event_fd, &posts, sizeof posts) < 0) posts = 0;
    return count;
}

static void fill(exchange *it, ledger *books, uint64_t sequence)
{
    uint32_t block = books->free_blocks[--books->free_count];
    books->outstanding[block] = true;
    books->generation[block]++;
    fby_block_meta *meta = fby_block_meta_at(&it->segment, block);
    meta->generation = books->generation[block];
    meta->count = 1;
    uint64_t *payload = fby_block_payload(&it->segment, block);
    for (uint64_t i = 0; i < SAMPLE_BYTES / sizeof *payload; i++) payload[i] = pattern(sequence, i);

    const fby_descriptor descriptor = {.block = FIRST_BLOCK + block,
                                       .generation = books->generation[block],
                                       .count = 1,
                                       .batch = (uint32_t)sequence};
    fby_delivery_put(&it->delivery, &descriptor);
}

void exchange_serve(exchange *it)
{
    uint64_t random = it->seed;
    ledger books = {.free_count = EXCHANGE_BLOCKS};
    for (uint32_t i = 0; i < EXCHANGE_BLOCKS; i++) books.free_blocks[i] = i;

    uint64_t sequence = 0;
    while (sequence < it->deliveries || books.free_count < EXCHANGE_BLOCKS) {
        uint32_t batch = 1 + random_below(&random, 4);
        bool delivered = false;
        while (batch-- > 0 && books.free_count > 0 && sequence < it->deliveries) {
            fill(it, &books, sequence++);
            delivered = true;
        }
        if (delivered) {
            fby_delivery_publish(&it->delivery);
            it->wakes += fby_wake_client(it->down.base, it->up.base);
        }
        int count = collect(it, &books);
        if (count == 0 && !delivered) count = collect_parked(it, &books);
        if (count < 0) return;
        if (random_below(&random, 400) == 0) usleep(300);
    }
}

/* --- client -----------------------------------------------------------------------------------------------
 */

static bool payload_check(exchange *it, const fby_descriptor *descriptor)
{
    uint32_t block = descriptor->block - FIRST_BLOCK;
    const fby_block_meta *meta = fby_block_meta_at(&it->segment, block);
    if (meta->generation != descriptor->generation) {
        snprintf(it->fault, sizeof it->fault,
                 "delivery %llu: generation %u in the block, %u in the descriptor",
                 (unsigned long long)descriptor->batch, meta->generation, descriptor->generation);
        return false;
    }
    const uint64_t *payload = fby_block_payload(&it->segment, block);
    for (uint64_t i = 0; i < SAMPLE_BYTES / sizeof *payload; i++) {
        if (payload[i] != pattern(descriptor->batch, i)) {
            snprintf(it->fault, sizeof it->fault, "delivery %llu: word %llu of its payload is stale",
                     (unsigned long long)descriptor->batch, (unsigned long long)i);
            return false;
        }
    }
    return true;
}

void exchange_consume(exchange *it)
{
    uint64_t random = ~it->seed;
    fby_error error = FBY_ERROR_INIT;
    fby_delivery_reader delivery;
    fby_returns_writer returns;
    if (fby_delivery_reader_init(&delivery, it->down.base, it->down.bytes, it->up.base, &error) != 0 ||
        fby_returns_writer_init(&returns, it->up.base, it->up.bytes, EXCHANGE_RING, &error) != 0) {
        snprintf(it->fault, sizeof it->fault, "%.150s", error.text);
        return;
    }

    fby_descriptor held[EXCHANGE_BLOCKS];
    uint32_t held_count = 0;
    uint64_t expected = 0;
    while (expected < it->deliveries || held_count > 0) {
        uint32_t count = fby_delivery_take(&delivery, held + held_count, EXCHANGE_BLOCKS - held_count);
        for (uint32_t i = 0; i < count; i++, expected++) {
            if (held[held_count + i].batch != expected) {
                snprintf(it->fault, sizeof it->fault, "delivery %llu came instead of %llu",
                         (unsigned long long)held[held_count + i].batch, (unsigned long long)expected);
                return;
            }
        }
        held_count += count;
        if (held_count == 0) {
            uint64_t spin = random_below(&random, 2) ? 0 : random_below(&random, 20000);
            if (fby_wait_delivery(it->down.base, it->up.base, delivery.head, spin,
                                  fby_now_ns() + 30 * SECOND) == FBY_WAIT_TIMEOUT) {
                snprintf(it->fault, sizeof it->fault, "the client slept through a delivery");
                return;
            }
            continue;
        }

        /* Some come back, in any order; each is read right before. */
        uint32_t give = 1 + random_below(&random, held_count);
        for (uint32_t i = 0; i < give; i++) {
            uint32_t which = random_below(&random, held_count);
            if (!payload_check(it, &held[which])) return;
            fby_returns_put(&returns, held[which].block, held[which].generation);
            held[which] = held[--held_count];
        }
        fby_returns_publish(&returns);
        it->wakes += fby_wake_conductor(it->down.base, it->event_fd);
        if (random_below(&random, 400) == 0) usleep(300);
    }
}
