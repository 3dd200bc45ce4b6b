/* The kernels as a shared library, for tests that compare them with Pillow and numpy through ctypes. */
#include "tests/kernels/kernels_shared.h"

#include <stddef.h>

#include "kernels/adjust.h"
#include "kernels/philox.h"
#include "kernels/resample.h"
#include "kernels/resample_kernels.h"

#define EXPORT __attribute__((visibility("default")))

static int sink_of(fby_sink *sink, const fby_test_output *output)
{
    *sink = (fby_sink){
        .dtype = (fby_dtype)output->dtype,
        .layout = (fby_layout)output->layout,
        .normalize = output->normalize != 0,
        .unit = output->unit != 0,
    };
    for (int channel = 0; channel < 3; channel++) {
        sink->mean[channel] = output->mean[channel];
        sink->std[channel] = output->std[channel];
    }
    return fby_sink_prepare(sink);
}

EXPORT int fby_test_tier_supported(int tier)
{
    return fby_tier_supported((fby_tier)tier);
}

EXPORT int fby_test_resize(int tier, const uint8_t *rgb, size_t stride, const fby_test_resize_job *given,
                           const fby_test_output *output, void *out)
{
    fby_sink sink;
    fby_resampler *resampler;
    if (sink_of(&sink, output) || fby_resampler_create(&resampler, (fby_tier)tier)) return -1;

    fby_resample_job job = {
        .in_w = given->in_w,
        .in_h = given->in_h,
        .out_w = given->out_w,
        .out_h = given->out_h,
        .filter = (fby_filter)given->filter,
        .pillow = given->pillow,
        .flip_horizontal = given->flip_horizontal != 0,
        .flip_vertical = given->flip_vertical != 0,
    };
    int status = fby_resample_begin(resampler, &job);
    for (uint32_t y = 0; status == 0 && y < job.in_h; y += given->rows_at_a_time) {
        fby_resample_rows(resampler, rgb + y * stride, stride, given->rows_at_a_time);
    }
    if (status == 0) fby_resample_finish(resampler, &sink, out);
    fby_resampler_destroy(&resampler);
    return status;
}

EXPORT int fby_test_convert(int tier, const uint8_t *rgb, size_t stride, const fby_test_resize_job *given,
                            const fby_test_output *output, void *out)
{
    fby_sink sink;
    if (sink_of(&sink, output)) return -1;
    fby_sink_write(&sink, (fby_tier)tier, rgb, stride, given->in_w, given->in_h, given->flip_horizontal != 0,
                   given->flip_vertical != 0, out);
    return 0;
}

EXPORT void fby_test_adjust(int tier, int kind, float factor, uint8_t *rgb, size_t stride, uint32_t w,
                            uint32_t h)
{
    fby_adjustment adjustment = {(fby_adjustment_kind)kind, factor};
    fby_adjust(&adjustment, 1, (fby_tier)tier, rgb, stride, w, h);
}

EXPORT void fby_test_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    fby_philox4 block = fby_philox(counter, key);
    for (int i = 0; i < 4; i++) out[i] = block.word[i];
}
