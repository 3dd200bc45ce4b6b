#include "ringbuf/fdpass.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef union control_buffer {
    struct cmsghdr header; /* for alignment */
    uint8_t bytes[CMSG_SPACE(FBY_FDPASS_MOST * sizeof(int))];
} control_buffer;

static int send_failure(int cause, fby_error *error)
{
    switch (cause) {
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return fby_fail(error, FBY_ECLOSED, "the peer closed its side of the socket");
    case EAGAIN:
        return fby_fail(error, FBY_ETIMEDOUT, "the socket is full: the peer reads nothing");
    case EMSGSIZE:
        return fby_fail(error, FBY_EINVAL, "the message is longer than the socket can carry");
    case EBADF:
        return fby_fail(error, FBY_EINVAL, "the socket, or a descriptor to send, is not open");
    default:
        return fby_fail(error, FBY_EIO, "sending over the socket: %s", strerror(cause));
    }
}

int fby_fdpass_send(int socket, const struct iovec *parts, int part_count, const int *fds, int fd_count,
                    fby_error *error)
{
    if (fd_count < 0 || fd_count > FBY_FDPASS_MOST)
        return fby_fail(error, FBY_EINVAL, "%d descriptors were to be sent; 0 to %d are possible", fd_count,
                        FBY_FDPASS_MOST);

    size_t bytes = 0;
    for (int i = 0; i < part_count; i++) bytes += parts[i].iov_len;
    if (bytes == 0)
        return fby_fail(error, FBY_EINVAL,
                        "an empty message can't be sent: it would read as the stream's end");

    control_buffer control = {0};
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)part_count};
    if (fd_count > 0) {
        size_t fd_bytes = (size_t)fd_count * sizeof *fds;
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fd_bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_bytes);
        memcpy(CMSG_DATA(header), fds, fd_bytes);
    }

    ssize_t sent;
    do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? send_failure(errno, error) : 0;
}

/* Moves the descriptors of a received message to `fds`; returns how many there were. */
static int descriptors_collect(struct msghdr *message, int *fds)
{
    int count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;

        int here = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof *fds);
        memcpy(fds + count, CMSG_DATA(header), (size_t)here * sizeof *fds);
        count += here;
    }
    return count;
}

int64_t fby_fdpass_receive(int socket, void *buffer, size_t bytes, int *fds, int *fd_count, fby_error *error)
{
    int room = fd_count ? *fd_count : 0;
    if (fd_count) *fd_count = 0;

    control_buffer control = {0};
    struct iovec part = {.iov_base = buffer, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    ssize_t got;
    do got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        if (errno == EAGAIN) return fby_fail(error, FBY_ETIMEDOUT, "the socket has no message");
        if (errno == ECONNRESET || errno == ENOTCONN)
            return fby_fail(error, FBY_ECLOSED, "the peer closed its side of the socket");
        return fby_fail(error, FBY_EIO, "receiving from the socket: %s", strerror(errno));
    }

    int received[sizeof(control_buffer) / sizeof(int)];
    int count = descriptors_collect(&message, received);

    int64_t result = got;
    if (message.msg_flags & MSG_TRUNC)
        result =
            fby_fail(error, FBY_EPROTO, "a message was longer than the %zu bytes that were expected", bytes);
    else if (message.msg_flags & MSG_CTRUNC || count > room)
        result =
            fby_fail(error, FBY_EPROTO,
                     "a message carried more than the %d descriptors that were expected, or this process "
                     "has no more free descriptors (`ulimit -n`)",
                     room);
    else if (got == 0 && count == 0)
        result = fby_fail(error, FBY_ECLOSED, "the peer closed its side of the socket");
    else if (got == 0)
        result = fby_fail(error, FBY_EPROTO, "an empty message carried %d descriptors", count);

    if (result < 0) {
        for (int i = 0; i < count; i++) close(received[i]);
        return result;
    }
    if (count > 0) memcpy(fds, received, (size_t)count * sizeof *fds);
    if (fd_count) *fd_count = count;
    return result;
}
