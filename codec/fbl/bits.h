/* Bits of the tables, each byte's lowest first. Private to codec/fbl/. */
#ifndef FBY_CODEC_FBL_BITS_H
#define FBY_CODEC_FBL_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fbl_bits {
    uint8_t *out;       /* writing: zeroed */
    const uint8_t *in;  /* reading */
    size_t at, end;     /* in bits */
    bool short_of_bits; /* what was read past the end is 0 */
} fbl_bits;

static inline uint32_t fbl_bits_read(fbl_bits *bits, uint32_t count)
{
    uint32_t value = 0;
    if (bits->end - bits->at < count) {
        bits->short_of_bits = true;
        bits->at = bits->end;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++, bits->at++) {
        value |= (uint32_t)(bits->in[bits->at / 8] >> bits->at % 8 & 1) << i;
    }
    return value;
}

static inline void fbl_bits_write(fbl_bits *bits, uint32_t value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, bits->at++) {
        bits->out[bits->at / 8] |= (uint8_t)((value >> i & 1) << bits->at % 8);
    }
}

#endif
