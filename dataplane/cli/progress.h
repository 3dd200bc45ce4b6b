/* The progress of work on many files by several threads: a bar where the standard error is a terminal, else a
 * line every two seconds. */
#ifndef FBY_DATAPLANE_CLI_PROGRESS_H
#define FBY_DATAPLANE_CLI_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct fby_progress_line {
    bool tty, quiet, shown;
    uint64_t files, bytes; /* of all */
    uint64_t started_ns;
    pthread_mutex_t turn; /* whose turn it is to show; guards shown and shown_ns */
    uint64_t shown_ns;
} fby_progress_line;

void fby_progress_line_begin(fby_progress_line *line, bool quiet, uint64_t files, uint64_t bytes);
/* Any thread, after each file: how many are done, their bytes, and those that took work, which give the rate.
 */
void fby_progress_line_show(fby_progress_line *line, uint64_t files, uint64_t bytes, uint64_t worked,
                            bool last);
/* The last word, where there was a first. */
void fby_progress_line_end(fby_progress_line *line, uint64_t files, uint64_t bytes, uint64_t worked);

#endif
