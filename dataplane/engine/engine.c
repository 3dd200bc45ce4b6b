/* A lot's way: submit puts its jobs on the read ring (a backlog keeps the order where that is full), readers
 * move them to the work ring, workers run them, the last to finish puts the lot on the finished ring and
 * wakes the conductor if it sleeps.
 *
 * A job's state is 0 at rest; while a worker decodes it, a key that no other run ever has (the worker's
 * number and its count of runs); the key with WRITING once its outputs are written; ABANDONED once the
 * conductor gave it up. Worker and conductor both leave the key by one compare-and-swap: exactly one wins,
 * and the winner alone writes the outcome. Hence who was given up never writes, however late it returns from
 * a decoder; and whoever writes is waited for: it computes, and does nothing that could hang. */
#include "dataplane/engine/engine.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/engine/internal.h"

enum { JOB_AT_REST = 0, JOB_ABANDONED = 1 };

static const uint64_t IDLE_NS = 1000 * 1000 * 1000ull;
static const uint64_t WRITING = UINT64_C(1) << 63; /* no key has this bit: workers are counted in 31 */

static fby_job unread_token; /* its address says: look at the ring of those for which nothing is read */

static uint64_t run_key(const fby_worker *worker)
{
    return (uint64_t)(worker->number + 1) << 32 | worker->runs;
}

/* --- finishing
 * ---------------------------------------------------------------------------------------------------- */

static void conductor_wake(fby_engine *engine)
{
    /* Dekker with fby_engine_park: what was put before the fence is seen by a conductor that looks after
     * parking, or its flag is seen here. */
    fby_fence_seq_cst();
    if (!fby_load_relaxed_u32(&engine->parked)) return; /* ordered by the fence */
    uint32_t expected = 1;
    if (!fby_compare_exchange_seq_cst_u32(&engine->parked, &expected, 0)) return;
    uint64_t one = 1;
    while (write(engine->event_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

/* Counts down; true for whoever finished the lot. The read-modify-writes order every worker's writes to the
 * block before the last one's. */
static bool lot_count_down(fby_lot *lot)
{
    return fby_fetch_add_seq_cst_u32(&lot->remaining, (uint32_t)-1) == 1;
}

void fby_job_finish(fby_engine *engine, fby_job *job)
{
    fby_lot *lot = job->lot;
    if (!lot_count_down(lot)) return;
    fby_ring_put(engine->finished_ring, lot); /* the conductor always empties it */
    conductor_wake(engine);
}

/* The same by the conductor, who mustn't wait for itself. */
static void job_finish_early(fby_engine *engine, fby_job *job)
{
    fby_lot *lot = job->lot;
    if (!lot_count_down(lot)) return;
    lot->next = engine->finished_early;
    engine->finished_early = lot;
}

/* --- workers
 * ------------------------------------------------------------------------------------------------------ */

static void sample_describe(fby_sample_meta *meta, const fby_plan *plan, uint32_t branch_number, uint64_t id,
                            uint64_t label)
{
    fby_branch_info branch = fby_plan_branch(plan, branch_number);
    *meta = (fby_sample_meta){
        .id = id, .label = label, .dimensions = branch.dimensions, .bytes = branch.sample_bytes};
    memcpy(meta->shape, branch.shape, sizeof meta->shape);
}

/* A worker's hold on a job. */
typedef struct hold {
    fby_job *job;
    uint64_t key;
    bool writing, lost;
} hold;

static bool hold_commit(void *user)
{
    hold *it = user;
    uint64_t expected = it->key;
    it->writing = fby_compare_exchange_seq_cst_u64(&it->job->state, &expected, it->key | WRITING);
    it->lost = !it->writing;
    return it->writing;
}

/* Ends the hold; false where the job was taken away meanwhile. */
static bool hold_end(hold *it)
{
    if (it->writing) {
        fby_store_relaxed_u64(&it->job->state, JOB_AT_REST); /* its own: the lot's count-down publishes it */
        return true;
    }
    uint64_t expected = it->key;
    return !it->lost && fby_compare_exchange_seq_cst_u64(&it->job->state, &expected, JOB_AT_REST);
}

/* What is to be done for a job, but for where the results go. */
static void work_set(fby_work *work, const fby_lot *lot, const fby_job *job)
{
    *work = (fby_work){.id = job->id,
                       .turn = job->turn,
                       .epoch = job->epoch,
                       .repeat = job->repeat,
                       .echo_count = lot->echo_count,
                       .echo_stages = lot->echo_stages,
                       .items = job->items};
    uint32_t index = (uint32_t)(job - lot->jobs);
    for (uint32_t i = 0; i < lot->output_count; i++)
        if (lot->outputs[i].targets[index].payload) work->branches |= UINT64_C(1) << lot->outputs[i].branch;
}

/* False where the job was taken from it meanwhile: the worker is abandoned. */
static bool job_run(fby_worker *worker, fby_job *job)
{
    fby_engine *engine = worker->engine;
    fby_lot *lot = job->lot;
    uint32_t index = (uint32_t)(job - lot->jobs);
    hold held = {.job = job, .key = run_key(worker)};
    fby_buffer *buffer = job->buffer; /* its own until it gives it back, or returns late */
    worker->runs++;

    /* Whatever is needed of job and lot is read before the key is out: from then on the conductor may take
     * both away, and use them anew, however short a while this thread has run in between. */
    const fby_plan *plan = lot->plan;
    void *out[FBY_PLAN_BRANCHES];
    fby_kept_item *items[FBY_LOT_ECHOES];
    int32_t echo_stages[FBY_LOT_ECHOES];
    fby_work work;
    work_set(&work, lot, job);
    work.bytes = buffer ? buffer->bytes : NULL;
    work.length = buffer ? (size_t)job->read.size : 0;
    work.out = out;
    work.items = items;
    work.echo_stages = echo_stages;
    work.commit = hold_commit;
    work.user = &held;
    for (uint32_t i = 0; i < work.echo_count; i++) {
        items[i] = fby_kept_item_hold(job->items[i]); /* its own: the conductor may let go of it meanwhile */
        echo_stages[i] = lot->echo_stages[i];
    }
    for (uint32_t i = 0; i < lot->output_count; i++) {
        const fby_output *output = &lot->outputs[i];
        if (output->targets[index].payload) out[output->branch] = output->targets[index].payload;
    }

    fby_store_release_u64(&job->state,
                          held.key); /* before worker->state names the key: look_after swaps from it */
    __atomic_store_n(&worker->job, job, __ATOMIC_RELAXED);  /* published by worker->state */
    fby_store_relaxed_u64(&worker->since_ns, fby_now_ns()); /* published by worker->state */
    fby_store_release_u64(&worker->state, held.key);        /* pairs with look_after's acquire */

    fby_failure failure = {FBY_REASON_NONE, "", ""};
    fby_reason reason = fby_plan_run(plan, worker->scratch, &work, &failure);
    for (uint32_t i = 0; i < work.echo_count; i++) fby_kept_item_release(items[i]);

    fby_store_release_u64(&worker->state, 0); /* the key is of no use any more */
    /* Where the job was taken from it, the lot isn't its own any more, and the buffer is the conductor's to
     * free. */
    if (!hold_end(&held)) return false;
    job->buffer = NULL;
    job->reason = reason;
    if (reason == FBY_REASON_NONE) {
        uint64_t label = (uint64_t)fby_dataset_label(lot->dataset, job->id);
        for (uint32_t i = 0; i < lot->output_count; i++)
            if (lot->outputs[i].targets[index].payload)
                sample_describe(lot->outputs[i].targets[index].meta, plan, lot->outputs[i].branch, job->id,
                                label);
    } else {
        snprintf(job->op, sizeof job->op, "%s", failure.op ? failure.op : "");
        snprintf(job->text, sizeof job->text, "%s", failure.text);
        fby_fetch_add_relaxed_u64(&worker->bad, 1); /* a count for status */
    }
    fby_job_finish(engine, job);
    if (buffer) fby_buffer_return(engine, buffer);
    fby_scratch_times times;
    fby_scratch_get_times(worker->scratch, &times);
    fby_store_relaxed_u64(&worker->decode_ns, times.decode_ns); /* for status, all of these */
    fby_store_relaxed_u64(&worker->transform_ns, times.transform_ns);
    fby_store_relaxed_u64(&worker->samples, times.samples);
    fby_store_relaxed_u64(&worker->jpegs.own, times.jpegs.own);
    fby_store_relaxed_u64(&worker->jpegs.declined, times.jpegs.declined);
    fby_store_relaxed_u64(&worker->scratch_bytes, fby_scratch_bytes(worker->scratch));
    return true;
}

static void *worker_main(void *argument)
{
    fby_worker *worker = argument;
    fby_engine *engine = worker->engine;
    prctl(PR_SET_NAME, "fby-worker");
    fby_place_enter(&worker->place);
    while (!fby_load_acquire_u32(&worker->retire)) {
        void *item;
        if (!fby_mpmc_take(engine->unread_ring, &item)) {
            if (!fby_mpmc_take_wait(engine->work_ring, &item, 0, fby_now_ns() + IDLE_NS)) continue;
            if (item == &unread_token) continue;
        }
        if (!job_run(worker, item)) break;
    }
    fby_store_release_u32(&worker->returned, 1); /* pairs with look_after's acquire */
    conductor_wake(engine);
    return NULL;
}

static int worker_add(fby_engine *engine, const fby_place *place, fby_error *error)
{
    fby_worker *worker = aligned_alloc(FBY_CACHE_PAIR, (sizeof *worker + FBY_CACHE_PAIR - 1) /
                                                           FBY_CACHE_PAIR * FBY_CACHE_PAIR);
    if (!worker) return fby_fail(error, FBY_ENOMEM, "no memory for a worker");
    memset(worker, 0, sizeof *worker);
    worker->engine = engine;
    worker->number = engine->next_number++;
    worker->runs = 1;
    worker->place = *place;
    if (fby_scratch_create(&worker->scratch)) {
        free(worker);
        return fby_fail(error, FBY_ENOMEM, "no memory for a worker's scratch");
    }
    int refused = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (refused) {
        fby_scratch_destroy(&worker->scratch);
        free(worker);
        return fby_fail(error, FBY_EIO, "can't start a worker thread: %s", strerror(refused));
    }
    worker->next = engine->workers;
    engine->workers = worker;
    engine->worker_count++;
    return 0;
}

/* One more buffer for the readers to fill; NULL where memory is short. */
static fby_buffer *buffer_make(fby_engine *engine)
{
    fby_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer) return NULL;
    buffer->next = engine->buffers;
    engine->buffers = buffer;
    return buffer;
}

static void buffer_free(fby_engine *engine, fby_buffer *buffer)
{
    fby_buffer **link = &engine->buffers;
    while (*link != buffer) link = &(*link)->next;
    *link = buffer->next;
    fby_fetch_add_relaxed_u64(&engine->buffer_bytes, 0 - buffer->capacity); /* a count for status */
    free(buffer->bytes);
    free(buffer);
}

static uint64_t thread_cpu_ns(pthread_t thread)
{
    clockid_t clock;
    struct timespec time;
    if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &time)) return 0;
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

/* Unlinks and frees a worker whose thread has left its last decoder. */
static void worker_remove(fby_engine *engine, fby_worker *worker)
{
    engine->retired_cpu_ns += thread_cpu_ns(worker->thread);
    pthread_join(worker->thread, NULL);
    engine->retired_decode_ns += worker->decode_ns;
    engine->retired_transform_ns += worker->transform_ns;
    engine->retired_samples += worker->samples;
    engine->retired_bad += worker->bad;
    engine->retired_jpegs.own += worker->jpegs.own;
    engine->retired_jpegs.declined += worker->jpegs.declined;
    fby_worker **link = &engine->workers;
    while (*link != worker) link = &(*link)->next;
    *link = worker->next;
    if (worker->kept) buffer_free(engine, worker->kept);
    fby_plan_destroy(&worker->kept_plan);
    fby_scratch_destroy(&worker->scratch);
    free(worker);
}

/* --- looking after
 * -------------------------------------------------------------------------------------------------- */

/* Another worker in the place of an abandoned one; tried again as long as the system refuses the thread. */
static void worker_replace(fby_engine *engine, fby_worker *worker)
{
    fby_place place = worker->place;
    worker->owed = worker_add(engine, &place, NULL) != 0;
}

static void worker_abandon(fby_engine *engine, fby_worker *worker, fby_job *job, uint64_t elapsed_ns)
{
    job->reason = FBY_REASON_TIMEOUT;
    worker->kept = job->buffer;
    worker->kept_plan = fby_plan_hold(job->lot->plan);
    job->buffer = NULL;
    snprintf(job->op, sizeof job->op, "decode");
    snprintf(job->text, sizeof job->text, "no answer for %.1f s", (double)elapsed_ns * 1e-9);
    worker->abandoned = true;
    bool retired =
        fby_load_relaxed_u32(&worker->retire); /* the conductor's own word: another took its place already */
    fby_store_release_u32(&worker->retire, 1); /* pairs with worker_main's load */
    engine->worker_count--;
    if (!retired) worker_replace(engine, worker);
    job_finish_early(engine, job);
}

static void worker_check(fby_engine *engine, fby_worker *worker, uint64_t now_ns)
{
    uint64_t key = fby_load_acquire_u64(&worker->state); /* pairs with job_run's release */
    if (!key) return;
    fby_job *job =
        __atomic_load_n(&worker->job, __ATOMIC_RELAXED); /* under the same key before and after: consistent */
    uint64_t since = fby_load_relaxed_u64(&worker->since_ns);
    if (fby_load_acquire_u64(&worker->state) != key) return;
    /* A lot is freed by this thread alone, and only after it came back: under this key it is still out. */
    if (now_ns < since || now_ns - since <= job->lot->timeout_ns) return;
    /* What it holds may never come back: readers get another buffer, or soon there would be none. */
    bool read = !job->unread;
    fby_buffer *buffer = read ? buffer_make(engine) : NULL;
    uint64_t expected = key;
    if (read && !buffer) return; /* looked at again soon */
    if (!fby_compare_exchange_seq_cst_u64(&job->state, &expected, JOB_ABANDONED)) {
        if (buffer) buffer_free(engine, buffer);
        return;
    }
    worker_abandon(engine, worker, job, now_ns - since);
    if (buffer) fby_buffer_return(engine, buffer);
}

/* Puts a job on the ring that it belongs on; false where that has no place now. */
static bool job_put(fby_engine *engine, fby_job *job)
{
    if (!job->unread) return fby_mpmc_put(engine->read_ring, job);
    if (engine->unread == UNREAD_MOST || !fby_mpmc_put(engine->unread_ring, job)) return false;
    /* Tokens of samples that were taken meanwhile may lie there still: where there are that many of anything,
     * nobody sleeps. */
    if (fby_mpmc_size(engine->work_ring) < UNREAD_MOST) fby_mpmc_put(engine->work_ring, &unread_token);
    engine->unread++;
    engine->unread_total++;
    return true;
}

static void backlog_drain(fby_engine *engine)
{
    bool moved = false;
    while (engine->backlog_count && job_put(engine, engine->backlog[engine->backlog_first])) {
        engine->backlog_first = (engine->backlog_first + 1) % engine->backlog_room;
        engine->backlog_count--;
        moved = true;
    }
    if (moved) fby_input_wake(engine, WANTS_JOBS);
}

bool fby_engine_look_after(fby_engine *engine, uint64_t now_ns)
{
    backlog_drain(engine);
    for (fby_worker *worker = engine->workers, *next; worker; worker = next) {
        next = worker->next;
        if (fby_load_acquire_u32(&worker->returned)) { /* pairs with worker_main's release */
            if (worker->owed) worker_replace(engine, worker);
            if (worker->owed) continue;
            if (!worker->abandoned) engine->worker_count--;
            worker_remove(engine, worker);
            continue;
        }
        if (worker->owed) worker_replace(engine, worker);
        if (!worker->abandoned) worker_check(engine, worker, now_ns);
    }
    return engine->backlog_count != 0;
}

/* --- the conductor's side
 * -------------------------------------------------------------------------------------------- */

static bool backlog_put(fby_engine *engine, fby_job *job)
{
    if (engine->backlog_count == engine->backlog_room) {
        uint32_t room = engine->backlog_room ? engine->backlog_room * 2 : 1024;
        fby_job **larger = malloc(room * sizeof *larger);
        if (!larger) return false;
        for (uint32_t i = 0; i < engine->backlog_count; i++)
            larger[i] = engine->backlog[(engine->backlog_first + i) % engine->backlog_room];
        free(engine->backlog);
        engine->backlog = larger;
        engine->backlog_first = 0;
        engine->backlog_room = room;
    }
    engine->backlog[(engine->backlog_first + engine->backlog_count++) % engine->backlog_room] = job;
    return true;
}

/* Whether all that a job needs is kept somewhere, so that nothing is read for it. */
static bool is_unread(const fby_lot *lot, const fby_job *job)
{
    if (!lot->echo_count && !fby_plan_has_caches(lot->plan)) return false;
    fby_work work;
    work_set(&work, lot, job);
    return !fby_plan_reads(lot->plan, &work);
}

void fby_engine_submit(fby_engine *engine, fby_lot *lot)
{
    uint32_t count = lot->count;
    lot->bad = 0;
    /* Before any job is out; the rings' release edges publish it with the jobs. */
    fby_store_relaxed_u32(&lot->remaining, count);
    bool reads = false;
    for (uint32_t i = 0; i < count; i++) {
        fby_job *job = &lot->jobs[i];
        job->lot = lot;
        job->reason = FBY_REASON_NONE;
        job->unread = is_unread(lot, job);
        fby_store_relaxed_u64(&job->state, JOB_AT_REST);
        reads = reads || !job->unread;
        if (engine->backlog_count == 0 && job_put(engine, job)) continue;
        if (backlog_put(engine, job)) continue;
        job->reason = FBY_REASON_MEMORY;
        snprintf(job->op, sizeof job->op, "read");
        snprintf(job->text, sizeof job->text, "no memory to queue it");
        job->unread = false; /* it isn't counted */
        job_finish_early(engine, job);
    }
    if (reads) fby_input_wake(engine, WANTS_JOBS);
}

fby_lot *fby_engine_finished(fby_engine *engine)
{
    void *item = engine->finished_early;
    if (item)
        engine->finished_early = engine->finished_early->next;
    else if (!fby_mpmc_take(engine->finished_ring, &item))
        return NULL;
    fby_lot *lot = item;
    for (uint32_t i = 0; i < lot->count; i++) {
        lot->bad += lot->jobs[i].reason != FBY_REASON_NONE;
        engine->unread -= lot->jobs[i].unread;
    }
    if (engine->backlog_count) backlog_drain(engine);
    return lot;
}

int fby_engine_event(const fby_engine *engine)
{
    return engine->event_fd;
}

void fby_engine_park(fby_engine *engine)
{
    fby_exchange_seq_cst_u32(&engine->parked, 1);
    fby_fence_seq_cst(); /* before the rings, whose loads are no seq_cst ones, are looked at again: pairs with
                            conductor_wake's fence */
}

void fby_engine_unpark(fby_engine *engine)
{
    fby_store_relaxed_u32(&engine->parked, 0); /* who still saw 1 writes the eventfd for nothing */
}

/* --- life
 * ------------------------------------------------------------------------------------------------------------
 */

int fby_engine_use_cpus(fby_engine *engine, const fby_cpus *cpus, fby_error *error)
{
    uint32_t wanted =
        engine->options.workers ? engine->options.workers : fby_grant_threads(cpus, fby_grant_quota("/"));
    fby_place *places = calloc(wanted, sizeof *places);
    if (!places) return fby_fail(error, FBY_ENOMEM, "no memory for %u workers", wanted);
    int status = fby_placement_plan(engine->options.topology, cpus, wanted, places, error);
    if (status) goto out;
    fby_worker *before = engine->workers;
    for (uint32_t i = 0; i < wanted && !status; i++) status = worker_add(engine, &places[i], error);
    if (engine->workers == before) goto out; /* those there go on as they are */
    status = 0;                              /* perhaps fewer than wanted, but at work */
    engine->options.cpus = *cpus;
    /* Whoever works is replaced rather than moved: a thread pins itself. Retired ones finish their sample
     * first. */
    for (fby_worker *worker = before; worker; worker = worker->next) {
        worker->owed = false;
        fby_store_release_u32(&worker->retire, 1); /* pairs with worker_main's load */
    }
    fby_mpmc_wake_all(engine->work_ring);
out:
    free(places);
    return status;
}

int fby_engine_create(fby_engine **out, const fby_engine_options *options, fby_error *error)
{
    *out = NULL;
    int status = 0;
    fby_engine *engine = aligned_alloc(FBY_CACHE_PAIR, (sizeof *engine + FBY_CACHE_PAIR - 1) /
                                                           FBY_CACHE_PAIR * FBY_CACHE_PAIR);
    if (!engine) return fby_fail(error, FBY_ENOMEM, "no memory for the engine");
    memset(engine, 0, sizeof *engine);
    engine->options = *options;
    engine->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine->event_fd < 0) {
        status = fby_fail(error, FBY_EIO, "eventfd: %s", strerror(errno));
        goto failed;
    }
    uint32_t readers = options->readers ? options->readers : 1;
    uint32_t workers =
        options->workers ? options->workers : fby_grant_threads(&options->cpus, fby_grant_quota("/"));
    uint32_t depth = options->reader.depth ? options->reader.depth : 32;
    engine->buffer_count = readers * depth + 2 * workers + 8;
    engine->inputs = aligned_alloc(FBY_CACHE_PAIR, readers * sizeof *engine->inputs);
    if (!engine->inputs) {
        status = fby_fail(error, FBY_ENOMEM, "no memory for %u readers", readers);
        goto failed;
    }
    memset(engine->inputs, 0, readers * sizeof *engine->inputs);
    status = fby_mpmc_create(&engine->read_ring, READ_RING, error);
    if (!status) status = fby_mpmc_create(&engine->work_ring, engine->buffer_count + UNREAD_MOST, error);
    if (!status) status = fby_mpmc_create(&engine->unread_ring, UNREAD_MOST, error);
    if (!status) status = fby_mpmc_create(&engine->free_buffers, engine->buffer_count, error);
    if (!status) status = fby_mpmc_create(&engine->finished_ring, READ_RING, error);
    for (uint32_t i = 0; !status && i < engine->buffer_count; i++) {
        fby_buffer *buffer = buffer_make(engine);
        if (buffer)
            fby_ring_put(engine->free_buffers, buffer);
        else
            status = fby_fail(error, FBY_ENOMEM, "no memory for %u read buffers", engine->buffer_count);
    }
    for (uint32_t i = 0; !status && i < readers; i++) {
        status = fby_input_start(&engine->inputs[i], engine, &options->reader, error);
        engine->input_count += !status;
    }
    if (!status) status = fby_engine_use_cpus(engine, &options->cpus, error);
    if (status) goto failed;
    *out = engine;
    return 0;
failed:
    fby_engine_destroy(&engine);
    return status;
}

/* Waits up to a second for the workers to leave; true where one doesn't. */
static bool workers_end(fby_engine *engine)
{
    for (fby_worker *worker = engine->workers; worker; worker = worker->next)
        fby_store_release_u32(&worker->retire, 1);
    if (engine->work_ring) fby_mpmc_wake_all(engine->work_ring);
    for (int attempt = 0; engine->workers && attempt < 200; attempt++) {
        for (fby_worker *worker = engine->workers, *next; worker; worker = next) {
            next = worker->next;
            if (fby_load_acquire_u32(&worker->returned)) worker_remove(engine, worker);
        }
        if (engine->workers) nanosleep(&(struct timespec){0, 5 * 1000 * 1000}, NULL);
        if (engine->work_ring) fby_mpmc_wake_all(engine->work_ring);
    }
    return engine->workers != NULL;
}

bool fby_engine_destroy(fby_engine **handle)
{
    fby_engine *engine = *handle;
    if (!engine) return false;
    *handle = NULL;
    /* Workers first: the last thing that one does is to wake a reader. */
    if (workers_end(engine)) return true; /* it may still use any of it */
    for (uint32_t i = 0; i < engine->input_count; i++) fby_input_stop(&engine->inputs[i]);
    fby_mpmc_destroy(&engine->read_ring);
    fby_mpmc_destroy(&engine->work_ring);
    fby_mpmc_destroy(&engine->unread_ring);
    fby_mpmc_destroy(&engine->finished_ring);
    fby_mpmc_destroy(&engine->free_buffers);
    while (engine->buffers) buffer_free(engine, engine->buffers);
    free(engine->inputs);
    free(engine->backlog);
    if (engine->event_fd >= 0) close(engine->event_fd);
    free(engine);
    return false;
}

/* --- figures
 * ----------------------------------------------------------------------------------------------------------
 */

void fby_engine_get_stats(const fby_engine *engine, fby_engine_stats *out)
{
    *out = (fby_engine_stats){.workers = engine->worker_count,
                              .readers = engine->input_count,
                              .worker_cpu_ns = engine->retired_cpu_ns,
                              .decode_ns = engine->retired_decode_ns,
                              .transform_ns = engine->retired_transform_ns,
                              .samples = engine->retired_samples,
                              .bad = engine->retired_bad,
                              .jpegs = engine->retired_jpegs,
                              .unread = engine->unread_total};
    for (const fby_worker *worker = engine->workers; worker; worker = worker->next) {
        out->abandoned += worker->abandoned;
        out->worker_cpu_ns += thread_cpu_ns(worker->thread);
        out->decode_ns += fby_load_relaxed_u64(&worker->decode_ns);
        out->transform_ns += fby_load_relaxed_u64(&worker->transform_ns);
        out->samples += fby_load_relaxed_u64(&worker->samples);
        out->bad += fby_load_relaxed_u64(&worker->bad);
        out->jpegs.own += fby_load_relaxed_u64(&worker->jpegs.own);
        out->jpegs.declined += fby_load_relaxed_u64(&worker->jpegs.declined);
        out->scratch_bytes += fby_load_relaxed_u64(&worker->scratch_bytes);
    }
    for (uint32_t i = 0; i < engine->input_count; i++) {
        fby_input_get_stats(&engine->inputs[i], &out->reader);
        out->reader_cpu_ns += thread_cpu_ns(engine->inputs[i].thread);
    }
    out->buffer_bytes = fby_load_relaxed_u64(&engine->buffer_bytes);
    out->work_waiting = fby_mpmc_size(engine->work_ring) + fby_mpmc_size(engine->unread_ring);
    out->read_waiting = fby_mpmc_size(engine->read_ring) + engine->backlog_count;
}

const char *fby_engine_reader_about(const fby_engine *engine)
{
    return engine->input_count ? fby_reader_about(engine->inputs[0].reader) : "";
}
