/* The io_uring reader: one ring, and a table of direct descriptors with a slot for each file in flight.
 *
 * A file is one chain of three entries:
 *
 *   openat into slot k   LINK      a failure ends the chain, and is its one completion
 *   read from slot k     HARDLINK  a short or failed read must not skip the close
 *   close slot k                   its completion gives the slot back
 *
 * A plain LINK after the read would leak slot k on every short read. The open tells only of failure
 * (CQE_SKIP_SUCCESS), so that a file is two completions, the second right behind the first.
 *
 * The submission ring has 4 places per file in flight: 3 for a chain, and at least one for the read of the
 * wake eventfd; the completion ring is twice that. As a slot is filled anew only after its chain is complete,
 * neither can overflow. Completions carry their chain's generation, so that none can be taken for another
 * chain's. */
#include "io/clock.h"
#include "io/message.h"
#include "io/reader_faults.h"
#include "io/reader_internal.h"

#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PART_OPEN, PART_READ, PART_CLOSE, PART_WAKE };

typedef struct uring_slot {
    fby_read_request *request;
    uint32_t generation;
    uint32_t wanted;
    int opened;
    int64_t got;
} uring_slot;

typedef struct uring_reader {
    fby_reader base;
    struct io_uring ring;
    fby_read_list done;
    fby_reader_stats stats;
    int wake;            /* eventfd */
    uint64_t wake_count; /* what the ring reads from it */
    bool wake_armed, woken;
    bool probed, punted; /* the first file was looked at; reads go to the kernel's worker threads */
    uint32_t busy;       /* chains in flight */
    uint32_t *idle;      /* numbers of idle slots, a stack of depth - busy */
    uring_slot slot[];
} uring_reader;

static uint64_t tag_make(uint32_t slot, uint32_t generation, uint32_t part)
{
    return (uint64_t)generation << 32 | slot << 2 | part;
}

static void chain_queue(uring_reader *reader, uint32_t number)
{
    uring_slot *slot = &reader->slot[number];
    fby_read_request *request = slot->request;
    uint64_t have = fby_read_progress_of(request)->have;

    slot->generation++;
    slot->opened = 0;
    slot->got = 0;
    slot->wanted = fby_read_wanted(request);

    /* O_NONBLOCK: a pipe that took the file's place must not stop the chain for good. */
    struct io_uring_sqe *entry = io_uring_get_sqe(&reader->ring);
    io_uring_prep_openat_direct(entry, request->directory, request->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0,
                                number);
    io_uring_sqe_set_flags(entry, IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS);
    io_uring_sqe_set_data64(entry, tag_make(number, slot->generation, PART_OPEN));

    entry = io_uring_get_sqe(&reader->ring);
    io_uring_prep_read(entry, (int)number, request->buffer + have, slot->wanted, have);
    io_uring_sqe_set_flags(entry, IOSQE_IO_HARDLINK | IOSQE_FIXED_FILE | (reader->punted ? IOSQE_ASYNC : 0));
    io_uring_sqe_set_data64(entry, tag_make(number, slot->generation, PART_READ));

    entry = io_uring_get_sqe(&reader->ring);
    io_uring_prep_close_direct(entry, number);
    io_uring_sqe_set_data64(entry, tag_make(number, slot->generation, PART_CLOSE));
}

static void wake_arm(uring_reader *reader)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&reader->ring);
    io_uring_prep_read(entry, reader->wake, &reader->wake_count, sizeof reader->wake_count, 0);
    io_uring_sqe_set_data64(entry, tag_make(0, 0, PART_WAKE));
    reader->wake_armed = true;
}

/* A filesystem that can't say "this would block" would block the thread that submits, one file after the
 * other, since the descriptors are O_NONBLOCK. There the reads are handed to worker threads at once. */
static void filesystem_probe(uring_reader *reader, const fby_read_request *request)
{
    int descriptor = openat(request->directory, request->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    reader->stats.system_calls++;
    if (descriptor < 0) return;

    uint8_t byte;
    struct iovec piece = {&byte, 1};
    ssize_t got = preadv2(descriptor, &piece, 1, 0, RWF_NOWAIT);
    reader->punted = got < 0 && errno == EOPNOTSUPP;
    reader->probed = true;
    close(descriptor);
    reader->stats.system_calls += 2;
}

static void uring_submit(fby_reader *base, fby_read_request *request)
{
    uring_reader *reader = (uring_reader *)base;
    if (!fby_read_begin(request)) {
        fby_read_list_push(&reader->done, request);
        return;
    }
    if (!reader->probed) filesystem_probe(reader, request);

    uint32_t number = reader->idle[base->depth - ++reader->busy];
    reader->slot[number].request = request;
    chain_queue(reader, number);
}

static void chain_finish(uring_reader *reader, uint32_t number)
{
    uring_slot *slot = &reader->slot[number];
    fby_read_request *request = slot->request;

    const fby_reader_faults *faults = fby_reader_faults_installed;
    if (faults && faults->completion) {
        faults->completion(request->path, fby_read_progress_of(request)->have, &slot->opened, &slot->got);
    }
    if (fby_read_step(request, slot->opened, slot->wanted, slot->got, &reader->stats) != READ_DONE) {
        chain_queue(reader, number);
        return;
    }
    slot->request = NULL;
    reader->idle[reader->base.depth - reader->busy--] = number;
    fby_read_list_push(&reader->done, request);
}

static void completion_take(uring_reader *reader, uint64_t tag, int32_t result)
{
    uint32_t part = tag & 3;
    if (part == PART_WAKE) {
        reader->wake_armed = false;
        reader->woken = true;
        return;
    }

    uint32_t number = (uint32_t)tag >> 2;
    uring_slot *slot = &reader->slot[number];
    if (!slot->request || slot->generation != (uint32_t)(tag >> 32)) return;

    if (part == PART_READ) {
        slot->got = result;
    } else {
        if (part == PART_OPEN) slot->opened = result;
        chain_finish(reader, number);
    }
}

static void completions_take(uring_reader *reader)
{
    struct io_uring_cqe *completion;
    while (!io_uring_peek_cqe(&reader->ring, &completion)) {
        uint64_t tag = completion->user_data;
        int32_t result = completion->res;
        io_uring_cqe_seen(&reader->ring, completion);
        completion_take(reader, tag, result);
    }
}

/* Hands the queued entries to the kernel; sleeps for a completion until the deadline (0: not at all). */
static void ring_enter(uring_reader *reader, uint64_t deadline_ns)
{
    struct io_uring_cqe *completion;
    uint64_t now = fby_io_now_ns();
    int status;

    reader->stats.system_calls++;
    if (deadline_ns <= now) {
        status = io_uring_submit_and_get_events(&reader->ring);
    } else if (deadline_ns == UINT64_MAX) {
        status = io_uring_submit_and_wait_timeout(&reader->ring, &completion, 1, NULL, NULL);
    } else {
        uint64_t left = deadline_ns - now;
        struct __kernel_timespec timeout = {(int64_t)(left / 1000000000u), (int64_t)(left % 1000000000u)};
        status = io_uring_submit_and_wait_timeout(&reader->ring, &completion, 1, &timeout, NULL);
    }
    /* Short of memory in the kernel: the entries stay queued, and the next try may go through. */
    if (status < 0 && status != -ETIME && status != -EINTR) usleep(1000);
}

static uint32_t uring_wait(fby_reader *base, fby_read_request **done, uint32_t most, uint64_t deadline_ns)
{
    uring_reader *reader = (uring_reader *)base;

    for (;;) {
        if (!reader->wake_armed) wake_arm(reader);
        completions_take(reader);

        bool ready = reader->done.first || reader->woken;
        if (ready && reader->wake_armed && !io_uring_sq_ready(&reader->ring)) break;
        if (ready) {
            if (!reader->wake_armed) wake_arm(reader);
            ring_enter(reader, 0);
            completions_take(reader);
            break;
        }
        bool last = deadline_ns <= fby_io_now_ns();
        ring_enter(reader, last ? 0 : deadline_ns);
        completions_take(reader);
        if (last) break;
    }

    uint32_t count = 0;
    while (count < most && reader->done.first) done[count++] = fby_read_list_pop(&reader->done);
    reader->woken = false;
    return count;
}

static void uring_wake(fby_reader *base)
{
    uring_reader *reader = (uring_reader *)base;
    uint64_t one = 1;
    /* The one refusal is a counter at its limit, which wakes as well. */
    if (write(reader->wake, &one, sizeof one) < 0) return;
}

static void uring_get_stats(const fby_reader *base, fby_reader_stats *out)
{
    *out = ((const uring_reader *)base)->stats;
}

static void uring_free(uring_reader *reader)
{
    if (reader->wake >= 0) close(reader->wake);
    free(reader->idle);
    free(reader);
}

/* The kernel writes into the callers' buffers, and ours, until everything is complete. Cancelling ends what
 * would never come, such as the read of a pipe. */
static void uring_destroy(fby_reader *base)
{
    uring_reader *reader = (uring_reader *)base;
    struct io_uring_sync_cancel_reg everything = {
        .flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL,
        .timeout = {0, 100000000},
    };

    io_uring_submit(&reader->ring);
    while (reader->busy || reader->wake_armed) {
        io_uring_register_sync_cancel(&reader->ring, &everything);
        completions_take(reader);
        if (reader->busy || reader->wake_armed) ring_enter(reader, fby_io_now_ns() + 10000000u);
        completions_take(reader);
    }
    io_uring_queue_exit(&reader->ring);
    uring_free(reader);
}

static const fby_reader_methods uring_methods = {
    .submit = uring_submit,
    .wait = uring_wait,
    .wake = uring_wake,
    .get_stats = uring_get_stats,
    .destroy = uring_destroy,
};

/* Why io_uring was refused, and what can be done about it. */
static void refusal_describe(char *out, size_t bytes, const char *call, int error)
{
    char setting[8] = "";
    int descriptor = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        ssize_t got = read(descriptor, setting, sizeof setting - 1);
        setting[got > 0 ? got : 0] = '\0';
        close(descriptor);
    }

    const char *cause = "this kernel refuses it";
    if (error == EPERM && setting[0] && setting[0] != '0') {
        cause = "kernel.io_uring_disabled is set: `sysctl kernel.io_uring_disabled=0` allows it";
    } else if (error == EPERM || error == EACCES) {
        cause =
            "a seccomp filter or security module denies it: a container needs a profile that allows io_uring";
    } else if (error == ENOSYS) {
        cause = "this kernel or sandbox has no io_uring";
    } else if (error == EINVAL || error == EOPNOTSUPP) {
        cause = "this kernel's io_uring is too old: Linux 6.1 has what is needed";
    } else if (error == ENOMEM) {
        cause = "the limit on locked memory is too small: see `ulimit -l`";
    } else if (error == EMFILE || error == ENFILE) {
        cause = "too many open files: see `ulimit -n`";
    }
    snprintf(out, bytes, "%s: %s (%s)", call, fby_errno_text(error), cause);
}

/* Makes a ring for `depth` files, with as many of the flags as this kernel knows. */
static int ring_create(struct io_uring *ring, uint32_t depth, const char **left_out, const char **call)
{
    static const struct {
        unsigned flags;
        const char *left_out;
    } tries[] = {
        {IORING_SETUP_CLAMP | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, ""},
        {IORING_SETUP_CLAMP | IORING_SETUP_SINGLE_ISSUER, "; without deferred task work (Linux 6.1)"},
        {IORING_SETUP_CLAMP, "; without single issuer (Linux 6.0) and deferred task work (6.1)"},
    };
    const unsigned needed =
        IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_CQE_SKIP | IORING_FEAT_LINKED_FILE;
    int status = -EINVAL;

    *call = "io_uring_setup";
    for (unsigned i = 0; i < sizeof tries / sizeof tries[0] && status == -EINVAL; i++) {
        struct io_uring_params parameters = {.flags = tries[i].flags};
        status = io_uring_queue_init_params(4 * depth, ring, &parameters);
        *left_out = tries[i].left_out;
    }
    if (status) return status;

    if ((ring->features & needed) != needed || ring->sq.ring_entries < 4 * depth ||
        ring->cq.ring_entries < 8 * depth) {
        io_uring_queue_exit(ring);
        return -EOPNOTSUPP;
    }
    status = io_uring_register_files_sparse(ring, depth);
    if (status) {
        *call = "io_uring_register (files)";
        io_uring_queue_exit(ring);
    }
    return status;
}

int fby_reader_uring_create(fby_reader **out, uint32_t depth, char *why, size_t why_bytes)
{
    const uint32_t asked = depth;
    const char *left_out, *call;
    int refused = 0;

    uring_reader *reader = calloc(1, sizeof *reader + depth * sizeof reader->slot[0]);
    if (!reader) {
        refusal_describe(why, why_bytes, "malloc", ENOMEM);
        return -ENOMEM;
    }
    reader->wake = eventfd(0, EFD_CLOEXEC);
    reader->idle = calloc(depth, sizeof reader->idle[0]);
    if (reader->wake < 0 || !reader->idle) {
        int error = reader->wake < 0 ? errno : ENOMEM;
        refusal_describe(why, why_bytes, "eventfd", error);
        uring_free(reader);
        return -error;
    }

    /* Locked memory and the limit on descriptors bound the ring: a smaller one may do. */
    int status = ring_create(&reader->ring, depth, &left_out, &call);
    while ((status == -ENOMEM || status == -EMFILE) && depth > 1) {
        refused = -status;
        depth /= 2;
        status = ring_create(&reader->ring, depth, &left_out, &call);
    }
    if (status) {
        refusal_describe(why, why_bytes, call, -status);
        uring_free(reader);
        return status;
    }

    reader->base = (fby_reader){.methods = &uring_methods, .kind = FBY_READER_URING, .depth = depth};
    for (uint32_t i = 0; i < depth; i++) reader->idle[i] = depth - 1 - i;

    int used =
        snprintf(reader->base.about, sizeof reader->base.about, "io_uring: depth %u%s", depth, left_out);
    if (refused) {
        snprintf(reader->base.about + used, sizeof reader->base.about - (size_t)used,
                 "; depth %u was refused: %s (see `ulimit %s`)", asked, fby_errno_text(refused),
                 refused == ENOMEM ? "-l" : "-n");
    }
    *out = &reader->base;
    return 0;
}
