/* A crew: the ranks of one task, which the sampler knows as one task. Who belongs together, and how they go
 * on from states. */
#include <forebay/forebay.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataplane/protocol/crash.h"
#include "dataplane/server/internal.h"

/* --- going on
 * ---------------------------------------------------------------------------------------------------------
 */

static fby_sampler_task sampled_as(fby_subscription *task)
{
    const fby_spec *spec = task->spec;
    return (fby_sampler_task){.order = spec->order,
                              .seed = spec->seed,
                              .epochs = spec->epochs,
                              .batch = spec->batch_size,
                              .drop_last = spec->drop_last,
                              .ranks = spec->ranks,
                              .window = spec->window,
                              .made = &task->subset};
}

/* The sampler has what it needs of it: its head is all that is left. */
static void state_cut(fby_subscription *task)
{
    fby_state_head *head = task->resumed ? realloc(task->resumed, sizeof *head) : NULL;
    if (head) task->resumed = head;
}

/* The first epoch of ranks of which some go on from a state: that of the rank that is least far. */
static int crew_epoch_find(fby_subscription *const *of, uint32_t ranks, uint64_t *first, fby_error *error)
{
    uint32_t least = 0, most = 0;
    uint64_t epochs[FBY_SAMPLER_RANKS] = {0}, places[FBY_SAMPLER_RANKS] = {0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (of[rank]->resumed) places[rank] = fby_state_next(of[rank]->resumed, &epochs[rank]);
        if (epochs[rank] < epochs[least]) least = rank;
        if (epochs[rank] > epochs[most] || (epochs[rank] == epochs[most] && places[rank] > places[most]))
            most = rank;
    }
    *first = epochs[least];
    bool together = epochs[most] == *first || (epochs[most] == *first + 1 && !places[most]);
    if (together && epochs[most] > *first) /* what they had of the first epoch must be known */
        for (uint32_t rank = 0; rank < ranks && together; rank++)
            together = epochs[rank] == *first || of[rank]->resumed->epoch == *first;
    if (together) return 0;
    return fby_fail(
        error, FBY_EINVAL,
        "%s: rank %u goes on at sample %llu of epoch %llu, but rank %u at sample %llu of epoch %llu: "
        "expected states that all ranks saved after the same batch",
        of[0]->spec->name, most, (unsigned long long)places[most], (unsigned long long)epochs[most], least,
        (unsigned long long)places[least], (unsigned long long)epochs[least]);
}

/* All ranks are there, some of them with a state: the sampler is told of what all of them had. */
static int crew_resume(fby_source *source, fby_crew *crew, fby_subscription *last, fby_error *error)
{
    fby_subscription *of[FBY_SAMPLER_RANKS];
    bool any = false;
    for (uint32_t rank = 0; rank < crew->ranks; rank++) {
        of[rank] = rank == last->rank ? last : crew->of[rank];
        any = any || of[rank]->resumed;
    }
    if (!any) return 0;
    uint64_t given[FBY_SAMPLER_RANKS] = {0};
    fby_sampler_task what = sampled_as(last);
    int status = crew_epoch_find(of, crew->ranks, &what.first_epoch, error);
    if (status) return status;
    uint64_t words = last->described.samples / 64 + 1;
    uint64_t *had = calloc(words, sizeof *had);
    if (!had) return fby_fail(error, FBY_ENOMEM, "%s: no memory for a state", last->spec->name);
    for (uint32_t rank = 0; rank < crew->ranks; rank++) {
        fby_state_head *state = of[rank]->resumed;
        if (!state) continue;
        if (state->visits > what.visits) what.visits = state->visits;
        if (state->epoch != what.first_epoch) continue;
        given[rank] = fby_echoes_fresh_had(of[rank], fby_sampler_samples(source->sampler, crew->bit));
        what.behind = state->behind; /* all the same: they ran together */
        const uint64_t *bitmap = fby_state_bitmap(state);
        for (uint64_t i = 0; i < fby_state_words(state); i++) had[i] |= bitmap[i];
    }
    what.given = given;
    what.had = had;
    uint32_t bit;
    status = fby_sampler_join(source->sampler, &what, &bit, error);
    free(had);
    if (status) return status;
    source->crews[crew->bit] = NULL;
    fby_sampler_leave(source->sampler, crew->bit);
    crew->bit = bit;
    source->crews[bit] = crew;
    for (uint32_t rank = 0; rank < crew->ranks; rank++) {
        of[rank]->bit = bit;
        state_cut(of[rank]);
    }
    return 0;
}

/* --- who belongs together
 * --------------------------------------------------------------------------------------------------- */

static bool is_of_process(const fby_subscription *task, int process)
{
    return process > 0 && task->process == process; /* 0: of another pid namespace, it can't be told */
}

/* Ranks of its kind can still come to it. */
static bool is_open_to(const fby_crew *crew, const fby_subscription *task)
{
    return !crew->broken && !crew->done && fby_digest_equal(crew->identity, task->identity);
}

static int rank_refuse(const fby_subscription *task, const fby_subscription *there, fby_error *error)
{
    char job[80] = "";
    if (*task->job) snprintf(job, sizeof job, " of job %.60s", task->job);
    return fby_fail(
        error, FBY_EINVAL,
        "%s: rank %u of %u%s is here already, process %d: two jobs with the same spec at a time need a "
        "job id each (fby_task_options.job, Python's job=), and a process of an earlier run has to end "
        "first",
        task->spec->name, task->rank, task->spec->ranks, job, there->process);
}

static int ambiguity_refuse(const fby_subscription *task, fby_error *error)
{
    return fby_fail(
        error, FBY_EINVAL,
        "%s: process %d has several ranks of this task, and rank %u more than once: which of them belong "
        "together can't be told; give each job an id (fby_task_options.job, Python's job=), or close the "
        "earlier ones first",
        task->spec->name, task->process, task->rank);
}

/* The crew that waits for this rank; NULL: none does.
 *
 * A rank that is there already, in another process, may be of another job: the rest of either would find
 * itself in the wrong crew, so it's refused. A process that opens one rank several times (the next trial of a
 * loop, a twin) finds the other ranks' in the order of opening, as all of them do the same; one that has
 * several ranks leaves nothing to go by. */
static int crew_find(const fby_source *source, const fby_subscription *task, fby_crew **out, fby_error *error)
{
    uint32_t crews = 0;
    bool twice = false, others = false;
    *out = NULL;
    for (uint32_t bit = 0; task->spec->ranks > 1 && bit < FBY_SAMPLER_TASKS; bit++) {
        fby_crew *crew = source->crews[bit];
        if (!crew || !is_open_to(crew, task)) continue;
        const fby_subscription *there = crew->of[task->rank];
        if (there && !is_of_process(there, task->process)) return rank_refuse(task, there, error);
        crews++;
        twice = twice || there;
        for (uint32_t rank = 0; rank < crew->ranks; rank++)
            others = others ||
                     (rank != task->rank && crew->of[rank] && is_of_process(crew->of[rank], task->process));
        if (!there && (!*out || crew->age < (*out)->age)) *out = crew;
    }
    return others && (twice || crews > 1) ? ambiguity_refuse(task, error) : FBY_OK;
}

int fby_crew_enter(fby_source *source, fby_subscription *task, fby_error *error)
{
    const fby_spec *spec = task->spec;
    fby_crew *waiting;
    int status = crew_find(source, task, &waiting, error);
    if (status) return status;
    if (waiting) {
        task->crew = waiting;
        task->bit = waiting->bit;
        task->described.crew = waiting->number;
        if (waiting->present + 1 < waiting->ranks) return 0;
        status = crew_resume(source, waiting, task, error);
        if (!status) return 0;
        /* The others would wait for ever. */
        fby_crew_break(task, error);
        task->crew = NULL;
        return status;
    }
    fby_crew *crew = calloc(1, sizeof *crew + spec->ranks * sizeof crew->of[0]);
    if (!crew) return fby_fail(error, FBY_ENOMEM, "%s: no memory for %u ranks", spec->name, spec->ranks);
    crew->ranks = spec->ranks;
    crew->identity = task->identity;
    crew->age = source->server->next_number++;
    crew->end = UINT64_MAX;
    if (crew->ranks > 1 && task->resumed)
        crew->number = task->resumed->identity.crew;
    else if (crew->ranks > 1)
        crew->number =
            ((uint64_t)getpid() << 40 ^ source->server->started_ns) + source->server->next_number++;
    task->described.crew = crew->number;
    fby_sampler_task what = sampled_as(task);
    fby_state_head *state = spec->ranks == 1 ? task->resumed : NULL;
    uint64_t given = 0;
    if (state) {
        given = fby_echoes_fresh_had(task, task->samples);
        what.first_epoch = state->epoch;
        what.visits = state->visits;
        what.behind = state->behind;
        what.given = &given;
        what.had = fby_state_words(state) ? fby_state_bitmap(state) : NULL;
    }
    status = fby_sampler_join(source->sampler, &what, &crew->bit, error);
    if (status) {
        free(crew);
        return status;
    }
    if (state) state_cut(task);
    source->crews[crew->bit] = crew;
    FBY_CRASH_POINT("in the sampler");
    task->crew = crew;
    task->bit = crew->bit;
    return 0;
}

/* --- leaving
 * ----------------------------------------------------------------------------------------------------------
 */

void fby_crew_leave(fby_source *source, fby_subscription *task)
{
    fby_crew *crew = task->crew;
    task->crew = NULL;
    if (crew->of[task->rank] == task) {
        crew->of[task->rank] = NULL;
        crew->present--;
        crew->done++;
    }
    if (crew->present) return;
    source->crews[crew->bit] = NULL;
    fby_sampler_leave(source->sampler, crew->bit);
    FBY_CRASH_POINT("left the sampler");
    free(crew);
}

bool fby_crew_is_whole(const fby_crew *crew)
{
    return crew->present + crew->done >= crew->ranks;
}

void fby_crew_break(fby_subscription *task, const fby_error *why)
{
    fby_crew *crew = task->crew;
    if (!crew || crew->ranks == 1 || crew->broken) return;
    crew->broken = true;
    for (uint32_t rank = 0; rank < crew->ranks; rank++) {
        fby_subscription *other = crew->of[rank];
        if (!other || other == task) continue;
        fby_error error = FBY_ERROR_INIT;
        fby_fail(&error, why->code, "rank %u of this task is gone: %s", task->rank, why->text);
        error.sample = why->sample;
        fby_subscription_fail(other, &error);
    }
}

/* Why its crew has no epoch `epoch`: it left when it had had so many batches of it. */
static void leaving_say(const fby_subscription *task, uint64_t epoch, uint64_t batch, fby_error *error)
{
    char when[120];
    if (batch)
        snprintf(when, sizeof when, "in epoch %llu, after %llu of its %llu batches",
                 (unsigned long long)epoch, (unsigned long long)batch, (unsigned long long)task->batches);
    else if (epoch)
        snprintf(when, sizeof when, "after epoch %llu; epoch %llu needs it", (unsigned long long)epoch - 1,
                 (unsigned long long)epoch);
    else
        snprintf(when, sizeof when, "before its first batch");
    fby_fail(error, FBY_ECLOSED,
             "rank %u of this task is gone: its client, process %d, has closed, or died, %s: close all ranks "
             "together, or say how many `epochs` there are, so that the task ends by itself",
             task->rank, task->process, when);
}

void fby_crew_part(fby_subscription *task)
{
    fby_crew *crew = task->crew;
    if (crew->ranks == 1 || crew->broken) return;
    if (!fby_crew_is_whole(crew)) {
        fby_error error = FBY_ERROR_INIT;
        fby_fail(&error, FBY_ECLOSED,
                 "its client, process %d, has closed, or died, before all ranks were there", task->process);
        if (!task->ended) fby_crew_break(task, &error);
        return;
    }
    uint64_t epoch, batch;
    fby_subscription_taken(task, &epoch, &batch);
    bool last_over = task->spec->epochs && epoch >= task->spec->epochs;
    if (last_over || epoch >= crew->end) return;
    crew->end = epoch;
    crew->why = (fby_error)FBY_ERROR_INIT;
    leaving_say(task, epoch, batch, &crew->why);
    for (uint32_t rank = 0; rank < crew->ranks; rank++)
        if (crew->of[rank] && crew->of[rank] != task) fby_subscription_cut(crew->of[rank]);
}
