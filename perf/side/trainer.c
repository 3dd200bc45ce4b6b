#include "perf/side/trainer.h"

#include "perf/side/side.h"

static volatile unsigned char seen;

fby_batch *perf_trainer_next(fby_task *task)
{
    fby_error error = FBY_ERROR_INIT;
    fby_batch *batch = NULL;
    int status;
    do {
        status = fby_task_next(task, -1, &batch, &error);
    } while (status == FBY_EINTR);
    if (status) perf_side_fail("no batch: %s", error.text);
    return batch;
}

uint64_t perf_trainer_take(fby_task *task)
{
    fby_error error = FBY_ERROR_INIT;
    fby_batch *batch = perf_trainer_next(task);
    for (uint32_t i = 0; i < fby_batch_extents(batch); i++) {
        fby_tensor tensor;
        if (fby_batch_extent(batch, i, &tensor, &error)) perf_side_fail("no tensor: %s", error.text);
        for (int64_t sample = 0; sample < tensor.shape[0]; sample++)
            seen = ((const unsigned char *)tensor.data)[sample * tensor.strides[0]];
    }
    uint64_t samples = fby_batch_count(batch);
    fby_batch_release(&batch);
    return samples;
}
