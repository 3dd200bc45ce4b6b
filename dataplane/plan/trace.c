#include "dataplane/plan/tree.h"

int fby_plan_trace(const fby_plan *plan, uint32_t branch, uint64_t id, uint64_t turn, uint32_t repeat,
                   uint32_t w, uint32_t h, fby_trace *out)
{
    *out = (fby_trace){0};
    if (branch >= plan->branch_count || w < 1 || h < 1) return FBY_EINVAL;
    int32_t path[FBY_SPEC_OPS] = {0};
    uint32_t count = 0; /* marks are no stages: no steps */
    for (int32_t stage = plan->last[branch]; stage > 0; stage = plan->stages[stage].parent)
        path[count++] = stage;

    fby_picture picture;
    fby_picture_start_trace(&picture, w, h);
    while (count--) {
        const fby_stage *stage = &plan->stages[path[count]];
        fby_trace_step *step = &out->steps[out->count++];
        step->op = stage->op->name;
        picture.step = step;
        int32_t echo_stage = plan->echo[branch] < 0 ? 0 : plan->echo[branch];
        uint32_t emission = fby_stage_repeat(plan, path[count], echo_stage, repeat);
        if (fby_stage_apply(stage, &picture, id, turn, emission)) return FBY_EINVAL;
        step->out_w = fby_picture_w(&picture);
        step->out_h = fby_picture_h(&picture);
    }
    return FBY_OK;
}
