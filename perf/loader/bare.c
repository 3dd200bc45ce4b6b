/* The bare loop: our own ops without a loader. Threads read files and run the plan into memory of their own:
 * nothing is shared, handed over or waited for. What a loader adds to this is its price.
 *
 * usage: perf_bare SPEC EPOCHS THREADS */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "dataplane/plan/plan.h"
#include "io/dataset.h"
#include "perf/side/sample.h"
#include "perf/side/side.h"

enum {
    MOST_THREADS = 64,
    SLOTS = 64,  /* samples that a thread writes to, round and round: a batch */
    PADDING = 64 /* bytes that a decoder may read past the end */
};

static fby_dataset *dataset;
static fby_plan *plan;
static uint64_t *order;
static uint64_t epoch;
static _Atomic uint64_t next_sample;

typedef struct worker {
    pthread_t thread;
    fby_scratch *scratch;
    uint8_t *file, *out;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    uint64_t count = fby_dataset_count(dataset);
    uint64_t bytes = fby_plan_branch(plan, 0).sample_bytes;
    for (uint64_t i; (i = atomic_fetch_add(&next_sample, 1)) < count;) {
        void *slot = w->out + i % SLOTS * bytes;
        fby_work item = {.bytes = w->file,
                         .length = perf_sample_read(dataset, order[i], w->file),
                         .id = order[i],
                         .branches = 1,
                         .turn = epoch,
                         .epoch = epoch,
                         .out = &slot};
        fby_failure failure;
        if (fby_plan_run(plan, w->scratch, &item, &failure))
            perf_side_fail("%s: %s: %s", fby_dataset_path(dataset, order[i]), failure.op, failure.text);
    }
    return NULL;
}

static void shuffle(uint64_t count)
{
    for (uint64_t i = count - 1; i > 0; i--) {
        uint64_t j = (uint64_t)rand() % (i + 1);
        uint64_t id = order[i];
        order[i] = order[j];
        order[j] = id;
    }
}

int main(int argc, char **argv)
{
    uint64_t epochs = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    int threads = argc == 4 ? atoi(argv[3]) : 0;
    if (!epochs || threads < 1 || threads > MOST_THREADS)
        perf_side_fail("usage: perf_bare SPEC EPOCHS THREADS");

    fby_error error = FBY_ERROR_INIT;
    fby_spec *spec = NULL;
    if (fby_spec_load(&spec, argv[1], &error)) perf_side_fail("%s", error.text);
    fby_dataset_options options = {.kind = spec->dataset_kind, .path = spec->dataset_path};
    if (fby_dataset_open(&dataset, &options, &error)) perf_side_fail("%s", error.text);
    const fby_spec *specs[] = {spec};
    if (fby_plan_create(&plan, specs, 1, fby_dataset_fingerprint(dataset), &error))
        perf_side_fail("%s", error.text);

    uint64_t count = fby_dataset_count(dataset);
    order = malloc(count * sizeof *order);
    for (uint64_t i = 0; i < count; i++) order[i] = i;
    static worker workers[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        workers[i].file = malloc(fby_dataset_largest(dataset) + 1 + PADDING);
        workers[i].out = aligned_alloc(64, SLOTS * fby_plan_branch(plan, 0).sample_bytes);
        if (fby_scratch_create(&workers[i].scratch)) perf_side_fail("no memory");
    }

    while (perf_side_asked()) {
        perf_instant from = perf_side_now(0);
        for (uint64_t i = 0; i < epochs; i++, epoch++) {
            shuffle(count);
            atomic_store(&next_sample, 0);
            for (int t = 0; t < threads; t++) pthread_create(&workers[t].thread, NULL, work, &workers[t]);
            for (int t = 0; t < threads; t++) pthread_join(workers[t].thread, NULL);
        }
        perf_side_answer(count * epochs, from, perf_side_now(0));
    }

    for (int i = 0; i < threads; i++) {
        fby_scratch_destroy(&workers[i].scratch);
        free(workers[i].file);
        free(workers[i].out);
    }
    free(order);
    fby_plan_destroy(&plan);
    fby_spec_free(&spec);
    fby_dataset_close(&dataset);
    return 0;
}
