#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ringbuf/atomic.h"
#include "ringbuf/region.h"
#include "ringbuf/spsc.h"
#include "ringbuf/wait.h"
#include "tests/support/test.h"

#define MILLISECOND UINT64_C(1000000)
#define SECOND      (1000 * MILLISECOND)

enum { CAPACITY = 8 };

/* A down and an up region as their server has them, and the down region as its client has it: read-only. */
typedef struct channel {
    fby_region down, up, client_down;
    fby_delivery_writer writer;
} channel;

static channel channel_create(void)
{
    channel it;
    cr_assert_eq(fby_region_create(&it.down, FBY_REGION_DOWN, fby_down_bytes(CAPACITY), -1, NULL), 0);
    cr_assert_eq(fby_region_create(&it.up, FBY_REGION_UP, fby_up_bytes(CAPACITY), -1, NULL), 0);
    fby_delivery_writer_init(&it.writer, it.down.base, CAPACITY);
    cr_assert_eq(fby_region_seal(&it.down, NULL), 0);
    cr_assert_eq(fby_region_seal(&it.up, NULL), 0);
    cr_assert_eq(fby_region_map(&it.client_down, dup(it.down.fd), FBY_REGION_DOWN, NULL), 0);
    return it;
}

static void channel_destroy(channel *it)
{
    fby_region_close(&it->down);
    fby_region_close(&it->up);
    fby_region_close(&it->client_down);
}

static void publish_one(channel *it)
{
    fby_delivery_put(&it->writer, &(fby_descriptor){.block = 1});
    fby_delivery_publish(&it->writer);
}

/* Waits until the client says that it waits, or about to; gives up after a while. */
static void await_waiting(channel *it)
{
    const fby_up_words *up = it->up.base;
    for (int i = 0; i < 5000 && fby_load_seq_cst_u32(&up->waiting) == 0; i++) usleep(1000);
    cr_assert_eq(fby_load_seq_cst_u32(&up->waiting), 1, "the client never went to sleep");
}

Test(wait, returns_at_once_when_ready)
{
    channel it = channel_create();
    publish_one(&it);
    cr_assert_eq(fby_wait_delivery(it.client_down.base, it.up.base, 0, 0, 0), FBY_WAIT_READY);
    cr_assert_eq(fby_wait_delivery(it.client_down.base, it.up.base, 0, SECOND, UINT64_MAX), FBY_WAIT_READY);
    channel_destroy(&it);
}

Test(wait, deadline_is_kept)
{
    channel it = channel_create();
    for (int spins = 0; spins < 2; spins++) {
        uint64_t start = fby_now_ns();
        cr_assert_eq(fby_wait_delivery(it.client_down.base, it.up.base, 0, spins ? UINT64_MAX : 0,
                                       start + 20 * MILLISECOND),
                     FBY_WAIT_TIMEOUT);
        cr_assert_geq(fby_now_ns() - start, 20 * MILLISECOND);
        cr_assert_eq(((fby_up_words *)it.up.base)->waiting, 0, "the flag is taken back");
    }
    cr_assert_eq(fby_wait_delivery(it.client_down.base, it.up.base, 0, 0, 0), FBY_WAIT_TIMEOUT);
    channel_destroy(&it);
}

Test(wait, waker_makes_no_call_while_nobody_sleeps)
{
    channel it = channel_create();
    cr_assert_not(fby_wake_client(it.down.base, it.up.base));
    ((fby_up_words *)it.up.base)->waiting = 0xdead;
    cr_assert(fby_wake_client(it.down.base, it.up.base), "any lie counts as waiting");
    channel_destroy(&it);
}

typedef struct sleeper {
    channel *it;
    uint64_t spin_ns, deadline_ns;
    fby_wait_result result;
} sleeper;

static void *sleep_for_delivery(void *context)
{
    sleeper *me = context;
    me->result =
        fby_wait_delivery(me->it->client_down.base, me->it->up.base, 0, me->spin_ns, me->deadline_ns);
    return NULL;
}

Test(wait, sleeper_is_woken)
{
    channel it = channel_create();
    sleeper me = {.it = &it, .deadline_ns = fby_now_ns() + 30 * SECOND};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, sleep_for_delivery, &me), 0);
    await_waiting(&it);
    usleep(10000);
    publish_one(&it);
    cr_assert(fby_wake_client(it.down.base, it.up.base));
    pthread_join(thread, NULL);
    cr_assert_eq(me.result, FBY_WAIT_READY);
    cr_assert_lt(fby_now_ns(), me.deadline_ns - 10 * SECOND, "it was the deadline that ended the wait");
    channel_destroy(&it);
}

Test(wait, spinner_needs_no_wake)
{
    channel it = channel_create();
    sleeper me = {.it = &it, .spin_ns = 60 * SECOND, .deadline_ns = fby_now_ns() + 60 * SECOND};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, sleep_for_delivery, &me), 0);
    usleep(20000);
    cr_assert_eq(fby_load_seq_cst_u32(&((fby_up_words *)it.up.base)->waiting), 0);
    publish_one(&it);
    pthread_join(thread, NULL);
    cr_assert_eq(me.result, FBY_WAIT_READY);
    channel_destroy(&it);
}

static void on_signal(int number)
{
    (void)number;
}

Test(wait, signal_interrupts)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
    channel it = channel_create();
    sleeper me = {.it = &it, .deadline_ns = fby_now_ns() + 30 * SECOND};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, sleep_for_delivery, &me), 0);
    await_waiting(&it);
    usleep(50000);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    cr_assert_eq(me.result, FBY_WAIT_INTERRUPTED);
    cr_assert_eq(((fby_up_words *)it.up.base)->waiting, 0);
    channel_destroy(&it);
}

Test(wait, conductor_is_woken_only_while_parked)
{
    channel it = channel_create();
    int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    cr_assert_geq(event, 0);
    struct pollfd poll_event = {.fd = event, .events = POLLIN};

    cr_assert_not(fby_wake_conductor(it.client_down.base, event));
    cr_assert_eq(poll(&poll_event, 1, 0), 0);
    fby_conductor_park(it.down.base);
    cr_assert(fby_wake_conductor(it.client_down.base, event));
    cr_assert_eq(poll(&poll_event, 1, 0), 1);
    fby_conductor_unpark(it.down.base);
    cr_assert_not(fby_wake_conductor(it.client_down.base, event));
    close(event);
    channel_destroy(&it);
}

Test(wait, full_event_counter_is_no_obstacle)
{
    channel it = channel_create();
    int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const uint64_t most = UINT64_MAX - 1;
    cr_assert_eq(write(event, &most, sizeof most), sizeof most);
    fby_conductor_park(it.down.base);
    cr_assert(fby_wake_conductor(it.client_down.base, event));
    close(event);
    channel_destroy(&it);
}
