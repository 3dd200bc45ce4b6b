#include "dataplane/ops/flip.h"

const fby_param fby_flip_list[FBY_FLIP_PARAMS] = {
    {"p", FBY_PARAM_REAL, offsetof(fby_flip_params, p), "0.5", 0, 1, NULL, "probability of a flip"},
    {"augment_seed", FBY_PARAM_SEED, offsetof(fby_flip_params, augment_seed), "the task's", 0, 0, NULL,
     "what draws of this op depend on"},
};

int fby_flip_allowed(const char *op, const fby_shape *shape, fby_error *error)
{
    if (shape->stage == FBY_STAGE_ENCODED)
        return fby_fail(error, FBY_EINVAL, "the samples are still encoded; expected decode before %s", op);
    if (shape->stage == FBY_STAGE_TENSOR)
        return fby_fail(error, FBY_EINVAL, "the samples are finished; expected %s before to", op);
    return FBY_OK;
}
