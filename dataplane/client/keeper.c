/* The thread that one of several ranks has: it ties the task to the next server where its own is lost.
 *
 * Ranks train in step, and nothing is drawn before all of them are there. One that has its batch when the
 * server dies is in its training step, and waits there for another that hasn't got its own: no call of its
 * program's would tie it again. So its keeper does, which sleeps until the server's process ends. Whoever
 * works on the task holds its turn: the program's call for as long as it lasts, the keeper for one look at a
 * time. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/client/internal.h"
#include "ringbuf/wait.h"

/* While a server is lost, and while one that tells nothing of its end is there. */
enum { LOOK_AGAIN_MS = 50, LOOK_AFTER_MS = 400, TURN_AGAIN_NS = 1000 * 1000 };

int fby_turn_begin(fby_task *task, uint64_t deadline_ns, fby_error *error)
{
    if (!task->kept) return 0;
    if (deadline_ns == UINT64_MAX) {
        pthread_mutex_lock(&task->turn);
        return 0;
    }
    /* A keeper has it for a look at a time, while a server is lost. */
    while (pthread_mutex_trylock(&task->turn)) {
        if (fby_now_ns() >= deadline_ns)
            return fby_fail(error, FBY_ETIMEDOUT,
                            "no batch yet: the server is gone, and its successor isn't ready");
        nanosleep(&(struct timespec){0, TURN_AGAIN_NS}, NULL);
    }
    return 0;
}

void fby_turn_end(fby_task *task)
{
    if (task->kept) pthread_mutex_unlock(&task->turn);
}

/* One look, in its turn: milliseconds until the next, -1 where only an end of the server calls for one. */
static int look(fby_task *task)
{
    fby_error error = FBY_ERROR_INIT;
    if (task->failure.code) return -1;
    if (task->tie == FBY_TIE_HELD && fby_task_server_gone(task) && fby_task_lose(task, &error)) return -1;
    if (task->tie != FBY_TIE_HELD) fby_task_tie(task, fby_now_ns(), &error);
    if (task->failure.code) return -1;
    if (task->tie != FBY_TIE_HELD) return LOOK_AGAIN_MS;
    return task->connection.peer.pidfd < 0 ? LOOK_AFTER_MS : -1;
}

static void *keeper_main(void *argument)
{
    fby_task *task = argument;
    prctl(PR_SET_NAME, "fby-keeper");
    struct pollfd stop_and_server[2] = {{task->keeper_stop, POLLIN, 0}, {-1, POLLIN, 0}};
    while (!(stop_and_server[0].revents & POLLIN)) {
        pthread_mutex_lock(&task->turn);
        int again_ms = look(task);
        /* A copy: the program's call may close the task's own. */
        bool held = task->tie == FBY_TIE_HELD && !task->failure.code;
        int server = held && task->connection.peer.pidfd >= 0 ? dup(task->connection.peer.pidfd) : -1;
        pthread_mutex_unlock(&task->turn);
        if (held && server < 0 && again_ms < 0) again_ms = LOOK_AFTER_MS;
        stop_and_server[1].fd = server;
        while (poll(stop_and_server, 2, again_ms) < 0 && errno == EINTR) continue;
        if (server >= 0) close(server);
    }
    return NULL;
}

int fby_keeper_start(fby_task *task, fby_error *error)
{
    if (task->ranks == 1 || !task->address.reconnect_ms) return 0;
    task->keeper_stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (task->keeper_stop < 0) return fby_fail(error, FBY_EIO, "eventfd: %s", strerror(errno));
    /* Signals are for the program's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_init(&task->turn, NULL);
    task->kept = true;
    int refused = pthread_create(&task->keeper, NULL, keeper_main, task);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!refused) return 0;
    task->kept = false;
    pthread_mutex_destroy(&task->turn);
    close(task->keeper_stop);
    return fby_fail(error, FBY_EIO, "can't start the thread that looks after the server: %s",
                    strerror(refused));
}

void fby_keeper_stop(fby_task *task)
{
    if (!task->kept) return;
    eventfd_write(task->keeper_stop, 1);
    pthread_join(task->keeper, NULL);
    task->kept = false;
    pthread_mutex_destroy(&task->turn);
    close(task->keeper_stop);
}
