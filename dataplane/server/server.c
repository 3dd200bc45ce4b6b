/* The conductor: one thread, one event wait. Its round: take what is returned, take what is finished, set up,
 * draw, deliver, wake; then say that it sleeps, look once more, and sleep. */
#include "dataplane/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/protocol/paths.h"
#include "dataplane/server/internal.h"
#include "ringbuf/wait.h"

enum { EVENTS_AT_ONCE = 64, BUSY_SLEEP_MS = 100, LOCK_ATTEMPTS = 300, DESCRIPTORS_KEPT = 16 };

static const uint64_t LINGER_NS = 10 * 1000 * 1000 * 1000ull, END_NS = 2 * 1000 * 1000 * 1000ull;

void fby_server_log(fby_server *server, const char *format, ...)
{
    if (!server->options.log) return;
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    server->options.log(server->options.user, line);
}

int fby_server_watch(fby_server *server, int fd, fby_watch *watch, fby_error *error)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event))
        return fby_fail(error, FBY_EIO, "epoll_ctl: %s", strerror(errno));
    return 0;
}

void fby_server_cpus_update(fby_server *server)
{
    if (!server->options.embedded || !server->engine) return;
    fby_cpus cpus = {{0}};
    uint32_t clients = 0;
    for (fby_session *session = server->sessions; session; session = session->next) {
        if (session->closed || (!session->opening && !session->task)) continue;
        clients++;
        for (size_t i = 0; i < sizeof cpus.words / sizeof *cpus.words; i++)
            cpus.words[i] |= session->cpus.words[i];
    }
    if (!clients || !fby_cpus_count(&cpus) || !memcmp(&cpus, &server->cpus, sizeof cpus)) return;
    server->cpus = cpus;
    fby_error error = FBY_ERROR_INIT;
    if (fby_engine_use_cpus(server->engine, &cpus, &error))
        fby_server_log(server, "can't use the clients' CPUs: %s", error.text);
}

/* --- starting
 * ------------------------------------------------------------------------------------------------------- */

/* Of two servers that start at once, one would take the other's socket, bound but not yet listening, for a
 * stale one. A lock on the folder leaves nothing behind. The descriptor, or -1 where the folder can't be
 * locked. */
static int folder_lock(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int attempt = 0; fd >= 0 && attempt < LOCK_ATTEMPTS; attempt++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        usleep(10000);
    }
    if (fd >= 0) close(fd);
    return -1;
}

/* Replaces a socket that nobody listens at; refuses where a server lives. */
static int socket_open(fby_server *server, fby_error *error)
{
    const char *path = server->options.socket;
    int status = 0, folder = folder_lock(path);
    int fd = fby_socket_connect(path, NULL);
    struct stat found;
    if (fd >= 0 || fd == FBY_ETIMEDOUT) {
        if (fd >= 0) close(fd);
        status = fby_fail(error, FBY_EINVAL,
                          "a server already listens at %s: stop it first, or choose another --socket", path);
    } else if (lstat(path, &found) == 0) {
        if (!S_ISSOCK(found.st_mode))
            status =
                fby_fail(error, FBY_EINVAL, "%s is there and isn't a socket: choose another --socket", path);
        else if (unlink(path))
            status = fby_fail(error, FBY_EIO, "can't replace the stale socket %s: %s", path, strerror(errno));
    }
    if (!status) {
        mode_t before = umask(0177);
        fd = fby_socket_listen(path, error);
        umask(before);
        status = fd < 0 ? fd : 0;
    }
    if (folder >= 0) close(folder);
    if (status) return status;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    server->listener = fd;
    return 0;
}

static int signals_open(fby_server *server, fby_error *error)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    server->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return server->signals < 0 ? fby_fail(error, FBY_EIO, "signalfd: %s", strerror(errno)) : 0;
}

/* Descriptors are what tasks are made of: as many as the system allows. */
static void limits_raise(fby_server *server)
{
    struct rlimit limit;
    server->fd_end = INT_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < INT_MAX) server->fd_end = (int)limit.rlim_max - DESCRIPTORS_KEPT;
}

static int server_start(fby_server *server, fby_error *error)
{
    const fby_server_options *options = &server->options;
    server->epoll = server->listener = server->signals = server->setup_event = server->spare_fd = -1;
    server->next_number = 1;
    server->started_ns = server->idle_since_ns = fby_now_ns();
    server->listen_watch.kind = WATCH_LISTEN;
    server->signal_watch.kind = WATCH_SIGNAL;
    server->engine_watch.kind = WATCH_ENGINE;
    server->setup_watch.kind = WATCH_SETUP;
    uint64_t granted = fby_grant_memory("/");
    server->budget.limit = options->memory ? options->memory : granted / 2;
    if (options->memory > granted)
        return fby_fail(error, FBY_EINVAL, "--memory asks for %.1f MiB, but this process is granted %.1f MiB",
                        (double)options->memory / (1 << 20), (double)granted / (1 << 20));
    limits_raise(server);
    fby_cpus_of_process(&server->own_cpus);
    server->cpus = server->own_cpus;

    int status = signals_open(server, error);
    if (!status) status = fby_topology_load(&server->topology, NULL, error);
    if (status) return status;
    fby_engine_options engine = {.cpus = server->cpus,
                                 .workers = options->workers,
                                 .reader = options->reader,
                                 .topology = server->topology};
    status = fby_engine_create(&server->engine, &engine, error);
    if (status) return status;
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->setup_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll < 0 || server->setup_event < 0)
        return fby_fail(error, FBY_EIO, "epoll or eventfd: %s", strerror(errno));
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    status = fby_setup_start(server, error);
    if (!status) status = socket_open(server, error);
    if (!status) status = fby_server_watch(server, server->listener, &server->listen_watch, error);
    if (!status) status = fby_server_watch(server, server->signals, &server->signal_watch, error);
    if (!status)
        status = fby_server_watch(server, fby_engine_event(server->engine), &server->engine_watch, error);
    if (!status) status = fby_server_watch(server, server->setup_event, &server->setup_watch, error);
    return status;
}

/* Tells whoever started this server how it went. */
static void ready_tell(fby_server *server, int status, const fby_error *error)
{
    int fd = server->options.ready_fd;
    if (fd < 0) return;
    const char *text = status ? error->text : "R";
    if (write(fd, text, strlen(text)) < 0)
        fby_server_log(server, "nobody waits for this server: %s", strerror(errno));
    close(fd);
}

/* --- the round
 * ---------------------------------------------------------------------------------------------------------
 */

static void event_drain(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR) continue;
}

static void setup_take(fby_server *server)
{
    fby_setup_job *job;
    while ((job = fby_setup_finished(server))) {
        fby_session *session = server->sessions;
        while (session && (session->closed || session->opening != job)) session = session->next;
        if (session && fby_session_opened(session, job)) continue; /* it is on its way again */
        if (job->task) {                                           /* nobody is there to take it */
            fby_source_unmake(server, job);
            job->kind = SETUP_FREE;
            fby_setup_submit(server, job);
        } else {
            fby_setup_job_free(job);
        }
    }
}

static void event_take(fby_server *server, fby_watch *watch)
{
    fby_session *session = watch->session;
    if (watch->kind >= WATCH_SOCKET && !watch->task && (!session || session->closed)) return;
    switch (watch->kind) {
    case WATCH_LISTEN:
        fby_session_accept(server);
        break;
    case WATCH_SIGNAL: {
        struct signalfd_siginfo info;
        if (read(server->signals, &info, sizeof info) == sizeof info) server->stopping = true;
        break;
    }
    case WATCH_ENGINE:
        event_drain(fby_engine_event(server->engine));
        break;
    case WATCH_SETUP:
        event_drain(server->setup_event);
        break;
    case WATCH_SOCKET:
        fby_session_read(session);
        break;
    case WATCH_PEER:
        if (session)
            fby_session_close(session, NULL);
        else
            fby_subscription_bury(watch->task);
        break;
    case WATCH_RETURNS:
        if (watch->task)
            event_drain(watch->task->event_fd);
        else if (session->task)
            event_drain(session->task->event_fd);
        break;
    }
}

/* A closed task's client may still hold something. */
static bool expects_returns(const fby_subscription *task)
{
    return !task->closing || task->held_extents;
}

static void tasks_advance(fby_server *server)
{
    for (fby_subscription *task = server->tasks; task; task = task->next)
        if (expects_returns(task)) fby_subscription_take_returns(task);
    fby_lot *lot;
    while ((lot = fby_engine_finished(server->engine))) fby_drawn_finished(lot);
    for (fby_subscription *task = server->tasks; task; task = task->next) fby_subscription_deliver(task);
    for (fby_source *source = server->sources; source; source = source->next) fby_source_tidy(source);
    /* One draw of each source in turn. */
    for (bool drawn = true; drawn;) {
        drawn = false;
        for (fby_source *source = server->sources; source; source = source->next)
            drawn = fby_source_draw(source) || drawn;
    }
    for (fby_subscription *task = server->tasks; task; task = task->next)
        if (!task->closing) fby_subscription_publish(task);
}

/* Hands ended tasks to the set-up thread, frees ended sessions. */
static void ended_free(fby_server *server)
{
    for (fby_subscription **link = &server->tasks; *link;) {
        fby_subscription *task = *link;
        fby_setup_job *job = task->closing && fby_subscription_idle(task) ? calloc(1, sizeof *job) : NULL;
        if (!job) {
            link = &task->next;
            continue;
        }
        *link = task->next;
        fby_subscription_unwatch(task);
        fby_source_forget(task);
        job->kind = SETUP_FREE;
        job->task = task;
        fby_setup_submit(server, job);
    }
    for (fby_session **link = &server->sessions; *link;) {
        fby_session *session = *link;
        if (!session->closed) {
            link = &session->next;
            continue;
        }
        *link = session->next;
        free(session);
    }
}

/* Whether anything came in since the rings were last looked at; called once parked. */
static bool news_there(fby_server *server)
{
    bool news = false;
    for (fby_subscription *task = server->tasks; task; task = task->next) {
        if (!expects_returns(task)) continue;
        uint64_t before = task->returned_samples;
        bool open = !task->closing;
        fby_subscription_take_returns(task);
        news = news || task->returned_samples != before || (open && task->closing) ||
               (!task->closing && !task->starving && fby_subscription_starves(task));
    }
    fby_lot *lot;
    while ((lot = fby_engine_finished(server->engine))) {
        fby_drawn_finished(lot);
        news = true;
    }
    return news;
}

/* An embedded server that nobody needs: true once it may end, with its socket gone. */
static bool linger_over(fby_server *server, uint64_t now)
{
    if (!server->options.embedded || server->sessions) {
        server->idle_since_ns = now;
        return false;
    }
    uint64_t linger = server->options.linger_ns ? server->options.linger_ns : LINGER_NS;
    if (now - server->idle_since_ns < linger) return false;
    /* Under the lock that electing clients hold nobody can be about to find this server ready. */
    char lock_path[PATH_MAX + 8];
    size_t length = strlen(server->options.socket);
    snprintf(lock_path, sizeof lock_path, "%.*s.lock", (int)(length > 5 ? length - 5 : length),
             server->options.socket);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB)) {
        close(lock);
        return false;
    }
    fby_session_accept(server);
    bool over = !server->sessions;
    if (over) unlink(server->options.socket);
    if (lock >= 0) close(lock);
    return over;
}

static int sleep_ms(const fby_server *server)
{
    bool busy = server->setup_backlog || (server->options.embedded && !server->sessions);
    for (const fby_session *session = server->sessions; session && !busy; session = session->next)
        busy = session->opening;
    for (const fby_subscription *task = server->tasks; task && !busy; task = task->next)
        busy = task->under_way || (task->closing && !task->held_extents);
    return busy ? BUSY_SLEEP_MS : -1;
}

static void round_sleep(fby_server *server)
{
    for (fby_subscription *task = server->tasks; task; task = task->next)
        if (expects_returns(task)) fby_conductor_park(task->down.base);
    fby_engine_park(server->engine);
    bool news = news_there(server);
    struct epoll_event events[EVENTS_AT_ONCE];
    int count = epoll_wait(server->epoll, events, EVENTS_AT_ONCE, news ? 0 : sleep_ms(server));
    server->sleeps += !news;
    fby_engine_unpark(server->engine);
    for (fby_subscription *task = server->tasks; task; task = task->next)
        if (expects_returns(task)) fby_conductor_unpark(task->down.base);
    for (int i = 0; i < count; i++) event_take(server, events[i].data.ptr);
}

static void server_serve(fby_server *server)
{
    uint64_t looked_after = 0;
    while (!server->stopping) {
        server->rounds++;
        round_sleep(server);
        setup_take(server);
        fby_setup_hand_over(server);
        uint64_t now = fby_now_ns();
        if (now - looked_after > BUSY_SLEEP_MS / 2 * 1000000ull) {
            looked_after = now;
            fby_engine_look_after(server->engine, now);
            fby_pace_step(server, now);
            for (fby_session *session = server->sessions; session; session = session->next)
                fby_session_progress(session);
        }
        tasks_advance(server);
        ended_free(server);
        if (linger_over(server, now)) server->stopping = true;
    }
}

/* --- ending
 * ------------------------------------------------------------------------------------------------------------
 */

static void server_end(fby_server *server)
{
    if (server->listener >= 0 && !server->options.embedded) unlink(server->options.socket);
    for (fby_session *session = server->sessions; session; session = session->next)
        fby_session_close(session, NULL);
    /* What clients hold stays mapped by them. Lots come back in milliseconds, but for those of stuck workers.
     */
    for (fby_subscription *task = server->tasks; task; task = task->next) fby_subscription_bury(task);
    uint64_t deadline = fby_now_ns() + END_NS;
    while (server->engine && server->tasks && fby_now_ns() < deadline) {
        tasks_advance(server);
        fby_engine_look_after(server->engine, fby_now_ns());
        ended_free(server);
        if (server->tasks) usleep(2000);
    }
    ended_free(server);
    fby_setup_stop(server);
    if (fby_engine_destroy(&server->engine) || server->tasks) {
        /* A worker is still inside a decoder: memory that it may touch can't be freed; the process's end
         * takes it all. */
        fby_server_log(server, "ending with a worker that never came back");
        if (server->listener >= 0) close(server->listener);
        return;
    }
    fby_topology_free(&server->topology);
    if (server->listener >= 0) close(server->listener);
    if (server->spare_fd >= 0) close(server->spare_fd);
    if (server->signals >= 0) close(server->signals);
    if (server->setup_event >= 0) close(server->setup_event);
    if (server->epoll >= 0) close(server->epoll);
}

int fby_server_run(const fby_server_options *options, fby_error *error)
{
    fby_error own = FBY_ERROR_INIT;
    if (!error) error = &own;
    fby_server *server = calloc(1, sizeof *server);
    if (!server) return fby_fail(error, FBY_ENOMEM, "no memory for the server");
    server->options = *options;
    prctl(PR_SET_NAME, "forebay");
    int status = server_start(server, error);
    ready_tell(server, status, error);
    if (!status) {
        fby_server_log(server, "serving at %s; %s", options->socket, fby_engine_reader_about(server->engine));
        server_serve(server);
        fby_server_log(server, "ending");
    } else if (server->listener >= 0) {
        unlink(options->socket);
    }
    server_end(server);
    if (!server->engine) free(server);
    return status;
}
