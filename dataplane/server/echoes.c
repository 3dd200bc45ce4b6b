/* A source's echoes: which tasks want something fresh, which are owed something again, and draws of the
 * latter.
 *
 * What is emitted again was drawn before, by the sampler, fresh: nothing is drawn anew for it. Its draw looks
 * like any other to the engine and to delivery, but for the repeats' counter, and for the item that keeps
 * what the stage of the echo made. Where it keeps nothing (memory was short, or the fresh run isn't over),
 * the stages above run again: they make the same. */
#include <forebay/forebay.h>
#include <stdlib.h>

#include "dataplane/protocol/crash.h"
#include "dataplane/server/internal.h"

static bool is_auto(const fby_subscription *task)
{
    return !(task->spec->echo.factor > 0);
}

/* Whether its epochs have as many emissions as time allows, and nobody knows how many. */
static bool is_free(const fby_subscription *task)
{
    return is_auto(task) && !task->spec->steps_per_epoch;
}

static bool is_ordered(const fby_subscription *task)
{
    return task->spec->order != FBY_ORDER_SHARED;
}

/* --- coming and going
 * ---------------------------------------------------------------------------------------------------- */

static fby_source_echo *echo_find(fby_source *source, fby_digest key, fby_error *error)
{
    fby_source_echo *found = source->echoes;
    while (found && !fby_digest_equal(found->key, key)) found = found->next;
    if (found) return found;
    found = calloc(1, sizeof *found);
    if (!found) {
        fby_fail(error, FBY_ENOMEM, "no memory for an echo");
        return NULL;
    }
    if (fby_echo_create(&found->echo, key.low, error)) {
        free(found);
        return NULL;
    }
    found->key = key;
    found->next = source->echoes;
    source->echoes = found;
    return found;
}

/* What a fixed order's emissions depend on, beside epoch, factor, buffer and batch. */
static uint64_t history_of(const fby_subscription *task)
{
    const fby_task_identity *of = &task->described;
    uint64_t parts[] = {of->order, of->seed, of->subset, of->drop_last, of->ranks, task->rank}, hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        hash = (hash ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static fby_echo_seat_options seat_options(const fby_subscription *task, uint64_t fresh, uint64_t epoch)
{
    const fby_spec_echo *echo = &task->spec->echo;
    return (fby_echo_seat_options){.factor = echo->factor,
                                   .max = echo->max,
                                   .total = fby_spec_steps_samples(task->spec, fresh),
                                   .buffer = echo->buffer,
                                   .batch = task->spec->batch_size,
                                   .drop_last = task->spec->drop_last,
                                   .part = fresh,
                                   .epoch = epoch,
                                   .ordered = is_ordered(task),
                                   .history = history_of(task)};
}

uint64_t fby_echoes_samples(const fby_subscription *task, uint64_t fresh)
{
    if (task->described.echo != FBY_STATE_ECHO_COUNTED) return fresh;
    const fby_echo_seat_options what = seat_options(task, fresh, 0);
    return fby_echo_samples(&what);
}

int fby_echoes_restore(fby_subscription *task, uint64_t fresh, fby_error *error)
{
    fby_state_head *state = task->resumed;
    uint64_t epoch, emitted = fby_state_next(state, &epoch);
    if (!emitted) return FBY_OK;
    const fby_echo_seat_options what = seat_options(task, fresh, epoch);
    if (what.ordered) return fby_echo_replay(&task->echo_before, &what, emitted, error);
    return fby_echo_restore(&task->echo_before, &what, emitted, fby_state_counts(state),
                            state->identity.samples, error);
}

uint64_t fby_echoes_fresh_had(const fby_subscription *task, uint64_t part)
{
    if (task->described.echo != FBY_STATE_ECHO_COUNTED) return task->resumed->position;
    if (task->resumed->position && task->resumed->position == task->resumed->part) return part;
    if (task->echo_before) return fby_echo_fresh_of(task->echo_before, 0);
    /* A rank that has its seat already, while the others were still to come. */
    return task->echo ? fby_echo_fresh_of(task->echo->echo, task->seat) : 0;
}

static uint32_t id_at(void *user, uint64_t position)
{
    const fby_subscription *task = user;
    return fby_sampler_id_at(task->source->sampler, task->bit, task->rank, position,
                             fby_echo_epoch(task->echo->echo, task->seat));
}

int fby_echoes_join(fby_subscription *task, fby_error *error)
{
    if (task->spec->echo.kind != FBY_ECHO_SAMPLES) return FBY_OK;
    task->echo = echo_find(task->source, task->echo_key, error);
    if (!task->echo) return FBY_ENOMEM;
    uint64_t epoch = 0;
    uint64_t position = task->resumed ? fby_state_next(task->resumed, &epoch) : 0;
    fby_echo_seat_options what = seat_options(task, task->samples, epoch);
    if (is_free(task)) what.fresh = position;
    if (task->echo_before) {
        uint64_t turn = is_ordered(task) ? epoch : task->resumed->visits ? task->resumed->visits - 1 : 0;
        fby_echo_adopt(task->echo->echo, task->seat, &task->echo_before, turn,
                       is_ordered(task) ? id_at : NULL, task);
    } else {
        fby_echo_enter(task->echo->echo, task->seat, &what);
    }
    if (is_free(task)) {
        task->batches = 0; /* it can't be told */
        return FBY_OK;
    }
    task->samples = fby_echo_samples(&what);
    task->batches = (task->samples + what.batch - 1) / what.batch;
    return FBY_OK;
}

void fby_echoes_part(fby_subscription *task)
{
    if (!task->echo) return;
    fby_echo_leave(task->echo->echo, task->seat);
    task->echo = NULL;
}

void fby_echoes_free(fby_source *source)
{
    while (source->echoes) {
        fby_source_echo *echo = source->echoes;
        source->echoes = echo->next;
        fby_echo_destroy(&echo->echo);
        free(echo);
    }
}

void fby_echoes_abandon(fby_subscription *task, uint64_t next)
{
    if (task->echo && fby_echo_epoch(task->echo->echo, task->seat) < next)
        fby_echo_abandon(task->echo->echo, task->seat, next);
}

/* --- fresh ones
 * ---------------------------------------------------------------------------------------------------- */

/* auto keeps room in the window for one batch that comes again, where one can, while fresh ones are under
 * way. */
static bool leaves_room(const fby_subscription *task)
{
    if (!fby_echo_wants_again(task->echo->echo, task->seat)) return true;
    uint64_t queued = fby_sampler_queued(task->source->sampler, task->bit, task->rank);
    uint64_t batch = task->spec->batch_size;
    return queued < batch ||
           queued + 2 * batch <= task->window_samples; /* a batch once begun must be filled */
}

uint64_t fby_echoes_sated(fby_source *source)
{
    uint64_t sated = 0;
    for (uint32_t bit = 0; bit < FBY_SAMPLER_TASKS; bit++) {
        const fby_crew *crew = source->crews[bit];
        uint32_t rank = crew ? fby_sampler_next_rank(source->sampler, bit) : FBY_SAMPLER_RANKS;
        const fby_subscription *task = crew && rank < crew->ranks ? crew->of[rank] : NULL;
        if (!task || !task->echo) continue;
        uint64_t wants = fby_echo_wants_fresh(task->echo->echo, task->seat);
        if (!wants || (is_auto(task) && !leaves_room(task)))
            sated |= UINT64_C(1) << bit;
        else if (is_ordered(task))
            fby_sampler_limit(source->sampler, bit, rank, wants);
    }
    return sated;
}

/* The number of the task's echo among those of the draw. */
static uint32_t echo_of_draw(fby_drawn *drawn, const fby_subscription *task)
{
    uint32_t k = 0;
    while (k < drawn->echo_count && drawn->echoes[k].echo != task->echo) k++;
    if (k < drawn->echo_count) return k;
    drawn->echoes[k].echo = task->echo;
    drawn->echoes[k].seats = 0;
    if (k < FBY_LOT_ECHOES)
        drawn->lot.echo_stages[k] = fby_plan_stage_find(drawn->source->plan, task->echo_key);
    drawn->echo_count++;
    return k;
}

/* Of more echoes than a lot keeps results for, the others' are made once more each time. */
static void items_make(fby_drawn *drawn)
{
    drawn->lot.echo_count = drawn->echo_count < FBY_LOT_ECHOES ? drawn->echo_count : FBY_LOT_ECHOES;
    for (uint32_t i = 0; i < drawn->lot.count; i++)
        for (uint32_t k = 0; k < drawn->lot.echo_count; k++) {
            fby_kept_item *item = fby_kept_item_make(&drawn->source->server->budget);
            if (item) item->awaited = true;
            drawn->lot.jobs[i].items[k] = item;
        }
}

/* What isn't noted would be missing from its epoch, and whoever counts its batches would wait for it. */
static void fail_without_memory(fby_drawn *drawn, uint32_t k, uint64_t seats)
{
    fby_error why = FBY_ERROR_INIT;
    fby_fail(&why, FBY_ENOMEM,
             "no memory to note what an echo emits again; free some, or make its buffer smaller");
    for (fby_subscription *task = drawn->source->tasks; task; task = task->next_of_source)
        if (task->echo == drawn->echoes[k].echo && seats & fby_seat_bit(task))
            fby_subscription_fail(task, &why);
}

/* The samples of the draw are owed to `seats` of its k-th echo. */
static void owe(fby_drawn *drawn, uint32_t k, uint64_t seats)
{
    for (uint32_t i = 0; seats && i < drawn->lot.count; i++) {
        const fby_job *job = &drawn->lot.jobs[i];
        const fby_echo_fresh fresh = {(uint32_t)job->id, job->turn, job->epoch,
                                      k < drawn->lot.echo_count ? job->items[k] : NULL};
        if (fby_echo_add(drawn->echoes[k].echo->echo, seats, &fresh)) {
            fail_without_memory(drawn, k, seats);
            return;
        }
    }
}

void fby_echoes_drawn(fby_drawn *drawn)
{
    fby_source *source = drawn->source;
    uint64_t ordered[FBY_SEATS] = {0};
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        fby_pending *pending = task->echo ? fby_pending_of(task, drawn) : NULL;
        if (!pending) continue;
        fby_echoes_abandon(task, pending->epoch); /* another rank may have given up the epoch before */
        uint32_t k = echo_of_draw(drawn, task);
        if (is_ordered(task))
            ordered[k] |= fby_seat_bit(task);
        else
            drawn->echoes[k].seats |= fby_seat_bit(task);
    }
    items_make(drawn);
    FBY_CRASH_POINT("items made");
    /* Fixed orders owe a sample from its draw on: nothing may depend on when it is made. */
    for (uint32_t k = 0; k < drawn->echo_count; k++) owe(drawn, k, ordered[k]);
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        fby_pending *pending = task->echo ? fby_pending_of(task, drawn) : NULL;
        if (!pending) continue;
        pending->epoch_last = fby_echo_drawn(task->echo->echo, task->seat, drawn->lot.count);
        if (pending->epoch_last) task->drawn_epochs = pending->epoch + 1;
    }
}

/* Hands over what waited for items that are made by now. */
static void waiting_submit(fby_source *source)
{
    for (fby_drawn **link = &source->waiting; *link;) {
        fby_drawn *drawn = *link;
        if (fby_echoes_awaits(drawn)) {
            link = &drawn->next;
            continue;
        }
        *link = drawn->next;
        FBY_CRASH_POINT("no longer awaited");
        fby_engine_submit(source->server->engine, &drawn->lot);
    }
}

bool fby_echoes_awaits(const fby_drawn *drawn)
{
    for (uint32_t i = 0; fby_echoes_is_again(drawn) && i < drawn->lot.count; i++)
        if (drawn->lot.jobs[i].items[0] && drawn->lot.jobs[i].items[0]->awaited) return true;
    return false;
}

void fby_echoes_finished(fby_drawn *drawn)
{
    for (uint32_t i = 0; i < drawn->lot.count; i++)
        for (uint32_t k = 0; k < drawn->lot.echo_count; k++)
            if (drawn->lot.jobs[i].items[k]) drawn->lot.jobs[i].items[k]->awaited = false;
    for (uint32_t k = 0; k < drawn->echo_count; k++) {
        uint64_t seats = 0;
        for (const fby_subscription *task = drawn->source->tasks; task; task = task->next_of_source) {
            bool fresh = task->echo == drawn->echoes[k].echo && drawn->echoes[k].seats & fby_seat_bit(task);
            const fby_pending *pending = fresh ? fby_pending_of(task, drawn) : NULL;
            if (pending && fby_echo_epoch(task->echo->echo, task->seat) == pending->epoch)
                seats |= fby_seat_bit(task);
        }
        owe(drawn, k, seats);
    }
    waiting_submit(drawn->source);
}

/* --- again
 * ---------------------------------------------------------------------------------------------------- */

/* auto: whether the task is about to wait: its client has taken all, or all but one batch where fresh ones
 * take longer than a step, and nothing that is ready, or comes again, is on its way. */
static bool is_about_to_wait(const fby_subscription *task)
{
    uint32_t untaken = task->delivery.tail - fby_delivery_head(task->up.base);
    double step_s = fby_pace_step_s(task, fby_now_ns());
    bool slow = step_s > 0 && fby_pace_batch_s(task) > step_s;
    if (untaken > (slow ? task->batch_extents : 0)) return false;
    for (uint32_t i = 0; i < task->pending_count; i++)
        if (task->pending[i].again || !task->pending[i].drawn->filling) return false;
    return true;
}

/* Whether the task can take emissions that come again, and is owed some. */
static bool wants_again(fby_subscription *task)
{
    const fby_crew *crew = task->crew;
    if (!task->joined || crew->broken || !fby_crew_is_whole(crew)) return false;
    if (fby_echo_epoch(task->echo->echo, task->seat) >= crew->end) return false;
    if (!fby_echo_wants_again(task->echo->echo, task->seat)) return false;
    if (!fby_sampler_ready(task->source->sampler, task->bit, task->rank)) return false;
    if (!fby_echo_is_due(task->echo->echo, task->seat) && !is_about_to_wait(task)) return false;
    return fby_subscription_able(task);
}

/* Whether a task that wants something again needs it now. What isn't due it wants only where it is about to
 * wait. */
static bool is_urgent(const fby_subscription *task)
{
    if (!fby_echo_is_due(task->echo->echo, task->seat)) return true;
    return fby_sampler_urgent(task->source->sampler, task->bit, task->rank) ||
           (is_auto(task) && is_about_to_wait(task));
}

/* The tasks of an echo that want something again, and the one of them that needs it soonest; NULL: none does.
 */
static fby_subscription *hungriest_find(fby_source *source, const fby_source_echo *echo, uint64_t *ready)
{
    fby_subscription *hungriest = NULL;
    uint64_t fewest = 0;
    *ready = 0;
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        if (task->echo != echo || !wants_again(task)) continue;
        *ready |= fby_seat_bit(task);
        uint64_t queued = fby_sampler_queued(source->sampler, task->bit, task->rank);
        if (!is_urgent(task) || (hungriest && queued >= fewest)) continue;
        hungriest = task;
        fewest = queued;
    }
    return hungriest;
}

/* Makes a draw of the emissions. */
static void again_submit(fby_drawn *drawn, fby_source_echo *echo, const fby_echo_draw *draw)
{
    fby_source *source = drawn->source;
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        if (task->echo != echo || !(draw->seats & fby_seat_bit(task))) continue;
        bool last = draw->epoch_ends & fby_seat_bit(task);
        fby_drawn_target(drawn, task, draw->epochs[task->seat], last)->again = true;
        if (last) task->drawn_epochs = draw->epochs[task->seat] + 1;
        fby_sampler_take(source->sampler, task->bit, task->rank, draw->count);
        drawn->lot.echo_stages[0] = fby_plan_stage_find(source->plan, task->echo_key);
    }
    drawn->lot.count = draw->count;
    drawn->lot.echo_count = 1;
    for (uint32_t i = 0; i < draw->count; i++) {
        fby_job *job = &drawn->lot.jobs[i];
        job->id = draw->emissions[i].fresh.id;
        job->turn = draw->emissions[i].fresh.turn;
        job->epoch = draw->emissions[i].fresh.epoch;
        job->repeat = draw->emissions[i].repeat;
        job->items[0] = draw->emissions[i].fresh.kept; /* held by the draw so far, by the job from now on */
        drawn->flags[i] = FBY_SAMPLE_REPEAT;
    }
    source->again_draws++;
    source->again_samples += draw->count;
    fby_drawn_submit(drawn);
    FBY_CRASH_POINT("emitted again");
}

bool fby_echoes_draw(fby_source *source)
{
    static fby_echo_draw draw; /* the conductor's alone, and large */
    for (fby_source_echo *echo = source->echoes; echo; echo = echo->next) {
        uint64_t ready;
        fby_subscription *hungriest = hungriest_find(source, echo, &ready);
        fby_drawn *drawn = hungriest ? fby_drawn_take(source) : NULL;
        if (!drawn) continue;
        if (fby_echo_draw_again(echo->echo, hungriest->seat, ready, hungriest->spec->batch_size, &draw)) {
            again_submit(drawn, echo, &draw);
            return true;
        }
        fby_drawn_put_away(drawn);
    }
    return false;
}
