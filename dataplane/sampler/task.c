/* A task's own bookkeeping: its window, its epochs, its ranks' parts of them. */
#include <forebay/error.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/internal.h"

static int check(const fby_sampler_task *what, fby_error *error)
{
    if (what->order != FBY_ORDER_SHARED && what->order != FBY_ORDER_STRICT &&
        what->order != FBY_ORDER_SEQUENTIAL)
        return fby_fail(error, FBY_EINVAL, "order: %d is none; expected shared, strict or sequential",
                        (int)what->order);
    if (!what->batch) return fby_fail(error, FBY_EINVAL, "batch size: 0; expected at least 1 sample");
    if (!what->window) return fby_fail(error, FBY_EINVAL, "window: 0; expected at least 1 batch");
    if (!what->ranks || what->ranks > FBY_SAMPLER_RANKS)
        return fby_fail(error, FBY_EINVAL, "ranks: %u; expected 1 to %d", what->ranks, FBY_SAMPLER_RANKS);
    if (what->visits > FBY_SAMPLER_VISITS)
        return fby_fail(error, FBY_EINVAL, "%u visits; expected at most %u", what->visits,
                        FBY_SAMPLER_VISITS);
    return FBY_OK;
}

static uint64_t part_of(const fby_task_state *task)
{
    return fby_sampler_part(task->ids - task->behind, task->ranks, task->batch, task->drop_last);
}

static int allocate(fby_task_state *task, uint32_t ids)
{
    task->first_most = task->ranks > 64 ? task->ranks : 64;
    task->rank = calloc(task->ranks, sizeof *task->rank);
    task->first = calloc(task->first_most, sizeof *task->first);
    task->bad = calloc(((size_t)ids + 63) / 64, sizeof *task->bad);
    return task->rank && task->first && task->bad ? FBY_OK : FBY_ENOMEM;
}

/* Takes over the ranks' places in the epoch that a resumed task was in. FBY_EINVAL: beyond its end; FBY_EEND:
 * at it. */
static int places_set(fby_task_state *task, const fby_sampler_task *what)
{
    if (what->behind > task->ids) return FBY_EINVAL;
    task->behind = what->behind;
    task->part = part_of(task);
    uint32_t whole = 0;
    for (uint32_t i = 0; i < task->ranks; i++) {
        uint64_t given = what->given ? what->given[i] : 0;
        if (given > task->part) return FBY_EINVAL;
        task->rank[i].given = given;
        task->given += given;
        whole += given == task->part;
    }
    fby_sampler_task_seek_rank(task);
    return whole == task->ranks ? FBY_EEND : FBY_OK;
}

static void epoch_begin(fby_task_state *task)
{
    task->over = task->epochs && task->epoch >= task->epochs;
    task->given = task->behind = 0;
    task->part = task->whole;
    task->first_count = task->first_next = 0;
    for (uint32_t i = 0; i < task->ranks; i++) task->rank[i].given = 0;
    if (task->order == FBY_ORDER_STRICT) {
        fby_permutation_set(&task->order_now, task->ids, task->seed, task->epoch);
    }
    fby_sampler_task_seek_rank(task);
}

int fby_sampler_task_set(fby_sampler *sampler, uint32_t task, const fby_sampler_task *what, fby_error *error)
{
    fby_task_state *t = &sampler->task[task];
    int code = check(what, error);
    if (code) return code;

    *t = (fby_task_state){
        .order = what->order,
        .drop_last = what->drop_last,
        .seed = what->seed,
        .epoch = what->first_epoch,
        .epochs = what->epochs,
        .batch = what->batch,
        .ranks = what->ranks,
        .window = (uint64_t)what->window * what->batch,
        .ids = sampler->ids,
    };
    if (t->window < FBY_SAMPLER_LEAST_WINDOW) t->window = FBY_SAMPLER_LEAST_WINDOW;
    t->low = t->window / 2;

    if (what->subset || (what->made && *what->made)) {
        code = fby_arrival_open(sampler, what, &t->subset);
        if (code == FBY_EINVAL)
            return fby_fail(error, code, "the task's subset has none of the %u ids", sampler->ids);
        if (code) goto no_memory;
        t->ids = t->subset->size;
        if (t->ids == sampler->ids) fby_arrival_close(sampler, &t->subset);
    }

    t->whole = part_of(t);
    if (!t->whole) {
        code = fby_fail(
            error, FBY_EINVAL,
            "drop_last leaves no batch of %u samples: %u ids over %u ranks; expected a smaller batch, or "
            "drop_last: false",
            t->batch, t->ids, t->ranks);
        goto fail;
    }
    if (is_shared(t) && !fby_arrival_fits(sampler, t->subset)) {
        code = fby_fail(
            error, FBY_EFULL,
            "the subsets of the tasks that share this data would cut it into more than %d parts; use one "
            "subset for several tasks, or order: strict",
            FBY_SAMPLER_STRATA);
        goto fail;
    }
    if (allocate(t, sampler->ids)) goto no_memory;

    epoch_begin(t);
    if ((what->given || what->behind) && !t->over) {
        code = places_set(t, what);
        if (code == FBY_EINVAL) {
            code = fby_fail(error, code, "a rank had more of epoch %llu than the %llu samples there are",
                            (unsigned long long)t->epoch, (unsigned long long)t->part);
            goto fail;
        }
        if (code == FBY_EEND) {
            t->epoch++;
            epoch_begin(t);
        } else if (is_shared(t) && what->had) {
            t->resumed = true;
            if (fby_resume_set(sampler, t, what->had)) goto no_memory;
        }
    }
    if (what->visits > sampler->visits_before) sampler->visits_before = what->visits;
    t->live = true;
    return FBY_OK;

no_memory:
    code = fby_fail(error, FBY_ENOMEM, "no memory for the bookkeeping of a task over %u ids", sampler->ids);
fail:
    fby_sampler_task_clear(sampler, task);
    return code;
}

void fby_sampler_task_clear(fby_sampler *sampler, uint32_t task)
{
    fby_task_state *t = &sampler->task[task];
    fby_arrival_close(sampler, &t->subset);
    free(t->rank);
    free(t->first);
    free(t->bad);
    free(t->awaited);
    free(t->spare);
    *t = (fby_task_state){0};
}

void fby_sampler_task_seek_rank(fby_task_state *task)
{
    task->hungriest = FBY_NONE;
    if (task->over) return;
    for (uint32_t i = 0; i < task->ranks; i++) {
        const fby_rank_state *rank = &task->rank[i];
        if (rank->given == task->part) continue;
        if (task->hungriest != FBY_NONE) {
            const fby_rank_state *best = &task->rank[task->hungriest];
            if (rank->queued > best->queued) continue;
            if (rank->queued == best->queued && rank->given >= best->given) continue;
        }
        task->hungriest = i;
    }
}

void fby_sampler_task_next_epochs(fby_sampler *sampler, uint64_t tasks)
{
    uint64_t needing = 0;
    for (; tasks; tasks &= tasks - 1) {
        uint32_t task = (uint32_t)__builtin_ctzll(tasks);
        fby_task_state *t = &sampler->task[task];
        if (t->resumed) fby_resume_keep(sampler, task);
        t->epoch++;
        epoch_begin(t);
        if (!is_shared(t)) continue;
        fby_resume_end(sampler, task);
        if (t->over)
            fby_pools_need_none(&sampler->pools, task);
        else
            needing |= UINT64_C(1) << task;
    }
    fby_pools_need_all(&sampler->pools, needing); /* one pass for all that end with a draw */
}
