/* Messages with file descriptors over a SOCK_SEQPACKET Unix socket. */
#ifndef FBY_RINGBUF_FDPASS_H
#define FBY_RINGBUF_FDPASS_H

#include <forebay/error.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum { FBY_FDPASS_MOST = 8 };

/* Sends one message (all of `parts`) with up to FBY_FDPASS_MOST descriptors, which stay the caller's. Never
 * raises SIGPIPE. FBY_ECLOSED when the peer is gone; FBY_ETIMEDOUT when a non-blocking socket is full. */
int fby_fdpass_send(int socket, const struct iovec *parts, int part_count, const int *fds, int fd_count,
                    fby_error *error);

/* Receives one message: returns its bytes (> 0), FBY_ECLOSED at the end of the stream, FBY_ETIMEDOUT when a
 * non-blocking socket has none, FBY_EPROTO for a message cut because it was longer than `bytes` or carried
 * too many descriptors (which are closed). Descriptors arrive close-on-exec in `fds`; *fd_count (in: room)
 * says how many. */
int64_t fby_fdpass_receive(int socket, void *buffer, size_t bytes, int *fds, int *fd_count, fby_error *error);

#endif
