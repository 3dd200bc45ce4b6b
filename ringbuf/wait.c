#include "ringbuf/wait.h"

#include <errno.h>

#include "ringbuf/sleep.h"

/* Edges:
 *
 *   W1  server: tail store (spsc.c), waiting load      client: waiting store, tail load
 *   W2  client: return tail store (spsc.c), parked load  server: parked store, return tail load (spsc.c)
 *
 * Each is Dekker's pattern over four seq_cst accesses: in their one total order either the store of the tail
 * comes before the sleeper's load of it, or the store of the flag before the waker's load. Nothing weaker
 * than seq_cst on any of the four would do: a release store may be overtaken by a later load.
 *
 *   G   gate: the sleeper's count and the signaller's condition, by a seq_cst fence on both sides, since the
 *       condition is the caller's, in whatever order the caller accesses it.
 *
 * The futex itself closes the rest: the kernel compares the word and queues the sleeper in one step, ordered
 * with every wake on the same word. */

enum { SPINS_PER_CLOCK_READ = 16 };

uint64_t fby_now_ns(void)
{
    return fby_clock_ns();
}

/* --- client sleeps, server wakes --------------------------------------------------------------------------
 */

static bool spin_briefly(const fby_down_words *down, uint32_t seen)
{
    for (int i = 0; i < SPINS_PER_CLOCK_READ; i++) {
        /* Relaxed: take's own load (S1') orders what follows. */
        if (fby_load_relaxed_u32(&down->tail) != seen) return true;
        fby_spin_pause();
    }
    return false;
}

/* The clock is read only after the first spins: its 30 ns and more are as much as a hop. */
static bool spin(const fby_down_words *down, uint32_t seen, uint64_t spin_ns, uint64_t deadline_ns)
{
    if (spin_briefly(down, seen)) return true;
    uint64_t now = fby_clock_ns();
    uint64_t until = now + spin_ns < now ? UINT64_MAX : now + spin_ns;
    if (until > deadline_ns) until = deadline_ns;
    while (now < until) {
        if (spin_briefly(down, seen)) return true;
        now = fby_clock_ns();
    }
    return false;
}

static fby_wait_result sleep_on_tail(const fby_down_words *down, uint32_t seen, uint64_t deadline_ns)
{
    for (;;) {
        if (fby_load_seq_cst_u32(&down->tail) != seen) return FBY_WAIT_READY; // W1': after the flag's store

        int status = fby_futex_wait(&down->tail, seen, deadline_ns, FBY_FUTEX_SHARED);
        if (status == 0 || status == EAGAIN) continue;

        /* Relaxed: only to prefer news that came with the deadline or the signal. */
        if (fby_load_relaxed_u32(&down->tail) != seen) return FBY_WAIT_READY;
        return status == ETIMEDOUT ? FBY_WAIT_TIMEOUT : FBY_WAIT_INTERRUPTED;
    }
}

fby_wait_result fby_wait_delivery(const fby_down_words *down, fby_up_words *up, uint32_t seen,
                                  uint64_t spin_ns, uint64_t deadline_ns)
{
    /* Relaxed: as in spin. */
    if (fby_load_relaxed_u32(&down->tail) != seen) return FBY_WAIT_READY;

    if (spin_ns > 0 && spin(down, seen, spin_ns, deadline_ns)) return FBY_WAIT_READY;

    fby_store_seq_cst_u32(&up->waiting, 1); // W1': before the tail's load
    fby_wait_result result = sleep_on_tail(down, seen, deadline_ns);
    /* Relaxed: a server that still sees 1 makes one wake for nothing. */
    fby_store_relaxed_u32(&up->waiting, 0);
    return result;
}

bool fby_wake_client(fby_down_words *down, const fby_up_words *up)
{
    if (fby_load_seq_cst_u32(&up->waiting) == 0) return false; // W1: after publish's store

    fby_futex_wake(&down->tail, 1, FBY_FUTEX_SHARED);
    return true;
}

/* --- conductor sleeps, client wakes ------------------------------------------------------------------------
 */

void fby_conductor_park(fby_down_words *down)
{
    fby_store_seq_cst_u32(&down->parked, 1); // W2': before returns_take's load
}

void fby_conductor_unpark(fby_down_words *down)
{
    /* Relaxed: a client that still sees 1 writes the eventfd for nothing. */
    fby_store_relaxed_u32(&down->parked, 0);
}

bool fby_wake_conductor(const fby_down_words *down, int event_fd)
{
    if (fby_load_seq_cst_u32(&down->parked) == 0) return false; // W2: after returns_publish's store

    fby_event_post(event_fd);
    return true;
}

/* --- within the server ---------------------------------------------------------------------------------- */

uint32_t fby_gate_prepare(fby_gate *gate)
{
    /* Relaxed, both: the fence orders them. A ticket taken before the fence can't already hold the bump of a
     * signaller whose fence comes after it; one whose fence came before has made its condition visible. */
    fby_fetch_add_relaxed_u32(&gate->sleepers, 1);
    uint32_t ticket = fby_load_relaxed_u32(&gate->epoch);
    fby_fence_seq_cst(); // G': sleepers before the caller's second look
    return ticket;
}

void fby_gate_cancel(fby_gate *gate)
{
    /* Relaxed: a signaller that still counts this thread bumps for nothing. */
    fby_fetch_add_relaxed_u32(&gate->sleepers, UINT32_MAX);
}

bool fby_gate_wait(fby_gate *gate, uint32_t ticket, uint64_t deadline_ns)
{
    bool signalled;
    for (;;) {
        /* Relaxed: whoever comes late sleeps, and the kernel's own comparison decides. */
        signalled = fby_load_relaxed_u32(&gate->epoch) != ticket;
        if (signalled) break;

        if (fby_futex_wait(&gate->epoch, ticket, deadline_ns, FBY_FUTEX_PRIVATE) == ETIMEDOUT) {
            /* A wake that was spent on this thread must not be lost with its deadline. */
            signalled = fby_load_relaxed_u32(&gate->epoch) != ticket;
            break;
        }
    }
    fby_gate_cancel(gate);
    return signalled;
}

void fby_gate_signal(fby_gate *gate, uint32_t most)
{
    fby_fence_seq_cst(); // G: the caller's condition before sleepers
    /* Relaxed: the fence ordered it. */
    if (fby_load_relaxed_u32(&gate->sleepers) == 0) return;

    /* Relaxed: who read the old epoch sleeps on it and is woken, or fails the kernel's comparison. */
    fby_fetch_add_relaxed_u32(&gate->epoch, 1);
    fby_futex_wake(&gate->epoch, most, FBY_FUTEX_PRIVATE);
}
