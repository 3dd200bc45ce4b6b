#include <nmmintrin.h>
#include <pthread.h>
#include <string.h>

#include "kernels/crc32c.h"

/* The instruction takes three cycles but begins one each cycle: three runs of this many bytes go side by
 * side, and are joined by what the later bytes' zeros would make of the earlier crc. */
enum { RUN = 1024 };

/* The crc register after RUN zero bytes, for every value of each of its bytes. */
typedef struct zeros {
    uint32_t after[4][256];
} zeros;

static uint32_t zeros_step(uint32_t crc)
{
    for (size_t i = 0; i < RUN / 8; i++) crc = (uint32_t)_mm_crc32_u64(crc, 0);
    return crc;
}

static zeros run_zeros;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The register is linear: the effect of a value is that of its bits. */
static void zeros_make(void)
{
    for (uint32_t byte = 0; byte < 4; byte++) {
        uint32_t of_bit[8];
        for (uint32_t bit = 0; bit < 8; bit++) of_bit[bit] = zeros_step(1u << (8 * byte + bit));
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t after = 0;
            for (uint32_t bit = 0; bit < 8; bit++) after ^= value >> bit & 1 ? of_bit[bit] : 0;
            run_zeros.after[byte][value] = after;
        }
    }
}

static uint32_t shifted(uint32_t crc)
{
    return run_zeros.after[0][crc & 255] ^ run_zeros.after[1][crc >> 8 & 255] ^
           run_zeros.after[2][crc >> 16 & 255] ^ run_zeros.after[3][crc >> 24];
}

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

uint32_t fby_crc32c_sse42(uint32_t crc, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint64_t a = ~crc;

    pthread_once(&once, zeros_make);
    for (; length >= 3 * RUN; length -= 3 * RUN, at += 2 * RUN) {
        uint64_t b = 0, c = 0;
        for (const uint8_t *end = at + RUN; at < end; at += 8) {
            a = _mm_crc32_u64(a, word_at(at));
            b = _mm_crc32_u64(b, word_at(at + RUN));
            c = _mm_crc32_u64(c, word_at(at + 2 * (size_t)RUN));
        }
        a = shifted(shifted((uint32_t)a) ^ (uint32_t)b) ^ c;
    }
    for (; length >= 8; length -= 8, at += 8) a = _mm_crc32_u64(a, word_at(at));
    for (; length; length--, at++) a = _mm_crc32_u8((uint32_t)a, *at);
    return ~(uint32_t)a;
}
