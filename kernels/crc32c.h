/* CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, all ones before and after. crc of nothing is 0; a
 * crc goes on from another. */
#ifndef FBY_KERNELS_CRC32C_H
#define FBY_KERNELS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t fby_crc32c_c(uint32_t crc, const void *bytes, size_t length);
/* By the instruction of SSE 4.2, which every CPU of the AVX2 tier has. */
uint32_t fby_crc32c_sse42(uint32_t crc, const void *bytes, size_t length);

#endif
