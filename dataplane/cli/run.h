/* What `forebay run` is made of: one task's run, and what the server counted meanwhile. */
#ifndef FBY_DATAPLANE_CLI_RUN_H
#define FBY_DATAPLANE_CLI_RUN_H

#include <forebay/forebay.h>
#include <jansson.h>

typedef struct fby_run_options {
    const char *socket;
    uint64_t epochs, batches; /* 0: as the spec says */
    double rate;              /* samples a second; 0: as fast as they come */
    bool json, embedded, quiet;
} fby_run_options;

/* What a server has counted, of all its tasks together. */
typedef struct fby_run_server {
    double cpu_s, decode_s, transform_s, read_cpu_s, worker_cpu_s, conductor_cpu_s;
    double samples, megabytes, workers;
} fby_run_server;

/* Adds `sign` times what a status document says. */
void fby_run_server_add(fby_run_server *counts, const json_t *status, double sign);

typedef struct fby_run_figures {
    uint64_t samples, batches, epochs; /* that were taken */
    double wall_s, wait_s, first_s, opening_s, opening_cpu_s, client_cpu_s;
    fby_run_server server; /* meanwhile, what was prepared ahead included and opening apart */
    uint64_t bad, substituted, byte_sum;
    /* Looks at the server while waiting for a batch: samples waited for a worker. */
    uint64_t looks, looks_queued, looked_ns;
} fby_run_figures;

/* One task's run. The caller fills the first part; the rest is there once the task is open. */
typedef struct fby_run fby_run;
struct fby_run {
    const char *spec;
    uint32_t rank;
    const char *job; /* of several ranks; NULL: none */
    const fby_run_options *options;
    /* Called while the data set is being indexed, once the task is open, and after each batch. NULL: not. */
    void (*indexing)(fby_run *run, uint64_t found, uint64_t done);
    void (*opened)(fby_run *run);
    void (*advanced)(fby_run *run);
    void *user;

    fby_run_figures figures;
    fby_task_info info;
    uint64_t started_ns, expected;    /* samples */
    json_t *before, *opening, *after; /* the server's status: before the task, once it was open, at its end */
};

/* Opens the task, takes its batches, closes it. FBY_EINTR where a signal came before there was anything to
 * count; one that comes later ends the run well. */
int fby_run_task(fby_run *run, fby_error *error);
void fby_run_free(fby_run *run);

/* SIGINT and SIGTERM stop the runs of this process; where `once`, the next one ends it at once. */
void fby_run_signals(bool once);
/* The signal that came, or 0. */
int fby_run_stopped(void);

/* One of several tasks that run at once, or one rank of one. */
typedef struct fby_run_part {
    const char *spec;
    char *label;
    uint32_t rank;
    uint32_t task; /* whose rank it is: a spec may be given twice */
} fby_run_part;

/* Runs all at once, each in a process of its own; the exit status. */
int fby_run_many(const fby_run_part *parts, uint32_t count, const fby_run_options *options);

#endif
