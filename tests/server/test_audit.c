/* The audit finds the books in order, and each way in which they can be wrong. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/server/internal.h"
#include "tests/support/test.h"

enum { PLACES = 70, COUNT = 10, HELD = 4 };

/* One source with one group of one store, and two tasks: a draw waits for the first; the second's client
 * holds the first samples of it, and has closed. */
typedef struct books {
    fby_source source;
    fby_group group;
    fby_store store;
    fby_subscription tasks[2];
    fby_store *stores[2];
    fby_drawn drawn;
    fby_part part;
    fby_pending pending;
    fby_ledger ledger;
    struct fby_ledger_entry entries[PLACES];
    uint32_t places[COUNT];
} books;

static books *books_make(void)
{
    books *all = calloc(1, sizeof *all);
    fby_branch_info info = {.sample_bytes = 12, .dtype = FBY_U8, .dimensions = 1, .shape = {12}};
    fby_error error = FBY_ERROR_INIT;
    all->store = (fby_store){.block = 1, .places = PLACES, .segment = {.fd = -1}};
    cr_assert_eq(fby_store_make(&all->store, &info, &error), FBY_OK, "%s", error.text);
    all->store.group = &all->group;
    all->stores[1] = &all->store;
    all->group = (fby_group){.source = &all->source, .stores = &all->store, .places = PLACES, .free = PLACES};
    all->source = (fby_source){
        .groups = &all->group, .stores = all->stores, .store_room = 2, .seats = 3, .tasks = &all->tasks[0]};
    all->tasks[0] = (fby_subscription){.source = &all->source,
                                       .group = &all->group,
                                       .seat = 0,
                                       .window_samples = PLACES,
                                       .pending = &all->pending,
                                       .pending_count = 1,
                                       .next_of_source = &all->tasks[1]};
    all->tasks[1] = (fby_subscription){.source = &all->source,
                                       .group = &all->group,
                                       .seat = 1,
                                       .closing = true,
                                       .ledgers = &all->ledger,
                                       .ledger_count = 1,
                                       .held_samples = HELD,
                                       .held_extents = 1};
    fby_places_take(&all->group, COUNT, 3, all->places);
    all->part = (fby_part){.group = &all->group, .seats = 3, .places = all->places};
    all->drawn = (fby_drawn){.parts = &all->part, .part_count = 1, .lot = {.count = COUNT}};
    all->pending = (fby_pending){.drawn = &all->drawn};
    all->ledger = (fby_ledger){1, all->entries, PLACES};
    all->entries[0] = (struct fby_ledger_entry){.length = HELD, .times = 1};
    for (uint32_t i = 0; i < COUNT; i++) {
        fby_place_filled(&all->source, all->places[i]);
        if (i >= HELD) fby_place_release(&all->source, all->places[i], 2);
    }
    return all;
}

static void books_free(books *all)
{
    fby_region_close(&all->store.segment);
    free(all->store.free);
    free(all->store.filling);
    free(all->store.holders);
    free(all->store.generations);
    free(all);
}

static bool sound(const books *all)
{
    json_t *audit = fby_source_audit(&all->source);
    bool is = json_is_true(json_object_get(audit, "sound"));
    json_decref(audit);
    return is;
}

static json_int_t figure(const books *all, const char *name)
{
    json_t *audit = fby_source_audit(&all->source);
    json_int_t value =
        json_integer_value(json_object_get(json_array_get(json_object_get(audit, "groups"), 0), name));
    json_decref(audit);
    return value;
}

Test(audit, books_in_order)
{
    books *all = books_make();
    cr_assert(sound(all));
    cr_assert_eq(figure(all, "places"), PLACES);
    cr_assert_eq(figure(all, "free"), PLACES - COUNT);
    cr_assert_eq(figure(all, "shared"), COUNT);
    cr_assert_eq(figure(all, "quarantined"), 0);
    cr_assert_eq(figure(all, "references"), COUNT + HELD);
    /* The draw is dropped: what is left belongs to a client that closed. */
    for (uint32_t i = 0; i < COUNT; i++) fby_place_release(&all->source, all->places[i], 1);
    all->tasks[0].pending_count = 0;
    cr_assert(sound(all));
    cr_assert_eq(figure(all, "shared"), 0);
    cr_assert_eq(figure(all, "quarantined"), HELD);
    cr_assert_eq(figure(all, "free"), PLACES - HELD);
    books_free(all);
}

static void place_lost(books *all)
{
    all->store.holders[COUNT - 1] = 0;
}

static void place_freed_while_held(books *all)
{
    all->store.free[0] |= 1;
}

static void place_filling_while_free(books *all)
{
    all->store.filling[0] |= UINT64_C(1) << COUNT;
}

static void place_held_by_nobody_here(books *all)
{
    all->store.holders[0] |= 4;
}

static void free_count_wrong(books *all)
{
    all->store.free_count--;
}

static void group_free_wrong(books *all)
{
    all->group.free++;
}

static void group_places_wrong(books *all)
{
    all->group.places--;
}

static void draw_forgotten(books *all)
{
    all->tasks[0].pending_count = 0;
}

static void extent_forgotten(books *all)
{
    all->entries[0] = (struct fby_ledger_entry){0};
    all->tasks[1].held_samples = all->tasks[1].held_extents = 0;
}

static void held_miscounted(books *all)
{
    all->tasks[1].held_samples++;
}

static void extents_miscounted(books *all)
{
    all->tasks[1].held_extents++;
}

static void counted_twice(books *all)
{
    all->places[1] = all->places[0];
    all->store.holders[1] &= ~UINT64_C(1);
}

static void of_no_store(books *all)
{
    all->places[0] = 7 << 16;
    all->store.holders[0] &= ~UINT64_C(1);
}

static void seat_lost(books *all)
{
    all->source.seats |= 4;
}

Test(audit, every_fault_is_seen)
{
    void (*const faults[])(books *) = {place_lost,
                                       place_freed_while_held,
                                       place_filling_while_free,
                                       place_held_by_nobody_here,
                                       free_count_wrong,
                                       group_free_wrong,
                                       group_places_wrong,
                                       draw_forgotten,
                                       extent_forgotten,
                                       held_miscounted,
                                       extents_miscounted,
                                       counted_twice,
                                       of_no_store,
                                       seat_lost};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        books *all = books_make();
        faults[i](all);
        cr_assert(!sound(all), "fault %zu", i);
        books_free(all);
    }
}
