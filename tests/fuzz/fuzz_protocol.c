/* Messages of a hostile client on the socket of a whole server that runs in this process.
 *
 * An input is a number of messages, each after two bytes of length; the first bit of the first byte says
 * whether the connection begins with a proper greeting. The server must answer or disconnect, and go on
 * serving: a good client connects after every input. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dataplane/protocol/paths.h"
#include "dataplane/protocol/protocol.h"
#include "dataplane/server/server.h"
#include "ringbuf/fdpass.h"
#include "ringbuf/layout.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static char folder[64] = "/tmp/forebay-fuzz-XXXXXX", socket_path[96];

static void *server_main(void *argument)
{
    fby_error error = FBY_ERROR_INIT;
    if (fby_server_run(argument, &error)) abort();
    return NULL;
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    static fby_server_options options = {
        .workers = 1, .ready_fd = -1, .memory = 64 << 20, .cache = "", .reader = {.kind = FBY_READER_PREAD}};
    (void)count;
    (void)arguments;
    int ready[2];
    char byte;
    pthread_t thread;
    if (!mkdtemp(folder) || pipe(ready)) abort();
    snprintf(socket_path, sizeof socket_path, "%s/s", folder);
    options.socket = socket_path;
    options.ready_fd = ready[1];
    if (pthread_create(&thread, NULL, server_main, &options) || read(ready[0], &byte, 1) != 1 || byte != 'R')
        abort();
    close(ready[0]);
    return 0;
}

static int greet(int fd)
{
    fby_hello hello = {fby_message_head(FBY_MESSAGE_HELLO, 0), fby_layout_hash(), (uint32_t)getpid(), 0, {1}};
    return send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello ? 0 : -1;
}

/* Waits for an answer, up to ten seconds: more is a hang. Returns its bytes; 0 at the end of the stream. */
static ssize_t answer_wait(int fd, void *buffer, size_t bytes)
{
    struct pollfd entry = {fd, POLLIN, 0};
    int ready;
    do ready = poll(&entry, 1, 10000);
    while (ready < 0 && errno == EINTR); /* the fuzzer's own alarm */
    if (ready != 1) abort();
    int fds[FBY_FDPASS_MOST], fd_count = FBY_FDPASS_MOST;
    int64_t got = fby_fdpass_receive(fd, buffer, bytes, fds, &fd_count, NULL);
    if (got < 0) return 0;
    for (int i = 0; i < fd_count; i++) close(fds[i]);
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static uint8_t answer[80 * 1024];
    if (length < 1) return 0;
    int fd = fby_socket_connect(socket_path, NULL);
    if (fd < 0) abort();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    bool greeted = *bytes & 1;
    if (greeted) greet(fd);
    for (bytes++, length--; length >= 2;) {
        size_t size = (size_t)bytes[0] | (size_t)bytes[1] << 8;
        bytes += 2;
        length -= 2;
        if (size > length) size = length;
        if (send(fd, bytes, size, MSG_NOSIGNAL) < 0) break;
        bytes += size;
        length -= size;
    }
    close(fd);

    fd = fby_socket_connect(socket_path, NULL);
    if (fd < 0) abort();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fby_welcome welcome;
    if (greet(fd) || answer_wait(fd, answer, sizeof answer) != (ssize_t)sizeof welcome) abort();
    close(fd);
    return 0;
}
