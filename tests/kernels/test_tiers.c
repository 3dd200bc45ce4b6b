/* Every tier gives the C tier's bytes: random jobs and edges, all filters, orders, flips, element types and
 * layouts. The AVX-512 tier also runs emulated, so that its code is tested on any CPU with AVX2. Input ends
 * 64 bytes before a guard page. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/philox.h"
#include "kernels/resample_kernels.h"
#include "tests/kernels/guarded.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

enum { GUARD = 64, MOST_TABLES = 3 };

#if defined(FBY_SANITIZED)
enum { RANDOM_JOBS = 150 };
#else
enum { RANDOM_JOBS = 700 };
#endif

#if defined(FBY_KERNELS_X86)
extern const fby_kernels fby_kernels_avx512_emulated;
#endif

typedef struct tables {
    const fby_kernels *table[MOST_TABLES];
    const char *name[MOST_TABLES];
    int count;
} tables;

static void table_add(tables *list, const fby_kernels *table, const char *name)
{
    list->table[list->count] = table;
    list->name[list->count++] = name;
}

static tables tables_here(void)
{
    tables list = {0};
#if defined(FBY_KERNELS_X86)
    if (fby_tier_supported(FBY_TIER_AVX2)) {
        table_add(&list, &fby_kernels_avx2, "avx2");
        table_add(&list, &fby_kernels_avx512_emulated, "avx512 emulated");
    }
    if (fby_tier_supported(FBY_TIER_AVX512)) table_add(&list, &fby_kernels_avx512, "avx512");
#endif
    return list;
}

static uint64_t seed_of_run(void)
{
    const char *given = getenv("FOREBAY_SEED");
    return given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
}

/* A picture, its rows `stride` apart, of which exactly the promised 64 bytes past the last may be read. */
typedef struct picture {
    guarded memory;
    size_t stride;
} picture;

static picture picture_make(fby_random *random, uint32_t w, uint32_t h)
{
    picture it = {.stride = (size_t)3 * w + fby_random_below(random, 20)};
    size_t bytes = it.stride * (h - 1) + (size_t)3 * w + GUARD;
    it.memory = guarded_make(bytes);
    cr_assert_not_null(it.memory.bytes, "memory");

    /* Noise, or only 0 and 255, which bicubic and lanczos overshoot. */
    bool extreme = fby_random_below(random, 2);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t noise = (uint8_t)fby_random_u32(random);
        it.memory.bytes[i] = extreme ? (noise & 1 ? 255 : 0) : noise;
    }
    return it;
}

static void resize(const fby_kernels *kernels, const fby_resample_job *job, const picture *from,
                   uint32_t rows, const fby_sink *sink, void *out)
{
    fby_resampler *resampler;
    cr_assert_eq(fby_resampler_create_with(&resampler, kernels), 0);
    cr_assert_eq(fby_resample_begin(resampler, job), 0);
    for (uint32_t y = 0; y < job->in_h; y += rows) {
        uint32_t count = job->in_h - y < rows ? job->in_h - y : rows;
        fby_resample_rows(resampler, from->memory.bytes + y * from->stride, from->stride, count);
    }
    fby_resample_finish(resampler, sink, out);
    fby_resampler_destroy(&resampler);
    cr_assert_null(resampler);
}

static fby_sink sink_draw(fby_random *random)
{
    const fby_dtype dtypes[4] = {FBY_U8, FBY_F16, FBY_BF16, FBY_F32};
    fby_sink sink = {.dtype = dtypes[fby_random_below(random, 4)]};
    sink.layout = fby_random_below(random, 2) ? FBY_HWC : FBY_CHW;
    sink.normalize = sink.dtype != FBY_U8 && fby_random_below(random, 3) > 0;
    sink.unit = fby_random_below(random, 2);
    sink.gray = fby_random_below(random, 4) == 0;
    bool extreme = fby_random_below(random, 4) == 0; /* results that no float holds */
    for (int channel = 0; channel < 3; channel++) {
        sink.mean[channel] = (float)fby_random_unit(random);
        sink.std[channel] = extreme ? 1e-40f : (float)(0.01 + fby_random_unit(random));
    }
    cr_assert_eq(fby_sink_prepare(&sink), 0);
    return sink;
}

static void compare(fby_random *random, const fby_resample_job *job, uint64_t seed)
{
    picture from = picture_make(random, job->in_w, job->in_h);
    fby_sink sink = sink_draw(random);
    size_t bytes = (size_t)(sink.gray ? 1 : 3) * job->out_w * job->out_h * fby_dtype_bytes(sink.dtype);
    const uint32_t chunks[6] = {1, 2, 7, 8, 16, UINT32_MAX};
    uint32_t rows = chunks[fby_random_below(random, 6)];

    guarded expected = guarded_make(bytes), out = guarded_make(bytes);
    cr_assert(expected.bytes && out.bytes, "memory");
    resize(&fby_kernels_c, job, &from, 16, &sink, expected.bytes);

    tables list = tables_here();
    for (int i = 0; i < list.count; i++) {
        memset(out.bytes, 0xEE, bytes);
        resize(list.table[i], job, &from, rows, &sink, out.bytes);
        cr_assert(memcmp(out.bytes, expected.bytes, bytes) == 0,
                  "%s: %ux%u to %ux%u, filter %d, pillow %d, flips %d %d, dtype %d, layout %d, %u rows (seed "
                  "%" PRIu64 ")",
                  list.name[i], job->in_w, job->in_h, job->out_w, job->out_h, job->filter, job->pillow,
                  job->flip_horizontal, job->flip_vertical, sink.dtype, sink.layout, rows, seed);
    }
    guarded_free(&expected);
    guarded_free(&out);
    guarded_free(&from.memory);
}

static uint32_t side_draw(fby_random *random)
{
    const uint32_t most[4] = {3, 20, 70, 330};
    return 1 + fby_random_below(random, most[fby_random_below(random, 4)]);
}

static fby_resample_job job_draw(fby_random *random)
{
    return (fby_resample_job){
        .in_w = side_draw(random),
        .in_h = side_draw(random),
        .out_w = side_draw(random),
        .out_h = side_draw(random),
        .filter = (fby_filter)fby_random_below(random, 5),
        .pillow = fby_random_below(random, 2) ? 13 : 12,
        .flip_horizontal = fby_random_below(random, 2),
        .flip_vertical = fby_random_below(random, 2),
    };
}

Test(tiers, agree_on_random_jobs, .timeout = 100)
{
    uint64_t seed = seed_of_run();
    cr_log_info("seed %" PRIu64, seed);
    fby_random random;
    fby_random_start(&random, seed, 0, 0, 0, 0);
    for (uint32_t i = 0; i < test_scaled(RANDOM_JOBS); i++) {
        fby_resample_job job = job_draw(&random);
        compare(&random, &job, seed);
    }
}

Test(tiers, agree_on_edges, .timeout = 100)
{
    static const uint32_t sizes[][4] = {
        {1, 1, 1, 1},         {1, 1, 17, 33},       {1, 30000, 3, 2},   {30000, 1, 2, 3},
        {30000, 1, 40, 1},    {1, 30000, 1, 1},     {3, 2, 2000, 3},    {2, 3, 3, 2000},
        {64, 64, 64, 64},     {64, 64, 64, 20},     {64, 64, 20, 64},   {320, 240, 224, 224},
        {150, 400, 112, 112}, {224, 225, 224, 224}, {700, 400, 31, 17}, {300, 8, 224, 7},
        {7, 300, 15, 224},    {86, 40, 32, 16},     {85, 40, 32, 16},   {400, 300, 1, 1},
    };
    fby_random random;
    fby_random_start(&random, 7, 0, 0, 0, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int filter = FBY_FILTER_NEAREST; filter <= FBY_FILTER_LANCZOS; filter++) {
            fby_resample_job job = {
                .in_w = sizes[i][0],
                .in_h = sizes[i][1],
                .out_w = sizes[i][2],
                .out_h = sizes[i][3],
                .filter = (fby_filter)filter,
                .pillow = 13,
                .flip_horizontal = filter & 1,
            };
            compare(&random, &job, 7);
        }
    }
}

Test(tiers, agree_on_conversion)
{
    uint64_t seed = seed_of_run();
    fby_random random;
    fby_random_start(&random, seed, 1, 0, 0, 0);
    tables list = tables_here();
    for (int i = 0; i < 300; i++) {
        uint32_t w = 1 + fby_random_below(&random, i % 10 ? 100 : 1600), h = 1 + fby_random_below(&random, 4);
        picture from = picture_make(&random, w, h);
        fby_sink sink = sink_draw(&random);
        bool flip_horizontal = fby_random_below(&random, 2), flip_vertical = fby_random_below(&random, 2);
        size_t bytes = (size_t)(sink.gray ? 1 : 3) * w * h * fby_dtype_bytes(sink.dtype);
        guarded expected = guarded_make(bytes), out = guarded_make(bytes);
        fby_sink_write_with(&sink, &fby_kernels_c, from.memory.bytes, from.stride, w, h, flip_horizontal,
                            flip_vertical, expected.bytes);
        for (int k = 0; k < list.count; k++) {
            memset(out.bytes, 0xEE, bytes);
            fby_sink_write_with(&sink, list.table[k], from.memory.bytes, from.stride, w, h, flip_horizontal,
                                flip_vertical, out.bytes);
            cr_assert(memcmp(out.bytes, expected.bytes, bytes) == 0,
                      "%s: %ux%u, dtype %d, layout %d (seed %" PRIu64 ")", list.name[k], w, h, sink.dtype,
                      sink.layout, seed);
        }
        guarded_free(&expected);
        guarded_free(&out);
        guarded_free(&from.memory);
    }
}

/* The reference itself, by the definition: flips are mirrors of what comes without. */
Test(tiers, flips_are_exact_mirrors)
{
    enum { IN_W = 50, IN_H = 90, OUT = 33 };
    fby_random random;
    fby_random_start(&random, 3, 0, 0, 0, 0);
    picture from = picture_make(&random, IN_W, IN_H);
    fby_sink sink = {.dtype = FBY_U8, .layout = FBY_HWC};
    cr_assert_eq(fby_sink_prepare(&sink), 0);

    static uint8_t plain[OUT][OUT][3], flipped[OUT][OUT][3];
    fby_resample_job job = {
        .in_w = IN_W, .in_h = IN_H, .out_w = OUT, .out_h = OUT, .filter = FBY_FILTER_BICUBIC, .pillow = 13};
    resize(&fby_kernels_c, &job, &from, 16, &sink, plain);
    job.flip_horizontal = job.flip_vertical = true;
    resize(&fby_kernels_c, &job, &from, 16, &sink, flipped);
    for (int y = 0; y < OUT; y++) {
        for (int x = 0; x < OUT; x++) {
            cr_assert(memcmp(plain[y][x], flipped[OUT - 1 - y][OUT - 1 - x], 3) == 0, "row %d, column %d", y,
                      x);
        }
    }
    guarded_free(&from.memory);
}
