#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/protocol/crash.h"
#include "dataplane/server/internal.h"
#include "ringbuf/atomic.h"
#include "ringbuf/fdpass.h"

/* What one client, or many new ones, may take of a round: the rest waits for the next, after everybody else's
 * turn. */
enum { MESSAGES_AT_ONCE = 8, CLIENTS_AT_ONCE = 64 };
enum { PROGRESS_UNREAD = 16 * 1024 };

static int message_send(fby_session *session, const void *message, size_t bytes, const char *text,
                        size_t text_bytes, const int *fds, int fd_count)
{
    struct iovec parts[2] = {{(void *)message, bytes}, {(void *)text, text_bytes}};
    fby_error error = FBY_ERROR_INIT;
    int status = fby_fdpass_send(session->socket, parts, text_bytes ? 2 : 1, fds, fd_count, &error);
    if (status) fby_session_close(session, status == FBY_ECLOSED ? NULL : error.text);
    return status;
}

void fby_session_fail(fby_session *session, fby_message_type type, const fby_error *error)
{
    size_t length = strnlen(error->text, sizeof error->text);
    fby_failed message = {fby_message_head(type, (uint32_t)length), error->code, 0, error->sample};
    message_send(session, &message, sizeof message, error->text, length, NULL, 0);
}

void fby_session_progress(fby_session *session)
{
    if (!session->opening || session->closed) return;
    uint64_t found = fby_load_relaxed_u64(&session->opening->found),
             done = fby_load_relaxed_u64(&session->opening->done); /* for show */
    if (found == session->told_found && done == session->told_done) return;
    session->told_found = found;
    session->told_done = done;
    /* Only to who reads: a client that is stopped must find room for OPENED in its socket when it goes on. */
    int unread = 0;
    if (ioctl(session->socket, SIOCOUTQ, &unread) || unread > PROGRESS_UNREAD) return;
    fby_progress_message message = {fby_message_head(FBY_MESSAGE_PROGRESS, 0), found, done};
    struct iovec part = {&message, sizeof message};
    fby_fdpass_send(session->socket, &part, 1, NULL, 0, NULL);
}

static int hello_take(fby_session *session, const fby_hello *hello, size_t bytes)
{
    fby_error error = FBY_ERROR_INIT;
    if (bytes < sizeof hello->head || hello->head.magic != FBY_MESSAGE_MAGIC ||
        hello->head.type != FBY_MESSAGE_HELLO)
        return -1;
    if (hello->head.version != FBY_PROTOCOL_VERSION || bytes != sizeof *hello) {
        fby_fail(&error, FBY_EVERSION,
                 "this server speaks protocol %d, the client %u: use the same version of Forebay for both",
                 FBY_PROTOCOL_VERSION, hello->head.version);
        fby_session_fail(session, FBY_MESSAGE_FAILED, &error);
        return -1;
    }
    if (hello->layout_hash != fby_layout_hash()) {
        fby_fail(&error, FBY_EVERSION,
                 "this server has memory layout %016llx, the client %016llx: use the same version of Forebay "
                 "for both",
                 (unsigned long long)fby_layout_hash(), (unsigned long long)hello->layout_hash);
        fby_session_fail(session, FBY_MESSAGE_FAILED, &error);
        return -1;
    }
    memcpy(session->cpus.words, hello->affinity, sizeof session->cpus.words);
    session->greeted = true;
    FBY_CRASH_POINT("greeted");
    fby_welcome welcome = {fby_message_head(FBY_MESSAGE_WELCOME, 0), fby_layout_hash(), (uint32_t)getpid(),
                           session->server->options.embedded};
    return message_send(session, &welcome, sizeof welcome, NULL, 0, NULL, 0);
}

static char *text_copy(const char **at, uint32_t bytes)
{
    char *copy = malloc((size_t)bytes + 1);
    if (!copy) return NULL;
    memcpy(copy, *at, bytes);
    copy[bytes] = 0;
    *at += bytes;
    return copy;
}

/* Takes over *state_fd, and sets it to -1. */
static int open_take(fby_session *session, const fby_open *open, size_t bytes, int *state_fd)
{
    if (session->task || session->opening || bytes < sizeof *open) return -1;
    size_t text = bytes - sizeof *open;
    if (open->head.text_bytes != text ||
        (uint64_t)open->name_bytes + open->base_bytes + open->spec_bytes + open->job_bytes != text ||
        open->base_bytes >= PATH_MAX || open->name_bytes > PATH_MAX || open->job_bytes > FBY_JOB_MOST)
        return -1;
    fby_setup_job *job = calloc(1, sizeof *job);
    if (!job) return -1;
    const char *at = (const char *)(open + 1);
    job->kind = SETUP_OPEN;
    job->session = session->number;
    job->process = (int)session->peer.pid;
    job->rank = open->rank;
    job->again = open->again;
    job->state_fd = *state_fd;
    *state_fd = -1;
    job->name = text_copy(&at, open->name_bytes);
    job->base = text_copy(&at, open->base_bytes);
    job->text = text_copy(&at, open->spec_bytes);
    job->text_bytes = open->spec_bytes;
    job->job = text_copy(&at, open->job_bytes);
    if (!job->name || !job->base || !job->text || !job->job) {
        fby_setup_job_free(job);
        return -1;
    }
    session->opening = job;
    FBY_CRASH_POINT("opening");
    fby_server_cpus_update(session->server);
    FBY_CRASH_POINT("open handed over");
    fby_setup_submit(session->server, job);
    return 0;
}

static int abandon_take(fby_session *session, const fby_epoch_message *message, size_t bytes)
{
    if (!session->task || bytes != sizeof *message) return -1;
    uint64_t next = 0;
    int status = fby_subscription_abandon(session->task, message->epoch, &next);
    FBY_CRASH_POINT("abandoned");
    if (status == FBY_EEND) {
        fby_error error = FBY_ERROR_INIT;
        fby_fail(&error, FBY_EEND, "the last epoch is over");
        fby_session_fail(session, FBY_MESSAGE_FAILED, &error);
        return 0;
    }
    if (status) return -1;
    fby_epoch_message answer = {fby_message_head(FBY_MESSAGE_ABANDONED, 0), next};
    return message_send(session, &answer, sizeof answer, NULL, 0, NULL, 0);
}

static int segment_take(fby_session *session, const fby_block_message *message, size_t bytes)
{
    if (!session->task || bytes != sizeof *message) return -1;
    int fd = fby_source_segment(session->task, message->block);
    if (fd < 0) return -1;
    FBY_CRASH_POINT("before segment is sent");
    fby_block_message answer = {fby_message_head(FBY_MESSAGE_SEGMENT_REPLY, 0), message->block, 0};
    return message_send(session, &answer, sizeof answer, NULL, 0, &fd, 1);
}

static int blocks_take(fby_session *session)
{
    if (!session->task) return -1;
    fby_blocks_message answer = {.head = fby_message_head(FBY_MESSAGE_BLOCKS_REPLY, 0)};
    answer.count = fby_source_blocks(session->task, answer.blocks, FBY_BLOCKS_MOST);
    FBY_CRASH_POINT("before blocks are sent");
    return message_send(session, &answer, sizeof answer, NULL, 0, NULL, 0);
}

static int awaits_take(fby_session *session)
{
    if (!session->task) return -1;
    char text[FBY_ERROR_TEXT];
    fby_awaits_reply answer = {.missing = fby_crew_awaits(session->task, text, sizeof text)};
    size_t length = strlen(text);
    answer.head = fby_message_head(FBY_MESSAGE_AWAITS_REPLY, (uint32_t)length);
    return message_send(session, &answer, sizeof answer, text, length, NULL, 0);
}

static int status_take(fby_session *session)
{
    json_t *status = fby_server_status(session->server);
    char *text = status ? json_dumps(status, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(status);
    int fd = text ? memfd_create("forebay-status", MFD_CLOEXEC) : -1;
    int result = -1;
    if (fd >= 0) {
        size_t length = strlen(text);
        if (write(fd, text, length) == (ssize_t)length) {
            fby_message answer = fby_message_head(FBY_MESSAGE_STATUS_REPLY, 0);
            result = message_send(session, &answer, sizeof answer, NULL, 0, &fd, 1);
        }
        close(fd);
    }
    free(text);
    return result;
}

void fby_session_read(fby_session *session)
{
    static union {
        fby_message head;
        fby_hello hello;
        fby_open open;
        fby_epoch_message epoch;
        fby_block_message block;
        uint8_t bytes[sizeof(fby_open) + FBY_MESSAGE_TEXT];
    } message; /* the conductor's alone */
    for (int taken = 0; taken < MESSAGES_AT_ONCE && !session->closed; taken++) {
        int fds[FBY_FDPASS_MOST], fd_count = FBY_FDPASS_MOST;
        fby_error error = FBY_ERROR_INIT;
        int64_t got = fby_fdpass_receive(session->socket, &message, sizeof message, fds, &fd_count, &error);
        if (got == FBY_ETIMEDOUT) return;
        if (got < 0) {
            fby_session_close(session, got == FBY_ECLOSED ? NULL : error.text);
            return;
        }
        /* OPEN may bring one, no other message any. */
        bool opening = (size_t)got >= sizeof message.head && message.head.type == FBY_MESSAGE_OPEN;
        int state_fd = session->greeted && opening && fd_count == 1 ? fds[0] : -1;
        for (int i = 0; i < fd_count; i++)
            if (fds[i] != state_fd) close(fds[i]);
        int status = -1;
        if (!session->greeted) {
            status = hello_take(session, &message.hello, (size_t)got);
        } else if ((size_t)got >= sizeof message.head && message.head.magic == FBY_MESSAGE_MAGIC &&
                   message.head.version == FBY_PROTOCOL_VERSION) {
            if (message.head.type == FBY_MESSAGE_OPEN)
                status = open_take(session, &message.open, (size_t)got, &state_fd);
            if (message.head.type == FBY_MESSAGE_ABANDON)
                status = abandon_take(session, &message.epoch, (size_t)got);
            if (message.head.type == FBY_MESSAGE_SEGMENT)
                status = segment_take(session, &message.block, (size_t)got);
            if (message.head.type == FBY_MESSAGE_BLOCKS && (size_t)got == sizeof message.head)
                status = blocks_take(session);
            if (message.head.type == FBY_MESSAGE_AWAITS && (size_t)got == sizeof message.head)
                status = awaits_take(session);
            if (message.head.type == FBY_MESSAGE_STATUS && (size_t)got == sizeof message.head)
                status = status_take(session);
        }
        if (state_fd >= 0) close(state_fd);
        if (status && !session->closed) fby_session_close(session, "it broke the protocol");
    }
}

static void client_turn_away(fby_server *server, int fd)
{
    close(fd);
    server->disconnected++;
    fby_server_log(server,
                   "a client is turned away: this process has no more free descriptors (`ulimit -n`)");
}

/* No descriptor is free for a new client: it is accepted by the spare one and let go, or the listener would
 * stay readable and this thread busy for nothing. */
static void client_turn_away_by_spare(fby_server *server)
{
    if (server->spare_fd >= 0) close(server->spare_fd);
    int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) client_turn_away(server, fd);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void fby_session_accept(fby_server *server)
{
    for (int taken = 0; taken < CLIENTS_AT_ONCE; taken++) {
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) client_turn_away_by_spare(server);
        if (fd < 0) return;
        /* The lowest free number: those below are all taken. */
        if (fd >= server->fd_end) {
            client_turn_away(server, fd);
            continue;
        }
        fby_session *session = calloc(1, sizeof *session);
        fby_error error = FBY_ERROR_INIT;
        if (!session) {
            close(fd);
            return;
        }
        session->server = server;
        session->number = server->next_number++;
        session->socket = fd;
        session->peer.pidfd = -1;
        session->socket_watch = (fby_watch){WATCH_SOCKET, session};
        session->peer_watch = (fby_watch){WATCH_PEER, session};
        session->returns_watch = (fby_watch){WATCH_RETURNS, session};
        session->next = server->sessions;
        server->sessions = session;
        FBY_CRASH_POINT("session accepted");
        if (fby_peer_of(&session->peer, fd, &error) ||
            fby_server_watch(server, fd, &session->socket_watch, &error)) {
            fby_session_close(session, error.text);
            continue;
        }
        if (session->peer.uid != geteuid()) {
            fby_fail(&error, FBY_EPERM,
                     "this server belongs to uid %u and serves nobody else: start your own",
                     (unsigned)geteuid());
            fby_session_fail(session, FBY_MESSAGE_FAILED, &error);
            fby_session_close(session, "another user connected");
            continue;
        }
        if (session->peer.pidfd >= 0)
            fby_server_watch(server, session->peer.pidfd, &session->peer_watch, NULL);
    }
}

void fby_session_close(fby_session *session, const char *why)
{
    if (session->closed) return;
    session->closed = true;
    FBY_CRASH_POINT("session closing");
    fby_server *server = session->server;
    if (why) {
        server->disconnected++;
        fby_server_log(server, "process %d is disconnected: %s", (int)session->peer.pid, why);
    }
    if (session->opening) fby_store_relaxed_u32(&session->opening->cancelled, 1); /* a wish */
    if (session->task) {
        /* The client has this eventfd too, so that closing it here won't end the watch: it would outlive the
         * session. */
        epoll_ctl(server->epoll, EPOLL_CTL_DEL, session->task->event_fd, NULL);
        fby_subscription_end(session->task, &session->peer);
        FBY_CRASH_POINT("task ended");
        session->task->session = NULL;
        session->task = NULL;
    }
    /* Its watches may stand in this round's events: the descriptors go at once, the structure at the round's
     * end. Closing alone doesn't end a watch while a child between fork and exec holds a copy. */
    if (session->peer.pidfd >= 0) epoll_ctl(server->epoll, EPOLL_CTL_DEL, session->peer.pidfd, NULL);
    if (session->socket >= 0) {
        epoll_ctl(server->epoll, EPOLL_CTL_DEL, session->socket, NULL);
        close(session->socket);
    }
    session->socket = -1;
    fby_peer_close(&session->peer);
    fby_server_cpus_update(server);
}

static void opened_send(fby_session *session)
{
    fby_server *server = session->server;
    fby_subscription *task = session->task;
    task->opened_due = false;
    const fby_branch_info *branch = &task->branch;
    fby_opened opened = {.head = fby_message_head(FBY_MESSAGE_OPENED, 0),
                         .dataset = fby_dataset_count(task->source->dataset),
                         .samples = task->samples,
                         .batches = task->batches,
                         .epochs = task->spec->epochs,
                         .sample_bytes = branch->sample_bytes,
                         .shared_bytes = task->shared_bytes,
                         .first_epoch = task->epoch,
                         .batch = task->spec->batch_size,
                         .window = task->window,
                         .element = branch->dtype,
                         .channels_last = branch->layout == FBY_HWC,
                         .dimensions = branch->dimensions,
                         .classes = task->classes_fd >= 0 ? fby_dataset_classes(task->source->dataset) : 0,
                         .return_capacity = task->return_capacity,
                         .ranks = task->spec->ranks,
                         .identity = task->described,
                         .part = task->samples,
                         .first_batch = task->batch};
    if (task->resumed) opened.position = fby_state_next(task->resumed, &opened.first_epoch);
    if (task->resumed && opened.first_epoch == task->resumed->epoch) {
        opened.behind = task->resumed->behind;
        opened.part = task->resumed->part;
    }
    memcpy(opened.shape, branch->shape, sizeof opened.shape);
    /* Spinning pays only where the trainer has a CPU that no worker wants. */
    fby_engine_stats stats;
    fby_engine_get_stats(server->engine, &stats);
    if (fby_cpus_count(&session->cpus) > stats.workers) opened.spin_ns = 20000;
    FBY_CRASH_POINT("before opened is sent");
    int fds[FBY_OPENED_FDS + 1] = {task->down.fd, task->up.fd, task->event_fd, task->classes_fd};
    if (message_send(session, &opened, sizeof opened, NULL, 0, fds, FBY_OPENED_FDS + (opened.classes > 0)))
        return;
    FBY_CRASH_POINT("opened sent");
    fby_error error = FBY_ERROR_INIT;
    if (fby_server_watch(server, task->event_fd, &session->returns_watch, &error)) {
        fby_session_close(session, error.text);
        return;
    }
    fby_server_log(server, "task %llu: %s, process %d, %llu samples, %llu batches an epoch, %.1f MiB shared",
                   (unsigned long long)task->number, task->spec->name, (int)session->peer.pid,
                   (unsigned long long)opened.samples, (unsigned long long)opened.batches,
                   (double)task->shared_bytes / (1 << 20));
}

static void crew_opened_send(const fby_crew *crew)
{
    fby_session *due[FBY_SAMPLER_RANKS];
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < crew->ranks; rank++)
        if (crew->of[rank] && crew->of[rank]->opened_due) due[count++] = crew->of[rank]->session;
    /* A client that is gone takes the crew with it; sessions stay until the round's end. */
    for (uint32_t i = 0; i < count; i++)
        if (due[i]->task && due[i]->task->opened_due) opened_send(due[i]);
}

/* Its memory is there: the task begins. Ranks that go on by themselves are told once all of them are there:
 * until then each may give up, and look for another server if this one is lost too. */
static void task_begin(fby_session *session, fby_subscription *task)
{
    fby_server *server = session->server;
    task->session = session;
    session->task = task;
    task->number = server->next_number++;
    task->next = server->tasks;
    server->tasks = task;
    task->opened_due = true;
    if (!task->again)
        opened_send(session);
    else if (fby_crew_is_whole(task->crew))
        crew_opened_send(task->crew);
}

bool fby_session_opened(fby_session *session, fby_setup_job *job)
{
    fby_server *server = session->server;
    int admitted = job->status;
    if (!admitted) admitted = fby_source_admit(job->task->source, job->task, job, &job->error);
    if (!admitted) {
        job->kind = SETUP_GROW;
        fby_setup_submit(server, job);
        FBY_CRASH_POINT("growth asked for");
        return true;
    }
    session->opening = NULL;
    if (admitted < 0) {
        fby_session_fail(session, FBY_MESSAGE_FAILED, &job->error);
        return false;
    }
    fby_subscription *task = job->task;
    job->task = NULL;
    fby_subscription_begin(task);
    task_begin(session, task);
    return false;
}
