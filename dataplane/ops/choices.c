#include "dataplane/ops/choices.h"

const char *const fby_filter_choices[] = {"nearest", "box", "bilinear", "bicubic", "lanczos", NULL};
const char *const fby_pillow_choices[] = {"13", "12", NULL};

int fby_pillow_of(int32_t choice)
{
    return choice ? 12 : 13;
}

int fby_geometry_allowed(const char *op, const fby_shape *shape, fby_error *error)
{
    if (shape->stage == FBY_STAGE_ENCODED)
        return fby_fail(error, FBY_EINVAL, "the samples are still encoded; expected decode before %s", op);
    if (shape->stage == FBY_STAGE_TENSOR)
        return fby_fail(error, FBY_EINVAL, "the samples are finished; expected %s before to", op);
    if (shape->normalized)
        return fby_fail(error, FBY_EINVAL, "the samples are normalized already; expected %s before normalize",
                        op);
    return FBY_OK;
}
