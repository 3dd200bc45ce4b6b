#include "dataplane/cli/graph.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/sampler/sampler.h"
#include "dataplane/server/split.h"
#include "io/reader.h"
#include "ringbuf/wait.h"

enum { READ_PADDING = 64 };

uint64_t fby_graph_part(const fby_graph_task *task)
{
    const fby_spec *spec = task->spec;
    return fby_sampler_part(task->samples, spec->ranks, spec->batch_size, spec->drop_last);
}

int fby_graph_make(fby_graph **out, const fby_dataset *dataset, const fby_spec *const *specs,
                   const char *const *labels, uint32_t count, fby_error *error)
{
    *out = NULL;
    int status = FBY_OK;
    fby_graph *graph = calloc(1, sizeof *graph);
    if (graph) graph->tasks = calloc(count, sizeof *graph->tasks);
    if (!graph || !graph->tasks) {
        status = fby_fail(error, FBY_ENOMEM, "no memory for a graph of %u tasks", count);
        goto failed;
    }
    graph->dataset = dataset;
    graph->task_count = count;
    status = fby_plan_create(&graph->plan, specs, count, fby_dataset_fingerprint(dataset), error);
    for (uint32_t t = 0; t < count && !status; t++) {
        uint64_t *ids = NULL;
        graph->tasks[t] = (fby_graph_task){.spec = specs[t], .label = labels[t]};
        status = fby_split_ids(&ids, &graph->tasks[t].samples, specs[t], dataset, error);
        free(ids);
        if (!status) status = fby_spec_check_steps(specs[t], fby_graph_part(&graph->tasks[t]), error);
    }
    if (status) goto failed;
    graph->stage_count = fby_plan_stages(graph->plan);
    graph->stages = calloc(graph->stage_count, sizeof *graph->stages);
    if (!graph->stages) {
        status = fby_fail(error, FBY_ENOMEM, "no memory for a graph of %u stages", graph->stage_count);
        goto failed;
    }
    for (uint32_t s = 0; s < graph->stage_count; s++) fby_plan_stage(graph->plan, s, &graph->stages[s].info);
    *out = graph;
    return FBY_OK;
failed:
    fby_graph_free(&graph);
    return status;
}

void fby_graph_free(fby_graph **graph)
{
    fby_graph *g = *graph;
    *graph = NULL;
    if (!g) return;
    fby_plan_destroy(&g->plan);
    free(g->tasks);
    free(g->stages);
    free(g);
}

double fby_graph_together_us(const fby_graph *graph)
{
    return graph->decode_us + graph->transform_us;
}

double fby_graph_apart_us(const fby_graph *graph)
{
    double sum = 0;
    for (uint32_t t = 0; t < graph->task_count; t++) sum += graph->tasks[t].us;
    return sum;
}

/* --- measuring ---------------------------------------------------------------------------------------- */

static uint8_t *file_read(const fby_dataset *dataset, uint64_t id, uint64_t *length)
{
    uint64_t size = fby_dataset_size(dataset, id);
    *length = 0;
    if (size > FBY_FILE_MOST) return NULL;
    int fd = openat(fby_dataset_directory(dataset), fby_dataset_path(dataset, id),
                    O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint8_t *bytes = fd >= 0 ? calloc(1, size + READ_PADDING) : NULL;
    uint64_t have = 0;
    while (bytes && have < size) {
        ssize_t got = read(fd, bytes + have, size - have);
        if (got <= 0) break;
        have += (uint64_t)got;
    }
    if (fd >= 0) close(fd);
    *length = have;
    return bytes;
}

/* A plan to be measured. Tasks with one output share a place, as they do in a server. */
typedef struct subject {
    fby_plan *plan;
    void *out[FBY_PLAN_BRANCHES];
    double *stage_ns; /* of all samples so far */
    double *quickest; /* of the sample's runs so far */
    uint64_t *before; /* the plan's own counts */
} subject;

/* Of the runs of a sample the quickest counts: what other programs took of the rest is none of its cost. */
enum { RUNS = 3 };

static void subject_end(subject *it)
{
    uint32_t branches = it->plan ? fby_plan_branches(it->plan) : 0;
    for (uint32_t b = 0; b < branches; b++) {
        bool owner = true;
        for (uint32_t other = 0; other < b; other++)
            owner = owner &&
                    !fby_digest_equal(fby_plan_branch_key(it->plan, b), fby_plan_branch_key(it->plan, other));
        if (owner) free(it->out[b]);
    }
    free(it->stage_ns);
    free(it->quickest);
    free(it->before);
    fby_plan_destroy(&it->plan);
}

/* Takes over the plan. */
static bool subject_make(subject *out, fby_plan *plan)
{
    uint32_t stages = fby_plan_stages(plan);
    *out = (subject){.plan = plan,
                     .stage_ns = calloc(stages, sizeof *out->stage_ns),
                     .quickest = calloc(stages, sizeof *out->quickest),
                     .before = calloc(stages, sizeof *out->before)};
    if (!out->stage_ns || !out->quickest || !out->before) return false;
    for (uint32_t b = 0; b < fby_plan_branches(plan); b++) {
        for (uint32_t other = 0; other < b && !out->out[b]; other++)
            if (fby_digest_equal(fby_plan_branch_key(plan, b), fby_plan_branch_key(plan, other)))
                out->out[b] = out->out[other];
        if (!out->out[b]) out->out[b] = malloc(fby_plan_branch(plan, b).sample_bytes + READ_PADDING);
        if (!out->out[b]) return false;
    }
    return true;
}

static uint64_t stage_wall_ns(const fby_plan *plan, uint32_t stage)
{
    fby_stage_cost cost;
    fby_plan_stage_cost(plan, stage, &cost);
    return cost.wall_ns;
}

/* One run; false where the sample is bad. Its CPU time goes to *cpu_ns, how long it took to *wall_ns. */
static bool run_once(subject *it, fby_scratch *scratch, const fby_work *work, uint64_t *cpu_ns,
                     uint64_t *wall_ns)
{
    fby_scratch_times before, after;
    for (uint32_t s = 0; s < fby_plan_stages(it->plan); s++) it->before[s] = stage_wall_ns(it->plan, s);
    fby_scratch_get_times(scratch, &before);
    uint64_t began = fby_now_ns();
    bool good = fby_plan_run(it->plan, scratch, work, NULL) == FBY_REASON_NONE;
    *wall_ns = fby_now_ns() - began;
    fby_scratch_get_times(scratch, &after);
    *cpu_ns = after.decode_ns + after.transform_ns - before.decode_ns - before.transform_ns;
    return good;
}

/* One sample; false where it is bad. */
static bool subject_run(subject *it, fby_scratch *scratch, uint64_t id, const uint8_t *bytes, uint64_t length)
{
    uint32_t branches = fby_plan_branches(it->plan), stages = fby_plan_stages(it->plan);
    fby_work work = {.bytes = bytes,
                     .length = length,
                     .id = id,
                     .branches = UINT64_MAX >> (FBY_PLAN_BRANCHES - branches),
                     .out = it->out};
    uint64_t least = UINT64_MAX;
    for (uint32_t run = 0; run < RUNS; run++) {
        uint64_t cpu, wall;
        if (!run_once(it, scratch, &work, &cpu, &wall)) return false;
        if (wall >= least) continue;
        least = wall;
        double part = cpu < wall ? (double)cpu / (double)wall : 1;
        for (uint32_t s = 0; s < stages; s++)
            it->quickest[s] = part * (double)(stage_wall_ns(it->plan, s) - it->before[s]);
    }
    for (uint32_t s = 0; s < stages; s++) it->stage_ns[s] += it->quickest[s];
    return true;
}

/* What is to be measured: the graph, and after it each task alone, where there are several. */
static int subjects_make(subject *subjects, uint32_t count, const fby_graph *graph, fby_error *error)
{
    int status = FBY_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        fby_plan *plan = NULL;
        if (i == 0)
            plan = fby_plan_hold(graph->plan);
        else
            status = fby_plan_create(&plan, &graph->tasks[i - 1].spec, 1,
                                     fby_dataset_fingerprint(graph->dataset), error);
        if (!status && !subject_make(&subjects[i], plan))
            status = fby_fail(error, FBY_ENOMEM, "no memory to measure with");
    }
    return status;
}

/* The graph's plan made once more, and run once: buffers are taken, and what is measured is warm. */
static int warm_up(const fby_graph *graph, fby_scratch *scratch, fby_error *error)
{
    const fby_spec *specs[FBY_PLAN_BRANCHES];
    for (uint32_t t = 0; t < graph->task_count; t++) specs[t] = graph->tasks[t].spec;
    fby_plan *plan = NULL;
    subject again = {0};
    int status =
        fby_plan_create(&plan, specs, graph->task_count, fby_dataset_fingerprint(graph->dataset), error);
    if (status) return status;
    if (!subject_make(&again, plan)) status = fby_fail(error, FBY_ENOMEM, "no memory to measure with");
    uint64_t length = 0;
    uint8_t *bytes = status ? NULL : file_read(graph->dataset, 0, &length);
    if (bytes) subject_run(&again, scratch, 0, bytes, length);
    free(bytes);
    subject_end(&again);
    return status;
}

static void sample_measure(fby_graph *graph, subject *subjects, uint32_t count, fby_scratch *scratch,
                           uint64_t id)
{
    uint64_t length = 0;
    uint8_t *bytes = file_read(graph->dataset, id, &length);
    bool good = bytes != NULL, backwards = graph->measured % 2;
    /* By turns first and last: who comes later finds the caches warm. */
    for (uint32_t i = 0; i < count && bytes; i++) {
        uint32_t which = backwards ? count - 1 - i : i;
        bool well = subject_run(&subjects[which], scratch, id, bytes, length);
        if (which == 0) good = well;
    }
    free(bytes);
    graph->measured++;
    graph->bad += !good;
    graph->bytes += length;
}

static void results_take(fby_graph *graph, const subject *subjects)
{
    uint64_t good = graph->measured - graph->bad;
    if (!good) return;
    double us = 1e-3 / (double)good;
    for (uint32_t s = 0; s < graph->stage_count; s++) {
        fby_graph_stage *stage = &graph->stages[s];
        stage->us = subjects[0].stage_ns[s] * us;
        *(strcmp(stage->info.op, "decode") ? &graph->transform_us : &graph->decode_us) += stage->us;
    }
    for (uint32_t t = 0; t < graph->task_count; t++) {
        const subject *alone = &subjects[graph->task_count > 1 ? t + 1 : 0];
        for (uint32_t s = 0; s < fby_plan_stages(alone->plan); s++)
            graph->tasks[t].us += alone->stage_ns[s] * us;
    }
}

int fby_graph_measure(fby_graph *graph, uint64_t samples, fby_error *error)
{
    fby_scratch *scratch = NULL;
    uint32_t count = graph->task_count > 1 ? graph->task_count + 1 : 1;
    subject *subjects = calloc(count, sizeof *subjects);
    int status = subjects && !fby_scratch_create(&scratch)
                     ? FBY_OK
                     : fby_fail(error, FBY_ENOMEM, "no memory to measure with");
    if (!status) status = subjects_make(subjects, count, graph, error);
    if (!status) status = warm_up(graph, scratch, error);
    uint64_t all = fby_dataset_count(graph->dataset);
    if (samples > all) samples = all;
    for (uint64_t i = 0; i < samples && !status; i++)
        sample_measure(graph, subjects, count, scratch, i * all / samples);
    if (!status) results_take(graph, subjects);
    for (uint32_t i = 0; subjects && i < count; i++) subject_end(&subjects[i]);
    free(subjects);
    fby_scratch_destroy(&scratch);
    return status;
}
