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
    printf("\ntask %.0f  %s  (process %.0f)\n", number(task, "number"), text(task, "name"),
           number(task, "pid"));
    printf("  data set   %s: %.0f samples, %.0f classes%s\n", text(dataset, "root"),
           number(dataset, "samples"), number(dataset, "classes"),
           json_is_true(json_object_get(dataset, "index_from_cache")) ? ", index from the cache" : "");
    if (number(dataset, "left_out") > 0)
        printf("             %.0f files left out: no decoder knows their ending\n",
               number(dataset, "left_out"));
    printf("  progress   epoch %.0f, batch %.0f of %.0f, order %s\n", number(task, "epoch"),
           number(task, "batch_of_epoch"), number(task, "batches_per_epoch"), text(task, "order"));
    printf("  rate       %.0f samples/s over %.0f s, %.0f samples delivered\n", number(task, "samples_per_s"),
           number(task, "age_s"), number(task, "delivered_samples"));
    printf("  window     %.0f batches of %.0f: %.0f held or queued, %.0f being filled; %s shared memory\n",
           number(task, "window"), number(task, "batch"), number(task, "held_batches"),
           number(task, "pending_batches"), fby_size_text(size, number(task, "shared_bytes")));
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
    const json_t *tasks = json_object_get(status, "tasks");
    if (!json_array_size(tasks)) puts("\nno task");
    size_t index;
    json_t *task;
    json_array_foreach(tasks, index, task) task_print(task);
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
