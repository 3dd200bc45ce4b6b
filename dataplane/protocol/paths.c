#include "dataplane/protocol/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECT_MOST_S = 10 };

/* snprintf that refuses to cut. */
__attribute__((format(printf, 2, 3))) static int path_join(char *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out, PATH_MAX, format, arguments);
    va_end(arguments);
    return length >= 0 && length < PATH_MAX ? 0 : -1;
}

int fby_paths_folder(char *out, fby_error *error)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat found;
    int cut = runtime && *runtime == '/' && stat(runtime, &found) == 0 && S_ISDIR(found.st_mode)
                  ? path_join(out, "%s/forebay", runtime)
                  : path_join(out, "/tmp/forebay-%u", (unsigned)geteuid());
    if (cut)
        return fby_fail(error, FBY_EINVAL, "XDG_RUNTIME_DIR is too long for a path: expected under %d bytes",
                        PATH_MAX);
    if (mkdir(out, 0700) && errno != EEXIST)
        return fby_fail(error, FBY_EIO,
                        "can't make the socket folder %s: %s; set XDG_RUNTIME_DIR or FOREBAY_SOCKET", out,
                        strerror(errno));
    if (lstat(out, &found))
        return fby_fail(error, FBY_EIO, "can't look at the socket folder %s: %s", out, strerror(errno));
    if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid())
        return fby_fail(error, FBY_EPERM,
                        "the socket folder %s isn't a folder of this user (uid %u): remove it", out,
                        (unsigned)geteuid());
    if ((found.st_mode & 077) && chmod(out, 0700))
        return fby_fail(error, FBY_EPERM, "the socket folder %s is open to others: chmod 0700 it", out);
    return 0;
}

int fby_paths_socket(char *out, fby_error *error)
{
    const char *set = getenv("FOREBAY_SOCKET");
    if (set && *set) {
        if (strlen(set) >= PATH_MAX)
            return fby_fail(error, FBY_EINVAL, "FOREBAY_SOCKET is longer than %d bytes", PATH_MAX - 1);
        strcpy(out, set);
        return 0;
    }
    char folder[PATH_MAX];
    int status = fby_paths_folder(folder, error);
    if (status) return status;
    if (path_join(out, "%s/serve.sock", folder))
        return fby_fail(error, FBY_EINVAL, "the socket folder's path is too long");
    return 0;
}

/* Makes every folder of `path` but its last part. */
static void folders_make(char *path)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
}

void fby_paths_log(char *out)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char folder[PATH_MAX];
    for (int choice = 0; choice < 3; choice++) {
        int cut = -1;
        if (choice == 0 && state && *state == '/') cut = path_join(out, "%s/forebay/embedded.log", state);
        if (choice == 1 && home && *home == '/')
            cut = path_join(out, "%s/.local/state/forebay/embedded.log", home);
        if (choice == 2 && !fby_paths_folder(folder, NULL)) cut = path_join(out, "%s/embedded.log", folder);
        if (cut) continue;
        folders_make(out);
        int fd = open(out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) continue;
        close(fd);
        return;
    }
    *out = 0;
}

/* An address for `path`: itself, or, where it is too long, through a descriptor of its folder (left in
 * *folder). */
static int address_make(struct sockaddr_un *address, const char *path, int *folder, fby_error *error)
{
    *folder = -1;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) < sizeof address->sun_path) {
        strcpy(address->sun_path, path);
        return 0;
    }
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX];
    if (!slash || slash == path || strlen(path) >= PATH_MAX)
        return fby_fail(error, FBY_EINVAL, "the socket path %.100s… can't be used: expected /folder/name",
                        path);
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = 0;
    *folder = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return fby_fail(error, FBY_ELOST, "can't open the socket's folder %s: %s", parent, strerror(errno));
    int length =
        snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s", *folder, slash + 1);
    if (length >= (int)sizeof address->sun_path) {
        close(*folder);
        return fby_fail(
            error, FBY_EINVAL,
            "the socket's file name, %s, is too long: expected under 80 bytes (its folder's path may "
            "be longer)",
            slash + 1);
    }
    return 0;
}

static int socket_with(const char *path, bool listening, fby_error *error)
{
    struct sockaddr_un address;
    int folder = -1, status = address_make(&address, path, &folder, error);
    if (status) return status;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        status = fby_fail(error, FBY_EIO, "socket: %s", strerror(errno));
        goto out;
    }
    if (listening) {
        if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 128))
            status = fby_fail(error, FBY_EIO, "can't listen at %s: %s", path, strerror(errno));
    } else {
        /* Where the server takes nobody for long, its queue is full, and connect would wait for ever. */
        struct timeval most = {CONNECT_MOST_S, 0}, unlimited = {0, 0};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        int done;
        do done = connect(fd, (struct sockaddr *)&address, sizeof address);
        while (done && errno == EINTR);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &unlimited, sizeof unlimited);
        if (done && errno == EAGAIN)
            status = fby_fail(error, FBY_ETIMEDOUT,
                              "the server at %s has taken nobody in for %d s: is it stopped?", path,
                              CONNECT_MOST_S);
        else if (done && errno == EACCES)
            status = fby_fail(error, FBY_EPERM, "the server at %s belongs to another user", path);
        else if (done)
            status = fby_fail(error, FBY_ELOST,
                              "no server answers at %s: %s; expected one that forebay serve started", path,
                              strerror(errno));
    }
out:
    if (folder >= 0) close(folder);
    if (status && fd >= 0) close(fd);
    return status ? status : fd;
}

int fby_socket_listen(const char *path, fby_error *error)
{
    return socket_with(path, true, error);
}

int fby_socket_connect(const char *path, fby_error *error)
{
    return socket_with(path, false, error);
}
