/* Lots through readers and workers: all come back, once, with the same bytes whatever the threads; bad ones
 * say why. */
#include "dataplane/engine/engine.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ringbuf/region.h"
#include "ringbuf/wait.h"
#include "tests/ops/make_jpeg.h"
#include "tests/support/test.h"

enum { PICTURES = 60, LOTS = 4, LOT = 20, SIDE = 24 };

static const char SPEC[] = "dataset: data\n"
                           "pipeline:\n"
                           "  - decode\n"
                           "  - random_resized_crop: {size: 24}\n"
                           "  - random_horizontal_flip\n"
                           "  - to: {dtype: u8, layout: chw}\n";

typedef struct engine_fixture {
    char folder[64];
    fby_spec *spec;
    fby_dataset *dataset;
    fby_plan *plan;
    fby_topology *topology;
    fby_engine *engine;
    fby_region segments[LOTS];
    fby_target targets[LOTS][LOT];
    fby_output outputs[LOTS];
    fby_lot lots[LOTS];
} engine_fixture;

static void file_write(const char *folder, unsigned number, const void *bytes, size_t length)
{
    char path[128];
    snprintf(path, sizeof path, "%s/data/a/%03u.jpg", folder, number);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

static void pictures_make(engine_fixture *fixture)
{
    char path[128];
    strcpy(fixture->folder, "/tmp/forebay-engine-XXXXXX");
    cr_assert_not_null(mkdtemp(fixture->folder));
    for (const char *const *part = (const char *const[]){"data", "data/a", NULL}; *part; part++) {
        snprintf(path, sizeof path, "%s/%s", fixture->folder, *part);
        cr_assert_eq(mkdir(path, 0700), 0);
    }
    for (unsigned i = 0; i < PICTURES; i++) {
        made_jpeg picture = make_jpeg(40 + i % 9, 30 + i % 5, 1, i + 1);
        if (i % 20 == 7) picture.length = 11; /* three bad ones */
        file_write(fixture->folder, i, picture.bytes, picture.length);
        free(picture.bytes);
    }
}

static void engine_make(engine_fixture *fixture, fby_reader_kind kind, uint32_t workers)
{
    fby_error error = FBY_ERROR_INIT;
    fby_engine_options options = {
        .workers = workers, .reader = {.kind = kind, .depth = 8}, .topology = fixture->topology};
    fby_cpus_of_process(&options.cpus);
    cr_assert_eq(fby_engine_create(&fixture->engine, &options, &error), 0, "%s", error.text);
}

static void fixture_make(engine_fixture *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    fby_error error = FBY_ERROR_INIT;
    pictures_make(fixture);
    cr_assert_eq(fby_spec_parse(&fixture->spec, "spec", SPEC, strlen(SPEC), fixture->folder, &error), 0, "%s",
                 error.text);
    fby_dataset_options options = {
        .kind = FBY_DATASET_FOLDER, .path = fixture->spec->dataset_path, .cache = ""};
    cr_assert_eq(fby_dataset_open(&fixture->dataset, &options, &error), 0, "%s", error.text);
    const fby_spec *specs[] = {fixture->spec};
    cr_assert_eq(fby_plan_create(&fixture->plan, specs, 1, fby_dataset_fingerprint(fixture->dataset), &error),
                 0, "%s", error.text);
    cr_assert_eq(fby_topology_load(&fixture->topology, NULL, &error), 0, "%s", error.text);
    fby_branch_info branch = fby_plan_branch(fixture->plan, 0);
    for (uint32_t i = 0; i < LOTS; i++) {
        fby_segment_shape shape = {.segment = i + 1,
                                   .first_block = 1,
                                   .blocks = 1,
                                   .capacity = LOT,
                                   .sample_bytes = branch.sample_bytes,
                                   .dtype = branch.dtype,
                                   .dimensions = 3,
                                   .shape = {3, SIDE, SIDE}};
        cr_assert_eq(fby_segment_create(&fixture->segments[i], &shape, -1, &error), 0, "%s", error.text);
        for (uint32_t k = 0; k < LOT; k++)
            fixture->targets[i][k] =
                (fby_target){(uint8_t *)fby_block_payload(&fixture->segments[i], 0) + k * branch.sample_bytes,
                             fby_sample_meta_at(fby_block_meta_at(&fixture->segments[i], 0), k)};
        fixture->outputs[i] = (fby_output){0, fixture->targets[i]};
        fixture->lots[i] = (fby_lot){.jobs = calloc(LOT, sizeof(fby_job)),
                                     .outputs = &fixture->outputs[i],
                                     .output_count = 1,
                                     .plan = fixture->plan,
                                     .dataset = fixture->dataset,
                                     .timeout_ns = UINT64_MAX};
    }
}

static void fixture_remove(engine_fixture *fixture)
{
    char command[128];
    for (uint32_t i = 0; i < LOTS; i++) {
        free(fixture->lots[i].jobs);
        fby_region_close(&fixture->segments[i]);
    }
    fby_plan_destroy(&fixture->plan);
    fby_dataset_close(&fixture->dataset);
    fby_spec_free(&fixture->spec);
    fby_topology_free(&fixture->topology);
    snprintf(command, sizeof command, "rm -r %s", fixture->folder);
    cr_assert_eq(system(command), 0);
}

static void lot_fill(fby_lot *lot, uint64_t first, uint64_t turn)
{
    lot->count = LOT;
    for (uint32_t i = 0; i < LOT; i++) {
        lot->jobs[i].id = (first + i) % PICTURES;
        lot->jobs[i].turn = turn;
        lot->jobs[i].repeat = 0;
    }
}

/* As the conductor waits. */
static fby_lot *lot_wait(fby_engine *engine)
{
    for (;;) {
        fby_lot *lot = fby_engine_finished(engine);
        if (lot) return lot;
        fby_engine_park(engine);
        lot = fby_engine_finished(engine);
        if (!lot) {
            struct pollfd entry = {fby_engine_event(engine), POLLIN, 0};
            poll(&entry, 1, 100);
            uint64_t count;
            if (entry.revents) cr_assert_eq(read(entry.fd, &count, sizeof count), (ssize_t)sizeof count);
        }
        fby_engine_unpark(engine);
        fby_engine_look_after(engine, fby_now_ns());
        if (lot) return lot;
    }
}

/* Every sample where it belongs, described, equal to what the plan makes of it alone. */
static void lot_check(const engine_fixture *fixture, const fby_lot *lot)
{
    static fby_scratch *scratch;
    if (!scratch) cr_assert_eq(fby_scratch_create(&scratch), 0);
    uint8_t alone[3 * SIDE * SIDE + 64];
    uint32_t bad = 0;
    for (uint32_t i = 0; i < lot->count; i++) {
        const fby_job *job = &lot->jobs[i];
        if (job->id % 20 == 7) {
            bad++;
            cr_assert_neq(job->reason, FBY_REASON_NONE);
            cr_assert_str_eq(job->op, "decode");
            continue;
        }
        cr_assert_eq(job->reason, FBY_REASON_NONE, "%s: %s", job->op, job->text);
        const fby_target *target = &lot->outputs[0].targets[i];
        uint64_t bytes = fby_plan_branch(fixture->plan, 0).sample_bytes;
        cr_assert_eq(target->meta->id, job->id);
        cr_assert_eq(target->meta->bytes, bytes);
        made_jpeg picture =
            make_jpeg((uint32_t)(40 + job->id % 9), (uint32_t)(30 + job->id % 5), 1, job->id + 1);
        fby_work work = {.bytes = picture.bytes,
                         .length = picture.length,
                         .id = job->id,
                         .branches = 1,
                         .turn = job->turn,
                         .out = (void *const[]){alone}};
        fby_failure failure;
        cr_assert_eq(fby_plan_run(fixture->plan, scratch, &work, &failure), FBY_REASON_NONE);
        cr_assert_arr_eq(target->payload, alone, bytes);
        free(picture.bytes);
    }
    cr_assert_eq(lot->bad, bad);
}

static void rounds_run(fby_reader_kind kind, uint32_t workers, bool change_cpus)
{
    engine_fixture fixture;
    fixture_make(&fixture);
    engine_make(&fixture, kind, workers);
    fby_error error = FBY_ERROR_INIT;
    uint64_t first = 0;
    for (uint32_t i = 0; i < LOTS; i++, first += LOT) {
        lot_fill(&fixture.lots[i], first, 0);
        fby_engine_submit(fixture.engine, &fixture.lots[i]);
    }
    for (uint32_t round = 0; round < 40; round++, first += LOT) {
        fby_lot *lot = lot_wait(fixture.engine);
        if (round % 8 == 0) lot_check(&fixture, lot);
        if (change_cpus && round % 10 == 5) {
            fby_cpus cpus;
            fby_cpus_of_process(&cpus);
            cr_assert_eq(fby_engine_use_cpus(fixture.engine, &cpus, &error), 0, "%s", error.text);
        }
        lot_fill(lot, first, round + 1);
        fby_engine_submit(fixture.engine, lot);
    }
    for (uint32_t i = 0; i < LOTS; i++) lot_check(&fixture, lot_wait(fixture.engine));
    cr_assert_null(fby_engine_finished(fixture.engine), "no lot comes back twice");
    fby_engine_stats stats;
    for (int i = 0; i < 100; i++) {
        fby_engine_look_after(fixture.engine, fby_now_ns());
        fby_engine_get_stats(fixture.engine, &stats);
        if (stats.workers == workers) break;
        usleep(20000);
    }
    cr_assert_eq(stats.workers, workers);
    cr_assert_eq(stats.reader.files, 44 * LOT);
    cr_assert(!fby_engine_destroy(&fixture.engine));
    fixture_remove(&fixture);
}

Test(engine, lots_come_back_once_by_io_uring_or_what_stands_for_it)
{
    rounds_run(FBY_READER_AUTO, 3, false);
}

Test(engine, lots_come_back_once_by_pread)
{
    rounds_run(FBY_READER_PREAD, 2, false);
}

/* Threads that are stopped in the middle of a ring's operation: another's put is refused then, and mustn't be
 * taken for done. */
Test(engine, more_workers_than_cpus_lose_nothing)
{
    rounds_run(FBY_READER_AUTO, 24, false);
}

Test(engine, workers_may_change_under_way)
{
    rounds_run(FBY_READER_PREAD, 2, true);
}

Test(engine, a_sample_that_no_branch_wants_is_written_nowhere)
{
    engine_fixture fixture;
    fixture_make(&fixture);
    engine_make(&fixture, FBY_READER_PREAD, 2);
    fby_lot *lot = &fixture.lots[0];
    lot_fill(lot, 10, 0);
    fby_target left_out = lot->outputs[0].targets[3];
    uint64_t bytes = fby_plan_branch(fixture.plan, 0).sample_bytes;
    memset(left_out.payload, 0x5a, bytes);
    left_out.meta->id = 77;
    lot->outputs[0].targets[3].payload = NULL;
    fby_engine_submit(fixture.engine, lot);
    cr_assert_eq(lot_wait(fixture.engine), lot);
    cr_assert_eq(lot->bad, 1, "sample 27 among the others");
    cr_assert_eq(left_out.meta->id, 77);
    for (uint64_t i = 0; i < bytes; i++) cr_assert_eq(left_out.payload[i], 0x5a);
    cr_assert_eq(lot->outputs[0].targets[4].meta->id, 14);
    cr_assert(!fby_engine_destroy(&fixture.engine));
    fixture_remove(&fixture);
}

Test(engine, an_idle_engine_ends)
{
    engine_fixture fixture;
    fixture_make(&fixture);
    for (int i = 0; i < 5; i++) {
        engine_make(&fixture, FBY_READER_AUTO, 4);
        cr_assert(!fby_engine_destroy(&fixture.engine));
    }
    fixture_remove(&fixture);
}
