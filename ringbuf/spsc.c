#include "ringbuf/spsc.h"

#include "ringbuf/atomic.h"

/* Edges (the waiting flag's and the parked flag's other ends are in wait.c):
 *
 *   S1  publish's tail store       ->  take's tail load          entries and payload reach the client
 *   S2  returns' tail store        ->  returns_take's tail load  the client's last reads are over; its
 * entries reach the server W1  publish's tail store, then wake's load of `waiting`   against the sleeper's
 * store and tail load W2  returns' tail store, then wake's load of `parked`     against park's store and
 * returns_take's tail load
 *
 * A slot of the delivery ring is written again only after the block that it carried came back through S2;
 * a slot of the return ring only after its block was delivered once more through S1. Hence no head is read
 * by the other side to find room. */

static bool is_power_of_two(uint32_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

uint64_t fby_down_bytes(uint32_t capacity)
{
    return FBY_PAGE + (uint64_t)capacity * sizeof(fby_ring_entry);
}

uint64_t fby_up_bytes(uint32_t capacity)
{
    return FBY_PAGE + (uint64_t)capacity * sizeof(uint64_t);
}

static void unpack(const fby_ring_entry *entry, fby_descriptor *out)
{
    *out = (fby_descriptor){
        .block = entry->block,
        .generation = entry->generation,
        .first = entry->run & UINT16_MAX,
        .count = entry->run >> 16 & UINT16_MAX,
        .flags = entry->run >> 32 & UINT8_MAX,
        .batch = (uint32_t)(entry->run >> 40),
    };
}

/* --- delivery, the server's side ------------------------------------------------------------------------ */

void fby_delivery_writer_init(fby_delivery_writer *writer, void *down, uint32_t capacity)
{
    assert(is_power_of_two(capacity));
    *writer = (fby_delivery_writer){
        .down = down,
        .entries = (fby_ring_entry *)((uint8_t *)down + FBY_PAGE),
        .mask = capacity - 1,
    };
    writer->down->capacity = capacity;
}

void fby_delivery_publish(fby_delivery_writer *writer)
{
    fby_store_seq_cst_u32(&writer->down->tail, writer->tail); // S1 (release); W1: before wake's load
}

uint32_t fby_delivery_head(const fby_up_words *up)
{
    return fby_load_relaxed_u32(&up->head); /* see fby_delivery_take */
}

void fby_delivery_look(const fby_delivery_writer *writer, uint32_t number, fby_descriptor *out)
{
    unpack(&writer->entries[number & writer->mask], out);
}

/* --- delivery, the client's side ------------------------------------------------------------------------ */

int fby_delivery_reader_init(fby_delivery_reader *reader, const void *down, uint64_t down_bytes, void *up,
                             fby_error *error)
{
    const fby_down_words *words = down;
    if (down_bytes < FBY_PAGE)
        return fby_fail(error, FBY_EPROTO, "the down region has %llu bytes; at least %d were expected",
                        (unsigned long long)down_bytes, FBY_PAGE);

    uint32_t capacity = words->capacity;
    if (!is_power_of_two(capacity) || fby_down_bytes(capacity) > down_bytes)
        return fby_fail(
            error, FBY_EPROTO,
            "the delivery ring claims %u entries, which is no power of two that fits into the %llu "
            "bytes of its region",
            capacity, (unsigned long long)down_bytes);

    *reader = (fby_delivery_reader){
        .down = words,
        .entries = (const fby_ring_entry *)((const uint8_t *)down + FBY_PAGE),
        .up = up,
        .mask = capacity - 1,
    };
    return 0;
}

uint32_t fby_delivery_take(fby_delivery_reader *reader, fby_descriptor *out, uint32_t most)
{
    if (reader->tail == reader->head) reader->tail = fby_load_acquire_u32(&reader->down->tail); // S1'

    uint32_t count = reader->tail - reader->head;
    if (count > most) count = most;
    if (count > reader->mask + 1) count = reader->mask + 1;
    if (count == 0) return 0;

    for (uint32_t i = 0; i < count; i++) {
        fby_ring_entry entry;
        fby_data_read(&entry, &reader->entries[(reader->head + i) & reader->mask], sizeof entry);
        unpack(&entry, &out[i]);
    }
    reader->head += count;
    /* Relaxed: it only tells the server what was never taken, once the client has closed. */
    fby_store_relaxed_u32(&reader->up->head, reader->head);
    return count;
}

/* --- returns, the client's side ------------------------------------------------------------------------- */

int fby_returns_writer_init(fby_returns_writer *writer, void *up, uint64_t up_bytes, uint32_t capacity,
                            fby_error *error)
{
    if (!is_power_of_two(capacity) || fby_up_bytes(capacity) > up_bytes)
        return fby_fail(
            error, FBY_EPROTO,
            "a return ring of %u entries was announced, which is no power of two that fits into the "
            "%llu bytes of its region",
            capacity, (unsigned long long)up_bytes);

    *writer = (fby_returns_writer){
        .up = up,
        .entries = (uint64_t *)((uint8_t *)up + FBY_PAGE),
        .mask = capacity - 1,
    };
    return 0;
}

void fby_returns_publish(fby_returns_writer *writer)
{
    fby_store_seq_cst_u32(&writer->up->return_tail, writer->tail); // S2 (release); W2: before wake's load
}

/* --- returns, the server's side ---------------------------------------------------------------------------
 */

void fby_returns_reader_init(fby_returns_reader *reader, const void *up, uint32_t capacity)
{
    assert(is_power_of_two(capacity));
    *reader = (fby_returns_reader){
        .up = up,
        .entries = (const uint64_t *)((const uint8_t *)up + FBY_PAGE),
        .mask = capacity - 1,
    };
}

int fby_returns_take(fby_returns_reader *reader, uint64_t *out, uint32_t most)
{
    uint32_t tail = fby_load_seq_cst_u32(&reader->up->return_tail); // S2' (acquire); W2': after park's store
    uint32_t count = tail - reader->head;
    if (count > reader->mask + 1) return FBY_EPROTO;
    if (count > most) count = most;
    if (count > INT32_MAX) count = INT32_MAX;

    for (uint32_t i = 0; i < count; i++) {
        /* Relaxed: S2 ordered it. Read once: the client may change it at any moment. */
        out[i] = fby_load_relaxed_u64(&reader->entries[(reader->head + i) & reader->mask]);
    }
    reader->head += count;
    return (int)count;
}
