/* One side of a comparison: a program that perf/run keeps alive and asks, in turn with the other side, to do
 * its work once more. It reads a line "go" for each turn and answers with one line of JSON.
 *
 * CPU seconds are user + system of all threads of this process and, where the work is shared with a second
 * process, of that one. What was spent between turns (warming up, filling windows) is not counted. */
#ifndef FBY_PERF_SIDE_H
#define FBY_PERF_SIDE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct perf_instant {
    double wall, cpu; /* seconds */
} perf_instant;

/* Waits for the next turn; false when there is none. */
bool perf_side_asked(void);

/* The time, and the CPU time of this process and of `other` (0: none). */
perf_instant perf_side_now(pid_t other);

/* CPU seconds, user + system, of all threads of a process. */
double perf_side_cpu(pid_t process);

/* Answers: so many samples between the two instants. */
void perf_side_answer(uint64_t samples, perf_instant from, perf_instant to);

/* Ends the program with a message on standard error. */
__attribute__((noreturn, format(printf, 1, 2))) void perf_side_fail(const char *format, ...);

#endif
