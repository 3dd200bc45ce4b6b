/* The main job without a trainer: takes batches as fast as they come (or at a rate), reads one byte of every
 * sample, and says where the time went. */
#include "dataplane/cli/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/cli/cli.h"
#include "dataplane/spec/spec.h"
#include "ringbuf/wait.h"

typedef struct run_arguments {
    char **specs;
    uint32_t spec_count;
    fby_run_options run;
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
    run_arguments *all = state->input;
    fby_run_options *arguments = &all->run;
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
        all->specs[all->spec_count++] = value;
        return 0;
    case ARGP_KEY_END:
        if (!all->spec_count) argp_error(state, "a SPEC file is expected");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- figures ------------------------------------------------------------------------------------------ */

/* Seconds of CPU for 1000 samples: of the server for those it worked on, of this process for those it took.
 */
static double cpu_per_1000(const fby_run_figures *figures)
{
    if (!figures->samples || figures->server.samples <= 0) return 0;
    return 1000 * (figures->server.cpu_s / figures->server.samples +
                   figures->client_cpu_s / (double)figures->samples);
}

/* What held the samples back: the taker where its rate was held, or where it hardly waited; the workers where
 * what was read waited for them, or where they had all the CPU time there was; else reading. */
static const char *bottleneck(const fby_run_figures *figures, double rate)
{
    if (rate > 0 && (double)figures->samples >= 0.95 * rate * figures->wall_s) return "the taker (--rate)";
    if (figures->wait_s < 0.1 * figures->wall_s) return "the taker";
    bool busy = figures->server.worker_cpu_s > 0.8 * figures->server.workers * figures->wall_s;
    bool queued = figures->looks && figures->looks_queued * 2 >= figures->looks;
    if (!busy && !queued) return "reading";
    return figures->server.decode_s >= figures->server.transform_s ? "decoding" : "transforming";
}

static void summary_json(const fby_run *run)
{
    const fby_run_figures *figures = &run->figures;
    json_t *summary = json_object();
    double cpu = figures->client_cpu_s + figures->server.cpu_s;
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
    json_object_set_new(summary, "server_cpu_s", json_real(figures->server.cpu_s));
    json_object_set_new(summary, "cpu_s_per_1000_samples", json_real(cpu_per_1000(figures)));
    json_object_set_new(summary, "worked_samples", json_integer((json_int_t)figures->server.samples));
    json_object_set_new(summary, "mb_read", json_real(figures->server.megabytes));
    json_object_set_new(summary, "wait_s", json_real(figures->wait_s));
    json_object_set_new(summary, "decode_s", json_real(figures->server.decode_s));
    json_object_set_new(summary, "transform_s", json_real(figures->server.transform_s));
    json_object_set_new(summary, "read_cpu_s", json_real(figures->server.read_cpu_s));
    json_object_set_new(summary, "conductor_cpu_s", json_real(figures->server.conductor_cpu_s));
    json_object_set_new(summary, "workers", json_integer((json_int_t)figures->server.workers));
    json_object_set_new(summary, "bottleneck", json_string(bottleneck(figures, run->options->rate)));
    json_object_set_new(summary, "bad_samples", json_integer((json_int_t)figures->bad));
    json_object_set_new(summary, "substituted", json_integer((json_int_t)figures->substituted));
    json_object_set_new(summary, "batch", json_integer(run->info.batch));
    json_object_set_new(summary, "interrupted", json_boolean(fby_run_stopped() != 0));
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

static void summary_print(const fby_run *run)
{
    const fby_run_figures *figures = &run->figures;
    double cpu = figures->client_cpu_s + figures->server.cpu_s, samples = (double)figures->samples;
    char size[32];
    printf("\n%s: %llu samples in %llu batches, %llu epoch%s, %.2f s\n",
           fby_run_stopped() ? "Stopped early" : "Done", (unsigned long long)figures->samples,
           (unsigned long long)figures->batches, (unsigned long long)figures->epochs,
           figures->epochs == 1 ? "" : "s", figures->wall_s);
    if (!figures->samples) return;
    printf("  %.0f samples/s; opening took %.2f s, the first batch came %.2f s later\n",
           samples / figures->wall_s, figures->opening_s, figures->first_s);
    printf("  %.2f CPU-seconds per 1000 samples, %s read from files\n", cpu_per_1000(figures),
           fby_size_text(size, figures->server.megabytes * 1e6));
    if (figures->bad)
        printf("  %llu bad samples, %llu replaced: `forebay status` and the server's log name them\n",
               (unsigned long long)figures->bad, (unsigned long long)figures->substituted);
    printf("Where the CPU time went (%.2f s on %.0f workers):\n", cpu, figures->server.workers);
    part_print("decoding", figures->server.decode_s, cpu);
    part_print("resizing, converting", figures->server.transform_s, cpu);
    part_print("reading files", figures->server.read_cpu_s, cpu);
    part_print("conductor", figures->server.conductor_cpu_s, cpu);
    part_print("taking batches", figures->client_cpu_s, cpu);
    double rest = cpu - figures->server.decode_s - figures->server.transform_s - figures->server.read_cpu_s -
                  figures->server.conductor_cpu_s - figures->client_cpu_s;
    part_print("rest", rest > 0 ? rest : 0, cpu);
    printf("The bottleneck was %s: this run waited %.0f%% of its time for batches.\n",
           bottleneck(figures, run->options->rate), 100 * figures->wait_s / figures->wall_s);
}

/* --- progress ----------------------------------------------------------------------------------------- */

typedef struct run_progress {
    bool tty, quiet;
    uint64_t last_ns;
} run_progress;

static void progress_show(const fby_run *run, bool last)
{
    run_progress *progress = run->user;
    const fby_run_figures *figures = &run->figures;
    uint64_t now = fby_now_ns();
    uint64_t pause = progress->tty ? 100000000ull : 2000000000ull;
    if (progress->quiet || (!last && now - progress->last_ns < pause)) return;
    progress->last_ns = now;
    double elapsed = (double)(now - run->started_ns) * 1e-9,
           rate = elapsed > 0 ? (double)figures->samples / elapsed : 0;
    double part = run->expected ? (double)figures->samples / (double)run->expected : 0;
    if (part > 1) part = 1;
    if (!progress->tty) {
        fprintf(stderr, "%llu of %llu samples, %.0f samples/s\n", (unsigned long long)figures->samples,
                (unsigned long long)run->expected, rate);
        return;
    }
    static const char full[] = "==============================";
    int width = (int)(part * 30);
    fprintf(stderr, "\r[%.*s%*s] %3.0f%%  %llu samples  %.0f/s  epoch %llu  %.0f s left\033[K", width, full,
            30 - width, "", part * 100, (unsigned long long)figures->samples, rate,
            (unsigned long long)figures->epochs,
            rate > 0 && run->expected > figures->samples ? (double)(run->expected - figures->samples) / rate
                                                         : 0.0);
    if (last) fputc('\n', stderr);
}

static void advanced_show(fby_run *run)
{
    progress_show(run, false);
}

static void indexing_show(fby_run *run, uint64_t found, uint64_t done)
{
    const run_progress *progress = run->user;
    if (progress->tty && !progress->quiet && found)
        fprintf(stderr, "\rindexing: %llu files found, %llu looked at\033[K", (unsigned long long)found,
                (unsigned long long)done);
}

static void indexing_clear(fby_run *run)
{
    const run_progress *progress = run->user;
    if (progress->tty && !progress->quiet) fprintf(stderr, "\r\033[K");
}

/* --- the command -------------------------------------------------------------------------------------- */

static int run_one(const char *spec, const fby_run_options *how)
{
    run_progress progress = {.tty = isatty(2), .quiet = how->quiet};
    fby_run run = {.spec = spec,
                   .options = how,
                   .indexing = indexing_show,
                   .opened = indexing_clear,
                   .advanced = advanced_show,
                   .user = &progress};
    fby_error error = FBY_ERROR_INIT;
    int status = fby_run_task(&run, &error);
    int stopped = fby_run_stopped();
    if (run.expected)
        progress_show(&run, true);
    else
        indexing_clear(&run);
    if (!status && how->json) summary_json(&run);
    if (!status && !how->json) summary_print(&run);
    fby_run_free(&run);
    if (stopped && status == FBY_EINTR) fputs("forebay: stopped before the first batch\n", stderr);
    if (stopped && (!status || status == FBY_EINTR)) return 128 + stopped;
    return status ? fby_complain(&error) : 0;
}

/* How many ranks a spec has; one that is wrong is the server's to refuse. A pipe can't be read twice: it is
 * taken to be of one. */
static uint32_t ranks_of(const char *path)
{
    struct stat file;
    if (stat(path, &file) || !S_ISREG(file.st_mode)) return 1;
    fby_spec *spec = NULL;
    fby_error error = FBY_ERROR_INIT;
    uint32_t ranks = fby_spec_load(&spec, path, &error) ? 1 : spec->ranks;
    fby_spec_free(&spec);
    return ranks;
}

/* A part for each rank of each spec; NULL without memory. */
static fby_run_part *parts_make(char *const *specs, char *const *labels, uint32_t spec_count, uint32_t *count)
{
    fby_run_part *parts = NULL;
    *count = 0;
    for (uint32_t i = 0; i < spec_count; i++) {
        uint32_t ranks = ranks_of(specs[i]);
        fby_run_part *larger = realloc(parts, (*count + ranks) * sizeof *parts);
        if (!larger) goto failed;
        parts = larger;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            size_t bytes = strlen(labels[i]) + 32;
            char *label = malloc(bytes);
            if (!label) goto failed;
            if (ranks > 1)
                snprintf(label, bytes, "%s rank %u", labels[i], rank);
            else
                snprintf(label, bytes, "%s", labels[i]);
            parts[(*count)++] = (fby_run_part){specs[i], label, rank, i};
        }
    }
    return parts;
failed:
    for (uint32_t i = 0; i < *count; i++) free(parts[i].label);
    free(parts);
    return NULL;
}

static int run_all(const run_arguments *arguments)
{
    uint32_t count = 0;
    char **labels = fby_labels_make(arguments->specs, arguments->spec_count);
    fby_run_part *parts = labels ? parts_make(arguments->specs, labels, arguments->spec_count, &count) : NULL;
    int status = FBY_EXIT_FAILED;
    if (!parts)
        fputs("forebay: no memory for the tasks\n", stderr);
    else if (count == 1)
        status = run_one(parts[0].spec, &arguments->run);
    else
        status = fby_run_many(parts, count, &arguments->run);
    for (uint32_t i = 0; parts && i < count; i++) free(parts[i].label);
    free(parts);
    fby_labels_free(&labels, arguments->spec_count);
    return status;
}

int fby_command_run(int count, char **values)
{
    static const struct argp argp = {
        options,
        option_take,
        "SPEC...",
        "Take a task's batches as a trainer would, and say where the time went; of several tasks, each in a "
        "process of its own, what they shared.",
        NULL,
        NULL,
        NULL};
    run_arguments arguments = {.specs = calloc((size_t)count, sizeof(char *))};
    if (!arguments.specs) return FBY_EXIT_FAILED;
    int status = FBY_EXIT_USAGE;
    if (!fby_arguments_parse(&argp, "run", count, values, &arguments)) {
        fby_run_signals(true);
        status = run_all(&arguments);
    }
    free(arguments.specs);
    return status;
}
