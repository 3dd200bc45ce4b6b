#include "codec/fbl/parallel.h"

#include <pthread.h>
#include <stdbool.h>

enum { MOST = 256 };

typedef struct turn {
    void (*run)(void *context, uint32_t worker);
    void *context;
    uint32_t worker;
    pthread_t thread;
    bool started;
} turn;

static void *turn_run(void *of)
{
    turn *it = of;
    it->run(it->context, it->worker);
    return NULL;
}

void fbl_parallel(uint32_t workers, void (*run)(void *context, uint32_t worker), void *context)
{
    turn turns[MOST];

    if (workers > MOST) workers = MOST;
    for (uint32_t i = 1; i < workers; i++) {
        turns[i] = (turn){.run = run, .context = context, .worker = i};
        turns[i].started = !pthread_create(&turns[i].thread, NULL, turn_run, &turns[i]);
    }
    run(context, 0);
    for (uint32_t i = 1; i < workers; i++) {
        if (turns[i].started) pthread_join(turns[i].thread, NULL);
    }
}
