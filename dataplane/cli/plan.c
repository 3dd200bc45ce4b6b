/* Shows what specs would do, before they run: the stages that they share and those that they don't, what
 * comes out, what memory it takes, and, measured on a few samples, what it costs. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/cli/cli.h"
#include "dataplane/cli/graph.h"
#include "dataplane/names/names.h"

typedef struct plan_arguments {
    char **specs;
    uint32_t spec_count;
    const char *cache, *dot, *svg;
    uint64_t samples;
    bool json;
} plan_arguments;

enum { OPTION_SAMPLES = 256, OPTION_JSON, OPTION_CACHE, OPTION_DOT, OPTION_SVG };

static const struct argp_option options[] = {
    {"samples", OPTION_SAMPLES, "N", 0, "measure the cost on N samples (default: 32; 0: don't)", 0},
    {"cache", OPTION_CACHE, "FOLDER", 0, "keep indexes here (default: $XDG_CACHE_HOME/forebay)", 0},
    {"json", OPTION_JSON, NULL, 0, "print the plan as JSON", 0},
    {"dot", OPTION_DOT, "FILE", 0, "write the graph in Graphviz's language", 0},
    {"svg", OPTION_SVG, "FILE", 0, "write a picture of the graph; needs Graphviz", 0},
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
    case OPTION_DOT:
        arguments->dot = value;
        return 0;
    case OPTION_SVG:
        arguments->svg = value;
        return 0;
    case ARGP_KEY_ARG:
        arguments->specs[arguments->spec_count++] = value;
        return 0;
    case ARGP_KEY_END:
        if (!arguments->spec_count) argp_error(state, "a SPEC file is expected");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* What was loaded: arrays with a place for each spec. */
typedef struct plans {
    uint32_t count, dataset_count, graph_count;
    fby_spec **specs;
    char **labels;
    fby_dataset **datasets; /* by order of appearance */
    fby_dataset **of_spec;  /* borrowed from datasets */
    fby_graph **graphs;
} plans;

static void plans_free(plans *all)
{
    for (uint32_t i = 0; i < all->graph_count; i++) fby_graph_free(&all->graphs[i]);
    for (uint32_t i = 0; i < all->dataset_count; i++) fby_dataset_close(&all->datasets[i]);
    for (uint32_t i = 0; all->specs && i < all->count; i++) fby_spec_free(&all->specs[i]);
    fby_labels_free(&all->labels, all->count);
    free(all->graphs);
    free(all->datasets);
    free(all->of_spec);
    free(all->specs);
}

/* The data set of a spec, opened once for all specs over it. */
static int dataset_get(plans *all, uint32_t i, const char *cache, fby_error *error)
{
    const fby_spec *spec = all->specs[i];
    for (uint32_t k = 0; k < i; k++) {
        const fby_spec *other = all->specs[k];
        if (other->dataset_kind != spec->dataset_kind || other->allow_empty != spec->allow_empty ||
            strcmp(other->dataset_path, spec->dataset_path) != 0)
            continue;
        all->of_spec[i] = all->of_spec[k];
        return FBY_OK;
    }
    fby_dataset_options open = {.kind = spec->dataset_kind,
                                .path = spec->dataset_path,
                                .allow_empty = spec->allow_empty,
                                .cache = cache};
    int status = fby_dataset_open(&all->of_spec[i], &open, error);
    if (status) fby_name_suggest(spec->dataset_path, error);
    if (!status) all->datasets[all->dataset_count++] = all->of_spec[i];
    return status;
}

static bool same_data(const fby_dataset *one, const fby_dataset *other)
{
    return fby_digest_equal(fby_dataset_fingerprint(one), fby_dataset_fingerprint(other));
}

/* A graph for each data set. */
static int graphs_make(plans *all, fby_error *error)
{
    const fby_spec **specs = calloc(all->count, sizeof *specs);
    const char **labels = calloc(all->count, sizeof *labels);
    int status = specs && labels ? FBY_OK : fby_fail(error, FBY_ENOMEM, "no memory for the plan");
    for (uint32_t i = 0; i < all->count && !status; i++) {
        bool first = true;
        for (uint32_t k = 0; k < i; k++) first = first && !same_data(all->of_spec[i], all->of_spec[k]);
        uint32_t count = 0;
        for (uint32_t k = i; k < all->count && first; k++) {
            if (!same_data(all->of_spec[i], all->of_spec[k])) continue;
            specs[count] = all->specs[k];
            labels[count++] = all->labels[k];
        }
        if (!first) continue;
        status = fby_graph_make(&all->graphs[all->graph_count], all->of_spec[i], specs, labels, count, error);
        all->graph_count += !status;
    }
    free(specs);
    free(labels);
    return status;
}

static int plans_load(plans *all, const plan_arguments *arguments, fby_error *error)
{
    uint32_t count = all->count = arguments->spec_count;
    all->specs = calloc(count, sizeof *all->specs);
    all->datasets = calloc(count, sizeof *all->datasets);
    all->of_spec = calloc(count, sizeof *all->of_spec);
    all->graphs = calloc(count, sizeof *all->graphs);
    all->labels = fby_labels_make(arguments->specs, count);
    if (!all->specs || !all->datasets || !all->of_spec || !all->graphs || !all->labels)
        return fby_fail(error, FBY_ENOMEM, "no memory for %u specs", count);
    int status = FBY_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        status = fby_spec_load(&all->specs[i], arguments->specs[i], error);
        if (!status) status = dataset_get(all, i, arguments->cache, error);
    }
    return status ? status : graphs_make(all, error);
}

static void plans_json(const plans *all)
{
    json_t *document = NULL;
    if (all->count == 1) {
        document = fby_graph_json_one(all->graphs[0]);
    } else {
        json_t *graphs = json_array();
        for (uint32_t i = 0; i < all->graph_count; i++)
            json_array_append_new(graphs, fby_graph_json(all->graphs[i]));
        document = json_object();
        json_object_set_new(document, "graphs", graphs);
    }
    json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(document);
}

static int plans_print(const plans *all, fby_error *error)
{
    if (all->count == 1) fby_graph_print_one(all->graphs[0]);
    for (uint32_t i = 0; i < all->graph_count && all->count > 1; i++) {
        if (i) putchar('\n');
        if (fby_graph_print(all->graphs[i])) return fby_fail(error, FBY_ENOMEM, "no memory for the plan");
    }
    return FBY_OK;
}

int fby_command_plan(int count, char **values)
{
    static const struct argp argp = {
        options,
        option_take,
        "SPEC...",
        "Show what specs would do, before they run: what they share, and what it "
        "costs.",
        NULL,
        NULL,
        NULL};
    plan_arguments arguments = {.samples = 32, .specs = calloc((size_t)count, sizeof(char *))};
    if (!arguments.specs) return FBY_EXIT_FAILED;
    if (fby_arguments_parse(&argp, "plan", count, values, &arguments)) {
        free(arguments.specs);
        return FBY_EXIT_USAGE;
    }
    fby_error error = FBY_ERROR_INIT;
    plans all = {0};
    int status = plans_load(&all, &arguments, &error);
    for (uint32_t i = 0; i < all.graph_count && arguments.samples && !status; i++)
        status = fby_graph_measure(all.graphs[i], arguments.samples, &error);
    if (!status && arguments.dot) status = fby_graphs_dot(arguments.dot, all.graphs, all.graph_count, &error);
    if (!status && arguments.svg) status = fby_graphs_svg(arguments.svg, all.graphs, all.graph_count, &error);
    if (!status && arguments.json) plans_json(&all);
    if (!status && !arguments.json) status = plans_print(&all, &error);
    plans_free(&all);
    free(arguments.specs);
    return status ? fby_complain(&error) : 0;
}
