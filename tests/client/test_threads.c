/* Batches are read and released by threads while another takes the next ones: nothing is lost, nothing comes
 * twice, memory that is held stays as it is, also after the task was closed. */
#include <forebay/forebay.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/ops/make_jpeg.h"
#include "tests/support/test.h"

enum { PICTURES = 24, BATCH = 4, WINDOW = 40, EPOCHS = 60, THREADS = 4 };

typedef struct hand_over {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fby_batch *waiting[WINDOW];
    uint32_t count;
    bool over;
    uint64_t samples, sum; /* what the threads saw */
} hand_over;

static char folder[64];

static void surroundings_make(void)
{
    char path[128];
    strcpy(folder, "/tmp/forebay-client-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    for (const char *const *part = (const char *const[]){"data", "data/a", "run", "state", "cache", NULL};
         *part; part++) {
        snprintf(path, sizeof path, "%s/%s", folder, *part);
        cr_assert_eq(mkdir(path, 0700), 0);
    }
    const char *const names[][2] = {
        {"XDG_RUNTIME_DIR", "run"}, {"XDG_STATE_HOME", "state"}, {"XDG_CACHE_HOME", "cache"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i][1]);
        cr_assert_eq(setenv(names[i][0], path, 1), 0);
    }
    for (unsigned i = 0; i < PICTURES; i++) {
        made_jpeg picture = make_jpeg(24 + i, 20, 1, i + 1);
        snprintf(path, sizeof path, "%s/data/a/%02u.jpg", folder, i);
        FILE *file = fopen(path, "w");
        cr_assert_not_null(file);
        cr_assert_eq(fwrite(picture.bytes, 1, picture.length, file), picture.length);
        fclose(file);
        free(picture.bytes);
    }
}

static void surroundings_remove(int32_t server)
{
    char command[96];
    kill(server, SIGTERM);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

static fby_client *client_make(void)
{
    fby_error error = FBY_ERROR_INIT;
    fby_client *client = NULL;
    fby_connect_options options = FBY_CONNECT_OPTIONS_INIT;
    options.mode = FBY_MODE_EMBEDDED;
    options.server = SERVER_PROGRAM;
    options.timeout_ms = 60000;
    cr_assert_eq(fby_connect(&client, &options, &error), 0, "%s", error.text);
    return client;
}

static fby_task *task_make(fby_client *client, unsigned epochs)
{
    char spec[400];
    fby_error error = FBY_ERROR_INIT;
    fby_task *task = NULL;
    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    snprintf(spec, sizeof spec,
             "dataset: data\norder: sequential\nepochs: %u\nwindow: %d\nbatch: %d\npipeline: [decode, "
             "{center_crop: 16}]\n",
             epochs, WINDOW, BATCH);
    options.spec = spec;
    options.base = folder;
    cr_assert_eq(fby_task_open(&task, client, &options, &error), 0, "%s", error.text);
    return task;
}

/* Id i's picture is the same in all epochs: its bytes' sum tells whether they were written over while they
 * were held. */
static uint64_t batch_sum(const fby_batch *batch)
{
    fby_error error = FBY_ERROR_INIT;
    fby_tensor tensor;
    cr_assert_eq(fby_batch_tensor(batch, &tensor, &error), 0, "%s", error.text);
    const uint8_t *bytes = tensor.data;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < tensor.bytes; i++) sum += bytes[i];
    return sum;
}

static void *thread_main(void *argument)
{
    hand_over *with = argument;
    for (;;) {
        pthread_mutex_lock(&with->lock);
        while (!with->count && !with->over) pthread_cond_wait(&with->changed, &with->lock);
        fby_batch *batch = with->count ? with->waiting[--with->count] : NULL;
        pthread_cond_signal(&with->changed);
        pthread_mutex_unlock(&with->lock);
        if (!batch) return NULL;
        uint64_t sum = batch_sum(batch);
        uint32_t samples = fby_batch_count(batch);
        fby_batch_release(&batch);
        pthread_mutex_lock(&with->lock);
        with->sum += sum;
        with->samples += samples;
        pthread_mutex_unlock(&with->lock);
    }
}

static void batch_hand_over(hand_over *with, fby_batch *batch)
{
    pthread_mutex_lock(&with->lock);
    while (with->count == THREADS) pthread_cond_wait(&with->changed, &with->lock);
    with->waiting[with->count++] = batch;
    pthread_cond_signal(&with->changed);
    pthread_mutex_unlock(&with->lock);
}

Test(client, threads_release_while_another_takes)
{
    surroundings_make();
    fby_error error = FBY_ERROR_INIT;
    fby_client *client = client_make();
    fby_task *task = task_make(client, EPOCHS);
    hand_over with = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) cr_assert_eq(pthread_create(&threads[i], NULL, thread_main, &with), 0);

    uint64_t expected = 0, batches = 0;
    int status;
    fby_batch *batch;
    while ((status = fby_task_next(task, 60000000000, &batch, &error)) == 0) {
        cr_assert_eq(fby_batch_epoch(batch), batches / (PICTURES / BATCH));
        cr_assert_eq(fby_batch_index(batch), batches % (PICTURES / BATCH));
        if (fby_batch_epoch(batch) == 0) expected += batch_sum(batch);
        batches++;
        batch_hand_over(&with, batch);
    }
    cr_assert_eq(status, FBY_EEND, "%s", error.text);
    cr_assert_eq(batches, EPOCHS * PICTURES / BATCH);
    pthread_mutex_lock(&with.lock);
    with.over = true;
    pthread_cond_broadcast(&with.changed);
    pthread_mutex_unlock(&with.lock);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    cr_assert_eq(with.samples, EPOCHS * PICTURES);
    cr_assert_eq(with.sum, EPOCHS * expected);

    int32_t server = fby_client_pid(client);
    fby_task_close(&task);
    fby_disconnect(&client);
    surroundings_remove(server);
}

Test(client, a_task_may_be_closed_while_threads_hold_its_batches)
{
    surroundings_make();
    fby_error error = FBY_ERROR_INIT;
    fby_client *client = client_make();
    for (int round = 0; round < 20; round++) {
        fby_task *task = task_make(client, 1000000);
        hand_over with = {
            .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .over = true};
        uint64_t expected = 0;
        for (int i = 0; i < WINDOW - 1; i++) {
            fby_batch *batch;
            cr_assert_eq(fby_task_next(task, 60000000000, &batch, &error), 0, "%s", error.text);
            expected += batch_sum(batch);
            with.waiting[with.count++] = batch;
        }
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, thread_main, &with), 0);
        fby_task_close(&task);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        cr_assert_eq(with.samples, (WINDOW - 1) * BATCH);
        cr_assert_eq(with.sum, expected);
    }
    int32_t server = fby_client_pid(client);
    fby_disconnect(&client);
    surroundings_remove(server);
}
