/* The AVX-512 intrinsics that the kernels use, in plain C, each by the definition in Intel's Software
 * Developer's Manual: what lets every CPU test that tier. Names are redirected by macros, after the real
 * header has declared its own. */
#ifndef FBY_TESTS_AVX512_EMULATED_H
#define FBY_TESTS_AVX512_EMULATED_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef union emulated_vector {
    uint8_t u8[64];
    int8_t s8[64];
    uint16_t u16[32];
    int16_t s16[32];
    uint32_t u32[16];
    int32_t s32[16];
    uint64_t u64[8];
    float f32[16];
    __m128i part[4];
    __m256i half[2];
} emulated_vector;

#define EMULATED           static inline emulated_vector

#define FOR_EACH(i, count) for (int i = 0; i < (count); i++)

EMULATED emulated_loadu(const void *from)
{
    emulated_vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* An aligned load faults where the address isn't a multiple of 64. */
EMULATED emulated_load(const void *from)
{
    if ((uintptr_t)from % 64) __builtin_trap();
    return emulated_loadu(from);
}

/* Masked-off bytes aren't read: they may lie in memory that isn't there. */
EMULATED emulated_maskz_loadu_epi8(uint64_t mask, const void *from)
{
    emulated_vector v = {0};
    FOR_EACH(i, 64)
    {
        if (mask >> i & 1) v.u8[i] = ((const uint8_t *)from)[i];
    }
    return v;
}

EMULATED emulated_setzero(void)
{
    return (emulated_vector){0};
}

EMULATED emulated_set1_epi8(char value)
{
    emulated_vector v;
    FOR_EACH(i, 64) v.s8[i] = (int8_t)value;
    return v;
}

EMULATED emulated_set1_epi16(short value)
{
    emulated_vector v;
    FOR_EACH(i, 32) v.s16[i] = value;
    return v;
}

EMULATED emulated_set1_epi32(int value)
{
    emulated_vector v;
    FOR_EACH(i, 16) v.s32[i] = value;
    return v;
}

EMULATED emulated_set1_ps(float value)
{
    emulated_vector v;
    FOR_EACH(i, 16) v.f32[i] = value;
    return v;
}

EMULATED emulated_add_epi8(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 64) a.u8[i] = (uint8_t)(a.u8[i] + b.u8[i]);
    return a;
}

EMULATED emulated_add_epi32(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 16) a.u32[i] += b.u32[i];
    return a;
}

EMULATED emulated_and(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 8) a.u64[i] &= b.u64[i];
    return a;
}

EMULATED emulated_srli_epi16(emulated_vector a, unsigned count)
{
    FOR_EACH(i, 32) a.u16[i] = count > 15 ? 0 : (uint16_t)(a.u16[i] >> count);
    return a;
}

EMULATED emulated_srli_epi32(emulated_vector a, unsigned count)
{
    FOR_EACH(i, 16) a.u32[i] = count > 31 ? 0 : a.u32[i] >> count;
    return a;
}

EMULATED emulated_slli_epi32(emulated_vector a, unsigned count)
{
    FOR_EACH(i, 16) a.u32[i] = count > 31 ? 0 : a.u32[i] << count;
    return a;
}

EMULATED emulated_srai_epi32(emulated_vector a, unsigned count)
{
    FOR_EACH(i, 16) a.s32[i] >>= count > 31 ? 31 : count;
    return a;
}

EMULATED emulated_max_epi32(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 16) a.s32[i] = a.s32[i] > b.s32[i] ? a.s32[i] : b.s32[i];
    return a;
}

EMULATED emulated_min_epi32(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 16) a.s32[i] = a.s32[i] < b.s32[i] ? a.s32[i] : b.s32[i];
    return a;
}

EMULATED emulated_min_epu16(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 32) a.u16[i] = a.u16[i] < b.u16[i] ? a.u16[i] : b.u16[i];
    return a;
}

/* VPDPBUSD: four u8 x s8 products, exact in 16 bits, added to a dword without saturation. */
EMULATED emulated_dpbusd(emulated_vector sum, emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 16)
    {
        FOR_EACH(k, 4) sum.u32[i] += (uint32_t)(a.u8[4 * i + k] * b.s8[4 * i + k]);
    }
    return sum;
}

/* VPDPWSSD: two s16 x s16 products added to a dword without saturation. */
EMULATED emulated_dpwssd(emulated_vector sum, emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 16)
    {
        FOR_EACH(k, 2) sum.u32[i] += (uint32_t)(a.s16[2 * i + k] * b.s16[2 * i + k]);
    }
    return sum;
}

/* VPERMT2B: bit 6 of an index chooses the source, bits 0-5 the byte. */
EMULATED emulated_permutex2var_epi8(emulated_vector a, emulated_vector index, emulated_vector b)
{
    emulated_vector v;
    FOR_EACH(i, 64) v.u8[i] = index.u8[i] & 64 ? b.u8[index.u8[i] & 63] : a.u8[index.u8[i] & 63];
    return v;
}

static inline uint16_t emulated_saturate_u16(int32_t value)
{
    return (uint16_t)(value < 0 ? 0 : value > 65535 ? 65535 : value);
}

/* VPACKUSDW: within each 128 bits, four of a, then four of b. */
EMULATED emulated_packus_epi32(emulated_vector a, emulated_vector b)
{
    emulated_vector v;
    FOR_EACH(part, 4)
    {
        FOR_EACH(i, 4)
        {
            v.u16[8 * part + i] = emulated_saturate_u16(a.s32[4 * part + i]);
            v.u16[8 * part + 4 + i] = emulated_saturate_u16(b.s32[4 * part + i]);
        }
    }
    return v;
}

/* VSHUFI64X2: two 128-bit parts of a, then two of b, two bits of `control` each. */
EMULATED emulated_shuffle_i64x2(emulated_vector a, emulated_vector b, int control)
{
    emulated_vector v;
    v.part[0] = a.part[control & 3];
    v.part[1] = a.part[control >> 2 & 3];
    v.part[2] = b.part[control >> 4 & 3];
    v.part[3] = b.part[control >> 6 & 3];
    return v;
}

static inline __m256i emulated_half(emulated_vector a, int which)
{
    return a.half[which & 1];
}

/* VPMOVUSDB: each dword, as unsigned, saturated to a byte. */
static inline __m128i emulated_cvtusepi32_epi8(emulated_vector a)
{
    uint8_t bytes[16];
    FOR_EACH(i, 16) bytes[i] = (uint8_t)(a.u32[i] > 255 ? 255 : a.u32[i]);
    return _mm_loadu_si128((const void *)bytes);
}

/* VPMOVDW: the low word of each dword. */
static inline __m256i emulated_cvtepi32_epi16(emulated_vector a)
{
    uint16_t words[16];
    FOR_EACH(i, 16) words[i] = (uint16_t)a.u32[i];
    return _mm256_loadu_si256((const void *)words);
}

EMULATED emulated_cvtepi32_ps(emulated_vector a)
{
    emulated_vector v;
    FOR_EACH(i, 16) v.f32[i] = (float)a.s32[i];
    return v;
}

EMULATED emulated_mul_ps(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 16) a.f32[i] *= b.f32[i];
    return a;
}

EMULATED emulated_sub_ps(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 16) a.f32[i] -= b.f32[i];
    return a;
}

EMULATED emulated_fmadd_ps(emulated_vector a, emulated_vector b, emulated_vector c)
{
    FOR_EACH(i, 16) a.f32[i] = fmaf(a.f32[i], b.f32[i], c.f32[i]);
    return a;
}

static inline void emulated_storeu_ps(void *to, emulated_vector v)
{
    memcpy(to, &v, sizeof v);
}

/* VCVTPS2PH, rounding to nearest even: two of its 256-bit form, which F16C has. */
static inline __m256i emulated_cvtps_ph(emulated_vector a)
{
    __m128i low = _mm256_cvtps_ph(_mm256_loadu_ps(a.f32), _MM_FROUND_TO_NEAREST_INT);
    __m128i high = _mm256_cvtps_ph(_mm256_loadu_ps(a.f32 + 8), _MM_FROUND_TO_NEAREST_INT);
    return _mm256_set_m128i(high, low);
}

/* Macros in Clang's header, functions or macros in GCC's. */
#undef _mm512_shuffle_i64x2
#undef _mm512_extracti64x4_epi64
#undef _mm512_cvtps_ph
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32
#undef _mm512_srai_epi32
#undef _mm512_srli_epi16

#define __m512i                      emulated_vector
#define __m512                       emulated_vector
#define __mmask64                    uint64_t
#define _mm512_loadu_si512           emulated_loadu
#define _mm512_load_si512            emulated_load
#define _mm512_maskz_loadu_epi8      emulated_maskz_loadu_epi8
#define _mm512_setzero_si512         emulated_setzero
#define _mm512_set1_epi8             emulated_set1_epi8
#define _mm512_set1_epi16            emulated_set1_epi16
#define _mm512_set1_epi32            emulated_set1_epi32
#define _mm512_set1_ps               emulated_set1_ps
#define _mm512_add_epi8              emulated_add_epi8
#define _mm512_add_epi32             emulated_add_epi32
#define _mm512_and_si512             emulated_and
#define _mm512_srli_epi16            emulated_srli_epi16
#define _mm512_srli_epi32            emulated_srli_epi32
#define _mm512_slli_epi32            emulated_slli_epi32
#define _mm512_srai_epi32            emulated_srai_epi32
#define _mm512_max_epi32             emulated_max_epi32
#define _mm512_min_epi32             emulated_min_epi32
#define _mm512_min_epu16             emulated_min_epu16
#define _mm512_dpbusd_epi32          emulated_dpbusd
#define _mm512_dpwssd_epi32          emulated_dpwssd
#define _mm512_permutex2var_epi8     emulated_permutex2var_epi8
#define _mm512_packus_epi32          emulated_packus_epi32
#define _mm512_shuffle_i64x2         emulated_shuffle_i64x2
#define _mm512_castsi512_si256(a)    emulated_half(a, 0)
#define _mm512_extracti64x4_epi64    emulated_half
#define _mm512_cvtusepi32_epi8       emulated_cvtusepi32_epi8
#define _mm512_cvtepi32_epi16        emulated_cvtepi32_epi16
#define _mm512_cvtepi32_ps           emulated_cvtepi32_ps
#define _mm512_castps_si512(a)       (a)
#define _mm512_mul_ps                emulated_mul_ps
#define _mm512_sub_ps                emulated_sub_ps
#define _mm512_fmadd_ps              emulated_fmadd_ps
#define _mm512_storeu_ps             emulated_storeu_ps
#define _mm512_cvtps_ph(a, rounding) emulated_cvtps_ph(a)

#endif
