/* Forebay end to end, as a training program sees it: a client that takes batches from an embedded server as
 * fast as they come, reads one byte of each sample and releases. CPU time is the client's and the server's.
 *
 * usage: perf_loader SPEC EPOCHS SERVER     one turn is EPOCHS epochs' worth of batches, in the middle of the
 * stream: what was made ahead when a turn begins is made ahead again when it ends. SERVER: the forebay
 * command. */
#include <forebay/forebay.h>
#include <stdio.h>
#include <stdlib.h>

#include "perf/side/side.h"
#include "perf/side/trainer.h"

enum { WARM_BATCHES = 8 };

int main(int argc, char **argv)
{
    uint64_t epochs = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    if (!epochs) perf_side_fail("usage: perf_loader SPEC EPOCHS SERVER");

    fby_error error = FBY_ERROR_INIT;
    fby_connect_options connection = FBY_CONNECT_OPTIONS_INIT;
    connection.mode = FBY_MODE_EMBEDDED;
    connection.server = argv[3];
    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    options.spec_path = argv[1];
    fby_client *client = NULL;
    fby_task *task = NULL;
    fby_task_info info = {.size = sizeof info};
    if (fby_connect(&client, &connection, &error) || fby_task_open(&task, client, &options, &error) ||
        fby_task_info_get(task, &info))
        perf_side_fail("%s", error.text);

    while (perf_side_asked()) {
        for (int i = 0; i < WARM_BATCHES; i++) perf_trainer_take(task);
        perf_instant from = perf_side_now(fby_client_pid(client));
        uint64_t samples = 0;
        for (uint64_t i = 0; i < epochs * info.batches; i++) samples += perf_trainer_take(task);
        perf_side_answer(samples, from, perf_side_now(fby_client_pid(client)));
    }
    fby_task_close(&task);
    fby_disconnect(&client);
    return 0;
}
