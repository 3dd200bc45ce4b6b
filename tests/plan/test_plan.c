/* Plans: how stages merge, and that a branch's bytes are the same alone, among others, on any thread, after
 * anything. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataplane/plan/plan.h"
#include "tests/ops/make_jpeg.h"
#include "tests/support/test.h"

enum { SPECS = 10, PICTURES = 12 };

static const fby_digest data = {1, 2};

/* Pipelines with common prefixes, forks at every kind of place, and equal ones. */
static const char *const pipelines[SPECS] = {
    "[decode, random_resized_crop: 32, random_horizontal_flip, normalize: imagenet]",
    "[decode, random_resized_crop: 32, random_horizontal_flip, normalize: imagenet, to: {dtype: f16}]",
    "[decode, random_resized_crop: 32, random_horizontal_flip, normalize: imagenet]",
    "[decode, random_resized_crop: {size: [24, 40], augment_seed: 5}, to: {dtype: u8, layout: hwc}]",
    "[decode, resize: 40, center_crop: 32, normalize: imagenet]",
    "[decode, resize: 40, random_vertical_flip: {p: 0.5}, resize: {size: [20, 21], interpolation: lanczos}]",
    "[decode, center_crop: 50, random_horizontal_flip, to: {dtype: bf16}]",
    "[decode, center_crop: 50, random_vertical_flip, random_horizontal_flip, to: {dtype: u8}]",
    "[decode: {exif: true}, center_crop: 50]",
    "[decode, random_horizontal_flip, resize: {size: [33, 31], interpolation: bicubic, pillow: 12}]",
};

static fby_spec *parse(const char *pipeline, uint64_t augment_seed)
{
    char text[600];
    fby_spec *spec;
    fby_error error = FBY_ERROR_INIT;
    snprintf(text, sizeof text, "dataset: d\naugment_seed: %" PRIu64 "\npipeline: %s\n", augment_seed,
             pipeline);
    cr_assert_eq(fby_spec_parse(&spec, "s", text, strlen(text), "/", &error), FBY_OK, "%s", error.text);
    return spec;
}

/* A plan of the pipelines whose bit is set, in order. */
static fby_plan *plan_of(uint32_t which)
{
    fby_spec *specs[SPECS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < SPECS; i++)
        if (which >> i & 1) specs[count++] = parse(pipelines[i], 0);
    fby_plan *plan;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_plan_create(&plan, (const fby_spec *const *)specs, count, data, &error), FBY_OK, "%s",
                 error.text);
    cr_assert_eq(fby_plan_branches(plan), count);
    for (uint32_t i = 0; i < count; i++) fby_spec_free(&specs[i]);
    return plan;
}

static fby_plan *plan_of_text(const char *pipeline, uint64_t augment_seed)
{
    fby_spec *spec = parse(pipeline, augment_seed);
    fby_plan *plan;
    cr_assert_eq(fby_plan_create(&plan, (const fby_spec *const *)&spec, 1, data, NULL), FBY_OK);
    fby_spec_free(&spec);
    return plan;
}

static fby_digest last_key(const char *pipeline, uint64_t augment_seed)
{
    fby_plan *plan = plan_of_text(pipeline, augment_seed);
    fby_stage_info stage;
    fby_plan_stage(plan, fby_plan_stages(plan) - 1, &stage);
    fby_plan_destroy(&plan);
    return stage.key;
}

static bool same_key(const char *one, uint64_t one_seed, const char *other, uint64_t other_seed)
{
    return fby_digest_equal(last_key(one, one_seed), last_key(other, other_seed));
}

Test(plan, equal_prefixes_are_one_stage)
{
    fby_plan *plan = plan_of(0x7);
    fby_stage_info stage;
    /* source, decode, crop, flip, normalize, and two kinds of to */
    cr_assert_eq(fby_plan_stages(plan), 7);
    for (uint32_t i = 0; i < 7; i++) {
        fby_plan_stage(plan, i, &stage);
        cr_assert_lt(stage.parent, (int32_t)i);
        cr_assert_eq(stage.branches, i < 5 ? 7 : i == 5 ? 5 : 2);
    }
    fby_plan_stage(plan, 0, &stage);
    cr_assert_str_eq(stage.op, "source");
    cr_assert_eq(stage.parent, -1);
    cr_assert_eq(stage.key.high, data.high);
    fby_plan_stage(plan, 2, &stage);
    cr_assert_str_eq(stage.op, "random_resized_crop");
    cr_assert(stage.random);
    cr_assert(!strncmp(stage.params, "{size: 32, scale: [0.08, 1]", 27), "%s", stage.params);
    fby_plan_destroy(&plan);
    cr_assert_null(plan);
}

Test(plan, keys_say_what_is_equal)
{
    const char *flip = "[decode, center_crop: 9, random_horizontal_flip]";
    cr_assert(same_key(
        flip, 3,
        "[decode: {}, center_crop: [9, 9], random_horizontal_flip: {augment_seed: 3}, to: {dtype: u8}]", 0));
    cr_assert_not(same_key(flip, 3, flip, 4), "another seed");
    cr_assert(same_key("[decode, center_crop: 9]", 3, "[decode, center_crop: 9]", 4), "nothing random");
    cr_assert_not(same_key("[decode, center_crop: 9]", 0, "[decode, center_crop: [9, 8]]", 0));
    cr_assert_not(same_key("[decode, center_crop: [8, 9]]", 0, "[decode, center_crop: [9, 8]]", 0));
    cr_assert_not(same_key("[decode, resize: [9, 9]]", 0, "[decode, center_crop: [9, 9]]", 0), "another op");
    cr_assert_not(same_key("[decode, resize: [9, 9]]", 0, "[decode: {exif: true}, resize: [9, 9]]", 0),
                  "another parent");
}

Test(plan, shapes)
{
    fby_plan *plan = plan_of(0xB);
    fby_branch_info info = fby_plan_branch(plan, 0);
    cr_assert_eq(info.dtype, FBY_F32);
    cr_assert_eq(info.layout, FBY_CHW);
    cr_assert_eq(info.sample_bytes, 3 * 32 * 32 * 4);
    cr_assert_eq(info.dimensions, 3);
    cr_assert(info.shape[0] == 3 && info.shape[1] == 32 && info.shape[2] == 32);
    info = fby_plan_branch(plan, 1);
    cr_assert_eq(info.sample_bytes, 3 * 32 * 32 * 2);
    info = fby_plan_branch(plan, 2);
    cr_assert(info.shape[0] == 24 && info.shape[1] == 40 && info.shape[2] == 3);
    fby_plan_destroy(&plan);
}

Test(plan, counts_are_checked)
{
    fby_plan *plan;
    fby_error error = FBY_ERROR_INIT;
    const fby_spec *specs[FBY_PLAN_BRANCHES + 1];
    fby_spec *spec = parse(pipelines[0], 0);
    for (int i = 0; i <= FBY_PLAN_BRANCHES; i++) specs[i] = spec;
    cr_assert_eq(fby_plan_create(&plan, specs, 0, data, &error), FBY_EINVAL);
    cr_assert_eq(fby_plan_create(&plan, specs, FBY_PLAN_BRANCHES + 1, data, &error), FBY_EINVAL);
    cr_assert_null(plan);
    cr_assert_eq(fby_plan_create(&plan, specs, FBY_PLAN_BRANCHES, data, &error), FBY_OK);
    cr_assert_eq(fby_plan_stages(plan), 6, "64 equal specs are one branch of stages");
    fby_plan_destroy(&plan);
    fby_spec_free(&spec);
}

/* Runs some branches of a plan on one picture; results[b] is malloc'd. */
static void run(const fby_plan *plan, fby_scratch *scratch, const made_jpeg *jpeg, uint64_t id, uint64_t turn,
                uint64_t branches, uint8_t **results)
{
    fby_failure failure;
    void *out[FBY_PLAN_BRANCHES] = {NULL};
    for (uint32_t b = 0; b < fby_plan_branches(plan); b++) {
        if (!(branches >> b & 1)) continue;
        results[b] = calloc(1, fby_plan_branch(plan, b).sample_bytes);
        out[b] = results[b];
    }
    fby_work work = {.bytes = jpeg->bytes,
                     .length = jpeg->length,
                     .id = id,
                     .branches = branches,
                     .turn = turn,
                     .epoch = turn,
                     .out = out};
    cr_assert_eq(fby_plan_run(plan, scratch, &work, &failure), FBY_REASON_NONE, "%s: %s", failure.op,
                 failure.text);
}

Test(plan, a_branch_among_others_is_as_it_is_alone, .timeout = 60)
{
    uint64_t seed = (uint64_t)time(NULL), state = seed * 2 + 1;
    fby_scratch *scratch, *fresh;
    cr_assert_eq(fby_scratch_create(&scratch), FBY_OK);
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t which = (uint32_t)test_random(&state) & ((1u << SPECS) - 1);
        if (round % 8 == 0) which = (1u << SPECS) - 1;
        if (!which) continue;
        fby_plan *plan = plan_of(which);
        uint32_t count = fby_plan_branches(plan);
        uint64_t wanted = (test_random(&state) | 1) & ((UINT64_C(1) << count) - 1);
        made_jpeg jpeg = make_jpeg((uint32_t)(test_random(&state) % 200) + 1,
                                   (uint32_t)(test_random(&state) % 200) + 1, (int)(round & 1), round);
        uint8_t *together[SPECS] = {NULL};
        run(plan, scratch, &jpeg, round, round % 3, wanted, together);
        for (uint32_t b = 0, i = 0; i < SPECS; i++) {
            if (!(which >> i & 1)) continue;
            uint32_t branch = b++;
            if (!(wanted >> branch & 1)) continue;
            fby_plan *alone = plan_of_text(pipelines[i], 0);
            uint8_t *result[1] = {NULL};
            fby_scratch_create(&fresh);
            run(alone, fresh, &jpeg, round, round % 3, 1, result);
            cr_assert(!memcmp(result[0], together[branch], fby_plan_branch(alone, 0).sample_bytes),
                      "seed %" PRIu64 ", round %u: %s", seed, round, pipelines[i]);
            free(result[0]);
            free(together[branch]);
            fby_scratch_destroy(&fresh);
            fby_plan_destroy(&alone);
        }
        free(jpeg.bytes);
        fby_plan_destroy(&plan);
    }
    fby_scratch_destroy(&scratch);
    cr_assert_null(scratch);
}

/* Work for one thread: every picture, in an order of its own. */
typedef struct job {
    const fby_plan *plan;
    const made_jpeg *jpegs;
    uint64_t seed;
    uint8_t *results[PICTURES][SPECS];
} job;

static void *work_through(void *argument)
{
    job *mine = argument;
    fby_scratch *scratch;
    uint64_t state = mine->seed * 2 + 1;
    uint32_t order[PICTURES];
    for (uint32_t i = 0; i < PICTURES; i++) order[i] = i;
    for (uint32_t i = PICTURES - 1; i > 0; i--) {
        uint32_t k = (uint32_t)(test_random(&state) % (i + 1)), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    fby_scratch_create(&scratch);
    for (uint32_t i = 0; i < PICTURES; i++)
        run(mine->plan, scratch, &mine->jpegs[order[i]], order[i], 7, (1u << SPECS) - 1,
            mine->results[order[i]]);
    fby_scratch_destroy(&scratch);
    return NULL;
}

Test(plan, results_depend_on_no_thread_and_no_order, .timeout = 60)
{
    enum { THREADS = 4 };
    fby_plan *plan = plan_of((1u << SPECS) - 1);
    made_jpeg jpegs[PICTURES];
    for (uint32_t i = 0; i < PICTURES; i++) jpegs[i] = make_jpeg(30 + i * 17, 200 - i * 11, (int)(i & 1), i);
    static job jobs[THREADS];
    pthread_t threads[THREADS];
    for (uint32_t t = 0; t < THREADS; t++) {
        jobs[t].plan = plan;
        jobs[t].jpegs = jpegs;
        jobs[t].seed = t + (uint64_t)time(NULL);
        pthread_create(&threads[t], NULL, work_through, &jobs[t]);
    }
    for (uint32_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    for (uint32_t i = 0; i < PICTURES; i++) {
        for (uint32_t b = 0; b < SPECS; b++) {
            for (uint32_t t = 1; t < THREADS; t++)
                cr_assert(!memcmp(jobs[0].results[i][b], jobs[t].results[i][b],
                                  fby_plan_branch(plan, b).sample_bytes));
            for (uint32_t t = 0; t < THREADS; t++) free(jobs[t].results[i][b]);
        }
        free(jpegs[i].bytes);
    }
    fby_plan_destroy(&plan);
}

Test(plan, draws_depend_on_seed_id_turn_and_repeat)
{
    fby_plan *plan = plan_of_text(pipelines[0], 1), *other = plan_of_text(pipelines[0], 2);
    fby_trace first, again, by_id, by_turn, by_repeat, by_seed;
    cr_assert_eq(fby_plan_trace(plan, 0, 5, 6, 0, 500, 375, &first), FBY_OK);
    fby_plan_trace(plan, 0, 5, 6, 0, 500, 375, &again);
    fby_plan_trace(plan, 0, 4, 6, 0, 500, 375, &by_id);
    fby_plan_trace(plan, 0, 5, 7, 0, 500, 375, &by_turn);
    fby_plan_trace(plan, 0, 5, 6, 1, 500, 375, &by_repeat);
    fby_plan_trace(other, 0, 5, 6, 0, 500, 375, &by_seed);
    cr_assert_eq(first.count, 5);
    cr_assert_str_eq(first.steps[1].op, "random_resized_crop");
    cr_assert_eq(first.steps[1].out_w, 32);
    size_t bytes = first.count * sizeof *first.steps;
    cr_assert(!memcmp(first.steps, again.steps, bytes));
    cr_assert(memcmp(first.steps, by_id.steps, bytes));
    cr_assert(memcmp(first.steps, by_turn.steps, bytes));
    cr_assert(memcmp(first.steps, by_repeat.steps, bytes));
    cr_assert(memcmp(first.steps, by_seed.steps, bytes));
    cr_assert_eq(fby_plan_trace(plan, 1, 5, 6, 0, 500, 375, &first), FBY_EINVAL);
    cr_assert_eq(fby_plan_trace(plan, 0, 5, 6, 0, 0, 375, &first), FBY_EINVAL);
    fby_plan_destroy(&plan);
    fby_plan_destroy(&other);
}

static fby_stage_cost cost_of(const fby_plan *plan, const char *op)
{
    fby_stage_cost cost = {0};
    for (uint32_t i = 0; i < fby_plan_stages(plan); i++) {
        fby_stage_info stage;
        fby_plan_stage(plan, i, &stage);
        if (!strcmp(stage.op, op)) fby_plan_stage_cost(plan, i, &cost);
    }
    return cost;
}

/* Whether the crop, which needed the pixels and settled the resize, was cheap beside both; all that isn't
 * time is asserted. */
static bool crop_costs_little(void)
{
    fby_spec *specs[] = {parse("[decode, resize: 400, center_crop: 300]", 0),
                         parse("[decode, resize: 400, center_crop: 300, random_horizontal_flip]", 0)};
    fby_plan *plan;
    cr_assert_eq(fby_plan_create(&plan, (const fby_spec *const *)specs, 2, data, NULL), FBY_OK);
    fby_scratch *scratch;
    fby_scratch_create(&scratch);
    made_jpeg jpeg = make_jpeg(1600, 1200, 1, 5);
    for (uint64_t id = 0; id < 5; id++) {
        uint8_t *results[2] = {NULL, NULL};
        run(plan, scratch, &jpeg, id, 0, id < 3 ? 3 : 1, results);
        free(results[0]);
        free(results[1]);
    }
    fby_stage_cost source = cost_of(plan, "source"), decode = cost_of(plan, "decode"),
                   resize = cost_of(plan, "resize"), crop = cost_of(plan, "center_crop"),
                   flip = cost_of(plan, "random_horizontal_flip");
    cr_assert(source.samples == 5 && decode.samples == 5 && resize.samples == 5 && crop.samples == 5);
    cr_assert_eq(flip.samples, 3);
    fby_scratch_times times;
    fby_scratch_get_times(scratch, &times);
    uint64_t sum = 0, all = times.decode_ns + times.transform_ns;
    for (uint32_t i = 0; i < fby_plan_stages(plan); i++) {
        fby_stage_cost cost;
        fby_plan_stage_cost(plan, i, &cost);
        sum += cost.cpu_ns;
    }
    cr_assert(sum <= all + all / 100 && sum >= all - all / 10, "%" PRIu64 " of %" PRIu64, sum, all);
    cr_assert_gt(fby_plan_age_ns(plan), 0);
    free(jpeg.bytes);
    fby_scratch_destroy(&scratch);
    fby_plan_destroy(&plan);
    for (int i = 0; i < 2; i++) fby_spec_free(&specs[i]);
    return decode.cpu_ns > 10 * crop.cpu_ns && resize.cpu_ns > 10 * crop.cpu_ns;
}

/* Other programs may take the CPU in the middle of a crop, but not each time. */
Test(plan, costs_count_where_work_was_asked_for)
{
    bool little = false;
    for (int attempt = 0; attempt < 10 && !little; attempt++) little = crop_costs_little();
    cr_assert(little);
}

static void fails(const char *pipeline, const uint8_t *bytes, size_t length, fby_reason reason,
                  const char *op)
{
    fby_plan *plan = plan_of_text(pipeline, 0);
    fby_scratch *scratch;
    fby_failure failure;
    fby_scratch_create(&scratch);
    void *out = calloc(1, fby_plan_branch(plan, 0).sample_bytes);
    fby_work work = {.bytes = bytes, .length = length, .branches = 1, .out = &out};
    cr_assert_eq(fby_plan_run(plan, scratch, &work, &failure), reason, "%s", pipeline);
    cr_assert_eq(failure.reason, reason);
    cr_assert_str_eq(failure.op, op);
    /* A bad sample leaves the scratch fit for a good one. */
    made_jpeg good = make_jpeg(40, 30, 1, 1);
    fby_plan *plain = plan_of_text("[decode, center_crop: 8]", 0);
    uint8_t *result[1] = {NULL};
    run(plain, scratch, &good, 0, 0, 1, result);
    free(result[0]);
    free(good.bytes);
    free(out);
    fby_plan_destroy(&plain);
    fby_plan_destroy(&plan);
    fby_scratch_destroy(&scratch);
}

Test(plan, bad_samples_name_reason_and_op)
{
    made_jpeg jpeg = make_jpeg(300, 200, 1, 3), thin = make_jpeg(1, 3000, 0, 4);
    uint8_t page[128] = "<html><body>not a picture</body></html>";
    fails(pipelines[0], page, 0, FBY_REASON_EMPTY, "decode");
    fails(pipelines[0], page, 39, FBY_REASON_FORMAT, "decode");
    fails(pipelines[0], jpeg.bytes, jpeg.length / 2, FBY_REASON_TRUNCATED, "decode");
    fails(pipelines[5], jpeg.bytes, jpeg.length / 2, FBY_REASON_TRUNCATED, "decode");
    fails("[decode: {max_pixels: 59999}, center_crop: 8]", jpeg.bytes, jpeg.length, FBY_REASON_TOO_LARGE,
          "decode");
    fails("[decode, resize: 300, center_crop: 8]", thin.bytes, thin.length, FBY_REASON_SHAPE, "resize");
    free(jpeg.bytes);
    free(thin.bytes);
}

/* A branch that fails after it needed pixels, beside one that needs a region only. */
Test(plan, a_failing_branch_beside_a_good_one_does_no_harm)
{
    fby_spec *specs[] = {parse("[decode, random_resized_crop: 8]", 0),
                         parse("[decode, resize: 20, resize: 21, resize: 300, center_crop: 8]", 0)};
    made_jpeg thin = make_jpeg(1, 3000, 0, 4);
    fby_plan *plan;
    fby_scratch *scratch;
    fby_failure failure;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_plan_create(&plan, (const fby_spec *const *)specs, 2, data, &error), FBY_OK, "%s",
                 error.text);
    uint8_t results[2][3 * 8 * 8];
    void *out[2] = {results[0], results[1]};
    fby_scratch_create(&scratch);
    fby_work work = {.bytes = thin.bytes, .length = thin.length, .branches = 3, .out = out};
    cr_assert_eq(fby_plan_run(plan, scratch, &work, &failure), FBY_REASON_SHAPE);
    cr_assert_str_eq(failure.op, "resize");
    fby_scratch_destroy(&scratch);
    fby_plan_destroy(&plan);
    free(thin.bytes);
    fby_spec_free(&specs[0]);
    fby_spec_free(&specs[1]);
}

Test(plan, times_and_memory_are_counted)
{
    fby_plan *plan = plan_of_text(pipelines[0], 0);
    fby_scratch *scratch;
    fby_scratch_times times;
    fby_scratch_create(&scratch);
    made_jpeg jpeg = make_jpeg(500, 375, 1, 9);
    for (uint64_t i = 0; i < 20; i++) {
        uint8_t *result[1] = {NULL};
        run(plan, scratch, &jpeg, i, 0, 1, result);
        free(result[0]);
    }
    fby_scratch_get_times(scratch, &times);
    cr_assert_eq(times.samples, 20);
    cr_assert_gt(times.decode_ns, 20 * 10000);
    cr_assert_gt(times.transform_ns, 0);
    cr_assert_gt(fby_scratch_bytes(scratch), 1000);
    cr_assert_lt(fby_scratch_bytes(scratch), 64u << 20);
    free(jpeg.bytes);
    fby_scratch_destroy(&scratch);
    fby_plan_destroy(&plan);
}

Test(plan, nothing_wanted_is_nothing_done)
{
    fby_plan *plan = plan_of(3);
    fby_scratch *scratch;
    fby_failure failure;
    fby_scratch_create(&scratch);
    fby_work work = {.bytes = NULL, .length = 0, .branches = 0};
    cr_assert_eq(fby_plan_run(plan, scratch, &work, &failure), FBY_REASON_NONE);
    fby_scratch_destroy(&scratch);
    fby_plan_destroy(&plan);
}
