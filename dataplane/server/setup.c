/* The set-up thread: what may take long and isn't the conductor's to wait for. Opening a task (parsing,
 * indexing, planning, mapping and populating its memory) and freeing one. It shares nothing with the
 * conductor but the two rings, the budget and a job's atomics. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "dataplane/server/internal.h"
#include "ringbuf/atomic.h"

enum { REQUESTS = 4096, LEAST_WINDOW_SAMPLES = 128 };

bool fby_budget_take(fby_budget *budget, uint64_t bytes)
{
    uint64_t used = fby_load_relaxed_u64(&budget->used); /* the swap decides */
    do {
        if (bytes > budget->limit || used > budget->limit - bytes) return false;
    } while (!fby_compare_exchange_relaxed_u64(&budget->used, &used, used + bytes));
    return true;
}

void fby_budget_give(fby_budget *budget, uint64_t bytes)
{
    fby_fetch_add_relaxed_u64(&budget->used, 0 - bytes); /* a sum: nothing is ordered by it */
}

static uint32_t power_of_two(uint32_t least)
{
    uint32_t power = 1;
    while (power < least) power *= 2;
    return power;
}

static bool progress_note(void *user, uint64_t found, uint64_t done)
{
    fby_setup_job *job = user;
    fby_store_relaxed_u64(&job->found, found); /* for show, both */
    fby_store_relaxed_u64(&job->done, done);
    return !fby_load_relaxed_u32(&job->cancelled); /* a wish */
}

static int classes_write(fby_subscription *task, fby_error *error)
{
    uint32_t classes = fby_dataset_classes(task->dataset);
    if (!classes) return 0;
    task->classes_fd = memfd_create("forebay-classes", MFD_CLOEXEC);
    int copy = task->classes_fd >= 0 ? fcntl(task->classes_fd, F_DUPFD_CLOEXEC, 0) : -1;
    FILE *file = copy >= 0 ? fdopen(copy, "w") : NULL;
    if (!file) {
        int status =
            fby_fail(error, FBY_EIO, "a memfd for the names of %u classes: %s", classes, strerror(errno));
        if (copy >= 0) close(copy);
        return status;
    }
    for (uint32_t i = 0; i < classes; i++) {
        const char *name = fby_dataset_class(task->dataset, i);
        fwrite(name, 1, strlen(name) + 1, file);
    }
    bool failed = ferror(file);
    if (fclose(file) || failed)
        return fby_fail(error, FBY_ENOMEM, "no memory for the names of %u classes", classes);
    return 0;
}

/* Refuses with the figures where --memory is short. */
static int memory_reserve(fby_subscription *task, uint64_t segment_bytes, uint64_t other_bytes,
                          fby_error *error)
{
    fby_budget *budget = &task->server->budget;
    const fby_spec *spec = task->spec;
    uint64_t needed = segment_bytes + other_bytes + fby_sampler_bytes(task->sampler) +
                      fby_dataset_index_bytes(task->dataset);
    if (fby_budget_take(budget, needed)) {
        task->reserved_bytes = needed;
        return 0;
    }
    uint64_t used = fby_load_relaxed_u64(&budget->used);
    return fby_fail(
        error, FBY_ENOMEM,
        "%s: the task needs at least %.1f MiB (%u blocks of %u samples of %llu bytes), but of the %.1f MiB "
        "that --memory allows %.1f MiB are free: raise --memory, or make batch or window smaller",
        spec->name, (double)needed / (1 << 20), task->slot_count, spec->batch_size,
        (unsigned long long)task->branch.sample_bytes, (double)budget->limit / (1 << 20),
        (double)(budget->limit > used ? budget->limit - used : 0) / (1 << 20));
}

static int places_make(fby_subscription *task, fby_error *error)
{
    task->slots = calloc(task->slot_count, sizeof *task->slots);
    task->free_slots = calloc(task->slot_count, sizeof *task->free_slots);
    task->pending = calloc(task->slot_count, sizeof *task->pending);
    task->bad_counts = calloc(task->slot_count, sizeof *task->bad_counts);
    if (!task->slots || !task->free_slots || !task->pending || !task->bad_counts)
        return fby_fail(error, FBY_ENOMEM, "no memory for %u blocks' bookkeeping", task->slot_count);
    const fby_segment_header *head = fby_segment_head(&task->segment);
    for (uint32_t i = task->slot_count; i-- > 0;) {
        fby_slot *slot = &task->slots[i];
        slot->task = task;
        slot->index = i;
        slot->generation = 1;
        slot->lot.owner = slot;
        slot->lot.room = task->spec->batch_size;
        slot->lot.jobs = calloc(slot->lot.room, sizeof *slot->lot.jobs);
        slot->again = calloc(slot->lot.room, sizeof *slot->again);
        if (!slot->lot.jobs || !slot->again)
            return fby_fail(error, FBY_ENOMEM, "no memory for %u blocks' bookkeeping", task->slot_count);
        slot->lot.payload = fby_block_payload(&task->segment, i);
        slot->lot.meta = fby_block_meta_at(&task->segment, i);
        slot->lot.sample_stride = head->sample_stride;
        task->free_slots[task->free_count++] = slot;
    }
    return 0;
}

static int memory_make(fby_subscription *task, fby_error *error)
{
    const fby_spec *spec = task->spec;
    const fby_branch_info *branch = &task->branch;
    /* The window, and one block so that short batches at an epoch's end never stop the next draw. */
    uint64_t window = spec->window;
    if (window * spec->batch_size < LEAST_WINDOW_SAMPLES)
        window = (LEAST_WINDOW_SAMPLES + spec->batch_size - 1) / spec->batch_size;
    task->window = (uint32_t)window;
    task->slot_count = (uint32_t)window + 1;
    fby_segment_shape shape = {.segment = 1,
                               .first_block = FIRST_BLOCK,
                               .blocks = task->slot_count,
                               .capacity = spec->batch_size,
                               .sample_bytes = branch->sample_bytes,
                               .dtype = branch->dtype,
                               .dimensions = branch->dimensions};
    memcpy(shape.shape, branch->shape, sizeof shape.shape);
    uint32_t deliveries = power_of_two(task->slot_count + 2);
    task->return_capacity = power_of_two(task->slot_count + 1);
    uint64_t segment_bytes = fby_segment_bytes(&shape);
    uint64_t rings = fby_down_bytes(deliveries) + fby_up_bytes(task->return_capacity);
    uint64_t book_keeping = (uint64_t)task->slot_count *
                            (sizeof(fby_slot) + spec->batch_size * (sizeof(fby_job) + sizeof(uint32_t)));
    if (!segment_bytes)
        return fby_fail(error, FBY_EINVAL, "%s: a batch of %u samples of %llu bytes is too large", spec->name,
                        spec->batch_size, (unsigned long long)branch->sample_bytes);
    int status = memory_reserve(task, segment_bytes, rings + book_keeping, error);
    if (!status) status = fby_segment_create(&task->segment, &shape, -1, error);
    if (!status) status = fby_region_seal(&task->segment, error);
    if (!status)
        status = fby_region_create(&task->down, FBY_REGION_DOWN, fby_down_bytes(deliveries), -1, error);
    if (!status) fby_delivery_writer_init(&task->delivery, task->down.base, deliveries);
    if (!status) status = fby_region_seal(&task->down, error);
    if (!status)
        status = fby_region_create(&task->up, FBY_REGION_UP, fby_up_bytes(task->return_capacity), -1, error);
    if (!status) status = fby_region_seal(&task->up, error);
    if (!status) fby_returns_reader_init(&task->returns, task->up.base, task->return_capacity);
    if (!status) status = places_make(task, error);
    task->shared_bytes = segment_bytes + rings;
    return status;
}

static int task_make(fby_server *server, fby_setup_job *job, fby_error *error)
{
    fby_subscription *task = calloc(1, sizeof *task);
    if (!task) return fby_fail(error, FBY_ENOMEM, "no memory for a task");
    task->server = server;
    task->event_fd = task->classes_fd = task->segment.fd = task->down.fd = task->up.fd = -1;
    task->opened_ns = fby_now_ns();
    job->task = task;
    int status = fby_spec_parse(&task->spec, job->name, job->text, job->text_bytes, job->base, error);
    if (status) return status;
    const fby_spec *spec = task->spec;
    status = fby_spec_check_served(spec, error);
    if (status) return status;
    fby_dataset_options options = {.kind = spec->dataset_kind,
                                   .path = spec->dataset_path,
                                   .allow_empty = spec->allow_empty,
                                   .cache = server->options.cache,
                                   .progress = progress_note,
                                   .user = job};
    status = fby_dataset_open(&task->dataset, &options, error);
    if (status) return status;
    const fby_spec *specs[] = {spec};
    status = fby_plan_create(&task->plan, specs, 1, fby_dataset_fingerprint(task->dataset), error);
    if (status) return status;
    task->branch = fby_plan_branch(task->plan, 0);
    if (fby_load_relaxed_u32(&job->cancelled))
        return fby_fail(error, FBY_ECLOSED, "the client is gone"); /* a wish */
    status = fby_sampler_create(&task->sampler, fby_dataset_count(task->dataset), spec->seed, error);
    if (status) return status;
    fby_sampler_task subscription = {.order = spec->order,
                                     .seed = spec->seed,
                                     .epochs = spec->epochs,
                                     .batch = spec->batch_size,
                                     .drop_last = spec->drop_last,
                                     .ranks = 1,
                                     .window = spec->window};
    status = fby_sampler_join(task->sampler, &subscription, &task->bit, error);
    if (status) return status;
    task->batches = fby_sampler_batches(task->sampler, task->bit);
    if (fby_load_relaxed_u32(&job->cancelled))
        return fby_fail(error, FBY_ECLOSED, "the client is gone"); /* a wish */
    status = memory_make(task, error);
    if (!status) status = classes_write(task, error);
    if (status) return status;
    task->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (task->event_fd < 0) return fby_fail(error, FBY_EIO, "eventfd: %s", strerror(errno));
    return 0;
}

static void setup_open(fby_server *server, fby_setup_job *job)
{
    if (fby_load_relaxed_u32(&job->cancelled)) /* a wish */
        job->status = fby_fail(&job->error, FBY_ECLOSED, "the client is gone");
    else
        job->status = task_make(server, job, &job->error);
    if (job->status) {
        fby_subscription_free(job->task);
        job->task = NULL;
    }
    while (!fby_mpmc_put(server->setup_results, job)) usleep(1000);
    uint64_t one = 1;
    while (write(server->setup_event, &one, sizeof one) < 0 && errno == EINTR) continue;
}

static void *setup_main(void *argument)
{
    fby_server *server = argument;
    prctl(PR_SET_NAME, "fby-setup");
    for (;;) {
        void *item;
        if (!fby_mpmc_take_wait(server->setup_requests, &item, 0, UINT64_MAX)) continue;
        fby_setup_job *job = item;
        switch (job->kind) {
        case SETUP_OPEN:
            setup_open(server, job);
            break;
        case SETUP_FREE:
            fby_subscription_free(job->task);
            fby_setup_job_free(job);
            break;
        case SETUP_STOP:
            return NULL;
        }
    }
}

void fby_setup_job_free(fby_setup_job *job)
{
    if (!job) return;
    free(job->name);
    free(job->base);
    free(job->text);
    free(job);
}

int fby_setup_start(fby_server *server, fby_error *error)
{
    server->setup_backlog_end = &server->setup_backlog;
    int status = fby_mpmc_create(&server->setup_requests, REQUESTS, error);
    if (!status) status = fby_mpmc_create(&server->setup_results, REQUESTS, error);
    if (status) return status;
    int refused = pthread_create(&server->setup_thread, NULL, setup_main, server);
    if (refused) return fby_fail(error, FBY_EIO, "can't start the set-up thread: %s", strerror(refused));
    server->setup_running = true;
    return 0;
}

void fby_setup_submit(fby_server *server, fby_setup_job *job)
{
    job->next = NULL;
    *server->setup_backlog_end = job;
    server->setup_backlog_end = &job->next;
    fby_setup_hand_over(server);
}

bool fby_setup_hand_over(fby_server *server)
{
    while (server->setup_backlog) {
        fby_setup_job *job = server->setup_backlog,
                      *next = job->next; /* once handed over, it isn't ours to read */
        if (!fby_mpmc_put(server->setup_requests, job)) return false;
        server->setup_backlog = next;
        if (!next) server->setup_backlog_end = &server->setup_backlog;
    }
    return true;
}

fby_setup_job *fby_setup_finished(fby_server *server)
{
    void *item;
    return fby_mpmc_take(server->setup_results, &item) ? item : NULL;
}

static void results_drop(fby_server *server)
{
    for (fby_setup_job *left = fby_setup_finished(server); left; left = fby_setup_finished(server)) {
        fby_subscription_free(left->task);
        fby_setup_job_free(left);
    }
}

void fby_setup_stop(fby_server *server)
{
    if (server->setup_running) {
        static fby_setup_job stop = {.kind = SETUP_STOP}; /* so that memory can't be short for it */
        fby_setup_submit(server, &stop);
        while (!fby_setup_hand_over(server)) {
            results_drop(server); /* the thread may wait for a place there */
            usleep(1000);
        }
        /* What is left are openings of sessions that are closed: they are given up at the thread's next look.
         */
        while (pthread_tryjoin_np(server->setup_thread, NULL)) {
            results_drop(server);
            usleep(1000);
        }
        server->setup_running = false;
    }
    if (server->setup_results) results_drop(server);
    if (server->setup_requests) fby_mpmc_destroy(&server->setup_requests);
    if (server->setup_results) fby_mpmc_destroy(&server->setup_results);
}
