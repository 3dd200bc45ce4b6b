/* Whether io_uring may be used: asked by using it, once. */
#include "io/reader_internal.h"

#include <fcntl.h>
#include <pthread.h>

static pthread_once_t probe_once = PTHREAD_ONCE_INIT;
static bool granted;
static char reason[READER_REASON];

/* Reads the root folder through the very chain that files are read by. The right answer is EISDIR: an older
 * kernel looks the slot up before the open has filled it, and says EBADF. */
static void probe(void)
{
    fby_reader *reader;
    if (fby_reader_uring_create(&reader, 1, reason, sizeof reason)) return;

    uint8_t byte;
    fby_read_request request = {
        .directory = AT_FDCWD, .path = "/", .size = 0, .buffer = &byte, .capacity = 1};
    fby_read_request *done;
    fby_reader_submit(reader, &request);
    while (!fby_reader_wait(reader, &done, 1, UINT64_MAX)) {
    }
    fby_reader_destroy(&reader);

    granted = request.bytes == -EISDIR;
    if (granted) {
        snprintf(reason, sizeof reason, "io_uring is granted");
    } else {
        snprintf(reason, sizeof reason,
                 "this kernel's io_uring can't read a file that the same chain opens: Linux 6.1 can");
    }
}

bool fby_uring_granted(const char **why)
{
    pthread_once(&probe_once, probe);
    if (why) *why = reason;
    return granted;
}
