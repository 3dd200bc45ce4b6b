/* A trainer whose step takes a fixed time: takes a batch, releases it, sleeps a step; over and over. It
 * prints how long a batch took, all in all.
 *
 * usage: perf_echo_time SOCKET SPEC STEP_US WARM_S SECONDS
 *
 * Prints one line of JSON, of SECONDS in the middle of the stream: batches, wall, and in steps (the time that
 * steps really took, asleep: what the machine adds to them is no loader's fault); samples, and how many of
 * them came fresh. */
#include <forebay/forebay.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "perf/side/side.h"
#include "perf/side/trainer.h"

typedef struct course {
    uint64_t batches, samples, fresh;
    double in_steps;
} course;

static void step(course *it, fby_task *task, const struct timespec *length)
{
    fby_batch *batch = perf_trainer_next(task);
    const uint32_t *flags = fby_batch_flags(batch);
    it->batches++;
    it->samples += fby_batch_count(batch);
    for (uint32_t i = 0; i < fby_batch_count(batch); i++) it->fresh += !(flags[i] & FBY_SAMPLE_REPEAT);
    fby_batch_release(&batch);
    double began = perf_side_now(0).wall;
    nanosleep(length, NULL);
    it->in_steps += perf_side_now(0).wall - began;
}

/* Trains for so many seconds, and to the end of a batch. */
static double train(course *it, fby_task *task, const struct timespec *length, double seconds)
{
    double began = perf_side_now(0).wall;
    while (perf_side_now(0).wall - began < seconds) step(it, task, length);
    return perf_side_now(0).wall - began;
}

int main(int argc, char **argv)
{
    long step_us = argc == 6 ? strtol(argv[3], NULL, 10) : 0;
    if (step_us < 1) perf_side_fail("usage: perf_echo_time SOCKET SPEC STEP_US WARM_S SECONDS");
    struct timespec length = {step_us / 1000000, step_us % 1000000 * 1000};

    fby_error error = FBY_ERROR_INIT;
    fby_connect_options connection = FBY_CONNECT_OPTIONS_INIT;
    connection.mode = FBY_MODE_RUNNING;
    connection.socket = argv[1];
    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    options.spec_path = argv[2];
    fby_client *client = NULL;
    fby_task *task = NULL;
    if (fby_connect(&client, &connection, &error) || fby_task_open(&task, client, &options, &error))
        perf_side_fail("%s", error.text);
    course warm = {0}, it = {0};
    train(&warm, task, &length, strtod(argv[4], NULL));
    double wall = train(&it, task, &length, strtod(argv[5], NULL));
    printf("{\"batches\": %llu, \"wall\": %.6f, \"in_steps\": %.6f, \"samples\": %llu, \"fresh\": %llu}\n",
           (unsigned long long)it.batches, wall, it.in_steps, (unsigned long long)it.samples,
           (unsigned long long)it.fresh);
    fby_task_close(&task);
    fby_disconnect(&client);
    return 0;
}
