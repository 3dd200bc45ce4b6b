#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <forebay/fbl.h>

#include "dataplane/plan/tree.h"

struct fby_scratch {
    fby_picture_memory *memory;
    uint64_t decode_ns, transform_ns, samples;
    uint32_t shard;          /* of plans' counts */
    fby_fbl_encoder *packer; /* of what caches keep packed; NULL until it is needed */
    uint8_t *pixels;         /* what it packs */
    size_t pixels_bytes;
};

/* One sample on its way down the tree. */
typedef struct descent {
    const fby_plan *plan;
    const fby_work *work;
    fby_scratch *scratch;
    const fby_picture_memory *memory;
    const fby_op *op; /* being applied, for messages */
    bool decoder;     /* the failure is the decoder's */
    bool committed;
    bool keeps; /* some stage keeps what it makes */
    fby_plan_shard *counts;
    uint64_t at_ns, decode_ns, resample_ns; /* up to where time was charged to stages */
} descent;

/* The stages of a branch at which pending work counts; -1: none yet. */
typedef struct origin {
    int32_t decode, resize;
} origin;

/* What of the source the branches below would decode, if all want the same. */
typedef struct foresight {
    fby_region_of region;
    bool any, differ;
} foresight;

int fby_scratch_create(fby_scratch **out)
{
    static uint32_t made; /* atomic */
    *out = NULL;
    fby_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch) return FBY_ENOMEM;
    scratch->shard = __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED) % FBY_PLAN_SHARDS; /* a number, no more */
    int status = fby_picture_memory_create(&scratch->memory);
    if (status) {
        free(scratch);
        return status;
    }
    *out = scratch;
    return FBY_OK;
}

void fby_scratch_destroy(fby_scratch **scratch)
{
    if (!*scratch) return;
    fby_picture_memory_destroy(&(*scratch)->memory);
    fby_fbl_encoder_destroy(&(*scratch)->packer);
    free((*scratch)->pixels);
    free(*scratch);
    *scratch = NULL;
}

size_t fby_scratch_bytes(const fby_scratch *scratch)
{
    return sizeof *scratch + fby_picture_memory_bytes(scratch->memory) + scratch->pixels_bytes;
}

void fby_scratch_get_times(const fby_scratch *scratch, fby_scratch_times *out)
{
    *out = (fby_scratch_times){.decode_ns = scratch->decode_ns,
                               .transform_ns = scratch->transform_ns,
                               .samples = scratch->samples,
                               .jpegs = fby_picture_memory_jpegs(scratch->memory)};
}

uint64_t fby_plan_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Relaxed: a count for show. */
static void count_add(uint64_t *count, uint64_t more)
{
    if (more) __atomic_fetch_add(count, more, __ATOMIC_RELAXED);
}

/* Charges the time since the last call to `stage`, but for decoding and resizing, which count at their
 * origins. */
static void charge(descent *down, const origin *from, int32_t stage)
{
    const fby_picture_memory *memory = down->memory;
    fby_stage_count *counts = down->counts->stages;
    uint64_t now = fby_plan_clock_ns(CLOCK_MONOTONIC), decode = fby_picture_memory_decode_ns(memory),
             resample = fby_picture_memory_resample_ns(memory);
    uint64_t decoding = decode - down->decode_ns, resizing = resample - down->resample_ns;
    uint64_t all = now - down->at_ns, rest = all > decoding + resizing ? all - decoding - resizing : 0;
    count_add(&counts[from->decode < 0 ? stage : from->decode].wall_ns, decoding);
    count_add(&counts[from->resize < 0 ? stage : from->resize].wall_ns, resizing);
    count_add(&counts[stage].wall_ns, rest);
    down->at_ns = now;
    down->decode_ns = decode;
    down->resample_ns = resample;
}

fby_reason fby_stage_apply(const fby_stage *stage, fby_picture *picture, uint64_t id, uint64_t turn,
                           uint32_t repeat)
{
    if (!stage->op->apply) return FBY_REASON_NONE;
    if (!stage->op->random) return stage->op->apply(stage->params, picture, NULL);
    fby_random random;
    fby_random_start(&random, stage->augment_seed, stage->ordinal, turn, id, repeat);
    return stage->op->apply(stage->params, picture, &random);
}

static fby_reason apply(const descent *down, int32_t stage, fby_picture *picture)
{
    const fby_work *work = down->work;
    const fby_stage *at = &down->plan->stages[stage];
    int32_t echo_stage = work->echo_count ? work->echo_stages[0] : 0;
    return fby_stage_apply(at, picture, work->id, at->fixed ? work->epoch : work->turn,
                           fby_stage_repeat(down->plan, stage, echo_stage, work->repeat));
}

uint32_t fby_stage_repeat(const fby_plan *plan, int32_t stage, int32_t echo_stage, uint32_t repeat)
{
    if (!repeat) return 0;
    do {
        stage = plan->stages[stage].parent;
    } while (stage >= 0 && stage != echo_stage);
    return stage >= 0 ? repeat : 0;
}

/* --- what is kept
 * ------------------------------------------------------------------------------------------------------- */

/* The item of an echo that keeps what `stage` makes of this sample; NULL: there is none. */
static fby_kept_item *item_of(const fby_work *work, int32_t stage)
{
    for (uint32_t i = 0; i < work->echo_count; i++)
        if (work->echo_stages[i] == stage) return work->items[i];
    return NULL;
}

/* Whether what `stage` makes of the sample is kept somewhere. */
static bool is_kept(const fby_plan *plan, const fby_work *work, int32_t stage)
{
    const fby_kept_item *item = item_of(work, stage);
    if (item && fby_kept_at(&item->place)) return true;
    const fby_cache *cache = plan->stages[stage].cache;
    return cache && fby_cache_has(cache, work->id);
}

/* Whether all that is wanted of `stage` and below can be had from what is kept there. */
static bool is_covered(const fby_plan *plan, const fby_work *work, int32_t stage)
{
    const fby_stage *at = &plan->stages[stage];
    if (is_kept(plan, work, stage)) return true;
    if (at->ends & work->branches) return false;
    for (int32_t child = at->first; child >= 0; child = plan->stages[child].next)
        if (plan->stages[child].branches & work->branches && !is_covered(plan, work, child)) return false;
    return true;
}

static bool keeps_any(const fby_plan *plan, const fby_work *work)
{
    return plan->caches || work->echo_count;
}

bool fby_plan_reads(const fby_plan *plan, const fby_work *work)
{
    return !keeps_any(plan, work) || !is_covered(plan, work, 0);
}

/* Takes the picture up from what is kept of `stage`; *taken: there was something. */
static fby_reason take_kept(const descent *down, int32_t stage, fby_picture *picture, bool *taken)
{
    const fby_kept_item *item = item_of(down->work, stage);
    const fby_kept *kept = item ? fby_kept_at(&item->place) : NULL;
    fby_cache *cache = down->plan->stages[stage].cache;
    if (!kept && cache) kept = fby_cache_find(cache, down->work->id);
    *taken = kept != NULL;
    if (!kept) return FBY_REASON_NONE;
    fby_picture_memory *memory = picture->memory;
    fby_picture_end(picture);
    if (kept->w) {
        fby_picture_start_pixels(picture, memory, kept->data, kept->w, kept->h);
        return FBY_REASON_NONE;
    }
    fby_picture_start(picture, memory, kept->data, kept->bytes);
    if (stage == 0) return FBY_REASON_NONE;
    /* Packed pixels: decoded as any picture is, the region that is needed of them. */
    const fby_decode_options options = {.max_pixels = UINT64_MAX};
    return fby_picture_open(picture, &options);
}

/* Room in the scratch for the picture's pixels, and a packer; false without memory. */
static bool packer_prepare(fby_scratch *scratch, size_t bytes)
{
    if (!scratch->packer && fby_fbl_encoder_create(&scratch->packer)) return false;
    if (scratch->pixels_bytes >= bytes) return true;
    free(scratch->pixels);
    scratch->pixels = malloc(bytes);
    scratch->pixels_bytes = scratch->pixels ? bytes : 0;
    return scratch->pixels;
}

/* The picture as it is now, packed, in room of the cache's; NULL where there is none, or no memory: it isn't
 * kept. */
static fby_reason pack(const descent *down, const fby_stage *at, fby_picture *picture, fby_kept **out)
{
    fby_scratch *scratch = down->scratch;
    uint32_t w = fby_picture_w(picture), h = fby_picture_h(picture);
    *out = NULL;
    if (!packer_prepare(scratch, (size_t)w * h * 3)) return FBY_REASON_NONE;
    fby_reason reason = fby_picture_copy(picture, scratch->pixels);
    if (reason) return reason;
    fby_fbl_image image = FBY_FBL_IMAGE_INIT;
    image.data = scratch->pixels;
    image.width = w;
    image.height = h;
    image.channels = 3;
    image.bits = 8;
    fby_fbl_encode_options options = FBY_FBL_ENCODE_OPTIONS_INIT;
    options.level = at->cache_pack == FBY_CACHE_PACK_FAST ? FBY_FBL_FAST : FBY_FBL_SMALL;
    const void *bytes;
    size_t length;
    if (fby_fbl_encode(scratch->packer, &image, &options, &bytes, &length, NULL)) return FBY_REASON_NONE;
    *out = fby_cache_room(at->cache, length, 0, 0);
    if (*out) memcpy((*out)->data, bytes, length);
    return FBY_REASON_NONE;
}

/* The picture as it is now in room of `budget`'s: its encoded bytes at the source, else its pixels. NULL
 * where there is no room: it isn't kept. */
static fby_reason copy(const descent *down, int32_t stage, fby_picture *picture, fby_cache *cache,
                       fby_budget *budget, fby_kept **out)
{
    uint32_t w = stage > 0 ? fby_picture_w(picture) : 0, h = stage > 0 ? fby_picture_h(picture) : 0;
    uint64_t bytes = stage > 0 ? (uint64_t)w * h * 3 : down->work->length;
    *out = cache ? fby_cache_room(cache, bytes, w, h) : fby_kept_make(budget, bytes, w, h);
    if (!*out) return FBY_REASON_NONE;
    if (stage == 0) {
        memcpy((*out)->data, down->work->bytes, down->work->length);
        return FBY_REASON_NONE;
    }
    fby_reason reason = fby_picture_copy(picture, (*out)->data);
    if (!reason) return reason;
    fby_kept_release(*out);
    *out = NULL;
    return reason;
}

/* Keeps what `stage` made, where that is wanted and there is room. */
static fby_reason keep(const descent *down, int32_t stage, fby_picture *picture)
{
    const fby_stage *at = &down->plan->stages[stage];
    fby_kept_item *item = item_of(down->work, stage);
    fby_kept *kept = NULL;
    fby_reason reason = FBY_REASON_NONE;
    if (at->cache && stage > 0 && at->cache_pack)
        reason = pack(down, at, picture, &kept);
    else if (at->cache)
        reason = copy(down, stage, picture, at->cache, NULL, &kept);
    if (reason) return reason;
    if (kept) {
        fby_cache_put(at->cache, down->work->id, kept);
        return FBY_REASON_NONE; /* an echo finds it there */
    }
    if (!item) return FBY_REASON_NONE;
    reason = copy(down, stage, picture, NULL, item->budget, &kept);
    if (kept) fby_kept_put(&item->place, kept);
    return reason;
}

/* --- the way down
 * ------------------------------------------------------------------------------------------------------- */

/* The next stage at or after `stage` among its siblings that a wanted branch passes; -1: none. */
static int32_t wanted(const descent *down, int32_t stage)
{
    while (stage >= 0 && !(down->plan->stages[stage].branches & down->work->branches))
        stage = down->plan->stages[stage].next;
    return stage;
}

/* Walks a traced picture from `stage` down and notes which region each wanted branch would decode, also where
 * its ops fail later: the real picture comes there too, and fails then. */
static void foresee(const descent *down, int32_t stage, fby_picture picture, foresight *seen)
{
    const fby_stage *at = &down->plan->stages[stage];
    fby_reason reason = apply(down, stage, &picture);
    if (!reason && down->keeps && (at->cache || item_of(down->work, stage))) fby_picture_copy(&picture, NULL);
    if (!reason && (at->ends & down->work->branches)) fby_picture_complete(&picture);
    if (picture.decoded) {
        const fby_region_of *a = &picture.wanted, *b = &seen->region;
        if (seen->any && (a->x != b->x || a->y != b->y || a->w != b->w || a->h != b->h)) seen->differ = true;
        seen->region = picture.wanted;
        seen->any = true;
        return;
    }
    if (reason) return;
    for (int32_t child = wanted(down, at->first); child >= 0;
         child = wanted(down, down->plan->stages[child].next))
        foresee(down, child, picture, seen);
}

/* Before a fork: what all branches need is done once. A resize on its way is done; a picture still encoded is
 * decoded, and if all take the same region of it, no more than that. */
static fby_reason share(const descent *down, int32_t first, fby_picture *picture)
{
    if (picture->resize) return fby_picture_settle(picture);
    if (picture->pixels) return FBY_REASON_NONE;
    foresight seen = {0};
    for (int32_t child = first; child >= 0; child = wanted(down, down->plan->stages[child].next))
        if (!down->keeps || !is_covered(down->plan, down->work, child))
            foresee(down, child, fby_picture_foresee(picture), &seen);
    return fby_picture_hold(picture, seen.any && !seen.differ ? &seen.region : &picture->region);
}

static fby_reason finish(descent *down, const fby_stage *stage, fby_picture *picture)
{
    uint64_t ends = stage->ends & down->work->branches;
    uint32_t first = (uint32_t)__builtin_ctzll(ends);
    void *out = down->work->out[first];
    fby_reason reason = fby_picture_complete(picture);
    if (reason) return reason;
    if (!down->committed && down->work->commit && !down->work->commit(down->work->user))
        return FBY_REASON_TIMEOUT;
    down->committed = true;
    fby_picture_write(picture, &stage->sink, out);
    for (ends &= ends - 1; ends; ends &= ends - 1) {
        void *also = down->work->out[__builtin_ctzll(ends)];
        if (also != out) memcpy(also, out, down->plan->branches[first].sample_bytes);
    }
    return FBY_REASON_NONE;
}

/* Applies a stage's op and counts it. */
static fby_reason step(descent *down, origin *from, int32_t stage, fby_picture *picture)
{
    bool resize = picture->resize;
    uint32_t w = picture->resize_w, h = picture->resize_h;
    down->op = down->plan->stages[stage].op;
    fby_reason reason = apply(down, stage, picture);
    if (from->decode < 0 && picture->source_w) from->decode = stage;
    count_add(&down->counts->stages[stage].samples, 1);
    charge(down, from, stage);
    if (picture->resize && (!resize || w != picture->resize_w || h != picture->resize_h))
        from->resize = stage;
    return reason;
}

/* Takes the picture through `stage` and all that hangs below it; ends it. */
static fby_reason descend(descent *down, origin from, int32_t stage, fby_picture *picture)
{
    fby_reason reason;
    for (;;) {
        const fby_stage *at = &down->plan->stages[stage];
        bool taken = false;
        reason = down->keeps ? take_kept(down, stage, picture, &taken) : FBY_REASON_NONE;
        if (reason) goto end;
        /* Where all that is wanted comes from further down, nothing is done here. */
        bool passed = down->keeps && !taken && is_covered(down->plan, down->work, stage);
        if (at->op && !taken && !passed) {
            reason = step(down, &from, stage, picture);
            if (reason) goto end;
        }
        if (down->keeps && !taken && !passed) {
            reason = keep(down, stage, picture);
            charge(down, &from, stage);
            if (reason) goto end;
        }
        if (at->ends & down->work->branches) {
            reason = finish(down, at, picture);
            charge(down, &from, stage);
            goto end;
        }
        int32_t first = wanted(down, at->first), second = wanted(down, down->plan->stages[first].next);
        if (second < 0) {
            stage = first;
            continue;
        }
        /* The source's forks each decode in their own way. */
        reason = at->op && !passed ? share(down, first, picture) : FBY_REASON_NONE;
        charge(down, &from, stage);
        for (int32_t child = first; child >= 0 && !reason;
             child = wanted(down, down->plan->stages[child].next)) {
            fby_picture branch = fby_picture_fork(picture);
            reason = descend(down, from, child, &branch);
        }
        goto end;
    }
end:
    down->decoder |= picture->decode_failed;
    fby_picture_end(picture);
    return reason;
}

/* The decoder's share is known in wall time; CPU time, dear to read, is split in the same proportion. */
static void account(fby_scratch *scratch, fby_plan_shard *counts, uint64_t cpu_ns, uint64_t wall_ns,
                    uint64_t decode_wall_ns)
{
    uint64_t decode = wall_ns ? (uint64_t)((double)cpu_ns * (double)decode_wall_ns / (double)wall_ns) : 0;
    if (decode > cpu_ns) decode = cpu_ns;
    scratch->decode_ns += decode;
    scratch->transform_ns += cpu_ns - decode;
    scratch->samples++;
    count_add(&counts->cpu_ns, cpu_ns);
    count_add(&counts->wall_ns, wall_ns);
}

fby_reason fby_plan_run(const fby_plan *plan, fby_scratch *scratch, const fby_work *work,
                        fby_failure *failure)
{
    fby_picture_memory *memory = scratch->memory;
    fby_reason reason = FBY_REASON_NONE;
    uint64_t cpu = fby_plan_clock_ns(CLOCK_THREAD_CPUTIME_ID), wall = fby_plan_clock_ns(CLOCK_MONOTONIC);
    uint64_t decode = fby_picture_memory_decode_ns(memory);
    descent down = {.plan = plan,
                    .work = work,
                    .scratch = scratch,
                    .memory = memory,
                    .keeps = keeps_any(plan, work),
                    .counts = &plan->shards[scratch->shard],
                    .at_ns = wall,
                    .decode_ns = decode,
                    .resample_ns = fby_picture_memory_resample_ns(memory)};
    if (work->branches & plan->stages[0].branches) {
        fby_picture picture;
        fby_picture_start(&picture, memory, work->bytes, work->length);
        count_add(&down.counts->stages[0].samples, 1);
        reason = descend(&down, (origin){-1, -1}, 0, &picture);
    }
    fby_picture_memory_trim(memory);
    account(scratch, down.counts, fby_plan_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu,
            fby_plan_clock_ns(CLOCK_MONOTONIC) - wall, fby_picture_memory_decode_ns(memory) - decode);
    if (!reason || !failure) return reason;
    *failure = (fby_failure){.reason = reason, .op = down.decoder || !down.op ? "decode" : down.op->name};
    if (down.decoder) snprintf(failure->text, sizeof failure->text, "%s", fby_picture_memory_text(memory));
    return reason;
}
