/* A server that is gone, and the next one.
 *
 *     HELD --- the server is gone ---> LOST --- another was found and asked ---> OPENING --- OPENED ---> HELD
 *                                       ^                                          |
 *                                       +------------- it is gone as well ---------+
 *
 * The task is opened again by its own state: what the caller had is behind it, what it didn't get comes anew.
 * All happens within calls of fby_task_next, each until its deadline. One of several ranks is only opened
 * once all of them have asked, and its keeper looks for servers too. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dataplane/client/internal.h"
#include "ringbuf/wait.h"

static const uint64_t MILLISECOND = 1000 * 1000, MINUTE = 60ull * 1000 * 1000 * 1000;

enum {
    LOOK_AGAIN_MS = 50, /* for a server that isn't there yet */
    ANSWER_MS = 1000,   /* what one that is there may take to a greeting, whatever the caller's deadline */
};

/* It won't go on. `why` may say what stood in the way, besides the loss. */
static int give_up(fby_task *task, const fby_error *why, fby_error *error)
{
    fby_error last = task->lost;
    if (why && *why->text)
        snprintf(last.text, sizeof last.text, "%.400s; the task can't go on: %.500s", task->lost.text,
                 why->text);
    fby_connection_close(&task->connection);
    return fby_task_fail(task, FBY_ELOST, &last, error);
}

/* Whether it may be opened again once more, within the limit of so many a minute; notes it. */
static bool try_note(fby_task *task, uint64_t now)
{
    uint64_t *oldest = &task->tries_ns[task->tries % FBY_RECONNECTS];
    if (task->tries >= FBY_RECONNECTS && now - *oldest < MINUTE) return false;
    *oldest = now;
    task->tries++;
    return true;
}

static int too_often(fby_task *task, fby_error *error)
{
    fby_error why = FBY_ERROR_INIT;
    fby_fail(&why, FBY_ELOST, "its servers were lost %d times within a minute: their logs say why",
             FBY_RECONNECTS + 1);
    return give_up(task, &why, error);
}

int fby_task_lose(fby_task *task, fby_error *error)
{
    task->lost = (fby_error)FBY_ERROR_INIT;
    fby_connection_lost(&task->connection, &task->lost);
    task->has_current = false;
    task->asked = 0;
    fby_awaits_forget(task);
    if (task->assembling) {
        fby_batch_drop(task->assembling, false);
        task->assembling = NULL;
    }
    if (!task->address.reconnect_ms) return fby_task_fail(task, FBY_ELOST, &task->lost, error);
    fby_connection_close(&task->connection);
    task->tie = FBY_TIE_LOST;
    task->lost_ns = fby_now_ns();
    return 0;
}

static int timed_out(const fby_task *task, fby_error *error)
{
    return fby_fail(error, FBY_ETIMEDOUT,
                    "no batch yet: the server, process %d, is gone, and its successor isn't ready",
                    (int)task->lost.pid);
}

/* Sleeps a moment, not beyond the deadline. */
static int look_later(const fby_task *task, uint64_t deadline, fby_error *error)
{
    uint64_t now = fby_now_ns(), pause = LOOK_AGAIN_MS * MILLISECOND;
    if (now >= deadline) return timed_out(task, error);
    if (pause > deadline - now) pause = deadline - now;
    if (nanosleep(&(struct timespec){0, (long)pause}, NULL) && errno == EINTR)
        return fby_fail(error, FBY_EINTR, "a signal arrived while waiting for a server");
    return 0;
}

/* Worth another look: nobody is there, or not yet ready. Else another user's, another version, no program. */
static bool is_passing(int status)
{
    return status == FBY_ELOST || status == FBY_ETIMEDOUT || status == FBY_EIO || status == FBY_EINTR;
}

static bool is_late(const fby_task *task)
{
    return fby_now_ns() - task->lost_ns > (uint64_t)task->address.reconnect_ms * MILLISECOND;
}

static int ranks_missing(fby_task *task, fby_error *error)
{
    fby_error why = FBY_ERROR_INIT;
    fby_fail(&why, FBY_ELOST, "of its %u ranks not all came to the next server within %g s", task->ranks,
             task->address.reconnect_ms * 1e-3);
    return give_up(task, &why, error);
}

/* One look for a server; where there is one, it is asked to go on with the task. */
static int look(fby_task *task, uint64_t deadline, fby_error *error)
{
    uint64_t now = fby_now_ns();
    bool late = is_late(task);
    if (task->address.starts && !try_note(task, now)) return too_often(task, error);
    fby_error why = FBY_ERROR_INIT;
    int status = fby_connection_dial(&task->connection, &task->address,
                                     task->address.starts ? FBY_CONNECT_TIMEOUT_MS : ANSWER_MS, &why);
    if (!status && !task->address.starts && !try_note(task, now)) return too_often(task, error);
    if (!status) {
        fby_state_head *state = fby_had_state(task);
        status = state ? fby_task_ask(task, state, true, &why)
                       : fby_fail(&why, FBY_ENOMEM, "no memory for its state");
        free(state);
    }
    if (!status) {
        task->tie = FBY_TIE_OPENING;
        return 0;
    }
    fby_connection_close(&task->connection);
    if (late || !is_passing(status)) return give_up(task, &why, error);
    return look_later(task, deadline, error);
}

/* Waits for what the next server answers. */
static int opening_wait(fby_task *task, uint64_t deadline, fby_error *error)
{
    uint64_t now = fby_now_ns(), left = deadline > now ? deadline - now : 0;
    int timeout = left > ANSWER_MS * MILLISECOND ? ANSWER_MS : (int)((left + MILLISECOND - 1) / MILLISECOND);
    fby_error why = FBY_ERROR_INIT;
    uint64_t found, done;
    int status = fby_task_answer(task, timeout, &found, &done, &why);
    if (status == 0) {
        task->lost_ns = now; /* somebody works on it */
        return 0;
    }
    if (status == 1) {
        task->tie = FBY_TIE_HELD;
        return 0;
    }
    if (status == FBY_EINTR) {
        if (error) *error = why;
        return status;
    }
    if (status == FBY_ETIMEDOUT && task->ranks > 1 && is_late(task)) return ranks_missing(task, error);
    if (status == FBY_ETIMEDOUT) return fby_now_ns() < deadline ? 0 : timed_out(task, error);
    if (status != FBY_ELOST) return give_up(task, &why, error);
    fby_connection_close(&task->connection);
    task->tie = FBY_TIE_LOST;
    return 0;
}

int fby_task_tie(fby_task *task, uint64_t deadline_ns, fby_error *error)
{
    int status = 0;
    while (!status && task->tie != FBY_TIE_HELD)
        status = task->tie == FBY_TIE_LOST ? look(task, deadline_ns, error)
                                           : opening_wait(task, deadline_ns, error);
    return status;
}
