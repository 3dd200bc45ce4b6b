#include "python/extension/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { RANGES = 1024 };

/* Written under `lock`; read by the handler without it. An entry whose `end` is 0 is free. `end` is written
 * last and cleared first, so that the handler never pairs one block's start with another's end in a way that
 * widens a range for long; all that a torn pair could cost is a message too many or too few in a process that
 * is dying. */
typedef struct range {
    _Atomic(uintptr_t) start, end;
    const void *owner; /* not read by the handler */
} range;

static range ranges[RANGES];
static size_t range_next;
static atomic_size_t range_count; /* entries ever used */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t watcher;
static struct sigaction previous_segv, previous_bus;

static const char WRITE_TEXT[] =
    "forebay: a batch is read-only, and this program wrote into one (or used it after it was given back).\n"
    "forebay: copy it first (torch.clone, numpy.array), or open the Loader with writable=True.\n";
static const char FORK_TEXT[] =
    "forebay: a forked child used a batch of its parent: batches are not mapped there.\n"
    "forebay: open the Loader in the child, or copy the batch before the fork.\n";

static bool is_watched(uintptr_t address)
{
    size_t count =
        atomic_load_explicit(&range_count, memory_order_acquire); /* pairs with the release in watch */
    for (size_t i = 0; i < count; i++) {
        uintptr_t end = atomic_load_explicit(&ranges[i].end, memory_order_acquire);
        uintptr_t start = atomic_load_explicit(&ranges[i].start, memory_order_relaxed);
        if (end && address >= start && address < end) return true;
    }
    return false;
}

static void say(const char *text, size_t length)
{
    while (length) {
        ssize_t written = write(STDERR_FILENO, text, length);
        if (written <= 0) return;
        text += written;
        length -= (size_t)written;
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const struct sigaction *previous = number == SIGBUS ? &previous_bus : &previous_segv;
    bool fault = info->si_code > 0; /* else somebody sent the signal, and no address comes with it */

    if (fault && is_watched((uintptr_t)info->si_addr)) {
        if (getpid() == watcher) {
            say(WRITE_TEXT, sizeof WRITE_TEXT - 1);
        } else {
            say(FORK_TEXT, sizeof FORK_TEXT - 1);
        }
    }
    if (previous->sa_flags & SA_SIGINFO) {
        previous->sa_sigaction(number, info, context);
        return;
    }
    if (previous->sa_handler == SIG_IGN && !fault) return;
    if (previous->sa_handler != SIG_DFL && previous->sa_handler != SIG_IGN) {
        previous->sa_handler(number);
        return;
    }
    /* A fault happens again at return and is then the default's; a signal that was sent has to be sent again.
     */
    signal(number, SIG_DFL);
    if (!fault) raise(number);
}

static void install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    watcher = getpid();
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
}

void fby_py_fault_watch(const void *owner, const void *memory, size_t bytes)
{
    static bool installed;
    uintptr_t start = (uintptr_t)memory;
    uintptr_t end = start + bytes;

    pthread_mutex_lock(&lock);
    if (!installed) {
        install();
        installed = true;
    }
    /* A child that opens a Loader of its own is the watcher from then on. */
    watcher = getpid();
    size_t count = atomic_load_explicit(&range_count, memory_order_relaxed);
    size_t slot = RANGES;
    for (size_t i = 0; i < count; i++) {
        uintptr_t known = atomic_load_explicit(&ranges[i].end, memory_order_relaxed);
        if (known && ranges[i].owner == owner &&
            atomic_load_explicit(&ranges[i].start, memory_order_relaxed) == start) {
            slot = i;
            break;
        }
        if (!known && slot == RANGES) slot = i;
    }
    if (slot == RANGES) {
        slot = range_next;
        range_next = (range_next + 1) % RANGES;
    }
    atomic_store_explicit(&ranges[slot].end, 0, memory_order_relaxed);
    ranges[slot].owner = owner;
    atomic_store_explicit(&ranges[slot].start, start, memory_order_relaxed);
    atomic_store_explicit(&ranges[slot].end, end,
                          memory_order_release); /* pairs with the handler's acquire */
    if (slot >= count) atomic_store_explicit(&range_count, slot + 1, memory_order_release);
    pthread_mutex_unlock(&lock);
}

void fby_py_fault_forget(const void *owner)
{
    pthread_mutex_lock(&lock);
    size_t count = atomic_load_explicit(&range_count, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].owner != owner) continue;
        atomic_store_explicit(&ranges[i].end, 0, memory_order_release);
        ranges[i].owner = NULL;
    }
    pthread_mutex_unlock(&lock);
}
