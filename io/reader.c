/* Chooses an implementation, and forwards to it. */
#include "io/reader.h"

#include "io/message.h"
#include "io/reader_faults.h"
#include "io/reader_internal.h"

#include <string.h>

const fby_reader_faults *fby_reader_faults_installed;

static int pread_create(fby_reader **out, const fby_reader_options *options, uint32_t depth, const char *why,
                        fby_error *error)
{
    uint32_t threads = options->threads;
    if (!threads) threads = depth < 4 ? depth : 4;

    int status = fby_reader_pread_create(out, depth, threads);
    if (status) {
        return fby_fail(error, status == -ENOMEM ? FBY_ENOMEM : FBY_EIO, "can't start %u reader threads: %s",
                        threads, fby_errno_text(-status));
    }
    snprintf((*out)->about, sizeof(*out)->about, "pread: %u threads; %.*s", threads, READER_REASON, why);
    return FBY_OK;
}

int fby_reader_create(fby_reader **out, const fby_reader_options *options, fby_error *error)
{
    static const fby_reader_options defaults;
    if (!options) options = &defaults;
    *out = NULL;

    uint32_t depth = options->depth ? options->depth : READER_DEPTH_DEFAULT;
    if (depth > READER_DEPTH_MOST) {
        return fby_fail(error, FBY_EINVAL, "a reader's depth is %u: expected 1 to %u requests in flight",
                        depth, READER_DEPTH_MOST);
    }
    if (options->threads > READER_DEPTH_MOST) {
        return fby_fail(error, FBY_EINVAL, "a reader is to have %u threads: expected at most %u",
                        options->threads, READER_DEPTH_MOST);
    }
    if (options->kind == FBY_READER_PREAD) return pread_create(out, options, depth, "as asked for", error);

    const char *why;
    char refusal[READER_REASON];
    if (!fby_uring_granted(&why)) {
        snprintf(refusal, sizeof refusal, "%s", why);
    } else if (!fby_reader_uring_create(out, depth, refusal, sizeof refusal)) {
        return FBY_OK;
    }
    if (options->kind == FBY_READER_URING) {
        return fby_fail(error, FBY_ENOTSUP, "io_uring was asked for and is refused: %s", refusal);
    }
    return pread_create(out, options, depth, refusal, error);
}

void fby_reader_destroy(fby_reader **reader)
{
    if (!*reader) return;
    (*reader)->methods->destroy(*reader);
    *reader = NULL;
}

fby_reader_kind fby_reader_kind_of(const fby_reader *reader)
{
    return reader->kind;
}

const char *fby_reader_about(const fby_reader *reader)
{
    return reader->about;
}

uint32_t fby_reader_room(const fby_reader *reader)
{
    return reader->depth - reader->held;
}

void fby_reader_submit(fby_reader *reader, fby_read_request *request)
{
    assert(reader->held < reader->depth);
    reader->held++;
    reader->methods->submit(reader, request);
}

uint32_t fby_reader_wait(fby_reader *reader, fby_read_request **done, uint32_t most, uint64_t deadline_ns)
{
    uint32_t count = reader->methods->wait(reader, done, most, deadline_ns);
    reader->held -= count;
    return count;
}

void fby_reader_wake(fby_reader *reader)
{
    reader->methods->wake(reader);
}

void fby_reader_get_stats(const fby_reader *reader, fby_reader_stats *out)
{
    reader->methods->get_stats(reader, out);
}
