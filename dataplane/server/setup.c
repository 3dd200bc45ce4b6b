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
#include <xxhash.h>

#include "dataplane/names/names.h"
#include "dataplane/protocol/crash.h"
#include "dataplane/sampler/subset.h"
#include "dataplane/server/internal.h"
#include "dataplane/server/split.h"
#include "ringbuf/atomic.h"

enum { REQUESTS = 4096, LEAST_WINDOW_SAMPLES = 128 };

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
    uint32_t classes = fby_dataset_classes(task->source->dataset);
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
        const char *name = fby_dataset_class(task->source->dataset, i);
        fwrite(name, 1, strlen(name) + 1, file);
    }
    bool failed = ferror(file);
    if (fclose(file) || failed)
        return fby_fail(error, FBY_ENOMEM, "no memory for the names of %u classes", classes);
    return 0;
}

/* Refuses with the figures where --memory is short. */
static int budget_take(fby_server *server, const fby_spec *spec, uint64_t bytes, uint64_t samples,
                       uint64_t sample_bytes, fby_error *error)
{
    fby_budget *budget = &server->budget;
    if (fby_setup_budget_take(server, bytes)) return 0;
    uint64_t used = fby_load_relaxed_u64(&budget->used);
    return fby_fail(error, FBY_ENOMEM,
                    "%s: the task needs at least %.1f MiB (room for %llu samples of %llu bytes), but of the "
                    "%.1f MiB that "
                    "--memory allows %.1f MiB are free: raise --memory, or make batch or window smaller",
                    spec->name, (double)bytes / (1 << 20), (unsigned long long)samples,
                    (unsigned long long)sample_bytes, (double)budget->limit / (1 << 20),
                    (double)(budget->limit > used ? budget->limit - used : 0) / (1 << 20));
}

/* --- sources
 * ------------------------------------------------------------------------------------------------------- */

static fby_source *source_find(fby_server *server, fby_digest fingerprint, uint64_t count)
{
    fby_source *source = server->registry;
    while (source && (!fby_digest_equal(source->fingerprint, fingerprint) ||
                      fby_dataset_count(source->dataset) != count))
        source = source->registered;
    return source;
}

static void source_free(fby_source *source)
{
    fby_caches_forget(source);
    fby_sampler_destroy(&source->sampler);
    fby_dataset_close(&source->dataset);
    fby_budget_give(&source->server->budget, source->reserved_bytes);
    free(source->stores);
    free(source);
}

static void source_close(fby_source *source)
{
    fby_source **link = &source->server->registry;
    while (*link != source) link = &(*link)->registered;
    *link = source->registered;
    source_free(source);
}

/* One user less; the last closes it, but for one with caches. */
static void source_leave(fby_source *source)
{
    if (source && !--source->users && !source->caches) source_close(source);
}

/* Frees what no task uses: caches, and sources that stay for theirs. Whether there was any. */
static bool unused_forget(fby_server *server)
{
    bool any = false;
    for (fby_source *source = server->registry, *next; source; source = next) {
        next = source->registered;
        any = fby_caches_forget(source) || any;
        if (!source->users && !source->caches) source_close(source);
    }
    return any;
}

bool fby_setup_budget_take(fby_server *server, uint64_t bytes)
{
    return fby_budget_take(&server->budget, bytes) ||
           (bytes <= server->budget.limit && unused_forget(server) &&
            fby_budget_take(&server->budget, bytes));
}

/* The source of the task's data set, which is opened anew all the same: it may have changed, and is another
 * one then. */
static int source_open(fby_server *server, fby_subscription *task, fby_setup_job *job, fby_error *error)
{
    const fby_spec *spec = task->spec;
    fby_dataset_options options = {.kind = spec->dataset_kind,
                                   .path = spec->dataset_path,
                                   .allow_empty = spec->allow_empty,
                                   .cache = server->options.cache,
                                   .progress = progress_note,
                                   .user = job};
    fby_dataset *dataset;
    int status = fby_dataset_open(&dataset, &options, error);
    if (status) fby_name_suggest(spec->dataset_path, error);
    if (status) return status;
    fby_digest fingerprint = fby_dataset_fingerprint(dataset);
    task->source = source_find(server, fingerprint, fby_dataset_count(dataset));
    if (task->source && !strcmp(fby_dataset_root(task->source->dataset), fby_dataset_root(dataset))) {
        task->source->users++;
        fby_dataset_close(&dataset);
        return 0;
    }
    fby_source *source = calloc(1, sizeof *source);
    task->source = NULL;
    if (!source) {
        fby_dataset_close(&dataset);
        return fby_fail(error, FBY_ENOMEM, "no memory for a data set's bookkeeping");
    }
    source->server = server;
    source->fingerprint = fingerprint;
    source->dataset = dataset;
    status = fby_sampler_create(&source->sampler, fby_dataset_count(dataset), spec->seed, error);
    if (!status) {
        uint64_t bytes = fby_sampler_bytes(source->sampler) + fby_dataset_index_bytes(dataset);
        status = budget_take(server, spec, bytes, 0, task->branch.sample_bytes, error);
        if (!status) source->reserved_bytes = bytes;
    }
    if (status) {
        source_free(source);
        return status;
    }
    source->users = 1;
    source->registered = server->registry;
    server->registry = source;
    task->source = source;
    return 0;
}

/* --- tasks
 * ---------------------------------------------------------------------------------------------------------
 */

static int rings_make(fby_subscription *task, fby_error *error)
{
    const fby_spec *spec = task->spec;
    task->window = spec->window;
    uint64_t samples = (uint64_t)spec->window * spec->batch_size;
    if (samples < LEAST_WINDOW_SAMPLES) {
        samples = LEAST_WINDOW_SAMPLES;
        task->window = (uint32_t)((samples + spec->batch_size - 1) / spec->batch_size);
        samples = (uint64_t)task->window * spec->batch_size;
    }
    task->window_samples = (uint32_t)samples;
    /* A sample may be an extent of its own; a draw comes on top of the window. */
    task->delivery_capacity = task->return_capacity = power_of_two(task->window_samples + FBY_DRAW_MOST + 4);
    task->bad_epochs = task->window_samples + FBY_DRAW_MOST;
    task->extents = calloc(spec->batch_size, sizeof *task->extents);
    task->bad_counts = calloc(task->bad_epochs, sizeof *task->bad_counts);
    if (!task->extents || !task->bad_counts)
        return fby_fail(error, FBY_ENOMEM, "no memory for the bookkeeping of a window of %u samples",
                        task->window_samples);
    uint64_t down = fby_down_bytes(task->delivery_capacity), up = fby_up_bytes(task->return_capacity);
    int status =
        budget_take(task->server, spec, down + up, task->window_samples, task->branch.sample_bytes, error);
    if (status) return status;
    task->reserved_bytes = down + up;
    task->shared_bytes = down + up + task->window_samples * task->branch.sample_bytes;
    status = fby_region_create(&task->down, FBY_REGION_DOWN, down, -1, error);
    if (!status) fby_delivery_writer_init(&task->delivery, task->down.base, task->delivery_capacity);
    if (!status) status = fby_region_seal(&task->down, error);
    if (!status) status = fby_region_create(&task->up, FBY_REGION_UP, up, -1, error);
    if (!status) status = fby_region_seal(&task->up, error);
    if (!status) fby_returns_reader_init(&task->returns, task->up.base, task->return_capacity);
    return status;
}

/* Ranks belong together whose clients hand in the same spec, under the same name, from the same folder, for
 * the same job; and, where they go on from states, that were together when those were saved, or when their
 * server was lost. */
static fby_digest identity_of(const fby_setup_job *job, const fby_subscription *task)
{
    const uint64_t parts[] = {XXH3_64bits(job->name, strlen(job->name)),
                              XXH3_64bits(job->base, strlen(job->base)),
                              XXH3_64bits(job->job, strlen(job->job)),
                              task->text_hash,
                              task->resumed != NULL,
                              task->resumed ? task->resumed->identity.crew : 0,
                              task->again};
    XXH128_hash_t hash = XXH3_128bits(parts, sizeof parts);
    return (fby_digest){hash.high64, hash.low64};
}

/* Its part of the data set, of *chosen samples. */
static int subset_make(fby_subscription *task, uint64_t *chosen, fby_error *error)
{
    const fby_dataset *dataset = task->source->dataset;
    uint64_t *ids;
    int status = fby_split_ids(&ids, chosen, task->spec, dataset, error);
    if (status || !ids) return status;
    task->subset = fby_subset_create(ids, (uint32_t)fby_dataset_count(dataset));
    free(ids);
    if (!task->subset)
        return fby_fail(error, FBY_ENOMEM, "%s: no memory for the task's part of the data set",
                        task->spec->name);
    return FBY_OK;
}

static void described_set(fby_subscription *task)
{
    const fby_spec *spec = task->spec;
    fby_digest dataset = fby_dataset_fingerprint(task->source->dataset);
    uint64_t samples = fby_dataset_count(task->source->dataset);
    bool counted = spec->echo.factor > 0 || spec->steps_per_epoch;
    task->described = (fby_task_identity){
        .dataset_high = dataset.high,
        .dataset_low = dataset.low,
        .output_high = task->key.high,
        .output_low = task->key.low,
        .samples = samples,
        .subset = task->subset ? task->subset->hash : 0,
        .seed = spec->order == FBY_ORDER_STRICT ? spec->seed : 0,
        .order = spec->order,
        .batch = spec->batch_size,
        .drop_last = spec->drop_last,
        .rank = task->rank,
        .ranks = spec->ranks,
        .echo = !spec->echo.kind                                 ? FBY_STATE_ECHO_NONE
                : spec->echo.kind == FBY_ECHO_SAMPLES && counted ? FBY_STATE_ECHO_COUNTED
                                                                 : FBY_STATE_ECHO_FREE,
    };
    if (spec->echo.kind) { /* what comes out of it differs */
        double parts[] = {spec->echo.kind, spec->echo.factor, spec->echo.max, spec->echo.buffer};
        task->described.output_low ^= XXH3_64bits(parts, sizeof parts);
        task->described.output_low ^= task->echo_key.low ^ spec->steps_per_epoch;
    }
}

/* The state that a client brought: a copy that it can't change any more, of the one size that it can have. */
static int state_read(fby_subscription *task, int fd, fby_error *error)
{
    enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };
    int seals = fcntl(fd, F_GET_SEALS);
    off_t bytes = seals >= 0 && (seals & SEALS) == SEALS ? lseek(fd, 0, SEEK_END) : -1;
    if (bytes < 0)
        return fby_fail(error, FBY_EINVAL,
                        "%s: the state came in something else than a memfd that is sealed against change",
                        task->spec->name);
    uint64_t most = fby_state_bytes_most(&task->described);
    if ((uint64_t)bytes > most)
        return fby_fail(
            error, FBY_EINVAL,
            "%s: the state has %llu bytes, where one of this task has at most %llu: it is another "
            "task's",
            task->spec->name, (unsigned long long)bytes, (unsigned long long)most);
    task->resumed = calloc(1, most);
    if (!task->resumed) return fby_fail(error, FBY_ENOMEM, "%s: no memory for a state", task->spec->name);
    if (pread(fd, task->resumed, (size_t)bytes, 0) != bytes)
        return fby_fail(error, FBY_EIO, "%s: can't read the state", task->spec->name);
    return fby_state_check(task->resumed, (uint64_t)bytes, error);
}

static int state_take(fby_subscription *task, int fd, uint64_t chosen, fby_error *error)
{
    const fby_spec *spec = task->spec;
    int status = state_read(task, fd, error);
    if (status) return status;
    fby_state_head *state = task->resumed;
    uint64_t left = chosen > state->behind ? chosen - state->behind : 0;
    fby_state_task fits = {.name = spec->name,
                           .identity = &task->described,
                           .samples = chosen,
                           .part = fby_sampler_part(left, spec->ranks, spec->batch_size, spec->drop_last),
                           .epochs = spec->epochs};
    uint64_t fresh = fits.part;
    fits.part = fby_echoes_samples(task, fresh);
    status = fby_state_fits(state, &fits, error);
    if (!status && fby_state_is_merged(state)) state->part = fits.part;
    if (!status && state->visits > FBY_SAMPLER_VISITS)
        status =
            fby_fail(error, FBY_EINVAL, "%s: the state claims %u visits of a sample; expected at most %u",
                     spec->name, state->visits, FBY_SAMPLER_VISITS);
    if (!status && task->described.echo == FBY_STATE_ECHO_COUNTED)
        status = fby_echoes_restore(task, fresh, error);
    return status;
}

static int task_make(fby_server *server, fby_setup_job *job, fby_error *error)
{
    fby_subscription *task = calloc(1, sizeof *task);
    if (!task) return fby_fail(error, FBY_ENOMEM, "no memory for a task");
    task->server = server;
    task->event_fd = task->classes_fd = task->down.fd = task->up.fd = task->peer.pidfd = -1;
    task->opened_ns = fby_now_ns();
    task->end_told = UINT64_MAX;
    task->process = job->process;
    job->task = task;
    task->job = strdup(job->job);
    task->base = strdup(job->base);
    if (!task->job || !task->base) return fby_fail(error, FBY_ENOMEM, "no memory for a task");
    int status = fby_spec_parse(&task->spec, job->name, job->text, job->text_bytes, job->base, error);
    if (status) return status;
    const fby_spec *spec = task->spec;
    if (spec->ranks == 1) job->rank = 0; /* of one rank it is whichever process asks */
    if (job->rank >= spec->ranks)
        status = fby_fail(error, FBY_EINVAL, "%s: this is rank %u of a task of %u: ranks are counted from 0",
                          spec->name, job->rank, spec->ranks);
    task->rank = job->rank;
    task->again = job->again;
    if (!status) status = source_open(server, task, job, error);
    if (status) return status;
    const fby_spec *specs[] = {spec};
    fby_plan *plan;
    status = fby_plan_create(&plan, specs, 1, task->source->fingerprint, error);
    if (status) return status;
    task->branch = fby_plan_branch(plan, 0);
    task->key = fby_plan_branch_key(plan, 0);
    int32_t echo_stage = fby_plan_echo_stage(plan, 0);
    if (echo_stage >= 0) {
        fby_stage_info stage;
        fby_plan_stage(plan, (uint32_t)echo_stage, &stage);
        task->echo_key = stage.key;
    }
    status = fby_caches_enter(task, plan, error);
    fby_plan_destroy(&plan);
    if (status) return status;
    if (fby_load_relaxed_u32(&job->cancelled))
        return fby_fail(error, FBY_ECLOSED, "the client is gone"); /* a wish */
    uint64_t chosen;
    status = subset_make(task, &chosen, error);
    if (status) return status;
    uint64_t part = fby_sampler_part(chosen, spec->ranks, spec->batch_size, spec->drop_last);
    status = fby_spec_check_steps(spec, part, error);
    if (status) return status;
    described_set(task);
    if (job->state_fd >= 0) status = state_take(task, job->state_fd, chosen, error);
    task->text_hash = XXH3_64bits(job->text, job->text_bytes);
    task->identity = identity_of(job, task);
    if (!status) status = rings_make(task, error);
    if (!status && fby_batches_echo(task)) status = fby_batches_begin(task, error);
    if (!status) status = classes_write(task, error);
    if (status) return status;
    task->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (task->event_fd < 0) return fby_fail(error, FBY_EIO, "eventfd: %s", strerror(errno));
    return 0;
}

/* Makes the stores that a join needs, all or none. */
static int stores_make(fby_server *server, fby_setup_job *job, fby_error *error)
{
    uint64_t bytes = 0, samples = 0;
    for (uint32_t i = 0; i < job->grown_count; i++) {
        struct fby_grown *grown = &job->grown[i];
        fby_segment_shape shape = {.blocks = 1,
                                   .first_block = 1,
                                   .capacity = grown->store->places,
                                   .sample_bytes = grown->info.sample_bytes};
        grown->store->bytes = fby_segment_bytes(&shape);
        if (!grown->store->bytes || bytes + grown->store->bytes < bytes)
            return fby_fail(error, FBY_EINVAL, "%s: a batch of %u samples of %llu bytes is too large",
                            job->task->spec->name, job->task->spec->batch_size,
                            (unsigned long long)grown->info.sample_bytes);
        bytes += grown->store->bytes;
        samples += grown->store->places;
    }
    int status = budget_take(server, job->task->spec, bytes, samples, job->task->branch.sample_bytes, error);
    FBY_CRASH_POINT("join: memory taken");
    if (status) {
        for (uint32_t i = 0; i < job->grown_count; i++) job->grown[i].store->bytes = 0;
        return status;
    }
    for (uint32_t i = 0; i < job->grown_count && !status; i++) {
        if (fby_load_relaxed_u32(&job->cancelled))
            return fby_fail(error, FBY_ECLOSED, "the client is gone"); /* a wish */
        status = fby_store_make(job->grown[i].store, &job->grown[i].info, error);
    }
    return status;
}

static void job_answer(fby_server *server, fby_setup_job *job)
{
    while (!fby_mpmc_put(server->setup_results, job)) usleep(1000);
    uint64_t one = 1;
    while (write(server->setup_event, &one, sizeof one) < 0 && errno == EINTR) continue;
}

static void task_drop(fby_subscription *task)
{
    if (!task) return;
    fby_source *source = task->source;
    fby_caches_leave(task);
    fby_subscription_free(task);
    FBY_CRASH_POINT("task freed");
    source_leave(source);
}

static void setup_open(fby_server *server, fby_setup_job *job)
{
    if (fby_load_relaxed_u32(&job->cancelled)) /* a wish */
        job->status = fby_fail(&job->error, FBY_ECLOSED, "the client is gone");
    else
        job->status = task_make(server, job, &job->error);
    FBY_CRASH_POINT("set-up done");
    if (job->status) {
        task_drop(job->task);
        job->task = NULL;
    }
    job_answer(server, job);
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
        case SETUP_GROW:
            job->status = stores_make(server, job, &job->error);
            FBY_CRASH_POINT("join: memory made");
            job_answer(server, job);
            break;
        case SETUP_FREE:
            task_drop(job->task);
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
    for (uint32_t i = 0; i < job->grown_count; i++) fby_store_free(job->grown[i].store);
    free(job->grown);
    if (job->kind != SETUP_FREE && job->state_fd >= 0) close(job->state_fd);
    if (job->region.base) fby_region_close(&job->region);
    free(job->name);
    free(job->base);
    free(job->text);
    free(job->job);
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
        if (left->task) fby_source_unmake(server, left);
        task_drop(left->task);
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
    unused_forget(server);
    if (server->setup_requests) fby_mpmc_destroy(&server->setup_requests);
    if (server->setup_results) fby_mpmc_destroy(&server->setup_results);
}
