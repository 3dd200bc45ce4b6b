/* The main job without a trainer: takes batches as fast as they come (or at a rate), reads one byte of every
 * sample, and says where the time went. */
#include <forebay/forebay.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/cli/cli.h"
#include "ringbuf/wait.h"

typedef struct run_arguments {
    const char *spec, *socket;
    uint64_t epochs, batches;
    double rate;
    bool json, embedded, quiet;
} run_arguments;

enum { OPTION_EMBEDDED = 256, OPTION_RATE, OPTION_BATCHES, OPTION_JSON };

static const struct argp_option options[] = {
    {"epochs", 'e', "N", 0, "stop after N epochs (default: the spec's, or 1 where it has no end)", 0},
    {"batches", OPTION_BATCHES, "N", 0, "stop after N batches", 0},
    {"rate", OPTION_RATE, "R", 0, "take at most R samples a second (default: as fast as they come)", 0},
    {"json", OPTION_JSON, NULL, 0, "print the summary as JSON", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {"socket", 's', "PATH", 0, "use the server that listens here", 0},
    {"embedded", OPTION_EMBEDDED, NULL, 0, "use an embedded server even where one is running", 0},
    {0}};

static error_t option_take(int key, char *value, struct argp_state *state)
{
    run_arguments *arguments = state->input;
    char *end;
    switch (key) {
    case 'e':
        if (!fby_count_parse(value, UINT32_MAX, &arguments->epochs) || !arguments->epochs)
            argp_error(state, "--epochs %s: expected a whole number above 0", value);
        return 0;
    case OPTION_BATCHES:
        if (!fby_count_parse(value, UINT32_MAX, &arguments->batches) || !arguments->batches)
            argp_error(state, "--batches %s: expected a whole number above 0", value);
        return 0;
    case OPTION_RATE:
        arguments->rate = strtod(value, &end);
        if (*end || !(arguments->rate > 0) || arguments->rate > 1e9)
            argp_error(state, "--rate %s: expected samples a second", value);
        return 0;
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case 'q':
        arguments->quiet = true;
        return 0;
    case 's':
        arguments->socket = value;
        return 0;
    case OPTION_EMBEDDED:
        arguments->embedded = true;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->spec) argp_error(state, "one SPEC is expected, got another: %s", value);
        arguments->spec = value;
        return 0;
    case ARGP_KEY_END:
        if (!arguments->spec) argp_error(state, "a SPEC file is expected");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static volatile sig_atomic_t stopped; /* the signal that asked for it */

static void stop_note(int number)
{
    stopped = number;
}

/* --- figures ------------------------------------------------------------------------------------------ */

/* The server's are of all its tasks, and count what it prepared ahead: they are divided by the samples that
 * it worked on. */
typedef struct run_figures {
    uint64_t samples, batches, epochs;
    double wall_s, wait_s, first_s, opening_s, opening_cpu_s;
    double client_cpu_s, server_cpu_s, decode_s, transform_s, read_cpu_s, worker_cpu_s, conductor_cpu_s;
    double worked_samples, megabytes, workers;
    uint64_t bad, substituted, byte_sum;
    uint64_t looks, looks_queued,
        looked_ns; /* at the server, while waiting for a batch: samples waited for a worker */
} run_figures;

static double number_of(const json_t *object, const char *outer, const char *inner)
{
    const json_t *value = json_object_get(object, outer);
    if (inner) value = json_object_get(value, inner);
    return json_number_value(value);
}

/* Adds `sign` times what the server has counted so far. */
static void server_count(run_figures *figures, const json_t *status, double sign)
{
    figures->server_cpu_s += sign * number_of(status, "cpu_s", NULL);
    figures->decode_s += sign * number_of(status, "engine", "decode_s");
    figures->transform_s += sign * number_of(status, "engine", "transform_s");
    figures->read_cpu_s += sign * number_of(status, "engine", "reader_cpu_s");
    figures->worker_cpu_s += sign * number_of(status, "engine", "worker_cpu_s");
    figures->conductor_cpu_s += sign * number_of(status, "conductor", "cpu_s");
    figures->worked_samples += sign * number_of(status, "engine", "samples");
    figures->megabytes += sign * number_of(status, "engine", "bytes_read") / 1e6;
    figures->workers = number_of(status, "engine", "workers");
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

/* Seconds of CPU for 1000 samples: of the server for those it worked on, of this process for those it took.
 */
static double cpu_per_1000(const run_figures *figures)
{
    if (!figures->samples || figures->worked_samples <= 0) return 0;
    return 1000 * (figures->server_cpu_s / figures->worked_samples +
                   figures->client_cpu_s / (double)figures->samples);
}

/* What held the samples back: the taker where its rate was held, or where it hardly waited; the workers where
 * what was read waited for them, or where they had all the CPU time there was; else reading. */
static const char *bottleneck(const run_figures *figures, double rate)
{
    if (rate > 0 && (double)figures->samples >= 0.95 * rate * figures->wall_s) return "the taker (--rate)";
    if (figures->wait_s < 0.1 * figures->wall_s) return "the taker";
    bool busy = figures->worker_cpu_s > 0.8 * figures->workers * figures->wall_s;
    bool queued = figures->looks && figures->looks_queued * 2 >= figures->looks;
    if (!busy && !queued) return "reading";
    return figures->decode_s >= figures->transform_s ? "decoding" : "transforming";
}

static void summary_json(const run_figures *figures, const run_arguments *arguments,
                         const fby_task_info *info)
{
    json_t *summary = json_object();
    double cpu = figures->client_cpu_s + figures->server_cpu_s;
    json_object_set_new(summary, "samples", json_integer((json_int_t)figures->samples));
    json_object_set_new(summary, "batches", json_integer((json_int_t)figures->batches));
    json_object_set_new(summary, "epochs", json_integer((json_int_t)figures->epochs));
    json_object_set_new(summary, "wall_s", json_real(figures->wall_s));
    json_object_set_new(summary, "first_batch_s", json_real(figures->first_s));
    json_object_set_new(summary, "samples_per_s",
                        json_real(figures->wall_s > 0 ? (double)figures->samples / figures->wall_s : 0));
    json_object_set_new(summary, "opening_s", json_real(figures->opening_s));
    json_object_set_new(summary, "opening_cpu_s", json_real(figures->opening_cpu_s));
    json_object_set_new(summary, "cpu_s", json_real(cpu));
    json_object_set_new(summary, "server_cpu_s", json_real(figures->server_cpu_s));
    json_object_set_new(summary, "cpu_s_per_1000_samples", json_real(cpu_per_1000(figures)));
    json_object_set_new(summary, "worked_samples", json_integer((json_int_t)figures->worked_samples));
    json_object_set_new(summary, "mb_read", json_real(figures->megabytes));
    json_object_set_new(summary, "wait_s", json_real(figures->wait_s));
    json_object_set_new(summary, "decode_s", json_real(figures->decode_s));
    json_object_set_new(summary, "transform_s", json_real(figures->transform_s));
    json_object_set_new(summary, "read_cpu_s", json_real(figures->read_cpu_s));
    json_object_set_new(summary, "conductor_cpu_s", json_real(figures->conductor_cpu_s));
    json_object_set_new(summary, "workers", json_integer((json_int_t)figures->workers));
    json_object_set_new(summary, "bottleneck", json_string(bottleneck(figures, arguments->rate)));
    json_object_set_new(summary, "bad_samples", json_integer((json_int_t)figures->bad));
    json_object_set_new(summary, "substituted", json_integer((json_int_t)figures->substituted));
    json_object_set_new(summary, "batch", json_integer(info->batch));
    json_object_set_new(summary, "interrupted", json_boolean(stopped != 0));
    json_dumpf(summary, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(summary);
}

static void part_print(const char *name, double seconds, double all)
{
    if (all <= 0) return;
    int width = (int)(seconds / all * 40 + 0.5);
    printf("  %-22s %8.2f s  %3.0f%%  %.*s\n", name, seconds, 100 * seconds / all,
           width < 0    ? 0
           : width > 40 ? 40
                        : width,
           "########################################");
}

static void summary_print(const run_figures *figures, const run_arguments *arguments)
{
    double cpu = figures->client_cpu_s + figures->server_cpu_s, samples = (double)figures->samples;
    char size[32];
    printf("\n%s: %llu samples in %llu batches, %llu epoch%s, %.2f s\n", stopped ? "Stopped early" : "Done",
           (unsigned long long)figures->samples, (unsigned long long)figures->batches,
           (unsigned long long)figures->epochs, figures->epochs == 1 ? "" : "s", figures->wall_s);
    if (!figures->samples) return;
    printf("  %.0f samples/s; opening took %.2f s, the first batch came %.2f s later\n",
           samples / figures->wall_s, figures->opening_s, figures->first_s);
    printf("  %.2f CPU-seconds per 1000 samples, %s read from files\n", cpu_per_1000(figures),
           fby_size_text(size, figures->megabytes * 1e6));
    if (figures->bad)
        printf("  %llu bad samples, %llu replaced: `forebay status` and the server's log name them\n",
               (unsigned long long)figures->bad, (unsigned long long)figures->substituted);
    printf("Where the CPU time went (%.2f s on %.0f workers):\n", cpu, figures->workers);
    part_print("decoding", figures->decode_s, cpu);
    part_print("resizing, converting", figures->transform_s, cpu);
    part_print("reading files", figures->read_cpu_s, cpu);
    part_print("conductor", figures->conductor_cpu_s, cpu);
    part_print("taking batches", figures->client_cpu_s, cpu);
    double rest = cpu - figures->decode_s - figures->transform_s - figures->read_cpu_s -
                  figures->conductor_cpu_s - figures->client_cpu_s;
    part_print("rest", rest > 0 ? rest : 0, cpu);
    printf("The bottleneck was %s: this run waited %.0f%% of its time for batches.\n",
           bottleneck(figures, arguments->rate), 100 * figures->wait_s / figures->wall_s);
}

/* --- progress ----------------------------------------------------------------------------------------- */

typedef struct run_progress {
    bool tty, quiet;
    uint64_t last_ns, started_ns, expected;
} run_progress;

static void progress_show(run_progress *progress, const run_figures *figures, bool last)
{
    uint64_t now = fby_now_ns();
    uint64_t pause = progress->tty ? 100000000ull : 2000000000ull;
    if (progress->quiet || (!last && now - progress->last_ns < pause)) return;
    progress->last_ns = now;
    double elapsed = (double)(now - progress->started_ns) * 1e-9,
           rate = elapsed > 0 ? (double)figures->samples / elapsed : 0;
    double part = progress->expected ? (double)figures->samples / (double)progress->expected : 0;
    if (part > 1) part = 1;
    if (!progress->tty) {
        fprintf(stderr, "%llu of %llu samples, %.0f samples/s\n", (unsigned long long)figures->samples,
                (unsigned long long)progress->expected, rate);
        return;
    }
    static const char full[] = "==============================";
    int width = (int)(part * 30);
    fprintf(stderr, "\r[%.*s%*s] %3.0f%%  %llu samples  %.0f/s  epoch %llu  %.0f s left\033[K", width, full,
            30 - width, "", part * 100, (unsigned long long)figures->samples, rate,
            (unsigned long long)figures->epochs,
            rate > 0 && progress->expected > figures->samples
                ? (double)(progress->expected - figures->samples) / rate
                : 0.0);
    if (last) fputc('\n', stderr);
}

static bool index_progress(void *user, uint64_t found, uint64_t done)
{
    const run_progress *progress = user;
    if (progress->tty && !progress->quiet && found)
        fprintf(stderr, "\rindexing: %llu files found, %llu looked at\033[K", (unsigned long long)found,
                (unsigned long long)done);
    return !stopped;
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

static void pace(const run_figures *figures, double rate, uint64_t started_ns)
{
    if (rate <= 0) return;
    uint64_t due = started_ns + (uint64_t)((double)figures->samples / rate * 1e9);
    for (uint64_t now = fby_now_ns(); now < due && !stopped; now = fby_now_ns()) {
        uint64_t left = due - now < 50000000ull ? due - now : 50000000ull;
        nanosleep(&(struct timespec){(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)}, NULL);
    }
}

/* Looks, ten times a second at most, whether samples that were read wait for a worker. */
static void queue_look(fby_client *client, run_figures *figures)
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

static int batches_take(fby_client *client, fby_task *task, const run_arguments *arguments, uint64_t batches,
                        run_figures *figures, run_progress *progress, fby_error *error)
{
    uint64_t started = progress->started_ns;
    int status = 0;
    while (!stopped && figures->batches < batches) {
        fby_batch *batch = NULL;
        uint64_t before = fby_now_ns();
        status = fby_task_next(task, 200000000, &batch, error);
        figures->wait_s += (double)(fby_now_ns() - before) * 1e-9;
        progress_show(progress, figures, false);
        if (status == FBY_ETIMEDOUT || status == FBY_EINTR) continue;
        if (status) break;
        if (!figures->batches) figures->first_s = (double)(fby_now_ns() - started) * 1e-9;
        figures->byte_sum += batch_touch(batch);
        figures->samples += fby_batch_count(batch);
        figures->batches++;
        figures->epochs += fby_batch_last(batch);
        fby_batch_release(&batch);
        if (figures->batches < batches) queue_look(client, figures);
        pace(figures, arguments->rate, started);
    }
    figures->wall_s = (double)(fby_now_ns() - started) * 1e-9;
    return status == FBY_EEND || status == FBY_ETIMEDOUT || status == FBY_EINTR ? 0 : status;
}

static void task_count(run_figures *figures, const json_t *status)
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

int fby_command_run(int count, char **values)
{
    static const struct argp argp = {
        options, option_take,
        "SPEC",  "Take a task's batches as a trainer would, and say where the time went.",
        NULL,    NULL,
        NULL};
    run_arguments arguments = {0};
    if (fby_arguments_parse(&argp, "run", count, values, &arguments)) return FBY_EXIT_USAGE;
    struct sigaction action = {.sa_handler = stop_note,
                               .sa_flags = (int)SA_RESETHAND}; /* the second one ends it at once */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    fby_error error = FBY_ERROR_INIT;
    fby_client *client = NULL;
    fby_task *task = NULL;
    fby_connect_options connect = FBY_CONNECT_OPTIONS_INIT;
    run_progress progress = {.tty = isatty(2), .quiet = arguments.quiet};
    connect.socket = arguments.socket;
    connect.server = getenv("FOREBAY_SERVER") ? NULL : "/proc/self/exe";
    connect.mode = arguments.embedded ? FBY_MODE_EMBEDDED : FBY_MODE_AUTO;
    fby_task_options open = FBY_TASK_OPTIONS_INIT;
    open.spec_path = arguments.spec;
    open.progress = index_progress;
    open.user = &progress;
    run_figures figures = {0};
    json_t *before = NULL, *opened = NULL, *after = NULL;
    int status = fby_connect(&client, &connect, &error);
    if (status) goto out;
    before = status_get(client);
    uint64_t opening = fby_now_ns();
    status = fby_task_open(&task, client, &open, &error);
    progress.started_ns = fby_now_ns();
    figures.opening_s = (double)(progress.started_ns - opening) * 1e-9;
    if (progress.tty && !progress.quiet) fprintf(stderr, "\r\033[K");
    if (status) goto out;
    opened = status_get(client);

    fby_task_info info = {.size = sizeof info};
    fby_task_info_get(task, &info);
    uint64_t epochs = arguments.epochs ? arguments.epochs : info.epochs ? info.epochs : 1;
    uint64_t batches = arguments.batches ? arguments.batches : epochs * info.batches;
    progress.expected = arguments.batches ? batches * info.batch : epochs * info.samples;

    double cpu_before = own_cpu_s();
    status = batches_take(client, task, &arguments, batches, &figures, &progress, &error);
    figures.client_cpu_s = own_cpu_s() - cpu_before;
    after = status_get(client);
    if (before && opened && after) {
        /* Work begins as soon as the task is open: it counts from before that, less what opening itself took.
         */
        server_count(&figures, after, 1);
        server_count(&figures, before, -1);
        double opening_cpu = rest_cpu_s(opened) - rest_cpu_s(before);
        figures.opening_cpu_s = opening_cpu > 0 ? opening_cpu : 0;
        figures.server_cpu_s -= figures.opening_cpu_s;
        task_count(&figures, after);
    }
    progress_show(&progress, &figures, true);
    if (status) goto out;
    if (arguments.json)
        summary_json(&figures, &arguments, &info);
    else
        summary_print(&figures, &arguments);
out:
    json_decref(before);
    json_decref(opened);
    json_decref(after);
    fby_task_close(&task);
    fby_disconnect(&client);
    if (stopped && status == FBY_EINTR) fputs("forebay: stopped before the first batch\n", stderr);
    if (stopped && (!status || status == FBY_EINTR)) return 128 + stopped;
    return status ? fby_complain(&error) : 0;
}
