/* What the two readers share: the common part of a reader, and the one place that decides what a result of
 * open and read means. Both call fby_read_step, so their results can't differ. */
#ifndef FBY_IO_READER_INTERNAL_H
#define FBY_IO_READER_INTERNAL_H

#include "io/reader.h"

#include <assert.h>
#include <errno.h>

enum {
    READER_DEPTH_DEFAULT = 32,
    READER_DEPTH_MOST = 4096,
    READER_REASON = 400, /* bytes of a sentence about a refusal */
    READER_ABOUT = 480,
    READ_RETRIES_MOST = 10,     /* of EINTR, EAGAIN and ESTALE, per request */
    READ_CALL_MOST = 0x7ffff000 /* what one read() transfers at most on Linux */
};

typedef struct fby_reader_methods {
    void (*submit)(fby_reader *reader, fby_read_request *request);
    uint32_t (*wait)(fby_reader *reader, fby_read_request **done, uint32_t most, uint64_t deadline_ns);
    void (*wake)(fby_reader *reader);
    void (*get_stats)(const fby_reader *reader, fby_reader_stats *out);
    void (*destroy)(fby_reader *reader); /* and frees it */
} fby_reader_methods;

struct fby_reader {
    const fby_reader_methods *methods;
    fby_reader_kind kind;
    uint32_t depth;
    uint32_t held; /* submitted and not yet handed back; the owner's */
    char about[READER_ABOUT];
};

/* Both return 0 or a negative errno; *why then says in words what was refused, and what to do about it. */
int fby_reader_pread_create(fby_reader **out, uint32_t depth, uint32_t threads);
int fby_reader_uring_create(fby_reader **out, uint32_t depth, char *why, size_t why_bytes);

/* A request's progress, kept in its private words. */
typedef struct fby_read_progress {
    fby_read_request *next; /* in whichever list the request is */
    uint64_t have;          /* bytes that are in the buffer */
    uint32_t retries;
    uint32_t looked_again;
    uint64_t reserved;
} fby_read_progress;

static_assert(sizeof(fby_read_progress) <= sizeof(((fby_read_request *)0)->private_), "fits in the request");

static inline fby_read_progress *fby_read_progress_of(fby_read_request *request)
{
    return (fby_read_progress *)(void *)request->private_;
}

/* A list of requests, linked through their private words. */
typedef struct fby_read_list {
    fby_read_request *first, *last;
} fby_read_list;

static inline void fby_read_list_push(fby_read_list *list, fby_read_request *request)
{
    fby_read_progress_of(request)->next = NULL;
    if (list->last) {
        fby_read_progress_of(list->last)->next = request;
    } else {
        list->first = request;
    }
    list->last = request;
}

static inline fby_read_request *fby_read_list_pop(fby_read_list *list)
{
    fby_read_request *request = list->first;
    if (request) {
        list->first = fby_read_progress_of(request)->next;
        if (!list->first) list->last = NULL;
    }
    return request;
}

typedef enum fby_read_next {
    READ_DONE,     /* the request holds its result */
    READ_CONTINUE, /* read on from fby_read_progress.have */
    READ_REOPEN    /* open it anew and read from the start */
} fby_read_next;

/* How many bytes the next read asks for: one more than expected shows a file that grew. */
static inline uint32_t fby_read_wanted(fby_read_request *request)
{
    uint64_t wanted = request->size + 1 - fby_read_progress_of(request)->have;
    return wanted < READ_CALL_MOST ? (uint32_t)wanted : (uint32_t)READ_CALL_MOST;
}

static inline fby_read_next fby_read_fail(fby_read_request *request, int error, fby_read_failure failure)
{
    request->bytes = -error;
    request->failure = failure;
    return READ_DONE;
}

static inline fby_read_failure fby_read_failure_of(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return FBY_READ_MISSING;
    case EACCES:
    case EPERM:
    case EISDIR:
        return FBY_READ_UNREADABLE;
    default:
        return FBY_READ_IO;
    }
}

/* Starts a request; false: it is refused at once, and holds its result. */
static inline bool fby_read_begin(fby_read_request *request)
{
    *fby_read_progress_of(request) = (fby_read_progress){0};
    request->bytes = 0;
    request->failure = FBY_READ_OK;
    if (request->capacity <= request->size || request->size >= INT64_MAX) {
        fby_read_fail(request, EINVAL, FBY_READ_IO);
        return false;
    }
    return true;
}

/* Judges one try: `opened` is 0 or -errno, `got` what the read of `wanted` bytes returned, or -errno. */
static inline fby_read_next fby_read_step(fby_read_request *request, int opened, uint32_t wanted, int64_t got,
                                          fby_reader_stats *stats)
{
    fby_read_progress *progress = fby_read_progress_of(request);
    int error = opened < 0 ? -opened : got < 0 ? (int)-got : 0;

    if (error == EINTR || error == EAGAIN || error == ESTALE) {
        if (progress->retries == READ_RETRIES_MOST) return fby_read_fail(request, error, FBY_READ_IO);
        progress->retries++;
        stats->retries++;
        if (error != ESTALE) return READ_CONTINUE;
        progress->have = 0;
        return READ_REOPEN;
    }
    if (error && error != ESPIPE) return fby_read_fail(request, error, fby_read_failure_of(error));

    /* ESPIPE: the file was replaced by a pipe. io_uring reads that as an empty file: so does the pread pool.
     */
    uint64_t came = error ? 0 : (uint64_t)got;
    progress->have += came;
    if (progress->have == request->size && came < wanted) {
        request->bytes = (int64_t)request->size;
        stats->files++;
        stats->bytes += request->size;
        return READ_DONE;
    }
    if (progress->have <= request->size && came > 0) return READ_CONTINUE;

    if (progress->looked_again) {
        return fby_read_fail(request, progress->have > request->size ? EFBIG : ENODATA, FBY_READ_CHANGED);
    }
    progress->looked_again = 1;
    progress->have = 0;
    stats->looked_again++;
    return READ_REOPEN;
}

#endif
