/* The system calls that sleeping and waking rest on. Inline here, apart from wait.c, so that tests/explorer
 * can put its own scheduler in their place (FBY_ATOMIC_SHIM, see atomic.h). */
#ifndef FBY_RINGBUF_SLEEP_H
#define FBY_RINGBUF_SLEEP_H

#include "ringbuf/atomic.h"

#ifndef FBY_ATOMIC_SHIM

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum fby_futex_scope {
    FBY_FUTEX_SHARED = 0,                   /* between processes: the kernel finds the word by its page */
    FBY_FUTEX_PRIVATE = FUTEX_PRIVATE_FLAG, /* between threads of this process */
};

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline uint64_t fby_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sleeps while *word is `expected`, until woken or the absolute deadline. Returns 0, or the errno: EAGAIN
 * when the word differs, ETIMEDOUT, EINTR. The word may be in a read-only mapping. */
static inline int fby_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns,
                                 enum fby_futex_scope scope)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / 1000000000u),
        .tv_nsec = (long)(deadline_ns % 1000000000u),
    };
    /* The bitset form is the one whose timeout is absolute. */
    long result = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | (int)scope, expected, &deadline, NULL,
                          FUTEX_BITSET_MATCH_ANY);
    return result == 0 ? 0 : errno;
}

static inline void fby_futex_wake(uint32_t *word, uint32_t most, enum fby_futex_scope scope)
{
    syscall(SYS_futex, word, FUTEX_WAKE | (int)scope, most > INT32_MAX ? INT32_MAX : most, NULL, NULL, 0);
}

/* Makes an eventfd readable. A full counter (EAGAIN) is readable already. */
static inline void fby_event_post(int event_fd)
{
    const uint64_t one = 1;
    while (write(event_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

#endif
#endif
