/* Sleeping and waking between server and client, and within the server.
 *
 * Dekker's pattern, both ways: the waker publishes, then a seq_cst read-modify-write (or fence), then reads
 * the waiter's flag; the waiter sets its flag by a seq_cst read-modify-write, re-reads the counter, then
 * sleeps. One of the two always sees the other. Nobody makes a system call unless the other side says it
 * sleeps. */
#ifndef FBY_RINGBUF_WAIT_H
#define FBY_RINGBUF_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "ringbuf/layout.h"

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t fby_now_ns(void);

/* --- client sleeps, server wakes --------------------------------------------------------------------------
 */

typedef enum fby_wait_result { FBY_WAIT_READY, FBY_WAIT_TIMEOUT, FBY_WAIT_INTERRUPTED } fby_wait_result;

/* Client: until down->tail differs from `seen`, spinning `spin_ns` first, then sleeping, at most until
 * `deadline_ns` (absolute, fby_now_ns). A signal ends it with FBY_WAIT_INTERRUPTED. The caller bounds each
 * sleep to at most a second and looks after its peer in between. */
fby_wait_result fby_wait_delivery(const fby_down_words *down, fby_up_words *up, uint32_t seen,
                                  uint64_t spin_ns, uint64_t deadline_ns);
/* Server, after fby_delivery_publish: wakes the client if it sleeps. Returns whether it made a system call.
 * `waiting` is the client's word: anything but 0 counts as waiting, and lies cost the liar alone. */
bool fby_wake_client(fby_down_words *down, const fby_up_words *up);

/* --- conductor sleeps, client wakes ------------------------------------------------------------------------
 */

/* Server: announce to one task's client that the conductor is about to sleep (or is awake again). After
 * announcing, re-read every ring before sleeping. */
void fby_conductor_park(fby_down_words *down);
void fby_conductor_unpark(fby_down_words *down);
/* Client, after fby_returns_publish: writes the eventfd if the conductor sleeps. Returns whether it did. */
bool fby_wake_conductor(const fby_down_words *down, int event_fd);

/* --- within the server ---------------------------------------------------------------------------------- */

/* An event count: threads sleep on it until somebody signals after they looked. Zero-initialised. */
typedef struct fby_gate {
    _Alignas(FBY_CACHE_PAIR) uint32_t epoch; /* bumped by every signal that may matter; the futex word */
    _Alignas(FBY_CACHE_PAIR) uint32_t sleepers;
} fby_gate;

/* Usage: ticket = prepare; look again; found: cancel; else: wait(ticket). */
uint32_t fby_gate_prepare(fby_gate *gate);
void fby_gate_cancel(fby_gate *gate);
/* Sleeps until signalled after prepare, or the deadline; false on the deadline. Ends the prepare. */
bool fby_gate_wait(fby_gate *gate, uint32_t ticket, uint64_t deadline_ns);
/* Wakes up to `most` sleepers. Cheap (one fence and one load) when nobody sleeps. */
void fby_gate_signal(fby_gate *gate, uint32_t most);

#endif
