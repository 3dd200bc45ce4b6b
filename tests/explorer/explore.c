/* explore litmus | holds | mutations: see README.md. Exit code 0 when what was to be shown was shown. */
#include <stdio.h>
#include <string.h>

#include "tests/explorer/litmus.h"
#include "tests/explorer/scenarios.h"
#include "tests/explorer/search.h"
#include "tests/support/scale.h"

enum {
    SCENARIOS = TASK_SCENARIOS + GATE_SCENARIOS + MPMC_SCENARIOS,
    EXECUTIONS = 3000000,         /* most of one exhaustive search */
    RANDOM_EXECUTIONS = 60000,    /* per scenario, of the code as it is */
    MUTATION_RANDOM = 4000,       /* per scenario */
    MUTATION_EXECUTIONS = 400000, /* per scenario */
    SITES = 128,
};

/* Random executions are short of nothing. */
static const explore_bounds wide = {.preemptions = 12, .stale_reads = 8, .kills = 1, .deadlines = 2};

extern explore_site *__start_explore_sites[], *__stop_explore_sites[];

static const explore_scenario *scenario_at(int number)
{
    if (number < TASK_SCENARIOS) return &task_scenarios[number];
    number -= TASK_SCENARIOS;
    if (number < GATE_SCENARIOS) return &gate_scenarios[number];
    return &mpmc_scenarios[number - GATE_SCENARIOS];
}

static const char *const order_names[] = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};

static bool is_of_ringbuf(const explore_site *site)
{
    return strstr(site->file, "ringbuf/") && !strstr(site->file, "tests/");
}

static const char *file_name(const explore_site *site)
{
    return strstr(site->file, "ringbuf/");
}

static int litmus_run(void)
{
    int failures = 0;
    for (int i = 0; i < LITMUS_TESTS; i++) {
        const litmus *test = &litmus_tests[i];
        litmus_outcome = false;
        search_result result = search_all(&test->scenario, &test->scenario.bounds, EXECUTIONS);
        bool good = !result.violation && result.complete && litmus_outcome == test->allowed;
        printf("%-50s %8llu executions  %s%s\n", test->scenario.name, (unsigned long long)result.executions,
               litmus_outcome ? "seen" : "never", good ? "" : "  WRONG");
        if (result.violation) printf("  %s\n", result.violation);
        failures += !good;
    }
    return failures;
}

static void report(const explore_scenario *scenario, const explore_bounds *bounds,
                   const search_result *result)
{
    printf("VIOLATION in `%s` after %llu executions: %s\n", scenario->name,
           (unsigned long long)result->executions, result->violation);
    search_trace_last(scenario, bounds);
}

static int holds_run(void)
{
    int failures = 0;
    for (int i = 0; i < SCENARIOS; i++) {
        const explore_scenario *scenario = scenario_at(i);
        search_result all = search_all(scenario, &scenario->bounds, EXECUTIONS);
        if (all.violation) {
            report(scenario, &scenario->bounds, &all);
            failures++;
            continue;
        }
        search_result random = search_random(scenario, &wide, 1, test_scaled(RANDOM_EXECUTIONS));
        if (random.violation) {
            report(scenario, &wide, &random);
            failures++;
            continue;
        }
        printf("%-45s %8llu executions within %d preemptions, %d stale reads, %d stops, %d deadlines%s; "
               "%llu random ones\n",
               scenario->name, (unsigned long long)all.executions, scenario->bounds.preemptions,
               scenario->bounds.stale_reads, scenario->bounds.kills, scenario->bounds.deadlines,
               all.complete ? " (all)" : " (CUT)", (unsigned long long)random.executions);
        failures += !all.complete;
        fflush(stdout);
    }
    for (explore_site **site = __start_explore_sites; site < __stop_explore_sites; site++) {
        if (is_of_ringbuf(*site) && (*site)->hits == 0) {
            printf("%s:%d is reached by no scenario\n", file_name(*site), (*site)->line);
            failures++;
        }
    }
    return failures;
}

/* The orders that are weaker than `order` and make sense for the kind of operation. */
static int weaker_orders(explore_kind kind, explore_order order, explore_order *out)
{
    int count = 0;
    for (explore_order weaker = EXPLORE_RELAXED; weaker < order; weaker++) {
        if (kind == EXPLORE_LOAD && (weaker == EXPLORE_RELEASE || weaker == EXPLORE_ACQ_REL)) continue;
        if (kind == EXPLORE_STORE && (weaker == EXPLORE_ACQUIRE || weaker == EXPLORE_ACQ_REL)) continue;
        if (kind == EXPLORE_FENCE && weaker != EXPLORE_ACQ_REL) continue;
        if (order == EXPLORE_RELEASE && weaker == EXPLORE_ACQUIRE) continue;
        out[count++] = weaker;
    }
    return count;
}

/* Which scenarios reach a site at all, found by a few random executions of each. */
static bool reached[SITES][SCENARIOS];

static void find_reached(void)
{
    for (int i = 0; i < SCENARIOS; i++) {
        explore_site **sites = __start_explore_sites;
        int count = (int)(__stop_explore_sites - __start_explore_sites);
        for (int site = 0; site < count; site++) sites[site]->hits = 0;
        search_random(scenario_at(i), &wide, 7, 500);
        for (int site = 0; site < count && site < SITES; site++) reached[site][i] = sites[site]->hits > 0;
    }
}

static bool mutation_is_found(int site, const char *name)
{
    for (int i = 0; i < SCENARIOS; i++) {
        if (!reached[site][i]) continue;
        search_result result = search_random(scenario_at(i), &wide, 11, MUTATION_RANDOM);
        if (result.violation) {
            printf("%s  found by `%s` at random in %llu: %s\n", name, scenario_at(i)->name,
                   (unsigned long long)result.executions, result.violation);
            return true;
        }
    }
    for (int i = 0; i < SCENARIOS; i++) {
        if (!reached[site][i]) continue;
        search_result result = search_all(scenario_at(i), &scenario_at(i)->bounds, MUTATION_EXECUTIONS);
        if (result.violation) {
            printf("%s  found by `%s` in %llu: %s\n", name, scenario_at(i)->name,
                   (unsigned long long)result.executions, result.violation);
            return true;
        }
    }
    printf("%s  NOT FOUND\n", name);
    return false;
}

static int mutations_run(void)
{
    int failures = 0, mutations = 0;
    int count = (int)(__stop_explore_sites - __start_explore_sites);
    if (count > SITES) {
        printf("%d sites: raise SITES\n", count);
        return 1;
    }
    find_reached();
    for (int i = 0; i < count; i++) {
        explore_site *site = __start_explore_sites[i];
        if (!is_of_ringbuf(site)) continue;

        explore_order orders[5];
        int weaker = weaker_orders(site->kind, site->written, orders);
        for (int j = 0; j < weaker; j++) {
            char name[200];
            snprintf(name, sizeof name, "%s:%-3d %s -> %s", file_name(site), site->line,
                     order_names[site->written], order_names[orders[j]]);
            site->order = orders[j];
            failures += !mutation_is_found(i, name);
            mutations++;
            fflush(stdout);
            site->order = site->written;
        }
    }
    printf("%d mutations, %d not found\n", mutations, failures);
    return mutations == 0 ? 1 : failures;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    int failures;
    if (!strcmp(what, "litmus"))
        failures = litmus_run();
    else if (!strcmp(what, "holds"))
        failures = holds_run();
    else if (!strcmp(what, "mutations"))
        failures = mutations_run();
    else {
        fprintf(stderr, "usage: explore litmus|holds|mutations\n");
        return 2;
    }
    return failures ? 1 : 0;
}
