/* Several tasks at once: a process each, which shares a page of figures with the parent. The tasks begin
 * together: each waits, its task open, until all are open or have failed. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/cli/cli.h"
#include "dataplane/cli/run.h"
#include "ringbuf/atomic.h"
#include "ringbuf/wait.h"

enum { ROOT = 4096, LINE = 4096 };

typedef enum member_state { OPENING, WAITING, RUNNING, ENDED } member_state;

/* A data set at the server, as a status document has it. */
typedef struct source_counts {
    double draws, drawn, delivered;
} source_counts;

/* What a child tells its parent. */
typedef struct task_report {
    /* Relaxed, while it runs: for show. */
    uint64_t found, samples, batches, expected, started_ns;
    uint32_t state; /* member_state; release, with `started_ns` and `expected` before it */
    /* Once it has ended; waitpid orders these. */
    bool whole; /* it came to its end and filled the rest */
    int status, stopped;
    fby_error error;
    fby_run_figures figures;
    fby_run_server first, last; /* the server's counts, before its task was there and at its end */
    uint64_t first_ns, last_ns;
    char source[40], root[ROOT];
    source_counts source_first, source_last;
} task_report;

typedef struct run_member {
    const char *spec, *label;
    uint32_t rank;
    char job[80];  /* this run's, of this task: no other's ranks are taken for its own */
    pid_t process; /* 0: ended, or never started */
    task_report *report;
    bool failed;
    char why[FBY_ERROR_TEXT + 64];
} run_member;

typedef struct company {
    const fby_run_options *options;
    run_member *members;
    uint32_t count;
    task_report *reports; /* shared */
    int gate[2];          /* a pipe: its end says that all may begin */
    bool tty;
    uint64_t shown_ns;
    int told; /* the signal that was passed on */
} company;

/* --- the child ------------------------------------------------------------------------------------------ */

typedef struct child {
    task_report *report;
    int gate;
} child;

static void indexing_tell(fby_run *run, uint64_t found, uint64_t done)
{
    (void)done;
    fby_store_relaxed_u64(&((child *)run->user)->report->found, found); /* for show */
}

static void opened_wait(fby_run *run)
{
    const child *own = run->user;
    char byte;
    fby_store_relaxed_u64(&own->report->expected, run->expected); /* published by `state` */
    fby_store_release_u32(&own->report->state, WAITING);          /* pairs with all_open's acquire */
    /* The pipe's end comes when the parent lets go of it, or dies. */
    while (!fby_run_stopped() && read(own->gate, &byte, 1) < 0 && errno == EINTR) continue;
    fby_store_relaxed_u64(&own->report->started_ns, fby_now_ns()); /* published by `state` */
    fby_store_release_u32(&own->report->state, RUNNING);           /* pairs with member_line's acquire */
}

static void advanced_tell(fby_run *run)
{
    task_report *report = ((child *)run->user)->report;
    fby_store_relaxed_u64(&report->samples, run->figures.samples); /* for show, both */
    fby_store_relaxed_u64(&report->batches, run->figures.batches);
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* The counts of a source; zeros where it isn't there. */
static source_counts source_find(const json_t *status, const char *id, char *root)
{
    size_t index;
    json_t *source;
    json_array_foreach(json_object_get(status, "sources"), index, source)
    {
        if (strcmp(text_of(source, "source"), id) != 0) continue;
        if (root) snprintf(root, ROOT, "%s", text_of(source, "root"));
        return (source_counts){json_number_value(json_object_get(source, "draws")),
                               json_number_value(json_object_get(source, "drawn")),
                               json_number_value(json_object_get(source, "delivered"))};
    }
    return (source_counts){0};
}

static void server_tell(task_report *report, const fby_run *run)
{
    size_t index;
    json_t *task;
    if (!run->before || !run->after) return;
    fby_run_server_add(&report->first, run->before, 1);
    fby_run_server_add(&report->last, run->after, 1);
    json_array_foreach(json_object_get(run->after, "tasks"), index, task)
    {
        if (json_integer_value(json_object_get(task, "pid")) == getpid())
            snprintf(report->source, sizeof report->source, "%s", text_of(task, "source"));
    }
    report->source_first = source_find(run->before, report->source, NULL);
    report->source_last = source_find(run->after, report->source, report->root);
}

static _Noreturn void child_run(const company *all, run_member *self)
{
    task_report *report = self->report;
    child own = {.report = report, .gate = all->gate[0]};
    close(all->gate[1]);
    /* A terminal's Ctrl-C reaches it by itself and by the parent: two are no more than one. */
    fby_run_signals(false);
    fby_run run = {.spec = self->spec,
                   .rank = self->rank,
                   .job = self->job,
                   .options = all->options,
                   .indexing = indexing_tell,
                   .opened = opened_wait,
                   .advanced = advanced_tell,
                   .user = &own};
    report->error = (fby_error)FBY_ERROR_INIT;
    report->first_ns = fby_now_ns();
    report->status = fby_run_task(&run, &report->error);
    report->last_ns = fby_now_ns();
    report->stopped = fby_run_stopped();
    advanced_tell(&run);
    report->figures = run.figures;
    server_tell(report, &run);
    report->whole = true;
    fby_run_free(&run);
    _exit(0);
}

/* --- the parent ----------------------------------------------------------------------------------------- */

static int children_start(company *all, fby_error *error)
{
    pid_t parent = getpid();
    fflush(NULL);
    for (uint32_t i = 0; i < all->count; i++) {
        run_member *member = &all->members[i];
        pid_t process = fork();
        if (process < 0)
            return fby_fail(error, FBY_EIO, "can't start a process for %s: %s", member->label,
                            strerror(errno));
        if (process == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(FBY_EXIT_FAILED);
            child_run(all, member);
        }
        member->process = process;
    }
    close(all->gate[0]);
    all->gate[0] = -1;
    return FBY_OK;
}

static void children_signal(const company *all, int number)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (all->members[i].process) kill(all->members[i].process, number);
}

/* Says at once, on the standard error, which task has failed. */
static void failure_say(company *all, run_member *member)
{
    member->failed = true;
    if (all->tty && !all->options->quiet) fputs("\r\033[K", stderr);
    /* What is wrong with a spec names it already. */
    bool named = !strncmp(member->why, member->label, strlen(member->label)) ||
                 !strncmp(member->why, member->spec, strlen(member->spec));
    fprintf(stderr, "forebay: %s%s%s\n", named ? "" : member->label, named ? "" : ": ", member->why);
}

static void member_ended(company *all, run_member *member, int ended)
{
    const task_report *report = member->report;
    member->process = 0;
    fby_store_relaxed_u32(&member->report->state, ENDED); /* the parent's own from now on */
    if (!report->whole) {
        if (WIFSIGNALED(ended))
            snprintf(member->why, sizeof member->why, "its process was ended by signal %d (%s)",
                     WTERMSIG(ended), strsignal(WTERMSIG(ended)));
        else
            snprintf(member->why, sizeof member->why, "its process ended with status %d", WEXITSTATUS(ended));
        failure_say(all, member);
    } else if (report->status && !(report->stopped && report->status == FBY_EINTR)) {
        snprintf(member->why, sizeof member->why, "%s", report->error.text);
        failure_say(all, member);
    }
}

/* Takes in who has ended; how many are left. */
static uint32_t children_look(company *all)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        run_member *member = &all->members[i];
        int ended = 0;
        if (member->process && waitpid(member->process, &ended, WNOHANG) == member->process)
            member_ended(all, member, ended);
        left += member->process != 0;
    }
    return left;
}

static bool all_open(const company *all)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (all->members[i].process &&
            fby_load_acquire_u32(&all->members[i].report->state) == OPENING) /* pairs with opened_wait */
            return false;
    return true;
}

static int member_line(char *out, size_t bytes, const run_member *member, uint64_t now)
{
    const task_report *report = member->report;
    if (member->failed) return snprintf(out, bytes, "%s failed", member->label);
    uint32_t state = fby_load_acquire_u32(&report->state); /* pairs with opened_wait's releases */
    uint64_t found = fby_load_relaxed_u64(&report->found), samples = fby_load_relaxed_u64(&report->samples);
    if (state == OPENING && found)
        return snprintf(out, bytes, "%s indexing, %llu files", member->label, (unsigned long long)found);
    if (state == OPENING) return snprintf(out, bytes, "%s opening", member->label);
    if (state == WAITING) return snprintf(out, bytes, "%s ready", member->label);
    uint64_t expected = fby_load_relaxed_u64(&report->expected),
             started = fby_load_relaxed_u64(&report->started_ns);
    double elapsed = state == ENDED ? report->figures.wall_s : (double)(now - started) * 1e-9;
    return snprintf(out, bytes, "%s %llu of %llu, %.0f/s", member->label, (unsigned long long)samples,
                    (unsigned long long)expected, elapsed > 0 ? (double)samples / elapsed : 0);
}

static void progress_show(company *all, bool last)
{
    uint64_t now = fby_now_ns(), pause = all->tty ? 200000000ull : 2000000000ull;
    if (all->options->quiet || (!last && now - all->shown_ns < pause)) return;
    all->shown_ns = now;
    char line[LINE];
    size_t length = 0;
    for (uint32_t i = 0; i < all->count && length < sizeof line; i++) {
        if (i) length += (size_t)snprintf(line + length, sizeof line - length, "; ");
        if (length < sizeof line)
            length += (size_t)member_line(line + length, sizeof line - length, &all->members[i], now);
    }
    if (!all->tty) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    struct winsize size = {0};
    int width = ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
    fprintf(stderr, "\r%.*s\033[K%s", width, line, last ? "\n" : "");
}

static void children_attend(company *all)
{
    all->shown_ns = fby_now_ns();
    while (children_look(all)) {
        int stopped = fby_run_stopped();
        if (all->gate[1] >= 0 && (stopped || all_open(all))) {
            close(all->gate[1]);
            all->gate[1] = -1;
        }
        if (stopped && !all->told) {
            all->told = stopped;
            children_signal(all, SIGTERM);
        }
        progress_show(all, false);
        nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    }
    progress_show(all, true);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* What the server did for all of them, from before the first was there to the last one's end. */
typedef struct node_figures {
    fby_run_server server;
    double client_cpu_s, samples, delivered;
} node_figures;

/* What was drawn from one data set meanwhile. */
typedef struct node_source {
    const char *root;
    uint32_t tasks;
    source_counts counts;
} node_source;

static bool server_seen(const run_member *member)
{
    return member->report->whole && *member->report->source;
}

/* Of the tasks that draw from the same data set as the first of them, which is `first`. */
static node_source source_sum(const company *all, uint32_t first)
{
    const task_report *earliest = all->members[first].report, *latest = earliest;
    node_source source = {.root = earliest->root};
    for (uint32_t i = first; i < all->count; i++) {
        const task_report *report = all->members[i].report;
        if (!server_seen(&all->members[i]) || strcmp(report->source, earliest->source) != 0) continue;
        source.tasks++;
        if (report->last_ns > latest->last_ns) latest = report;
    }
    const source_counts *before = &earliest->source_first;
    for (uint32_t i = first; i < all->count; i++) {
        const task_report *report = all->members[i].report;
        if (!server_seen(&all->members[i]) || strcmp(report->source, earliest->source) != 0) continue;
        if (report->source_first.drawn < before->drawn) before = &report->source_first;
    }
    source.counts = latest->source_last;
    /* Where it was given up and opened anew in between, its counts began anew. */
    if (before->drawn > source.counts.drawn) return source;
    source.counts.draws -= before->draws;
    source.counts.drawn -= before->drawn;
    source.counts.delivered -= before->delivered;
    return source;
}

/* The next data set at or after *at, or false. */
static bool source_next(const company *all, uint32_t *at, node_source *out)
{
    for (; *at < all->count; ++*at) {
        if (!server_seen(&all->members[*at])) continue;
        bool first = true;
        for (uint32_t i = 0; i < *at; i++)
            first = first && !(server_seen(&all->members[i]) &&
                               !strcmp(all->members[i].report->source, all->members[*at].report->source));
        if (!first) continue;
        *out = source_sum(all, (*at)++);
        return true;
    }
    return false;
}

static node_figures node_sum(const company *all)
{
    node_figures node = {0};
    const task_report *earliest = NULL, *latest = NULL;
    for (uint32_t i = 0; i < all->count; i++) {
        const task_report *report = all->members[i].report;
        if (!report->whole) continue;
        node.client_cpu_s += report->figures.client_cpu_s;
        node.samples += (double)report->figures.samples;
        if (!*report->source) continue;
        if (!earliest || report->first_ns < earliest->first_ns) earliest = report;
        if (!latest || report->last_ns > latest->last_ns) latest = report;
    }
    node_source source;
    for (uint32_t at = 0; source_next(all, &at, &source);) node.delivered += source.counts.delivered;
    if (!earliest) return node;
    const fby_run_server *first = &earliest->first, *last = &latest->last;
    node.server = (fby_run_server){.cpu_s = last->cpu_s - first->cpu_s,
                                   .decode_s = last->decode_s - first->decode_s,
                                   .transform_s = last->transform_s - first->transform_s,
                                   .read_cpu_s = last->read_cpu_s - first->read_cpu_s,
                                   .worker_cpu_s = last->worker_cpu_s - first->worker_cpu_s,
                                   .conductor_cpu_s = last->conductor_cpu_s - first->conductor_cpu_s,
                                   .samples = last->samples - first->samples,
                                   .megabytes = last->megabytes - first->megabytes,
                                   .workers = last->workers};
    return node;
}

/* CPU-seconds for 1000 samples: of the server for those it delivered, of the children for those they took. */
static double cpu_per_1000(const node_figures *node)
{
    if (node->delivered <= 0 || node->samples <= 0) return 0;
    return 1000 * (node->server.cpu_s / node->delivered + node->client_cpu_s / node->samples);
}

static double share_of(const node_source *source)
{
    return source->counts.drawn > 0 ? source->counts.delivered / source->counts.drawn : 0;
}

static void table_print(const company *all)
{
    int wide = 4;
    for (uint32_t i = 0; i < all->count; i++) {
        int length = (int)strlen(all->members[i].label);
        if (length > wide) wide = length;
    }
    printf("\n%-*s  %9s  %10s  %9s  %6s\n", wide, "task", "batches", "samples", "samples/s", "waited");
    for (uint32_t i = 0; i < all->count; i++) {
        const run_member *member = &all->members[i];
        const fby_run_figures *figures = &member->report->figures;
        double wall = figures->wall_s;
        printf("%-*s  %9llu  %10llu  %9.0f  %5.0f%%%s\n", wide, member->label,
               (unsigned long long)figures->batches, (unsigned long long)figures->samples,
               wall > 0 ? (double)figures->samples / wall : 0, wall > 0 ? 100 * figures->wait_s / wall : 0,
               member->failed            ? "  failed"
               : member->report->stopped ? "  stopped early"
                                         : "");
        if (figures->bad)
            printf("%*s  %llu bad samples, %llu replaced\n", wide, "", (unsigned long long)figures->bad,
                   (unsigned long long)figures->substituted);
    }
    node_source source;
    for (uint32_t at = 0; source_next(all, &at, &source);)
        printf("%s: %.0f draws, %.0f samples drawn, delivered %.0f times: %.2f tasks a sample\n", source.root,
               source.counts.draws, source.counts.drawn, source.counts.delivered, share_of(&source));
    node_figures node = node_sum(all);
    char size[32];
    if (node.delivered > 0)
        printf("The server took %.2f CPU-seconds (decoding %.2f, resizing and converting %.2f), and read %s; "
               "%.2f CPU-seconds per 1000 samples delivered\n",
               node.server.cpu_s, node.server.decode_s, node.server.transform_s,
               fby_size_text(size, node.server.megabytes * 1e6), cpu_per_1000(&node));
}

static json_t *member_json(const run_member *member)
{
    const task_report *report = member->report;
    const fby_run_figures *figures = &report->figures;
    json_t *entry = json_object();
    json_object_set_new(entry, "name", json_string(member->label));
    json_object_set_new(entry, "samples", json_integer((json_int_t)figures->samples));
    json_object_set_new(entry, "batches", json_integer((json_int_t)figures->batches));
    json_object_set_new(entry, "epochs", json_integer((json_int_t)figures->epochs));
    json_object_set_new(entry, "wall_s", json_real(figures->wall_s));
    json_object_set_new(entry, "first_batch_s", json_real(figures->first_s));
    json_object_set_new(entry, "opening_s", json_real(figures->opening_s));
    json_object_set_new(entry, "wait_s", json_real(figures->wait_s));
    json_object_set_new(entry, "samples_per_s",
                        json_real(figures->wall_s > 0 ? (double)figures->samples / figures->wall_s : 0));
    json_object_set_new(entry, "client_cpu_s", json_real(figures->client_cpu_s));
    json_object_set_new(entry, "bad_samples", json_integer((json_int_t)figures->bad));
    json_object_set_new(entry, "substituted", json_integer((json_int_t)figures->substituted));
    json_object_set_new(entry, "root", *report->root ? json_string(report->root) : json_null());
    json_object_set_new(entry, "interrupted", json_boolean(report->stopped != 0));
    json_object_set_new(entry, "failed", member->failed ? json_string(member->why) : json_null());
    return entry;
}

static void table_json(const company *all)
{
    json_t *document = json_object(), *tasks = json_array(), *sources = json_array();
    node_figures node = node_sum(all);
    node_source source;
    for (uint32_t i = 0; i < all->count; i++) json_array_append_new(tasks, member_json(&all->members[i]));
    for (uint32_t at = 0; source_next(all, &at, &source);) {
        json_t *entry = json_object();
        json_object_set_new(entry, "root", json_string(source.root));
        json_object_set_new(entry, "tasks", json_integer(source.tasks));
        json_object_set_new(entry, "draws", json_integer((json_int_t)source.counts.draws));
        json_object_set_new(entry, "drawn", json_integer((json_int_t)source.counts.drawn));
        json_object_set_new(entry, "delivered", json_integer((json_int_t)source.counts.delivered));
        json_object_set_new(entry, "share_factor", json_real(share_of(&source)));
        json_array_append_new(sources, entry);
    }
    json_object_set_new(document, "tasks", tasks);
    json_object_set_new(document, "sources", sources);
    json_object_set_new(document, "server_cpu_s", json_real(node.server.cpu_s));
    json_object_set_new(document, "decode_s", json_real(node.server.decode_s));
    json_object_set_new(document, "transform_s", json_real(node.server.transform_s));
    json_object_set_new(document, "read_cpu_s", json_real(node.server.read_cpu_s));
    json_object_set_new(document, "conductor_cpu_s", json_real(node.server.conductor_cpu_s));
    json_object_set_new(document, "worked_samples", json_integer((json_int_t)node.server.samples));
    json_object_set_new(document, "mb_read", json_real(node.server.megabytes));
    json_object_set_new(document, "workers", json_integer((json_int_t)node.server.workers));
    json_object_set_new(document, "cpu_s_per_1000_samples", json_real(cpu_per_1000(&node)));
    json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(document);
}

static int company_make(company *all, const fby_run_part *parts, fby_error *error)
{
    all->members = calloc(all->count, sizeof *all->members);
    all->reports = mmap(NULL, all->count * sizeof *all->reports, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all->reports == MAP_FAILED) all->reports = NULL;
    if (!all->members || !all->reports)
        return fby_fail(error, FBY_ENOMEM, "no memory for %u tasks", all->count);
    uint64_t now = fby_now_ns();
    for (uint32_t i = 0; i < all->count; i++) {
        run_member *member = &all->members[i];
        *member = (run_member){.spec = parts[i].spec,
                               .label = parts[i].label,
                               .rank = parts[i].rank,
                               .report = &all->reports[i]};
        snprintf(member->job, sizeof member->job, "forebay run %d %llx.%u", (int)getpid(),
                 (unsigned long long)now, parts[i].task);
    }
    if (pipe2(all->gate, O_CLOEXEC)) return fby_fail(error, FBY_EIO, "pipe: %s", strerror(errno));
    return FBY_OK;
}

int fby_run_many(const fby_run_part *parts, uint32_t count, const fby_run_options *options)
{
    company all = {.options = options, .count = count, .gate = {-1, -1}, .tty = isatty(2)};
    fby_error error = FBY_ERROR_INIT;
    int status = company_make(&all, parts, &error);
    if (!status) status = children_start(&all, &error);
    if (status) {
        if (all.members) children_signal(&all, SIGKILL);
    } else {
        children_attend(&all);
        if (options->json)
            table_json(&all);
        else
            table_print(&all);
    }
    bool failed = status != 0;
    for (uint32_t i = 0; i < count && all.members; i++) failed = failed || all.members[i].failed;
    for (int i = 0; i < 2; i++)
        if (all.gate[i] >= 0) close(all.gate[i]);
    if (all.reports) munmap(all.reports, count * sizeof *all.reports);
    free(all.members);
    if (status) return fby_complain(&error);
    if (failed) return FBY_EXIT_FAILED;
    return fby_run_stopped() ? 128 + fby_run_stopped() : 0;
}
