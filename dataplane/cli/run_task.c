#include "dataplane/cli/run.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "ringbuf/wait.h"

static volatile sig_atomic_t stopped; /* the signal that asked for it */

static void stop_note(int number)
{
    stopped = number;
}

void fby_run_signals(bool once)
{
    struct sigaction action = {.sa_handler = stop_note, .sa_flags = once ? (int)SA_RESETHAND : 0};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int fby_run_stopped(void)
{
    return stopped;
}

/* --- what the server says ------------------------------------------------------------------------------ */

static double number_of(const json_t *object, const char *outer, const char *inner)
{
    const json_t *value = json_object_get(object, outer);
    if (inner) value = json_object_get(value, inner);
    return json_number_value(value);
}

void fby_run_server_add(fby_run_server *counts, const json_t *status, double sign)
{
    counts->cpu_s += sign * number_of(status, "cpu_s", NULL);
    counts->decode_s += sign * number_of(status, "engine", "decode_s");
    counts->transform_s += sign * number_of(status, "engine", "transform_s");
    counts->read_cpu_s += sign * number_of(status, "engine", "reader_cpu_s");
    counts->worker_cpu_s += sign * number_of(status, "engine", "worker_cpu_s");
    counts->conductor_cpu_s += sign * number_of(status, "conductor", "cpu_s");
    counts->samples += sign * number_of(status, "engine", "samples");
    counts->megabytes += sign * number_of(status, "engine", "bytes_read") / 1e6;
    counts->workers = number_of(status, "engine", "workers");
}

/* CPU time of what is neither worker, reader nor conductor: opening tasks. */
static double rest_cpu_s(const json_t *status)
{
    return number_of(status, "cpu_s", NULL) - number_of(status, "engine", "reader_cpu_s") -
           number_of(status, "engine", "worker_cpu_s") - number_of(status, "conductor", "cpu_s");
}

static json_t *status_get(fby_client *client)
{
    char *text = NULL;
    json_t *status = NULL;
    if (!fby_client_status(client, &text, NULL)) status = json_loads(text, 0, NULL);
    free(text);
    return status;
}

static double own_cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* --- the run ------------------------------------------------------------------------------------------ */

/* Touches every sample, as little as a trainer could. */
static uint64_t batch_touch(const fby_batch *batch)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < fby_batch_extents(batch); i++) {
        fby_tensor piece;
        if (fby_batch_extent(batch, i, &piece, NULL)) continue;
        for (int64_t k = 0; k < piece.shape[0]; k++)
            sum += ((const uint8_t *)piece.data)[k * piece.strides[0]];
    }
    return sum;
}

static void pace(const fby_run_figures *figures, double rate, uint64_t started_ns)
{
    if (rate <= 0) return;
    uint64_t due = started_ns + (uint64_t)((double)figures->samples / rate * 1e9);
    for (uint64_t now = fby_now_ns(); now < due && !stopped; now = fby_now_ns()) {
        uint64_t left = due - now < 50000000ull ? due - now : 50000000ull;
        nanosleep(&(struct timespec){(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)}, NULL);
    }
}

/* Looks, ten times a second at most, whether samples that were read wait for a worker. */
static void queue_look(fby_client *client, fby_run_figures *figures)
{
    uint64_t now = fby_now_ns();
    if (now - figures->looked_ns < 100000000ull) return;
    figures->looked_ns = now;
    json_t *status = status_get(client);
    if (!status) return;
    figures->looks++;
    figures->looks_queued += number_of(status, "engine", "work_waiting") > 0;
    json_decref(status);
}

/* So many batches; 0: so many epochs, whose batches nobody knows beforehand. */
static int batches_take(fby_run *run, fby_client *client, fby_task *task, uint64_t batches, uint64_t epochs,
                        fby_error *error)
{
    fby_run_figures *figures = &run->figures;
    uint64_t started = run->started_ns;
    int status = 0;
    while (!stopped && (batches ? figures->batches < batches : figures->epochs < epochs)) {
        fby_batch *batch = NULL;
        uint64_t before = fby_now_ns();
        status = fby_task_next(task, 200000000, &batch, error);
        figures->wait_s += (double)(fby_now_ns() - before) * 1e-9;
        if (run->advanced) run->advanced(run);
        if (status == FBY_ETIMEDOUT || status == FBY_EINTR) continue;
        if (status) break;
        if (!figures->batches) figures->first_s = (double)(fby_now_ns() - started) * 1e-9;
        figures->byte_sum += batch_touch(batch);
        figures->samples += fby_batch_count(batch);
        figures->batches++;
        figures->epochs += fby_batch_last(batch);
        fby_batch_release(&batch);
        if (!batches || figures->batches < batches) queue_look(client, figures);
        pace(figures, run->options->rate, started);
    }
    figures->wall_s = (double)(fby_now_ns() - started) * 1e-9;
    return status == FBY_EEND || status == FBY_ETIMEDOUT || status == FBY_EINTR ? 0 : status;
}

static void bad_count(fby_run_figures *figures, const json_t *status)
{
    size_t index;
    json_t *task;
    json_array_foreach(json_object_get(status, "tasks"), index, task)
    {
        if (json_integer_value(json_object_get(task, "pid")) != getpid()) continue;
        figures->bad = (uint64_t)number_of(task, "bad", "total");
        figures->substituted = (uint64_t)number_of(task, "bad", "substituted");
    }
}

static bool index_progress(void *user, uint64_t found, uint64_t done)
{
    fby_run *run = user;
    if (run->indexing) run->indexing(run, found, done);
    return !stopped;
}

static int task_open(fby_run *run, fby_client *client, fby_task **task, fby_error *error)
{
    fby_task_options open = FBY_TASK_OPTIONS_INIT;
    open.spec_path = run->spec;
    open.rank = run->rank;
    open.job = run->job;
    open.progress = index_progress;
    open.user = run;
    uint64_t before = fby_now_ns();
    int status = fby_task_open(task, client, &open, error);
    run->figures.opening_s = (double)(fby_now_ns() - before) * 1e-9;
    if (status) return status;
    run->info.size = sizeof run->info;
    fby_task_info_get(*task, &run->info);
    return FBY_OK;
}

static void server_count(fby_run *run)
{
    fby_run_figures *figures = &run->figures;
    if (!run->before || !run->opening || !run->after) return;
    /* Work begins as soon as the task is open: it counts from before that, less what opening itself took. */
    fby_run_server_add(&figures->server, run->after, 1);
    fby_run_server_add(&figures->server, run->before, -1);
    double opening_cpu = rest_cpu_s(run->opening) - rest_cpu_s(run->before);
    figures->opening_cpu_s = opening_cpu > 0 ? opening_cpu : 0;
    figures->server.cpu_s -= figures->opening_cpu_s;
    figures->server.workers = number_of(run->after, "engine", "workers");
    bad_count(figures, run->after);
}

int fby_run_task(fby_run *run, fby_error *error)
{
    const fby_run_options *options = run->options;
    fby_client *client = NULL;
    fby_task *task = NULL;
    fby_connect_options connect = FBY_CONNECT_OPTIONS_INIT;
    connect.socket = options->socket;
    char self[PATH_MAX];
    connect.server = getenv("FOREBAY_SERVER") ? NULL : realpath("/proc/self/exe", self);
    connect.mode = options->embedded ? FBY_MODE_EMBEDDED : FBY_MODE_AUTO;
    connect.reconnect_ms = -1; /* another server's counts would mean nothing beside this one's */
    int status = fby_connect(&client, &connect, error);
    if (status) goto out;
    run->before = status_get(client);
    status = task_open(run, client, &task, error);
    run->started_ns = fby_now_ns();
    if (status) goto out;
    run->opening = status_get(client);
    uint64_t epochs = options->epochs ? options->epochs : run->info.epochs ? run->info.epochs : 1;
    uint64_t batches = options->batches ? options->batches : epochs * run->info.batches;
    run->expected = options->batches ? batches * run->info.batch : epochs * run->info.samples;
    if (run->opened) {
        run->opened(run);
        run->started_ns = fby_now_ns();
    }
    double cpu_before = own_cpu_s();
    status = batches_take(run, client, task, batches, epochs, error);
    run->figures.client_cpu_s = own_cpu_s() - cpu_before;
    run->after = status_get(client);
    server_count(run);
out:
    fby_task_close(&task);
    fby_disconnect(&client);
    return status;
}

void fby_run_free(fby_run *run)
{
    json_decref(run->before);
    json_decref(run->opening);
    json_decref(run->after);
    run->before = run->opening = run->after = NULL;
}
