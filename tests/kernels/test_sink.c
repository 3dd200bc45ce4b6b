/* Levels to values, and what a sink refuses. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/resample.h"
#include "tests/support/test.h"

static fby_sink imagenet(fby_dtype dtype)
{
    return (fby_sink){
        .dtype = dtype,
        .layout = FBY_CHW,
        .normalize = true,
        .mean = {0.485f, 0.456f, 0.406f},
        .std = {0.229f, 0.224f, 0.225f},
    };
}

Test(sink, imagenet_is_exact_by_multiplication)
{
    fby_sink sink = imagenet(FBY_F32);
    cr_assert_eq(fby_sink_prepare(&sink), 0);
    cr_assert(sink.exact_by_multiplication);

    /* float32(255) / 255 = 1 and (1 - 0.485f) / 0.229f, and the level 0. */
    volatile float high = 1.0f - 0.485f, low = -0.485f, std = 0.229f;
    cr_assert_eq(sink.table[0][255], high / std);
    cr_assert_eq(sink.table[0][0], low / std);
}

Test(sink, refuses_what_has_no_value)
{
    const float bad[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fby_sink sink = imagenet(FBY_F32);
        sink.std[1] = bad[i];
        cr_assert_eq(fby_sink_prepare(&sink), -1, "std %g", (double)bad[i]);
    }
    fby_sink sink = imagenet(FBY_BF16);
    sink.mean[2] = NAN;
    cr_assert_eq(fby_sink_prepare(&sink), -1);

    sink = imagenet(FBY_U8);
    cr_assert_eq(fby_sink_prepare(&sink), -1, "u8 can't be normalised");
    sink = imagenet(FBY_U16);
    sink.normalize = false;
    cr_assert_eq(fby_sink_prepare(&sink), -1, "u16 needs 16-bit pixels");
    sink.dtype = (fby_dtype)99;
    cr_assert_eq(fby_sink_prepare(&sink), -1);
}

Test(sink, plain_and_unit_values)
{
    fby_sink plain = {.dtype = FBY_F32, .layout = FBY_HWC},
             unit = {.dtype = FBY_F32, .layout = FBY_HWC, .unit = true};
    cr_assert_eq(fby_sink_prepare(&plain), 0);
    cr_assert_eq(fby_sink_prepare(&unit), 0);
    for (int level = 0; level < 256; level++) {
        cr_assert_eq(plain.table[1][level], (float)level);
        cr_assert_eq(unit.table[2][level], (float)level / 255.0f);
    }
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

Test(half, bfloat16_rounds_to_nearest_even)
{
    cr_assert_eq(fby_bfloat16(1.0f), 0x3F80);
    cr_assert_eq(fby_bfloat16(float_of(0x3F808000)), 0x3F80, "a tie goes to the even one below");
    cr_assert_eq(fby_bfloat16(float_of(0x3F818000)), 0x3F82, "a tie goes to the even one above");
    cr_assert_eq(fby_bfloat16(float_of(0x3F808001)), 0x3F81);
    cr_assert_eq(fby_bfloat16(float_of(0x7F7FFFFF)), 0x7F80, "the largest rounds to infinity");
    cr_assert_eq(fby_bfloat16(float_of(0xFF800000)), 0xFF80);
    cr_assert_eq(fby_bfloat16(float_of(0x7F800001)), 0x7FC0, "a NaN stays one");
    cr_assert_eq(fby_bfloat16(-0.0f), 0x8000);
}

Test(half, float16_rounds_to_nearest_even)
{
    cr_assert_eq(fby_float16(1.0f), 0x3C00);
    cr_assert_eq(fby_float16(-2.0f), 0xC000);
    cr_assert_eq(fby_float16(65504.0f), 0x7BFF);
    cr_assert_eq(fby_float16(65519.0f), 0x7BFF);
    cr_assert_eq(fby_float16(65520.0f), 0x7C00, "a tie with infinity");
    cr_assert_eq(fby_float16(1e30f), 0x7C00);
    cr_assert_eq(fby_float16(-INFINITY), 0xFC00);
    cr_assert_eq(fby_float16(NAN) & 0x7E00, 0x7E00);
    cr_assert_eq(fby_float16(6.103515625e-05f), 0x0400, "the smallest normal");
    cr_assert_eq(fby_float16(5.9604645e-08f), 0x0001, "the smallest subnormal");
    cr_assert_eq(fby_float16(2.9802322e-08f), 0x0000, "half of it: a tie with 0");
    cr_assert_eq(fby_float16(2.9802326e-08f), 0x0001);
    cr_assert_eq(fby_float16(float_of(0x387FE000)), 0x0400, "a tie among subnormals reaches the normals");
    cr_assert_eq(fby_float16(float_of(0x3F801000)), 0x3C00, "a tie goes to the even one below");
    cr_assert_eq(fby_float16(float_of(0x3F803000)), 0x3C02, "a tie goes to the even one above");
}
