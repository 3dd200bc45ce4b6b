/* Reading whole files: one interface, two implementations with identical results.
 *
 *   uring   an io_uring per reader: openat into direct slot k, read, close, linked
 *   pread   a pool of threads
 *
 * A reader belongs to one thread (it creates, submits, waits, destroys); only fby_reader_wake may be called
 * from another. Requests are the caller's memory and must stay where they are until they come back from
 * fby_reader_wait. Completion order is any. */
#ifndef FBY_IO_READER_H
#define FBY_IO_READER_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes of the largest file that is read whole: no picture is larger, but a sparse file may claim to be.
 * Whoever takes memory for a file refuses more. */
enum { FBY_FILE_MOST = 256 * 1024 * 1024 };

typedef enum fby_reader_kind { FBY_READER_AUTO, FBY_READER_URING, FBY_READER_PREAD } fby_reader_kind;

typedef struct fby_reader_options {
    fby_reader_kind kind; /* AUTO: io_uring where it is granted, else pread */
    uint32_t depth;       /* requests in flight; 0 = 32 */
    uint32_t threads;     /* pread: threads; 0 = min(depth, 4) */
} fby_reader_options;

/* Why a request failed: bytes < 0. */
typedef enum fby_read_failure {
    FBY_READ_OK = 0,
    FBY_READ_MISSING,    /* ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG */
    FBY_READ_UNREADABLE, /* EACCES, EPERM, EISDIR */
    FBY_READ_CHANGED,    /* size differs from `size`, also when looked at once more: EFBIG it grew, ENODATA it
                            shrank */
    FBY_READ_IO          /* EIO and everything else, after the retries that the kernel asks for */
} fby_read_failure;

typedef struct fby_read_request {
    /* in */
    int directory; /* descriptor that `path` is relative to, or AT_FDCWD */
    const char *path;
    uint64_t size;     /* bytes the index says it has */
    uint8_t *buffer;   /* room for size + 1 bytes: one more than expected shows a file that grew */
    uint64_t capacity; /* >= size + 1 */
    void *user;
    /* out */
    int64_t bytes; /* = size; or -errno */
    fby_read_failure failure;
    uint32_t reserved;
    /* private to the reader */
    uint64_t private_[4];
} fby_read_request;

typedef struct fby_reader fby_reader;

/* Falls back where io_uring is refused (AUTO only; URING then fails with FBY_ENOTSUP and the reason). */
int fby_reader_create(fby_reader **out, const fby_reader_options *options, fby_error *error);
/* Waits for what is being read; what isn't begun yet is left. Afterwards no buffer is touched any more. */
void fby_reader_destroy(fby_reader **reader);

fby_reader_kind fby_reader_kind_of(const fby_reader *reader); /* URING or PREAD */
/* One line: which implementation, which features were left out, and why; for status and the log. */
const char *fby_reader_about(const fby_reader *reader);

uint32_t fby_reader_room(const fby_reader *reader); /* requests that submit would accept now */
/* Takes a request, which may start only at the next wait. The caller asks room first. */
void fby_reader_submit(fby_reader *reader, fby_read_request *request);
/* Hands back up to `most` finished requests, sleeping until at least one is, or until fby_reader_wake (also
 * one that came before), or the deadline (fby_now_ns time base: CLOCK_MONOTONIC nanoseconds; 0: don't sleep).
 * Returns their number. */
uint32_t fby_reader_wait(fby_reader *reader, fby_read_request **done, uint32_t most, uint64_t deadline_ns);
void fby_reader_wake(fby_reader *reader); /* any thread */

/* Counted events since creation, for benchmarks and status. */
typedef struct fby_reader_stats {
    uint64_t files, bytes, system_calls, retries, looked_again;
} fby_reader_stats;
void fby_reader_get_stats(const fby_reader *reader, fby_reader_stats *out);

/* Whether io_uring may be used here, probed once per process. *why is a borrowed static line such as
 * "io_uring_setup: Operation not permitted (seccomp or kernel.io_uring_disabled); using pread". */
bool fby_uring_granted(const char **why);

#endif
