/* The one include of every C test: Criterion's Test() and cr_assert family.
 *
 * ThreadSanitizer can't run under Criterion (its shared arena and forked runner); in such a build the same
 * names come from test_single.h, which runs every test in one process. Tests keep to what both offer:
 * Test(suite, name), cr_assert, cr_assert_eq/neq/lt/leq/gt/geq, cr_assert_null/not_null,
 * cr_assert_str_eq, cr_assert_arr_eq, cr_assert_float_eq, cr_fail, cr_log_info: each with an optional
 * printf message. Options in Test() (.timeout, .init, .fini) are allowed: the stand-in runs init and fini. */
#ifndef FBY_TESTS_TEST_H
#define FBY_TESTS_TEST_H
#if defined(__SANITIZE_THREAD__) || defined(FBY_TEST_SINGLE)
#include "tests/support/test_single.h"
#else
#include <criterion/criterion.h>
#endif
#endif
