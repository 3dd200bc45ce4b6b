/* to: what finished samples are made of. */
#include "dataplane/ops/op.h"

typedef struct params {
    int32_t dtype, layout;
} params;

static const char *const dtypes[] = {"u8", "f16", "bf16", "f32", NULL};
static const char *const torch_dtypes[][2] = {
    {"uint8", "u8"},  {"byte", "u8"},     {"float16", "f16"}, {"half", "f16"}, {"bfloat16", "bf16"},
    {"float", "f32"}, {"float32", "f32"}, {"fp16", "f16"},    {"fp32", "f32"}, {NULL, NULL},
};
static const fby_dtype dtype_of[] = {FBY_U8, FBY_F16, FBY_BF16, FBY_F32};
static const char *const layouts[] = {"chw", "hwc", NULL};
static const fby_layout layout_of[] = {FBY_CHW, FBY_HWC};

static const fby_param list[] = {
    {"dtype", FBY_PARAM_CHOICE, offsetof(params, dtype), "f32", 0, 0, dtypes,
     "element type: u8 keeps the levels 0 to 255; without normalize the others hold level / 255",
     torch_dtypes},
    {"layout", FBY_PARAM_CHOICE, offsetof(params, layout), "chw", 0, 0, layouts,
     "chw: a plane per channel; hwc: channels together, PyTorch's channels_last"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    const params *with = p;
    if (shape->stage == FBY_STAGE_ENCODED)
        return fby_fail(error, FBY_EINVAL, "the samples are still encoded; expected decode before to");
    if (shape->stage == FBY_STAGE_TENSOR)
        return fby_fail(error, FBY_EINVAL,
                        "the samples are finished already; expected one to, last in the pipeline");
    if (shape->normalized && dtype_of[with->dtype] == FBY_U8)
        return fby_fail(error, FBY_EINVAL,
                        "normalized samples don't fit u8; expected dtype f32, f16 or bf16");
    shape->stage = FBY_STAGE_TENSOR;
    shape->dtype = dtype_of[with->dtype];
    shape->layout = layout_of[with->layout];
    return FBY_OK;
}

const fby_op fby_op_to = {.name = "to",
                          .version = 1,
                          .about =
                              "sets the element type and the layout of finished samples; last in a pipeline",
                          .params = list,
                          .param_count = sizeof list / sizeof *list,
                          .params_bytes = sizeof(params),
                          .infer = infer};
