#include "perf/side/side.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool perf_side_asked(void)
{
    char line[16];
    return fgets(line, sizeof line, stdin) && strcmp(line, "go\n") == 0;
}

static double seconds(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time)) perf_side_fail("the server that was measured is gone");
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

double perf_side_cpu(pid_t process)
{
    clockid_t clock;
    if (clock_getcpuclockid(process, &clock)) perf_side_fail("process %d has no CPU clock", (int)process);
    return seconds(clock);
}

perf_instant perf_side_now(pid_t other)
{
    perf_instant now = {seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
    if (other) now.cpu += perf_side_cpu(other);
    return now;
}

void perf_side_answer(uint64_t samples, perf_instant from, perf_instant to)
{
    printf("{\"samples\": %llu, \"wall\": %.6f, \"cpu\": %.6f}\n", (unsigned long long)samples,
           to.wall - from.wall, to.cpu - from.cpu);
    fflush(stdout);
}

void perf_side_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}
