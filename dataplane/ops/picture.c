#include "dataplane/ops/picture.h"

#include <forebay/error.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* `rows` is what decoders and the resampler are tuned for; `slack` is what vector code may read past a row's
 * end. */
enum { ROWS = 16, SLACK = 64, KEEP_BYTES = 32 * 1024 * 1024 };

typedef struct buffer {
    uint8_t *bytes;
    size_t capacity;
    bool used;
} buffer;

struct fby_picture_memory {
    fby_decoder *decoder;
    fby_resampler *resampler;
    buffer *buffers;
    uint32_t count;
    fby_tier tier;
    fby_sink pixels; /* u8 HWC: what buffers hold */
    uint64_t decode_ns, resample_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int fby_picture_memory_create(fby_picture_memory **out)
{
    *out = NULL;
    fby_picture_memory *memory = calloc(1, sizeof *memory);
    if (!memory) return FBY_ENOMEM;
    memory->tier = fby_tier_best();
    memory->pixels.dtype = FBY_U8;
    memory->pixels.layout = FBY_HWC;
    if (fby_sink_prepare(&memory->pixels) || fby_decoder_create(&memory->decoder) ||
        fby_resampler_create(&memory->resampler, memory->tier)) {
        fby_picture_memory_destroy(&memory);
        return FBY_ENOMEM;
    }
    *out = memory;
    return FBY_OK;
}

void fby_picture_memory_destroy(fby_picture_memory **memory)
{
    fby_picture_memory *m = *memory;
    if (!m) return;
    if (m->decoder) fby_decoder_destroy(&m->decoder);
    if (m->resampler) fby_resampler_destroy(&m->resampler);
    for (uint32_t i = 0; i < m->count; i++) free(m->buffers[i].bytes);
    free(m->buffers);
    free(m);
    *memory = NULL;
}

size_t fby_picture_memory_bytes(const fby_picture_memory *memory)
{
    size_t bytes = sizeof *memory + memory->count * sizeof *memory->buffers;
    for (uint32_t i = 0; i < memory->count; i++) bytes += memory->buffers[i].capacity;
    return bytes + fby_decoder_bytes(memory->decoder) + fby_resampler_bytes(memory->resampler);
}

void fby_picture_memory_trim(fby_picture_memory *memory)
{
    for (uint32_t i = 0; i < memory->count; i++) {
        buffer *b = &memory->buffers[i];
        if (b->used || b->capacity <= KEEP_BYTES) continue;
        free(b->bytes);
        *b = (buffer){0};
    }
}

uint64_t fby_picture_memory_decode_ns(const fby_picture_memory *memory)
{
    return memory->decode_ns;
}

uint64_t fby_picture_memory_resample_ns(const fby_picture_memory *memory)
{
    return memory->resample_ns;
}

fby_jpeg_counts fby_picture_memory_jpegs(const fby_picture_memory *memory)
{
    return fby_decoder_jpeg_counts(memory->decoder);
}

const char *fby_picture_memory_text(const fby_picture_memory *memory)
{
    return fby_decode_text(memory->decoder);
}

/* A free buffer of at least w * h RGB pixels and the slack; its index, or -1 without memory. */
static int32_t buffer_take(fby_picture_memory *memory, uint32_t w, uint32_t h)
{
    size_t bytes = (size_t)w * h * 3 + SLACK;
    uint32_t best = memory->count;
    for (uint32_t i = 0; i < memory->count; i++) {
        const buffer *b = &memory->buffers[i];
        if (b->used) continue;
        if (best == memory->count) {
            best = i;
            continue;
        }
        size_t have = memory->buffers[best].capacity;
        bool fits = b->capacity >= bytes, had = have >= bytes;
        if (fits ? !had || b->capacity < have : !had && b->capacity > have) best = i;
    }
    if (best == memory->count) {
        buffer *more = realloc(memory->buffers, (memory->count + 1) * sizeof *more);
        if (!more) return -1;
        memory->buffers = more;
        memory->buffers[memory->count++] = (buffer){0};
    }
    buffer *b = &memory->buffers[best];
    if (b->capacity < bytes) {
        free(b->bytes);
        b->capacity = 0;
        b->bytes = malloc(bytes);
        if (!b->bytes) return -1;
        b->capacity = bytes;
    }
    b->used = true;
    return (int32_t)best;
}

static void buffer_give(fby_picture_memory *memory, int32_t index)
{
    if (index >= 0) memory->buffers[index].used = false;
}

/* What is left of a resize once its rows are through, with the conversion into `out`. */
static void resample_end(fby_picture_memory *memory, const fby_sink *sink, void *out)
{
    uint64_t start = now_ns();
    fby_resample_finish(memory->resampler, sink, out);
    memory->resample_ns += now_ns() - start;
}

/* The picture's pixels are now all of buffer `index`, w x h, with nothing pending. */
static void become(fby_picture *picture, int32_t index, uint32_t w, uint32_t h)
{
    if (picture->memory) {
        buffer_give(picture->memory, picture->buffer);
        picture->buffer = index;
        picture->pixels = picture->memory->buffers[index].bytes;
    }
    picture->source_w = w;
    picture->source_h = h;
    picture->held = picture->region = (fby_region_of){0, 0, w, h};
    picture->resize = picture->flip_horizontal = picture->flip_vertical = false;
}

void fby_picture_start(fby_picture *picture, fby_picture_memory *memory, const uint8_t *bytes, size_t length)
{
    *picture = (fby_picture){.memory = memory, .bytes = bytes, .length = length, .buffer = -1};
}

void fby_picture_start_pixels(fby_picture *picture, fby_picture_memory *memory, const uint8_t *pixels,
                              uint32_t w, uint32_t h)
{
    *picture = (fby_picture){.memory = memory,
                             .source_w = w,
                             .source_h = h,
                             .pixels = pixels,
                             .held = {0, 0, w, h},
                             .region = {0, 0, w, h},
                             .buffer = -1};
}

void fby_picture_start_trace(fby_picture *picture, uint32_t w, uint32_t h)
{
    *picture = (fby_picture){.source_w = w, .source_h = h, .region = {0, 0, w, h}, .buffer = -1};
}

fby_picture fby_picture_foresee(const fby_picture *picture)
{
    fby_picture traced = *picture;
    traced.memory = NULL;
    traced.decoded = picture->pixels != NULL;
    traced.wanted = picture->region;
    traced.buffer = -1;
    traced.step = NULL;
    return traced;
}

fby_picture fby_picture_fork(const fby_picture *picture)
{
    fby_picture copy = *picture;
    copy.buffer = -1;
    return copy;
}

void fby_picture_end(fby_picture *picture)
{
    if (picture->memory) buffer_give(picture->memory, picture->buffer);
    picture->buffer = -1;
    picture->pixels = NULL;
}

uint32_t fby_picture_w(const fby_picture *picture)
{
    return picture->resize ? picture->resize_w : picture->region.w;
}

uint32_t fby_picture_h(const fby_picture *picture)
{
    return picture->resize ? picture->resize_h : picture->region.h;
}

static fby_reason decoder_said(fby_picture *picture, fby_reason reason)
{
    if (reason) picture->decode_failed = true;
    return reason;
}

fby_reason fby_picture_open(fby_picture *picture, const fby_decode_options *options)
{
    if (!picture->memory) return FBY_REASON_NONE;
    fby_picture_info info;
    uint64_t start = now_ns();
    fby_reason reason =
        fby_decode_open(picture->memory->decoder, picture->bytes, picture->length, options, &info);
    picture->memory->decode_ns += now_ns() - start;
    if (reason) return decoder_said(picture, reason);
    picture->source_w = info.w;
    picture->source_h = info.h;
    picture->region = (fby_region_of){0, 0, info.w, info.h};
    return FBY_REASON_NONE;
}

/* Where the pending region's first pixel lies. */
static const uint8_t *region_start(const fby_picture *picture, size_t *stride)
{
    *stride = (size_t)picture->held.w * 3;
    return picture->pixels + (picture->region.y - picture->held.y) * *stride +
           (size_t)(picture->region.x - picture->held.x) * 3;
}

static fby_reason resample_pixels(fby_picture *picture)
{
    fby_resampler *resampler = picture->memory->resampler;
    size_t stride;
    const uint8_t *rows = region_start(picture, &stride);
    for (uint32_t y = 0; y < picture->region.h; y += ROWS) {
        uint32_t count = picture->region.h - y < ROWS ? picture->region.h - y : ROWS;
        fby_resample_rows(resampler, rows + y * stride, stride, count);
    }
    return FBY_REASON_NONE;
}

static fby_reason resample_decoded(fby_picture *picture)
{
    fby_picture_memory *memory = picture->memory;
    uint64_t start = now_ns();
    fby_reason reason = fby_decode_begin(memory->decoder, &picture->region);
    while (!reason) {
        const uint8_t *rows;
        size_t stride;
        uint32_t count;
        reason = fby_decode_rows(memory->decoder, &rows, &stride, ROWS, &count);
        uint64_t end = now_ns();
        memory->decode_ns += end - start;
        if (reason || !count) return decoder_said(picture, reason);
        fby_resample_rows(memory->resampler, rows, stride, count);
        start = now_ns();
    }
    memory->decode_ns += now_ns() - start;
    return decoder_said(picture, reason);
}

/* The pending region through the pending resize and flips, up to what fby_resample_finish writes. */
static fby_reason resample(fby_picture *picture)
{
    fby_resample_job job = {.in_w = picture->region.w,
                            .in_h = picture->region.h,
                            .out_w = picture->resize_w,
                            .out_h = picture->resize_h,
                            .filter = picture->filter,
                            .pillow = picture->pillow,
                            .flip_horizontal = picture->flip_horizontal,
                            .flip_vertical = picture->flip_vertical};
    fby_picture_memory *memory = picture->memory;
    if (fby_resample_begin(memory->resampler, &job)) return FBY_REASON_MEMORY;
    uint64_t start = now_ns(), decode = memory->decode_ns;
    fby_reason reason = picture->pixels ? resample_pixels(picture) : resample_decoded(picture);
    memory->resample_ns += now_ns() - start - (memory->decode_ns - decode);
    return reason;
}

fby_reason fby_picture_hold(fby_picture *picture, const fby_region_of *region)
{
    if (!picture->memory) {
        if (!picture->decoded) picture->wanted = *region;
        picture->decoded = true;
        return FBY_REASON_NONE;
    }
    if (picture->pixels) return FBY_REASON_NONE;
    fby_picture_memory *memory = picture->memory;
    int32_t index = buffer_take(memory, region->w, region->h);
    if (index < 0) return FBY_REASON_MEMORY;
    uint64_t start = now_ns();
    fby_reason reason =
        fby_decode_into(memory->decoder, region, memory->buffers[index].bytes, (size_t)region->w * 3);
    memory->decode_ns += now_ns() - start;
    if (reason) {
        buffer_give(memory, index);
        return decoder_said(picture, reason);
    }
    picture->pixels = memory->buffers[index].bytes;
    picture->buffer = index;
    picture->held = *region;
    return FBY_REASON_NONE;
}

fby_reason fby_picture_settle(fby_picture *picture)
{
    if (!picture->resize && !picture->flip_horizontal && !picture->flip_vertical) return FBY_REASON_NONE;
    uint32_t w = fby_picture_w(picture), h = fby_picture_h(picture);
    if (!picture->resize || !picture->memory) {
        fby_reason reason = fby_picture_hold(picture, &picture->region);
        if (reason) return reason;
    }
    if (!picture->memory) {
        become(picture, -1, w, h);
        return FBY_REASON_NONE;
    }
    fby_picture_memory *memory = picture->memory;
    int32_t index = buffer_take(memory, w, h);
    if (index < 0) return FBY_REASON_MEMORY;
    if (picture->resize) {
        fby_reason reason = resample(picture);
        if (reason) {
            buffer_give(memory, index);
            return reason;
        }
        resample_end(memory, &memory->pixels, memory->buffers[index].bytes);
    } else {
        size_t stride;
        const uint8_t *rows = region_start(picture, &stride);
        fby_sink_write(&memory->pixels, memory->tier, rows, stride, w, h, picture->flip_horizontal,
                       picture->flip_vertical, memory->buffers[index].bytes);
    }
    become(picture, index, w, h);
    return FBY_REASON_NONE;
}

fby_reason fby_picture_crop(fby_picture *picture, uint32_t x, uint32_t y, uint32_t w, uint32_t h)
{
    if (picture->step) {
        picture->step->crop_x = x;
        picture->step->crop_y = y;
        picture->step->crop_w = w;
        picture->step->crop_h = h;
    }
    if (x == 0 && y == 0 && w == fby_picture_w(picture) && h == fby_picture_h(picture))
        return FBY_REASON_NONE;
    if (picture->resize) {
        fby_reason reason = fby_picture_settle(picture);
        if (reason) return reason;
    }
    if (picture->flip_horizontal) x = picture->region.w - x - w;
    if (picture->flip_vertical) y = picture->region.h - y - h;
    picture->region.x += x;
    picture->region.y += y;
    picture->region.w = w;
    picture->region.h = h;
    return FBY_REASON_NONE;
}

/* One direction of padding: `size` pixels of picture, `before` and `after` them more, and around that `more`
 * at either side. */
typedef struct axis {
    int64_t size, before, after, more;
    fby_border border;
} axis;

static int64_t axis_size(const axis *along)
{
    return along->size + along->before + along->after + 2 * along->more;
}

/* The place in a picture of `size` that `at` shows, which may lie outside; -1: the fill. */
static int64_t bordered(int64_t at, int64_t size, fby_border border)
{
    if (at >= 0 && at < size) return at;
    if (border == FBY_BORDER_CONSTANT) return -1;
    if (border == FBY_BORDER_EDGE || size == 1) return at < 0 ? 0 : size - 1;
    bool symmetric = border == FBY_BORDER_SYMMETRIC;
    int64_t period = symmetric ? 2 * size : 2 * size - 2, place = at % period;
    if (place < 0) place += period;
    return place < size ? place : period - place - symmetric;
}

/* What each of the `count` places from `first` on of the padded picture shows of the picture: from `low` to
 * `high`, at least one pixel, and `places` counts from `low`; -1: the fill. */
static void axis_map(const axis *along, uint32_t first, uint32_t count, int64_t *places, uint32_t *low,
                     uint32_t *high)
{
    int64_t padded = along->size + along->before + along->after, least = along->size, most = -1;
    for (uint32_t k = 0; k < count; k++) {
        int64_t at = bordered((int64_t)first + k - along->more, padded, along->border);
        if (at >= 0) at = bordered(at - along->before, along->size, along->border);
        places[k] = at;
        if (at < 0) continue;
        if (at < least) least = at;
        if (at > most) most = at;
    }
    *low = most < 0 ? 0 : (uint32_t)least;
    *high = most < 0 ? 0 : (uint32_t)most;
    for (uint32_t k = 0; k < count; k++)
        if (places[k] >= 0) places[k] -= least;
}

static void pixels_fill(uint8_t *to, size_t count, const uint8_t fill[3])
{
    if (fill[0] == fill[1] && fill[1] == fill[2]) {
        memset(to, fill[0], count * 3);
        return;
    }
    for (size_t i = 0; i < count; i++) memcpy(to + i * 3, fill, 3);
}

/* One row of a padded picture. Most of it is a run of neighbours. */
static void row_pad(uint8_t *to, const uint8_t *from, const int64_t *columns, uint32_t w,
                    const uint8_t fill[3])
{
    for (uint32_t x = 0; x < w;) {
        uint32_t run = 1;
        if (columns[x] < 0) {
            while (x + run < w && columns[x + run] < 0) run++;
            pixels_fill(to + (size_t)x * 3, run, fill);
        } else {
            while (x + run < w && columns[x + run] == columns[x] + run) run++;
            memcpy(to + (size_t)x * 3, from + columns[x] * 3, (size_t)run * 3);
        }
        x += run;
    }
}

/* A crop that is no op's own. */
static fby_reason crop_untraced(fby_picture *picture, uint32_t x, uint32_t y, uint32_t w, uint32_t h)
{
    fby_trace_step *step = picture->step;
    picture->step = NULL;
    fby_reason reason = fby_picture_crop(picture, x, y, w, h);
    picture->step = step;
    return reason;
}

/* The picture becomes what `seen` shows of it padded. `places` has room for the window's columns and rows. */
static fby_reason pad_window(fby_picture *picture, const axis *across, const axis *down,
                             const fby_region_of *seen, const uint8_t fill[3], int64_t *places)
{
    int64_t *columns = places, *rows = places + seen->w;
    uint32_t low_x, high_x, low_y, high_y;
    axis_map(across, seen->x, seen->w, columns, &low_x, &high_x);
    axis_map(down, seen->y, seen->h, rows, &low_y, &high_y);
    fby_reason reason = crop_untraced(picture, low_x, low_y, high_x - low_x + 1, high_y - low_y + 1);
    if (!reason) reason = fby_picture_settle(picture);
    if (!reason) reason = fby_picture_hold(picture, &picture->region);
    if (reason) return reason;
    if (!picture->memory) {
        become(picture, -1, seen->w, seen->h);
        return FBY_REASON_NONE;
    }
    int32_t index = buffer_take(picture->memory, seen->w, seen->h);
    if (index < 0) return FBY_REASON_MEMORY;
    uint8_t *to = picture->memory->buffers[index].bytes;
    size_t stride, row_bytes = (size_t)seen->w * 3;
    const uint8_t *from = region_start(picture, &stride);
    for (uint32_t y = 0; y < seen->h; y++, to += row_bytes) {
        if (rows[y] < 0)
            pixels_fill(to, seen->w, fill);
        else
            row_pad(to, from + (size_t)rows[y] * stride, columns, seen->w, fill);
    }
    become(picture, index, seen->w, seen->h);
    return FBY_REASON_NONE;
}

fby_reason fby_picture_pad(fby_picture *picture, const fby_padding *padding, const fby_region_of *window)
{
    axis across = {.size = fby_picture_w(picture),
                   .before = padding->left,
                   .after = padding->right,
                   .more = padding->more_across,
                   .border = padding->border};
    axis down = {.size = fby_picture_h(picture),
                 .before = padding->top,
                 .after = padding->bottom,
                 .more = padding->more_down,
                 .border = padding->border};
    int64_t all_w = axis_size(&across), all_h = axis_size(&down);
    if (!window && (all_w > FBY_PICTURE_SIDE || all_h > FBY_PICTURE_SIDE ||
                    (uint64_t)all_w * (uint64_t)all_h > FBY_PICTURE_PIXELS))
        return FBY_REASON_SHAPE;
    fby_region_of seen = {0, 0, (uint32_t)all_w, (uint32_t)all_h};
    uint32_t left = padding->left + padding->more_across, top = padding->top + padding->more_down;
    fby_trace_step *step = picture->step;
    if (step) {
        step->pad_left = left;
        step->pad_top = top;
    }
    if (window) seen = *window;
    if (window && step) {
        step->crop_x = seen.x;
        step->crop_y = seen.y;
        step->crop_w = seen.w;
        step->crop_h = seen.h;
    }

    bool inside = seen.x >= left && seen.y >= top && seen.x - left + seen.w <= across.size &&
                  seen.y - top + seen.h <= down.size;
    if (inside) return crop_untraced(picture, seen.x - left, seen.y - top, seen.w, seen.h);
    int64_t *places = malloc(((size_t)seen.w + seen.h) * sizeof *places);
    if (!places) return FBY_REASON_MEMORY;
    fby_reason reason = pad_window(picture, &across, &down, &seen, padding->fill, places);
    free(places);
    return reason;
}

/* The pending region's pixels in a buffer that nobody else sees. Flips may stay pending. */
static fby_reason pixels_own(fby_picture *picture)
{
    fby_reason reason = picture->resize ? fby_picture_settle(picture) : FBY_REASON_NONE;
    if (!reason) reason = fby_picture_hold(picture, &picture->region);
    if (reason || !picture->memory || picture->buffer >= 0) return reason;
    uint32_t w = picture->region.w, h = picture->region.h;
    int32_t index = buffer_take(picture->memory, w, h);
    if (index < 0) return FBY_REASON_MEMORY;
    uint8_t *to = picture->memory->buffers[index].bytes;
    size_t stride;
    const uint8_t *from = region_start(picture, &stride);
    for (uint32_t y = 0; y < h; y++) memcpy(to + (size_t)y * w * 3, from + y * stride, (size_t)w * 3);
    bool flip_horizontal = picture->flip_horizontal, flip_vertical = picture->flip_vertical;
    become(picture, index, w, h);
    picture->flip_horizontal = flip_horizontal;
    picture->flip_vertical = flip_vertical;
    return FBY_REASON_NONE;
}

fby_reason fby_picture_adjust(fby_picture *picture, const fby_adjustment *list, uint32_t count)
{
    if (picture->step) {
        picture->step->adjustment_count = count;
        for (uint32_t i = 0; i < count; i++) picture->step->adjustments[i] = list[i];
    }
    if (!count) return FBY_REASON_NONE;
    fby_reason reason = pixels_own(picture);
    if (reason || !picture->memory) return reason;
    size_t stride;
    size_t offset = (size_t)(region_start(picture, &stride) - picture->pixels);
    uint8_t *own = picture->memory->buffers[picture->buffer].bytes + offset;
    fby_adjust(list, count, picture->memory->tier, own, stride, picture->region.w, picture->region.h);
    return FBY_REASON_NONE;
}

fby_reason fby_picture_resize(fby_picture *picture, uint32_t w, uint32_t h, fby_filter filter, int pillow)
{
    if (w > FBY_PICTURE_SIDE || h > FBY_PICTURE_SIDE || (uint64_t)w * h > FBY_PICTURE_PIXELS)
        return FBY_REASON_SHAPE;
    if (w == fby_picture_w(picture) && h == fby_picture_h(picture)) return FBY_REASON_NONE;
    /* A flip before a resize is not a flip after it: the filter's windows are rounded from the left. */
    fby_reason reason = fby_picture_settle(picture);
    if (reason) return reason;
    picture->resize = true;
    picture->resize_w = w;
    picture->resize_h = h;
    picture->filter = filter;
    picture->pillow = pillow;
    return FBY_REASON_NONE;
}

void fby_picture_flip(fby_picture *picture, bool horizontal, bool vertical)
{
    if (picture->step) {
        picture->step->flip_horizontal = horizontal;
        picture->step->flip_vertical = vertical;
    }
    picture->flip_horizontal ^= horizontal;
    picture->flip_vertical ^= vertical;
}

fby_reason fby_picture_copy(fby_picture *picture, uint8_t *out)
{
    fby_reason reason = fby_picture_settle(picture);
    if (!reason) reason = fby_picture_hold(picture, &picture->region);
    if (reason || !picture->memory) return reason;
    size_t stride, row_bytes = (size_t)picture->region.w * 3;
    const uint8_t *rows = region_start(picture, &stride);
    for (uint32_t y = 0; y < picture->region.h; y++)
        memcpy(out + y * row_bytes, rows + y * stride, row_bytes);
    return FBY_REASON_NONE;
}

fby_reason fby_picture_complete(fby_picture *picture)
{
    return picture->memory && picture->resize ? resample(picture)
                                              : fby_picture_hold(picture, &picture->region);
}

void fby_picture_write(fby_picture *picture, const fby_sink *sink, void *out)
{
    if (picture->resize) {
        resample_end(picture->memory, sink, out);
        return;
    }
    size_t stride;
    const uint8_t *rows = region_start(picture, &stride);
    fby_sink_write(sink, picture->memory->tier, rows, stride, picture->region.w, picture->region.h,
                   picture->flip_horizontal, picture->flip_vertical, out);
}
