#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/client/internal.h"
#include "dataplane/protocol/crash.h"
#include "dataplane/protocol/paths.h"
#include "ringbuf/fdpass.h"
#include "ringbuf/wait.h"

enum { END_SEEN_MS = 250 };

const char *fby_version(void)
{
    return FBY_VERSION_TEXT;
}

int fby_connection_lost(const fby_connection *connection, fby_error *error)
{
    if (error) {
        error->pid = connection->peer.pid;
        error->signal = 0;
    }
    /* A process closes its sockets a moment before it is seen to have ended. */
    struct pollfd entry = {connection->peer.pidfd, POLLIN, 0};
    if (connection->peer.pidfd >= 0 && poll(&entry, 1, END_SEEN_MS) == 0)
        return fby_fail(error, FBY_ELOST, "the server, process %d, closed this connection: its log says why",
                        (int)connection->peer.pid);
    int signal = fby_peer_signal(&connection->peer);
    char how[64] = "";
    if (signal) snprintf(how, sizeof how, " (%s)", strsignal(signal));
    int status = fby_fail(error, FBY_ELOST, "the server, process %d, is gone%s: open the task again",
                          (int)connection->peer.pid, how);
    if (error) error->signal = signal;
    return status;
}

int fby_connection_send(fby_connection *connection, const void *message, size_t bytes, fby_error *error)
{
    struct iovec part = {(void *)message, bytes};
    int status = fby_fdpass_send(connection->socket, &part, 1, NULL, 0, error);
    return status == FBY_ECLOSED ? fby_connection_lost(connection, error) : status;
}

/* What came is a message of this protocol, and no failure: its bytes, or a status. */
static int64_t message_check(const void *buffer, int64_t got, fby_error *error)
{
    const fby_message *head = buffer;
    if ((size_t)got < sizeof *head || head->magic != FBY_MESSAGE_MAGIC)
        return fby_fail(error, FBY_EPROTO, "what answers isn't a Forebay server");
    if (head->type == FBY_MESSAGE_FAILED && (size_t)got >= sizeof(fby_failed)) {
        const fby_failed *failed = buffer;
        int code = failed->code < 0 ? failed->code : FBY_EPROTO;
        fby_fail(error, code, "%.*s", (int)((size_t)got - sizeof *failed), (const char *)(failed + 1));
        if (error) error->sample = failed->sample;
        return code;
    }
    if (head->version != FBY_PROTOCOL_VERSION)
        return fby_fail(
            error, FBY_EVERSION,
            "the server speaks protocol %u, this client %u: use the same version of Forebay for both",
            head->version, FBY_PROTOCOL_VERSION);
    return got;
}

int64_t fby_connection_receive(fby_connection *connection, void *buffer, size_t bytes, int *fds,
                               int *fd_count, int timeout_ms, fby_error *error)
{
    struct pollfd entry = {connection->socket, POLLIN, 0};
    int ready = poll(&entry, 1, timeout_ms);
    if (ready < 0 && errno == EINTR)
        return fby_fail(error, FBY_EINTR, "a signal arrived while waiting for the server");
    if (ready < 0) return fby_fail(error, FBY_EIO, "poll: %s", strerror(errno));
    if (ready == 0)
        return fby_fail(error, FBY_ETIMEDOUT, "the server, process %d, didn't answer within %d ms",
                        (int)connection->peer.pid, timeout_ms);
    int none = 0;
    if (!fd_count) fd_count = &none;
    int room = *fd_count;
    int64_t got = fby_fdpass_receive(connection->socket, buffer, bytes, fds, fd_count, error);
    /* A server that refused and closed before it read our message resets the connection once; its refusal
     * stands behind that. */
    if (got == FBY_ECLOSED) {
        *fd_count = room;
        got = fby_fdpass_receive(connection->socket, buffer, bytes, fds, fd_count, error);
    }
    if (got == FBY_ECLOSED) return fby_connection_lost(connection, error);
    if (got < 0) return got;
    got = message_check(buffer, got, error);
    if (got < 0) {
        for (int i = 0; i < *fd_count; i++) close(fds[i]);
        *fd_count = 0;
    }
    return got;
}

static void affinity_read(uint64_t words[FBY_AFFINITY_WORDS])
{
    memset(words, 0, 8 * FBY_AFFINITY_WORDS);
    cpu_set_t *set = CPU_ALLOC(64 * FBY_AFFINITY_WORDS);
    if (!set) return;
    size_t bytes = CPU_ALLOC_SIZE(64 * FBY_AFFINITY_WORDS);
    CPU_ZERO_S(bytes, set);
    if (sched_getaffinity(0, bytes, set) == 0)
        for (unsigned cpu = 0; cpu < 64 * FBY_AFFINITY_WORDS; cpu++)
            if (CPU_ISSET_S(cpu, bytes, set)) words[cpu / 64] |= 1ull << (cpu % 64);
    CPU_FREE(set);
}

int fby_connection_open(fby_connection *out, const char *path, int timeout_ms, fby_error *error)
{
    *out = (fby_connection){-1, {0, 0, -1}, false};
    int status = fby_socket_connect(path, error);
    if (status < 0) return status;
    out->socket = status;
    status = fby_peer_of(&out->peer, out->socket, error);
    if (status) goto failed;
    if (out->peer.uid != geteuid() && out->peer.uid != 0) {
        status = fby_fail(error, FBY_EPERM, "the server at %s runs as uid %u, not as this user (uid %u)",
                          path, (unsigned)out->peer.uid, (unsigned)geteuid());
        goto failed;
    }
    fby_hello hello = {fby_message_head(FBY_MESSAGE_HELLO, 0), fby_layout_hash(), (uint32_t)getpid(), 0, {0}};
    affinity_read(hello.affinity);
    status = fby_connection_send(out, &hello, sizeof hello, error);
    if (status && status != FBY_ELOST) goto failed; /* lost: it may have said why */
    union {
        fby_welcome welcome;
        uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
    } answer;
    int64_t got = fby_connection_receive(out, &answer, sizeof answer, NULL, NULL, timeout_ms, error);
    FBY_CRASH_POINT("client: welcome received");
    if (got < 0) {
        status = (int)got;
        goto failed;
    }
    if (got != sizeof answer.welcome || answer.welcome.head.type != FBY_MESSAGE_WELCOME) {
        status =
            fby_fail(error, FBY_EPROTO, "the server at %s answered a greeting with something else", path);
        goto failed;
    }
    if (answer.welcome.layout_hash != fby_layout_hash()) {
        status = fby_fail(error, FBY_EVERSION,
                          "the server at %s has memory layout %016llx, this client %016llx: use the same "
                          "version of Forebay for both",
                          path, (unsigned long long)answer.welcome.layout_hash,
                          (unsigned long long)fby_layout_hash());
        goto failed;
    }
    out->embedded = answer.welcome.embedded;
    FBY_CRASH_POINT("client: connected");
    return 0;
failed:
    fby_connection_close(out);
    return status;
}

void fby_connection_close(fby_connection *connection)
{
    if (connection->socket >= 0) close(connection->socket);
    connection->socket = -1;
    fby_peer_close(&connection->peer);
}

int fby_connection_dial(fby_connection *out, const fby_address *address, int timeout_ms, fby_error *error)
{
    *out = (fby_connection){-1, {0, 0, -1}, false};
    if (address->starts) {
        char path[PATH_MAX];
        const char *program = *address->program ? address->program : NULL;
        int status = fby_embedded_start(path, program, timeout_ms, error);
        if (status) return status;
    }
    return fby_connection_open(out, address->socket_path, timeout_ms, error);
}

/* Milliseconds that a lost server's successor is waited for. */
static int reconnect_find(int32_t given, int *out, fby_error *error)
{
    *out = given < 0 ? 0 : given > 0 ? given : FBY_RECONNECT_MS;
    const char *set = getenv("FOREBAY_RECONNECT");
    if (given || !set || !*set) return 0;
    char *end;
    double seconds = strtod(set, &end);
    if (*end || !(seconds >= 0 && seconds <= 1e6))
        return fby_fail(error, FBY_EINVAL, "FOREBAY_RECONNECT is \"%s\": expected seconds, 0 to 1000000",
                        set);
    *out = (int)(seconds * 1000);
    return 0;
}

int fby_connect(fby_client **out, const fby_connect_options *given, fby_error *error)
{
    *out = NULL;
    fby_connect_options options = FBY_CONNECT_OPTIONS_INIT;
    if (given) {
        if (given->size < sizeof(size_t) || given->size > 4096)
            return fby_fail(error, FBY_EINVAL,
                            "fby_connect_options.size is %zu: start from FBY_CONNECT_OPTIONS_INIT",
                            given->size);
        memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    }
    if (options.mode > FBY_MODE_FOUND)
        return fby_fail(error, FBY_EINVAL, "fby_connect_options.mode is %u: expected a fby_mode",
                        options.mode);
    int timeout = options.timeout_ms > 0 ? options.timeout_ms : FBY_CONNECT_TIMEOUT_MS;
    fby_client *client = calloc(1, sizeof *client);
    if (!client) return fby_fail(error, FBY_ENOMEM, "no memory for a client");
    client->fork_generation = fby_fork_generation();
    char *socket_path = client->address.socket_path;
    int status = reconnect_find(options.reconnect_ms, &client->address.reconnect_ms, error);
    if (!status && options.server && strlen(options.server) >= PATH_MAX)
        status =
            fby_fail(error, FBY_EINVAL, "the server program's path is longer than %d bytes", PATH_MAX - 1);
    if (status) goto out;
    if (options.server) strcpy(client->address.program, options.server);
    status = FBY_ELOST;
    if (options.mode != FBY_MODE_EMBEDDED) {
        bool named = options.socket || (getenv("FOREBAY_SOCKET") && *getenv("FOREBAY_SOCKET"));
        if (options.socket && strlen(options.socket) >= PATH_MAX) {
            status = fby_fail(error, FBY_EINVAL, "the socket path is longer than %d bytes", PATH_MAX - 1);
            goto out;
        }
        status = 0;
        if (options.socket)
            strcpy(socket_path, options.socket);
        else
            status = fby_paths_socket(socket_path, error);
        if (!status) status = fby_connection_open(&client->connection, socket_path, timeout, error);
        /* A server that the caller named must be there; the default one may be absent. */
        if (status != FBY_ELOST || named || options.mode == FBY_MODE_RUNNING) goto out;
    }
    if (options.mode == FBY_MODE_FOUND) {
        status = fby_embedded_path(socket_path, error);
        if (!status) status = fby_connection_open(&client->connection, socket_path, timeout, error);
        goto out;
    }
    /* A server found at the end of its linger closes the door on us: elect the next. */
    for (int attempt = 0; attempt < 3; attempt++) {
        status = fby_embedded_start(socket_path, options.server, timeout, error);
        if (!status) status = fby_connection_open(&client->connection, socket_path, timeout, error);
        client->address.starts = !status;
        if (status != FBY_ELOST) break;
    }
out:
    if (status) {
        free(client);
        return status;
    }
    *out = client;
    return 0;
}

void fby_disconnect(fby_client **handle)
{
    if (!*handle) return;
    if (!fby_fork_check((*handle)->fork_generation, NULL)) shutdown((*handle)->connection.socket, SHUT_RDWR);
    fby_connection_close(&(*handle)->connection);
    free(*handle);
    *handle = NULL;
}

int32_t fby_client_pid(const fby_client *client)
{
    return client->connection.peer.pid;
}

/* Asks for the status; the document's descriptor, or a status. */
static int status_ask(fby_client *client, fby_error *error)
{
    fby_message request = fby_message_head(FBY_MESSAGE_STATUS, 0);
    int status = fby_connection_send(&client->connection, &request, sizeof request, error);
    if (status) return status;
    union {
        fby_message head;
        uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
    } answer = {0};
    int fds[1] = {-1}, fd_count = 1;
    int64_t got;
    do
        got = fby_connection_receive(&client->connection, &answer, sizeof answer, fds, &fd_count,
                                     FBY_CONNECT_TIMEOUT_MS, error);
    while (got == FBY_EINTR);
    if (got < 0) return (int)got;
    if (answer.head.type == FBY_MESSAGE_STATUS_REPLY && fd_count == 1) return fds[0];
    if (fd_count == 1) close(fds[0]);
    return fby_fail(error, FBY_EPROTO, "the server answered a status request with something else");
}

int fby_client_status(fby_client *client, char **json, fby_error *error)
{
    *json = NULL;
    int status = fby_fork_check(client->fork_generation, error);
    if (status) return status;
    int fd = status_ask(client, error);
    if (fd == FBY_ELOST && client->address.reconnect_ms) {
        /* Another one may have taken its place. */
        fby_connection next;
        if (!fby_connection_open(&next, client->address.socket_path, FBY_CONNECT_TIMEOUT_MS, NULL)) {
            fby_connection_close(&client->connection);
            client->connection = next;
            fd = status_ask(client, error);
        }
    }
    if (fd < 0) return fd;
    off_t bytes = lseek(fd, 0, SEEK_END);
    char *text = bytes >= 0 ? malloc((size_t)bytes + 1) : NULL;
    bool whole = text && pread(fd, text, (size_t)bytes, 0) == bytes;
    close(fd);
    if (!whole) {
        free(text);
        return fby_fail(error, FBY_EIO, "can't read the server's status");
    }
    text[bytes] = 0;
    *json = text;
    return 0;
}
