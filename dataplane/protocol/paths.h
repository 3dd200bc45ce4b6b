/* Where sockets, locks and logs stand.
 *
 *   $FOREBAY_SOCKET            a server's socket, where it is set
 *   FOLDER/serve.sock          of `forebay serve`
 *   FOLDER/embedded.sock/.lock of the embedded server
 *
 * FOLDER is $XDG_RUNTIME_DIR/forebay, else /tmp/forebay-UID; it is made with mode 0700 and refused where it
 * belongs to somebody else or others may enter. The log is $XDG_STATE_HOME/forebay/embedded.log, else
 * ~/.local/state/forebay/…, else in FOLDER. */
#ifndef FBY_DATAPLANE_PATHS_H
#define FBY_DATAPLANE_PATHS_H

#include <forebay/error.h>
#include <limits.h>
#include <stdbool.h>

/* The folder, made where it isn't there. `out` has PATH_MAX bytes. */
int fby_paths_folder(char *out, fby_error *error);
/* $FOREBAY_SOCKET, or FOLDER/serve.sock. */
int fby_paths_socket(char *out, fby_error *error);
/* Where an embedded server logs: a file that can be written, or "" where there is none. */
void fby_paths_log(char *out);

/* Unix sockets whose path may be longer than the 107 bytes that an address holds: bound or connected through
 * the folder's descriptor. All return a close-on-exec SOCK_SEQPACKET descriptor, or a negative status. */
int fby_socket_listen(const char *path, fby_error *error);
/* FBY_ELOST where nobody listens there; FBY_ETIMEDOUT where who does takes nobody in for ten seconds. */
int fby_socket_connect(const char *path, fby_error *error);

#endif
