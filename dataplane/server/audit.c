/* The books, checked: what the places say of themselves against what the tasks say of them.
 *
 *   of each place     it is free; or a worker writes to it (filling); or a live client's task holds it
 *                     (shared); or only tasks of closed clients that live still do (quarantined). Never two
 *                     of these, never none.
 *   of each holder    a bit of a place is a task's exactly where the place is in a draw that waits for its
 *                     turn with the task, in the batch being put together for it, or held by its client.
 *   of each task      what the sampler counts as out is what is out.
 *
 * Read only, the conductor's, and linear in the number of places. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/server/internal.h"

/* Of a source. */
typedef struct expected {
    const fby_source *source;
    uint64_t **holders; /* by block: as the tasks have it; NULL where there is no store */
    uint64_t unknown;   /* places of no store, or that a task counts twice */
} expected;

typedef struct task_sum {
    uint64_t pending, assembling, held, extents;
} task_sum;

static bool at(const uint64_t *bitmap, uint32_t index)
{
    return bitmap[index / 64] >> (index % 64) & 1;
}

static void expect(expected *books, uint32_t place, uint32_t seat)
{
    uint32_t block = place >> 16, index = place & UINT16_MAX;
    const fby_store *store = block < books->source->store_room ? books->source->stores[block] : NULL;
    uint64_t bit = UINT64_C(1) << seat;
    if (!store || !books->holders[block] || index >= store->places || books->holders[block][index] & bit)
        books->unknown++;
    else
        books->holders[block][index] |= bit;
}

static task_sum task_expect(expected *books, const fby_subscription *task)
{
    task_sum sum = {0};
    for (uint32_t i = 0; i < task->pending_count; i++) {
        const fby_pending *pending = &task->pending[i];
        for (uint32_t k = pending->taken; k < pending->drawn->lot.count; k++)
            expect(books, fby_pending_place(pending, k, NULL), task->seat);
        sum.pending += pending->drawn->lot.count - pending->taken;
    }
    for (uint32_t i = 0; i < task->extent_count; i++) {
        const fby_extent *extent = &task->extents[i];
        for (uint32_t k = 0; k < extent->count; k++) expect(books, extent->place + k, task->seat);
        sum.assembling += extent->count;
    }
    for (uint32_t i = 0; i < task->ledger_count; i++) {
        const fby_ledger *ledger = &task->ledgers[i];
        for (uint32_t index = 0; index < ledger->places; index++) {
            const struct fby_ledger_entry *entry = &ledger->entries[index];
            for (uint32_t k = 0; k < entry->length; k++)
                expect(books, (ledger->block << 16 | index) + k, task->seat);
            sum.held += (uint64_t)entry->length * entry->times;
            sum.extents += entry->times;
        }
    }
    return sum;
}

/* Of what was drawn for it, as each part of the server counts it. */
static bool task_agrees(const fby_subscription *task, const task_sum *sum)
{
    if (sum->held != task->held_samples || sum->extents != task->held_extents ||
        sum->assembling != task->batch_fill)
        return false;
    return !task->joined || fby_sampler_queued(task->source->sampler, task->bit, task->rank) ==
                                sum->pending + sum->assembling + sum->held;
}

static void add(json_t *to, const char *name, uint64_t value)
{
    json_object_set_new(to, name, json_integer((json_int_t)value));
}

typedef struct group_sum {
    uint64_t total, free, filling, shared, quarantined, wrong, bits, differ, promised, promised_free;
    uint64_t segments, bytes, needless, retiring;
} group_sum;

static void store_count(const expected *books, const fby_store *store, uint64_t live, group_sum *sum)
{
    uint32_t free_count = 0;
    for (uint32_t i = 0; i < store->places; i++) {
        uint64_t holders = store->holders[i];
        bool free_bit = at(store->free, i), filling = at(store->filling, i);
        free_count += free_bit;
        sum->free += free_bit;
        sum->filling += filling;
        if (!free_bit && !filling && holders) {
            if (holders & live)
                sum->shared++;
            else
                sum->quarantined++;
        }
        sum->wrong += free_bit ? filling || holders : !filling && !holders;
        sum->bits += (uint64_t)__builtin_popcountll(holders);
        sum->differ += holders != books->holders[store->block][i];
    }
    sum->total += store->places;
    sum->wrong += free_count != store->free_count;
    sum->segments++;
    sum->bytes += store->bytes;
    sum->retiring += store->retiring;
    if (store->retiring) return;
    sum->needless += store->group->places - store->places >= fby_group_needs(store->group);
    sum->promised += store->places;
    sum->promised_free += free_count;
}

static json_t *group_audit(const expected *books, const fby_group *group, uint64_t live, bool *sound)
{
    group_sum sum = {0};
    for (const fby_store *store = group->stores; store; store = store->next)
        store_count(books, store, live, &sum);
    *sound = *sound && !sum.wrong && !sum.differ && group->places == sum.promised &&
             group->free == sum.promised_free &&
             sum.total == sum.free + sum.filling + sum.shared + sum.quarantined;
    json_t *entry = json_object();
    add(entry, "segments", sum.segments);
    add(entry, "segments_needless", sum.needless);
    add(entry, "segments_retiring", sum.retiring);
    add(entry, "bytes", sum.bytes);
    add(entry, "places", sum.total);
    add(entry, "places_needed", fby_group_needs(group));
    add(entry, "free", sum.free);
    add(entry, "filling", sum.filling);
    add(entry, "shared", sum.shared);
    add(entry, "quarantined", sum.quarantined);
    add(entry, "wrong", sum.wrong);
    add(entry, "references", sum.bits);
    add(entry, "references_differ", sum.differ);
    return entry;
}

static void books_free(expected *books)
{
    for (uint32_t block = 0; books->holders && block < books->source->store_room; block++)
        free(books->holders[block]);
    free(books->holders);
}

/* Stores that are in use: those of a task that is still to come have nothing in them. */
static bool books_open(expected *books, const fby_source *source)
{
    *books = (expected){.source = source};
    books->holders = calloc(source->store_room ? source->store_room : 1, sizeof *books->holders);
    for (uint32_t block = 0; books->holders && block < source->store_room; block++) {
        const fby_store *store = source->stores[block];
        if (!store || !store->group) continue;
        books->holders[block] = calloc(store->places, sizeof **books->holders);
        if (!books->holders[block]) return false;
    }
    return books->holders;
}

json_t *fby_source_audit(const fby_source *source)
{
    expected books;
    if (!books_open(&books, source)) {
        books_free(&books);
        return NULL;
    }
    task_sum all = {0};
    uint64_t live = 0, tasks = 0, disagree = 0, seats = 0;
    for (const fby_subscription *task = source->tasks; task; task = task->next_of_source) {
        task_sum sum = task_expect(&books, task);
        all.pending += sum.pending;
        all.assembling += sum.assembling;
        all.held += sum.held;
        disagree += !task_agrees(task, &sum);
        if (!task->closing) live |= fby_seat_bit(task);
        seats |= fby_seat_bit(task);
        tasks++;
    }
    bool sound = !books.unknown && !disagree && seats == source->seats;
    json_t *groups = json_array(), *entry = json_object();
    for (const fby_group *group = source->groups; group; group = group->next)
        json_array_append_new(groups, group_audit(&books, group, live, &sound));
    uint32_t gone = 0;
    for (const fby_store *store = source->gone; store; store = store->next) gone++;
    books_free(&books);
    json_object_set_new(entry, "sound", json_boolean(sound));
    add(entry, "tasks", tasks);
    add(entry, "tasks_disagree", disagree);
    add(entry, "held", all.held);
    add(entry, "pending", all.pending);
    add(entry, "assembling", all.assembling);
    add(entry, "unknown", books.unknown);
    add(entry, "lots_out", source->out);
    add(entry, "segments_gone", gone);
    json_object_set_new(entry, "groups", groups);
    return entry;
}

json_t *fby_server_audit(const fby_server *server)
{
    bool sound = true;
    json_t *sources = json_array(), *audit = json_object();
    for (const fby_source *source = server->sources; source; source = source->next) {
        json_t *entry = fby_source_audit(source);
        sound = sound && json_is_true(json_object_get(entry, "sound"));
        json_array_append_new(sources, entry ? entry : json_null());
    }
    json_object_set_new(audit, "sound", json_boolean(sound));
    json_object_set_new(audit, "sources", sources);
    return audit;
}
