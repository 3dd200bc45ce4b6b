/* The rings beside what the system offers: see README.md. */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "perf/ring/channel.h"
#include "ringbuf/atomic.h"
#include "ringbuf/mpmc.h"
#include "ringbuf/region.h"
#include "ringbuf/spsc.h"
#include "ringbuf/wait.h"

enum {
    ROUNDS = 21,
    LEAST_ROUNDS = 11,
    MOST_ROUNDS = 1000,
    BATCH = 32,
    WINDOW = 4 * BATCH, /* descriptors that may be out */
    RING = 2 * WINDOW,
    RETURNS = 2 * WINDOW,
    MPMC_PLACES = 256,
};

#define SPIN_FOR_EVER UINT64_MAX
#define NO_DEADLINE   UINT64_MAX

static void fail(const char *what)
{
    fprintf(stderr, "bench_ring: %s\n", what);
    exit(1);
}

/* --- a lane: one delivery ring and one return ring, as two processes have them
 * ------------------------------ */

typedef struct lane {
    /* The server's, and apart from it, as in another process, the client's. */
    _Alignas(FBY_CACHE_PAIR) fby_region down;
    fby_region up;
    fby_delivery_writer delivery_writer;
    fby_returns_reader returns_reader;
    _Alignas(FBY_CACHE_PAIR) fby_region client_down;
    fby_region client_up;
    fby_delivery_reader delivery_reader;
    fby_returns_writer returns_writer;
    int event_fd;
} lane;

static lane lanes[2];

static void lane_open(lane *it)
{
    fby_error error = FBY_ERROR_INIT;
    if (fby_region_create(&it->down, FBY_REGION_DOWN, fby_down_bytes(RING), -1, &error) != 0 ||
        fby_region_create(&it->up, FBY_REGION_UP, fby_up_bytes(RETURNS), -1, &error) != 0)
        fail(error.text);
    fby_delivery_writer_init(&it->delivery_writer, it->down.base, RING);
    fby_returns_reader_init(&it->returns_reader, it->up.base, RETURNS);

    if (fby_region_seal(&it->down, &error) != 0 || fby_region_seal(&it->up, &error) != 0 ||
        fby_region_map(&it->client_down, dup(it->down.fd), FBY_REGION_DOWN, &error) != 0 ||
        fby_region_map(&it->client_up, dup(it->up.fd), FBY_REGION_UP, &error) != 0 ||
        fby_delivery_reader_init(&it->delivery_reader, it->client_down.base, it->client_down.bytes,
                                 it->client_up.base, &error) != 0 ||
        fby_returns_writer_init(&it->returns_writer, it->client_up.base, it->client_up.bytes, RETURNS,
                                &error) != 0)
        fail(error.text);
    it->event_fd = eventfd(0, EFD_NONBLOCK);
}

static void lane_close(lane *it)
{
    fby_region_close(&it->down);
    fby_region_close(&it->up);
    fby_region_close(&it->client_down);
    fby_region_close(&it->client_up);
    close(it->event_fd);
}

static void lane_put(lane *it, uint64_t sequence)
{
    const fby_descriptor descriptor = {
        .block = (uint32_t)(sequence % WINDOW), .count = 1, .batch = (uint32_t)sequence};
    fby_delivery_put(&it->delivery_writer, &descriptor);
}

static void lane_publish(lane *it)
{
    fby_delivery_publish(&it->delivery_writer);
    fby_wake_client(it->down.base, it->up.base);
}

static uint32_t lane_take(lane *it, fby_descriptor *out, uint32_t most, uint64_t spin_ns)
{
    for (;;) {
        uint32_t count = fby_delivery_take(&it->delivery_reader, out, most);
        if (count > 0) return count;
        fby_wait_delivery(it->client_down.base, it->client_up.base, it->delivery_reader.head, spin_ns,
                          NO_DEADLINE);
    }
}

static void lanes_set_up(void)
{
    lane_open(&lanes[0]);
    lane_open(&lanes[1]);
}

static void lanes_tear_down(void)
{
    lane_close(&lanes[0]);
    lane_close(&lanes[1]);
}

static void pipe_set_up(void)
{
    if (!channel_open(CHANNEL_PIPE)) fail("no pipe");
}

static void socket_set_up(void)
{
    if (!channel_open(CHANNEL_SOCKET)) fail("no socket pair");
}

static void condvar_set_up(void)
{
    if (!channel_open(CHANNEL_CONDVAR)) fail("no queue");
}

/* --- a descriptor in a batch -------------------------------------------------------------------------------
 */

static void ring_near(uint64_t count)
{
    lane *it = &lanes[0];
    uint64_t sent = 0, back = 0, entries[WINDOW];
    while (back < count) {
        if (sent < count && sent - back <= WINDOW - BATCH) {
            for (int i = 0; i < BATCH; i++) lane_put(it, sent++);
            lane_publish(it);
        }
        int taken = fby_returns_take(&it->returns_reader, entries, WINDOW);
        if (taken < 0) fail("a return ring is broken");
        if (taken == 0) fby_spin_pause();
        back += (uint64_t)taken;
    }
}

static void ring_far(uint64_t count)
{
    lane *it = &lanes[0];
    uint64_t taken = 0;
    while (taken < count) {
        fby_descriptor batch[BATCH];
        uint32_t got = lane_take(it, batch, BATCH, SPIN_FOR_EVER);
        for (uint32_t i = 0; i < got; i++) {
            if (batch[i].batch != (taken++ & FBY_DESCRIPTOR_BATCH_MASK)) fail("a delivery ring is broken");
            fby_returns_put(&it->returns_writer, batch[i].block, batch[i].generation);
        }
        fby_returns_publish(&it->returns_writer);
        fby_wake_conductor(it->client_down.base, it->event_fd);
    }
}

static void channel_batch_near(uint64_t count)
{
    static fby_ring_entry batch[BATCH];
    uint64_t sent = 0, back = 0, entries[BATCH];
    while (back < count) {
        if (sent < count && sent - back < WINDOW) {
            for (int i = 0; i < BATCH; i++) batch[i].run = sent++;
            channel_send(true, batch, sizeof batch);
            continue;
        }
        channel_receive(false, entries, sizeof entries);
        back += BATCH;
    }
}

static void channel_batch_far(uint64_t count)
{
    static fby_ring_entry batch[BATCH];
    uint64_t taken = 0, entries[BATCH];
    while (taken < count) {
        channel_receive(true, batch, sizeof batch);
        for (int i = 0; i < BATCH; i++) {
            if (batch[i].run != taken++) fail("a channel is broken");
            entries[i] = batch[i].block;
        }
        channel_send(false, entries, sizeof entries);
    }
}

/* --- an item -----------------------------------------------------------------------------------------------
 */

static fby_mpmc *mpmc;

static void mpmc_set_up(void)
{
    fby_error error = FBY_ERROR_INIT;
    if (fby_mpmc_create(&mpmc, MPMC_PLACES, &error) != 0) fail(error.text);
}

static void mpmc_tear_down(void)
{
    fby_mpmc_destroy(&mpmc);
}

static void mpmc_near(uint64_t count)
{
    for (uint64_t i = 1; i <= count; i++)
        while (!fby_mpmc_put(mpmc, (void *)(uintptr_t)i)) fby_spin_pause();
    while (fby_mpmc_size(mpmc) > 0) fby_spin_pause();
}

static void mpmc_far(uint64_t count)
{
    for (uint64_t i = 1; i <= count; i++) {
        void *item;
        fby_mpmc_take_wait(mpmc, &item, SPIN_FOR_EVER, NO_DEADLINE);
        if (item != (void *)(uintptr_t)i) fail("the pointer ring is broken");
    }
}

static void channel_item_near(uint64_t count)
{
    uint64_t answer;
    for (uint64_t i = 1; i <= count; i++) channel_send(true, &i, sizeof i);
    channel_receive(false, &answer, sizeof answer);
}

static void channel_item_far(uint64_t count)
{
    uint64_t item = 0;
    for (uint64_t i = 1; i <= count; i++) {
        channel_receive(true, &item, sizeof item);
        if (item != i) fail("a channel is broken");
    }
    channel_send(false, &item, sizeof item);
}

/* --- a hop
 * -------------------------------------------------------------------------------------------------- */

static void hop_near(uint64_t count)
{
    lane *it = &lanes[0];
    uint64_t entry;
    for (uint64_t i = 0; i < count; i++) {
        lane_put(it, i);
        lane_publish(it);
        while (fby_returns_take(&it->returns_reader, &entry, 1) == 0) fby_spin_pause();
    }
}

static void hop_far(uint64_t count)
{
    lane *it = &lanes[0];
    for (uint64_t i = 0; i < count; i++) {
        fby_descriptor descriptor;
        lane_take(it, &descriptor, 1, SPIN_FOR_EVER);
        fby_returns_put(&it->returns_writer, descriptor.block, descriptor.generation);
        fby_returns_publish(&it->returns_writer);
        fby_wake_conductor(it->client_down.base, it->event_fd);
    }
}

/* Two bare cache lines: what no structure can be faster than. */
static struct {
    _Alignas(FBY_CACHE_PAIR) uint32_t forth;
    _Alignas(FBY_CACHE_PAIR) uint32_t back;
} lines;

static void lines_set_up(void)
{
    lines.forth = lines.back = 0;
}

static void lines_tear_down(void)
{
}

static void line_near(uint64_t count)
{
    for (uint32_t i = 1; i <= count; i++) {
        fby_store_release_u32(&lines.forth, i);
        while (fby_load_acquire_u32(&lines.back) != i) continue;
    }
}

static void line_far(uint64_t count)
{
    for (uint32_t i = 1; i <= count; i++) {
        while (fby_load_acquire_u32(&lines.forth) != i) continue;
        fby_store_release_u32(&lines.back, i);
    }
}

static void channel_hop_near(uint64_t count)
{
    fby_ring_entry descriptor = {0};
    uint64_t entry;
    for (uint64_t i = 0; i < count; i++) {
        channel_send(true, &descriptor, sizeof descriptor);
        channel_receive(false, &entry, sizeof entry);
    }
}

static void channel_hop_far(uint64_t count)
{
    fby_ring_entry descriptor;
    for (uint64_t i = 0; i < count; i++) {
        channel_receive(true, &descriptor, sizeof descriptor);
        channel_send(false, &descriptor.run, sizeof descriptor.run);
    }
}

/* --- a parked wake
 * ------------------------------------------------------------------------------------------ */

/* Each thread serves one delivery ring and sleeps on the other. */
static void wake_near(uint64_t count)
{
    fby_descriptor descriptor;
    for (uint64_t i = 0; i < count; i++) {
        lane_put(&lanes[0], i);
        lane_publish(&lanes[0]);
        lane_take(&lanes[1], &descriptor, 1, 0);
    }
}

static void wake_far(uint64_t count)
{
    fby_descriptor descriptor;
    for (uint64_t i = 0; i < count; i++) {
        lane_take(&lanes[0], &descriptor, 1, 0);
        lane_put(&lanes[1], i);
        lane_publish(&lanes[1]);
    }
}

static uint32_t *futex_word(int which)
{
    /* In a shared mapping too, and as far apart. */
    return &((fby_down_words *)lanes[which].down.base)->tail;
}

static void futex_post(int which)
{
    uint32_t *word = futex_word(which);
    fby_store_seq_cst_u32(word, fby_load_relaxed_u32(word) + 1);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void futex_await(int which, uint32_t seen)
{
    uint32_t *word = futex_word(which);
    while (fby_load_acquire_u32(word) == seen) syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void futex_near(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        futex_post(0);
        futex_await(1, (uint32_t)i);
    }
}

static void futex_far(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        futex_await(0, (uint32_t)i);
        futex_post(1);
    }
}

/* --- rounds
 * -------------------------------------------------------------------------------------------------- */

typedef struct contender {
    const char *name, *unit;
    uint64_t count; /* operations a round; a multiple of BATCH */
    double parts;   /* values an operation: 2 hops in a round trip */
    void (*set_up)(void);
    void (*near)(uint64_t count);
    void (*far)(uint64_t count);
    void (*tear_down)(void);
    double samples[MOST_ROUNDS];
} contender;

static const char per_descriptor[] = "ns a descriptor", per_item[] = "ns an item", per_hop[] = "ns a hop",
                  per_trip[] = "ns a round trip";

static contender contenders[] = {
    {"ring", per_descriptor, 1 << 20, 1, lanes_set_up, ring_near, ring_far, lanes_tear_down},
    {"ring_pipe", per_descriptor, 1 << 15, 1, pipe_set_up, channel_batch_near, channel_batch_far,
     channel_close},
    {"ring_socket", per_descriptor, 1 << 15, 1, socket_set_up, channel_batch_near, channel_batch_far,
     channel_close},
    {"ring_condvar", per_descriptor, 1 << 15, 1, condvar_set_up, channel_batch_near, channel_batch_far,
     channel_close},

    {"mpmc", per_item, 1 << 19, 1, mpmc_set_up, mpmc_near, mpmc_far, mpmc_tear_down},
    {"mpmc_pipe", per_item, 1 << 15, 1, pipe_set_up, channel_item_near, channel_item_far, channel_close},
    {"mpmc_socket", per_item, 1 << 15, 1, socket_set_up, channel_item_near, channel_item_far, channel_close},
    {"mpmc_condvar", per_item, 1 << 15, 1, condvar_set_up, channel_item_near, channel_item_far,
     channel_close},

    {"hop", per_hop, 1 << 16, 2, lanes_set_up, hop_near, hop_far, lanes_tear_down},
    {"hop_line", per_hop, 1 << 16, 2, lines_set_up, line_near, line_far, lines_tear_down},
    {"hop_pipe", per_hop, 1 << 9, 2, pipe_set_up, channel_hop_near, channel_hop_far, channel_close},
    {"hop_socket", per_hop, 1 << 9, 2, socket_set_up, channel_hop_near, channel_hop_far, channel_close},
    {"hop_condvar", per_hop, 1 << 9, 2, condvar_set_up, channel_hop_near, channel_hop_far, channel_close},

    {"wake", per_trip, 1 << 10, 1, lanes_set_up, wake_near, wake_far, lanes_tear_down},
    {"wake_futex", per_trip, 1 << 10, 1, lanes_set_up, futex_near, futex_far, lanes_tear_down},
};
enum { CONTENDERS = sizeof contenders / sizeof *contenders };

static int near_cpu = -1, far_cpu = -1;

static void cpus_choose(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) fail("no affinity");
    for (int cpu = 0; cpu < CPU_SETSIZE && far_cpu < 0; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        if (near_cpu < 0)
            near_cpu = cpu;
        else
            far_cpu = cpu;
    }
    if (far_cpu < 0) fail("two CPUs are needed, and this process may use one");
}

static void pin(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) fail("a thread can't be pinned");
}

static pthread_barrier_t ready;

static void *far_main(void *context)
{
    const contender *it = context;
    pin(far_cpu);
    pthread_barrier_wait(&ready);
    it->far(it->count);
    return NULL;
}

static double measure(contender *it)
{
    it->set_up();
    pthread_t thread;
    if (pthread_create(&thread, NULL, far_main, it) != 0) fail("no thread");
    pthread_barrier_wait(&ready);
    uint64_t start = fby_now_ns();
    it->near(it->count);
    uint64_t end = fby_now_ns();
    pthread_join(thread, NULL);
    it->tear_down();
    return (double)(end - start) / ((double)it->count * it->parts);
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static double median(const double *samples, int rounds)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, samples, (size_t)rounds * sizeof *sorted);
    qsort(sorted, (size_t)rounds, sizeof *sorted, compare);
    return rounds % 2 ? sorted[rounds / 2] : (sorted[rounds / 2 - 1] + sorted[rounds / 2]) / 2;
}

static void print_results(int rounds)
{
    fprintf(stderr, "%-14s %14s %14s %14s\n", "", "median", "least", "unit");
    for (int i = 0; i < CONTENDERS; i++) {
        const contender *it = &contenders[i];
        double least = it->samples[0];
        for (int round = 1; round < rounds; round++)
            if (it->samples[round] < least) least = it->samples[round];
        fprintf(stderr, "%-14s %14.1f %14.1f   %s\n", it->name, median(it->samples, rounds), least, it->unit);

        printf("{\"name\": \"%s\", \"unit\": \"%s\", \"samples\": [", it->name, it->unit);
        for (int round = 0; round < rounds; round++) printf("%s%.3f", round ? ", " : "", it->samples[round]);
        printf("]}\n");
    }
    const contender *wake = &contenders[CONTENDERS - 2], *bare = &contenders[CONTENDERS - 1];
    double ratios[MOST_ROUNDS];
    for (int round = 0; round < rounds; round++) ratios[round] = wake->samples[round] / bare->samples[round];
    fprintf(stderr, "wake / wake_futex, median of %d pairs: %.3f\n", rounds, median(ratios, rounds));
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
    if (argc > 2 || rounds < LEAST_ROUNDS || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_ring [ROUNDS]   (%d to %d, %d unless told)\n", LEAST_ROUNDS,
                MOST_ROUNDS, ROUNDS);
        return 2;
    }
    cpus_choose();
    pin(near_cpu);
    pthread_barrier_init(&ready, NULL, 2);
    for (int round = -1; round < rounds; round++) {
        for (int i = 0; i < CONTENDERS; i++) {
            /* Every other round goes backwards, so that neither of a pair is always the first. */
            contender *it = &contenders[round % 2 ? CONTENDERS - 1 - i : i];
            double value = measure(it);
            /* The first round warms up. */
            if (round >= 0) it->samples[round] = value;
        }
    }
    pthread_barrier_destroy(&ready);
    print_results(rounds);
    return 0;
}
