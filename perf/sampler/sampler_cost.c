/* What a draw costs the conductor: microseconds per id drawn, and the longest single call, for 10 million ids
 * and 64 tasks.
 *
 *     sampler_cost [IDS [TASKS [BATCH [SCENARIO]]]]
 *
 * Time is the calling thread's CPU time, so that a neighbour on the machine doesn't look like a long step. A
 * step is one call: a draw, a join, a leave, an epoch given up. What comes back is given back between draws
 * and counts in the cost per id. Prints a table, and last a line of JSON for each mark. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataplane/sampler/sampler.h"
#include "dataplane/sampler/subset.h"

enum { RUNS = 3 };
#define MARK_US_PER_ID 1.0
#define MARK_STEP_US   1000.0

typedef struct scenario {
    const char *name;
    double slowest; /* rates lie evenly between this and 1 */
    bool apart;     /* tasks join one after the other through the first epoch */
    int subsets;    /* this many tasks have a random half of the ids, by two kinds */
    bool churn;     /* tasks leave, join and give epochs up */
} scenario;

static const scenario scenarios[] = {
    {"equal rates, together", 1, false, 0, false}, {"equal rates, joined apart", 1, true, 0, false},
    {"rates 0.9 to 1", 0.9, true, 0, false},       {"rates 0.1 to 1", 0.1, true, 0, false},
    {"the same, 8 subsets", 0.1, true, 8, false},  {"the same, coming and going", 0.1, true, 8, true},
};

typedef enum call_kind { CALL_DRAW, CALL_BACK, CALL_JOIN, CALL_LEAVE, CALL_ABANDON, CALL_KINDS } call_kind;

/* What each call of a kind took, in order: the least of the runs so far. */
typedef struct call_times {
    float *us;
    size_t count, room, next;
} call_times;

typedef struct bench {
    fby_sampler *sampler;
    uint64_t ids, random;
    uint32_t tasks, batch;
    uint64_t live;
    double rate[FBY_SAMPLER_TASKS], owed[FBY_SAMPLER_TASKS];
    uint64_t queued[FBY_SAMPLER_TASKS];
    uint64_t *subset[2];
    call_times *times; /* per kind */
} bench;

typedef struct bench_totals {
    uint64_t drawn, draws, bytes;
    fby_sampler_stats stats;
} bench_totals;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double random_unit(bench *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return (double)(b->random >> 11) / 9007199254740992.0;
}

static void took(bench *b, call_kind kind, double since)
{
    float us = (float)(now_us() - since);
    call_times *t = &b->times[kind];
    if (t->next == t->room) {
        t->room = t->room ? 2 * t->room : 1024;
        t->us = realloc(t->us, t->room * sizeof *t->us);
        if (!t->us) exit(1);
    }
    if (t->next == t->count) t->us[t->count++] = us;
    if (us < t->us[t->next]) t->us[t->next] = us;
    t->next++;
}

static double sum_of(const call_times *t)
{
    double sum = 0;
    for (size_t i = 0; i < t->count; i++) sum += (double)t->us[i];
    return sum;
}

static double longest_of(const call_times *t)
{
    double longest = 0;
    for (size_t i = 0; i < t->count; i++) {
        if ((double)t->us[i] > longest) longest = (double)t->us[i];
    }
    return longest;
}

static void join(bench *b, const scenario *s)
{
    uint32_t task;
    uint32_t number = (uint32_t)__builtin_popcountll(b->live);
    fby_subset *made = NULL; /* as in the server, by whose set-up thread */
    if (number % 8 == 1 && (int)number / 8 < s->subsets)
        made = fby_subset_create(b->subset[number / 8 % 2], (uint32_t)b->ids);
    fby_sampler_task what = {.batch = b->batch, .ranks = 1, .window = 3, .made = &made};
    double since = now_us();
    if (fby_sampler_join(b->sampler, &what, &task, NULL)) exit(1);
    took(b, CALL_JOIN, since);
    fby_subset_destroy(&made);
    b->live |= UINT64_C(1) << task;
    b->rate[task] = task ? s->slowest + (1 - s->slowest) * random_unit(b) : 1;
    b->owed[task] = 0;
    b->queued[task] = 0;
}

static void leave(bench *b, uint32_t task)
{
    double since = now_us();
    fby_sampler_leave(b->sampler, task);
    took(b, CALL_LEAVE, since);
    b->live &= ~(UINT64_C(1) << task);
}

/* All tasks take what their rate gives them while the fastest takes `samples`. */
static void consume(bench *b, double samples)
{
    double since = now_us();
    for (uint64_t left = b->live; left; left &= left - 1) {
        int task = __builtin_ctzll(left);
        b->owed[task] += samples * b->rate[task];
        uint64_t back = (uint64_t)b->owed[task] / b->batch * b->batch;
        if (back > b->queued[task]) {
            back = b->queued[task];
            b->owed[task] = (double)back;
        }
        if (!back) continue;
        b->owed[task] -= (double)back;
        b->queued[task] -= back;
        fby_sampler_give_back(b->sampler, (uint32_t)task, 0, (uint32_t)back);
    }
    took(b, CALL_BACK, since);
}

/* Plays a scenario once; `totals` gets what it came to. */
static void play(const scenario *s, bench *start, bench_totals *totals)
{
    static fby_draw draw;
    bench b = *start;
    uint64_t ids = b.ids, tasks = b.tasks, batch = b.batch;
    for (int kind = 0; kind < 2; kind++) {
        b.subset[kind] = calloc((ids + 63) / 64, sizeof **b.subset);
        if (!b.subset[kind]) exit(1);
        for (uint64_t id = 0; id < ids; id++) {
            if (random_unit(&b) < 0.5) b.subset[kind][id / 64] |= UINT64_C(1) << (id % 64);
        }
    }
    if (fby_sampler_create(&b.sampler, ids, 1, NULL)) exit(1);

    uint64_t drawn = 0, draws = 0, joined = 0, next_join = 0, next_churn = ids;
    while (drawn < 3 * ids) {
        if (joined < tasks && drawn >= next_join) {
            join(&b, s);
            joined++;
            if (s->apart) next_join += ids / tasks;
            continue;
        }
        if (s->churn && drawn >= next_churn) {
            next_churn += ids / 20;
            uint32_t task = 1 + (uint32_t)(random_unit(&b) * (tasks - 1));
            if (random_unit(&b) < 0.5) {
                double since = now_us();
                fby_sampler_abandon(b.sampler, task);
                took(&b, CALL_ABANDON, since);
            } else {
                leave(&b, task);
                join(&b, s);
            }
        }
        double since = now_us();
        int got = fby_sampler_draw(b.sampler, 0, &draw);
        took(&b, CALL_DRAW, since);
        if (got) {
            drawn += draw.count;
            draws++;
            for (uint32_t i = 0; i < draw.target_count; i++) b.queued[draw.targets[i].task] += draw.count;
        }
        consume(&b, got ? (double)draw.count : (double)batch);
    }

    *totals = (bench_totals){.drawn = drawn, .draws = draws, .bytes = fby_sampler_bytes(b.sampler)};
    fby_sampler_get_stats(b.sampler, &totals->stats);
    fby_sampler_destroy(&b.sampler);
    for (int kind = 0; kind < 2; kind++) free(b.subset[kind]);
}

static void measure(const scenario *s, uint64_t ids, uint32_t tasks, uint32_t batch, double *us_per_id,
                    double *step)
{
    call_times times[CALL_KINDS] = {0};
    bench_totals totals;
    for (int run = 0; run < RUNS; run++) {
        for (int kind = 0; kind < CALL_KINDS; kind++) times[kind].next = 0;
        bench start = {
            .ids = ids, .random = 88172645463325252u, .tasks = tasks, .batch = batch, .times = times};
        play(s, &start, &totals);
    }

    double draw = sum_of(&times[CALL_DRAW]) / (double)totals.drawn;
    double back = sum_of(&times[CALL_BACK]) / (double)totals.drawn;
    *us_per_id = draw + back;
    printf("%-27s %6.3f us/id (draw %.3f, back %.3f)  longest", s->name, *us_per_id, draw, back);
    *step = 0;
    for (int kind = 0; kind < CALL_KINDS; kind++) {
        static const char *const names[] = {"draw", NULL, "join", "leave", "abandon"};
        if (!names[kind]) continue;
        double longest = longest_of(&times[kind]);
        if (longest > *step) *step = longest;
        printf(" %s %4.0f", names[kind], longest);
    }
    printf(" us  shared by %4.1f  block %5.1f  %4.0f MiB\n",
           (double)totals.stats.delivered / (double)totals.stats.drawn,
           (double)totals.drawn / (double)totals.draws, (double)totals.bytes / 1048576);
    fflush(stdout);
    for (int kind = 0; kind < CALL_KINDS; kind++) free(times[kind].us);
}

int main(int argc, char **argv)
{
    uint64_t ids = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    uint32_t tasks = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : FBY_SAMPLER_TASKS;
    uint32_t batch = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 64;
    double worst_id = 0, worst_step = 0;
    if (!ids || !tasks || tasks > FBY_SAMPLER_TASKS || !batch) return 2;

    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        if (argc > 4 && strtoul(argv[4], NULL, 10) != i) continue;
        double us_per_id, step;
        measure(&scenarios[i], ids, tasks, batch, &us_per_id, &step);
        if (us_per_id > worst_id) worst_id = us_per_id;
        if (step > worst_step) worst_step = step;
    }
    printf("{\"name\": \"sampler_id\", \"ratio\": %.3f, \"spread\": 0, \"mark\": %.1f, \"holds\": %s, "
           "\"unit\": \"us an id "
           "drawn, worst scenario\"}\n",
           worst_id, MARK_US_PER_ID, worst_id <= MARK_US_PER_ID ? "true" : "false");
    printf("{\"name\": \"sampler_step\", \"ratio\": %.1f, \"spread\": 0, \"mark\": %.1f, \"holds\": %s, "
           "\"unit\": \"us, the "
           "longest call\"}\n",
           worst_step, MARK_STEP_US, worst_step <= MARK_STEP_US ? "true" : "false");
    return 0;
}
