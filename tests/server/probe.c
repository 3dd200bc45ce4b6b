/* A client that does what its standard input says, so that Python tests can put real processes into any
 * state.
 *
 *     probe [--socket PATH] [--embedded] [--rank N] [--job ID] [--notice MS] [--state FILE | --merge FILE...]
 * SPEC
 *
 * It opens the task, with a state or with several merged ones, and answers every line with one line of JSON.
 * A notice goes to its standard error.
 *
 *     next [MS]   the next batch, waiting up to MS milliseconds (default 10000); it is held under its number
 *     hash N      the hash of a held batch's memory
 *     release N   gives a held batch back
 *     write N     writes into a held batch
 *     copy N      the hash of a copy made by fby_batch_copy
 *     abandon     gives up the epoch
 *     state FILE  writes the task's state there
 *     status      the server's status document
 *     fork        what a forked child gets from next and from release
 *     close       closes the task, keeping held batches
 *     quit */
#include <forebay/forebay.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

enum { HELD_MOST = 4096, STATES_MOST = 64 };

static fby_batch *held[HELD_MOST];
static uint32_t held_count;

static void answer(json_t *document)
{
    json_dumpf(document, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    fflush(stdout);
    json_decref(document);
}

static void answer_error(int status, const fby_error *error)
{
    json_t *text = json_string(error->text);
    if (!text) text = json_string("not UTF-8");
    answer(json_pack("{s:i, s:o, s:i, s:i, s:I}", "error", status, "text", text, "pid", error->pid, "signal",
                     error->signal, "sample", (json_int_t)error->sample));
}

static void hash_text(char out[17], const void *bytes, size_t length)
{
    snprintf(out, 17, "%016llx", (unsigned long long)XXH3_64bits(bytes, length));
}

/* The hash of a batch's bytes, in as many pieces as it stands. */
static void hash_batch(char out[17], const fby_batch *batch)
{
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (uint32_t i = 0; i < fby_batch_extents(batch); i++) {
        fby_tensor piece;
        if (!fby_batch_extent(batch, i, &piece, NULL)) XXH3_64bits_update(state, piece.data, piece.bytes);
    }
    snprintf(out, 17, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
    XXH3_freeState(state);
}

static void answer_batch(const fby_batch *batch, uint32_t number)
{
    json_t *ids = json_array(), *labels = json_array(), *flags = json_array();
    for (uint32_t i = 0; i < fby_batch_count(batch); i++) {
        json_array_append_new(ids, json_integer((json_int_t)fby_batch_ids(batch)[i]));
        json_array_append_new(labels, json_integer(fby_batch_labels(batch)[i]));
        json_array_append_new(flags, json_integer(fby_batch_flags(batch)[i]));
    }
    char hash[17];
    hash_batch(hash, batch);
    answer(json_pack("{s:i, s:I, s:I, s:b, s:i, s:s, s:o, s:o, s:o}", "batch", (int)number, "epoch",
                     (json_int_t)fby_batch_epoch(batch), "index", (json_int_t)fby_batch_index(batch), "last",
                     fby_batch_last(batch), "extents", (int)fby_batch_extents(batch), "hash", hash, "ids",
                     ids, "labels", labels, "flags", flags));
}

static void next_take(fby_task *task, int64_t timeout_ms)
{
    fby_error error = FBY_ERROR_INIT;
    fby_batch *batch = NULL;
    int status = fby_task_next(task, timeout_ms < 0 ? -1 : timeout_ms * 1000000, &batch, &error);
    if (status) {
        answer_error(status, &error);
        return;
    }
    held[held_count % HELD_MOST] = batch;
    answer_batch(batch, held_count++);
}

static void *state_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    void *state = malloc(*bytes + 1);
    if (state && fread(state, 1, *bytes, file) != *bytes) *bytes = 0;
    fclose(file);
    return state;
}

static void state_write(fby_task *task, char *path)
{
    fby_error error = FBY_ERROR_INIT;
    void *state = NULL;
    size_t bytes = 0;
    path[strcspn(path, "\n")] = 0;
    int status = fby_task_state(task, &state, &bytes, &error);
    FILE *file = status ? NULL : fopen(path, "wb");
    if (!status && (!file || fwrite(state, 1, bytes, file) != bytes))
        status = fby_fail(&error, FBY_EIO, "can't write %s", path);
    if (file) fclose(file);
    free(state);
    if (status)
        answer_error(status, &error);
    else
        answer(json_pack("{s:I}", "state", (json_int_t)bytes));
}

static void child_answer(fby_task *task)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fby_error error = FBY_ERROR_INIT;
        fby_batch *batch = NULL;
        int status = fby_task_next(task, 1000000000, &batch, &error);
        for (uint32_t i = 0; i < held_count && i < HELD_MOST; i++) fby_batch_release(&held[i]);
        answer_error(status, &error);
        fby_task_close(&task);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void info_answer(fby_client *client, fby_task *task)
{
    fby_task_info info = {.size = sizeof info};
    fby_task_info_get(task, &info);
    json_t *classes = json_array(), *shape = json_array();
    for (uint32_t i = 0; i < info.classes; i++)
        json_array_append_new(classes, json_string(fby_task_class(task, i)));
    for (uint32_t i = 0; i < info.dimensions; i++) json_array_append_new(shape, json_integer(info.shape[i]));
    answer(json_pack("{s:{s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:o, s:o, s:I, s:I, s:i}}", "opened",
                     "dataset", (json_int_t)info.dataset, "samples", (json_int_t)info.samples, "batches",
                     (json_int_t)info.batches, "epochs", (json_int_t)info.epochs, "batch", (int)info.batch,
                     "window", (int)info.window, "element", (int)info.element, "channels_last",
                     (int)info.channels_last, "shape", shape, "classes", classes, "sample_bytes",
                     (json_int_t)info.sample_bytes, "shared_bytes", (json_int_t)info.shared_bytes, "server",
                     (int)fby_client_pid(client)));
}

static void batch_do(const char *what, uint32_t number)
{
    fby_batch *batch = number < held_count ? held[number % HELD_MOST] : NULL;
    fby_error error = FBY_ERROR_INIT;
    fby_tensor first;
    char hash[17];
    if (!batch || fby_batch_extent(batch, 0, &first, &error)) {
        fby_fail(&error, FBY_EINVAL, "batch %u isn't held", number);
        answer_error(FBY_EINVAL, &error);
        return;
    }
    if (!strcmp(what, "release")) {
        fby_batch_release(&held[number % HELD_MOST]);
        answer(json_pack("{s:i}", "released", (int)number));
    } else if (!strcmp(what, "write")) {
        *(volatile uint8_t *)first.data = 1;
        answer(json_pack("{s:i}", "written", (int)number));
    } else if (!strcmp(what, "copy")) {
        size_t bytes = first.bytes / (size_t)first.shape[0] * fby_batch_count(batch);
        void *copy = malloc(bytes);
        int status = copy ? fby_batch_copy(batch, copy, bytes, &error) : FBY_ENOMEM;
        hash_text(hash, copy, status ? 0 : bytes);
        free(copy);
        answer(json_pack("{s:s}", "hash", hash));
    } else {
        hash_batch(hash, batch);
        answer(json_pack("{s:s}", "hash", hash));
    }
}

static void notice_say(void *user, const char *text)
{
    (void)user;
    fprintf(stderr, "notice: %s\n", text);
}

int main(int count, char **arguments)
{
    fby_error error = FBY_ERROR_INIT;
    fby_client *client = NULL;
    fby_task *task = NULL;
    fby_connect_options connect = FBY_CONNECT_OPTIONS_INIT;
    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    options.notice = notice_say;
    void *states[STATES_MOST], *state = NULL;
    size_t bytes[STATES_MOST];
    uint32_t state_count = 0;
    for (int i = 1; i < count; i++) {
        if (!strcmp(arguments[i], "--socket") && i + 1 < count)
            connect.socket = arguments[++i];
        else if (!strcmp(arguments[i], "--rank") && i + 1 < count)
            options.rank = (uint32_t)atoi(arguments[++i]);
        else if (!strcmp(arguments[i], "--job") && i + 1 < count)
            options.job = arguments[++i];
        else if (!strcmp(arguments[i], "--notice") && i + 1 < count)
            options.notice_ms = (uint32_t)atoi(arguments[++i]);
        else if (!strcmp(arguments[i], "--embedded"))
            connect.mode = FBY_MODE_EMBEDDED;
        else if (!strcmp(arguments[i], "--state") && i + 1 < count)
            state = state_read(arguments[++i], &options.state_bytes);
        else if (!strcmp(arguments[i], "--merge") && i + 1 < count && state_count < STATES_MOST) {
            states[state_count] = state_read(arguments[++i], &bytes[state_count]);
            state_count++;
        } else
            options.spec_path = arguments[i];
    }
    int status = 0;
    if (state_count)
        status = fby_state_merge((const void *const *)states, bytes, state_count, &state,
                                 &options.state_bytes, &error);
    while (state_count) free(states[--state_count]);
    options.state = state;
    if (!status) status = fby_connect(&client, &connect, &error);
    if (!status) status = fby_task_open(&task, client, &options, &error);
    free(state);
    if (status) {
        answer_error(status, &error);
        fby_disconnect(&client);
        return 1;
    }
    info_answer(client, task);

    char line[PATH_MAX + 8];
    while (fgets(line, sizeof line, stdin)) {
        char what[32] = "";
        long long number = -2;
        int words = sscanf(line, "%31s %lld", what, &number);
        if (!strcmp(what, "quit")) break;
        if (!strcmp(what, "next")) {
            next_take(task, words > 1 ? number : 10000);
        } else if (!strcmp(what, "abandon")) {
            status = fby_task_abandon(task, &error);
            if (status)
                answer_error(status, &error);
            else
                answer(json_pack("{s:b}", "abandoned", 1));
        } else if (!strcmp(what, "status")) {
            char *text = NULL;
            status = fby_client_status(client, &text, &error);
            if (status)
                answer_error(status, &error);
            else
                puts(text);
            fflush(stdout);
            free(text);
        } else if (!strncmp(line, "state ", 6)) {
            state_write(task, line + 6);
        } else if (!strcmp(what, "fork")) {
            child_answer(task);
        } else if (!strcmp(what, "close")) {
            fby_task_close(&task);
            answer(json_pack("{s:b}", "closed", 1));
        } else if (words == 2) {
            batch_do(what, (uint32_t)number);
        } else {
            fby_fail(&error, FBY_EINVAL, "no such command");
            answer_error(FBY_EINVAL, &error);
        }
    }
    for (uint32_t i = 0; i < held_count && i < HELD_MOST; i++) fby_batch_release(&held[i]);
    fby_task_close(&task);
    fby_disconnect(&client);
    return 0;
}
