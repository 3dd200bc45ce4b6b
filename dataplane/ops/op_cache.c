/* cache: keeps what reaches it for later epochs and other tasks. A mark: it changes no pixel. */
#include "dataplane/ops/op.h"

static const char *const packs[] = {"none", "fast", "small", NULL};

static const fby_param list[] = {
    {"memory", FBY_PARAM_BYTES, offsetof(fby_cache_params, memory), NULL, 1 << 20, 0x1p59, NULL,
     "bytes that it may take; what comes when it is full isn't kept"},
    {"pack", FBY_PARAM_CHOICE, offsetof(fby_cache_params, pack), "none", 0, 0, packs,
     "pixels packed without loss, by FBL's level `fast` or `small`: more of them fit, and each look decodes"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    (void)p;
    if (shape->random)
        return fby_fail(
            error, FBY_EINVAL,
            "an op before it is random, so that its result differs in every epoch; expected cache "
            "before the first random op, or echo in its place");
    if (shape->stage == FBY_STAGE_TENSOR)
        return fby_fail(error, FBY_EINVAL, "the samples are finished; expected cache before to");
    return FBY_OK;
}

const fby_op fby_op_cache = {.name = "cache",
                             .kind = FBY_OP_CACHE,
                             .version = 1,
                             .about = "keeps what reaches it in memory, for later epochs and for other tasks",
                             .params = list,
                             .param_count = sizeof list / sizeof *list,
                             .params_bytes = sizeof(fby_cache_params),
                             .shorthand = "memory",
                             .infer = infer};
