/* The table of ops: what every entry must have. */
#include <string.h>

#include "dataplane/ops/op.h"
#include "tests/support/test.h"

Test(table, is_sorted_and_found_by_name)
{
    cr_assert_geq(fby_op_count, 12);
    for (uint32_t i = 0; i < fby_op_count; i++) {
        cr_assert_eq(fby_op_find(fby_ops[i]->name), fby_ops[i]);
        if (i) cr_assert_lt(strcmp(fby_ops[i - 1]->name, fby_ops[i]->name), 0);
    }
    cr_assert_null(fby_op_find("no_such_op"));
    cr_assert_null(fby_op_find(""));
}

Test(table, has_the_ops_of_this_version)
{
    static const char *const names[] = {"decode",
                                        "resize",
                                        "center_crop",
                                        "random_resized_crop",
                                        "random_horizontal_flip",
                                        "random_vertical_flip",
                                        "random_crop",
                                        "pad",
                                        "grayscale",
                                        "color_jitter",
                                        "normalize",
                                        "to"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert_not_null(fby_op_find(names[i]), "%s", names[i]);
}

Test(table, entries_are_whole)
{
    for (uint32_t i = 0; i < fby_op_count; i++) {
        const fby_op *op = fby_ops[i];
        bool seeded = false;
        cr_assert_geq(op->version, 1);
        cr_assert_not_null(op->about);
        cr_assert_not_null(op->infer);
        for (uint32_t k = 0; k < op->param_count; k++) {
            const fby_param *param = &op->params[k];
            cr_assert_not_null(param->about);
            cr_assert_lt(param->offset, op->params_bytes);
            cr_assert_leq(param->low, param->high);
            cr_assert_eq(param->type == FBY_PARAM_CHOICE, param->choices != NULL, "%s.%s", op->name,
                         param->name);
            seeded |= param->type == FBY_PARAM_SEED;
        }
        cr_assert_eq(seeded, op->random, "%s: a random op has an augment_seed, others have none", op->name);
    }
}
