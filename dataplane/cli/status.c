#include <forebay/forebay.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/cli/cli.h"

typedef struct status_arguments {
    const char *socket;
    bool json;
} status_arguments;

enum { OPTION_JSON = 256 };

static const struct argp_option options[] = {
    {"json", OPTION_JSON, NULL, 0, "print the server's status document as it is", 0},
    {"socket", 's', "PATH", 0, "ask the server that listens here", 0},
    {0}};

static error_t option_take(int key, char *value, struct argp_state *state)
{
    status_arguments *arguments = state->input;
    switch (key) {
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case 's':
        arguments->socket = value;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "status takes no argument, got %s", value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static const char *text(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "";
}

static void task_print(const json_t *task)
{
    char size[32];
    const json_t *dataset = json_object_get(task, "dataset"), *bad = json_object_get(task, "bad");
    printf("\ntask %.0f  %s  (process %.0f", number(task, "number"), text(task, "name"), number(task, "pid"));
    if (number(task, "ranks") > 1) printf(", rank %.0f of %.0f", number(task, "rank"), number(task, "ranks"));
    if (json_is_string(json_object_get(task, "job"))) printf(", job %s", text(task, "job"));
    puts(")");
    if (json_is_string(json_object_get(task, "awaits"))) printf("  WAITS      %s\n", text(task, "awaits"));
    printf("  data set   %s: %.0f samples, %.0f classes%s\n", text(dataset, "root"),
           number(dataset, "samples"), number(dataset, "classes"),
           json_is_true(json_object_get(dataset, "index_from_cache")) ? ", index from the cache" : "");
    if (number(dataset, "left_out") > 0)
        printf("             %.0f files left out: no decoder knows their ending\n",
               number(dataset, "left_out"));
    printf("  progress   epoch %.0f, batch %.0f", number(task, "epoch"), number(task, "batch_of_epoch"));
    if (number(task, "batches_per_epoch") > 0) printf(" of %.0f", number(task, "batches_per_epoch"));
    printf(", order %s\n", text(task, "order"));
    printf("  rate       %.0f samples/s over %.0f s, %.0f samples delivered, %.0f%% of the batches in one "
           "piece\n",
           number(task, "samples_per_s"), number(task, "age_s"), number(task, "delivered_samples"),
           100 * number(task, "contiguous_share"));
    if (number(task, "lag_epochs") > 0)
        printf("             %.2f epochs behind the task that has come furthest with this data set\n",
               number(task, "lag_epochs"));
    printf(
        "  window     %.0f batches of %.0f: %.0f held or queued, %.0f draws on their way; %s shared memory\n",
        number(task, "window"), number(task, "batch"), number(task, "held_batches"),
        number(task, "pending_draws"), fby_size_text(size, number(task, "shared_bytes")));
    const json_t *echo = json_object_get(task, "echo");
    if (number(task, "step_s") > 0)
        printf("  pace       a step takes %.1f ms, a batch of fresh samples %.1f ms: %.2fx\n",
               1e3 * number(task, "step_s"), 1e3 * number(task, "upstream_batch_s"),
               number(task, "upstream_per_step"));
    if (json_is_object(echo))
        printf("  echo       of %s, %.2fx: %.0f samples fresh, %.0f again; %.0f of %.0f wait\n",
               text(echo, "of"), number(echo, "in_force"), number(echo, "fresh"), number(echo, "repeated"),
               number(echo, "buffered"), number(echo, "buffer"));
    if (json_is_string(json_object_get(task, "advice"))) printf("  advice     %s\n", text(task, "advice"));
    if (number(bad, "total") > 0) {
        printf("  bad        %.0f samples, %.0f replaced; the latest:\n", number(bad, "total"),
               number(bad, "substituted"));
        size_t index;
        json_t *entry;
        json_array_foreach(json_object_get(bad, "latest"), index, entry)
            printf("             %s: %s: %s %s\n", text(entry, "path"), text(entry, "op"),
                   text(entry, "reason"), text(entry, "text"));
    }
    if (json_is_string(json_object_get(task, "failed"))) printf("  FAILED     %s\n", text(task, "failed"));
}

/* --- sources ------------------------------------------------------------------------------------------ */

enum { TASKS_MOST = 64 };

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static int tasks_text(char *out, size_t bytes, const json_t *list)
{
    uint64_t numbers[TASKS_MOST];
    uint32_t count = 0;
    size_t index;
    json_t *entry;
    json_array_foreach(list, index, entry)
    {
        if (count < TASKS_MOST) numbers[count++] = (uint64_t)json_integer_value(entry);
    }
    qsort(numbers, count, sizeof *numbers, compare);
    return fby_numbers_text(out, bytes, numbers, count);
}

typedef struct stages_print {
    const json_t *stages;
    int width; /* of the longest list of tasks */
} stages_print;

static void stage_print(void *user, uint32_t node, const char *lead)
{
    const stages_print *all = user;
    const json_t *stage = json_array_get(all->stages, node);
    char tasks[FBY_NUMBERS_TEXT], ends[FBY_NUMBERS_TEXT];
    tasks_text(tasks, sizeof tasks, json_object_get(stage, "tasks"));
    int ending = tasks_text(ends, sizeof ends, json_object_get(stage, "ends"));
    printf("    %10.1f  %3.0f%%  %-*s  %s%s%s%s%s%s%s\n", number(stage, "samples_per_s"),
           100 * number(stage, "cpu_share"), all->width, tasks, lead, text(stage, "op"),
           *text(stage, "params") ? " " : "", text(stage, "params"),
           json_is_true(json_object_get(stage, "random")) ? "  (random)" : "", ending ? "  => " : "", ends);
}

static void graph_print(const json_t *graph)
{
    const json_t *stages = json_object_get(graph, "stages");
    size_t count = json_array_size(stages);
    fby_tree_node *nodes = count ? calloc(count, sizeof *nodes) : NULL;
    if (!nodes) return;
    stages_print all = {.stages = stages, .width = 5};
    for (size_t i = 0; i < count; i++) {
        const json_t *stage = json_array_get(stages, i);
        char tasks[FBY_NUMBERS_TEXT];
        int length = tasks_text(tasks, sizeof tasks, json_object_get(stage, "tasks"));
        if (length > all.width) all.width = length;
        nodes[i] = (fby_tree_node){(int32_t)number(stage, "parent"),
                                   json_array_size(json_object_get(stage, "ends")) > 0};
    }
    printf("  graph      of %.0f s, since a task last came or went\n", number(graph, "age_s"));
    printf("    %10s  %4s  %-*s  stage\n", "samples/s", "CPU", all.width, "tasks");
    fby_tree_print(&(fby_tree){nodes, (uint32_t)count, stage_print, &all});
    free(nodes);
}

static void source_print(const json_t *source)
{
    char tasks[FBY_NUMBERS_TEXT], size[32];
    const json_t *numbers = json_object_get(source, "tasks");
    tasks_text(tasks, sizeof tasks, numbers);
    printf("\ndata set %s: %.0f samples, task%s %s\n", text(source, "root"), number(source, "samples"),
           json_array_size(numbers) == 1 ? "" : "s", tasks);
    printf(
        "  draws      %.0f: %.0f samples drawn, delivered %.0f times: %.2f tasks a sample; %s of segments\n",
        number(source, "draws"), number(source, "drawn"), number(source, "delivered"),
        number(source, "share_factor"), fby_size_text(size, number(source, "segment_bytes")));
    if (number(source, "again_draws") > 0)
        printf("  echoes     %.0f draws of %.0f samples emitted again\n", number(source, "again_draws"),
               number(source, "again_samples"));
    size_t index;
    const json_t *cache;
    json_array_foreach(json_object_get(source, "caches"), index, cache)
    {
        char kept[32], limit[32];
        double looks = number(cache, "hits") + number(cache, "misses");
        printf("  cache      after %s: %.0f samples, %s of %s; found %.0f%% of %.0f\n", text(cache, "after"),
               number(cache, "samples"), fby_size_text(kept, number(cache, "bytes")),
               fby_size_text(limit, number(cache, "limit")),
               looks > 0 ? 100 * number(cache, "hits") / looks : 0, looks);
    }
    graph_print(json_object_get(source, "graph"));
}

static void status_print(const json_t *status)
{
    char used[32], limit[32], read[32];
    const json_t *memory = json_object_get(status, "memory"), *engine = json_object_get(status, "engine");
    printf("forebay %s, process %.0f, %s server at %s, up %.0f s\n", text(status, "version"),
           number(status, "pid"),
           json_is_true(json_object_get(status, "embedded")) ? "embedded" : "standalone",
           text(status, "socket"), number(status, "uptime_s"));
    printf("  memory     %s of %s\n", fby_size_text(used, number(memory, "used")),
           fby_size_text(limit, number(memory, "limit")));
    printf("  threads    workers: %.0f on %.0f CPUs; readers: %.0f (%s)\n", number(engine, "workers"),
           number(status, "cpus"), number(engine, "readers"), text(engine, "reader"));
    if (number(engine, "abandoned_workers") > 0)
        printf("             %.0f workers abandoned inside a decoder that doesn't return\n",
               number(engine, "abandoned_workers"));
    printf("  work       %.0f samples, %s read; CPU: decoding %.1f s, resizing and converting %.1f s, "
           "reading %.1f s, all %.1f s\n",
           number(engine, "samples"), fby_size_text(read, number(engine, "bytes_read")),
           number(engine, "decode_s"), number(engine, "transform_s"), number(engine, "reader_cpu_s"),
           number(status, "cpu_s"));
    printf("  JPEG       entropy decoder: %s\n", text(engine, "jpeg_entropy"));
    if (number(engine, "own_entropy_jpegs") > 0)
        printf("             ours began %.0f pictures, and left %.0f of them to libjpeg's\n",
               number(engine, "own_entropy_jpegs"), number(engine, "own_entropy_declined"));
    const json_t *tasks = json_object_get(status, "tasks");
    if (!json_array_size(tasks)) puts("\nno task");
    size_t index;
    json_t *task, *source;
    json_array_foreach(tasks, index, task) task_print(task);
    json_array_foreach(json_object_get(status, "sources"), index, source) source_print(source);
}

int fby_command_status(int count, char **values)
{
    static const struct argp argp = {options, option_take, "",  "Show what a server is doing.",
                                     NULL,    NULL,        NULL};
    status_arguments arguments = {0};
    if (fby_arguments_parse(&argp, "status", count, values, &arguments)) return FBY_EXIT_USAGE;
    fby_error error = FBY_ERROR_INIT;
    fby_client *client = NULL;
    fby_connect_options connect = FBY_CONNECT_OPTIONS_INIT;
    connect.socket = arguments.socket;
    connect.mode = FBY_MODE_FOUND;
    int status = fby_connect(&client, &connect, &error);
    char *document = NULL;
    if (!status) status = fby_client_status(client, &document, &error);
    fby_disconnect(&client);
    if (status) return fby_complain(&error);
    json_t *parsed = json_loads(document, 0, NULL);
    if (arguments.json || !parsed)
        puts(document);
    else
        status_print(parsed);
    json_decref(parsed);
    free(document);
    return 0;
}
