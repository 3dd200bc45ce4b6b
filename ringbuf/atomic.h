/* Every atomic operation of ringbuf/, as typed functions over plain u32 and u64 words.
 *
 * The words live in structures that two processes map (layout.h), so they are plain integers, not _Atomic
 * types: their size and alignment must not depend on a compiler. C11 leaves two things to the platform that
 * the asserts below pin down: that these operations are lock-free (a lock would be private to one process),
 * and that a load is a mere load: on a platform that builds it from a compare-and-swap, reading a word in a
 * read-only mapping would fault.
 *
 * Each call carries a label (// S1 …) that names the edge it is one end of; the other end carries the same
 * edge with a prime. Relaxed operations say why nothing is ordered by them.
 *
 * `fby_data_read` and `fby_data_write` copy what an edge publishes: memory that is never accessed by both
 * sides at once. They exist so that tests/explorer can check exactly that: it compiles the .c files of this
 * folder unchanged with FBY_ATOMIC_SHIM naming a header that defines everything in this one and in sleep.h
 * anew. */
#ifndef FBY_RINGBUF_ATOMIC_H
#define FBY_RINGBUF_ATOMIC_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef FBY_ATOMIC_SHIM
#include FBY_ATOMIC_SHIM
#else

static_assert(__atomic_always_lock_free(sizeof(uint32_t), 0), "shared u32 words need lock-free atomics");
static_assert(__atomic_always_lock_free(sizeof(uint64_t), 0), "shared u64 words need lock-free atomics");

#define FBY_DEFINE_ATOMICS(Bits)                                                                             \
    static inline uint##Bits##_t fby_load_relaxed_u##Bits(const uint##Bits##_t *word)                        \
    {                                                                                                        \
        return __atomic_load_n(word, __ATOMIC_RELAXED);                                                      \
    }                                                                                                        \
    static inline uint##Bits##_t fby_load_acquire_u##Bits(const uint##Bits##_t *word)                        \
    {                                                                                                        \
        return __atomic_load_n(word, __ATOMIC_ACQUIRE);                                                      \
    }                                                                                                        \
    static inline uint##Bits##_t fby_load_seq_cst_u##Bits(const uint##Bits##_t *word)                        \
    {                                                                                                        \
        return __atomic_load_n(word, __ATOMIC_SEQ_CST);                                                      \
    }                                                                                                        \
    static inline void fby_store_relaxed_u##Bits(uint##Bits##_t *word, uint##Bits##_t value)                 \
    {                                                                                                        \
        __atomic_store_n(word, value, __ATOMIC_RELAXED);                                                     \
    }                                                                                                        \
    static inline void fby_store_release_u##Bits(uint##Bits##_t *word, uint##Bits##_t value)                 \
    {                                                                                                        \
        __atomic_store_n(word, value, __ATOMIC_RELEASE);                                                     \
    }                                                                                                        \
    static inline void fby_store_seq_cst_u##Bits(uint##Bits##_t *word, uint##Bits##_t value)                 \
    {                                                                                                        \
        __atomic_store_n(word, value, __ATOMIC_SEQ_CST);                                                     \
    }                                                                                                        \
    /* These three return the value before. */                                                               \
    static inline uint##Bits##_t fby_exchange_seq_cst_u##Bits(uint##Bits##_t *word, uint##Bits##_t value)    \
    {                                                                                                        \
        return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);                                           \
    }                                                                                                        \
    static inline uint##Bits##_t fby_fetch_add_relaxed_u##Bits(uint##Bits##_t *word, uint##Bits##_t value)   \
    {                                                                                                        \
        return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);                                            \
    }                                                                                                        \
    static inline uint##Bits##_t fby_fetch_add_seq_cst_u##Bits(uint##Bits##_t *word, uint##Bits##_t value)   \
    {                                                                                                        \
        return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);                                            \
    }                                                                                                        \
    /* True when *word was *expected and now is `value`; else *expected is what was found. */                \
    static inline bool fby_compare_exchange_relaxed_u##Bits(uint##Bits##_t *word, uint##Bits##_t *expected,  \
                                                            uint##Bits##_t value)                            \
    {                                                                                                        \
        return __atomic_compare_exchange_n(word, expected, value, false, __ATOMIC_RELAXED,                   \
                                           __ATOMIC_RELAXED);                                                \
    }                                                                                                        \
    static inline bool fby_compare_exchange_seq_cst_u##Bits(uint##Bits##_t *word, uint##Bits##_t *expected,  \
                                                            uint##Bits##_t value)                            \
    {                                                                                                        \
        return __atomic_compare_exchange_n(word, expected, value, false, __ATOMIC_SEQ_CST,                   \
                                           __ATOMIC_SEQ_CST);                                                \
    }

FBY_DEFINE_ATOMICS(32)
FBY_DEFINE_ATOMICS(64)
#undef FBY_DEFINE_ATOMICS

static inline void fby_fence_seq_cst(void)
{
#ifdef __SANITIZE_THREAD__
    /* GCC refuses C11 fences under ThreadSanitizer. No data is published by our fences alone, so it loses no
     * edge by this older spelling, which it does not look at. */
    __sync_synchronize();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Tells the CPU that this thread spins. */
static inline void fby_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}

/* Asks for the cache line of `shared` to be brought here for writing, ahead of need. Any address will do. */
static inline void fby_prefetch_write(const void *shared)
{
#if defined(__x86_64__)
    /* The builtin gives prefetchw only to builds for CPUs that have it; on others it does nothing. */
    __asm__ __volatile__("prefetchw %0" ::"m"(*(const uint8_t *)shared));
#else
    __builtin_prefetch(shared, 1);
#endif
}

static inline void fby_data_read(void *private_to, const void *shared_from, size_t bytes)
{
    memcpy(private_to, shared_from, bytes);
}

static inline void fby_data_write(void *shared_to, const void *private_from, size_t bytes)
{
    memcpy(shared_to, private_from, bytes);
}

#endif
#endif
