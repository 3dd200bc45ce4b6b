#include <stdlib.h>
#include <string.h>

#include "ringbuf/spsc.h"
#include "tests/ringbuf/random.h"
#include "tests/support/test.h"

enum { CAPACITY = 8 };

/* Both rings of a task over plain memory, as if mapped, with counters that start at `start`. */
typedef struct rings {
    void *down, *up;
    fby_delivery_writer delivery_writer;
    fby_delivery_reader delivery_reader;
    fby_returns_writer returns_writer;
    fby_returns_reader returns_reader;
} rings;

static void *zeroed(uint64_t bytes)
{
    bytes = (bytes + FBY_PAGE - 1) / FBY_PAGE * FBY_PAGE;
    void *memory = aligned_alloc(FBY_PAGE, bytes);
    cr_assert_not_null(memory);
    memset(memory, 0, bytes);
    return memory;
}

static rings rings_create(uint32_t start)
{
    rings it = {.down = zeroed(fby_down_bytes(CAPACITY)), .up = zeroed(fby_up_bytes(CAPACITY))};
    fby_delivery_writer_init(&it.delivery_writer, it.down, CAPACITY);
    fby_returns_reader_init(&it.returns_reader, it.up, CAPACITY);
    cr_assert_eq(
        fby_delivery_reader_init(&it.delivery_reader, it.down, fby_down_bytes(CAPACITY), it.up, NULL), 0);
    cr_assert_eq(fby_returns_writer_init(&it.returns_writer, it.up, fby_up_bytes(CAPACITY), CAPACITY, NULL),
                 0);

    it.delivery_writer.tail = it.delivery_reader.tail = it.delivery_reader.head = start;
    it.returns_writer.tail = it.returns_reader.head = start;
    ((fby_down_words *)it.down)->tail = start;
    ((fby_up_words *)it.up)->return_tail = start;
    return it;
}

static void rings_destroy(rings *it)
{
    free(it->down);
    free(it->up);
}

Test(spsc, nothing_is_visible_before_publish)
{
    rings it = rings_create(0);
    fby_descriptor out[4];
    fby_descriptor descriptor = {.block = 2,
                                 .generation = 3,
                                 .first = UINT16_MAX,
                                 .count = FBY_DESCRIPTOR_COUNT_MOST - 1,
                                 .flags = 21,
                                 .batch = FBY_DESCRIPTOR_BATCH_MASK - 1};
    fby_delivery_put(&it.delivery_writer, &descriptor);
    cr_assert_eq(fby_delivery_take(&it.delivery_reader, out, 4), 0);
    fby_delivery_publish(&it.delivery_writer);
    cr_assert_eq(fby_delivery_take(&it.delivery_reader, out, 4), 1);
    cr_assert_arr_eq(&out[0], &descriptor, sizeof descriptor);
    cr_assert_eq(fby_delivery_take(&it.delivery_reader, out, 4), 0);
    cr_assert_eq(((fby_up_words *)it.up)->head, 1);

    uint64_t entries[4];
    fby_returns_put(&it.returns_writer, 2, 3);
    cr_assert_eq(fby_returns_take(&it.returns_reader, entries, 4), 0);
    fby_returns_publish(&it.returns_writer);
    cr_assert_eq(fby_returns_take(&it.returns_reader, entries, 4), 1);
    cr_assert_eq(entries[0], UINT64_C(3) << 32 | 2);
    rings_destroy(&it);
}

Test(spsc, takes_no_more_than_asked)
{
    rings it = rings_create(0);
    for (uint32_t i = 0; i < CAPACITY; i++) {
        fby_delivery_put(&it.delivery_writer, &(fby_descriptor){.block = i});
        fby_returns_put(&it.returns_writer, i, 0);
    }
    fby_delivery_publish(&it.delivery_writer);
    fby_returns_publish(&it.returns_writer);

    fby_descriptor out[CAPACITY];
    uint64_t entries[CAPACITY];
    cr_assert_eq(fby_delivery_take(&it.delivery_reader, out, 0), 0);
    cr_assert_eq(fby_delivery_take(&it.delivery_reader, out, 3), 3);
    cr_assert_eq(fby_delivery_take(&it.delivery_reader, out, CAPACITY), CAPACITY - 3);
    cr_assert_eq(out[0].block, 3);
    cr_assert_eq(fby_returns_take(&it.returns_reader, entries, 0), 0);
    cr_assert_eq(fby_returns_take(&it.returns_reader, entries, 5), 5);
    cr_assert_eq(fby_returns_take(&it.returns_reader, entries, CAPACITY), CAPACITY - 5);
    cr_assert_eq(entries[0], 5);
    rings_destroy(&it);
}

/* Random puts, publishes and takes against plain counters; the start makes the counters wrap half-way. */
static void run_against_model(uint64_t seed, uint32_t start)
{
    rings it = rings_create(start);
    uint64_t random = seed;
    uint64_t put = 0, published = 0, taken = 0;
    uint64_t returned = 0, returns_published = 0, collected = 0;
    fby_descriptor out[CAPACITY + 3];
    uint64_t entries[CAPACITY + 3];

    for (int step = 0; step < 4000; step++) {
        uint32_t most = random_below(&random, CAPACITY + 3);
        switch (random_below(&random, 6)) {
        case 0:
            /* The ledger's rule: a place is free once the block came back. */
            if (put - collected == CAPACITY) break;
            fby_delivery_put(&it.delivery_writer,
                             &(fby_descriptor){.batch = (uint32_t)put, .block = (uint32_t)put});
            put++;
            break;
        case 1:
            fby_delivery_publish(&it.delivery_writer);
            published = put;
            break;
        case 2: {
            /* The reader looks again only when it has used up what it saw: at least that, at most all. */
            uint32_t count = fby_delivery_take(&it.delivery_reader, out, most);
            cr_assert_leq(count, most);
            cr_assert_leq(taken + count, published, "seed %llu step %d", (unsigned long long)seed, step);
            cr_assert(count > 0 || most == 0 || taken == published, "seed %llu step %d",
                      (unsigned long long)seed, step);
            for (uint32_t i = 0; i < count; i++)
                cr_assert_eq(out[i].batch, taken + i, "seed %llu step %d", (unsigned long long)seed, step);
            taken += count;
            break;
        }
        case 3:
            if (returned == taken) break;
            fby_returns_put(&it.returns_writer, (uint32_t)returned, (uint32_t)(returned >> 3));
            returned++;
            break;
        case 4:
            fby_returns_publish(&it.returns_writer);
            returns_published = returned;
            break;
        case 5: {
            int count = fby_returns_take(&it.returns_reader, entries, most);
            uint64_t left = returns_published - collected;
            cr_assert_eq(count, (int)(left < most ? left : most), "seed %llu step %d",
                         (unsigned long long)seed, step);
            for (int i = 0; i < count; i++) {
                uint64_t number = collected + (uint64_t)i;
                cr_assert_eq(entries[i], number >> 3 << 32 | number);
            }
            collected += (uint64_t)count;
            break;
        }
        }
    }
    cr_assert_gt(collected, 100);
    rings_destroy(&it);
}

Test(spsc, random_schedules_follow_the_model)
{
    for (uint64_t seed = 1; seed <= 40; seed++) run_against_model(seed, 0);
}

Test(spsc, counters_wrap_around)
{
    for (uint64_t seed = 1; seed <= 40; seed++) run_against_model(seed, UINT32_MAX - (uint32_t)(seed * 7));
}

Test(spsc, lying_return_counter_is_found_out)
{
    const uint32_t lies[] = {CAPACITY + 1, CAPACITY + 2, 1u << 31, UINT32_MAX, UINT32_MAX - CAPACITY};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        rings it = rings_create(0);
        uint64_t entries[CAPACITY];
        ((fby_up_words *)it.up)->return_tail = lies[i];
        cr_assert_eq(fby_returns_take(&it.returns_reader, entries, CAPACITY), FBY_EPROTO, "tail %u", lies[i]);
        /* The reader has not moved: the same answer again, and sense once the counter makes sense. */
        cr_assert_eq(fby_returns_take(&it.returns_reader, entries, CAPACITY), FBY_EPROTO);
        ((fby_up_words *)it.up)->return_tail = 0;
        cr_assert_eq(fby_returns_take(&it.returns_reader, entries, CAPACITY), 0);
        rings_destroy(&it);
    }
}

Test(spsc, return_counter_that_goes_back_is_found_out)
{
    rings it = rings_create(0);
    uint64_t entries[CAPACITY];
    for (uint32_t i = 0; i < 4; i++) fby_returns_put(&it.returns_writer, i, 0);
    fby_returns_publish(&it.returns_writer);
    cr_assert_eq(fby_returns_take(&it.returns_reader, entries, CAPACITY), 4);
    ((fby_up_words *)it.up)->return_tail = 3;
    cr_assert_eq(fby_returns_take(&it.returns_reader, entries, CAPACITY), FBY_EPROTO);
    rings_destroy(&it);
}

Test(spsc, mad_delivery_counter_stays_inside_the_ring)
{
    rings it = rings_create(0);
    ((fby_down_words *)it.down)->tail = UINT32_MAX;
    fby_descriptor out[4 * CAPACITY];
    cr_assert_eq(fby_delivery_take(&it.delivery_reader, out, 4 * CAPACITY), CAPACITY);
    rings_destroy(&it);
}

Test(spsc, capacities_that_do_not_fit_are_refused)
{
    const uint32_t wrong[] = {0, 3, CAPACITY - 1, 2 * CAPACITY, 1u << 31, UINT32_MAX};
    rings it = rings_create(0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fby_error error = FBY_ERROR_INIT;
        fby_delivery_reader reader;
        fby_returns_writer writer;
        ((fby_down_words *)it.down)->capacity = wrong[i];
        cr_assert_eq(fby_delivery_reader_init(&reader, it.down, fby_down_bytes(CAPACITY), it.up, &error),
                     FBY_EPROTO);
        cr_assert_eq(fby_returns_writer_init(&writer, it.up, fby_up_bytes(CAPACITY), wrong[i], &error),
                     FBY_EPROTO);
        cr_assert_eq(error.code, FBY_EPROTO);
    }
    fby_delivery_reader reader;
    cr_assert_eq(fby_delivery_reader_init(&reader, it.down, FBY_PAGE - 1, it.up, NULL), FBY_EPROTO);
    rings_destroy(&it);
}
