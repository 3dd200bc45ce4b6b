/* normalize: ((value / 255) - mean) / std per channel, as torchvision's ToTensor and Normalize. */
#include "dataplane/ops/op.h"

typedef struct params {
    double mean[3], std[3];
} params;

static const fby_param list[] = {
    {"mean", FBY_PARAM_TRIPLE, offsetof(params, mean), NULL, -1e6, 1e6, NULL,
     "[red, green, blue], of values between 0 and 1; or one for all channels"},
    {"std", FBY_PARAM_TRIPLE, offsetof(params, std), NULL, 0, 1e6, NULL,
     "[red, green, blue], none of them 0; or one for all channels"},
};

static const char *const presets[] = {"imagenet", "{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}",
                                      NULL};

static int check(const void *p, fby_error *error)
{
    const params *with = p;
    for (int c = 0; c < 3; c++)
        if (!((float)with->std[c] > 1e-30f))
            return fby_fail(error, FBY_EINVAL, "std is 0 for %s; expected three numbers above 0",
                            (const char *const[]){"red", "green", "blue"}[c]);
    return FBY_OK;
}

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    const params *with = p;
    if (shape->stage == FBY_STAGE_ENCODED)
        return fby_fail(error, FBY_EINVAL, "the samples are still encoded; expected decode before normalize");
    if (shape->stage == FBY_STAGE_TENSOR)
        return fby_fail(error, FBY_EINVAL, "the samples are finished; expected normalize before to");
    if (shape->normalized)
        return fby_fail(error, FBY_EINVAL, "the samples are normalized already; expected one normalize");
    bool one = with->mean[0] == with->mean[1] && with->mean[0] == with->mean[2] &&
               with->std[0] == with->std[1] && with->std[0] == with->std[2];
    if (shape->channels == 1 && !one)
        return fby_fail(error, FBY_EINVAL,
                        "the samples have one channel, and mean or std three values; expected one of each");
    shape->normalized = true;
    for (int c = 0; c < 3; c++) {
        shape->mean[c] = (float)with->mean[c];
        shape->std[c] = (float)with->std[c];
    }
    return FBY_OK;
}

const fby_op fby_op_normalize = {
    .name = "normalize",
    .version = 1,
    .about = "scales values to 0…1, subtracts the mean and divides by the standard deviation",
    .params = list,
    .param_count = sizeof list / sizeof *list,
    .params_bytes = sizeof(params),
    .presets = presets,
    .check = check,
    .infer = infer};
