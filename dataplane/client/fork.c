#include <pthread.h>

#include "dataplane/client/internal.h"

/* Bumped in the child alone: fork leaves it with one thread, so a plain variable will do. */
static uint32_t forks;

static void fork_count(void)
{
    forks++;
}

__attribute__((constructor)) static void fork_watch(void)
{
    pthread_atfork(NULL, NULL, fork_count);
}

uint32_t fby_fork_generation(void)
{
    return forks;
}

int fby_fork_check(uint32_t generation, fby_error *error)
{
    if (generation == forks) return 0;
    return fby_fail(error, FBY_EFORKED,
                    "this handle was opened before fork() and belongs to the parent process: connect and "
                    "open the task again in the child");
}
