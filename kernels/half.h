/* float32 to float16 and bfloat16, rounded to nearest, ties to even (IEEE 754-2019, 4.3.1). */
#ifndef FBY_KERNELS_HALF_H
#define FBY_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t fby_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Drops the low `count` bits of v (1..31), rounding to nearest even. */
static inline uint32_t fby_round_bits(uint32_t v, uint32_t count)
{
    uint32_t half = (1u << (count - 1)) - 1, odd = v >> count & 1;
    return (v + half + odd) >> count;
}

static inline uint16_t fby_bfloat16(float value)
{
    uint32_t bits = fby_float_bits(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN, made quiet */
    return (uint16_t)fby_round_bits(bits, 16);
}

static inline uint16_t fby_float16(float value)
{
    uint32_t bits = fby_float_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00);  /* NaN */
    if (magnitude >= 0x47800000) return (uint16_t)(sign | 0x7C00); /* 65536 and more: infinity */

    /* Normal: the exponent's bias goes from 127 to 15; a carry out of the fraction raises it, up to infinity.
     */
    if (magnitude >= 0x38800000) return (uint16_t)(sign | fby_round_bits(magnitude - 0x38000000, 13));

    /* Subnormal: the fraction with its leading one, in units of 2^-24. */
    uint32_t exponent = magnitude >> 23, shift = 126 - exponent;
    if (shift > 24) return (uint16_t)sign;
    return (uint16_t)(sign | fby_round_bits((magnitude & 0x7FFFFF) | 0x800000, shift));
}

#endif
