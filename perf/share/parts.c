/* What a sample costs above a fork and below it, op by op and without a loader: what a server that shares
 * what lies above can save.
 *
 * usage: perf_parts SPEC ABOVE     ABOVE: how many of the pipeline's ops lie above the fork
 *
 * Prints {"above_us": …, "below_us": …}: CPU time, reading included, over one pass through the data set. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dataplane/plan/tree.h"
#include "io/dataset.h"
#include "perf/side/sample.h"
#include "perf/side/side.h"

enum { PADDING = 64 /* bytes that a decoder may read past the end */ };

static double cpu_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Applies the ops of stages `from` to `to`, the last excluded. */
static void ops_apply(const fby_plan *plan, uint32_t from, uint32_t to, fby_picture *picture, uint64_t id)
{
    for (uint32_t i = from; i < to; i++)
        if (fby_stage_apply(&plan->stages[i], picture, id, 0, 0))
            perf_side_fail("sample %llu is bad", (unsigned long long)id);
}

int main(int argc, char **argv)
{
    uint32_t above = argc == 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (!above) perf_side_fail("usage: perf_parts SPEC ABOVE");
    fby_error error = FBY_ERROR_INIT;
    fby_spec *spec = NULL;
    fby_dataset *dataset = NULL;
    fby_plan *plan = NULL;
    if (fby_spec_load(&spec, argv[1], &error)) perf_side_fail("%s", error.text);
    fby_dataset_options options = {.kind = spec->dataset_kind, .path = spec->dataset_path};
    const fby_spec *specs[] = {spec};
    if (fby_dataset_open(&dataset, &options, &error) ||
        fby_plan_create(&plan, specs, 1, fby_dataset_fingerprint(dataset), &error))
        perf_side_fail("%s", error.text);
    if (above + 1 >= plan->stage_count) perf_side_fail("the pipeline has %u ops", plan->stage_count - 1);

    fby_picture_memory *memory = NULL;
    uint64_t count = fby_dataset_count(dataset);
    uint8_t *file = malloc(fby_dataset_largest(dataset) + 1 + PADDING);
    uint8_t *out = aligned_alloc(64, (fby_plan_branch(plan, 0).sample_bytes + 63) & ~UINT64_C(63));
    if (!file || !out || fby_picture_memory_create(&memory)) perf_side_fail("no memory");
    double before = 0, after = 0;
    for (uint64_t id = 0; id < count; id++) {
        double start = cpu_us();
        fby_picture picture;
        fby_picture_start(&picture, memory, file, perf_sample_read(dataset, id, file));
        ops_apply(plan, 1, above + 1, &picture, id);
        fby_reason reason = fby_picture_settle(&picture);
        double forked = cpu_us();
        fby_picture branch = fby_picture_fork(&picture);
        ops_apply(plan, above + 1, plan->stage_count, &branch, id);
        if (!reason) reason = fby_picture_complete(&branch);
        if (reason) perf_side_fail("sample %llu is bad", (unsigned long long)id);
        fby_picture_write(&branch, &plan->stages[plan->stage_count - 1].sink, out);
        fby_picture_end(&branch);
        fby_picture_end(&picture);
        before += forked - start;
        after += cpu_us() - forked;
    }
    printf("{\"above_us\": %.3f, \"below_us\": %.3f}\n", before / (double)count, after / (double)count);
    fby_picture_memory_destroy(&memory);
    free(file);
    free(out);
    fby_plan_destroy(&plan);
    fby_spec_free(&spec);
    fby_dataset_close(&dataset);
    return 0;
}
