/* A task's blocks and their ledger.
 *
 * A slot is a block with the lot that fills it. Its round: FREE, drawn: FILLING, filled: READY, in its turn:
 * DELIVERED, returned: FREE with the next generation. `pending` holds the slots between draw and delivery in
 * the order they were drawn:
 *
 *   strict, sequential   delivered in that order
 *   shared               delivered as they get ready, but no epoch before the end of the one before, and an
 * epoch's last draw (which alone may be short) last
 *
 * What a client says it returns is believed only where the ledger has that block, in that generation,
 * delivered. */
#include <errno.h>
#include <forebay/forebay.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataplane/server/internal.h"
#include "ringbuf/wait.h"

enum { RETURNS_AT_ONCE = 64 };

/* --- slots
 * -------------------------------------------------------------------------------------------------------- */

static fby_slot *slot_take(fby_subscription *task)
{
    return task->free_count ? task->free_slots[--task->free_count] : NULL;
}

/* Back to the free ones, under a new generation: whatever still names the old one is void. */
static void slot_free(fby_slot *slot)
{
    fby_subscription *task = slot->task;
    slot->state = SLOT_FREE;
    slot->dropped = slot->failed = false;
    slot->generation++;
    task->free_slots[task->free_count++] = slot;
}

/* Takes the memory of a slot's block away from the workers that were abandoned in this round of it (those of
 * earlier rounds know older addresses): the block gets another address in this process, and what they may
 * still write, at the old one, goes to private memory that nobody reads. Only while no other worker is at the
 * lot. The seals forbid a new writable mapping, so the one there is moved: MREMAP_DONTUNMAP (5.13 for shared
 * memory) leaves the old range in place, so that it is never unmapped under the worker. */
static bool slot_relocate(fby_slot *slot)
{
    fby_subscription *task = slot->task;
    fby_lot *lot = &slot->lot;
    uint64_t bytes = fby_segment_head(&task->segment)->payload_stride;
    void **moved = realloc(task->moved, (task->moved_count + 1) * sizeof *moved);
    if (!moved) return false;
    task->moved = moved;
    void *to = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (to == MAP_FAILED) return false;
    task->moved[task->moved_count++] = to; /* unmapped with the task, whatever has become of it by then */
    if (mremap(lot->payload, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) ==
        MAP_FAILED)
        return false;
    if (mmap(lot->payload, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        return false;
    lot->payload = to;
    lot->abandoned_now = 0;
    return true;
}

/* Of no more use, but perhaps still written to. */
static void slot_put_away(fby_slot *slot)
{
    if (!slot->lot.abandoned_now || slot_relocate(slot)) {
        slot_free(slot);
        return;
    }
    slot->state = SLOT_QUARANTINED;
}

static void pending_remove(fby_subscription *task, uint32_t at)
{
    task->pending_count--;
    memmove(&task->pending[at], &task->pending[at + 1], (task->pending_count - at) * sizeof *task->pending);
}

/* Drawn, but nobody will get it. */
static void slot_drop(fby_slot *slot)
{
    fby_subscription *task = slot->task;
    fby_sampler_give_back(task->sampler, task->bit, 0, slot->lot.count);
    slot_put_away(slot);
}

/* --- failing
 * ---------------------------------------------------------------------------------------------------------
 */

static void descriptor_put(fby_subscription *task, const fby_descriptor *descriptor)
{
    fby_delivery_put(&task->delivery, descriptor);
    task->published = true;
}

/* Ends the task with a reason that its client gets, after what was delivered before. */
static void task_fail(fby_subscription *task, const fby_error *why)
{
    if (task->failed || task->closing) return;
    task->failed = true;
    task->failure = *why;
    fby_server_log(task->server, "task %llu has failed: %s", (unsigned long long)task->number, why->text);
    if (task->session) fby_session_fail(task->session, FBY_MESSAGE_TASK_FAILED, why);
    if (task->closing) return; /* its client was gone when it was told */
    fby_descriptor descriptor = {.flags = FBY_DESCRIPTOR_ERROR | FBY_DESCRIPTOR_LAST};
    descriptor_put(task, &descriptor);
}

static void sample_name(char *out, size_t bytes, const fby_subscription *task, uint64_t id)
{
    const char *path = fby_dataset_path(task->dataset, id);
    if (*path == '/')
        snprintf(out, bytes, "%s", path);
    else
        snprintf(out, bytes, "%s/%s", fby_dataset_root(task->dataset), path);
}

static void sample_failure(fby_error *error, const fby_subscription *task, const fby_job *job)
{
    char path[600];
    sample_name(path, sizeof path, task, job->id);
    bool read = !strcmp(job->op, "read");
    fby_fail(error, FBY_ESAMPLE,
             "%s: sample %llu, %s: %s%s%s; remove or repair the file, or set on_error: skip", path,
             (unsigned long long)job->id, read ? "reading" : job->op, fby_reason_name(job->reason),
             *job->text ? ": " : "", job->text);
    error->sample = job->id;
}

/* Bad samples of an epoch so far. Lots of several epochs may be under way, so their counts are kept apart. */
static uint64_t *bad_count(fby_subscription *task, uint64_t epoch)
{
    fby_bad_count *count = &task->bad_counts[epoch % task->slot_count];
    if (count->epoch != epoch) *count = (fby_bad_count){epoch, 0};
    return &count->samples;
}

static void bad_remember(fby_subscription *task, const fby_job *job, uint64_t epoch)
{
    if (fby_bad_set_add(&task->bad_known, epoch, job->id, task->epoch)) ++*bad_count(task, epoch);
    fby_bad_sample *bad = &task->bad[task->bad_total++ % BAD_REMEMBERED];
    *bad = (fby_bad_sample){.id = job->id, .reason = job->reason};
    snprintf(bad->op, sizeof bad->op, "%s", job->op);
    snprintf(bad->text, sizeof bad->text, "%s", job->text);
    char path[600];
    sample_name(path, sizeof path, task, job->id);
    fby_server_log(task->server, "task %llu: bad sample %llu, %s: %s: %s %s",
                   (unsigned long long)task->number, (unsigned long long)job->id, path, job->op,
                   fby_reason_name(job->reason), job->text);
}

/* A part of an epoch allows at least one bad sample; a count is taken as it is. */
static bool too_many_bad(const fby_subscription *task, uint64_t bad)
{
    double limit = task->spec->max_errors;
    if (limit < 1) {
        limit *= (double)fby_sampler_samples(task->sampler, task->bit);
        if (limit < 1) limit = task->spec->max_errors > 0 ? 1 : 0;
    }
    return (double)bad > limit;
}

/* --- filling
 * ---------------------------------------------------------------------------------------------------------
 */

static void slot_submit(fby_slot *slot)
{
    slot->state = SLOT_FILLING;
    slot->task->out++;
    fby_engine_submit(slot->task->server->engine, &slot->lot);
}

static void slot_fill(fby_slot *slot, const fby_draw *draw)
{
    fby_subscription *task = slot->task;
    fby_lot *lot = &slot->lot;
    const fby_draw_target *target = &draw->targets[0];
    slot->epoch = target->epoch;
    slot->epoch_last = target->epoch_last;
    if (target->epoch_last) task->drawn_epochs = target->epoch + 1;
    lot->plan = task->plan;
    lot->dataset = task->dataset;
    lot->branch = 0;
    lot->count = draw->count;
    lot->timeout_ns = task->spec->sample_timeout_ns;
    lot->only = NULL;
    lot->meta->block = FIRST_BLOCK + slot->index;
    lot->meta->generation = slot->generation;
    lot->meta->count = draw->count;
    for (uint32_t i = 0; i < draw->count; i++) {
        lot->jobs[i].id = draw->ids[i];
        lot->jobs[i].turn = draw->turns[i];
        lot->jobs[i].repeat = 0;
        /* One rank's part needs no padding: what is padded there stands for an id that a substitute used up.
         */
        lot->jobs[i].flags = !(draw->flags[i] & FBY_DRAW_PADDED) ? 0
                             : task->spec->ranks > 1             ? FBY_SAMPLE_PADDED
                                                                 : FBY_SAMPLE_REPEAT;
    }
    task->pending[task->pending_count++] = slot;
    slot_submit(slot);
}

/* Replaces the bad samples of a lot and runs them again, or fails the task over it. */
static void slot_repair(fby_slot *slot)
{
    fby_subscription *task = slot->task;
    fby_lot *lot = &slot->lot;
    uint32_t again = 0;
    for (uint32_t i = 0; i < lot->count; i++) {
        fby_job *job = &lot->jobs[i];
        if (job->reason == FBY_REASON_NONE) continue;
        bad_remember(task, job, slot->epoch);
        fby_error why = FBY_ERROR_INIT;
        uint64_t bad = *bad_count(task, slot->epoch);
        if (too_many_bad(task, bad)) {
            sample_failure(&why, task, job);
            char last[FBY_ERROR_TEXT];
            memcpy(last, why.text, sizeof last);
            fby_fail(&why, FBY_ESAMPLE,
                     "%llu bad samples in epoch %llu are more than max_errors allows (%g); the last: %.700s",
                     (unsigned long long)bad, (unsigned long long)slot->epoch, task->spec->max_errors, last);
            why.sample = job->id;
            task_fail(task, &why);
            return;
        }
        uint32_t id;
        uint64_t turn;
        bool repeat;
        int status = fby_sampler_substitute(task->sampler, task->bit, slot->epoch, (uint32_t)job->id, &id,
                                            &turn, &repeat);
        if (status) {
            fby_fail(&why, FBY_ESAMPLE, "epoch %llu has no sample left that could stand in for bad ones",
                     (unsigned long long)slot->epoch);
            why.sample = job->id;
            task_fail(task, &why);
            return;
        }
        job->id = id;
        job->turn = turn;
        job->flags |= FBY_SAMPLE_SUBSTITUTE | (repeat ? FBY_SAMPLE_REPEAT : 0);
        task->substituted++;
        slot->again[again++] = i;
    }
    if (lot->abandoned_now && !slot_relocate(slot)) {
        fby_error why = FBY_ERROR_INIT;
        fby_fail(&why, FBY_ENOMEM, "no memory to take a block back from a decoder that doesn't return: %s",
                 strerror(errno));
        task_fail(task, &why);
        return;
    }
    slot->failed = false;
    lot->only = slot->again;
    lot->only_count = again;
    slot_submit(slot);
}

/* --- delivering
 * ------------------------------------------------------------------------------------------------------- */

static void slot_deliver(fby_slot *slot)
{
    fby_subscription *task = slot->task;
    if (slot->epoch != task->epoch) {
        task->epoch = slot->epoch;
        task->batch = 0;
    }
    bool last = task->batch + 1 == task->batches;
    fby_descriptor descriptor = {.block = FIRST_BLOCK + slot->index,
                                 .generation = slot->generation,
                                 .first = 0,
                                 .count = slot->lot.count,
                                 .flags = FBY_DESCRIPTOR_LAST | (last ? FBY_DESCRIPTOR_EPOCH_LAST : 0) |
                                          (task->batch == 0 ? FBY_DESCRIPTOR_EPOCH_FIRST : 0),
                                 .batch = (uint32_t)task->batch};
    task->batch++;
    slot->state = SLOT_DELIVERED;
    task->delivered_batches++;
    task->delivered_samples += slot->lot.count;
    descriptor_put(task, &descriptor);
    if (last && task->spec->epochs && slot->epoch + 1 >= task->spec->epochs) {
        task->ended = true;
        fby_descriptor end = {.flags = FBY_DESCRIPTOR_END | FBY_DESCRIPTOR_LAST};
        descriptor_put(task, &end);
    }
}

/* The next pending slot whose turn it is, or -1. */
static int32_t pending_next(const fby_subscription *task)
{
    bool ordered = task->spec->order != FBY_ORDER_SHARED;
    for (uint32_t i = 0; i < task->pending_count; i++) {
        const fby_slot *slot = task->pending[i];
        if (slot->epoch != task->pending[0]->epoch) return -1;
        if (slot->state == SLOT_READY) {
            bool held_back = slot->epoch_last && i > 0; /* shared order: an epoch's last draw comes last */
            if (!held_back) return (int32_t)i;
        }
        if (ordered) return -1;
    }
    return -1;
}

static void task_deliver(fby_subscription *task)
{
    while (!task->failed && !task->ended) {
        int32_t at = pending_next(task);
        if (at < 0) return;
        fby_slot *slot = task->pending[at];
        if (slot->failed) {
            fby_error why = FBY_ERROR_INIT;
            for (uint32_t i = 0; i < slot->lot.count; i++) {
                if (slot->lot.jobs[i].reason == FBY_REASON_NONE) continue;
                bad_remember(task, &slot->lot.jobs[i], slot->epoch);
                sample_failure(&why, task, &slot->lot.jobs[i]);
                break;
            }
            task_fail(task, &why);
            return;
        }
        pending_remove(task, (uint32_t)at);
        slot_deliver(slot);
    }
}

static void task_draw(fby_subscription *task)
{
    static fby_draw draw; /* the conductor's alone, and large */
    if (task->failed || task->ended || task->closing || !task->session) return;
    while (task->free_count) {
        /* Its client holds all that was drawn: it starves, whatever its window says. */
        fby_sampler_starve(task->sampler, task->bit, 0, task->pending_count == 0);
        if (fby_sampler_draw(task->sampler, 0, &draw) != 1) return;
        slot_fill(slot_take(task), &draw);
    }
}

void fby_subscription_advance(fby_subscription *task)
{
    task_deliver(task);
    task_draw(task);
    if (!task->published) return;
    task->published = false;
    fby_delivery_publish(&task->delivery);
    fby_wake_client(task->down.base, task->up.base);
}

void fby_subscription_lot_finished(fby_lot *lot)
{
    fby_slot *slot = lot->owner;
    fby_subscription *task = slot->task;
    task->out--;
    slot->state = SLOT_READY;
    if (slot->dropped || task->closing) {
        slot_put_away(slot);
        return;
    }
    slot->failed = lot->bad != 0;
    if (slot->failed && task->spec->on_error == FBY_ON_ERROR_SKIP && !task->failed) slot_repair(slot);
}

void fby_subscription_lot_released(fby_lot *lot)
{
    fby_slot *slot = lot->owner;
    if (slot->state == SLOT_QUARANTINED) slot_free(slot);
}

/* --- returns
 * -----------------------------------------------------------------------------------------------------------
 */

/* Checks one returned word against the ledger; false where it isn't the client's to return. */
static bool return_take(fby_subscription *task, uint64_t word)
{
    uint32_t index = (uint32_t)word - FIRST_BLOCK, generation = (uint32_t)(word >> 32);
    if (index >= task->slot_count) return false;
    fby_slot *slot = &task->slots[index];
    if (slot->state != SLOT_DELIVERED || slot->generation != generation) return false;
    task->returned_batches++;
    fby_sampler_give_back(task->sampler, task->bit, 0, slot->lot.count);
    slot_free(slot);
    return true;
}

void fby_subscription_take_returns(fby_subscription *task)
{
    uint64_t words[RETURNS_AT_ONCE];
    int count;
    do {
        count = fby_returns_take(&task->returns, words, RETURNS_AT_ONCE);
        for (int i = 0; i < count; i++) {
            if (return_take(task, words[i])) continue;
            if (task->session) fby_session_close(task->session, "it returned a block that it doesn't hold");
            return;
        }
        if (count < 0) {
            if (task->session)
                fby_session_close(task->session, "its return counter claims more than its ring holds");
            return;
        }
    } while (count == RETURNS_AT_ONCE);
}

/* --- ends
 * ----------------------------------------------------------------------------------------------------------------
 */

/* Drops what is pending of epochs below `least`. */
static void pending_drop(fby_subscription *task, uint64_t least)
{
    for (uint32_t i = 0; i < task->pending_count;) {
        fby_slot *slot = task->pending[i];
        if (slot->epoch >= least) {
            i++;
            continue;
        }
        pending_remove(task, i);
        if (slot->state == SLOT_FILLING) {
            slot->dropped = true;
            fby_sampler_give_back(task->sampler, task->bit, 0, slot->lot.count);
            continue;
        }
        slot_drop(slot);
    }
}

int fby_subscription_abandon(fby_subscription *task, uint64_t epoch, uint64_t *next)
{
    if (task->failed) {
        *next = task->epoch; /* its client finds the failure in its ring */
        return 0;
    }
    if (epoch < task->least_epoch) epoch = task->least_epoch;
    *next = epoch + 1;
    if (task->drawn_epochs <= epoch) {
        *next = fby_sampler_abandon(task->sampler, task->bit);
        task->drawn_epochs = *next;
    }
    task->least_epoch = *next;
    pending_drop(task, *next);
    if (task->spec->epochs && *next >= task->spec->epochs) {
        task->ended = true;
        return FBY_EEND;
    }
    if (task->epoch < *next) {
        task->epoch = *next;
        task->batch = 0;
    }
    return 0;
}

void fby_subscription_end(fby_subscription *task)
{
    task->closing = true;
    pending_drop(task, UINT64_MAX);
}

bool fby_subscription_idle(const fby_subscription *task)
{
    return !task->out && !fby_subscription_abandoned(task);
}

uint32_t fby_subscription_abandoned(const fby_subscription *task)
{
    uint32_t workers = 0;
    for (uint32_t i = 0; i < task->slot_count; i++) workers += task->slots[i].lot.quarantine;
    return workers;
}

void fby_subscription_free(fby_subscription *task)
{
    if (!task) return;
    for (uint32_t i = 0; task->slots && i < task->slot_count; i++) {
        free(task->slots[i].lot.jobs);
        free(task->slots[i].again);
    }
    free(task->slots);
    free(task->free_slots);
    free(task->pending);
    free(task->bad_counts);
    fby_bad_set_free(&task->bad_known);
    if (task->event_fd >= 0) close(task->event_fd);
    if (task->classes_fd >= 0) close(task->classes_fd);
    for (uint32_t i = 0; i < task->moved_count; i++)
        munmap(task->moved[i], fby_segment_head(&task->segment)->payload_stride);
    free(task->moved);
    fby_region_close(&task->segment);
    fby_region_close(&task->down);
    fby_region_close(&task->up);
    fby_sampler_destroy(&task->sampler);
    fby_plan_destroy(&task->plan);
    fby_dataset_close(&task->dataset);
    fby_spec_free(&task->spec);
    fby_budget_give(&task->server->budget, task->reserved_bytes);
    free(task);
}
