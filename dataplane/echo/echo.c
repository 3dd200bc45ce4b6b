#include "dataplane/echo/echo.h"

#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/generator.h"

enum { TRIES = 8 };

typedef struct seat_state {
    fby_echo_seat_options what;
    uint64_t total;                       /* emissions of an epoch; 0: as time goes */
    uint64_t epoch, fresh, came, emitted; /* of the current epoch: drawn fresh, made, emitted */
    uint64_t owed, items;
    fby_echo_units own; /* a fixed order's */
    uint64_t decided;   /* of a fixed order: batches of the epoch of which is known whether they are fresh */
    bool batch_fresh;
    fby_echo_seat_stats stats;
} seat_state;

struct fby_echo {
    fby_generator generator;
    uint64_t seats;
    uint64_t draws; /* marks items */
    fby_echo_pools pools;
    seat_state seat[FBY_ECHO_SEATS];
};

int fby_echo_create(fby_echo **out, uint64_t seed, fby_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return fby_fail(error, FBY_ENOMEM, "no memory for an echo");
    (*out)->generator.state = fby_mix64(seed);
    return FBY_OK;
}

void fby_echo_destroy(fby_echo **echo)
{
    if (!*echo) return;
    for (uint32_t i = 0; i < FBY_ECHO_SEATS; i++)
        if ((*echo)->seats >> i & 1) fby_echo_leave(*echo, i);
    fby_echo_pools_free(&(*echo)->pools);
    free(*echo);
    *echo = NULL;
}

/* Emissions of the first `count` samples of an epoch. */
static uint64_t emissions_of(double factor, uint64_t count)
{
    return (uint64_t)((double)count * factor);
}

uint64_t fby_echo_samples(const fby_echo_seat_options *what)
{
    if (!(what->factor > 0)) return what->total;
    uint64_t total = emissions_of(what->factor, what->part);
    return what->drop_last ? total - total % what->batch : total;
}

static bool is_auto(const seat_state *seat)
{
    return !(seat->what.factor > 0);
}

/* Auto whose epochs end with their last fresh sample. */
static bool is_free(const seat_state *seat)
{
    return is_auto(seat) && !seat->total;
}

/* How often a sample comes, at most where it is auto. */
static double times_of(const seat_state *seat)
{
    return is_auto(seat) ? seat->what.max : seat->what.factor;
}

void fby_echo_enter(fby_echo *echo, uint32_t seat, const fby_echo_seat_options *what)
{
    echo->seat[seat] = (seat_state){.what = *what,
                                    .total = fby_echo_samples(what),
                                    .epoch = what->epoch,
                                    .fresh = what->fresh,
                                    .came = what->fresh,
                                    .emitted = what->fresh};
    echo->seats |= UINT64_C(1) << seat;
}

/* The seat is owed nothing any more. */
static void owed_drop(fby_echo *echo, uint32_t seat)
{
    seat_state *s = &echo->seat[seat];
    if (s->what.ordered) {
        while (s->own.count) {
            fby_echo_unit unit = fby_echo_units_remove(&s->own, s->own.count - 1);
            unit.item->left[seat] = 0;
            fby_echo_item_leave(unit.item);
        }
    } else if (s->owed) {
        fby_echo_pools_leave(&echo->pools, seat);
    }
    s->stats.dropped += s->owed;
    s->owed = s->items = 0;
}

void fby_echo_leave(fby_echo *echo, uint32_t seat)
{
    owed_drop(echo, seat);
    free(echo->seat[seat].own.list);
    echo->seat[seat] = (seat_state){0};
    echo->seats &= ~(UINT64_C(1) << seat);
}

static void epoch_begin(fby_echo *echo, uint32_t seat, uint64_t epoch)
{
    seat_state *s = &echo->seat[seat];
    owed_drop(echo, seat); /* but for auto and drop_last there is nothing */
    s->epoch = epoch;
    s->fresh = s->came = s->emitted = s->decided = 0;
}

void fby_echo_abandon(fby_echo *echo, uint32_t seat, uint64_t next)
{
    epoch_begin(echo, seat, next);
}

/* --- the schedule
 * ------------------------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t fresh_left(const seat_state *s)
{
    return s->what.part - s->fresh;
}

/* Emissions of the current epoch that may still be again: the rest is needed for the fresh ones. */
static uint64_t again_left(const seat_state *s)
{
    uint64_t left = s->total - s->emitted, fresh = fresh_left(s);
    return left > fresh ? least(left - fresh, s->owed) : 0;
}

static uint64_t buffer_of(const seat_state *s)
{
    return s->what.buffer > s->what.batch ? s->what.buffer : s->what.batch;
}

/* Whether a batch of fresh samples has room among the items that wait, `coming` ones included. */
static bool has_room(const seat_state *s, uint64_t coming)
{
    uint64_t waiting = s->items + coming;
    return !waiting || waiting + least(s->what.batch, fresh_left(s)) <= buffer_of(s);
}

/* Emissions again that the buffer of an auto holds. */
static uint64_t buffer_again(const seat_state *s)
{
    return (uint64_t)((double)buffer_of(s) * (s->what.max - 1));
}

/* Auto with a total: whether more would be due than its buffer holds, with one more batch of fresh samples.
 */
static bool is_behind(const seat_state *s)
{
    double again = (double)(s->total - s->what.part);
    double fresh = (double)(s->fresh + least(s->what.batch, fresh_left(s)));
    uint64_t due = (uint64_t)(again * fresh / (double)s->what.part);
    return due > s->emitted - s->fresh + buffer_again(s);
}

/* A fixed order: decides for the batch that begins. */
static void batch_decide(seat_state *s)
{
    uint64_t batch = s->emitted / s->what.batch;
    if (s->decided > batch) return;
    s->decided = batch + 1;
    s->batch_fresh = fresh_left(s) && has_room(s, 0);
}

static uint64_t batch_left(const seat_state *s)
{
    return s->what.batch - s->emitted % s->what.batch;
}

uint64_t fby_echo_wants_fresh(fby_echo *echo, uint32_t seat)
{
    seat_state *s = &echo->seat[seat];
    uint64_t left = fresh_left(s);
    if (is_free(s) || !left) return left;
    if (is_auto(s)) return is_behind(s) && again_left(s) ? 0 : left;
    if (!s->what.ordered) {
        uint64_t coming = s->fresh - s->came;
        return has_room(s, coming) || !(again_left(s) || coming) ? left : 0;
    }
    batch_decide(s);
    return s->batch_fresh || !again_left(s) ? least(left, batch_left(s)) : 0;
}

/* Auto: whether what comes again comes unasked. Fresh ones that are under way go before it. */
static bool is_due(const seat_state *s)
{
    return !is_free(s) && (s->came == s->what.part || is_behind(s));
}

bool fby_echo_is_due(const fby_echo *echo, uint32_t seat)
{
    const seat_state *s = &echo->seat[seat];
    return !is_auto(s) || is_due(s);
}

/* On demand whole batches alone: with less the task would wait for fresh ones all the same. */
static uint64_t auto_wants_again(const seat_state *s)
{
    uint64_t whole = batch_left(s), left = is_free(s) ? whole : least(whole, again_left(s));
    if (is_due(s)) return left;
    return left == whole && s->fresh && s->items >= s->what.batch ? whole : 0;
}

uint64_t fby_echo_wants_again(fby_echo *echo, uint32_t seat)
{
    seat_state *s = &echo->seat[seat];
    if (is_auto(s)) return auto_wants_again(s);
    uint64_t left = again_left(s);
    if (!left) return 0;
    if (!s->what.ordered)
        return has_room(s, s->fresh - s->came) && fresh_left(s) ? 0 : least(left, batch_left(s));
    batch_decide(s);
    return s->batch_fresh && fresh_left(s) ? 0 : least(left, batch_left(s));
}

/* Counts emissions; true where they end the epoch. */
static bool emitted_add(fby_echo *echo, uint32_t seat, uint32_t count)
{
    seat_state *s = &echo->seat[seat];
    s->emitted += count;
    bool ends = is_free(s) ? !fresh_left(s) : s->emitted >= s->total;
    if (ends) epoch_begin(echo, seat, s->epoch + 1);
    return ends;
}

bool fby_echo_drawn(fby_echo *echo, uint32_t seat, uint32_t count)
{
    seat_state *s = &echo->seat[seat];
    s->fresh += count;
    s->stats.fresh += count;
    return emitted_add(echo, seat, count);
}

/* --- owing
 * --------------------------------------------------------------------------------------------------------------
 */

/* How often the seat's next sample is emitted again. */
static uint32_t again_of(seat_state *s)
{
    uint64_t i = s->came++;
    return (uint32_t)(emissions_of(times_of(s), i + 1) - emissions_of(times_of(s), i)) - 1;
}

static void owe(fby_echo *echo, uint32_t seat, fby_echo_item *item, uint32_t again)
{
    seat_state *s = &echo->seat[seat];
    item->left[seat] = (uint8_t)again;
    s->owed += again;
    s->items += again > 0;
}

/* Auto: forgets emissions that the seat is owed, at random, while there are more than its buffer holds, and
 * than its epoch needs. */
static void overflow_drop(fby_echo *echo, uint32_t seat);

uint64_t fby_echo_epoch(const fby_echo *echo, uint32_t seat)
{
    return echo->seat[seat].epoch;
}

int fby_echo_add(fby_echo *echo, uint64_t seats, const fby_echo_fresh *fresh)
{
    uint32_t again[FBY_ECHO_SEATS] = {0}, most = 0;
    uint64_t pooled = 0, owing = 0;
    for (uint64_t left = seats & echo->seats; left; left &= left - 1) {
        uint32_t seat = (uint32_t)__builtin_ctzll(left);
        seat_state *s = &echo->seat[seat];
        again[seat] = again_of(s);
        if (!again[seat]) continue;
        owing |= left & -left;
        if (!s->what.ordered) pooled |= left & -left;
        if (again[seat] > most) most = again[seat];
    }
    if (!owing) return FBY_OK;
    fby_echo_item *item = calloc(1, sizeof *item);
    if (!item) return FBY_ENOMEM;
    *item = (fby_echo_item){.id = fresh->id,
                            .units = 1, /* while it is put together */
                            .turn = fresh->turn,
                            .epoch = fresh->epoch,
                            .kept = fby_kept_item_hold(fresh->kept)};
    int status = FBY_OK;
    for (uint32_t repeat = 1; repeat <= most; repeat++) {
        uint64_t mask = 0;
        for (uint64_t left = owing; left; left &= left - 1) {
            uint32_t seat = (uint32_t)__builtin_ctzll(left);
            seat_state *s = &echo->seat[seat];
            if (again[seat] < repeat) continue;
            if (pooled >> seat & 1) {
                mask |= left & -left;
            } else if (fby_echo_units_reserve(&s->own, 1)) {
                fby_echo_units_add(&s->own, (fby_echo_unit){item, repeat});
                item->units++;
            } else {
                status = FBY_ENOMEM;
                again[seat] = repeat - 1;
            }
        }
        fby_echo_pool *pool = mask ? fby_echo_pools_find(&echo->pools, mask) : NULL;
        if (mask && (!pool || !fby_echo_units_reserve(&pool->units, 1))) {
            status = FBY_ENOMEM;
            for (uint64_t left = mask; left; left &= left - 1) again[__builtin_ctzll(left)] = repeat - 1;
        } else if (mask) {
            fby_echo_units_add(&pool->units, (fby_echo_unit){item, repeat});
            item->units++;
        }
    }
    for (uint64_t left = owing; left; left &= left - 1) {
        uint32_t seat = (uint32_t)__builtin_ctzll(left);
        owe(echo, seat, item, again[seat]);
    }
    fby_echo_item_leave(item);
    for (uint64_t left = pooled; left; left &= left - 1) {
        uint32_t seat = (uint32_t)__builtin_ctzll(left);
        if (is_auto(&echo->seat[seat])) overflow_drop(echo, seat);
    }
    return status;
}

/* The seats of a unit that are served from it, or let go of it: they leave its mask. */
static void unit_leave(fby_echo *echo, uint64_t mask, uint32_t at, uint64_t seats)
{
    fby_echo_pool *pool = fby_echo_pools_find(&echo->pools, mask);
    fby_echo_unit unit = fby_echo_units_remove(&pool->units, at);
    uint64_t rest = mask & ~seats;
    for (uint64_t left = seats; left; left &= left - 1) {
        seat_state *s = &echo->seat[__builtin_ctzll(left)];
        s->owed--;
        if (!--unit.item->left[__builtin_ctzll(left)]) s->items--;
    }
    fby_echo_pool *to = rest ? fby_echo_pools_find(&echo->pools, rest) : NULL;
    if (to && fby_echo_units_reserve(&to->units, 1)) {
        fby_echo_units_add(&to->units, unit);
        return;
    }
    /* Nobody is owed it any more; or there is no memory, and the others are owed one less. */
    for (uint64_t left = rest; left; left &= left - 1) {
        seat_state *s = &echo->seat[__builtin_ctzll(left)];
        s->owed--;
        s->stats.dropped++;
        if (!--unit.item->left[__builtin_ctzll(left)]) s->items--;
    }
    fby_echo_item_leave(unit.item);
}

/* What an auto keeps of what it is owed: as much as its buffer holds; more where its epoch comes to its total
 * only with that. */
static uint64_t owed_most(const seat_state *s)
{
    uint64_t buffer = buffer_again(s);
    if (is_free(s)) return buffer;
    uint64_t needed = s->total - s->emitted - fresh_left(s);
    uint64_t coming = emissions_of(s->what.max, s->what.part) - emissions_of(s->what.max, s->came) -
                      (s->what.part - s->came);
    return needed > buffer + coming ? needed - coming : buffer;
}

static void overflow_drop(fby_echo *echo, uint32_t seat)
{
    seat_state *s = &echo->seat[seat];
    uint64_t bit = UINT64_C(1) << seat, most = owed_most(s);
    while (s->owed > most) {
        uint64_t at = fby_generator_below(&echo->generator, s->owed);
        uint32_t i = 0;
        for (; i < echo->pools.count; i++) {
            const fby_echo_pool *pool = &echo->pools.list[i];
            if (!(pool->mask & bit)) continue;
            if (at < pool->units.count) break;
            at -= pool->units.count;
        }
        if (i == echo->pools.count) return;
        s->stats.dropped++;
        unit_leave(echo, echo->pools.list[i].mask, (uint32_t)at, bit);
    }
}

/* --- drawing
 * ----------------------------------------------------------------------------------------------------------
 */

static void emission_set(fby_echo_draw *out, const fby_echo_unit *unit)
{
    const fby_echo_item *item = unit->item;
    out->emissions[out->count++] = (struct fby_echo_emission){
        .fresh = {item->id, item->turn, item->epoch, fby_kept_item_hold(item->kept)}, .repeat = unit->repeat};
}

/* A unit of these that this draw hasn't its item of yet, at random; -1 where there is none. */
static int64_t unit_choose(const fby_echo *echo, const fby_echo_units *units, fby_generator *generator)
{
    if (!units->count) return -1;
    uint32_t at = 0;
    for (int tries = 0; tries < TRIES; tries++) {
        at = (uint32_t)fby_generator_below(generator, units->count);
        if (units->list[at].item->mark != echo->draws) return at;
    }
    for (uint32_t i = 0; i < units->count; i++, at = at + 1 < units->count ? at + 1 : 0)
        if (units->list[at].item->mark != echo->draws) return at;
    return -1;
}

/* The pool of which most of `ready` would be served together with the seat; the larger of two such. */
static const fby_echo_pool *pool_best(const fby_echo *echo, uint32_t seat, uint64_t ready)
{
    const fby_echo_pool *best = NULL;
    int best_score = 0;
    for (uint32_t i = 0; i < echo->pools.count; i++) {
        const fby_echo_pool *pool = &echo->pools.list[i];
        if (!(pool->mask >> seat & 1) || !pool->units.count) continue;
        int score = __builtin_popcountll(pool->mask & ready);
        if (best && (score < best_score || (score == best_score && pool->units.count <= best->units.count)))
            continue;
        best = pool;
        best_score = score;
    }
    return best;
}

/* A pool from which all of `served` are owed, chosen in proportion to what is in it; NULL: there is none. */
static fby_echo_pool *pool_choose(fby_echo *echo, uint64_t served, uint64_t passed_over)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < echo->pools.count; i++) {
        const fby_echo_pool *pool = &echo->pools.list[i];
        if ((pool->mask & served) == served && pool->mask != passed_over) all += pool->units.count;
    }
    if (!all) return NULL;
    uint64_t at = fby_generator_below(&echo->generator, all);
    for (uint32_t i = 0; i < echo->pools.count; i++) {
        fby_echo_pool *pool = &echo->pools.list[i];
        if ((pool->mask & served) != served || pool->mask == passed_over) continue;
        if (at < pool->units.count) return pool;
        at -= pool->units.count;
    }
    return NULL;
}

static void draw_shared(fby_echo *echo, uint32_t seat, uint64_t ready, uint32_t most, fby_echo_draw *out)
{
    for (uint64_t left = ready; left; left &= left - 1) {
        uint32_t other = (uint32_t)__builtin_ctzll(left);
        if (echo->seat[other].what.ordered || !fby_echo_wants_again(echo, other)) ready &= ~(left & -left);
    }
    const fby_echo_pool *best = pool_best(echo, seat, ready);
    if (!best) return;
    out->seats = best->mask & ready;
    for (uint64_t left = out->seats; left; left &= left - 1) {
        const seat_state *s = &echo->seat[__builtin_ctzll(left)];
        most = (uint32_t)least(most, is_auto(s) ? auto_wants_again(s) : again_left(s));
    }
    uint64_t exhausted = 0; /* a pool of which this draw has all items */
    while (out->count < most) {
        fby_echo_pool *pool = pool_choose(echo, out->seats, exhausted);
        if (!pool) break;
        int64_t at = unit_choose(echo, &pool->units, &echo->generator);
        if (at < 0) {
            if (exhausted) break;
            exhausted = pool->mask;
            continue;
        }
        pool->units.list[at].item->mark = echo->draws;
        emission_set(out, &pool->units.list[at]);
        unit_leave(echo, pool->mask, (uint32_t)at, out->seats);
    }
    fby_echo_pools_tidy(&echo->pools);
}

static bool is_beside(const seat_state *a, const seat_state *b)
{
    return b->what.ordered && a->what.history == b->what.history && a->what.part == b->what.part &&
           a->what.factor == b->what.factor && a->what.buffer == b->what.buffer &&
           a->what.batch == b->what.batch && a->epoch == b->epoch && a->emitted == b->emitted &&
           a->fresh == b->fresh && a->own.count == b->own.count;
}

static void draw_ordered(fby_echo *echo, uint32_t seat, uint64_t ready, uint32_t most, fby_echo_draw *out)
{
    seat_state *s = &echo->seat[seat];
    for (uint64_t left = ready & echo->seats; left; left &= left - 1)
        if (is_beside(s, &echo->seat[__builtin_ctzll(left)])) out->seats |= left & -left;
    most = (uint32_t)least(most, least(again_left(s), batch_left(s)));
    while (out->count < most) {
        fby_generator generator = {fby_mix64(fby_mix64(s->what.history) + s->epoch) +
                                   FBY_GOLDEN * 16 * (s->emitted + out->count)};
        int64_t at = unit_choose(echo, &s->own, &generator);
        if (at < 0) break;
        s->own.list[at].item->mark = echo->draws;
        emission_set(out, &s->own.list[at]);
        /* Equal histories have equal pools: the same place is the same unit in all of them. */
        for (uint64_t left = out->seats; left; left &= left - 1) {
            uint32_t other = (uint32_t)__builtin_ctzll(left);
            seat_state *o = &echo->seat[other];
            fby_echo_unit unit = fby_echo_units_remove(&o->own, (uint32_t)at);
            o->owed--;
            if (!--unit.item->left[other]) o->items--;
            fby_echo_item_leave(unit.item);
        }
    }
}

bool fby_echo_draw_again(fby_echo *echo, uint32_t seat, uint64_t ready, uint32_t most, fby_echo_draw *out)
{
    seat_state *s = &echo->seat[seat];
    out->count = 0;
    out->seats = out->epoch_ends = 0;
    echo->draws++;
    /* auto's are whole batches: alone, it may choose from all that it is owed. */
    ready = is_auto(s) ? UINT64_C(1) << seat : ready | UINT64_C(1) << seat;
    if (most > FBY_ECHO_DRAW_MOST) most = FBY_ECHO_DRAW_MOST;
    most = (uint32_t)least(most, fby_echo_wants_again(echo, seat));
    if (!most) return false;
    if (s->what.ordered)
        draw_ordered(echo, seat, ready, most, out);
    else
        draw_shared(echo, seat, ready, most, out);
    if (!out->count) return false;
    for (uint64_t left = out->seats; left; left &= left - 1) {
        uint32_t other = (uint32_t)__builtin_ctzll(left);
        out->epochs[other] = echo->seat[other].epoch;
        echo->seat[other].stats.again += out->count;
        if (emitted_add(echo, other, out->count)) out->epoch_ends |= left & -left;
    }
    return true;
}

void fby_echo_get_seat_stats(const fby_echo *echo, uint32_t seat, fby_echo_seat_stats *out)
{
    const seat_state *s = &echo->seat[seat];
    *out = s->stats;
    out->owed = s->owed;
    out->items = s->items;
}

/* --- going on from a state
 * ------------------------------------------------------------------------------------------ */

static int echo_alone(fby_echo **out, const fby_echo_seat_options *what, fby_error *error)
{
    int status = fby_echo_create(out, what->history + what->epoch, error);
    if (!status) fby_echo_enter(*out, 0, what);
    return status;
}

/* One batch's fresh samples, or emissions of what is owed. FBY_EEND where the seat wants neither. */
static int replay_step(fby_echo *echo, uint64_t left, fby_echo_draw *draw)
{
    uint64_t fresh = least(fby_echo_wants_fresh(echo, 0), left);
    for (uint64_t i = 0; i < fresh; i++) {
        const fby_echo_fresh one = {.id = (uint32_t)(echo->seat[0].fresh + i)};
        int status = fby_echo_add(echo, 1, &one);
        if (status) return status;
    }
    if (fresh) {
        fby_echo_drawn(echo, 0, (uint32_t)fresh);
        return FBY_OK;
    }
    if (!fby_echo_draw_again(echo, 0, 1, (uint32_t)least(left, FBY_ECHO_DRAW_MOST), draw)) return FBY_EEND;
    return FBY_OK;
}

int fby_echo_replay(fby_echo **out, const fby_echo_seat_options *what, uint64_t emitted, fby_error *error)
{
    *out = NULL;
    fby_echo *echo = NULL;
    fby_echo_draw *draw = malloc(sizeof *draw);
    int status = draw ? echo_alone(&echo, what, error) : FBY_ENOMEM;
    while (!status && echo->seat[0].emitted < emitted)
        status = replay_step(echo, emitted - echo->seat[0].emitted, draw);
    free(draw);
    if (status == FBY_ENOMEM) fby_fail(error, status, "no memory for what an echo owes");
    if (status == FBY_EEND)
        fby_fail(error, FBY_EINVAL, "an echo's epoch doesn't come to %llu emissions",
                 (unsigned long long)emitted);
    if (status) {
        fby_echo_destroy(&echo);
        return status == FBY_EEND ? FBY_EINVAL : status;
    }
    echo->seat[0].stats = (fby_echo_seat_stats){0};
    *out = echo;
    return FBY_OK;
}

/* Owes `again` more emissions of a sample that came `had` times. */
static int owe_rest(fby_echo *echo, uint32_t id, uint32_t had, uint32_t again)
{
    fby_echo_pool *pool = fby_echo_pools_find(&echo->pools, 1);
    fby_echo_item *item = calloc(1, sizeof *item);
    if (!pool || !item || !fby_echo_units_reserve(&pool->units, again)) {
        free(item);
        return FBY_ENOMEM;
    }
    *item = (fby_echo_item){.id = id, .units = again};
    for (uint32_t k = 0; k < again; k++) fby_echo_units_add(&pool->units, (fby_echo_unit){item, had + k});
    owe(echo, 0, item, again);
    return FBY_OK;
}

/* Fresh samples that an epoch with a total has no emissions left for were had: as padding, or in place of bad
 * ones, whose ids say nothing. */
static void fresh_fit(seat_state *s)
{
    uint64_t left = s->total - s->emitted;
    if (fresh_left(s) > left) s->fresh = s->what.part - left;
}

/* How many of an item's `again` emissions are among the *kept that are chosen of *all; both are counted down.
 */
static uint64_t some_of(fby_generator *generator, uint64_t again, uint64_t *kept, uint64_t *all)
{
    uint64_t some = 0;
    for (; again; again--, --*all) {
        if (*kept < *all && fby_generator_below(generator, *all) >= *kept) continue;
        some++;
        --*kept;
    }
    return some;
}

int fby_echo_restore(fby_echo **out, const fby_echo_seat_options *what, uint64_t emitted,
                     const uint8_t *counts, uint64_t ids, fby_error *error)
{
    *out = NULL;
    fby_echo *echo;
    int status = echo_alone(&echo, what, error);
    if (status) return status;
    seat_state *s = &echo->seat[0];
    uint32_t whole = (uint32_t)times_of(s), partly = 0;
    uint64_t certain = 0;
    for (uint64_t id = 0; id < ids; id++) {
        if (!counts[id]) continue;
        s->fresh++;
        if (counts[id] < whole) certain += whole - counts[id];
        partly += counts[id] <= whole;
    }
    if (s->fresh > s->what.part) s->fresh = s->what.part;
    s->emitted = emitted;
    fresh_fit(s);
    s->came = s->fresh;
    /* Of those that came no more than floor(f) times some come once more: as many as the epoch's number says.
     */
    uint64_t due = emissions_of(times_of(s), s->fresh);
    uint64_t owed = due > emitted ? due - emitted : 0, extra = owed > certain ? owed - certain : 0;
    uint64_t kept = is_auto(s) ? least(owed, owed_most(s)) : owed;
    for (uint64_t id = 0; id < ids && !status && owed; id++) {
        if (!counts[id] || counts[id] > whole) continue;
        uint64_t again = whole - counts[id];
        /* Selection sampling: each of those left is as likely as any other (Knuth, TAOCP 2, 3.4.2 S). */
        if (extra && fby_generator_below(&echo->generator, partly) < extra) {
            again++;
            extra--;
        }
        partly--;
        again = least(again, owed);
        uint64_t keep = some_of(&echo->generator, again, &kept, &owed);
        if (keep) status = owe_rest(echo, (uint32_t)id, counts[id], (uint32_t)keep);
    }
    if (status) {
        fby_echo_destroy(&echo);
        return fby_fail(error, status, "no memory for what an echo owes");
    }
    *out = echo;
    return FBY_OK;
}

uint64_t fby_echo_fresh_of(const fby_echo *echo, uint32_t seat)
{
    return echo->seat[seat].fresh;
}

/* An item of seat 0 of another echo becomes one of `seat` here; its units come one by one. */
static void item_adopt(fby_echo *echo, uint32_t seat, fby_echo_item *item, uint64_t turn,
                       uint32_t (*id_of)(void *, uint64_t), void *user)
{
    if (item->mark == UINT64_MAX) return;
    item->mark = UINT64_MAX; /* seen; no draw has this number */
    uint8_t left = item->left[0];
    item->left[0] = 0;
    item->left[seat] = left;
    item->turn = turn;
    item->epoch = echo->seat[seat].epoch;
    if (id_of) item->id = id_of(user, item->id);
}

void fby_echo_adopt(fby_echo *echo, uint32_t seat, fby_echo **own, uint64_t turn,
                    uint32_t (*id_of)(void *user, uint64_t position), void *user)
{
    seat_state *s = &echo->seat[seat];
    *s = (*own)->seat[0];
    echo->seats |= UINT64_C(1) << seat;
    (*own)->seat[0] = (seat_state){0};
    (*own)->seats = 0;
    for (uint32_t i = 0; i < s->own.count; i++)
        item_adopt(echo, seat, s->own.list[i].item, turn, id_of, user);
    fby_echo_units *from = (*own)->pools.count ? &(*own)->pools.list[0].units : NULL;
    fby_echo_pool *pool = from && from->count ? fby_echo_pools_find(&echo->pools, UINT64_C(1) << seat) : NULL;
    if (pool && fby_echo_units_reserve(&pool->units, from->count)) {
        while (from->count) {
            fby_echo_unit unit = fby_echo_units_remove(from, from->count - 1);
            item_adopt(echo, seat, unit.item, turn, id_of, user);
            fby_echo_units_add(&pool->units, unit);
        }
    } else if (from && from->count) {
        s->owed = s->items = 0; /* without memory it is owed nothing: its epoch ends earlier */
        s->total = s->emitted + fresh_left(s);
    }
    fby_echo_destroy(own);
}
