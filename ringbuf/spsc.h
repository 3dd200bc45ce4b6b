/* The two rings between a server and one task's client.
 *
 *   delivery ring (down region): server -> client, fby_ring_entry
 *   return ring   (up region):   client -> server, u64 (generation << 32 | block)
 *
 *   operation                     by                  may run together with
 *   fby_delivery_put/publish      server, one thread  every client operation
 *   fby_delivery_take/done        client, one thread  every server operation
 *   fby_returns_put/publish       client, one thread  every server operation
 *   fby_returns_take              server, one thread  every client operation
 *
 * Both are single-producer, single-consumer, with free-running u32 counters, capacity a power of two.
 * A delivery ring has at least as many places as descriptors can be outstanding, a return ring at least one
 * place more than blocks can be: neither side ever waits for room.
 *
 * Orders (a label at each operation in spsc.c): tail store RELEASE pairs with the consumer's tail load
 * ACQUIRE; the consumer's last read of a payload happens before its return-tail store RELEASE, which pairs
 * with the server's ACQUIRE. Sleep and wake is Dekker's pattern, see wait.h. */
#ifndef FBY_RINGBUF_SPSC_H
#define FBY_RINGBUF_SPSC_H

#include <forebay/error.h>

#include "ringbuf/atomic.h"
#include "ringbuf/layout.h"

/* What a ring entry says. */
typedef struct fby_descriptor {
    uint32_t block;
    uint32_t generation;
    uint32_t first; /* sample of the block; below 2^16 */
    uint32_t count; /* samples; below 2^16 */
    uint32_t flags; /* fby_descriptor_flag */
    uint32_t batch; /* its number in its epoch, modulo 2^24 */
} fby_descriptor;

enum { FBY_DESCRIPTOR_BATCH_MASK = (1 << 24) - 1, FBY_DESCRIPTOR_COUNT_MOST = UINT16_MAX };

/* Bytes of a down region with `capacity` descriptors, of an up region with `capacity` returns. */
uint64_t fby_down_bytes(uint32_t capacity);
uint64_t fby_up_bytes(uint32_t capacity);

/* A producer's next slots are in its consumer's cache. Fetched one by one as they are written, each costs a
 * whole way between the cores; asked for this many slots ahead, once a cache line, the ways overlap. */
enum { FBY_SLOTS_AHEAD = 32, FBY_CACHE_LINE = 64 };

static inline void fby_slots_fetch(void *entries, uint32_t place, uint32_t mask, uint32_t entry_bytes)
{
    if (place % (FBY_CACHE_LINE / entry_bytes) == 0)
        fby_prefetch_write((uint8_t *)entries + (uint64_t)((place + FBY_SLOTS_AHEAD) & mask) * entry_bytes);
}

/* --- delivery, the server's side ------------------------------------------------------------------------ */

typedef struct fby_delivery_writer {
    fby_down_words *down;
    fby_ring_entry *entries;
    uint32_t mask, tail; /* private: what was put, published or not */
} fby_delivery_writer;

/* Over a freshly created down region: writes capacity, starts at zero. */
void fby_delivery_writer_init(fby_delivery_writer *writer, void *down, uint32_t capacity);
/* Writes one entry; not visible before publish. The caller's ledger guarantees that there is room. Inline, as
 * is its counterpart: called, either costs more than what it does. */
static inline void fby_delivery_put(fby_delivery_writer *writer, const fby_descriptor *descriptor)
{
    const fby_ring_entry entry = {
        .block = descriptor->block,
        .generation = descriptor->generation,
        .run = (uint64_t)descriptor->first | (uint64_t)descriptor->count << 16 |
               (uint64_t)descriptor->flags << 32 |
               (uint64_t)(descriptor->batch & FBY_DESCRIPTOR_BATCH_MASK) << 40,
    };
    fby_data_write(&writer->entries[writer->tail & writer->mask], &entry, sizeof entry);
    fby_slots_fetch(writer->entries, writer->tail++, writer->mask, sizeof *writer->entries);
}

/* Makes what was put visible. Follow with fby_wake_client (wait.h), once per batch of puts. */
void fby_delivery_publish(fby_delivery_writer *writer);

/* How many descriptors the client says it has taken, free-running. Hostile: check it. */
uint32_t fby_delivery_head(const fby_up_words *up);
/* The descriptor that was put as the `number`-th, free-running; one of the last `capacity`. */
void fby_delivery_look(const fby_delivery_writer *writer, uint32_t number, fby_descriptor *out);

/* --- delivery, the client's side ------------------------------------------------------------------------ */

typedef struct fby_delivery_reader {
    const fby_down_words *down;
    const fby_ring_entry *entries;
    fby_up_words *up;
    uint32_t mask, head, tail; /* private: taken so far; tail as last seen */
} fby_delivery_reader;

/* Over mapped regions. Fails where the capacity in the region doesn't fit its size. */
int fby_delivery_reader_init(fby_delivery_reader *reader, const void *down, uint64_t down_bytes, void *up,
                             fby_error *error);
/* Unpacks up to `most` descriptors to `out` and returns their number; 0 when the ring is empty. */
uint32_t fby_delivery_take(fby_delivery_reader *reader, fby_descriptor *out, uint32_t most);

/* --- returns, the client's side ------------------------------------------------------------------------- */

typedef struct fby_returns_writer {
    fby_up_words *up;
    uint64_t *entries;
    uint32_t mask, tail;
} fby_returns_writer;

int fby_returns_writer_init(fby_returns_writer *writer, void *up, uint64_t up_bytes, uint32_t capacity,
                            fby_error *error);
/* Writes one entry; not visible before publish. */
static inline void fby_returns_put(fby_returns_writer *writer, uint32_t block, uint32_t generation)
{
    uint64_t entry = (uint64_t)generation << 32 | block;
    /* Relaxed: S2 publishes it. Atomic, because a hostile client may write while the server reads. */
    fby_store_relaxed_u64(&writer->entries[writer->tail & writer->mask], entry);
    fby_slots_fetch(writer->entries, writer->tail++, writer->mask, sizeof *writer->entries);
}

/* Follow with fby_wake_conductor (wait.h). */
void fby_returns_publish(fby_returns_writer *writer);

/* --- returns, the server's side ---------------------------------------------------------------------------
 */

typedef struct fby_returns_reader {
    const fby_up_words *up;
    const uint64_t *entries;
    uint32_t mask, head;
} fby_returns_reader;

void fby_returns_reader_init(fby_returns_reader *reader, const void *up, uint32_t capacity);
/* Copies up to `most` entries to `out`, returns their number; FBY_EPROTO when the client's counter claims
 * more than the ring holds. Entries are hostile: the caller checks each against its ledger. */
int fby_returns_take(fby_returns_reader *reader, uint64_t *out, uint32_t most);

#endif
