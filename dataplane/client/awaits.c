/* What one of several ranks knows of the others: whether all have come.
 *
 * Nothing comes before they have. A rank that waits asks its server, once a second at most, and reads the
 * answer at its next look: it waits for neither, so a server that is stopped holds nobody up. Once all have
 * come nothing is asked any more. */
#include <forebay/forebay.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/client/internal.h"

static const uint64_t ASK_AGAIN_NS = 1000 * 1000 * 1000ull;

bool fby_awaits_take(fby_task *task, const void *message, int64_t bytes)
{
    const fby_awaits_reply *reply = message;
    if (bytes < (int64_t)sizeof *reply || reply->head.type != FBY_MESSAGE_AWAITS_REPLY || !task->awaits_asked)
        return false;
    task->awaits_asked = false;
    task->all_came = !reply->missing;
    snprintf(task->awaits, sizeof task->awaits, "%.*s", (int)((size_t)bytes - sizeof *reply),
             (const char *)(reply + 1));
    return true;
}

void fby_awaits_forget(fby_task *task)
{
    task->awaits_asked = false;
    *task->awaits = 0;
}

/* Reads what has come. The answer to another question is left to who asked it. */
static void answers_read(fby_task *task)
{
    union {
        fby_awaits_reply reply;
        fby_failed failed;
        uint8_t bytes[sizeof(fby_failed) + FBY_ERROR_TEXT];
    } message;
    while (task->awaits_asked && !task->asked) {
        fby_error why = FBY_ERROR_INIT;
        int64_t got =
            fby_connection_receive(&task->connection, &message, sizeof message, NULL, NULL, 0, &why);
        if (got < 0) return; /* not yet; or the server is gone, which the wait finds out */
        /* The descriptor that says so is still to come: this is its reason. */
        if (!fby_awaits_take(task, &message, got) && fby_task_failure_read(&message.failed, got, &why))
            task->told = why;
    }
}

void fby_awaits_step(fby_task *task, uint64_t now_ns)
{
    if (!task->awaits_since_ns) task->awaits_since_ns = now_ns;
    answers_read(task);
    if (task->all_came) return;
    bool due = !task->awaits_asked_ns || now_ns - task->awaits_asked_ns >= ASK_AGAIN_NS;
    if (due && !task->awaits_asked) {
        const fby_message question = fby_message_head(FBY_MESSAGE_AWAITS, 0);
        task->awaits_asked = !fby_connection_send(&task->connection, &question, sizeof question, NULL);
        task->awaits_asked_ns = now_ns;
    }
    if (!task->notice || !*task->awaits || now_ns - task->awaits_since_ns < task->notice_ns) return;
    char text[FBY_ERROR_TEXT];
    snprintf(text, sizeof text, "%.200s: no batch for %.0f s: %.700s", task->name,
             (double)(now_ns - task->awaits_since_ns) * 1e-9, task->awaits);
    fby_notice *notice = task->notice;
    task->notice = NULL;
    notice(task->notice_user, text);
}
