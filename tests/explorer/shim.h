/* Stands in for the functions of ringbuf/atomic.h and ringbuf/sleep.h: each call becomes one step of the
 * explorer (machine.h) that other roles may come before, and that may read an old value where its order
 * allows that. The sources of ringbuf/ are compiled over this header, unchanged, by
 * -DFBY_ATOMIC_SHIM="tests/explorer/shim.h". */
#ifndef FBY_TESTS_EXPLORER_SHIM_H
#define FBY_TESTS_EXPLORER_SHIM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum explore_order {
    EXPLORE_RELAXED,
    EXPLORE_ACQUIRE,
    EXPLORE_RELEASE,
    EXPLORE_ACQ_REL,
    EXPLORE_SEQ_CST
} explore_order;

typedef enum explore_kind { EXPLORE_LOAD, EXPLORE_STORE, EXPLORE_UPDATE, EXPLORE_FENCE } explore_kind;

/* One atomic operation in the source. All of them are listed in the section `explore_sites`. */
typedef struct explore_site {
    const char *file;
    int line;
    explore_kind kind;
    explore_order written; /* the order in the source */
    explore_order order;   /* the order now: weaker in a mutation */
    uint64_t hits;
} explore_site;

uint64_t explore_load(explore_site *site, const void *word, size_t bytes);
void explore_store(explore_site *site, void *word, uint64_t value, size_t bytes);
/* Both return the value before. */
uint64_t explore_exchange(explore_site *site, void *word, uint64_t value, size_t bytes);
uint64_t explore_fetch_add(explore_site *site, void *word, uint64_t value, size_t bytes);
static inline uint32_t explore_exchange_u32(explore_site *site, uint32_t *word, uint32_t value)
{
    return (uint32_t)explore_exchange(site, word, value, sizeof *word);
}

static inline uint32_t explore_fetch_add_u32(explore_site *site, uint32_t *word, uint32_t value)
{
    return (uint32_t)explore_fetch_add(site, word, value, sizeof *word);
}

bool explore_compare_exchange(explore_site *site, void *word, void *expected, uint64_t value, size_t bytes);
void explore_fence(explore_site *site);

/* Memory that must never be accessed by two roles at once: a race is a violation. */
void explore_data_read(void *to, const void *shared, size_t bytes);
void explore_data_write(void *shared, const void *from, size_t bytes);

/* Lets the others run; ends a role that spins for ever. */
void explore_pause(void);
int explore_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns);
void explore_futex_wake(uint32_t *word, uint32_t most);
void explore_event_post(int event);
uint64_t explore_clock(void);

#define EXPLORE_SITE(Kind, Order)                                                                            \
    ({                                                                                                       \
        static explore_site site_here = {__FILE__,        __LINE__,        EXPLORE_##Kind,                   \
                                         EXPLORE_##Order, EXPLORE_##Order, 0};                               \
        static explore_site *site_listed __attribute__((section("explore_sites"), used)) = &site_here;       \
        (void)site_listed;                                                                                   \
        &site_here;                                                                                          \
    })

#define fby_load_relaxed_u32(Word)            ((uint32_t)explore_load(EXPLORE_SITE(LOAD, RELAXED), Word, 4))
#define fby_load_acquire_u32(Word)            ((uint32_t)explore_load(EXPLORE_SITE(LOAD, ACQUIRE), Word, 4))
#define fby_load_seq_cst_u32(Word)            ((uint32_t)explore_load(EXPLORE_SITE(LOAD, SEQ_CST), Word, 4))
#define fby_load_relaxed_u64(Word)            explore_load(EXPLORE_SITE(LOAD, RELAXED), Word, 8)
#define fby_load_acquire_u64(Word)            explore_load(EXPLORE_SITE(LOAD, ACQUIRE), Word, 8)
#define fby_load_seq_cst_u64(Word)            explore_load(EXPLORE_SITE(LOAD, SEQ_CST), Word, 8)

#define fby_store_relaxed_u32(Word, Value)    explore_store(EXPLORE_SITE(STORE, RELAXED), Word, Value, 4)
#define fby_store_release_u32(Word, Value)    explore_store(EXPLORE_SITE(STORE, RELEASE), Word, Value, 4)
#define fby_store_seq_cst_u32(Word, Value)    explore_store(EXPLORE_SITE(STORE, SEQ_CST), Word, Value, 4)
#define fby_store_relaxed_u64(Word, Value)    explore_store(EXPLORE_SITE(STORE, RELAXED), Word, Value, 8)
#define fby_store_release_u64(Word, Value)    explore_store(EXPLORE_SITE(STORE, RELEASE), Word, Value, 8)
#define fby_store_seq_cst_u64(Word, Value)    explore_store(EXPLORE_SITE(STORE, SEQ_CST), Word, Value, 8)

#define fby_exchange_seq_cst_u32(Word, Value) explore_exchange_u32(EXPLORE_SITE(UPDATE, SEQ_CST), Word, Value)
#define fby_exchange_seq_cst_u64(Word, Value) explore_exchange(EXPLORE_SITE(UPDATE, SEQ_CST), Word, Value, 8)
#define fby_fetch_add_relaxed_u32(Word, Value)                                                               \
    explore_fetch_add_u32(EXPLORE_SITE(UPDATE, RELAXED), Word, Value)
#define fby_fetch_add_seq_cst_u32(Word, Value)                                                               \
    explore_fetch_add_u32(EXPLORE_SITE(UPDATE, SEQ_CST), Word, Value)
#define fby_fetch_add_relaxed_u64(Word, Value)                                                               \
    explore_fetch_add(EXPLORE_SITE(UPDATE, RELAXED), Word, Value, 8)
#define fby_fetch_add_seq_cst_u64(Word, Value)                                                               \
    explore_fetch_add(EXPLORE_SITE(UPDATE, SEQ_CST), Word, Value, 8)
#define fby_compare_exchange_relaxed_u32(Word, Expected, Value)                                              \
    explore_compare_exchange(EXPLORE_SITE(UPDATE, RELAXED), Word, Expected, Value, 4)
#define fby_compare_exchange_seq_cst_u32(Word, Expected, Value)                                              \
    explore_compare_exchange(EXPLORE_SITE(UPDATE, SEQ_CST), Word, Expected, Value, 4)
#define fby_compare_exchange_relaxed_u64(Word, Expected, Value)                                              \
    explore_compare_exchange(EXPLORE_SITE(UPDATE, RELAXED), Word, Expected, Value, 8)
#define fby_compare_exchange_seq_cst_u64(Word, Expected, Value)                                              \
    explore_compare_exchange(EXPLORE_SITE(UPDATE, SEQ_CST), Word, Expected, Value, 8)
#define fby_fence_seq_cst()                 explore_fence(EXPLORE_SITE(FENCE, SEQ_CST))

#define fby_data_read(To, Shared, Bytes)    explore_data_read(To, Shared, Bytes)
#define fby_data_write(Shared, From, Bytes) explore_data_write(Shared, From, Bytes)

#define fby_prefetch_write(Shared)          ((void)(Shared))

#define fby_spin_pause()                    explore_pause()
#define fby_clock_ns()                      explore_clock()
#define fby_futex_wait(Word, Expected, Deadline, Scope)                                                      \
    ((void)(Scope), explore_futex_wait(Word, Expected, Deadline))
#define fby_futex_wake(Word, Most, Scope) ((void)(Scope), explore_futex_wake(Word, Most))
#define fby_event_post(Event)             explore_event_post(Event)

enum fby_futex_scope { FBY_FUTEX_SHARED, FBY_FUTEX_PRIVATE };

#endif
