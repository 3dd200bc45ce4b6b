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

/* ---- bytes, words and masks: FBL's ---- */

EMULATED emulated_set1_epi64(long long value)
{
    emulated_vector v;
    FOR_EACH(i, 8) v.u64[i] = (uint64_t)value;
    return v;
}

/* An aligned store faults like an aligned load. */
static inline void emulated_store(void *to, emulated_vector v)
{
    if ((uintptr_t)to % 64) __builtin_trap();
    memcpy(to, &v, sizeof v);
}

EMULATED emulated_or(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 8) a.u64[i] |= b.u64[i];
    return a;
}

EMULATED emulated_xor(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 8) a.u64[i] ^= b.u64[i];
    return a;
}

/* VPANDN: the first operand is the one inverted. */
EMULATED emulated_andnot(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 8) a.u64[i] = ~a.u64[i] & b.u64[i];
    return a;
}

/* VPTERNLOGQ: a bit of a, b and c, a's the highest, is the number of the bit of `table`. */
EMULATED emulated_ternarylogic(emulated_vector a, emulated_vector b, emulated_vector c, int table)
{
    emulated_vector v = {0};
    FOR_EACH(i, 8)
    {
        FOR_EACH(bit, 64)
        {
            unsigned row =
                (unsigned)((a.u64[i] >> bit & 1) << 2 | (b.u64[i] >> bit & 1) << 1 | (c.u64[i] >> bit & 1));
            v.u64[i] |= (uint64_t)((unsigned)table >> row & 1) << bit;
        }
    }
    return v;
}

EMULATED emulated_add_epi16(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 32) a.u16[i] = (uint16_t)(a.u16[i] + b.u16[i]);
    return a;
}

EMULATED emulated_sub_epi8(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 64) a.u8[i] = (uint8_t)(a.u8[i] - b.u8[i]);
    return a;
}

EMULATED emulated_sub_epi16(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 32) a.u16[i] = (uint16_t)(a.u16[i] - b.u16[i]);
    return a;
}

EMULATED emulated_mask_sub_epi16(emulated_vector other, uint32_t mask, emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 32)
    {
        if (mask >> i & 1) other.u16[i] = (uint16_t)(a.u16[i] - b.u16[i]);
    }
    return other;
}

EMULATED emulated_adds_epu8(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 64) a.u8[i] = (uint8_t)(a.u8[i] + b.u8[i] > 255 ? 255 : a.u8[i] + b.u8[i]);
    return a;
}

EMULATED emulated_avg_epu8(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 64) a.u8[i] = (uint8_t)((a.u8[i] + b.u8[i] + 1) >> 1);
    return a;
}

EMULATED emulated_min_epu8(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 64) a.u8[i] = a.u8[i] < b.u8[i] ? a.u8[i] : b.u8[i];
    return a;
}

EMULATED emulated_max_epu8(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 64) a.u8[i] = a.u8[i] > b.u8[i] ? a.u8[i] : b.u8[i];
    return a;
}

EMULATED emulated_max_epu16(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 32) a.u16[i] = a.u16[i] > b.u16[i] ? a.u16[i] : b.u16[i];
    return a;
}

EMULATED emulated_mullo_epi16(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 32) a.u16[i] = (uint16_t)((uint32_t)a.u16[i] * b.u16[i]);
    return a;
}

EMULATED emulated_mulhi_epu16(emulated_vector a, emulated_vector b)
{
    FOR_EACH(i, 32) a.u16[i] = (uint16_t)((uint32_t)a.u16[i] * b.u16[i] >> 16);
    return a;
}

EMULATED emulated_slli_epi64(emulated_vector a, unsigned count)
{
    FOR_EACH(i, 8) a.u64[i] = count > 63 ? 0 : a.u64[i] << count;
    return a;
}

EMULATED emulated_srli_epi64(emulated_vector a, unsigned count)
{
    FOR_EACH(i, 8) a.u64[i] = count > 63 ? 0 : a.u64[i] >> count;
    return a;
}

EMULATED emulated_srlv_epi64(emulated_vector a, emulated_vector count)
{
    FOR_EACH(i, 8) a.u64[i] = count.u64[i] > 63 ? 0 : a.u64[i] >> count.u64[i];
    return a;
}

EMULATED emulated_srlv_epi16(emulated_vector a, emulated_vector count)
{
    FOR_EACH(i, 32) a.u16[i] = count.u16[i] > 15 ? 0 : (uint16_t)(a.u16[i] >> count.u16[i]);
    return a;
}

EMULATED emulated_sllv_epi16(emulated_vector a, emulated_vector count)
{
    FOR_EACH(i, 32) a.u16[i] = count.u16[i] > 15 ? 0 : (uint16_t)(a.u16[i] << count.u16[i]);
    return a;
}

/* VPSHLDW: the high word of a, then b, moved left; counts are modulo 16. */
EMULATED emulated_shldi_epi16(emulated_vector a, emulated_vector b, int count)
{
    FOR_EACH(i, 32) a.u16[i] = (uint16_t)(((uint32_t)a.u16[i] << 16 | b.u16[i]) << (count & 15) >> 16);
    return a;
}

/* VPSHRDVW: the low word of b, then a, moved right; counts are modulo 16. */
EMULATED emulated_shrdv_epi16(emulated_vector a, emulated_vector b, emulated_vector count)
{
    FOR_EACH(i, 32) a.u16[i] = (uint16_t)(((uint32_t)b.u16[i] << 16 | a.u16[i]) >> (count.u16[i] & 15));
    return a;
}

static inline uint32_t emulated_cmplt_epu16_mask(emulated_vector a, emulated_vector b)
{
    uint32_t mask = 0;
    FOR_EACH(i, 32) mask |= (uint32_t)(a.u16[i] < b.u16[i]) << i;
    return mask;
}

static inline uint32_t emulated_test_epi16_mask(emulated_vector a, emulated_vector b)
{
    uint32_t mask = 0;
    FOR_EACH(i, 32) mask |= (uint32_t)((a.u16[i] & b.u16[i]) != 0) << i;
    return mask;
}

static inline uint32_t emulated_testn_epi16_mask(emulated_vector a, emulated_vector b)
{
    return ~emulated_test_epi16_mask(a, b);
}

EMULATED emulated_mask_mov_epi16(emulated_vector other, uint32_t mask, emulated_vector a)
{
    FOR_EACH(i, 32)
    {
        if (mask >> i & 1) other.u16[i] = a.u16[i];
    }
    return other;
}

EMULATED emulated_movm_epi8(uint64_t mask)
{
    emulated_vector v;
    FOR_EACH(i, 64) v.u8[i] = mask >> i & 1 ? 255 : 0;
    return v;
}

/* VPEXPANDW: the lowest words of a, one after the other, go where the mask has ones. */
EMULATED emulated_mask_expand_epi16(emulated_vector other, uint32_t mask, emulated_vector a)
{
    int taken = 0;
    FOR_EACH(i, 32)
    {
        if (mask >> i & 1) other.u16[i] = a.u16[taken++];
    }
    return other;
}

EMULATED emulated_maskz_expand_epi8(uint64_t mask, emulated_vector a)
{
    emulated_vector v = {0};
    int taken = 0;
    FOR_EACH(i, 64)
    {
        if (mask >> i & 1) v.u8[i] = a.u8[taken++];
    }
    return v;
}

EMULATED emulated_permutexvar_epi8(emulated_vector index, emulated_vector a)
{
    emulated_vector v;
    FOR_EACH(i, 64) v.u8[i] = a.u8[index.u8[i] & 63];
    return v;
}

EMULATED emulated_permutexvar_epi16(emulated_vector index, emulated_vector a)
{
    emulated_vector v;
    FOR_EACH(i, 32) v.u16[i] = a.u16[index.u16[i] & 31];
    return v;
}

EMULATED emulated_permutexvar_epi64(emulated_vector index, emulated_vector a)
{
    emulated_vector v;
    FOR_EACH(i, 8) v.u64[i] = a.u64[index.u64[i] & 7];
    return v;
}

/* VPERMT2W: bit 5 of an index chooses the source, bits 0-4 the word. */
EMULATED emulated_permutex2var_epi16(emulated_vector a, emulated_vector index, emulated_vector b)
{
    emulated_vector v;
    FOR_EACH(i, 32) v.u16[i] = index.u16[i] & 32 ? b.u16[index.u16[i] & 31] : a.u16[index.u16[i] & 31];
    return v;
}

EMULATED emulated_maskz_permutex2var_epi8(uint64_t mask, emulated_vector a, emulated_vector index,
                                          emulated_vector b)
{
    emulated_vector v = emulated_permutex2var_epi8(a, index, b);
    FOR_EACH(i, 64)
    {
        if (!(mask >> i & 1)) v.u8[i] = 0;
    }
    return v;
}

/* VPMULTISHIFTQB: a byte is eight bits of its qword, from a bit on; behind the highest comes the lowest. */
EMULATED emulated_multishift_epi64_epi8(emulated_vector from, emulated_vector a)
{
    emulated_vector v;
    FOR_EACH(i, 64)
    {
        uint64_t qword = a.u64[i / 8];
        unsigned bit = from.u8[i] & 63;
        v.u8[i] = (uint8_t)(bit ? qword >> bit | qword << (64 - bit) : qword);
    }
    return v;
}

/* VGF2P8AFFINEQB: bit i of a byte is the parity of what row 7 - i of its qword's matrix has in common with
 * it, exclusive-or bit i of the constant. */
EMULATED emulated_gf2p8affine_epi64_epi8(emulated_vector a, emulated_vector matrix, int constant)
{
    emulated_vector v;
    FOR_EACH(i, 64)
    {
        unsigned byte = 0;
        FOR_EACH(bit, 8)
        byte |= (unsigned)__builtin_parity(matrix.u8[i / 8 * 8 + 7 - bit] & a.u8[i]) << bit;
        v.u8[i] = (uint8_t)(byte ^ (unsigned)constant);
    }
    return v;
}

/* VPUNPCKLBW and VPUNPCKHBW: within each 128 bits, bytes of the low or high halves of a and b by turns. */
static inline emulated_vector emulated_unpack_epi8(emulated_vector a, emulated_vector b, int half)
{
    emulated_vector v;
    FOR_EACH(i, 32)
    {
        int from = i / 8 * 16 + half * 8 + i % 8;
        v.u8[2 * i] = a.u8[from];
        v.u8[2 * i + 1] = b.u8[from];
    }
    return v;
}

static inline emulated_vector emulated_unpack_epi64(emulated_vector a, emulated_vector b, int half)
{
    emulated_vector v;
    FOR_EACH(part, 4)
    {
        v.u64[2 * part] = a.u64[2 * part + half];
        v.u64[2 * part + 1] = b.u64[2 * part + half];
    }
    return v;
}

EMULATED emulated_cvtepu8_epi16(__m256i a)
{
    uint8_t bytes[32];
    emulated_vector v;
    _mm256_storeu_si256((void *)bytes, a);
    FOR_EACH(i, 32) v.u16[i] = bytes[i];
    return v;
}

static inline __m256i emulated_cvtepi16_epi8(emulated_vector a)
{
    uint8_t bytes[32];
    FOR_EACH(i, 32) bytes[i] = (uint8_t)a.u16[i];
    return _mm256_loadu_si256((const void *)bytes);
}

EMULATED emulated_zextsi256_si512(__m256i a)
{
    emulated_vector v = {0};
    v.half[0] = a;
    return v;
}

EMULATED emulated_inserti64x4(emulated_vector a, __m256i b, int which)
{
    a.half[which & 1] = b;
    return a;
}

static inline __m128i emulated_part(emulated_vector a, int which)
{
    return a.part[which & 3];
}

/* Macros in Clang's header, functions or macros in GCC's. */
#undef _mm512_shuffle_i64x2
#undef _mm512_extracti64x4_epi64
#undef _mm512_cvtps_ph
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32
#undef _mm512_srai_epi32
#undef _mm512_srli_epi16
#undef _mm512_slli_epi64
#undef _mm512_srli_epi64
#undef _mm512_shldi_epi16
#undef _mm512_ternarylogic_epi64
#undef _mm512_gf2p8affine_epi64_epi8
#undef _mm512_inserti64x4
#undef _mm512_extracti32x4_epi32
#undef _mm512_cmplt_epu16_mask

#define __m512i                        emulated_vector
#define __m512                         emulated_vector
#define __mmask64                      uint64_t
#define __mmask32                      uint32_t
#define _mm512_loadu_si512             emulated_loadu
#define _mm512_load_si512              emulated_load
#define _mm512_maskz_loadu_epi8        emulated_maskz_loadu_epi8
#define _mm512_setzero_si512           emulated_setzero
#define _mm512_set1_epi8               emulated_set1_epi8
#define _mm512_set1_epi16              emulated_set1_epi16
#define _mm512_set1_epi32              emulated_set1_epi32
#define _mm512_set1_ps                 emulated_set1_ps
#define _mm512_add_epi8                emulated_add_epi8
#define _mm512_add_epi32               emulated_add_epi32
#define _mm512_and_si512               emulated_and
#define _mm512_srli_epi16              emulated_srli_epi16
#define _mm512_srli_epi32              emulated_srli_epi32
#define _mm512_slli_epi32              emulated_slli_epi32
#define _mm512_srai_epi32              emulated_srai_epi32
#define _mm512_max_epi32               emulated_max_epi32
#define _mm512_min_epi32               emulated_min_epi32
#define _mm512_min_epu16               emulated_min_epu16
#define _mm512_dpbusd_epi32            emulated_dpbusd
#define _mm512_dpwssd_epi32            emulated_dpwssd
#define _mm512_permutex2var_epi8       emulated_permutex2var_epi8
#define _mm512_packus_epi32            emulated_packus_epi32
#define _mm512_shuffle_i64x2           emulated_shuffle_i64x2
#define _mm512_castsi512_si256(a)      emulated_half(a, 0)
#define _mm512_extracti64x4_epi64      emulated_half
#define _mm512_cvtusepi32_epi8         emulated_cvtusepi32_epi8
#define _mm512_cvtepi32_epi16          emulated_cvtepi32_epi16
#define _mm512_cvtepi32_ps             emulated_cvtepi32_ps
#define _mm512_castps_si512(a)         (a)
#define _mm512_mul_ps                  emulated_mul_ps
#define _mm512_sub_ps                  emulated_sub_ps
#define _mm512_fmadd_ps                emulated_fmadd_ps
#define _mm512_storeu_ps               emulated_storeu_ps
#define _mm512_cvtps_ph(a, rounding)   emulated_cvtps_ph(a)
#define _mm512_set1_epi64              emulated_set1_epi64
#define _mm512_store_si512             emulated_store
#define _mm512_or_si512                emulated_or
#define _mm512_xor_si512               emulated_xor
#define _mm512_andnot_si512            emulated_andnot
#define _mm512_ternarylogic_epi64      emulated_ternarylogic
#define _mm512_add_epi16               emulated_add_epi16
#define _mm512_sub_epi8                emulated_sub_epi8
#define _mm512_sub_epi16               emulated_sub_epi16
#define _mm512_mask_sub_epi16          emulated_mask_sub_epi16
#define _mm512_adds_epu8               emulated_adds_epu8
#define _mm512_avg_epu8                emulated_avg_epu8
#define _mm512_min_epu8                emulated_min_epu8
#define _mm512_max_epu8                emulated_max_epu8
#define _mm512_max_epu16               emulated_max_epu16
#define _mm512_mullo_epi16             emulated_mullo_epi16
#define _mm512_mulhi_epu16             emulated_mulhi_epu16
#define _mm512_slli_epi64              emulated_slli_epi64
#define _mm512_srli_epi64              emulated_srli_epi64
#define _mm512_srlv_epi64              emulated_srlv_epi64
#define _mm512_srlv_epi16              emulated_srlv_epi16
#define _mm512_sllv_epi16              emulated_sllv_epi16
#define _mm512_shldi_epi16             emulated_shldi_epi16
#define _mm512_shrdv_epi16             emulated_shrdv_epi16
#define _mm512_cmplt_epu16_mask        emulated_cmplt_epu16_mask
#define _mm512_test_epi16_mask         emulated_test_epi16_mask
#define _mm512_testn_epi16_mask        emulated_testn_epi16_mask
#define _mm512_mask_mov_epi16          emulated_mask_mov_epi16
#define _mm512_movm_epi8               emulated_movm_epi8
#define _mm512_mask_expand_epi16       emulated_mask_expand_epi16
#define _mm512_maskz_expand_epi8       emulated_maskz_expand_epi8
#define _mm512_permutexvar_epi8        emulated_permutexvar_epi8
#define _mm512_permutexvar_epi16       emulated_permutexvar_epi16
#define _mm512_permutexvar_epi64       emulated_permutexvar_epi64
#define _mm512_permutex2var_epi16      emulated_permutex2var_epi16
#define _mm512_maskz_permutex2var_epi8 emulated_maskz_permutex2var_epi8
#define _mm512_multishift_epi64_epi8   emulated_multishift_epi64_epi8
#define _mm512_gf2p8affine_epi64_epi8  emulated_gf2p8affine_epi64_epi8
#define _mm512_cvtepu8_epi16           emulated_cvtepu8_epi16
#define _mm512_cvtepi16_epi8           emulated_cvtepi16_epi8
#define _mm512_zextsi256_si512         emulated_zextsi256_si512
#define _mm512_inserti64x4             emulated_inserti64x4
#define _mm512_extracti32x4_epi32      emulated_part
#define _mm512_unpacklo_epi8(a, b)     emulated_unpack_epi8(a, b, 0)
#define _mm512_unpackhi_epi8(a, b)     emulated_unpack_epi8(a, b, 1)
#define _mm512_unpacklo_epi64(a, b)    emulated_unpack_epi64(a, b, 0)
#define _mm512_unpackhi_epi64(a, b)    emulated_unpack_epi64(a, b, 1)
#define _mm512_castsi512_si128(a)      emulated_part(a, 0)

#endif
