/* Plans for tests in Python, through ctypes: a shared library with a few flat functions. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/plan/plan.h"

enum { TRACE_VALUES = 11 + 2 * FBY_TRACE_ADJUSTMENTS };

#define EXPORT __attribute__((visibility("default")))

typedef struct pipeline {
    fby_plan *plan;
    fby_scratch *scratch;
} pipeline;

EXPORT int pipeline_open(pipeline **out, const char *const *texts, uint32_t count, char *message);
EXPORT void pipeline_close(pipeline **handle);
EXPORT void pipeline_info(const pipeline *handle, uint32_t branch, uint64_t info[8]);
EXPORT int pipeline_run(pipeline *handle, const uint8_t *bytes, size_t length, uint64_t id, uint64_t turn,
                        uint32_t repeat, uint64_t branches, void *const *out, char *message);
EXPORT int pipeline_trace(const pipeline *handle, uint32_t branch, uint64_t id, uint64_t turn,
                          uint32_t repeat, uint32_t w, uint32_t h,
                          uint32_t steps[FBY_SPEC_OPS][TRACE_VALUES]);
EXPORT const char *pipeline_reason(int reason);

void pipeline_close(pipeline **handle)
{
    fby_scratch_destroy(&(*handle)->scratch);
    fby_plan_destroy(&(*handle)->plan);
    free(*handle);
    *handle = NULL;
}

/* `message`: FBY_ERROR_TEXT bytes for what was wrong. */
int pipeline_open(pipeline **out, const char *const *texts, uint32_t count, char *message)
{
    fby_spec *specs[FBY_PLAN_BRANCHES] = {NULL};
    fby_error error = FBY_ERROR_INIT;
    int status = FBY_OK;
    pipeline *handle = calloc(1, sizeof *handle);
    for (uint32_t i = 0; i < count && !status; i++)
        status = fby_spec_parse(&specs[i], "spec", texts[i], strlen(texts[i]), "/", &error);
    if (!status)
        status =
            fby_plan_create(&handle->plan, (const fby_spec *const *)specs, count, (fby_digest){0}, &error);
    if (!status) status = fby_scratch_create(&handle->scratch);
    for (uint32_t i = 0; i < count; i++) fby_spec_free(&specs[i]);
    snprintf(message, FBY_ERROR_TEXT, "%s", error.text);
    if (status) pipeline_close(&handle);
    *out = handle;
    return status;
}

/* dtype, layout, shape (3), sample_bytes, stages of the plan, branches. */
void pipeline_info(const pipeline *handle, uint32_t branch, uint64_t info[8])
{
    fby_branch_info of = fby_plan_branch(handle->plan, branch);
    uint64_t values[8] = {of.dtype,
                          of.layout,
                          of.shape[0],
                          of.shape[1],
                          of.shape[2],
                          of.sample_bytes,
                          fby_plan_stages(handle->plan),
                          fby_plan_branches(handle->plan)};
    memcpy(info, values, sizeof values);
}

/* The reason, 0 for none; `bytes` with the margin that decoders ask for. */
int pipeline_run(pipeline *handle, const uint8_t *bytes, size_t length, uint64_t id, uint64_t turn,
                 uint32_t repeat, uint64_t branches, void *const *out, char *message)
{
    fby_failure failure;
    fby_work work = {.bytes = bytes,
                     .length = length,
                     .id = id,
                     .branches = branches,
                     .turn = turn,
                     .epoch = turn,
                     .repeat = repeat,
                     .out = out};
    fby_reason reason = fby_plan_run(handle->plan, handle->scratch, &work, &failure);
    if (reason) snprintf(message, FBY_ERROR_TEXT, "%s: %s", failure.op, failure.text);
    return (int)reason;
}

/* How many steps; each is crop x, y, w, h, pad left, top, out w, h, flips, how many adjustments, and for each
 * its kind and its factor's bits. */
int pipeline_trace(const pipeline *handle, uint32_t branch, uint64_t id, uint64_t turn, uint32_t repeat,
                   uint32_t w, uint32_t h, uint32_t steps[FBY_SPEC_OPS][TRACE_VALUES])
{
    fby_trace trace;
    int status = fby_plan_trace(handle->plan, branch, id, turn, repeat, w, h, &trace);
    if (status) return status;
    for (uint32_t i = 0; i < trace.count; i++) {
        const fby_trace_step *step = &trace.steps[i];
        uint32_t values[TRACE_VALUES] = {step->crop_x,        step->crop_y,          step->crop_w,
                                         step->crop_h,        step->pad_left,        step->pad_top,
                                         step->out_w,         step->out_h,           step->flip_horizontal,
                                         step->flip_vertical, step->adjustment_count};
        for (uint32_t k = 0; k < step->adjustment_count; k++) {
            values[11 + 2 * k] = (uint32_t)step->adjustments[k].kind;
            memcpy(&values[12 + 2 * k], &step->adjustments[k].factor, sizeof(float));
        }
        memcpy(steps[i], values, sizeof values);
    }
    return (int)trace.count;
}

const char *pipeline_reason(int reason)
{
    return fby_reason_name((fby_reason)reason);
}
