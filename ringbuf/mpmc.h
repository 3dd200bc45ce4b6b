/* A bounded multi-producer, multi-consumer ring of pointers within one process: the work ring between readers
 * and workers, and the completion ring back to the conductor.
 *
 * Source of the algorithm: Dmitry Vyukov's bounded MPMC queue (1024cores.net), a sequence number per cell.
 * Every operation may run together with every other, on any thread. put and take never block; take_wait
 * sleeps on the ring's gate. A thread that dies between claiming and filling a cell stalls that cell: threads
 * of one process only. */
#ifndef FBY_RINGBUF_MPMC_H
#define FBY_RINGBUF_MPMC_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stdint.h>

#include "ringbuf/wait.h"

typedef struct fby_mpmc fby_mpmc;

/* `capacity` is rounded up to a power of two, at least 2. */
int fby_mpmc_create(fby_mpmc **out, uint32_t capacity, fby_error *error);
void fby_mpmc_destroy(fby_mpmc **ring);

bool fby_mpmc_put(fby_mpmc *ring, void *item);   /* false when full; wakes one sleeper */
bool fby_mpmc_take(fby_mpmc *ring, void **item); /* false when empty */
/* Spins `spin_ns`, then sleeps until an item comes, fby_mpmc_wake_all is called, or the deadline. */
bool fby_mpmc_take_wait(fby_mpmc *ring, void **item, uint64_t spin_ns, uint64_t deadline_ns);
/* Every take_wait in progress returns. One that begins afterwards sleeps: who looks at a flag before
 * take_wait may miss both by a hair, and so bounds its deadline, or is sent an item that means the end. */
void fby_mpmc_wake_all(fby_mpmc *ring);
uint32_t fby_mpmc_size(const fby_mpmc *ring); /* a snapshot */

#endif
