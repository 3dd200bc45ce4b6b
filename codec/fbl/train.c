/* Contexts by dynamic programming over runs of sums (residuals) or by joining what is alike (indices);
 * classes of 2^k values by dynamic programming too. Costs are in units of 2^-COST_BITS bits. */
#include "codec/fbl/train.h"

#include <pthread.h>
#include <string.h>

enum {
    COST_BITS = 10,
    LOG_STEPS = 1024,
    COARSE = 40,       /* buckets for choosing contexts */
    TOKEN_BITS = 12,   /* of a token in the tables */
    CONTEXT_BITS = 90, /* of a context in the tables */
};
static const uint64_t NEVER = UINT64_MAX / 4;

/* What a set may have. */
typedef struct limits {
    uint32_t contexts, tokens;
    uint32_t unit; /* frequencies are multiples of it; of more than 1 none is all of FBY_FBL_SCALE */
} limits;

static const limits all_there_is = {FBY_FBL_CONTEXTS, FBY_FBL_TOKENS, 1};
/* See fby_fbl_lean: decoding takes half the time, and files are 4% larger. */
static const limits lean = {FBL_LEAN_CONTEXTS, FBL_LEAN_TOKENS, 2};

static uint32_t log_table[LOG_STEPS + 1];
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

/* log2 of 1 to 2, bit by bit: squaring doubles a logarithm. */
static void log_table_make(void)
{
    for (uint32_t i = 0; i <= LOG_STEPS; i++) {
        uint64_t x = ((uint64_t)(LOG_STEPS + i) << 30) / LOG_STEPS;
        uint32_t log = 0;
        for (int bit = 0; bit < COST_BITS; bit++) {
            x = x * x >> 30;
            log <<= 1;
            if (x >> 31) {
                log |= 1;
                x >>= 1;
            }
        }
        log_table[i] = i == LOG_STEPS ? 1u << COST_BITS : log;
    }
}

static inline uint32_t log2_of(uint32_t n)
{
    uint32_t top = 31 - (uint32_t)__builtin_clz(n);
    uint32_t part = top >= 10 ? n >> (top - 10) : n << (10 - top);
    return (top << COST_BITS) + log_table[part - LOG_STEPS];
}

static inline uint64_t times_log(uint32_t n)
{
    return n ? (uint64_t)n * log2_of(n) : 0;
}

void fbl_buckets_make(uint32_t bits, fbl_buckets *buckets)
{
    uint32_t count = 0, end = 1u << bits;

    for (uint32_t value = 0; value < end; count++) {
        uint32_t top = value < 32 || bits == 8 ? 4 : 31 - (uint32_t)__builtin_clz(value);
        buckets->first[count] = value;
        value += 1u << (top - 4);
    }
    buckets->count = count;
    buckets->first[count] = end;
}

/* ---- classes of a context ---- */

typedef struct classes {
    uint32_t count;
    uint32_t end[FBY_FBL_TOKENS]; /* bucket behind the class */
    uint8_t raw[FBY_FBL_TOKENS];
} classes;

typedef struct class_plan {
    uint64_t cost[FBY_FBL_TOKENS + 1][FBL_BUCKETS + 1];
    uint8_t raw[FBY_FBL_TOKENS + 1][FBL_BUCKETS + 1];
    uint16_t from[FBY_FBL_TOKENS + 1][FBL_BUCKETS + 1];
} class_plan;

/* The bucket that begins at `value`, or `end` for what isn't before it; UINT32_MAX where none begins there.
 */
static uint32_t bucket_at(const fbl_buckets *buckets, uint32_t value, uint32_t end, uint32_t bits)
{
    if (value >= buckets->first[end]) return end;
    uint32_t bucket = fbl_bucket_of(value, bits);
    return buckets->first[bucket] == value ? bucket : UINT32_MAX;
}

/* The classes, at most `tokens`, that code `count` in least bits. */
static void classes_choose(const uint32_t *count, const fbl_buckets *buckets, uint32_t bits, uint32_t tokens,
                           classes *out)
{
    static _Thread_local class_plan plan;
    uint32_t before[FBL_BUCKETS + 1], end = 1, most_raw = bits == 8 ? 7 : 15;

    before[0] = 0;
    for (uint32_t i = 0; i < buckets->count; i++) {
        before[i + 1] = before[i] + count[i];
        if (count[i]) end = i + 1;
    }
    for (uint32_t t = 0; t <= tokens; t++) {
        for (uint32_t i = 0; i <= end; i++) plan.cost[t][i] = NEVER;
    }
    plan.cost[0][0] = 0;
    const uint64_t log_total = before[end] ? log2_of(before[end]) : 0;
    for (uint32_t i = 0; i < end; i++) {
        for (uint32_t raw = 0; raw <= most_raw; raw++) {
            uint32_t next = bucket_at(buckets, buckets->first[i] + (1u << raw), end, bits);
            if (next == UINT32_MAX) continue;
            uint32_t n = before[next] - before[i];
            uint64_t own = ((uint64_t)n * raw + TOKEN_BITS) << COST_BITS;
            own += n * log_total - times_log(n);
            for (uint32_t t = 0; t < tokens && t <= i; t++) {
                uint64_t cost = plan.cost[t][i] + own;
                if (plan.cost[t][i] == NEVER || cost >= plan.cost[t + 1][next]) continue;
                plan.cost[t + 1][next] = cost;
                plan.raw[t + 1][next] = (uint8_t)raw;
                plan.from[t + 1][next] = (uint16_t)i;
            }
            if (next == end) break;
        }
    }
    uint32_t best = 1;
    for (uint32_t t = 2; t <= tokens; t++) {
        if (plan.cost[t][end] < plan.cost[best][end]) best = t;
    }
    out->count = best;
    for (uint32_t t = best, i = end; t; t--) {
        out->end[t - 1] = i;
        out->raw[t - 1] = plan.raw[t][i];
        i = plan.from[t][i];
    }
}

/* ---- frequencies ---- */

/* What the code grows by where a token's frequency falls from f + 1 to f. */
static uint64_t fall_cost(uint32_t n, uint32_t f)
{
    return (uint64_t)n * (log2_of(f + 1) - log2_of(f));
}

/* The least frequency of a token, which may be the first that is met: the first slots of all stand for two,
 * as fby_fbl_set.in_vectors wants it. */
static uint32_t least_of(uint32_t n, bool first, const limits *within)
{
    return n ? (first && within->unit == 1 ? 2 : 1) : 0;
}

/* In units. */
static void frequencies_choose(const uint32_t *n, uint32_t count, const limits *within, uint16_t *f)
{
    const uint32_t scale = FBY_FBL_SCALE / within->unit;
    uint64_t total = 0;
    uint32_t sum = 0, first = 0;

    for (uint32_t t = 0; t < count; t++) total += n[t];
    for (uint32_t t = 0; t < count; t++) {
        uint64_t share = total ? ((uint64_t)n[t] * scale * 2 + total) / (2 * total) : 0;
        uint32_t least = least_of(n[t], !sum, within);
        f[t] = (uint16_t)(share > least ? share : least);
        sum += f[t];
    }
    if (!total) {
        f[0] = (uint16_t)scale;
        return;
    }
    while (!n[first]) first++;
    while (sum != scale) {
        uint32_t best = UINT32_MAX;
        uint64_t best_cost = 0;
        for (uint32_t t = 0; t < count; t++) {
            if (!n[t] || (sum > scale && f[t] <= least_of(n[t], t == first, within))) continue;
            uint64_t cost = fall_cost(n[t], sum > scale ? f[t] - 1u : f[t]);
            bool better = sum > scale ? cost < best_cost : cost > best_cost;
            if (best == UINT32_MAX || better) best = t, best_cost = cost;
        }
        if (sum > scale)
            f[best]--, sum--;
        else
            f[best]++, sum++;
    }
}

/* Gives a unit of a frequency that is all to a token that isn't met. */
static void frequencies_part(const limits *within, classes *chosen, uint16_t *f)
{
    const uint32_t scale = FBY_FBL_SCALE / within->unit;

    for (uint32_t t = 0; within->unit > 1 && t < chosen->count; t++) {
        if (f[t] != scale) continue;
        if (chosen->count == 1) chosen->raw[chosen->count++] = 0;
        f[t]--;
        f[t ? 0 : 1]++;
        return;
    }
}

static void context_make(const uint32_t *count, const fbl_buckets *buckets, uint32_t bits,
                         const limits *within, uint32_t context, fby_fbl_set *set)
{
    classes chosen;
    uint32_t n[FBY_FBL_TOKENS] = {0}, bucket = 0, base = 0, start = 0;
    uint16_t frequency[FBY_FBL_TOKENS] = {0};

    classes_choose(count, buckets, bits, within->tokens, &chosen);
    for (uint32_t t = 0; t < chosen.count; t++) {
        for (; bucket < chosen.end[t]; bucket++) n[t] += count[bucket];
    }
    frequencies_choose(n, chosen.count, within, frequency);
    frequencies_part(within, &chosen, frequency);
    set->tokens[context] = (uint8_t)chosen.count;
    for (uint32_t t = 0; t < chosen.count; t++) {
        uint32_t at = context * FBY_FBL_TOKENS + t;
        set->raw[at] = chosen.raw[t];
        set->frequency[at] = (uint16_t)(frequency[t] * within->unit);
        set->start[at] = (uint16_t)start;
        set->base[at] = (uint16_t)(base & ((1u << bits) - 1));
        start += set->frequency[at];
        base += 1u << chosen.raw[t];
    }
}

static void contexts_make(const fbl_counts counts, const fbl_buckets *buckets, uint32_t bits,
                          const limits *within, fby_fbl_set *set)
{
    uint32_t joined[FBL_BUCKETS];

    for (uint32_t context = 0; context < set->contexts; context++) {
        memset(joined, 0, sizeof joined);
        for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) {
            if (set->context[sum] != context) continue;
            for (uint32_t i = 0; i < buckets->count; i++) joined[i] += counts[sum][i];
        }
        context_make(joined, buckets, bits, within, context, set);
    }
    fby_fbl_set_finish(set);
}

/* ---- contexts ---- */

typedef uint32_t coarse_counts[FBY_FBL_SUMS][COARSE];

/* Small values each, larger ones in ever longer runs. */
static uint32_t coarse_of(uint32_t value)
{
    if (value < 9) return value;
    uint32_t top = 31 - (uint32_t)__builtin_clz(value);
    uint32_t coarse = 9 + (top - 3) * 2 + (value >> (top - 1) & 1);
    return coarse < COARSE ? coarse : COARSE - 1;
}

static void coarse_make(const fbl_counts counts, const fbl_buckets *buckets, coarse_counts coarse)
{
    memset(coarse, 0, sizeof(coarse_counts));
    for (uint32_t i = 0; i < buckets->count; i++) {
        uint32_t to = coarse_of(buckets->first[i]);
        for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) coarse[sum][to] += counts[sum][i];
    }
}

/* What follows the last of `used` buckets isn't looked at. */
static uint64_t coarse_cost(const uint32_t *count, uint32_t used)
{
    uint64_t cost = 0;
    uint32_t total = 0;

    for (uint32_t i = 0; i < used; i++) {
        total += count[i];
        cost += times_log(count[i]);
    }
    return times_log(total) - cost;
}

/* cost[a][b]: of the sums from a to before b as one context. */
static void runs_cost(const coarse_counts coarse, uint32_t used, uint64_t (*cost)[FBY_FBL_SUMS + 1])
{
    for (uint32_t a = 0; a < FBY_FBL_SUMS; a++) {
        uint32_t joined[COARSE] = {0};
        for (uint32_t b = a; b < FBY_FBL_SUMS; b++) {
            uint32_t any = 0;
            for (uint32_t i = 0; i < used; i++) {
                joined[i] += coarse[b][i];
                any |= coarse[b][i];
            }
            cost[a][b + 1] = any || b == a ? coarse_cost(joined, used) : cost[a][b];
        }
    }
}

void fbl_train_residuals(const fbl_counts counts, uint32_t bits, uint32_t shift, fby_fbl_set *set)
{
    fbl_buckets buckets;
    coarse_counts coarse;
    uint64_t run[FBY_FBL_SUMS][FBY_FBL_SUMS + 1], best[FBY_FBL_CONTEXTS + 1][FBY_FBL_SUMS + 1];
    uint8_t from[FBY_FBL_CONTEXTS + 1][FBY_FBL_SUMS + 1];
    const limits *within = bits == 8 ? &lean : &all_there_is;
    uint32_t contexts = 1;

    pthread_once(&log_once, log_table_make);
    fbl_buckets_make(bits, &buckets);
    coarse_make(counts, &buckets, coarse);
    runs_cost(coarse, coarse_of((1u << bits) - 1) + 1, run);
    for (uint32_t i = 0; i <= within->contexts; i++) {
        for (uint32_t b = 0; b <= FBY_FBL_SUMS; b++) best[i][b] = NEVER;
    }
    best[0][0] = 0;
    for (uint32_t i = 1; i <= within->contexts; i++) {
        for (uint32_t b = i; b <= FBY_FBL_SUMS; b++) {
            for (uint32_t a = i - 1; a < b; a++) {
                uint64_t cost = best[i - 1][a] + run[a][b] + ((uint64_t)CONTEXT_BITS << COST_BITS);
                if (best[i - 1][a] == NEVER || cost >= best[i][b]) continue;
                best[i][b] = cost;
                from[i][b] = (uint8_t)a;
            }
        }
        if (best[i][FBY_FBL_SUMS] < best[contexts][FBY_FBL_SUMS]) contexts = i;
    }
    memset(set, 0, sizeof *set);
    set->shift = shift;
    set->contexts = contexts;
    for (uint32_t i = contexts, b = FBY_FBL_SUMS; i; i--) {
        for (uint32_t sum = from[i][b]; sum < b; sum++) set->context[sum] = (uint8_t)(i - 1);
        b = from[i][b];
    }
    contexts_make(counts, &buckets, bits, within, set);
}

/* What joining two contexts costs. */
static uint64_t join_cost(const uint32_t *a, const uint32_t *b, uint64_t apart)
{
    uint32_t joined[COARSE];

    for (uint32_t i = 0; i < COARSE; i++) joined[i] = a[i] + b[i];
    uint64_t cost = coarse_cost(joined, COARSE);
    return cost > apart ? cost - apart : 0;
}

void fbl_train_indices(const fbl_counts counts, fby_fbl_set *set)
{
    fbl_buckets buckets;
    coarse_counts coarse;
    uint64_t own[FBY_FBL_SUMS];
    uint32_t of[FBY_FBL_SUMS], alive = FBY_FBL_SUMS; /* of: the sum whose context a sum belongs to */

    pthread_once(&log_once, log_table_make);
    fbl_buckets_make(8, &buckets);
    coarse_make(counts, &buckets, coarse);
    for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) {
        own[sum] = coarse_cost(coarse[sum], COARSE);
        of[sum] = sum;
    }
    while (alive > 1) {
        uint64_t least = NEVER;
        uint32_t keep = 0, gone = 0;
        for (uint32_t a = 0; a < FBY_FBL_SUMS; a++) {
            for (uint32_t b = a + 1; of[a] == a && b < FBY_FBL_SUMS; b++) {
                if (of[b] != b) continue;
                uint64_t cost = join_cost(coarse[a], coarse[b], own[a] + own[b]);
                if (cost < least) least = cost, keep = a, gone = b;
            }
        }
        if (alive <= FBY_FBL_CONTEXTS && least >= (uint64_t)CONTEXT_BITS << COST_BITS) break;
        for (uint32_t i = 0; i < COARSE; i++) coarse[keep][i] += coarse[gone][i];
        own[keep] = coarse_cost(coarse[keep], COARSE);
        for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) {
            if (of[sum] == gone) of[sum] = keep;
        }
        alive--;
    }
    memset(set, 0, sizeof *set);
    set->contexts = alive;
    for (uint32_t sum = 0, next = 0; sum < FBY_FBL_SUMS; sum++) {
        set->context[sum] = of[sum] == sum ? (uint8_t)next++ : set->context[of[sum]];
    }
    contexts_make(counts, &buckets, 8, &all_there_is, set);
}

uint64_t fbl_entropy_bits(const uint32_t (*counts)[FBL_BUCKETS], uint32_t rows, const fbl_buckets *buckets)
{
    uint64_t cost = 0, raw = 0;

    pthread_once(&log_once, log_table_make);
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t total = 0;
        for (uint32_t i = 0; i < buckets->count; i++) {
            uint32_t n = counts[row][i], run = buckets->first[i + 1] - buckets->first[i];
            total += n;
            cost -= times_log(n);
            raw += (uint64_t)n * (31 - (uint32_t)__builtin_clz(run));
        }
        cost += times_log(total);
    }
    return (cost >> COST_BITS) + raw;
}
