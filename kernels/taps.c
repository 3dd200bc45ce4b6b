#include "kernels/taps.h"

#include <math.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The filters of Resample.c, term by term: another order of operations may round differently. */
ALWAYS_INLINE double filter_box(double x)
{
    return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

ALWAYS_INLINE double filter_bilinear(double x)
{
    if (x < 0.0) x = -x;
    return x < 1.0 ? 1.0 - x : 0.0;
}

ALWAYS_INLINE double filter_bicubic(double x)
{
    const double a = -0.5;
    if (x < 0.0) x = -x;
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

ALWAYS_INLINE double sinc(double x)
{
    if (x == 0.0) return 1.0;
    x = x * M_PI;
    return sin(x) / x;
}

ALWAYS_INLINE double filter_lanczos(double x)
{
    return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

typedef struct window {
    double scale, filterscale, support;
    uint32_t width; /* an upper bound of a window's length */
} window;

static double support_of(fby_filter filter)
{
    switch (filter) {
    case FBY_FILTER_BOX:
        return 0.5;
    case FBY_FILTER_BICUBIC:
        return 2.0;
    case FBY_FILTER_LANCZOS:
        return 3.0;
    default:
        return 1.0;
    }
}

static window window_of(fby_filter filter, uint32_t in, uint32_t out)
{
    window it = {0};
    it.scale = (double)in / out;
    it.filterscale = it.scale < 1.0 ? 1.0 : it.scale;
    it.support = support_of(filter) * it.filterscale;
    it.width = (uint32_t)ceil(it.support) * 2 + 1;
    return it;
}

/* Where a table under construction stands. */
typedef struct builder {
    uint32_t *first, *count, *low;
    size_t *at;
    int32_t *weight;
    double *exact; /* one window */
    size_t used;
    uint32_t longest;
} builder;

static void window_add(builder *to, uint32_t o, uint32_t first, uint32_t count, const int32_t *weight)
{
    while (count > 1 && weight[count - 1] == 0) count--;
    while (count > 1 && weight[0] == 0) {
        weight++;
        first++;
        count--;
    }

    to->first[o] = first;
    to->count[o] = count;
    to->at[o] = to->used;
    int32_t *kept = to->weight + to->used;
    if (weight != kept) memmove(kept, weight, count * sizeof *weight);
    to->used += count;
    if (count > to->longest) to->longest = count;
}

ALWAYS_INLINE void windows_fill(builder *to, const window *it, uint32_t in, uint32_t out,
                                double (*filter)(double))
{
    double inverse = 1.0 / it->filterscale;
    for (uint32_t o = 0; o < out; o++) {
        double centre = (o + 0.5) * it->scale, total = 0.0;
        int64_t low = (int64_t)(centre - it->support + 0.5);
        int64_t high = (int64_t)(centre + it->support + 0.5);
        if (low < 0) low = 0;
        if (high > in) high = in;

        uint32_t count = (uint32_t)(high - low);
        for (uint32_t i = 0; i < count; i++) {
            to->exact[i] = filter(((double)(i + low) - centre + 0.5) * inverse);
            total += to->exact[i];
        }

        int32_t *weight = to->weight + to->used;
        for (uint32_t i = 0; i < count; i++) {
            double share = total != 0.0 ? to->exact[i] / total : to->exact[i];
            weight[i] = (int32_t)((share < 0 ? -0.5 : 0.5) + share * FBY_WEIGHT_ONE);
        }
        window_add(to, o, (uint32_t)low, count, weight);
    }
}

static void nearest_fill(builder *to, uint32_t in, uint32_t out)
{
    const int32_t one = FBY_WEIGHT_ONE;
    double scale = (double)in / out, position = scale * 0.5;
    for (uint32_t o = 0; o < out; o++) {
        uint32_t source = (uint32_t)position; /* rounding reaches `in` for no side below 2^24 */
        window_add(to, o, source < in ? source : in - 1, 1, &one);
        position += scale;
    }
}

static void identity_fill(builder *to, uint32_t out)
{
    const int32_t one = FBY_WEIGHT_ONE;
    for (uint32_t o = 0; o < out; o++) window_add(to, o, o, 1, &one);
}

int fby_taps_fill(fby_taps *taps, fby_filter filter, uint32_t in, uint32_t out)
{
    bool single = in == out || filter == FBY_FILTER_NEAREST;
    window it = window_of(filter, in, out);
    if (single) it.width = 1;

    size_t weights = (size_t)out * it.width;
    size_t bytes =
        it.width * sizeof(double) + out * (sizeof(size_t) + 3 * sizeof(uint32_t)) + weights * sizeof(int32_t);
    if (fby_buffer_reserve(&taps->memory, bytes)) return -1;

    builder to = {0};
    to.exact = taps->memory.data;
    to.at = (size_t *)(to.exact + it.width);
    to.first = (uint32_t *)(to.at + out);
    to.count = to.first + out;
    to.low = to.count + out;
    to.weight = (int32_t *)(to.low + out);

    if (in == out) {
        identity_fill(&to, out);
    } else {
        switch (filter) {
        case FBY_FILTER_NEAREST:
            nearest_fill(&to, in, out);
            break;
        case FBY_FILTER_BOX:
            windows_fill(&to, &it, in, out, filter_box);
            break;
        case FBY_FILTER_BILINEAR:
            windows_fill(&to, &it, in, out, filter_bilinear);
            break;
        case FBY_FILTER_BICUBIC:
            windows_fill(&to, &it, in, out, filter_bicubic);
            break;
        case FBY_FILTER_LANCZOS:
            windows_fill(&to, &it, in, out, filter_lanczos);
            break;
        }
    }

    /* A window that lost zero weights at its front may begin after the next one's. */
    uint32_t low = in;
    for (uint32_t o = out; o-- > 0;) {
        if (to.first[o] < low) low = to.first[o];
        to.low[o] = low;
    }

    taps->in = in;
    taps->out = out;
    taps->longest = to.longest;
    taps->first = to.first;
    taps->count = to.count;
    taps->at = to.at;
    taps->weight = to.weight;
    taps->low = to.low;
    return 0;
}
