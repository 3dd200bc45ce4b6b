/* Several training tasks at once, each a process of its own that takes batches as fast as they come, reads
 * one byte of each sample and releases: from one server, or from one each.
 *
 * usage: perf_share together|random BATCHES (SOCKET SPEC)...
 *
 * One turn is BATCHES batches of each task on average, in the middle of their streams. CPU time is the
 * servers' and the tasks'; "server" is that of the servers alone. `together`: the tasks are opened once, at
 * the first turn. `random`: all but the first leave after each turn, and join again at moments drawn anew,
 * while the first goes through an epoch. */
#include <forebay/forebay.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perf/side/side.h"
#include "perf/side/trainer.h"

enum { TASKS_MOST = 16, WARM_BATCHES = 6, LOOK_NS = 300000, SEED = 1 };

/* What a task and the program that asks share. Written by: a the asking program, t the task. */
typedef struct seat {
    sem_t gate;                                 /* a: go on */
    _Atomic uint64_t samples;                   /* t: taken so far */
    _Atomic uint64_t join_at;                   /* a: when the first task has taken so many */
    _Atomic uint32_t parked;                    /* t: it waits at the gate */
    _Atomic int32_t server;                     /* t: process */
    _Atomic uint32_t batch_samples, epoch_size; /* t */
} seat;

typedef struct board {
    _Atomic uint32_t running; /* a */
    seat seats[TASKS_MOST];
} board;

static board *shared;
static uint32_t tasks;
static pid_t processes[TASKS_MOST];

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
}

/* --- a task ------------------------------------------------------------------------------------------- */

typedef struct subscription {
    fby_client *client;
    fby_task *task;
} subscription;

static void join(subscription *own, seat *at, const char *socket, const char *spec)
{
    fby_error error = FBY_ERROR_INIT;
    fby_connect_options connection = FBY_CONNECT_OPTIONS_INIT;
    connection.mode = FBY_MODE_RUNNING;
    connection.socket = socket;
    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    options.spec_path = spec;
    fby_task_info info = {.size = sizeof info};
    if (fby_connect(&own->client, &connection, &error) ||
        fby_task_open(&own->task, own->client, &options, &error) || fby_task_info_get(own->task, &info))
        perf_side_fail("%s", error.text);
    atomic_store(&at->batch_samples, info.batch);
    atomic_store(&at->epoch_size, (uint32_t)info.samples);
    atomic_store(&at->server, fby_client_pid(own->client));
}

static void leave(subscription *own)
{
    fby_task_close(&own->task);
    fby_disconnect(&own->client);
}

_Noreturn static void train(uint32_t index, const char *socket, const char *spec, bool comes_and_goes)
{
    subscription own = {0};
    seat *at = &shared->seats[index];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        if (!own.task ||
            !atomic_load(&shared->running)) { /* asked before it ever came here: it joins all the same */
            if (own.task && comes_and_goes) leave(&own);
            atomic_store(&at->parked, 1);
            while (sem_wait(&at->gate)) continue;
            atomic_store(&at->parked, 0);
            while (atomic_load(&shared->seats[0].samples) < atomic_load(&at->join_at)) pause_briefly();
            if (!own.task) join(&own, at, socket, spec);
        }
        atomic_fetch_add(&at->samples, perf_trainer_take(own.task));
    }
}

/* --- the asking program ------------------------------------------------------------------------------- */

typedef struct instant {
    double wall, cpu, server;
    uint64_t samples;
} instant;

static instant look(void)
{
    instant now = {0};
    for (uint32_t i = 0; i < tasks; i++) {
        const seat *at = &shared->seats[i];
        now.samples += atomic_load(&at->samples);
        now.cpu += perf_side_cpu(processes[i]);
        bool counted = false;
        for (uint32_t k = 0; k < i; k++) counted |= shared->seats[k].server == at->server;
        if (!counted) now.server += perf_side_cpu(at->server);
    }
    now.cpu += now.server;
    now.wall = perf_side_now(0).wall;
    return now;
}

/* Lets the tasks run until each is in the middle of its stream. */
static void tasks_start(bool random_moments)
{
    uint64_t before[TASKS_MOST] = {0};
    seat *first = &shared->seats[0];
    for (uint32_t i = 0; i < tasks; i++) {
        seat *at = &shared->seats[i];
        uint32_t epoch = atomic_load(&first->epoch_size); /* 0 at the first turn: together */
        before[i] = atomic_load(&at->samples);
        atomic_store(&at->join_at, i && random_moments && epoch
                                       ? atomic_load(&first->samples) + (uint64_t)random() % epoch
                                       : 0);
    }
    atomic_store(&shared->running, 1);
    for (uint32_t i = 0; i < tasks; i++) sem_post(&shared->seats[i].gate);
    for (uint32_t i = 0; i < tasks; i++) {
        const seat *at = &shared->seats[i];
        while (atomic_load(&at->samples) == before[i] ||
               atomic_load(&at->samples) < before[i] + WARM_BATCHES * atomic_load(&at->batch_samples))
            pause_briefly();
    }
}

static void tasks_stop(void)
{
    atomic_store(&shared->running, 0);
    for (uint32_t i = 0; i < tasks; i++)
        while (!atomic_load(&shared->seats[i].parked)) pause_briefly();
}

static void child_ended(int number)
{
    (void)number;
    static const char text[] = "perf_share: a task ended\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(2);
    _exit(1); /* the others end with this process */
}

int main(int argc, char **argv)
{
    bool random_moments = argc > 1 && !strcmp(argv[1], "random");
    uint64_t batches = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    tasks = argc > 4 ? (uint32_t)(argc - 3) / 2 : 0;
    if (!batches || !tasks || tasks > TASKS_MOST || argc % 2 == 0 ||
        (!random_moments && strcmp(argv[1], "together")))
        perf_side_fail("usage: perf_share together|random BATCHES (SOCKET SPEC)...");
    srandom(SEED);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) perf_side_fail("no memory");
    signal(SIGCHLD, child_ended);
    for (uint32_t i = 0; i < tasks; i++) {
        seat *at = &shared->seats[i];
        sem_init(&at->gate, 1, 0);
        processes[i] = fork();
        if (processes[i] < 0) perf_side_fail("can't fork");
        if (processes[i] == 0) {
            signal(SIGCHLD, SIG_DFL);
            train(i, argv[3 + 2 * i], argv[4 + 2 * i], random_moments && i);
        }
    }

    while (perf_side_asked()) {
        tasks_start(random_moments);
        instant from = look(), to = from;
        uint64_t enough = from.samples + batches * tasks * atomic_load(&shared->seats[0].batch_samples);
        while (to.samples < enough) {
            pause_briefly();
            to.samples = 0;
            for (uint32_t i = 0; i < tasks; i++) to.samples += atomic_load(&shared->seats[i].samples);
        }
        to = look();
        tasks_stop();
        printf("{\"samples\": %llu, \"wall\": %.6f, \"cpu\": %.6f, \"server\": %.6f}\n",
               (unsigned long long)(to.samples - from.samples), to.wall - from.wall, to.cpu - from.cpu,
               to.server - from.server);
        fflush(stdout);
    }
    signal(SIGCHLD, SIG_DFL);
    for (uint32_t i = 0; i < tasks; i++) {
        kill(processes[i], SIGKILL);
        waitpid(processes[i], NULL, 0);
    }
    return 0;
}
