/* The pread pool: threads that take requests from one queue and put them back into another.
 *
 * One mutex guards both queues, the wake flag and the counters. The threads block every signal, so that the
 * program's handlers run elsewhere. */
#include "io/reader_faults.h"
#include "io/reader_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Ten seconds in all. */
enum { DESCRIPTOR_WAITS_MOST = 1000, DESCRIPTOR_WAIT_NS = 10 * 1000 * 1000 };

typedef struct pread_reader {
    fby_reader base;
    pthread_mutex_t mutex;
    pthread_cond_t work, finished; /* something to do; something done, or woken */
    fby_read_list queue, done;
    fby_reader_stats stats;
    bool woken, closing;
    uint32_t threads; /* those that run */
    pthread_t thread[];
} pread_reader;

static int file_open(const fby_read_request *request, const fby_reader_faults *faults)
{
    /* O_NONBLOCK: a pipe that took the file's place must not stop a thread for good. */
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    for (int waits = 0;; waits++) {
        int descriptor = faults && faults->open ? faults->open(request->directory, request->path, flags)
                                                : openat(request->directory, request->path, flags);
        if (descriptor >= 0) return descriptor;
        /* What takes the last descriptors is no fault of this file's. */
        if ((errno != EMFILE && errno != ENFILE) || waits == DESCRIPTOR_WAITS_MOST) return -errno;
        nanosleep(&(struct timespec){0, DESCRIPTOR_WAIT_NS}, NULL);
    }
}

static int64_t file_pread(int descriptor, fby_read_request *request, uint32_t wanted,
                          const fby_reader_faults *faults)
{
    uint64_t have = fby_read_progress_of(request)->have;
    ssize_t got = faults && faults->pread
                      ? faults->pread(descriptor, request->buffer + have, wanted, (off_t)have)
                      : pread(descriptor, request->buffer + have, wanted, (off_t)have);
    return got < 0 ? -errno : got;
}

static void file_read(fby_read_request *request, fby_reader_stats *stats)
{
    const fby_reader_faults *faults = fby_reader_faults_installed;
    fby_read_next next;

    do {
        int descriptor = file_open(request, faults);
        stats->system_calls++;
        if (descriptor < 0) {
            next = fby_read_step(request, descriptor, 0, 0, stats);
            continue;
        }
        do {
            uint32_t wanted = fby_read_wanted(request);
            int64_t got = file_pread(descriptor, request, wanted, faults);
            stats->system_calls++;
            next = fby_read_step(request, 0, wanted, got, stats);
        } while (next == READ_CONTINUE);

        if (faults && faults->close) {
            faults->close(descriptor);
        } else {
            close(descriptor);
        }
        stats->system_calls++;
    } while (next != READ_DONE);
}

static void stats_add(fby_reader_stats *sum, const fby_reader_stats *part)
{
    sum->files += part->files;
    sum->bytes += part->bytes;
    sum->system_calls += part->system_calls;
    sum->retries += part->retries;
    sum->looked_again += part->looked_again;
}

static void *thread_run(void *argument)
{
    pread_reader *reader = argument;

    pthread_mutex_lock(&reader->mutex);
    for (;;) {
        while (!reader->closing && !reader->queue.first) pthread_cond_wait(&reader->work, &reader->mutex);
        if (reader->closing) break;

        fby_read_request *request = fby_read_list_pop(&reader->queue);
        pthread_mutex_unlock(&reader->mutex);

        fby_reader_stats stats = {0};
        file_read(request, &stats);

        pthread_mutex_lock(&reader->mutex);
        stats_add(&reader->stats, &stats);
        fby_read_list_push(&reader->done, request);
        pthread_cond_signal(&reader->finished);
    }
    pthread_mutex_unlock(&reader->mutex);
    return NULL;
}

static void pread_submit(fby_reader *base, fby_read_request *request)
{
    pread_reader *reader = (pread_reader *)base;
    bool begun = fby_read_begin(request);

    pthread_mutex_lock(&reader->mutex);
    if (begun) {
        fby_read_list_push(&reader->queue, request);
        pthread_cond_signal(&reader->work);
    } else {
        fby_read_list_push(&reader->done, request);
    }
    pthread_mutex_unlock(&reader->mutex);
}

static uint32_t pread_wait(fby_reader *base, fby_read_request **done, uint32_t most, uint64_t deadline_ns)
{
    pread_reader *reader = (pread_reader *)base;
    struct timespec deadline = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    uint32_t count = 0;
    int status = 0;

    pthread_mutex_lock(&reader->mutex);
    while (deadline_ns && !status && !reader->done.first && !reader->woken) {
        status = deadline_ns == UINT64_MAX
                     ? pthread_cond_wait(&reader->finished, &reader->mutex)
                     : pthread_cond_timedwait(&reader->finished, &reader->mutex, &deadline);
    }
    reader->woken = false;
    while (count < most && reader->done.first) done[count++] = fby_read_list_pop(&reader->done);
    pthread_mutex_unlock(&reader->mutex);
    return count;
}

static void pread_wake(fby_reader *base)
{
    pread_reader *reader = (pread_reader *)base;
    pthread_mutex_lock(&reader->mutex);
    reader->woken = true;
    pthread_cond_signal(&reader->finished);
    pthread_mutex_unlock(&reader->mutex);
}

static void pread_get_stats(const fby_reader *base, fby_reader_stats *out)
{
    pread_reader *reader = (pread_reader *)(uintptr_t)base;
    pthread_mutex_lock(&reader->mutex);
    *out = reader->stats;
    pthread_mutex_unlock(&reader->mutex);
}

/* What no thread has begun is not read; what one has begun is waited for. */
static void pread_destroy(fby_reader *base)
{
    pread_reader *reader = (pread_reader *)base;

    pthread_mutex_lock(&reader->mutex);
    reader->closing = true;
    pthread_cond_broadcast(&reader->work);
    pthread_mutex_unlock(&reader->mutex);
    for (uint32_t i = 0; i < reader->threads; i++) pthread_join(reader->thread[i], NULL);

    pthread_cond_destroy(&reader->finished);
    pthread_cond_destroy(&reader->work);
    pthread_mutex_destroy(&reader->mutex);
    free(reader);
}

static const fby_reader_methods pread_methods = {
    .submit = pread_submit,
    .wait = pread_wait,
    .wake = pread_wake,
    .get_stats = pread_get_stats,
    .destroy = pread_destroy,
};

int fby_reader_pread_create(fby_reader **out, uint32_t depth, uint32_t threads)
{
    pread_reader *reader = calloc(1, sizeof *reader + threads * sizeof reader->thread[0]);
    if (!reader) return -ENOMEM;
    reader->base = (fby_reader){.methods = &pread_methods, .kind = FBY_READER_PREAD, .depth = depth};

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&reader->mutex, NULL);
    pthread_cond_init(&reader->work, NULL);
    pthread_cond_init(&reader->finished, &monotonic);
    pthread_condattr_destroy(&monotonic);

    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = 0;
    while (reader->threads < threads && !status) {
        status = pthread_create(&reader->thread[reader->threads], NULL, thread_run, reader);
        if (status) break;
        pthread_setname_np(reader->thread[reader->threads], "fby-read");
        reader->threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);

    if (status) {
        pread_destroy(&reader->base);
        return -status;
    }
    *out = &reader->base;
    return 0;
}
