/* What the shared library of the kernels takes: structures that ctypes mirrors in
 * tests/python/test_kernels.py. */
#ifndef FBY_TESTS_KERNELS_SHARED_H
#define FBY_TESTS_KERNELS_SHARED_H

#include <stddef.h>
#include <stdint.h>

typedef struct fby_test_resize_job {
    uint32_t in_w, in_h, out_w, out_h;
    int32_t filter, pillow, flip_horizontal, flip_vertical;
    uint32_t rows_at_a_time;
} fby_test_resize_job;

typedef struct fby_test_output {
    int32_t dtype, layout, normalize, unit;
    float mean[3], std[3];
} fby_test_output;

int fby_test_tier_supported(int tier);
int fby_test_resize(int tier, const uint8_t *rgb, size_t stride, const fby_test_resize_job *given,
                    const fby_test_output *output, void *out);
int fby_test_convert(int tier, const uint8_t *rgb, size_t stride, const fby_test_resize_job *given,
                     const fby_test_output *output, void *out);
/* One adjustment, in place. */
void fby_test_adjust(int tier, int kind, float factor, uint8_t *rgb, size_t stride, uint32_t w, uint32_t h);
void fby_test_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
