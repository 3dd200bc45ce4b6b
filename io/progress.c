#include "io/progress.h"

#include "io/clock.h"

enum { REPORT_EVERY_NS = 100000000 };

void fby_progress_begin(fby_progress *progress, fby_dataset_progress *call, void *user)
{
    *progress = (fby_progress){.call = call, .user = user};
    pthread_mutex_init(&progress->turn, NULL);
}

void fby_progress_end(fby_progress *progress)
{
    pthread_mutex_destroy(&progress->turn);
}

/* Counters and flag are independent of one another and publish nothing: relaxed suffices. */
bool fby_progress_add(fby_progress *progress, uint64_t found, uint64_t done)
{
    found += atomic_fetch_add_explicit(&progress->found, found, memory_order_relaxed);
    done += atomic_fetch_add_explicit(&progress->done, done, memory_order_relaxed);

    if (progress->call && !pthread_mutex_trylock(&progress->turn)) {
        uint64_t now = fby_io_now_ns();
        if (now >= progress->next_ns) {
            progress->next_ns = now + REPORT_EVERY_NS;
            if (!progress->call(progress->user, found, done)) {
                atomic_store_explicit(&progress->cancelled, true, memory_order_relaxed);
            }
        }
        pthread_mutex_unlock(&progress->turn);
    }
    return !atomic_load_explicit(&progress->cancelled, memory_order_relaxed);
}
