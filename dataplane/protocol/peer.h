/* Who is at the other end of a Unix socket, and whether it still lives. */
#ifndef FBY_DATAPLANE_PEER_H
#define FBY_DATAPLANE_PEER_H

#include <forebay/error.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct fby_peer {
    pid_t pid;
    uid_t uid;
    int pidfd; /* owned; readable once the process ended; -1 where the kernel has none */
} fby_peer;

/* Asks the kernel: SO_PEERPIDFD (6.5) or SO_PEERCRED and pidfd_open. */
int fby_peer_of(fby_peer *out, int socket, fby_error *error);
void fby_peer_close(fby_peer *peer);
/* True once the process ended; without a pidfd, always false: the socket's end says it then. */
bool fby_peer_ended(const fby_peer *peer);
/* The signal that ended it, 0 where it exited or the kernel doesn't tell (it does from 6.15, once the process
 * was reaped). */
int fby_peer_signal(const fby_peer *peer);

#endif
