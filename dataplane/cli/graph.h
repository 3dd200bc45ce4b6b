/* What `forebay plan` shows: the graph that the tasks over one data set share, and what it costs. */
#ifndef FBY_DATAPLANE_CLI_GRAPH_H
#define FBY_DATAPLANE_CLI_GRAPH_H

#include <jansson.h>
#include <stdio.h>

#include "dataplane/plan/plan.h"

typedef struct fby_graph_task {
    const fby_spec *spec; /* borrowed, and so is the next */
    const char *label;    /* what it is called, unlike any other */
    uint64_t samples;     /* an epoch */
    double us;            /* a sample, where the task is served alone */
} fby_graph_task;

typedef struct fby_graph_stage {
    fby_stage_info info; /* branches and ends: bit t is task t */
    double us;           /* a sample, in the graph */
} fby_graph_stage;

typedef struct fby_graph {
    const fby_dataset *dataset; /* borrowed */
    fby_plan *plan;
    fby_graph_task *tasks;
    fby_graph_stage *stages;
    uint32_t task_count, stage_count;
    /* Of the measurement: samples, of them bad, bytes of their files; CPU microseconds a good sample. */
    uint64_t measured, bad, bytes;
    double decode_us, transform_us;
} fby_graph;

/* Fresh samples of a rank's epoch. */
uint64_t fby_graph_part(const fby_graph_task *task);

/* Merges the pipelines of `count` specs over `dataset`; all that it is given must live longer. */
int fby_graph_make(fby_graph **out, const fby_dataset *dataset, const fby_spec *const *specs,
                   const char *const *labels, uint32_t count, fby_error *error);
void fby_graph_free(fby_graph **graph);

/* Runs evenly spaced samples through the graph, and through each task's own plan, on this thread. */
int fby_graph_measure(fby_graph *graph, uint64_t samples, fby_error *error);

/* Microseconds a sample: all tasks together, and the sum of each alone; 0 where nothing was measured. */
double fby_graph_together_us(const fby_graph *graph);
double fby_graph_apart_us(const fby_graph *graph);

/* As text, for one task and for several, and as JSON. */
void fby_graph_print_one(const fby_graph *graph);
/* FBY_ENOMEM, or 0. */
int fby_graph_print(const fby_graph *graph);
json_t *fby_graph_json_one(const fby_graph *graph);
json_t *fby_graph_json(const fby_graph *graph);

/* All graphs in Graphviz's language, and as a picture that Graphviz's program `dot` makes of it. */
int fby_graphs_dot(const char *path, fby_graph *const *graphs, uint32_t count, fby_error *error);
int fby_graphs_svg(const char *path, fby_graph *const *graphs, uint32_t count, fby_error *error);

#endif
