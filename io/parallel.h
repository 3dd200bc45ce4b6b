/* Running one function on several threads at once. */
#ifndef FBY_IO_PARALLEL_H
#define FBY_IO_PARALLEL_H

#include <stdint.h>

/* The threads that a data set is opened with where the caller names none: the CPUs that this process may run
 * on, at most 8. */
uint32_t fby_parallel_default(void);

/* Runs body(argument) on `threads` threads, the caller's among them, and returns when all have. Where the
 * system grants fewer threads, fewer run; the caller's always does. They block every signal. */
void fby_parallel_run(uint32_t threads, void (*body)(void *argument), void *argument);

#endif
