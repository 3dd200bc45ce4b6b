/* grayscale: torchvision's Grayscale.
 *
 * Pictures stay RGB inside: three equal channels, on which all ops do what they would do on one, to the bit.
 * One of them leaves where one is asked for. */
#include "dataplane/ops/choices.h"
#include "dataplane/ops/picture.h"

typedef struct params {
    int32_t channels;
} params;

static const char *const channels[] = {"3", "1", NULL};

static const fby_param list[] = {
    {"num_output_channels", FBY_PARAM_CHOICE, offsetof(params, channels), "3", 0, 0, channels,
     "channels that samples have from here on: 3, equal ones, or 1"},
};

static int infer(const void *p, fby_shape *shape, fby_error *error)
{
    const params *with = p;
    int status = fby_geometry_allowed("grayscale", shape, error);
    if (!status) shape->channels = with->channels ? 1 : 3;
    return status;
}

static fby_reason apply(const void *p, fby_picture *picture, fby_random *random)
{
    (void)p;
    (void)random;
    const fby_adjustment gray = {.kind = FBY_ADJUST_SATURATION, .factor = 0};
    return fby_picture_adjust(picture, &gray, 1);
}

const fby_op fby_op_grayscale = {.name = "grayscale",
                                 .version = 1,
                                 .about = "takes the colour out of the picture",
                                 .params = list,
                                 .param_count = sizeof list / sizeof *list,
                                 .params_bytes = sizeof(params),
                                 .shorthand = "num_output_channels",
                                 .infer = infer,
                                 .apply = apply};
