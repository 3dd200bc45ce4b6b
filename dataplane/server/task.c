/* A task: what is drawn for it, in its turn, to its client, and back.
 *
 * `pending` holds draws between draw and delivery in the order they were drawn:
 *
 *   strict, sequential   delivered in that order
 *   shared               delivered as they get ready, but no epoch before the end of the one before, and an
 *                        epoch's last draw (which alone may be short) last
 *
 * A delivered draw's samples join the batch being put together, as extents: runs of neighbouring places with
 * equal flags. A batch is put on the ring whole. What a client says it returns is believed only where the
 * task's ledger has an extent beginning at that place, in that generation, delivered. */
#include <errno.h>
#include <forebay/forebay.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "dataplane/protocol/crash.h"
#include "dataplane/sampler/subset.h"
#include "dataplane/server/internal.h"
#include "ringbuf/atomic.h"
#include "ringbuf/wait.h"

enum { RETURNS_AT_ONCE = 64, ENDS = 2 /* ERROR and END */ };

/* --- pending draws
 * ------------------------------------------------------------------------------------------------- */

bool fby_subscription_reserve(fby_subscription *task)
{
    if (task->pending_count < task->pending_room) return true;
    uint32_t room = task->pending_room ? task->pending_room * 2 : 16;
    fby_pending *larger = realloc(task->pending, room * sizeof *larger);
    if (!larger) return false;
    task->pending = larger;
    task->pending_room = room;
    return true;
}

static void pending_remove(fby_subscription *task, uint32_t at)
{
    fby_drawn *drawn = task->pending[at].drawn;
    free(task->pending[at].swaps);
    task->pending_count--;
    memmove(&task->pending[at], &task->pending[at + 1], (task->pending_count - at) * sizeof *task->pending);
    fby_drawn_unref(drawn);
}

uint32_t fby_pending_place(const fby_pending *pending, uint32_t index, uint8_t *flags)
{
    for (uint32_t i = 0; i < pending->swap_count; i++) {
        if (pending->swaps[i].index != index) continue;
        if (flags) *flags = pending->swaps[i].flags;
        return pending->swaps[i].place;
    }
    if (flags) *flags = pending->drawn->flags[index];
    return pending->drawn->parts[pending->part].places[index];
}

static void give_back(fby_subscription *task, uint32_t count)
{
    if (task->joined) fby_sampler_give_back(task->source->sampler, task->bit, task->rank, count);
}

/* Drawn, but the task doesn't want it any more. */
static void pending_drop_one(fby_subscription *task, uint32_t at)
{
    const fby_pending *pending = &task->pending[at];
    uint32_t count = pending->drawn->lot.count;
    for (uint32_t i = pending->taken; i < count; i++) {
        fby_place_release(task->source, fby_pending_place(pending, i, NULL), fby_seat_bit(task));
    }
    give_back(task, count - pending->taken);
    pending_remove(task, at);
}

/* The batch that is being put together goes. */
static void batch_drop(fby_subscription *task)
{
    for (uint32_t i = 0; i < task->extent_count; i++)
        for (uint32_t k = 0; k < task->extents[i].count; k++)
            fby_place_release(task->source, task->extents[i].place + k, fby_seat_bit(task));
    give_back(task, task->batch_fill);
    task->extent_count = task->batch_fill = 0;
}

static void pending_drop(fby_subscription *task, uint64_t least_epoch)
{
    for (uint32_t i = 0; i < task->pending_count;) {
        if (task->pending[i].epoch >= least_epoch)
            i++;
        else
            pending_drop_one(task, i);
    }
    if (task->epoch < least_epoch) batch_drop(task);
}

/* --- failing
 * ---------------------------------------------------------------------------------------------------------
 */

static void descriptor_put(fby_subscription *task, const fby_descriptor *descriptor)
{
    fby_delivery_put(&task->delivery, descriptor);
    task->published = true;
}

static void fail_alone(fby_subscription *task, const fby_error *why)
{
    task->failed = true;
    task->failure = *why;
    fby_server_log(task->server, "task %llu has failed: %s", (unsigned long long)task->number, why->text);
    if (task->session) fby_session_fail(task->session, FBY_MESSAGE_TASK_FAILED, why);
    if (task->closing) return; /* its client was gone when it was told */
    const fby_descriptor descriptor = {.flags = FBY_DESCRIPTOR_ERROR | FBY_DESCRIPTOR_LAST};
    descriptor_put(task, &descriptor);
}

void fby_subscription_fail(fby_subscription *task, const fby_error *why)
{
    if (task->failed || task->closing) return;
    fail_alone(task, why);
    fby_crew_break(task, why);
}

static void sample_name(char *out, size_t bytes, const fby_subscription *task, uint64_t id)
{
    const fby_dataset *dataset = task->source->dataset;
    const char *path = fby_dataset_path(dataset, id);
    if (*path == '/')
        snprintf(out, bytes, "%s", path);
    else
        snprintf(out, bytes, "%s/%s", fby_dataset_root(dataset), path);
}

static void sample_failure(fby_error *error, const fby_subscription *task, const fby_job *job)
{
    char path[600];
    sample_name(path, sizeof path, task, job->id);
    bool read = !strcmp(job->op, "read");
    fby_fail(error, FBY_ESAMPLE, "%s: sample %llu, %s: %s%s%s; remove or repair the file%s", path,
             (unsigned long long)job->id, read ? "reading" : job->op, fby_reason_name(job->reason),
             *job->text ? ": " : "", job->text,
             task->spec->on_error == FBY_ON_ERROR_SKIP ? "" : ", or set on_error: skip");
    error->sample = job->id;
}

/* Bad samples of an epoch so far. Draws of several epochs may be under way, so their counts are kept apart.
 */
static uint64_t *bad_count(fby_subscription *task, uint64_t epoch)
{
    fby_bad_count *count = &task->bad_counts[epoch % task->bad_epochs];
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

/* Bad samples that an epoch may have. A part of it allows at least one; a count is taken as it is. */
static uint64_t bad_most(const fby_subscription *task)
{
    double limit = task->spec->max_errors;
    if (limit < 1) {
        limit *= (double)task->samples;
        if (limit < 1) limit = task->spec->max_errors > 0 ? 1 : 0;
    }
    return limit < (double)UINT64_MAX ? (uint64_t)limit : UINT64_MAX;
}

bool fby_bad_replace(fby_subscription *task, const fby_job *job, uint64_t epoch)
{
    if (task->spec->on_error != FBY_ON_ERROR_SKIP) return false;
    bad_remember(task, job, epoch);
    uint64_t bad = *bad_count(task, epoch);
    if (bad <= bad_most(task)) return true;
    fby_error why = FBY_ERROR_INIT;
    sample_failure(&why, task, job);
    char last[FBY_ERROR_TEXT];
    memcpy(last, why.text, sizeof last);
    fby_fail(
        &why, FBY_ESAMPLE,
        "%llu bad samples in epoch %llu are more than max_errors allows: %g, of %llu samples %llu; raise "
        "max_errors (a part, or from 1 on a count), or mend the files; the last: %.700s",
        (unsigned long long)bad, (unsigned long long)epoch, task->spec->max_errors,
        (unsigned long long)task->samples, (unsigned long long)bad_most(task), last);
    why.sample = job->id;
    fby_subscription_fail(task, &why);
    return false;
}

void fby_bad_fail(fby_subscription *task, const fby_job *job, uint64_t epoch)
{
    if (task->spec->on_error == FBY_ON_ERROR_SKIP) return;
    bad_remember(task, job, epoch);
}

/* --- delivering
 * ------------------------------------------------------------------------------------------------------- */

/* What is known of the extents of a block; NULL where nothing is, or without memory. */
static fby_ledger *ledger_of(const fby_subscription *task, uint32_t block)
{
    for (uint32_t i = 0; i < task->ledger_count; i++)
        if (task->ledgers[i].block == block) return &task->ledgers[i];
    return NULL;
}

static bool ledger_make(fby_subscription *task, uint32_t block)
{
    if (ledger_of(task, block)) return true;
    fby_ledger *larger = realloc(task->ledgers, (task->ledger_count + 1) * sizeof *larger);
    if (!larger) return false;
    task->ledgers = larger;
    uint32_t places = task->source->stores[block]->places;
    struct fby_ledger_entry *entries = calloc(places, sizeof *entries);
    if (!entries) return false;
    fby_ledger *ledger = &task->ledgers[task->ledger_count++];
    ledger->block = block;
    ledger->entries = entries;
    ledger->places = places;
    return true;
}

struct fby_ledger_entry *fby_ledger_at(const fby_subscription *task, uint32_t place)
{
    return &ledger_of(task, place >> 16)->entries[place & UINT16_MAX];
}

void fby_subscription_forget(fby_subscription *task, uint32_t block)
{
    fby_ledger *ledger = ledger_of(task, block);
    if (!ledger) return;
    free(ledger->entries);
    *ledger = task->ledgers[--task->ledger_count];
}

static void end_deliver(fby_subscription *task)
{
    task->ended = true;
    const fby_descriptor end = {.flags = FBY_DESCRIPTOR_END | FBY_DESCRIPTOR_LAST};
    descriptor_put(task, &end);
}

/* Puts the whole batch on the ring; `last`: of its epoch. */
static void batch_deliver(fby_subscription *task, bool last)
{
    uint32_t of_batch =
        (last ? FBY_DESCRIPTOR_EPOCH_LAST : 0) | (task->batch == 0 ? FBY_DESCRIPTOR_EPOCH_FIRST : 0);
    bool contiguous = true;
    for (uint32_t i = 0; i < task->extent_count; i++) {
        const fby_extent *extent = &task->extents[i];
        const fby_store *store = task->source->stores[extent->place >> 16];
        uint32_t index = extent->place & UINT16_MAX;
        const fby_descriptor descriptor = {.block = store->block,
                                           .generation = store->generations[index],
                                           .first = index,
                                           .count = extent->count,
                                           .flags = of_batch |
                                                    (uint32_t)extent->flags << FBY_DESCRIPTOR_SAMPLE_SHIFT |
                                                    (i + 1 == task->extent_count ? FBY_DESCRIPTOR_LAST : 0),
                                           .batch = (uint32_t)task->batch};
        struct fby_ledger_entry *entry = fby_ledger_at(task, extent->place);
        entry->length = (uint16_t)extent->count;
        entry->times++;
        descriptor_put(task, &descriptor);
        contiguous = contiguous && (i == 0 || extent->place == extent[-1].place + extent[-1].count);
    }
    task->batch_extents = task->extent_count;
    task->held_extents += task->extent_count;
    task->held_samples += task->batch_fill;
    task->delivered_samples += task->batch_fill;
    task->delivered_batches++;
    task->contiguous_batches += contiguous;
    task->extent_count = task->batch_fill = 0;
    task->batch++;
    FBY_CRASH_POINT("batch delivered");
    if (!last) return;
    task->whole_epochs = task->epoch + 1;
    if (task->spec->epochs && task->epoch + 1 >= task->spec->epochs) end_deliver(task);
}

/* Adds a draw's samples to the batch, and delivers each batch that is full, until one that was delivered
 * before has its turn; false without memory. */
static bool draw_deliver(fby_subscription *task, fby_pending *pending)
{
    uint32_t count = pending->drawn->lot.count;
    for (uint32_t i = pending->taken; i < count; i++) {
        if (!ledger_make(task, fby_pending_place(pending, i, NULL) >> 16)) return false;
    }
    while (pending->taken < count) {
        uint8_t flags;
        uint32_t place = fby_pending_place(pending, pending->taken++, &flags);
        fby_extent *last = task->extent_count ? &task->extents[task->extent_count - 1] : NULL;
        if (last && last->flags == flags && last->place + last->count == place)
            last->count++;
        else
            task->extents[task->extent_count++] = (fby_extent){place, 1, flags};
        task->batch_fill++;
        bool end = pending->epoch_last && pending->taken == count;
        if (task->batch_fill < task->spec->batch_size && !end) continue;
        if (!fby_batches_echo(task)) {
            batch_deliver(task, end);
            continue;
        }
        fby_batches_keep(task);
        task->fresh_batches++;
        batch_deliver(task, task->batch + 1 == task->batches); /* of all, whatever is fresh of them */
        if (fby_batches_again(task)) return true;
    }
    return true;
}

/* Whether the rings have places for all that the draw may deliver. */
static bool rings_have_room(const fby_subscription *task, const fby_pending *pending)
{
    uint64_t extents = (uint64_t)task->held_extents + task->extent_count + pending->drawn->lot.count;
    return extents + ENDS <= task->delivery_capacity && extents < task->return_capacity;
}

/* The next pending draw whose turn it is, or -1. */
static int32_t pending_next(const fby_subscription *task)
{
    bool ordered = task->spec->order != FBY_ORDER_SHARED;
    for (uint32_t i = 0; i < task->pending_count; i++) {
        const fby_pending *pending = &task->pending[i];
        if (pending->epoch != task->pending[0].epoch) return -1;
        if (!pending->drawn->filling && !pending->repairs) {
            bool held_back = pending->epoch_last && i > 0; /* shared order: an epoch's last draw comes last */
            if (!held_back) return (int32_t)i;
        }
        if (ordered) return -1;
    }
    return -1;
}

static void epoch_enter(fby_subscription *task, uint64_t epoch)
{
    task->epoch = epoch;
    task->batch = 0;
    task->fresh_batches = 0;
}

/* A batch that was delivered before, once its client has room in its window; false: not now. It costs places
 * in the window as any other does. */
static bool again_deliver(fby_subscription *task)
{
    if (task->held_samples && task->held_samples + task->spec->batch_size > task->window_samples)
        return false;
    uint64_t extents = (uint64_t)task->held_extents + task->spec->batch_size;
    if (extents + ENDS > task->delivery_capacity || extents >= task->return_capacity) return false;
    fby_batches_take(task);
    task->again_batches++;
    fby_sampler_take(task->source->sampler, task->bit, task->rank, task->batch_fill);
    batch_deliver(task, task->batch + 1 == task->batches);
    return true;
}

/* Its ring has all that its crew can have, since a rank has left, or more; false: not yet. */
static bool crew_end_reach(fby_subscription *task)
{
    uint64_t end = task->crew->end;
    if (task->whole_epochs < end) return false;
    task->end_told = end;
    if (!task->failed)
        fail_alone(task, &task->crew->why);
    else if (task->session)
        fby_session_fail(task->session, FBY_MESSAGE_TASK_FAILED, &task->crew->why);
    if (task->closing) return true;
    /* Relaxed: the reason lies in the client's socket by now; what it takes before it sees this it had. */
    fby_store_relaxed_u32(&((fby_down_words *)task->down.base)->end,
                          end < UINT32_MAX ? (uint32_t)end + 1 : UINT32_MAX);
    return true;
}

void fby_subscription_cut(fby_subscription *task)
{
    uint64_t end = task->crew->end, epoch, batch;
    if (task->closing || (task->failed && task->end_told == UINT64_MAX)) return;
    fby_subscription_taken(task, &epoch, &batch);
    if (task->spec->epochs && epoch >= task->spec->epochs) return; /* its client has had all */
    for (uint32_t i = 0; i < task->pending_count;) {
        if (task->pending[i].epoch < end)
            i++;
        else
            pending_drop_one(task, i);
    }
    if (task->epoch >= end) batch_drop(task);
    crew_end_reach(task);
}

void fby_subscription_taken(const fby_subscription *task, uint64_t *epoch, uint64_t *batch)
{
    const fby_delivery_writer *writer = &task->delivery;
    uint32_t head = fby_delivery_head(task->up.base), untaken = writer->tail - head;
    *epoch = task->whole_epochs;
    *batch = task->epoch == *epoch ? task->batch : 0;
    if (untaken > writer->mask + 1) return; /* a false word: it costs nobody but its own ranks */
    for (uint32_t i = untaken; i-- > 0;) {
        fby_descriptor descriptor;
        fby_delivery_look(writer, head + i, &descriptor);
        if (!descriptor.count) continue; /* END or ERROR */
        uint32_t ends = FBY_DESCRIPTOR_EPOCH_LAST | FBY_DESCRIPTOR_LAST;
        *epoch -= (descriptor.flags & ends) == ends;
        *batch = descriptor.batch;
    }
}

void fby_subscription_deliver(fby_subscription *task)
{
    while (!task->failed && !task->ended && !task->closing) {
        if (crew_end_reach(task)) return;
        if (fby_batches_echo(task) && fby_batches_again(task)) {
            if (!again_deliver(task)) return;
            continue;
        }
        int32_t at = pending_next(task);
        if (at < 0) return;
        fby_pending *pending = &task->pending[at];
        fby_error why = FBY_ERROR_INIT;
        if (pending->failed >= 0) {
            sample_failure(&why, task, &pending->drawn->lot.jobs[pending->failed]);
            fby_subscription_fail(task, &why);
            return;
        }
        if (!rings_have_room(task, pending)) return;
        if (pending->epoch != task->epoch) epoch_enter(task, pending->epoch);
        if (!draw_deliver(task, pending)) {
            fby_fail(&why, FBY_ENOMEM, "no memory for the bookkeeping of what its client holds");
            fby_subscription_fail(task, &why);
            return;
        }
        if (pending->taken < pending->drawn->lot.count) continue;
        pending_remove(task, (uint32_t)at);
        FBY_CRASH_POINT("draw delivered");
    }
}

bool fby_subscription_starves(const fby_subscription *task)
{
    return !task->pending_count && fby_delivery_head(task->up.base) == task->delivery.tail;
}

void fby_subscription_publish(fby_subscription *task)
{
    if (!task->published) return;
    FBY_CRASH_POINT("before publish");
    task->published = false;
    fby_sampler_stats stats;
    fby_sampler_get_stats(task->source->sampler, &stats);
    /* Relaxed: the publishing that follows makes it visible with what it is about. */
    fby_store_relaxed_u32(&task->delivery.down->visits, stats.visits);
    fby_delivery_publish(&task->delivery);
    FBY_CRASH_POINT("published");
    fby_wake_client(task->down.base, task->up.base);
    FBY_CRASH_POINT("client woken");
}

void fby_subscription_begin(fby_subscription *task)
{
    if (!task->resumed) return;
    uint64_t epoch;
    fby_state_next(task->resumed, &epoch);
    task->epoch = task->least_epoch = task->drawn_epochs = task->whole_epochs = epoch;
    task->batch = fby_state_next_batch(task->resumed, task->batches, task->spec->batch_size);
    if (task->described.echo == FBY_STATE_ECHO_FREE) {
        /* What was owed isn't any more: as if it had come. */
        task->fresh_batches = fby_state_next(task->resumed, &epoch) / task->spec->batch_size;
        task->batch =
            fby_batches_echo(task) ? fby_batches_of(task, task->fresh_batches) : task->fresh_batches;
    }
    if (!task->spec->epochs || epoch < task->spec->epochs) return;
    end_deliver(task);
    fby_subscription_publish(task);
}

/* --- returns
 * -----------------------------------------------------------------------------------------------------------
 */

void fby_extent_release(fby_subscription *task, uint32_t place)
{
    struct fby_ledger_entry *entry = fby_ledger_at(task, place);
    uint32_t count = entry->length;
    *entry = (struct fby_ledger_entry){0};
    for (uint32_t i = 0; i < count; i++) fby_place_release(task->source, place + i, fby_seat_bit(task));
}

/* An extent comes back, once. */
static void extent_return(fby_subscription *task, uint32_t place, struct fby_ledger_entry *entry)
{
    uint32_t count = entry->length;
    entry->times--;
    FBY_CRASH_POINT("extent half returned");
    if (!entry->times && !entry->kept) fby_extent_release(task, place);
    task->held_extents--;
    task->held_samples -= count;
    task->returned_samples += count;
    give_back(task, count);
}

/* Checks one returned word against the ledger; false where it isn't the client's to return. */
static bool return_take(fby_subscription *task, uint64_t word)
{
    uint32_t place = (uint32_t)word, generation = (uint32_t)(word >> 32), index = place & UINT16_MAX;
    fby_ledger *ledger = ledger_of(task, place >> 16);
    if (!ledger || index >= ledger->places || !ledger->entries[index].times) return false;
    if (task->source->stores[ledger->block]->generations[index] != generation) return false;
    extent_return(task, place, &ledger->entries[index]);
    return true;
}

static void refuse_return(fby_subscription *task, const char *why)
{
    if (task->session)
        fby_session_close(task->session, why);
    else
        fby_subscription_bury(task); /* closed already: what it holds is of no use to it, whatever it says */
}

void fby_subscription_take_returns(fby_subscription *task)
{
    uint64_t words[RETURNS_AT_ONCE];
    int count;
    do {
        count = fby_returns_take(&task->returns, words, RETURNS_AT_ONCE);
        for (int i = 0; i < count; i++) {
            if (return_take(task, words[i])) continue;
            refuse_return(task, "it returned samples that it doesn't hold");
            return;
        }
        if (count < 0) {
            refuse_return(task, "its return counter claims more than its ring holds");
            return;
        }
    } while (count == RETURNS_AT_ONCE);
}

/* --- ends
 * ----------------------------------------------------------------------------------------------------------------
 */

int fby_subscription_abandon(fby_subscription *task, uint64_t epoch, uint64_t *next)
{
    if (task->failed) {
        *next = task->epoch; /* its client finds the failure in its ring */
        return 0;
    }
    if (epoch < task->least_epoch) epoch = task->least_epoch;
    *next = epoch + 1;
    if (task->drawn_epochs <= epoch) {
        *next = fby_sampler_abandon(task->source->sampler, task->bit);
        fby_echoes_abandon(task, *next);
        task->drawn_epochs = *next;
    }
    task->least_epoch = *next;
    if (task->epoch < *next) fby_batches_drop(task);
    pending_drop(task, *next);
    if (task->spec->epochs && *next >= task->spec->epochs) {
        task->ended = true;
        return FBY_EEND;
    }
    if (task->epoch < *next) epoch_enter(task, *next);
    return 0;
}

void fby_subscription_bury(fby_subscription *task)
{
    FBY_CRASH_POINT("burying");
    for (uint32_t i = 0; i < task->ledger_count; i++) {
        const fby_ledger *ledger = &task->ledgers[i];
        for (uint32_t place = 0; place < ledger->places; place++)
            while (ledger->entries[place].times)
                extent_return(task, ledger->block << 16 | place, &ledger->entries[place]);
    }
}

/* What was delivered but never taken by the client: its library takes nothing after a close. A false word of
 * the client's costs nobody but itself. */
static void untaken_return(fby_subscription *task)
{
    const fby_delivery_writer *writer = &task->delivery;
    uint32_t head = fby_delivery_head(task->up.base), untaken = writer->tail - head;
    if (untaken > writer->mask + 1) return;
    for (uint32_t i = 0; i < untaken; i++) {
        fby_descriptor descriptor;
        fby_delivery_look(writer, head + i, &descriptor);
        fby_ledger *ledger = descriptor.count ? ledger_of(task, descriptor.block) : NULL;
        struct fby_ledger_entry *entry = ledger ? &ledger->entries[descriptor.first] : NULL;
        if (entry && entry->times) extent_return(task, descriptor.block << 16 | descriptor.first, entry);
    }
}

void fby_subscription_end(fby_subscription *task, fby_peer *peer)
{
    if (task->closing) return;
    task->closing = true;
    FBY_CRASH_POINT("task ending");
    fby_source_part(task);
    pending_drop(task, UINT64_MAX);
    batch_drop(task);
    fby_batches_drop(task);
    fby_subscription_take_returns(task);
    if (peer->pidfd < 0 || fby_peer_ended(peer)) {
        fby_subscription_bury(task);
        return;
    }
    untaken_return(task);
    FBY_CRASH_POINT("untaken taken back");
    if (!task->held_extents) return;
    /* It lives, and may still read what it holds. */
    task->peer = *peer;
    peer->pidfd = -1;
    task->peer_watch = (fby_watch){WATCH_PEER, NULL, task};
    task->returns_watch = (fby_watch){WATCH_RETURNS, NULL, task};
    fby_error error = FBY_ERROR_INIT;
    epoll_ctl(task->server->epoll, EPOLL_CTL_DEL, task->peer.pidfd, NULL);
    int status = fby_server_watch(task->server, task->peer.pidfd, &task->peer_watch, &error);
    if (!status) status = fby_server_watch(task->server, task->event_fd, &task->returns_watch, &error);
    if (status) fby_server_log(task->server, "a closed task isn't watched: %s", error.text);
}

void fby_subscription_unwatch(fby_subscription *task)
{
    if (task->peer.pidfd < 0) return;
    epoll_ctl(task->server->epoll, EPOLL_CTL_DEL, task->peer.pidfd, NULL);
    epoll_ctl(task->server->epoll, EPOLL_CTL_DEL, task->event_fd, NULL);
    fby_peer_close(&task->peer);
}

bool fby_subscription_idle(const fby_subscription *task)
{
    if (task->under_way || task->held_extents) return false;
    /* The last one stays until its source is at rest. */
    bool last = task->admitted && task->source->tasks == task && !task->next_of_source;
    return !last || !task->source->out;
}

void fby_subscription_free(fby_subscription *task)
{
    if (!task) return;
    for (uint32_t i = 0; i < task->ledger_count; i++) free(task->ledgers[i].entries);
    free(task->ledgers);
    free(task->pending);
    free(task->extents);
    free(task->bad_counts);
    fby_subset_destroy(&task->subset);
    free(task->resumed);
    free(task->job);
    free(task->base);
    fby_echo_destroy(&task->echo_before);
    fby_batches_free(task);
    fby_bad_set_free(&task->bad_known);
    if (task->event_fd >= 0) close(task->event_fd);
    if (task->classes_fd >= 0) close(task->classes_fd);
    fby_region_close(&task->down);
    fby_region_close(&task->up);
    fby_spec_free(&task->spec);
    fby_budget_give(&task->server->budget, task->reserved_bytes);
    free(task);
}
