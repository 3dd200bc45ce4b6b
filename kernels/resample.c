/* The resampler: takes rows as they come, keeps what the passes need, writes the picture at the end. */
#include "kernels/resample.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/resample_kernels.h"

/* Rows of pairs that are summed vertically while they arrive, for the order that does that first. */
typedef struct window_of_rows {
    fby_buffer pairs;
    size_t pair_bytes, capacity; /* of pairs */
    size_t groups;
    uint32_t first_pair; /* the pair that lies at the front */
    uint32_t rows;       /* arrived */
    uint32_t next;       /* output row */
} window_of_rows;

struct fby_resampler {
    const fby_kernels *kernels;
    fby_resample_job job;
    bool vertical_first;

    fby_taps horizontal_taps, vertical_taps, finish_taps;
    fby_horizontal horizontal;
    fby_vertical vertical; /* of vertical_taps */
    fby_vertical finish;   /* the pass from `planes` to the output: vertical_taps, or the identity */

    /* The horizontally resized picture, in pairs of rows: R groups, G groups, B groups. */
    fby_buffer planes;
    size_t groups, pair_bytes;
    uint32_t planes_next; /* output row whose window was not yet passed, to leave out rows that none needs */

    window_of_rows window;

    fby_buffer pending; /* rows that don't fill a block yet */
    size_t pending_bytes;
    uint32_t pending_count, rows_taken;

    fby_buffer block; /* vertically resized rows, until there are 8 */
    size_t block_bytes;

    fby_buffer line; /* an output row in u8: planes, then interleaved */
};

const fby_kernels *fby_kernels_of(fby_tier tier)
{
#if defined(FBY_KERNELS_X86)
    if (fby_tier_supported(tier)) {
        if (tier == FBY_TIER_AVX512) return &fby_kernels_avx512;
        if (tier == FBY_TIER_AVX2) return &fby_kernels_avx2;
    }
#endif
    (void)tier;
    return &fby_kernels_c;
}

int fby_resampler_create_with(fby_resampler **out, const fby_kernels *kernels)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return -1;
    (*out)->kernels = kernels;
    return 0;
}

int fby_resampler_create(fby_resampler **out, fby_tier tier)
{
    return fby_resampler_create_with(out, fby_kernels_of(tier));
}

enum { BUFFERS = 12 };

/* Every buffer of the resampler: for what is done to all of them. */
static void buffers_of(fby_resampler *it, fby_buffer *list[BUFFERS])
{
    fby_buffer *all[BUFFERS] = {
        &it->horizontal_taps.memory,
        &it->vertical_taps.memory,
        &it->finish_taps.memory,
        &it->horizontal.table,
        &it->horizontal.work,
        &it->vertical.memory,
        &it->finish.memory,
        &it->planes,
        &it->window.pairs,
        &it->pending,
        &it->block,
        &it->line,
    };
    memcpy(list, all, sizeof all);
}

void fby_resampler_destroy(fby_resampler **resampler)
{
    if (!*resampler) return;

    fby_buffer *list[BUFFERS];
    buffers_of(*resampler, list);
    for (int i = 0; i < BUFFERS; i++) fby_buffer_free(list[i]);
    free(*resampler);
    *resampler = NULL;
}

/* What an outsized picture took isn't kept. */
static void outsized_free(fby_resampler *it)
{
    fby_buffer *list[BUFFERS];
    buffers_of(it, list);
    for (int i = 0; i < BUFFERS; i++) fby_buffer_trim(list[i]);
}

size_t fby_resampler_bytes(const fby_resampler *resampler)
{
    fby_buffer *list[BUFFERS];
    buffers_of((fby_resampler *)resampler, list);

    size_t total = sizeof *resampler;
    for (int i = 0; i < BUFFERS; i++) total += list[i]->bytes;
    return total;
}

static uint32_t weight_low(int32_t even, int32_t odd)
{
    return ((uint32_t)even & 2047) | ((uint32_t)odd & 2047) << 16;
}

static uint32_t weight_high(int32_t even, int32_t odd)
{
    return ((uint32_t)(even >> 11) & 0xFFFF) | (uint32_t)(odd >> 11) << 16;
}

static int vertical_prepare(fby_vertical *vertical, const fby_taps *taps)
{
    size_t weights = 0;
    for (uint32_t o = 0; o < taps->out; o++) weights += taps->count[o] / 2 + 1;

    size_t bytes = taps->out * (sizeof(size_t) + 2 * sizeof(uint32_t)) + weights * 2 * sizeof(uint32_t);
    if (fby_buffer_reserve(&vertical->memory, bytes)) return -1;

    size_t *at = vertical->memory.data;
    uint32_t *first_pair = (uint32_t *)(at + taps->out), *pairs = first_pair + taps->out,
             *weight = pairs + taps->out;
    size_t used = 0;
    for (uint32_t o = 0; o < taps->out; o++) {
        uint32_t first = taps->first[o], end = first + taps->count[o];
        const int32_t *from = taps->weight + taps->at[o];
        first_pair[o] = first / 2;
        pairs[o] = (end + 1) / 2 - first / 2;
        at[o] = used;
        for (uint32_t y = first & ~1u; y < end; y += 2) {
            int32_t even = y >= first ? from[y - first] : 0;
            int32_t odd = y + 1 < end ? from[y + 1 - first] : 0;
            weight[used++] = weight_low(even, odd);
            weight[used++] = weight_high(even, odd);
        }
    }

    vertical->taps = taps;
    vertical->first_pair = first_pair;
    vertical->pairs = pairs;
    vertical->at = at;
    vertical->weight = weight;
    return 0;
}

static fby_vertical_row vertical_row(const fby_vertical *vertical, uint32_t o, const uint8_t *pairs,
                                     size_t pair_bytes)
{
    return (fby_vertical_row){
        .pairs = pairs,
        .pair_bytes = pair_bytes,
        .count = vertical->pairs[o],
        .weight = vertical->weight + vertical->at[o],
    };
}

static bool runs_vertical_first(const fby_resample_job *job)
{
    if (job->pillow < 13 || job->filter == FBY_FILTER_NEAREST) return false;
    int64_t less_h = (int64_t)job->in_h - job->out_h, less_w = (int64_t)job->in_w - job->out_w;
    return less_h > 0 && less_h > 2 * less_w;
}

static int window_prepare(window_of_rows *window, const fby_taps *taps, size_t row_bytes)
{
    window->groups = fby_groups(row_bytes);
    window->pair_bytes = window->groups * FBY_GROUP_BYTES;
    window->capacity = (taps->longest + 1) / 2 + 1 + 4 * FBY_BLOCK_ROWS;
    window->first_pair = 0;
    window->rows = 0;
    window->next = 0;
    return fby_buffer_reserve(&window->pairs, window->capacity * window->pair_bytes);
}

int fby_resample_begin(fby_resampler *it, const fby_resample_job *job)
{
    const uint32_t most = FBY_RESAMPLE_MOST;
    if (job->in_w > most || job->in_h > most || job->out_w > most || job->out_h > most) return -1;

    outsized_free(it); /* of a picture that was given up */
    it->job = *job;
    it->vertical_first = runs_vertical_first(job);
    it->pending_count = 0;
    it->rows_taken = 0;
    it->planes_next = 0;

    if (fby_taps_fill(&it->horizontal_taps, job->filter, job->in_w, job->out_w)) return -1;
    if (fby_taps_fill(&it->vertical_taps, job->filter, job->in_h, job->out_h)) return -1;

    it->horizontal.taps = &it->horizontal_taps;
    it->horizontal.flip = job->flip_horizontal;
    if (it->kernels->horizontal_prepare(&it->horizontal)) return -1;

    const fby_taps *last = &it->vertical_taps;
    size_t row_bytes = (size_t)3 * job->in_w;
    if (it->vertical_first) {
        if (vertical_prepare(&it->vertical, &it->vertical_taps)) return -1;
        if (window_prepare(&it->window, &it->vertical_taps, row_bytes)) return -1;

        it->block_bytes = it->window.groups * FBY_GROUP + FBY_READ_PAST_END;
        if (fby_buffer_reserve(&it->block, FBY_BLOCK_ROWS * it->block_bytes)) return -1;

        if (fby_taps_fill(&it->finish_taps, job->filter, job->out_h, job->out_h)) return -1;
        last = &it->finish_taps;
    }
    if (vertical_prepare(&it->finish, last)) return -1;

    it->groups = fby_groups(job->out_w);
    it->pair_bytes = 3 * it->groups * FBY_GROUP_BYTES;
    size_t blocks = (last->in + FBY_BLOCK_ROWS - 1) / FBY_BLOCK_ROWS;
    if (fby_buffer_reserve(&it->planes, blocks * (FBY_BLOCK_ROWS / 2) * it->pair_bytes)) return -1;

    it->pending_bytes = (row_bytes + FBY_READ_PAST_END + 63) & ~(size_t)63;
    if (fby_buffer_reserve(&it->pending, FBY_BLOCK_ROWS * it->pending_bytes)) return -1;
    return fby_buffer_reserve(&it->line, 6 * it->groups * FBY_GROUP);
}

/* Whether some output row needs one of the 8 rows from y on. Only nearest leaves rows out. Rows come in
 * order. */
static bool block_is_needed(fby_resampler *it, uint32_t y)
{
    if (it->job.filter != FBY_FILTER_NEAREST) return true;

    const fby_taps *taps = it->finish.taps;
    while (it->planes_next < taps->out && taps->first[it->planes_next] + taps->count[it->planes_next] <= y) {
        it->planes_next++;
    }
    return it->planes_next < taps->out && taps->first[it->planes_next] < y + FBY_BLOCK_ROWS;
}

static void block_resize(fby_resampler *it, uint32_t y, const uint8_t *const row[FBY_BLOCK_ROWS])
{
    uint8_t *pairs = (uint8_t *)it->planes.data + y / 2 * it->pair_bytes;
    it->horizontal.run(&it->horizontal, row, pairs, it->pair_bytes);
}

/* Makes room for 4 more pairs by dropping those that no output row to come needs. */
static void window_slide(window_of_rows *window, const fby_vertical *vertical)
{
    uint32_t last = window->rows / 2, keep = vertical->taps->low[window->next] / 2;
    if (last + FBY_BLOCK_ROWS / 2 - window->first_pair <= window->capacity) return;

    uint8_t *pairs = window->pairs.data;
    if (keep < last) {
        memmove(pairs, pairs + (keep - window->first_pair) * window->pair_bytes,
                (last - keep) * window->pair_bytes);
        window->first_pair = keep;
    } else {
        window->first_pair = last;
    }
}

static void block_of_lines(const fby_resampler *it, uint32_t count, const uint8_t *row[FBY_BLOCK_ROWS])
{
    for (uint32_t i = 0; i < FBY_BLOCK_ROWS; i++) {
        row[i] = (const uint8_t *)it->block.data + (i < count ? i : count - 1) * it->block_bytes;
    }
}

static void window_take(fby_resampler *it, uint32_t count, const uint8_t *const row[FBY_BLOCK_ROWS])
{
    window_of_rows *window = &it->window;
    const fby_taps *taps = &it->vertical_taps;
    if (window->next == taps->out) return;

    window_slide(window, &it->vertical);
    uint8_t *pairs = (uint8_t *)window->pairs.data;
    it->kernels->pair_rows(row, (size_t)3 * it->job.in_w,
                           pairs + (window->rows / 2 - window->first_pair) * window->pair_bytes,
                           window->pair_bytes);
    window->rows += count;

    while (window->next < taps->out &&
           taps->first[window->next] + taps->count[window->next] <= window->rows) {
        uint32_t o = window->next++, line = o % FBY_BLOCK_ROWS;
        const uint8_t *from = pairs + (it->vertical.first_pair[o] - window->first_pair) * window->pair_bytes;
        fby_vertical_row sum = vertical_row(&it->vertical, o, from, window->pair_bytes);
        it->kernels->vertical_bytes(&sum, window->groups, (uint8_t *)it->block.data + line * it->block_bytes);

        if (line == FBY_BLOCK_ROWS - 1 || window->next == taps->out) {
            const uint8_t *lines[FBY_BLOCK_ROWS];
            block_of_lines(it, line + 1, lines);
            block_resize(it, o - line, lines);
        }
    }
}

static void block_take(fby_resampler *it, uint32_t count, const uint8_t *const row[FBY_BLOCK_ROWS])
{
    uint32_t y = it->rows_taken;
    it->rows_taken += count;
    if (it->vertical_first) {
        window_take(it, count, row);
    } else if (block_is_needed(it, y)) {
        block_resize(it, y, row);
    }
}

void fby_resample_rows(fby_resampler *it, const uint8_t *rgb, size_t stride, uint32_t count)
{
    const uint8_t *row[FBY_BLOCK_ROWS];
    uint32_t missing = it->job.in_h - it->rows_taken - it->pending_count;
    if (count > missing) count = missing;

    while (count > 0) {
        uint32_t take = count < FBY_BLOCK_ROWS ? count : FBY_BLOCK_ROWS;
        if (it->pending_count == 0 && (take == FBY_BLOCK_ROWS || count == missing)) {
            for (uint32_t i = 0; i < FBY_BLOCK_ROWS; i++) row[i] = rgb + (i < take ? i : take - 1) * stride;
            block_take(it, take, row);
        } else {
            take = 1;
            memcpy((uint8_t *)it->pending.data + it->pending_count * it->pending_bytes, rgb,
                   (size_t)3 * it->job.in_w);
            it->pending_count++;
            if (it->pending_count == FBY_BLOCK_ROWS || missing == 1) {
                uint32_t held = it->pending_count;
                for (uint32_t i = 0; i < FBY_BLOCK_ROWS; i++) {
                    row[i] = (uint8_t *)it->pending.data + (i < held ? i : held - 1) * it->pending_bytes;
                }
                block_take(it, held, row);
                it->pending_count = 0;
            }
        }
        rgb += take * stride;
        count -= take;
        missing -= take;
    }
}

static void row_write(fby_resampler *it, const fby_sink *sink, fby_vertical_row row, size_t y, char *out)
{
    const fby_kernels *kernels = it->kernels;
    size_t w = it->job.out_w, h = it->job.out_h, element = fby_dtype_bytes(sink->dtype);
    size_t channel_bytes = it->groups * FBY_GROUP_BYTES, plane = it->groups * FBY_GROUP;
    int channels = sink->gray ? 1 : 3;
    bool planar = sink->gray || sink->layout == FBY_CHW;

    if (planar && sink->exact_by_multiplication) {
        for (int channel = 0; channel < channels; channel++) {
            kernels->vertical_floats(&row, sink, channel, w, out + (channel * h + y) * w * element);
            row.pairs += channel_bytes;
        }
        return;
    }

    uint8_t *planes = it->line.data, *rgb = planes + 3 * plane;
    kernels->vertical_bytes(&row, (size_t)channels * it->groups, planes);
    if (planar) {
        for (int channel = 0; channel < channels; channel++) {
            char *to = out + (channel * h + y) * w * element;
            kernels->convert_plane(sink, channel, planes + channel * plane, w, to);
        }
    } else if (sink->dtype == FBY_U8) {
        kernels->rgb_of_planes(planes, plane, w, (uint8_t *)out + y * w * 3);
    } else {
        kernels->rgb_of_planes(planes, plane, w, rgb);
        kernels->convert_rgb(sink, rgb, w, out + y * w * 3 * element);
    }
}

void fby_resample_finish(fby_resampler *it, const fby_sink *sink, void *out)
{
    const uint8_t *planes = it->planes.data;
    for (uint32_t o = 0; o < it->job.out_h; o++) {
        const uint8_t *pairs = planes + it->finish.first_pair[o] * it->pair_bytes;
        uint32_t y = it->job.flip_vertical ? it->job.out_h - 1 - o : o;
        row_write(it, sink, vertical_row(&it->finish, o, pairs, it->pair_bytes), y, out);
    }

    outsized_free(it);
}
