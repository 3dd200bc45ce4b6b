/* How long the tests with random schedules are: FOREBAY_TEST_SCALE times their usual length (make soak sets
 * it). */
#ifndef FBY_TESTS_SCALE_H
#define FBY_TESTS_SCALE_H

#include <stdint.h>
#include <stdlib.h>

static inline uint32_t test_scaled(uint32_t usual)
{
    const char *scale = getenv("FOREBAY_TEST_SCALE");
    unsigned long factor = scale ? strtoul(scale, NULL, 10) : 1;
    return usual * (uint32_t)(factor ? factor : 1);
}

#endif
