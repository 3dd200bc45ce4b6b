/* Shows what a spec would do: its stages, their keys, what comes out, what memory it takes, and, measured on
 * a few of its samples, what a sample costs. */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/cli/cli.h"
#include "dataplane/plan/plan.h"
#include "io/reader.h"

typedef struct plan_arguments {
    const char *spec, *cache;
    uint64_t samples;
    bool json;
} plan_arguments;

enum { OPTION_SAMPLES = 256, OPTION_JSON, OPTION_CACHE, READ_PADDING = 64 };

static const struct argp_option options[] = {
    {"samples", OPTION_SAMPLES, "N", 0, "measure the cost on N samples (default: 32; 0: don't)", 0},
    {"cache", OPTION_CACHE, "FOLDER", 0, "keep indexes here (default: $XDG_CACHE_HOME/forebay)", 0},
    {"json", OPTION_JSON, NULL, 0, "print the plan as JSON", 0},
    {0}};

static error_t option_take(int key, char *value, struct argp_state *state)
{
    plan_arguments *arguments = state->input;
    switch (key) {
    case OPTION_SAMPLES:
        if (!fby_count_parse(value, 1000000, &arguments->samples))
            argp_error(state, "--samples %s: expected a whole number", value);
        return 0;
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case OPTION_CACHE:
        arguments->cache = value;
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

typedef struct plan_costs {
    uint64_t samples, bad, bytes;
    double decode_us, transform_us;
} plan_costs;

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

/* Runs evenly spaced samples through the plan, on this thread. */
static int costs_measure(plan_costs *out, const fby_plan *plan, const fby_dataset *dataset, uint64_t samples,
                         fby_error *error)
{
    *out = (plan_costs){0};
    fby_scratch *scratch = NULL;
    void *block = malloc(fby_plan_branch(plan, 0).sample_bytes + READ_PADDING);
    if (!block || fby_scratch_create(&scratch)) {
        free(block);
        return fby_fail(error, FBY_ENOMEM, "no memory to measure with");
    }
    uint64_t count = fby_dataset_count(dataset);
    if (samples > count) samples = count;
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t id = i * count / samples, length = 0;
        uint8_t *bytes = file_read(dataset, id, &length);
        fby_work work = {
            .bytes = bytes, .length = length, .id = id, .branches = 1, .out = (void *const[]){block}};
        fby_failure failure;
        if (!bytes || fby_plan_run(plan, scratch, &work, &failure)) out->bad++;
        out->samples++;
        out->bytes += length;
        free(bytes);
    }
    fby_scratch_times times;
    fby_scratch_get_times(scratch, &times);
    uint64_t good = out->samples - out->bad;
    if (good) {
        out->decode_us = (double)times.decode_ns * 1e-3 / (double)good;
        out->transform_us = (double)times.transform_ns * 1e-3 / (double)good;
    }
    fby_scratch_destroy(&scratch);
    free(block);
    return 0;
}

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

static void shape_text(char *out, size_t bytes, const fby_branch_info *branch)
{
    size_t length = (size_t)snprintf(out, bytes, "%s ", dtype_name(branch->dtype));
    for (uint32_t i = 0; i < branch->dimensions && length < bytes; i++)
        length += (size_t)snprintf(out + length, bytes - length, i ? " x %u" : "%u", branch->shape[i]);
}

static void plan_print(const fby_spec *spec, const fby_dataset *dataset, const fby_plan *plan,
                       const plan_costs *costs)
{
    static const char *const orders[] = {"shared", "strict", "sequential"};
    fby_branch_info branch = fby_plan_branch(plan, 0);
    char shape[128], size[32];
    shape_text(shape, sizeof shape, &branch);
    uint64_t count = fby_dataset_count(dataset);
    uint64_t batches =
        spec->drop_last ? count / spec->batch_size : (count + spec->batch_size - 1) / spec->batch_size;
    printf("%s\n", spec->name);
    printf("  data set   %s: %llu samples, %u classes, the largest file %s\n", fby_dataset_root(dataset),
           (unsigned long long)count, fby_dataset_classes(dataset),
           fby_size_text(size, (double)fby_dataset_largest(dataset)));
    printf("  order      %s, seed %llu; %llu batches of %u an epoch\n", orders[spec->order],
           (unsigned long long)spec->seed, (unsigned long long)batches, spec->batch_size);
    printf("  a sample   %s, %s\n", shape, fby_size_text(size, (double)branch.sample_bytes));
    printf("  window     %u batches: about %s of shared memory\n", spec->window,
           fby_size_text(size, (double)(spec->window + 1) * spec->batch_size * (double)branch.sample_bytes));
    printf("  stages\n");
    for (uint32_t i = 0; i < fby_plan_stages(plan); i++) {
        fby_stage_info stage;
        fby_plan_stage(plan, i, &stage);
        printf("    %016llx  %*s%s%s%s%s\n", (unsigned long long)stage.key.high, (int)(2 * i), "", stage.op,
               *stage.params ? " " : "", stage.params, stage.random ? "  (random)" : "");
    }
    if (!costs->samples) return;
    printf("  cost       %.0f us a sample on one core: decoding %.0f, resizing and converting %.0f (measured "
           "on %llu samples, mean file %s)\n",
           costs->decode_us + costs->transform_us, costs->decode_us, costs->transform_us,
           (unsigned long long)costs->samples,
           fby_size_text(size, (double)costs->bytes / (double)costs->samples));
    if (costs->bad)
        printf("             %llu of them are bad: `forebay run` names them\n",
               (unsigned long long)costs->bad);
}

static void plan_json(const fby_spec *spec, const fby_dataset *dataset, const fby_plan *plan,
                      const plan_costs *costs)
{
    fby_branch_info branch = fby_plan_branch(plan, 0);
    json_t *document = json_object(), *stages = json_array(), *shape = json_array();
    for (uint32_t i = 0; i < branch.dimensions; i++)
        json_array_append_new(shape, json_integer(branch.shape[i]));
    for (uint32_t i = 0; i < fby_plan_stages(plan); i++) {
        fby_stage_info stage;
        fby_plan_stage(plan, i, &stage);
        char key[40];
        snprintf(key, sizeof key, "%016llx%016llx", (unsigned long long)stage.key.high,
                 (unsigned long long)stage.key.low);
        json_t *entry = json_object();
        json_object_set_new(entry, "key", json_string(key));
        json_object_set_new(entry, "parent", json_integer(stage.parent));
        json_object_set_new(entry, "op", json_string(stage.op));
        json_object_set_new(entry, "params", json_string(stage.params));
        json_object_set_new(entry, "random", json_boolean(stage.random));
        json_array_append_new(stages, entry);
    }
    json_object_set_new(document, "name", json_string(spec->name));
    json_object_set_new(document, "samples", json_integer((json_int_t)fby_dataset_count(dataset)));
    json_object_set_new(document, "batch", json_integer(spec->batch_size));
    json_object_set_new(document, "dtype", json_string(dtype_name(branch.dtype)));
    json_object_set_new(document, "shape", shape);
    json_object_set_new(document, "sample_bytes", json_integer((json_int_t)branch.sample_bytes));
    json_object_set_new(document, "stages", stages);
    if (costs->samples) {
        json_object_set_new(document, "decode_us", json_real(costs->decode_us));
        json_object_set_new(document, "transform_us", json_real(costs->transform_us));
        json_object_set_new(document, "measured_samples", json_integer((json_int_t)costs->samples));
        json_object_set_new(document, "bad_samples", json_integer((json_int_t)costs->bad));
    }
    json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(document);
}

int fby_command_plan(int count, char **values)
{
    static const struct argp argp = {
        options, option_take, "SPEC", "Show what a spec would do, before it runs.", NULL, NULL, NULL};
    plan_arguments arguments = {.samples = 32};
    if (fby_arguments_parse(&argp, "plan", count, values, &arguments)) return FBY_EXIT_USAGE;
    fby_error error = FBY_ERROR_INIT;
    fby_spec *spec = NULL;
    fby_dataset *dataset = NULL;
    fby_plan *plan = NULL;
    plan_costs costs = {0};
    int status = fby_spec_load(&spec, arguments.spec, &error);
    if (!status) status = fby_spec_check_served(spec, &error);
    if (!status) {
        fby_dataset_options open = {.kind = spec->dataset_kind,
                                    .path = spec->dataset_path,
                                    .allow_empty = spec->allow_empty,
                                    .cache = arguments.cache};
        status = fby_dataset_open(&dataset, &open, &error);
    }
    if (!status)
        status = fby_plan_create(&plan, (const fby_spec *const[]){spec}, 1, fby_dataset_fingerprint(dataset),
                                 &error);
    if (!status && arguments.samples)
        status = costs_measure(&costs, plan, dataset, arguments.samples, &error);
    if (!status && arguments.json) plan_json(spec, dataset, plan, &costs);
    if (!status && !arguments.json) plan_print(spec, dataset, plan, &costs);
    fby_plan_destroy(&plan);
    fby_dataset_close(&dataset);
    fby_spec_free(&spec);
    return status ? fby_complain(&error) : 0;
}
