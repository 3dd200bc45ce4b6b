#include "dataplane/protocol/peer.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* linux/pidfd.h of 6.15, whose names older headers lack. */
typedef struct pidfd_exit_info {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t exit_code;
} pidfd_exit_info;
enum { EXIT_INFO_MASK = 1 << 3 };
#define PIDFD_GET_EXIT_INFO _IOWR(0xFF, 11, pidfd_exit_info)

int fby_peer_of(fby_peer *out, int socket, fby_error *error)
{
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    *out = (fby_peer){0, (uid_t)-1, -1};
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length))
        return fby_fail(error, FBY_EIO, "SO_PEERCRED: %s", strerror(errno));
    out->pid = credentials.pid;
    out->uid = credentials.uid;
    int pidfd = -1;
    length = sizeof pidfd;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0)
        out->pidfd = pidfd;
    else if (credentials.pid > 0)
        out->pidfd = (int)syscall(SYS_pidfd_open, credentials.pid, 0);
    return 0;
}

void fby_peer_close(fby_peer *peer)
{
    if (peer->pidfd >= 0) close(peer->pidfd);
    peer->pidfd = -1;
}

bool fby_peer_ended(const fby_peer *peer)
{
    if (peer->pidfd < 0) return false;
    struct pollfd entry = {peer->pidfd, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
}

int fby_peer_signal(const fby_peer *peer)
{
    if (peer->pidfd < 0) return 0;
    /* The exit code is there once the parent has reaped the process: give it a moment. */
    for (int attempt = 0; attempt < 20; attempt++) {
        pidfd_exit_info info = {.mask = EXIT_INFO_MASK};
        if (ioctl(peer->pidfd, PIDFD_GET_EXIT_INFO, &info)) {
            if (errno != ESRCH) return 0;
        } else if (info.mask & EXIT_INFO_MASK) {
            return WIFSIGNALED(info.exit_code) ? WTERMSIG(info.exit_code) : 0;
        }
        nanosleep(&(struct timespec){0, 5 * 1000 * 1000}, NULL);
    }
    return 0;
}
