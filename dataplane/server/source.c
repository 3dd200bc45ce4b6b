/* A source's tasks: who is in, the plan that all of them make, the memory that they need, and their draws.
 *
 * Memory. A group has room for the windows of all its tasks, and for each of them one more draw: a task that
 * is still below its window takes a whole one. Hence as long as a task needs something its group has places
 * for it, whatever the others hold. Who joins brings what is missing then, in every group of the source where
 * its batch is the largest yet. */
#include <forebay/forebay.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/protocol/crash.h"
#include "dataplane/server/internal.h"
#include "ringbuf/atomic.h"

/* --- memory
 * -------------------------------------------------------------------------------------------------------- */

/* The places that a group of this key needs, `with` included where it isn't NULL. */
static uint64_t places_needed(const fby_source *source, fby_digest key, const fby_subscription *with)
{
    uint64_t most = source->batch_most, windows = 0, tasks = 0;
    if (with && with->spec->batch_size > most) most = with->spec->batch_size;
    for (const fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        if (!fby_digest_equal(task->key, key)) continue;
        windows += task->window_samples + task->kept_samples;
        tasks++;
    }
    if (with && fby_digest_equal(with->key, key)) {
        windows += with->window_samples + with->kept_samples;
        tasks++;
    }
    return tasks ? windows + tasks * most + SPARE_PLACES : 0;
}

uint64_t fby_group_needs(const fby_group *group)
{
    return places_needed(group->source, group->key, NULL);
}

static fby_group *group_find(const fby_source *source, fby_digest key)
{
    fby_group *group = source->groups;
    while (group && !fby_digest_equal(group->key, key)) group = group->next;
    return group;
}

/* A store with a block number of its own, to be made by the set-up thread. */
static fby_store *store_reserve(fby_source *source, uint32_t places)
{
    /* 0 is no block: a zeroed word names none. Numbers go round, so that what a client may still map isn't
     * named anew soon. */
    uint32_t block = source->next_block, tried = 0;
    do {
        if (++tried == BLOCKS_MOST) return NULL;
        block = block + 1 < BLOCKS_MOST ? block + 1 : 1;
    } while (block < source->store_room && source->stores[block]);
    source->next_block = block;
    if (block >= source->store_room) {
        uint32_t room = source->store_room ? source->store_room * 2 : 64;
        while (room <= block) room *= 2;
        fby_store **larger = realloc(source->stores, room * sizeof *larger);
        if (!larger) return NULL;
        memset(larger + source->store_room, 0, (room - source->store_room) * sizeof *larger);
        source->stores = larger;
        source->store_room = room;
    }
    fby_store *store = calloc(1, sizeof *store);
    if (!store) return NULL;
    store->block = block;
    store->places = places;
    store->segment.fd = -1;
    source->stores[block] = store;
    return store;
}

static bool grown_add(fby_source *source, fby_setup_job *job, fby_digest key, const fby_branch_info *info,
                      uint64_t places)
{
    while (places) {
        uint32_t part = places < STORE_PLACES_MOST ? (uint32_t)places : STORE_PLACES_MOST;
        struct fby_grown *larger = realloc(job->grown, (job->grown_count + 1) * sizeof *larger);
        if (!larger) return false;
        job->grown = larger;
        fby_store *store = store_reserve(source, part);
        if (!store) return false;
        job->grown[job->grown_count++] = (struct fby_grown){store, key, *info};
        places -= part;
    }
    return true;
}

/* Lists what is missing for `task` to come in; false without memory for the list. */
static bool missing_list(fby_source *source, const fby_subscription *task, fby_setup_job *job)
{
    bool found = false;
    for (fby_group *group = source->groups; group; group = group->next) {
        uint64_t needed = places_needed(source, group->key, task);
        found = found || fby_digest_equal(group->key, task->key);
        if (needed > group->places &&
            !grown_add(source, job, group->key, &group->info, needed - group->places))
            return false;
    }
    return found || grown_add(source, job, task->key, &task->branch, places_needed(source, task->key, task));
}

static void store_use(fby_group *group, fby_store *store)
{
    store->group = group;
    store->next = group->stores;
    group->stores = store;
    group->places += store->places;
    group->free += store->places;
}

void fby_source_unmake(fby_server *server, fby_setup_job *job)
{
    for (uint32_t i = 0; i < job->grown_count; i++) {
        fby_store *store = job->grown[i].store;
        job->task->source->stores[store->block] = NULL;
        if (store->bytes) fby_budget_give(&server->budget, store->bytes);
        store->bytes = 0;
    }
}

/* Unmapping takes long: the set-up thread's. */
static void region_drop(fby_server *server, fby_region *region)
{
    fby_setup_job *job = calloc(1, sizeof *job);
    if (!job) {
        fby_region_close(region);
        return;
    }
    job->kind = SETUP_FREE;
    job->region = *region;
    *region = (fby_region){.fd = -1};
    fby_setup_submit(server, job);
}

/* Its segment is unmapped here; its bytes count until the last client has let go of it. */
static void store_retire(fby_source *source, fby_store *store)
{
    fby_group *group = store->group;
    fby_store **link = &group->stores;
    while (*link != store) link = &(*link)->next;
    *link = store->next;
    source->stores[store->block] = NULL;
    store->group = NULL;
    FBY_CRASH_POINT("segment retires");
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source)
        if (task->group == group) fby_subscription_forget(task, store->block);
    region_drop(source->server, &store->segment);
    if (!store->mapped) {
        fby_budget_give(&source->server->budget, store->bytes);
        fby_store_free(store);
        return;
    }
    store->next = source->gone;
    source->gone = store;
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        if (!(store->mapped & fby_seat_bit(task))) continue;
        /* Relaxed: a hint to ask; the answer is what counts. */
        fby_store_relaxed_u32(&((fby_down_words *)task->down.base)->gone, ++task->gone);
    }
}

/* The client of a seat doesn't map what is gone any more. */
static void seat_unmaps(fby_source *source, uint32_t seat, bool everything)
{
    for (fby_store **link = &source->gone; *link;) {
        fby_store *store = *link;
        store->mapped &= ~(UINT64_C(1) << seat);
        if (store->mapped) {
            link = &store->next;
            continue;
        }
        *link = store->next;
        fby_budget_give(&source->server->budget, store->bytes);
        fby_store_free(store);
    }
    for (uint32_t i = 0; everything && i < source->store_room; i++)
        if (source->stores[i]) source->stores[i]->mapped &= ~(UINT64_C(1) << seat);
}

/* Lets go of the memory that the tasks here don't need. */
static void groups_shrink(fby_source *source)
{
    for (fby_group **link = &source->groups; *link;) {
        fby_group *group = *link;
        uint64_t needed = places_needed(source, group->key, NULL);
        for (fby_store *store = group->stores, *next; store; store = next) {
            next = store->next;
            if (!store->retiring && group->places - store->places >= needed) {
                store->retiring = true;
                group->places -= store->places;
                group->free -= store->free_count;
            }
            if (store->retiring && store->free_count == store->places) store_retire(source, store);
        }
        if (group->stores || needed) {
            link = &group->next;
            continue;
        }
        *link = group->next;
        free(group);
    }
}

void fby_source_tidy(fby_source *source)
{
    if (!source->shrinks) return;
    source->shrinks = false;
    groups_shrink(source);
}

uint32_t fby_source_blocks(fby_subscription *task, uint32_t *blocks, uint32_t most)
{
    uint32_t count = 0;
    seat_unmaps(task->source, task->seat, false);
    for (const fby_store *store = task->group->stores; store && count < most; store = store->next)
        if (store->mapped & fby_seat_bit(task)) blocks[count++] = store->block;
    return count;
}

int fby_source_segment(fby_subscription *task, uint32_t block)
{
    fby_source *source = task->source;
    fby_store *store = block < source->store_room ? source->stores[block] : NULL;
    if (!store || store->group != task->group) return -1;
    store->mapped |= fby_seat_bit(task);
    return store->segment.fd;
}

/* --- the plan
 * ------------------------------------------------------------------------------------------------------ */

/* One branch for each group, by the pipeline of any of its tasks. */
static int plan_make(fby_source *source, fby_error *error)
{
    const fby_spec *specs[FBY_SEATS];
    fby_group *groups[FBY_SEATS];
    uint32_t count = 0;
    for (fby_group *group = source->groups; group; group = group->next) {
        const fby_subscription *task = source->tasks;
        while (task && (task->group != group || !task->joined)) task = task->next_of_source;
        if (!task) continue;
        groups[count] = group;
        specs[count++] = task->spec;
    }
    fby_plan *plan = NULL;
    int status = count ? fby_plan_create(&plan, specs, count, source->fingerprint, error) : 0;
    if (status) return status;
    for (uint32_t i = 0; i < count; i++) groups[i]->branch = i;
    if (plan) fby_caches_attach(source, plan);
    fby_plan_destroy(&source->plan); /* draws under way hold what they were drawn under */
    source->plan = plan;
    return 0;
}

/* --- coming and going
 * ---------------------------------------------------------------------------------------------- */

static void batch_most_find(fby_source *source)
{
    source->batch_most = 0;
    for (const fby_subscription *task = source->tasks; task; task = task->next_of_source)
        if (task->spec->batch_size > source->batch_most) source->batch_most = task->spec->batch_size;
}

/* Puts the stores of a job to use; groups that went meanwhile are made anew. */
static int grown_take(fby_source *source, fby_setup_job *job, fby_error *error)
{
    while (job->grown_count) {
        struct fby_grown *grown = &job->grown[job->grown_count - 1];
        fby_group *group = group_find(source, grown->key);
        if (!group) {
            group = calloc(1, sizeof *group);
            if (!group) return fby_fail(error, FBY_ENOMEM, "no memory for a group of tasks");
            group->source = source;
            group->key = grown->key;
            group->info = grown->info;
            group->next = source->groups;
            source->groups = group;
        }
        store_use(group, grown->store);
        FBY_CRASH_POINT("segment in use");
        job->grown_count--;
    }
    return 0;
}

static int task_join(fby_source *source, fby_subscription *task, fby_error *error)
{
    if (source->seats == UINT64_MAX)
        return fby_fail(
            error, FBY_EFULL,
            "%s: %d tasks draw from this data already, or hold samples of it: one has to end first",
            task->spec->name, FBY_SEATS);
    int status = fby_crew_enter(source, task, error);
    if (status) return status;
    task->group = group_find(source, task->key);
    task->seat = (uint32_t)__builtin_ctzll(~source->seats);
    task->batches = fby_sampler_batches(source->sampler, task->bit);
    task->samples = fby_sampler_samples(source->sampler, task->bit);
    if (fby_batches_echo(task)) task->batches = fby_batches_of(task, task->batches);
    status = fby_echoes_join(task, error);
    if (status) {
        fby_crew_break(task, error);
        fby_crew_leave(source, task);
        return status;
    }
    task->joined = true;
    task->next_of_source = source->tasks;
    source->tasks = task;
    status = plan_make(source, error);
    if (status) {
        source->tasks = task->next_of_source;
        task->joined = false;
        fby_echoes_part(task);
        fby_crew_break(task, error);
        fby_crew_leave(source, task);
        return status;
    }
    source->seats |= fby_seat_bit(task);
    task->crew->of[task->rank] = task;
    task->crew->present++;
    task->admitted = true;
    FBY_CRASH_POINT("admitted");
    batch_most_find(source);
    return 0;
}

int fby_source_admit(fby_source *source, fby_subscription *task, fby_setup_job *job, fby_error *error)
{
    int status = grown_take(source, job, error);
    if (!status && !missing_list(source, task, job))
        status =
            fby_fail(error, FBY_ENOMEM, "%s: no memory for one more task's bookkeeping", task->spec->name);
    if (!status && job->grown_count) return 0;
    if (!status) status = task_join(source, task, error);
    if (status) {
        groups_shrink(source);
        return status;
    }
    if (!task->next_of_source) { /* its first */
        source->next = source->server->sources;
        source->server->sources = source;
    }
    return 1;
}

void fby_source_part(fby_subscription *task)
{
    if (!task->joined) return;
    fby_source *source = task->source;
    fby_error error = FBY_ERROR_INIT;
    fby_crew_part(task);
    task->joined = false;
    fby_echoes_part(task);
    fby_crew_leave(source, task);
    /* Without memory the old plan stays: it has a branch that nobody asks for. */
    if (plan_make(source, &error))
        fby_server_log(source->server, "a plan can't be made anew: %s", error.text);
}

static void drawn_free(fby_drawn *drawn);

void fby_source_forget(fby_subscription *task)
{
    if (!task->admitted) return;
    fby_source *source = task->source;
    task->admitted = false;
    source->seats &= ~(fby_seat_bit(task));
    FBY_CRASH_POINT("seat free");
    fby_subscription **link = &source->tasks;
    while (*link != task) link = &(*link)->next_of_source;
    *link = task->next_of_source;
    seat_unmaps(source, task->seat, true);
    batch_most_find(source);
    groups_shrink(source);
    if (source->tasks) return;
    fby_source **listed = &source->server->sources;
    while (*listed != source) listed = &(*listed)->next;
    *listed = source->next;
    while (source->spare) {
        fby_drawn *drawn = source->spare;
        source->spare = drawn->next;
        drawn_free(drawn);
    }
    fby_echoes_free(source);
    fby_plan_destroy(&source->plan);
}

/* --- draws
 * ---------------------------------------------------------------------------------------------------------
 */

/* It was held while the draw was under way. */
static void plan_leave(fby_drawn *drawn)
{
    fby_plan *plan = (fby_plan *)drawn->lot.plan;
    fby_plan_destroy(&plan);
    drawn->lot.plan = NULL;
}

/* What echoes keep of it is theirs alone from now on. */
static void echoes_leave(fby_drawn *drawn)
{
    for (uint32_t k = 0; k < drawn->lot.echo_count; k++)
        for (uint32_t i = 0; i < drawn->lot.count; i++) fby_kept_item_release(drawn->lot.jobs[i].items[k]);
    drawn->lot.echo_count = drawn->echo_count = 0;
}

static void drawn_free(fby_drawn *drawn)
{
    plan_leave(drawn);
    echoes_leave(drawn);
    for (uint32_t i = 0; i < drawn->part_room && drawn->parts; i++) {
        free(drawn->parts[i].places);
        if (drawn->lot.outputs) free(drawn->lot.outputs[i].targets);
    }
    free(drawn->parts);
    free(drawn->lot.outputs);
    free(drawn->lot.jobs);
    free(drawn->flags);
    free(drawn->repairs);
    free(drawn);
}

static fby_drawn *drawn_make(fby_source *source, uint32_t jobs, uint32_t parts)
{
    fby_drawn *drawn = calloc(1, sizeof *drawn);
    if (!drawn) return NULL;
    drawn->source = source;
    drawn->lot.owner = drawn;
    drawn->job_room = jobs;
    drawn->part_room = parts;
    drawn->lot.jobs = calloc(jobs, sizeof *drawn->lot.jobs);
    drawn->lot.outputs = calloc(parts, sizeof *drawn->lot.outputs);
    drawn->parts = calloc(parts, sizeof *drawn->parts);
    drawn->flags = calloc(jobs, sizeof *drawn->flags);
    drawn->repairs = calloc(jobs, sizeof *drawn->repairs);
    bool whole = drawn->lot.jobs && drawn->lot.outputs && drawn->parts && drawn->flags && drawn->repairs;
    for (uint32_t i = 0; whole && i < parts; i++) {
        drawn->parts[i].places = calloc(jobs, sizeof *drawn->parts[i].places);
        drawn->lot.outputs[i].targets = calloc(jobs, sizeof *drawn->lot.outputs[i].targets);
        whole = drawn->parts[i].places && drawn->lot.outputs[i].targets;
    }
    if (whole) return drawn;
    drawn_free(drawn);
    return NULL;
}

static uint32_t groups_count(const fby_source *source)
{
    uint32_t count = 0;
    for (const fby_group *group = source->groups; group; group = group->next) count++;
    return count;
}

fby_drawn *fby_drawn_take(fby_source *source)
{
    uint32_t jobs = source->batch_most < FBY_DRAW_MOST ? source->batch_most : FBY_DRAW_MOST;
    uint32_t parts = groups_count(source);
    fby_drawn *drawn = source->spare;
    if (drawn) {
        source->spare = drawn->next;
        if (drawn->job_room < jobs || drawn->part_room < parts) {
            drawn_free(drawn);
            drawn = NULL;
        }
    }
    if (!drawn) drawn = drawn_make(source, jobs, parts);
    if (!drawn) return NULL;
    drawn->part_count = 0;
    drawn->waiting = 0;
    drawn->filling = false;
    drawn->lot.count = 0;
    drawn->lot.output_count = 0;
    drawn->lot.timeout_ns = 0;
    return drawn;
}

void fby_drawn_put_away(fby_drawn *drawn)
{
    plan_leave(drawn);
    echoes_leave(drawn);
    drawn->next = drawn->source->spare;
    drawn->source->spare = drawn;
}

void fby_drawn_unref(fby_drawn *drawn)
{
    drawn->waiting--;
    if (!drawn->waiting && !drawn->filling) fby_drawn_put_away(drawn);
}

static uint32_t part_of(fby_drawn *drawn, fby_group *group)
{
    for (uint32_t i = 0; i < drawn->part_count; i++)
        if (drawn->parts[i].group == group) return i;
    drawn->parts[drawn->part_count].group = group;
    drawn->parts[drawn->part_count].seats = 0;
    return drawn->part_count++;
}

static bool is_repair(const fby_drawn *drawn)
{
    return drawn->repairs[0].drawn != NULL;
}

static void lot_submit(fby_drawn *drawn)
{
    fby_source *source = drawn->source;
    drawn->filling = true;
    source->out++;
    drawn->lot.plan = fby_plan_hold(source->plan);
    drawn->lot.dataset = source->dataset;
    drawn->lot.output_count = drawn->part_count;
    if (!is_repair(drawn) && !fby_echoes_is_again(drawn)) fby_pace_made(source, false, drawn->lot.count);
    if (fby_echoes_awaits(drawn)) {
        drawn->next = source->waiting;
        source->waiting = drawn;
        return;
    }
    fby_engine_submit(source->server->engine, &drawn->lot);
    FBY_CRASH_POINT("lot submitted");
}

bool fby_subscription_able(fby_subscription *task)
{
    return task->session && !task->failed && !task->closing && !task->ended &&
           task->group->free >= task->source->batch_most && fby_subscription_reserve(task);
}

/* Whether every rank that still needs something can take a draw. */
static bool crew_able(const fby_source *source, const fby_crew *crew)
{
    if (crew->broken || !fby_crew_is_whole(crew)) return false;
    if (fby_sampler_epoch(source->sampler, crew->bit) >= crew->end) return false;
    bool any = false;
    for (uint32_t rank = 0; rank < crew->ranks; rank++) {
        fby_subscription *task = crew->of[rank];
        if (!task || task->ended || task->drawn_epochs >= crew->end) continue;
        if (!fby_subscription_able(task)) return false;
        any = true;
    }
    return any;
}

/* Who can't take a draw now. */
static uint64_t blocked_find(fby_source *source)
{
    uint64_t blocked = 0;
    for (uint32_t bit = 0; bit < FBY_SAMPLER_TASKS; bit++) {
        const fby_crew *crew = source->crews[bit];
        if (!crew) continue;
        if (!crew_able(source, crew)) blocked |= UINT64_C(1) << bit;
        for (uint32_t rank = 0; rank < crew->ranks; rank++)
            if (crew->of[rank]) {
                crew->of[rank]->starving = fby_subscription_starves(crew->of[rank]);
                fby_sampler_starve(source->sampler, bit, rank, crew->of[rank]->starving);
            }
    }
    return blocked;
}

fby_pending *fby_drawn_target(fby_drawn *drawn, fby_subscription *task, uint64_t epoch, bool epoch_last)
{
    uint32_t part = part_of(drawn, task->group);
    drawn->parts[part].seats |= fby_seat_bit(task);
    drawn->waiting++;
    task->under_way++;
    fby_pending *pending = &task->pending[task->pending_count++];
    *pending =
        (fby_pending){.drawn = drawn, .part = part, .epoch = epoch, .epoch_last = epoch_last, .failed = -1};
    /* The longest: who is content to wait for a sample gets it. */
    if (task->spec->sample_timeout_ns > drawn->lot.timeout_ns)
        drawn->lot.timeout_ns = task->spec->sample_timeout_ns;
    return pending;
}

void fby_drawn_submit(fby_drawn *drawn)
{
    for (uint32_t p = 0; p < drawn->part_count; p++) {
        fby_part *part = &drawn->parts[p];
        fby_places_take(part->group, drawn->lot.count, part->seats, part->places);
        FBY_CRASH_POINT("places taken");
        drawn->lot.outputs[p].branch = part->group->branch;
        for (uint32_t i = 0; i < drawn->lot.count; i++)
            drawn->lot.outputs[p].targets[i] = fby_place_target(drawn->source, part->places[i]);
    }
    lot_submit(drawn);
}

bool fby_source_draw(fby_source *source)
{
    static fby_draw draw; /* the conductor's alone, and large */
    if (!source->plan) return false;
    uint64_t blocked = blocked_find(source);
    if (source->echoes && fby_echoes_draw(source)) return true;
    if (source->echoes) blocked |= fby_echoes_sated(source);
    fby_drawn *drawn = fby_drawn_take(source);
    if (!drawn) return false;
    if (fby_sampler_draw(source->sampler, blocked, &draw) != 1) {
        fby_drawn_put_away(drawn);
        return false;
    }
    FBY_CRASH_POINT("draw made");
    uint64_t epoch = 0;
    for (uint32_t i = 0; i < draw.target_count; i++) {
        const fby_draw_target *target = &draw.targets[i];
        fby_subscription *task = source->crews[target->task]->of[target->rank];
        fby_drawn_target(drawn, task, target->epoch, target->epoch_last);
        if (target->epoch_last && !task->echo) task->drawn_epochs = target->epoch + 1;
        if (task->spec->order != FBY_ORDER_SHARED) epoch = target->epoch;
    }
    drawn->lot.count = draw.count;
    for (uint32_t i = 0; i < draw.count; i++) {
        fby_job *job = &drawn->lot.jobs[i];
        job->id = draw.ids[i];
        job->turn = draw.turns[i];
        job->epoch = epoch;
        job->repeat = 0;
        /* One rank's part needs no padding: what is padded there stands for an id that a substitute used up.
         */
        drawn->flags[i] = !(draw.flags[i] & FBY_DRAW_PADDED)               ? 0
                          : source->crews[draw.targets[0].task]->ranks > 1 ? FBY_SAMPLE_PADDED
                                                                           : FBY_SAMPLE_REPEAT;
    }
    if (source->echoes) fby_echoes_drawn(drawn);
    fby_drawn_submit(drawn);
    return true;
}

/* --- bad samples
 * --------------------------------------------------------------------------------------------------- */

fby_pending *fby_pending_of(const fby_subscription *task, const fby_drawn *drawn)
{
    for (uint32_t i = 0; i < task->pending_count; i++)
        if (task->pending[i].drawn == drawn) return &task->pending[i];
    return NULL;
}

/* A stand-in that one task takes in place of sample `index` of `drawn`. */
typedef struct stand_in {
    uint32_t part, index, id, place;
    uint64_t turn, seats;
    uint8_t flags;
} stand_in;

typedef struct stand_ins {
    stand_in *list;
    uint32_t count, room;
} stand_ins;

static bool stand_in_add(stand_ins *all, const stand_in *one)
{
    for (uint32_t i = 0; i < all->count; i++) {
        stand_in *other = &all->list[i];
        if (other->part != one->part || other->index != one->index || other->id != one->id ||
            other->turn != one->turn || other->flags != one->flags)
            continue;
        other->seats |= one->seats;
        return true;
    }
    if (all->count == all->room) {
        uint32_t room = all->room ? all->room * 2 : 16;
        stand_in *larger = realloc(all->list, room * sizeof *larger);
        if (!larger) return false;
        all->list = larger;
        all->room = room;
    }
    all->list[all->count++] = *one;
    return true;
}

static void memory_fail(fby_subscription *task)
{
    fby_error why = FBY_ERROR_INIT;
    fby_fail(&why, FBY_ENOMEM, "no memory to replace a bad sample");
    fby_subscription_fail(task, &why);
}

/* What the bad sample `index` of `drawn` means to the seats of one part: a failure to come, or a stand-in. */
static void bad_take(fby_drawn *drawn, uint32_t part, uint32_t index, uint64_t seats, const fby_job *job,
                     stand_ins *all)
{
    fby_source *source = drawn->source;
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        if (!(seats & fby_seat_bit(task)) || !task->joined) continue;
        fby_pending *pending = fby_pending_of(task, drawn);
        if (!pending || pending->part != part) continue;
        if (!fby_bad_replace(task, job, pending->epoch)) {
            if (pending->failed < 0) {
                pending->failed = index;
                fby_bad_fail(task, job, pending->epoch);
            }
            continue;
        }
        uint32_t id = 0;
        bool repeat = false;
        stand_in one = {.part = part, .index = index, .seats = fby_seat_bit(task)};
        int status = pending->again ? fby_sampler_substitute_again(source->sampler, task->bit, pending->epoch,
                                                                   (uint32_t)job->id, &id, &one.turn)
                                    : fby_sampler_substitute(source->sampler, task->bit, pending->epoch,
                                                             (uint32_t)job->id, &id, &one.turn, &repeat);
        if (status) {
            fby_error why = FBY_ERROR_INIT;
            fby_fail(&why, FBY_ESAMPLE, "epoch %llu has no sample left that could stand in for bad ones",
                     (unsigned long long)pending->epoch);
            why.sample = job->id;
            fby_subscription_fail(task, &why);
            continue;
        }
        one.id = id;
        one.flags = FBY_SAMPLE_SUBSTITUTE | (repeat ? FBY_SAMPLE_REPEAT : 0) | drawn->flags[index];
        task->substituted++;
        if (!stand_in_add(all, &one)) memory_fail(task);
    }
}

static bool swap_add(fby_pending *pending, uint32_t index, uint32_t place, uint8_t flags)
{
    for (uint32_t i = 0; i < pending->swap_count; i++) {
        if (pending->swaps[i].index != index) continue;
        pending->swaps[i] = (fby_swap){index, place, flags};
        return true;
    }
    fby_swap *larger = realloc(pending->swaps, (pending->swap_count + 1) * sizeof *larger);
    if (!larger) return false;
    pending->swaps = larger;
    pending->swaps[pending->swap_count++] = (fby_swap){index, place, flags};
    return true;
}

/* Gives a stand-in a place: that of the sample it replaces, so that the batch stays whole, where all who hold
 * that one take it; else another. */
static bool stand_in_place(fby_drawn *drawn, stand_in *one)
{
    fby_source *source = drawn->source;
    fby_group *group = drawn->parts[one->part].group;
    bool placed = false;
    for (fby_subscription *task = source->tasks; task && !placed; task = task->next_of_source) {
        fby_pending *pending = one->seats & fby_seat_bit(task) ? fby_pending_of(task, drawn) : NULL;
        if (!pending) continue;
        one->place = fby_pending_place(pending, one->index, NULL);
        placed = fby_place_reuse(source, one->place, one->seats);
        break;
    }
    if (!placed && !group->free) return false;
    if (!placed) fby_places_take(group, 1, one->seats, &one->place);
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        if (!(one->seats & fby_seat_bit(task))) continue;
        fby_pending *pending = fby_pending_of(task, drawn);
        uint32_t before = pending ? fby_pending_place(pending, one->index, NULL) : one->place;
        if (!pending || before != one->place)
            fby_place_release(source, before, fby_seat_bit(task)); /* or it has failed meanwhile */
        if (!pending) continue;
        if (!swap_add(pending, one->index, one->place, one->flags)) {
            memory_fail(task);
            continue;
        }
        pending->repairs++;
    }
    return true;
}

/* Runs the stand-ins as a lot of their own. */
static void repair_submit(fby_drawn *drawn, const stand_ins *all, uint64_t timeout_ns, uint64_t epoch)
{
    fby_source *source = drawn->source;
    fby_drawn *repair = drawn_make(source, all->count, drawn->part_count);
    for (uint32_t i = 0; i < all->count; i++) {
        stand_in *one = &all->list[i];
        if (repair && stand_in_place(drawn, one)) continue;
        for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
            if (one->seats & fby_seat_bit(task)) memory_fail(task);
        }
        one->seats = 0;
    }
    if (!repair) return;
    /* Groups that need no stand-in may be gone by now. */
    repair->part_count = drawn->part_count;
    for (uint32_t i = 0; i < all->count; i++)
        if (all->list[i].seats)
            repair->lot.outputs[all->list[i].part].branch = drawn->parts[all->list[i].part].group->branch;
    for (uint32_t i = 0; i < all->count; i++) {
        const stand_in *one = &all->list[i];
        if (!one->seats) continue;
        uint32_t at = repair->lot.count++;
        repair->lot.jobs[at].id = one->id;
        repair->lot.jobs[at].turn = one->turn;
        repair->lot.jobs[at].epoch = epoch;
        repair->flags[at] = one->flags;
        repair->repairs[at] = (fby_repair){drawn, one->part, one->index, one->seats};
        for (uint32_t p = 0; p < repair->part_count; p++)
            repair->lot.outputs[p].targets[at] =
                p == one->part ? fby_place_target(source, one->place) : (fby_target){0};
        repair->parts[one->part].places[at] = one->place;
        drawn->waiting++;
    }
    if (!repair->lot.count) {
        drawn_free(repair);
        return;
    }
    repair->lot.timeout_ns = timeout_ns;
    lot_submit(repair);
    FBY_CRASH_POINT("stand-ins submitted");
}

/* --- coming back
 * --------------------------------------------------------------------------------------------------- */

static void repair_finished(fby_drawn *repair)
{
    fby_source *source = repair->source;
    for (uint32_t i = 0; i < repair->lot.count; i++) {
        const fby_repair *one = &repair->repairs[i];
        const fby_job *job = &repair->lot.jobs[i];
        fby_drawn *drawn = one->drawn;
        for (fby_subscription *task = source->tasks; task; task = task->next_of_source) {
            fby_pending *pending = one->seats & fby_seat_bit(task) ? fby_pending_of(task, drawn) : NULL;
            if (pending) pending->repairs--;
        }
        fby_place_filled(source, repair->parts[one->part].places[i]);
        FBY_CRASH_POINT("stand-in finished");
        stand_ins all = {0};
        if (job->reason != FBY_REASON_NONE) bad_take(drawn, one->part, one->index, one->seats, job, &all);
        if (all.count) repair_submit(drawn, &all, repair->lot.timeout_ns, job->epoch);
        free(all.list);
        fby_drawn_unref(drawn);
    }
    drawn_free(repair);
}

void fby_drawn_finished(fby_lot *lot)
{
    fby_drawn *drawn = lot->owner;
    fby_source *source = drawn->source;
    source->out--;
    FBY_CRASH_POINT("lot finished");
    if (is_repair(drawn)) {
        repair_finished(drawn);
        return;
    }
    if (!fby_echoes_is_again(drawn)) fby_pace_made(source, true, lot->count);
    drawn->waiting++; /* while this looks after it */
    drawn->filling = false;
    for (fby_subscription *task = source->tasks; task; task = task->next_of_source)
        for (uint32_t p = 0; p < drawn->part_count; p++)
            if (drawn->parts[p].group == task->group && drawn->parts[p].seats & fby_seat_bit(task))
                task->under_way--;
    stand_ins all = {0};
    for (uint32_t i = 0; lot->bad && i < lot->count; i++) {
        if (lot->jobs[i].reason == FBY_REASON_NONE) continue;
        for (uint32_t p = 0; p < drawn->part_count; p++)
            bad_take(drawn, p, i, drawn->parts[p].seats, &lot->jobs[i], &all);
    }
    for (uint32_t p = 0; p < drawn->part_count; p++)
        for (uint32_t i = 0; i < lot->count; i++) fby_place_filled(source, drawn->parts[p].places[i]);
    if (all.count) repair_submit(drawn, &all, lot->timeout_ns, lot->jobs[0].epoch);
    free(all.list);
    if (drawn->echo_count) fby_echoes_finished(drawn);
    fby_drawn_unref(drawn);
}
