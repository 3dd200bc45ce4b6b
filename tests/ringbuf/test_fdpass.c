#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ringbuf/fdpass.h"
#include "tests/support/test.h"

typedef struct pair {
    int ours, theirs;
} pair;

static pair pair_open(void)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    return (pair){ends[0], ends[1]};
}

static void pair_close(pair *it)
{
    close(it->ours);
    close(it->theirs);
}

static int open_count(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static bool same_file(int a, int b)
{
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_ino == second.st_ino &&
           first.st_dev == second.st_dev;
}

static int send_text(int socket, const char *text, const int *fds, int fd_count, fby_error *error)
{
    struct iovec part = {(void *)text, strlen(text)};
    return fby_fdpass_send(socket, &part, 1, fds, fd_count, error);
}

Test(fdpass, parts_and_descriptors_arrive)
{
    pair it = pair_open();
    int fds[FBY_FDPASS_MOST];
    for (int i = 0; i < FBY_FDPASS_MOST; i++) {
        fds[i] = memfd_create("sent", 0);
        cr_assert_geq(fds[i], 0);
    }
    for (int count = 0; count <= FBY_FDPASS_MOST; count++) {
        struct iovec parts[] = {{"one ", 4}, {"", 0}, {"two", 3}};
        fby_error error = FBY_ERROR_INIT;
        cr_assert_eq(fby_fdpass_send(it.ours, parts, 3, fds, count, &error), 0, "%s", error.text);

        char buffer[16] = "";
        int received[FBY_FDPASS_MOST], room = FBY_FDPASS_MOST;
        cr_assert_eq(fby_fdpass_receive(it.theirs, buffer, sizeof buffer, received, &room, &error), 7, "%s",
                     error.text);
        cr_assert_str_eq(buffer, "one two");
        cr_assert_eq(room, count);
        for (int i = 0; i < count; i++) {
            cr_assert(same_file(fds[i], received[i]));
            cr_assert_neq(fds[i], received[i]);
            cr_assert(fcntl(received[i], F_GETFD) & FD_CLOEXEC);
            close(received[i]);
        }
        if (count > 0) cr_assert(fcntl(fds[0], F_GETFD) >= 0, "the sender's descriptors stay its own");
    }
    for (int i = 0; i < FBY_FDPASS_MOST; i++) close(fds[i]);
    pair_close(&it);
}

Test(fdpass, messages_keep_their_bounds)
{
    pair it = pair_open();
    cr_assert_eq(send_text(it.ours, "first", NULL, 0, NULL), 0);
    cr_assert_eq(send_text(it.ours, "2nd", NULL, 0, NULL), 0);
    char buffer[16];
    cr_assert_eq(fby_fdpass_receive(it.theirs, buffer, sizeof buffer, NULL, NULL, NULL), 5);
    cr_assert_eq(fby_fdpass_receive(it.theirs, buffer, sizeof buffer, NULL, NULL, NULL), 3);
    pair_close(&it);
}

Test(fdpass, what_cannot_be_sent_is_refused)
{
    pair it = pair_open();
    int fds[FBY_FDPASS_MOST + 1];
    for (int i = 0; i <= FBY_FDPASS_MOST; i++) fds[i] = it.ours;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(send_text(it.ours, "x", fds, FBY_FDPASS_MOST + 1, &error), FBY_EINVAL);
    cr_assert_eq(send_text(it.ours, "x", fds, -1, &error), FBY_EINVAL);
    cr_assert_eq(send_text(it.ours, "", NULL, 0, &error), FBY_EINVAL);
    const int not_open = 1000;
    cr_assert_eq(send_text(it.ours, "x", &not_open, 1, &error), FBY_EINVAL);

    size_t bytes = 64 << 20;
    char *large = calloc(1, bytes);
    struct iovec part = {large, bytes};
    cr_assert_eq(fby_fdpass_send(it.ours, &part, 1, NULL, 0, &error), FBY_EINVAL, "%s", error.text);
    free(large);
    pair_close(&it);
}

Test(fdpass, too_long_a_message_is_refused_and_its_descriptors_closed)
{
    pair it = pair_open();
    int fd = memfd_create("sent", MFD_CLOEXEC);
    cr_assert_eq(send_text(it.ours, "much too long", &fd, 1, NULL), 0);
    cr_assert_eq(send_text(it.ours, "next", NULL, 0, NULL), 0);

    int before = open_count();
    char buffer[5] = "";
    int received[4], room = 4;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_fdpass_receive(it.theirs, buffer, 4, received, &room, &error), FBY_EPROTO);
    cr_assert_eq(room, 0);
    cr_assert_eq(open_count(), before, "a descriptor of the refused message stays open");

    cr_assert_eq(fby_fdpass_receive(it.theirs, buffer, 4, NULL, NULL, NULL), 4);
    cr_assert_str_eq(buffer, "next", "the next message is whole");
    close(fd);
    pair_close(&it);
}

/* Sends more descriptors than fby_fdpass_send would. */
static void send_many(int socket, int fd, int count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(32 * sizeof(int))];
    } control = {0};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
    message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    for (int i = 0; i < count; i++) memcpy(CMSG_DATA(header) + i * (int)sizeof fd, &fd, sizeof fd);
    cr_assert_eq(sendmsg(socket, &message, 0), 1);
}

Test(fdpass, too_many_descriptors_are_refused_and_closed)
{
    pair it = pair_open();
    int fd = memfd_create("sent", MFD_CLOEXEC);
    const int counts[] = {1, 3, 8, 9, 10, 31};
    const int rooms[] = {0, 2, 7, 8, 8, 3};
    for (int i = 0; i < 6; i++) {
        send_many(it.ours, fd, counts[i]);
        int before = open_count();
        int received[FBY_FDPASS_MOST], room = rooms[i];
        char buffer[4];
        fby_error error = FBY_ERROR_INIT;
        cr_assert_eq(
            fby_fdpass_receive(it.theirs, buffer, sizeof buffer, received, rooms[i] ? &room : NULL, &error),
            FBY_EPROTO, "%d descriptors, room for %d", counts[i], rooms[i]);
        if (rooms[i]) cr_assert_eq(room, 0);
        cr_assert_eq(open_count(), before, "%d descriptors, room for %d: some stay open", counts[i],
                     rooms[i]);
    }
    close(fd);
    pair_close(&it);
}

Test(fdpass, closed_peer)
{
    pair it = pair_open();
    cr_assert_eq(send_text(it.theirs, "last words", NULL, 0, NULL), 0);
    close(it.theirs);
    fby_error error = FBY_ERROR_INIT;
    char buffer[16];
    cr_assert_eq(send_text(it.ours, "x", NULL, 0, &error), FBY_ECLOSED, "%s", error.text);
    cr_assert_eq(fby_fdpass_receive(it.ours, buffer, sizeof buffer, NULL, NULL, &error), 10);
    cr_assert_eq(fby_fdpass_receive(it.ours, buffer, sizeof buffer, NULL, NULL, &error), FBY_ECLOSED);
    cr_assert_eq(fby_fdpass_receive(it.ours, buffer, sizeof buffer, NULL, NULL, &error), FBY_ECLOSED);
    close(it.ours);
}

Test(fdpass, non_blocking_socket)
{
    pair it = pair_open();
    cr_assert_eq(fcntl(it.ours, F_SETFL, O_NONBLOCK), 0);
    fby_error error = FBY_ERROR_INIT;
    char buffer[16];
    cr_assert_eq(fby_fdpass_receive(it.ours, buffer, sizeof buffer, NULL, NULL, &error), FBY_ETIMEDOUT);
    int status = 0;
    for (int i = 0; i < 100000 && status == 0; i++)
        status = send_text(it.ours, "fill it up", NULL, 0, &error);
    cr_assert_eq(status, FBY_ETIMEDOUT, "%s", error.text);
    cr_assert_eq(fby_fdpass_receive(it.theirs, buffer, sizeof buffer, NULL, NULL, NULL), 10);
    pair_close(&it);
}

Test(fdpass, empty_message_with_descriptors_is_refused)
{
    pair it = pair_open();
    int fd = memfd_create("sent", MFD_CLOEXEC);
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof control};
    control.header =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    cr_assert_eq(sendmsg(it.ours, &message, 0), 0);

    int before = open_count();
    char buffer[4];
    int received[2], room = 2;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_fdpass_receive(it.theirs, buffer, sizeof buffer, received, &room, &error), FBY_EPROTO);
    cr_assert_eq(open_count(), before);
    close(fd);
    pair_close(&it);
}
