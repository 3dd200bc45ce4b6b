/* Reader threads: jobs off the read ring, files into buffers, jobs onto the work ring.
 *
 * There is a fixed number of buffers; a reader without one waits until a worker gives one back: that bounds
 * the memory between reading and decoding, and a job on the work ring always has a place there. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "dataplane/engine/internal.h"

enum { DONE_MOST = 32 };

static const uint64_t SLEEP_NS = 1000 * 1000 * 1000ull;

static fby_reason reason_of(fby_read_failure failure)
{
    switch (failure) {
    case FBY_READ_OK:
        return FBY_REASON_NONE;
    case FBY_READ_MISSING:
        return FBY_REASON_MISSING;
    case FBY_READ_UNREADABLE:
        return FBY_REASON_UNREADABLE;
    case FBY_READ_CHANGED:
        return FBY_REASON_CHANGED;
    case FBY_READ_IO:
        break;
    }
    return FBY_REASON_IO;
}

static void job_fail(fby_engine *engine, fby_job *job, fby_reason reason, const char *text)
{
    job->reason = reason;
    snprintf(job->op, sizeof job->op, "read");
    snprintf(job->text, sizeof job->text, "%s", text);
    fby_job_finish(engine, job);
}

/* Makes the buffer hold a file of `size` bytes, one more to see it grow, and what decoders may read past the
 * end. */
static bool buffer_fit(fby_engine *engine, fby_buffer *buffer, uint64_t size)
{
    if (size > UINT64_MAX / 2) return false;
    uint64_t needed = (size + 1 + READ_PADDING + BUFFER_STEP - 1) / BUFFER_STEP * BUFFER_STEP;
    if (buffer->capacity >= needed) return true;
    free(buffer->bytes);
    fby_fetch_add_relaxed_u64(&engine->buffer_bytes, 0 - buffer->capacity); /* a count for status */
    buffer->capacity = 0;
    buffer->bytes = malloc(needed);
    if (!buffer->bytes) return false;
    memset(buffer->bytes, 0, needed);
    buffer->capacity = needed;
    fby_fetch_add_relaxed_u64(&engine->buffer_bytes, needed); /* a count for status */
    return true;
}

void fby_buffer_return(fby_engine *engine, fby_buffer *buffer)
{
    if (buffer->capacity > BUFFER_KEEP) {
        free(buffer->bytes);
        fby_fetch_add_relaxed_u64(&engine->buffer_bytes, 0 - buffer->capacity); /* a count for status */
        buffer->bytes = NULL;
        buffer->capacity = 0;
    }
    fby_ring_put(engine->free_buffers, buffer);
    fby_input_wake(engine, WANTS_BUFFERS);
}

void fby_ring_put(fby_mpmc *ring, void *item)
{
    while (!fby_mpmc_put(ring, item)) sched_yield();
}

void fby_input_wake(fby_engine *engine, uint32_t what)
{
    /* Dekker with input_run's exchange: what was put before this fence is seen by a reader that looks after
     * setting its flag, or its flag is seen here. */
    fby_fence_seq_cst();
    for (uint32_t i = 0; i < engine->input_count; i++) {
        fby_input *input = &engine->inputs[i];
        if (fby_load_relaxed_u32(&input->wants) != what) continue; /* ordered by the fence */
        uint32_t expected = what;
        if (fby_compare_exchange_seq_cst_u32(&input->wants, &expected, WANTS_NOTHING)) {
            fby_reader_wake(input->reader);
            return;
        }
    }
}

/* Starts reading one job; false where nothing can be started now. *wants: what is missing. */
static bool job_start(fby_input *input, fby_buffer **spare, uint32_t *wants)
{
    fby_engine *engine = input->engine;
    void *item;
    if (!*spare) {
        if (!fby_mpmc_take(engine->free_buffers, &item)) {
            *wants = WANTS_BUFFERS;
            return false;
        }
        *spare = item;
    }
    if (!fby_mpmc_take(engine->read_ring, &item)) {
        *wants = WANTS_JOBS;
        return false;
    }
    fby_job *job = item;
    const fby_dataset *dataset = job->lot->dataset;
    uint64_t size = fby_dataset_size(dataset, job->id);
    if (size > FBY_FILE_MOST) {
        job_fail(engine, job, FBY_REASON_TOO_LARGE, "the file is larger than 256 MiB");
        return true;
    }
    if (!buffer_fit(engine, *spare, size)) {
        job_fail(engine, job, FBY_REASON_MEMORY, "no memory to read the file into");
        return true;
    }
    job->buffer = *spare;
    *spare = NULL;
    job->read = (fby_read_request){.directory = fby_dataset_directory(dataset),
                                   .path = fby_dataset_path(dataset, job->id),
                                   .size = size,
                                   .buffer = job->buffer->bytes,
                                   .capacity = job->buffer->capacity - READ_PADDING,
                                   .user = job};
    fby_reader_submit(input->reader, &job->read);
    return true;
}

static void stats_publish(fby_input *input)
{
    fby_reader_stats stats;
    fby_reader_get_stats(input->reader, &stats);
    fby_store_relaxed_u64(&input->stats.files, stats.files); /* for show, all five */
    fby_store_relaxed_u64(&input->stats.bytes, stats.bytes);
    fby_store_relaxed_u64(&input->stats.system_calls, stats.system_calls);
    fby_store_relaxed_u64(&input->stats.retries, stats.retries);
    fby_store_relaxed_u64(&input->stats.looked_again, stats.looked_again);
}

void fby_input_get_stats(const fby_input *input, fby_reader_stats *out)
{
    out->files += fby_load_relaxed_u64(&input->stats.files); /* for show, all five */
    out->bytes += fby_load_relaxed_u64(&input->stats.bytes);
    out->system_calls += fby_load_relaxed_u64(&input->stats.system_calls);
    out->retries += fby_load_relaxed_u64(&input->stats.retries);
    out->looked_again += fby_load_relaxed_u64(&input->stats.looked_again);
}

static void input_run(fby_input *input)
{
    fby_engine *engine = input->engine;
    fby_buffer *spare = NULL;
    prctl(PR_SET_NAME, "fby-reader");
    while (!fby_load_acquire_u32(&input->stop)) {
        uint32_t wants = WANTS_NOTHING;
        while (fby_reader_room(input->reader) && job_start(input, &spare, &wants)) continue;
        if (wants != WANTS_NOTHING) {
            /* Say what is missing, then look once more before sleeping; pairs with fby_input_wake's fence. */
            uint32_t again = WANTS_NOTHING;
            fby_exchange_seq_cst_u32(&input->wants, wants);
            fby_fence_seq_cst(); /* the rings' loads are no seq_cst ones: without it they might be done first
                                  */
            if (job_start(input, &spare, &again) || again != wants) {
                fby_store_relaxed_u32(&input->wants,
                                      WANTS_NOTHING); /* its own flag; a wake that came anyway does no harm */
                continue;
            }
        }
        fby_read_request *done[DONE_MOST];
        uint32_t count = fby_reader_wait(input->reader, done, DONE_MOST, fby_now_ns() + SLEEP_NS);
        fby_store_relaxed_u32(&input->wants, WANTS_NOTHING); /* its own flag */
        stats_publish(input);
        for (uint32_t i = 0; i < count; i++) {
            fby_job *job = done[i]->user;
            if (done[i]->failure == FBY_READ_OK) {
                fby_ring_put(engine->work_ring, job); /* as many places as buffers */
                continue;
            }
            fby_buffer *buffer = job->buffer;
            job->buffer = NULL;
            job_fail(engine, job, reason_of(done[i]->failure),
                     done[i]->failure == FBY_READ_CHANGED ? "its size isn't what the index knows"
                                                          : strerror((int)-done[i]->bytes));
            fby_buffer_return(engine, buffer);
        }
    }
    if (spare) fby_buffer_return(engine, spare);
}

/* The reader belongs to the thread that creates it, so the thread reports how its creation went. */
static void *input_main(void *argument)
{
    fby_input *input = argument;
    int status = fby_reader_create(&input->reader, input->start_options, input->start_error);
    input->start_status = status;
    fby_store_seq_cst_u32(&input->started, 1); /* pairs with fby_input_start's loads */
    fby_gate_signal(&input->start_gate, 1);
    if (status) return NULL;
    input_run(input);
    while (!fby_load_acquire_u32(&input->dismissed))
        sched_yield(); /* who stopped it is about to wake the reader: pairs with fby_input_stop */
    fby_reader_destroy(&input->reader);
    return NULL;
}

int fby_input_start(fby_input *input, fby_engine *engine, const fby_reader_options *options, fby_error *error)
{
    input->engine = engine;
    input->start_options = options;
    input->start_error = error;
    int refused = pthread_create(&input->thread, NULL, input_main, input);
    if (refused) return fby_fail(error, FBY_EIO, "can't start a reader thread: %s", strerror(refused));
    while (!fby_load_seq_cst_u32(&input->started)) {
        uint32_t ticket = fby_gate_prepare(&input->start_gate);
        if (fby_load_seq_cst_u32(&input->started))
            fby_gate_cancel(&input->start_gate);
        else
            fby_gate_wait(&input->start_gate, ticket, UINT64_MAX);
    }
    if (input->start_status) pthread_join(input->thread, NULL);
    input->running = !input->start_status;
    return input->start_status;
}

void fby_input_stop(fby_input *input)
{
    if (!input->running) return;
    fby_store_release_u32(&input->stop, 1); /* pairs with input_run's load */
    fby_reader_wake(input->reader);
    fby_store_release_u32(&input->dismissed, 1); /* pairs with input_main's load */
    pthread_join(input->thread, NULL);
    input->running = false;
}
