#include "dataplane/cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "ringbuf/wait.h"

void fby_progress_line_begin(fby_progress_line *line, bool quiet, uint64_t files, uint64_t bytes)
{
    *line = (fby_progress_line){.tty = isatty(2), .quiet = quiet, .files = files, .bytes = bytes};
    line->started_ns = line->shown_ns = fby_now_ns();
    pthread_mutex_init(&line->turn, NULL);
}

static void show(const fby_progress_line *line, uint64_t now, uint64_t files, uint64_t bytes, uint64_t worked)
{
    static const char full[] = "==============================";
    double seconds = (double)(now - line->started_ns) * 1e-9;
    double rate = seconds > 0 ? (double)worked / seconds : 0;
    double part = line->bytes ? (double)bytes / (double)line->bytes : 1;
    double left = rate > 0 ? (double)(line->bytes - bytes) / rate : 0;
    int width = (int)(part * 30);

    if (line->tty) {
        fprintf(stderr, "\r[%.*s%*s] %3.0f%%  %llu of %llu files  %.1f MB/s  %.0f s left\033[K", width, full,
                30 - width, "", part * 100, (unsigned long long)files, (unsigned long long)line->files,
                rate * 1e-6, left);
        return;
    }
    fprintf(stderr, "%llu of %llu files, %.1f MB/s, %.0f s left\n", (unsigned long long)files,
            (unsigned long long)line->files, rate * 1e-6, left);
}

void fby_progress_line_show(fby_progress_line *line, uint64_t files, uint64_t bytes, uint64_t worked,
                            bool last)
{
    if (line->quiet || pthread_mutex_trylock(&line->turn)) return;
    uint64_t now = fby_now_ns();
    if (last || now - line->shown_ns >= (line->tty ? 100000000ull : 2000000000ull)) {
        line->shown_ns = now;
        line->shown = true;
        show(line, now, files, bytes, worked);
    }
    pthread_mutex_unlock(&line->turn);
}

void fby_progress_line_end(fby_progress_line *line, uint64_t files, uint64_t bytes, uint64_t worked)
{
    if (line->shown) {
        fby_progress_line_show(line, files, bytes, worked, true);
        if (line->tty) fputc('\n', stderr);
    }
    pthread_mutex_destroy(&line->turn);
}
