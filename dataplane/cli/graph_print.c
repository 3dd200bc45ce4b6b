/* Graphs as text and as JSON. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/cli/cli.h"
#include "dataplane/cli/graph.h"

static const char *dtype_name(uint32_t dtype)
{
    switch (dtype) {
    case FBY_U8:
        return "u8";
    case FBY_U16:
        return "u16";
    case FBY_F16:
        return "f16";
    case FBY_BF16:
        return "bf16";
    default:
        return "f32";
    }
}

/* "f32 3 x 224 x 224" */
static void shape_text(char *out, size_t bytes, const fby_branch_info *branch)
{
    size_t length = (size_t)snprintf(out, bytes, "%s ", dtype_name(branch->dtype));
    for (uint32_t i = 0; i < branch->dimensions && length < bytes; i++)
        length += (size_t)snprintf(out + length, bytes - length, i ? " x %u" : "%u", branch->shape[i]);
}

/* Of an epoch, for each rank; what an echo emits again counts too, but for auto's where nobody knows how many
 * they will be. */
static unsigned long long batches_of(const fby_graph_task *task)
{
    const fby_spec *spec = task->spec;
    uint64_t size = spec->batch_size;
    if (spec->steps_per_epoch) return spec->steps_per_epoch;
    uint64_t part = fby_graph_part(task);
    double factor = spec->echo.kind && spec->echo.factor > 0 ? spec->echo.factor : 1;
    uint64_t fresh = (part + size - 1) / size;
    if (spec->echo.kind == FBY_ECHO_BATCHES) return (uint64_t)((double)fresh * factor);
    uint64_t samples = (uint64_t)((double)part * factor);
    return spec->drop_last ? samples / size : (samples + size - 1) / size;
}

/* What follows "N batches of M an epoch". */
static const char *ranks_text(char *out, size_t bytes, const fby_graph_task *task)
{
    const fby_spec_echo *echo = &task->spec->echo;
    bool is_auto = echo->kind && !(echo->factor > 0);
    int length = 0;
    *out = 0;
    if (task->spec->ranks > 1) length = snprintf(out, bytes, " for each of %u ranks", task->spec->ranks);
    if (is_auto && task->spec->steps_per_epoch)
        snprintf(out + length, bytes - (size_t)length, ", with %llu fresh samples",
                 (unsigned long long)fby_graph_part(task));
    else if (is_auto)
        snprintf(out, bytes, " fresh, and more as time goes");
    return out;
}

/* What is kept of what a stage makes. */
static const char *marks_text(char *out, size_t bytes, const fby_stage_info *stage)
{
    char size[32];
    *out = 0;
    if (stage->cache_bytes)
        snprintf(out, bytes, "  [cache, %s]", fby_size_text(size, (double)stage->cache_bytes));
    size_t length = strlen(out);
    if (stage->echoes) snprintf(out + length, bytes - length, "  [echo]");
    return out;
}

/* --- text --------------------------------------------------------------------------------------------- */

static void measured_print(const fby_graph *graph)
{
    char size[32];
    printf("(measured on %llu samples, mean file %s)\n", (unsigned long long)graph->measured,
           fby_size_text(size, (double)graph->bytes / (double)graph->measured));
    if (graph->bad)
        printf("             %llu of them are bad: `forebay run` names them\n",
               (unsigned long long)graph->bad);
}

void fby_graph_print_one(const fby_graph *graph)
{
    const fby_graph_task *task = &graph->tasks[0];
    const fby_spec *spec = task->spec;
    fby_branch_info branch = fby_plan_branch(graph->plan, 0);
    char shape[128], size[32], ranks[96], marks[64];
    shape_text(shape, sizeof shape, &branch);
    printf("%s\n", task->label);
    printf("  data set   %s: %llu samples, %u classes, the largest file %s\n",
           fby_dataset_root(graph->dataset), (unsigned long long)fby_dataset_count(graph->dataset),
           fby_dataset_classes(graph->dataset),
           fby_size_text(size, (double)fby_dataset_largest(graph->dataset)));
    if (task->samples != fby_dataset_count(graph->dataset))
        printf("  split      %llu of them\n", (unsigned long long)task->samples);
    printf("  order      %s, seed %llu; %llu batches of %u an epoch%s\n", fby_order_names[spec->order],
           (unsigned long long)spec->seed, batches_of(task), spec->batch_size,
           ranks_text(ranks, sizeof ranks, task));
    printf("  a sample   %s, %s\n", shape, fby_size_text(size, (double)branch.sample_bytes));
    printf("  window     %u batches: about %s of shared memory\n", spec->window,
           fby_size_text(size, (double)(spec->window + 1) * spec->batch_size * (double)branch.sample_bytes));
    printf("  stages\n");
    for (uint32_t i = 0; i < graph->stage_count; i++) {
        const fby_stage_info *stage = &graph->stages[i].info;
        printf("    %016llx  ", (unsigned long long)stage->key.high);
        if (graph->measured) printf("%8.1f us  ", graph->stages[i].us);
        printf("%*s%s%s%s%s%s\n", (int)(2 * i), "", stage->op, *stage->params ? " " : "", stage->params,
               stage->random ? "  (random)" : "", marks_text(marks, sizeof marks, stage));
    }
    if (!graph->measured) return;
    printf("  cost       %.0f us a sample on one core: decoding %.0f, resizing and converting %.0f ",
           fby_graph_together_us(graph), graph->decode_us, graph->transform_us);
    measured_print(graph);
}

/* The numbers of the tasks whose bit is set, from 1: "1-3 5"; its length. */
static int tasks_text(char *out, size_t bytes, uint64_t tasks)
{
    uint64_t numbers[FBY_PLAN_BRANCHES];
    uint32_t count = 0;
    for (; tasks; tasks &= tasks - 1) numbers[count++] = (uint64_t)__builtin_ctzll(tasks) + 1;
    return fby_numbers_text(out, bytes, numbers, count);
}

typedef struct stages_print {
    const fby_graph *graph;
    int width; /* of the longest list of tasks */
} stages_print;

static void stage_print(void *user, uint32_t node, const char *lead)
{
    const stages_print *all = user;
    const fby_graph *graph = all->graph;
    const fby_stage_info *info = &graph->stages[node].info;
    char tasks[FBY_NUMBERS_TEXT], marks[64];
    tasks_text(tasks, sizeof tasks, info->branches);
    printf("    ");
    if (graph->measured) printf("%10.1f  ", graph->stages[node].us);
    printf("%-*s  %s%s%s%s%s%s", all->width, tasks, lead, info->op, *info->params ? " " : "", info->params,
           info->random ? "  (random)" : "", marks_text(marks, sizeof marks, info));
    for (uint64_t ends = info->ends; ends; ends &= ends - 1)
        printf("%s%s", ends == info->ends ? "  => " : ", ", graph->tasks[__builtin_ctzll(ends)].label);
    putchar('\n');
}

static int stages_show(const fby_graph *graph)
{
    fby_tree_node *nodes = calloc(graph->stage_count, sizeof *nodes);
    if (!nodes) return FBY_ENOMEM;
    stages_print all = {.graph = graph, .width = 5};
    for (uint32_t s = 0; s < graph->stage_count; s++) {
        char tasks[FBY_NUMBERS_TEXT];
        int length = tasks_text(tasks, sizeof tasks, graph->stages[s].info.branches);
        if (length > all.width) all.width = length;
        nodes[s] = (fby_tree_node){graph->stages[s].info.parent, graph->stages[s].info.ends != 0};
    }
    puts("  graph");
    printf("    ");
    if (graph->measured) printf("%10s  ", "us");
    printf("%-*s  stage\n", all.width, "tasks");
    fby_tree_print(&(fby_tree){nodes, graph->stage_count, stage_print, &all});
    free(nodes);
    return FBY_OK;
}

int fby_graph_print(const fby_graph *graph)
{
    char size[32];
    printf("%s: %llu samples, %u classes, the largest file %s\n", fby_dataset_root(graph->dataset),
           (unsigned long long)fby_dataset_count(graph->dataset), fby_dataset_classes(graph->dataset),
           fby_size_text(size, (double)fby_dataset_largest(graph->dataset)));
    int wide = 0;
    for (uint32_t t = 0; t < graph->task_count; t++) {
        int length = (int)strlen(graph->tasks[t].label);
        if (length > wide) wide = length;
    }
    puts("  tasks");
    for (uint32_t t = 0; t < graph->task_count; t++) {
        const fby_graph_task *task = &graph->tasks[t];
        fby_branch_info branch = fby_plan_branch(graph->plan, t);
        char shape[128], ranks[48];
        shape_text(shape, sizeof shape, &branch);
        printf("    %2u  %-*s  %s order, %llu batches of %u an epoch%s; a sample: %s, %s", t + 1, wide,
               task->label, fby_order_names[task->spec->order], batches_of(task), task->spec->batch_size,
               ranks_text(ranks, sizeof ranks, task), shape,
               fby_size_text(size, (double)branch.sample_bytes));
        if (task->samples != fby_dataset_count(graph->dataset))
            printf("; %llu of the samples", (unsigned long long)task->samples);
        if (graph->measured) printf("; alone %.1f us", task->us);
        putchar('\n');
    }
    int status = stages_show(graph);
    if (status) return status;
    if (!graph->measured) return FBY_OK;
    double apart = fby_graph_apart_us(graph), together = fby_graph_together_us(graph);
    printf("  cost       together %.1f us a sample on one core, apart %.1f", together, apart);
    if (together > 0) printf(": %.2f times as much", apart / together);
    putchar(' ');
    measured_print(graph);
    if (graph->task_count > 1)
        puts("             a sample is shared by tasks that want it at the same time: those in shared order, "
             "or in the same fixed one");
    return FBY_OK;
}

/* --- JSON --------------------------------------------------------------------------------------------- */

static json_t *key_json(fby_digest key)
{
    char text[40];
    snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)key.high, (unsigned long long)key.low);
    return json_string(text);
}

static json_t *shape_json(const fby_branch_info *branch)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < branch->dimensions; i++)
        json_array_append_new(shape, json_integer(branch->shape[i]));
    return shape;
}

static json_t *stage_json(const fby_stage_info *stage)
{
    json_t *entry = json_object();
    json_object_set_new(entry, "key", key_json(stage->key));
    json_object_set_new(entry, "parent", json_integer(stage->parent));
    json_object_set_new(entry, "op", json_string(stage->op));
    json_object_set_new(entry, "params", json_string(stage->params));
    json_object_set_new(entry, "random", json_boolean(stage->random));
    json_object_set_new(entry, "cache_bytes", json_integer((json_int_t)stage->cache_bytes));
    json_object_set_new(entry, "echo", json_boolean(stage->echoes != 0));
    return entry;
}

static json_t *indices_json(uint64_t bits)
{
    json_t *indices = json_array();
    for (; bits; bits &= bits - 1) json_array_append_new(indices, json_integer(__builtin_ctzll(bits)));
    return indices;
}

static void task_describe(json_t *out, const fby_graph *graph, uint32_t t)
{
    const fby_graph_task *task = &graph->tasks[t];
    fby_branch_info branch = fby_plan_branch(graph->plan, t);
    json_object_set_new(out, "name", json_string(task->label));
    json_object_set_new(out, "samples", json_integer((json_int_t)task->samples));
    json_object_set_new(out, "batch", json_integer(task->spec->batch_size));
    json_object_set_new(out, "dtype", json_string(dtype_name(branch.dtype)));
    json_object_set_new(out, "shape", shape_json(&branch));
    json_object_set_new(out, "sample_bytes", json_integer((json_int_t)branch.sample_bytes));
}

static void measured_describe(json_t *out, const fby_graph *graph)
{
    json_object_set_new(out, "decode_us", json_real(graph->decode_us));
    json_object_set_new(out, "transform_us", json_real(graph->transform_us));
    json_object_set_new(out, "measured_samples", json_integer((json_int_t)graph->measured));
    json_object_set_new(out, "bad_samples", json_integer((json_int_t)graph->bad));
}

json_t *fby_graph_json_one(const fby_graph *graph)
{
    json_t *document = json_object(), *stages = json_array(), *costs = json_array();
    task_describe(document, graph, 0);
    for (uint32_t s = 0; s < graph->stage_count; s++) {
        json_array_append_new(stages, stage_json(&graph->stages[s].info));
        json_array_append_new(costs, json_real(graph->stages[s].us));
    }
    json_object_set_new(document, "stages", stages);
    if (graph->measured) {
        measured_describe(document, graph);
        json_object_set(document, "stage_us", costs);
    }
    json_decref(costs);
    return document;
}

json_t *fby_graph_json(const fby_graph *graph)
{
    json_t *document = json_object(), *tasks = json_array(), *stages = json_array();
    for (uint32_t t = 0; t < graph->task_count; t++) {
        json_t *entry = json_object();
        task_describe(entry, graph, t);
        json_object_set_new(entry, "order", json_string(fby_order_names[graph->tasks[t].spec->order]));
        json_object_set_new(entry, "batches", json_integer((json_int_t)batches_of(&graph->tasks[t])));
        if (graph->measured) json_object_set_new(entry, "us", json_real(graph->tasks[t].us));
        json_array_append_new(tasks, entry);
    }
    for (uint32_t s = 0; s < graph->stage_count; s++) {
        const fby_graph_stage *stage = &graph->stages[s];
        json_t *entry = stage_json(&stage->info);
        json_object_set_new(entry, "tasks", indices_json(stage->info.branches));
        json_object_set_new(entry, "ends", indices_json(stage->info.ends));
        if (graph->measured) json_object_set_new(entry, "us", json_real(stage->us));
        json_array_append_new(stages, entry);
    }
    json_object_set_new(document, "root", json_string(fby_dataset_root(graph->dataset)));
    json_object_set_new(document, "samples", json_integer((json_int_t)fby_dataset_count(graph->dataset)));
    json_object_set_new(document, "tasks", tasks);
    json_object_set_new(document, "stages", stages);
    if (!graph->measured) return document;
    double apart = fby_graph_apart_us(graph), together = fby_graph_together_us(graph);
    measured_describe(document, graph);
    json_object_set_new(document, "apart_us", json_real(apart));
    json_object_set_new(document, "together_us", json_real(together));
    json_object_set_new(document, "saving", together > 0 ? json_real(apart / together) : json_null());
    return document;
}
