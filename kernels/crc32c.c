#include "kernels/crc32c.h"

#include <pthread.h>
#include <string.h>

enum { SLICES = 8, REFLECTED = 0x82F63B78 };

static uint32_t table[SLICES][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void table_make(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? (uint32_t)REFLECTED : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++) {
        for (int slice = 1; slice < SLICES; slice++) {
            uint32_t before = table[slice - 1][i];
            table[slice][i] = before >> 8 ^ table[0][before & 255];
        }
    }
}

uint32_t fby_crc32c_c(uint32_t crc, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;

    pthread_once(&once, table_make);
    crc = ~crc;
    for (; length >= SLICES; length -= SLICES, at += SLICES) {
        uint32_t low = crc ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
              table[4][low >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; length; length--, at++) crc = crc >> 8 ^ table[0][(crc ^ *at) & 255];
    return ~crc;
}
