/* A crew: the ranks of one task, which the sampler knows as one task. Who belongs together, and how they go on
 * from states. */
#include <forebay/forebay.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataplane/protocol/crash.h"
#include "dataplane/server/internal.h"

static fby_sampler_task sampled_as(const fby_subscription *task)
{
    const fby_spec *spec = task->spec;
    return (fby_sampler_task){.order = spec->order,
                              .seed = spec->seed,
                              .epochs = spec->epochs,
                              .batch = spec->batch_size,
                              .drop_last = spec->drop_last,
                              .ranks = spec->ranks,
                              .window = spec->window,
                              .subset = task->subset};
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

int fby_crew_enter(fby_source *source, fby_subscription *task, fby_error *error)
{
    const fby_spec *spec = task->spec;
    for (uint32_t bit = 0; spec->ranks > 1 && bit < FBY_SAMPLER_TASKS; bit++) {
        fby_crew *crew = source->crews[bit];
        if (!crew || crew->broken || crew->done || !fby_digest_equal(crew->identity, task->identity) ||
            crew->of[task->rank])
            continue;
        task->crew = crew;
        task->bit = bit;
        task->described.crew = crew->number;
        if (crew->present + 1 < crew->ranks) return 0;
        int status = crew_resume(source, crew, task, error);
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
    int status = fby_sampler_join(source->sampler, &what, &crew->bit, error);
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
