/* Where workers go on machines that this one isn't: a pure function, so golden results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/engine/placement.h"
#include "tests/support/test.h"

/* "0 1 | 2 3 @0": the CPUs of each place, and its node. */
static void places_text(char *out, size_t bytes, const fby_place *places, uint32_t count)
{
    size_t length = 0;
    *out = 0;
    for (uint32_t i = 0; i < count && length < bytes; i++) {
        for (uint32_t cpu = 0; cpu < 512; cpu++)
            if (fby_cpus_has(&places[i].cpus, cpu))
                length += (size_t)snprintf(out + length, bytes - length, "%u ", cpu);
        length += (size_t)snprintf(out + length, bytes - length, "@%d%s", places[i].node,
                                   i + 1 < count ? " | " : "");
    }
}

static void expect(const char *synthetic, const char *allowed, uint32_t count, const char *wanted)
{
    fby_topology *topology = NULL;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_topology_load(&topology, synthetic, &error), 0, "%s", error.text);
    fby_cpus cpus = {{0}};
    for (const char *at = allowed; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        unsigned first, last;
        if (sscanf(at, "%u-%u", &first, &last) != 2) last = first = (unsigned)atoi(at);
        for (unsigned cpu = first; cpu <= last; cpu++) fby_cpus_add(&cpus, cpu);
    }
    fby_place *places = calloc(count, sizeof *places);
    char got[2048];
    cr_assert_eq(fby_placement_plan(topology, &cpus, count, places, &error), 0, "%s", error.text);
    places_text(got, sizeof got, places, count);
    cr_assert_str_eq(got, wanted, "%s of %s for %u: %s, expected %s", allowed, synthetic, count, got, wanted);
    free(places);
    fby_topology_free(&topology);
}

Test(placement, one_worker_a_core)
{
    expect("node:1 core:4 pu:1", "0-3", 4, "0 @0 | 1 @0 | 2 @0 | 3 @0");
}

Test(placement, workers_are_spread_over_nodes_first)
{
    expect("node:2 core:4 pu:1", "0-7", 2, "0 1 2 3 @0 | 4 5 6 7 @1");
    expect("node:2 core:4 pu:1", "0-7", 4, "0 1 @0 | 2 3 @0 | 4 5 @1 | 6 7 @1");
}

Test(placement, hyperthreads_of_a_core_go_together)
{
    expect("node:2 core:2 pu:2", "0-7", 4, "0 1 @0 | 2 3 @0 | 4 5 @1 | 6 7 @1");
}

Test(placement, only_what_is_allowed_is_used)
{
    expect("node:2 core:4 pu:1", "4-7", 4, "4 @1 | 5 @1 | 6 @1 | 7 @1");
    expect("node:2 core:4 pu:1", "3,4", 2, "3 @0 | 4 @1");
    expect("node:2 core:4 pu:1", "6", 1, "6 @1");
}

Test(placement, more_workers_than_cpus_share)
{
    expect("node:1 core:2 pu:1", "0-1", 4, "0 @0 | 0 @0 | 1 @0 | 1 @0");
}

Test(placement, one_worker_of_many_nodes_has_no_node)
{
    expect("node:2 core:2 pu:1", "0-3", 1, "0 1 2 3 @-1");
}

Test(placement, cpus_that_the_topology_does_not_know_leave_workers_unpinned)
{
    expect("node:1 core:2 pu:1", "64", 2, "@-1 | @-1");
}

Test(placement, a_topology_that_makes_no_sense_is_refused)
{
    fby_topology *topology = NULL;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_topology_load(&topology, "nonsense:x", &error), FBY_EINVAL);
    cr_assert_null(topology);
    cr_assert_not_null(strstr(error.text, "nonsense:x"));
}

Test(placement, this_machine_has_a_place_for_each_worker)
{
    fby_topology *topology = NULL;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_topology_load(&topology, NULL, &error), 0, "%s", error.text);
    cr_assert_geq(fby_topology_nodes(topology), 1);
    fby_cpus cpus;
    fby_cpus_of_process(&cpus);
    uint32_t count = fby_cpus_count(&cpus);
    fby_place *places = calloc(count, sizeof *places);
    cr_assert_eq(fby_placement_plan(topology, &cpus, count, places, &error), 0, "%s", error.text);
    for (uint32_t i = 0; i < count; i++) cr_assert_eq(fby_cpus_count(&places[i].cpus), 1);
    fby_place_enter(&places[0]);
    fby_cpus now;
    fby_cpus_of_process(&now);
    cr_assert_arr_eq(&now, &places[0].cpus, sizeof now);
    free(places);
    fby_topology_free(&topology);
}
