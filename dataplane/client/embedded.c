/* The embedded server: elected by a lock in the socket folder, started by the first client, ended by itself.
 *
 * The child is forked twice and put into a session of its own, so that it is nobody's child and Ctrl-C in the
 * trainer's terminal doesn't reach it. It tells through a pipe that it listens, or why it can't. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/client/internal.h"
#include "dataplane/protocol/paths.h"
#include "ringbuf/wait.h"

enum { READY_FD = 3, LOCK_LOOK_NS = 5 * 1000 * 1000 };

extern char **environ;

/* The `forebay` program beside this library, as installed, in a wheel, or in a build tree. */
static int program_find(char *out, const char *given, fby_error *error)
{
    const char *set = getenv("FOREBAY_SERVER");
    if (!given && set && *set) given = set;
    if (given) {
        if (access(given, X_OK))
            return fby_fail(error, FBY_EINVAL, "the server program %s can't be run: %s", given,
                            strerror(errno));
        snprintf(out, PATH_MAX, "%s", given);
        return 0;
    }
    static const char *const beside[] = {"forebay", "bin/forebay", "../bin/forebay", "../../bin/forebay",
                                         "../cli/forebay"};
    char folder[PATH_MAX] = "";
    Dl_info library;
    for (int base = 0; base < 2; base++) {
        if (base == 0) {
            if (!dladdr((void *)fby_version, &library) || !library.dli_fname ||
                !realpath(library.dli_fname, folder))
                continue;
        } else if (!realpath("/proc/self/exe", folder)) {
            continue;
        }
        char *slash = strrchr(folder, '/');
        if (!slash) continue;
        *slash = 0;
        for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
            int length = snprintf(out, PATH_MAX, "%s/%s", folder, beside[i]);
            if (length < PATH_MAX && access(out, X_OK) == 0) return 0;
        }
    }
    const char *path = getenv("PATH");
    while (path && *path) {
        int length = (int)strcspn(path, ":");
        int joined = snprintf(out, PATH_MAX, "%.*s/forebay", length, path);
        if (length && joined < PATH_MAX && access(out, X_OK) == 0) return 0;
        path += length + (path[length] == ':');
    }
    return fby_fail(
        error, FBY_ENOTSUP,
        "can't find the program `forebay` beside the library or in PATH: install it, or set FOREBAY_SERVER");
}

/* In the grandchild: nothing but calls that are safe after fork in a threaded program. */
_Noreturn static void server_exec(const char *program, char *const *arguments, int ready, int log)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < 32; number++) signal(number, SIG_DFL);
    /* Where the trainer has no standard streams, these are among the numbers that are taken now: out of the
     * way. */
    ready = fcntl(ready, F_DUPFD, READY_FD + 1);
    if (log >= 0) log = fcntl(log, F_DUPFD, READY_FD + 1);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) null = fcntl(null, F_DUPFD, READY_FD + 1);
    dup2(null, 0);
    dup2(log >= 0 ? log : null, 1);
    dup2(log >= 0 ? log : null, 2);
    dup2(ready, READY_FD);
    close_range(READY_FD + 1, ~0u, 0);
    if (chdir("/")) _exit(126);
    execve(program, arguments, environ);
    static const char text[] = "the server program can't be executed";
    if (write(READY_FD, text, sizeof text - 1) < 0) _exit(126);
    _exit(127);
}

static int server_spawn(const char *program, const char *socket_path, int timeout_ms, fby_error *error)
{
    char log_path[PATH_MAX];
    fby_paths_log(log_path);
    int pipe_ends[2], log = *log_path ? open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (pipe2(pipe_ends, O_CLOEXEC)) {
        if (log >= 0) close(log);
        return fby_fail(error, FBY_EIO, "pipe: %s", strerror(errno));
    }
    char *arguments[] = {(char *)program,     "serve",      "--embedded", "--socket",
                         (char *)socket_path, "--ready-fd", "3",          NULL};
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        setsid();
        pid_t grandchild = fork();
        if (grandchild == 0) server_exec(program, arguments, pipe_ends[1], log);
        _exit(grandchild < 0);
    }
    close(pipe_ends[1]);
    if (log >= 0) close(log);
    if (child < 0) {
        status = fby_fail(error, FBY_EIO, "fork: %s", strerror(errno));
        goto out;
    }
    int ended;
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR) continue;

    /* One byte 'R' and the end of the stream: it listens. Anything else is why not. */
    char text[FBY_ERROR_TEXT / 2];
    size_t have = 0;
    uint64_t deadline = fby_now_ns() + (uint64_t)timeout_ms * 1000000;
    for (;;) {
        struct pollfd entry = {pipe_ends[0], POLLIN, 0};
        uint64_t now = fby_now_ns();
        int ready = now >= deadline ? 0 : poll(&entry, 1, (int)((deadline - now) / 1000000) + 1);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) {
            status =
                fby_fail(error, FBY_ETIMEDOUT, "the server %s didn't get ready within %d ms; its log is %s",
                         program, timeout_ms, log_path);
            goto out;
        }
        ssize_t got = read(pipe_ends[0], text + have, sizeof text - 1 - have);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        have += (size_t)got;
    }
    text[have] = 0;
    if (strcmp(text, "R"))
        status = fby_fail(error, FBY_EIO, "the server %s didn't start: %s; its log is %s", program,
                          have ? text : "it ended without a word", log_path);
out:
    close(pipe_ends[0]);
    return status;
}

int fby_embedded_path(char *path, fby_error *error)
{
    char folder[PATH_MAX];
    int status = fby_paths_folder(folder, error);
    if (status) return status;
    if (snprintf(path, PATH_MAX, "%s/embedded.sock", folder) >= PATH_MAX)
        return fby_fail(error, FBY_EINVAL, "the socket folder's path is too long");
    return 0;
}

int fby_embedded_start(char *path, const char *program, int timeout_ms, fby_error *error)
{
    char lock_path[PATH_MAX], found[PATH_MAX];
    int status = fby_embedded_path(path, error);
    if (status) return status;
    int fd = fby_socket_connect(path, error);
    if (fd == FBY_ETIMEDOUT) return fd;
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    status = program_find(found, program, error);
    if (status) return status;
    strcpy(lock_path, path);
    strcpy(strrchr(lock_path, '.'), ".lock");
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0) return fby_fail(error, FBY_EIO, "can't open %s: %s", lock_path, strerror(errno));
    uint64_t deadline = fby_now_ns() + (uint64_t)timeout_ms * 1000000;
    for (;;) {
        bool locked = flock(lock, LOCK_EX | LOCK_NB) == 0;
        int refusal = errno;
        /* Whoever has, or had, the lock may have started it. */
        fd = fby_socket_connect(path, NULL);
        if (fd >= 0) {
            close(fd);
            break;
        }
        if (locked) {
            status = server_spawn(found, path, timeout_ms, error);
            break;
        }
        if (refusal != EWOULDBLOCK && refusal != EINTR)
            status = fby_fail(error, FBY_EIO, "can't lock %s: %s", lock_path, strerror(refusal));
        else if (fby_now_ns() >= deadline)
            status =
                fby_fail(error, FBY_ETIMEDOUT, "another process holds %s, but started no server within %d ms",
                         lock_path, timeout_ms);
        if (status) break;
        nanosleep(&(struct timespec){0, LOCK_LOOK_NS}, NULL);
    }
    close(lock);
    return status;
}
