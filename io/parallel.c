#include "io/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

enum { PARALLEL_MOST = 64 };

typedef struct parallel_call {
    void (*body)(void *argument);
    void *argument;
} parallel_call;

uint32_t fby_parallel_default(void)
{
    cpu_set_t allowed;
    /* It fails where there are more than 1,024 CPUs: there are 8 then. */
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 8;
    int cpus = CPU_COUNT(&allowed);
    return cpus > 8 ? 8 : (uint32_t)cpus;
}

static void *thread_run(void *argument)
{
    const parallel_call *call = argument;
    pthread_setname_np(pthread_self(), "fby-index");
    call->body(call->argument);
    return NULL;
}

void fby_parallel_run(uint32_t threads, void (*body)(void *argument), void *argument)
{
    parallel_call call = {body, argument};
    pthread_t helper[PARALLEL_MOST];
    uint32_t helpers = 0;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (helpers + 1 < threads && helpers < PARALLEL_MOST) {
        if (pthread_create(&helper[helpers], NULL, thread_run, &call)) break;
        helpers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);

    body(argument);
    for (uint32_t i = 0; i < helpers; i++) pthread_join(helper[i], NULL);
}
