/* Runs the tests registered by test_single.h one after the other, in this process. */
#include "tests/support/test_single.h"

#include <stdarg.h>

static fby_single_test *first, **last = &first;

void fby_single_register(fby_single_test *test)
{
    *last = test;
    last = &test->next;
}

void fby_single_fail(const char *file, int line, const char *what, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: failed: %s: ", file, line, what);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

int main(void)
{
    unsigned passed = 0;
    for (fby_single_test *test = first; test; test = test->next) {
        printf("[ RUN  ] %s::%s\n", test->suite, test->name);
        fflush(stdout);
        if (test->options.init) test->options.init();
        test->run();
        if (test->options.fini) test->options.fini();
        passed++;
    }
    printf("%u passed, 0 failed\n", passed);
    return passed ? 0 : 1;
}
