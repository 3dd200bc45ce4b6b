/* A trainer that sleeps: takes samples at a given rate, as a training step would, and says what came.
 *
 *     trainer SOCKET SPEC RATE SECONDS [RANK]
 *
 * RATE samples a second, for SECONDS; one of several ranks, until the first of them ends. A step begins when
 * its batch is there and the step before is over; a batch goes back when its step is over. The answer is one
 * line of JSON: samples taken, seconds, and the ids in the order they came, a list an epoch. */
#include <forebay/forebay.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void sleep_until(double when)
{
    struct timespec time = {(time_t)when, (long)((when - (double)(time_t)when) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL)) continue;
}

static int fail(const fby_error *error)
{
    json_t *answer = json_pack("{s:s}", "error", error->text);
    json_dumpf(answer, stdout, JSON_COMPACT);
    json_decref(answer);
    return 1;
}

int main(int count, char **arguments)
{
    if (count < 5) return 2;
    double rate = atof(arguments[3]), seconds = atof(arguments[4]);
    fby_error error = FBY_ERROR_INIT;
    fby_client *client = NULL;
    fby_task *task = NULL;
    fby_connect_options connect = FBY_CONNECT_OPTIONS_INIT;
    connect.socket = arguments[1];
    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    options.spec_path = arguments[2];
    options.rank = count > 5 ? (uint32_t)atoi(arguments[5]) : 0;
    int status = fby_connect(&client, &connect, &error);
    if (!status) status = fby_task_open(&task, client, &options, &error);
    if (status) return fail(&error);

    json_t *epochs = json_array(), *ids = NULL;
    uint64_t taken = 0;
    double start = now(), step_ends = start;
    while (step_ends < start + seconds) {
        fby_batch *batch = NULL;
        status = fby_task_next(task, 10 * 1000000000ll, &batch, &error);
        if (status == FBY_ECLOSED && count > 5 && taken) break; /* another rank has ended */
        if (status) return fail(&error);
        if (!ids || fby_batch_index(batch) == 0) json_array_append_new(epochs, ids = json_array());
        for (uint32_t i = 0; i < fby_batch_count(batch); i++)
            json_array_append_new(ids, json_integer((json_int_t)fby_batch_ids(batch)[i]));
        /* The trainer's clock is its own: what came late isn't made up for, but lateness of its sleep is. */
        double here = now();
        if (step_ends + 0.1 < here) step_ends = here;
        step_ends += fby_batch_count(batch) / rate;
        sleep_until(step_ends);
        taken += fby_batch_count(batch);
        fby_batch_release(&batch);
    }
    double took = now() - start;
    fby_task_close(&task);
    fby_disconnect(&client);
    json_t *answer =
        json_pack("{s:I, s:f, s:o}", "taken", (json_int_t)taken, "seconds", took, "epochs", epochs);
    json_dumpf(answer, stdout, JSON_COMPACT);
    json_decref(answer);
    return 0;
}
