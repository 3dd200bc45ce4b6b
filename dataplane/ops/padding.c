#include "dataplane/ops/padding.h"

const char *const fby_border_choices[] = {"constant", "edge", "reflect", "symmetric", NULL};

fby_padding fby_padding_of(const fby_padding_params *params)
{
    return (fby_padding){
        .left = params->sides[0],
        .top = params->sides[1],
        .right = params->sides[2],
        .bottom = params->sides[3],
        .border = (fby_border)params->mode,
        .fill = {(uint8_t)params->fill[0], (uint8_t)params->fill[1], (uint8_t)params->fill[2]}};
}

int fby_padding_infer(const fby_padding_params *params, const fby_shape *shape, uint32_t *w, uint32_t *h,
                      fby_error *error)
{
    const uint32_t *fill = params->fill;
    bool one = fill[0] == fill[1] && fill[0] == fill[2];
    if (shape->channels == 1 && params->mode == FBY_BORDER_CONSTANT && !one)
        return fby_fail(error, FBY_EINVAL,
                        "the samples have one channel, and fill three levels; expected one level");
    *w = shape->w ? shape->w + params->sides[0] + params->sides[2] : 0;
    *h = shape->h ? shape->h + params->sides[1] + params->sides[3] : 0;
    return FBY_OK;
}
