/* Philox4x32-10 against the known-answer vectors of the Random123 distribution (kat_vectors), and the draws
 * over it. */
#include "kernels/philox.h"
#include "tests/support/test.h"

typedef struct known {
    uint32_t counter[4], key[2], result[4];
} known;

Test(philox, gives_the_known_answers)
{
    static const known vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        fby_philox4 block = fby_philox(vectors[i].counter, vectors[i].key);
        cr_assert_arr_eq(block.word, vectors[i].result, sizeof block.word, "vector %d", i);
    }
}

Test(philox, draws_depend_on_every_part_of_the_counter_and_the_key)
{
    const uint64_t parts[][5] = {
        {1, 2, 3, 4, 5}, {9, 2, 3, 4, 5}, {1ull << 40, 2, 3, 4, 5}, {1, 9, 3, 4, 5},
        {1, 2, 9, 4, 5}, {1, 2, 3, 9, 5}, {1, 2, 3, 4ull << 32, 5}, {1, 2, 3, 4, 9},
    };
    enum { PARTS = sizeof parts / sizeof *parts };
    uint64_t drawn[PARTS];
    for (int i = 0; i < PARTS; i++) {
        fby_random random;
        fby_random_start(&random, parts[i][0], (uint32_t)parts[i][1], parts[i][2], parts[i][3],
                         (uint32_t)parts[i][4]);
        drawn[i] = (uint64_t)fby_random_u32(&random) << 32 | fby_random_u32(&random);
        for (int k = 0; k < i; k++) cr_assert_neq(drawn[i], drawn[k], "streams %d and %d", i, k);
    }
}

Test(philox, unit_and_below_stay_in_range_and_cover_it)
{
    fby_random random;
    fby_random_start(&random, 5, 0, 0, 0, 0);
    double total = 0;
    uint32_t seen[7] = {0};
    enum { DRAWS = 70000 };
    for (int i = 0; i < DRAWS; i++) {
        double unit = fby_random_unit(&random);
        cr_assert(unit >= 0 && unit < 1);
        total += unit;
        uint32_t below = fby_random_below(&random, 7);
        cr_assert_lt(below, 7u);
        seen[below]++;
    }
    /* 5 standard deviations. */
    cr_assert_float_eq(total / DRAWS, 0.5, 0.0055);
    for (int i = 0; i < 7; i++) cr_assert(seen[i] > 9535 && seen[i] < 10465, "%d came %u times", i, seen[i]);
    cr_assert_eq(fby_random_below(&random, 1), 0u);
}
