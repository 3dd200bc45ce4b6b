#include "python/extension/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "python/extension/fault.h"

enum { ALIGNMENT = 64 };

struct fby_py_session {
    atomic_uint references;
    pid_t owner;
    fby_client *client;
    fby_task *task;
};

struct fby_py_pool {
    atomic_uint references; /* the task's and each lent buffer's */
    pthread_mutex_t lock;   /* guards count, closed and spare */
    uint64_t bytes;
    uint32_t capacity, count;
    bool closed;
    void *spare[];
};

struct fby_py_hold {
    atomic_uint references;
    fby_py_session *session; /* with `batch` */
    fby_batch *batch;
    fby_py_pool *pool; /* with `memory` where it goes back to a pool */
    void *memory;
};

/* Both counters follow one rule: taking a reference orders nothing (the taker has one already); giving one
 * back releases what was done under it, and whoever gives the last one back acquires all of that. */
static void count_up(atomic_uint *references)
{
    atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
}

static bool count_down(atomic_uint *references)
{
    return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

fby_py_session *fby_py_session_create(fby_client *client, fby_task *task)
{
    fby_py_session *session = malloc(sizeof *session);
    if (!session) {
        fby_task_close(&task);
        fby_disconnect(&client);
        return NULL;
    }
    *session = (fby_py_session){.owner = getpid(), .client = client, .task = task};
    atomic_init(&session->references, 1);
    return session;
}

void fby_py_session_keep(fby_py_session *session)
{
    count_up(&session->references);
}

void fby_py_session_drop(fby_py_session *session)
{
    if (!count_down(&session->references)) return;
    if (fby_py_session_foreign(session)) return;
    fby_py_fault_forget(session);
    fby_task_close(&session->task);
    fby_disconnect(&session->client);
    free(session);
}

fby_client *fby_py_session_client(const fby_py_session *session)
{
    return session->client;
}

fby_task *fby_py_session_task(const fby_py_session *session)
{
    return session->task;
}

int32_t fby_py_session_foreign(const fby_py_session *session)
{
    return session->owner == getpid() ? 0 : session->owner;
}

fby_py_pool *fby_py_pool_create(uint64_t bytes, uint32_t kept)
{
    fby_py_pool *pool = calloc(1, sizeof *pool + kept * sizeof pool->spare[0]);
    if (!pool) return NULL;
    atomic_init(&pool->references, 1);
    pthread_mutex_init(&pool->lock, NULL);
    /* aligned_alloc wants a multiple of the alignment. */
    pool->bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pool->capacity = kept;
    return pool;
}

static void pool_release(fby_py_pool *pool)
{
    if (!count_down(&pool->references)) return;
    for (uint32_t i = 0; i < pool->count; i++) free(pool->spare[i]);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void fby_py_pool_drop(fby_py_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    pthread_mutex_unlock(&pool->lock);
    pool_release(pool);
}

static void *pool_take(fby_py_pool *pool)
{
    void *memory = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->count) memory = pool->spare[--pool->count];
    pthread_mutex_unlock(&pool->lock);
    return memory ? memory : aligned_alloc(ALIGNMENT, pool->bytes);
}

static void pool_give(fby_py_pool *pool, void *memory)
{
    pthread_mutex_lock(&pool->lock);
    bool kept = !pool->closed && pool->count < pool->capacity;
    if (kept) pool->spare[pool->count++] = memory;
    pthread_mutex_unlock(&pool->lock);
    if (!kept) free(memory);
}

static fby_py_hold *hold_create(void)
{
    fby_py_hold *hold = calloc(1, sizeof *hold);
    if (hold) atomic_init(&hold->references, 1);
    return hold;
}

fby_py_hold *fby_py_hold_batch(fby_py_session *session, fby_batch *batch)
{
    fby_py_hold *hold = hold_create();
    if (!hold) return NULL;
    fby_py_session_keep(session);
    hold->session = session;
    hold->batch = batch;
    return hold;
}

fby_py_hold *fby_py_hold_buffer(fby_py_pool *pool)
{
    fby_py_hold *hold = hold_create();
    if (!hold) return NULL;
    hold->memory = pool_take(pool);
    if (!hold->memory) {
        free(hold);
        return NULL;
    }
    count_up(&pool->references);
    hold->pool = pool;
    return hold;
}

fby_py_hold *fby_py_hold_plain(uint64_t bytes)
{
    fby_py_hold *hold = hold_create();
    if (!hold) return NULL;
    hold->memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (!hold->memory) {
        free(hold);
        return NULL;
    }
    return hold;
}

void *fby_py_hold_memory(const fby_py_hold *hold)
{
    return hold->memory;
}

void fby_py_hold_keep(fby_py_hold *hold)
{
    count_up(&hold->references);
}

void fby_py_hold_drop(fby_py_hold *hold)
{
    if (!count_down(&hold->references)) return;
    if (hold->batch) {
        if (!fby_py_session_foreign(hold->session)) fby_batch_release(&hold->batch);
        fby_py_session_drop(hold->session);
    } else if (hold->pool) {
        pool_give(hold->pool, hold->memory);
        pool_release(hold->pool);
    } else {
        free(hold->memory);
    }
    free(hold);
}
