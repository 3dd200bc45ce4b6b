/* A single-process stand-in for the part of Criterion that our tests use: see test.h. */
#ifndef FBY_TESTS_TEST_SINGLE_H
#define FBY_TESTS_TEST_SINGLE_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fby_single_options {
    double timeout;
    void (*init)(void);
    void (*fini)(void);
    const char *description;
} fby_single_options;

typedef struct fby_single_test {
    const char *suite, *name;
    void (*run)(void);
    fby_single_options options;
    struct fby_single_test *next;
} fby_single_test;

void fby_single_register(fby_single_test *test);
_Noreturn void fby_single_fail(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define Test(Suite, Name, ...)                                                                               \
    static void Suite##_##Name##_run(void);                                                                  \
    __attribute__((constructor)) static void Suite##_##Name##_register(void)                                 \
    {                                                                                                        \
        static fby_single_test test = {#Suite, #Name, Suite##_##Name##_run, {__VA_ARGS__}, NULL};            \
        fby_single_register(&test);                                                                          \
    }                                                                                                        \
    static void Suite##_##Name##_run(void)

#define FBY_SINGLE_CHECK(Condition, ...)                                                                     \
    do {                                                                                                     \
        if (!(Condition)) fby_single_fail(__FILE__, __LINE__, #Condition, " " __VA_ARGS__);                  \
    } while (0)

#define cr_assert(Condition, ...)              FBY_SINGLE_CHECK(Condition, __VA_ARGS__)
#define cr_expect(Condition, ...)              FBY_SINGLE_CHECK(Condition, __VA_ARGS__)
#define cr_assert_eq(A, B, ...)                FBY_SINGLE_CHECK((A) == (B), __VA_ARGS__)
#define cr_assert_neq(A, B, ...)               FBY_SINGLE_CHECK((A) != (B), __VA_ARGS__)
#define cr_assert_lt(A, B, ...)                FBY_SINGLE_CHECK((A) < (B), __VA_ARGS__)
#define cr_assert_leq(A, B, ...)               FBY_SINGLE_CHECK((A) <= (B), __VA_ARGS__)
#define cr_assert_gt(A, B, ...)                FBY_SINGLE_CHECK((A) > (B), __VA_ARGS__)
#define cr_assert_geq(A, B, ...)               FBY_SINGLE_CHECK((A) >= (B), __VA_ARGS__)
#define cr_assert_null(P, ...)                 FBY_SINGLE_CHECK((P) == NULL, __VA_ARGS__)
#define cr_assert_not_null(P, ...)             FBY_SINGLE_CHECK((P) != NULL, __VA_ARGS__)
#define cr_assert_not(C, ...)                  FBY_SINGLE_CHECK(!(C), __VA_ARGS__)
#define cr_assert_str_eq(A, B, ...)            FBY_SINGLE_CHECK(!strcmp((A), (B)), __VA_ARGS__)
#define cr_assert_arr_eq(A, B, Bytes, ...)     FBY_SINGLE_CHECK(!memcmp((A), (B), (Bytes)), __VA_ARGS__)
#define cr_assert_float_eq(A, B, Epsilon, ...) FBY_SINGLE_CHECK(fabs((A) - (B)) <= (Epsilon), __VA_ARGS__)
#define cr_fail(...)                           fby_single_fail(__FILE__, __LINE__, "cr_fail", " " __VA_ARGS__)
#define cr_log_info(...)                       (printf(__VA_ARGS__), printf("\n"))
#endif
