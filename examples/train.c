/* A training loop's skeleton: opens a task, takes batches, gives them back.
 *
 *     train SPEC [EPOCHS]
 *
 * The "training" computes the mean of every batch, so that all of its memory is read. */
#include <forebay/forebay.h>
#include <stdlib.h>

static int complain(const fby_error *error)
{
    fprintf(stderr, "train: %s\n", error->text);
    return 1;
}

/* Stands for a training step on one batch. */
static double step(const fby_tensor *images)
{
    double sum = 0;
    if (images->element == FBY_ELEMENT_F32) {
        const float *values = images->data;
        uint64_t count = images->bytes / sizeof *values;
        for (uint64_t i = 0; i < count; i++) sum += values[i];
        return sum / (double)count;
    }
    const uint8_t *bytes = images->data;
    for (uint64_t i = 0; i < images->bytes; i++) sum += bytes[i];
    return sum / (double)images->bytes;
}

int main(int count, char **arguments)
{
    fby_error error = FBY_ERROR_INIT;
    fby_client *client = NULL;
    fby_task *task = NULL;
    fby_task_options options = FBY_TASK_OPTIONS_INIT;
    if (count < 2) {
        fprintf(stderr, "usage: train SPEC [EPOCHS]\n");
        return 64;
    }
    options.spec_path = arguments[1];
    uint64_t epochs = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;

    if (fby_connect(&client, NULL, &error)) return complain(&error);
    if (fby_task_open(&task, client, &options, &error)) return complain(&error);
    fby_task_info info = {.size = sizeof info};
    fby_task_info_get(task, &info);
    printf("%llu samples in %llu batches an epoch\n", (unsigned long long)info.samples,
           (unsigned long long)info.batches);

    for (uint64_t taken = 0; taken < epochs * info.batches;) {
        fby_batch *batch = NULL;
        int status = fby_task_next(task, -1, &batch, &error);
        if (status == FBY_EINTR) continue; /* a signal handler ran */
        if (status == FBY_EEND) break;     /* the spec's last epoch is over */
        if (status) return complain(&error);

        fby_tensor images;
        if (fby_batch_tensor(batch, &images, &error)) return complain(&error);
        const int64_t *labels = fby_batch_labels(batch);
        double mean = step(&images);
        if (fby_batch_last(batch))
            printf("epoch %llu: %llu batches, mean of the last %.4f, its first label %lld (%s)\n",
                   (unsigned long long)fby_batch_epoch(batch), (unsigned long long)fby_batch_index(batch) + 1,
                   mean, (long long)labels[0],
                   fby_task_class(task, (uint32_t)labels[0]) ? fby_task_class(task, (uint32_t)labels[0])
                                                             : "a number");
        taken++;
        fby_batch_release(&batch); /* the memory goes back to the server */
    }
    fby_task_close(&task);
    fby_disconnect(&client);
    return 0;
}
