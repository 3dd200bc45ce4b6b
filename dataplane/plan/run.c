#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataplane/plan/tree.h"

struct fby_scratch {
    fby_picture_memory *memory;
    uint64_t decode_ns, transform_ns, samples;
};

/* One sample on its way down the tree. */
typedef struct descent {
    const fby_plan *plan;
    const fby_work *work;
    const fby_op *op; /* being applied, for messages */
    bool decoder;     /* the failure is the decoder's */
    bool committed;
} descent;

/* What of the source the branches below would decode, if all want the same. */
typedef struct foresight {
    fby_region_of region;
    bool any, differ;
} foresight;

int fby_scratch_create(fby_scratch **out)
{
    *out = NULL;
    fby_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch) return FBY_ENOMEM;
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
    free(*scratch);
    *scratch = NULL;
}

size_t fby_scratch_bytes(const fby_scratch *scratch)
{
    return sizeof *scratch + fby_picture_memory_bytes(scratch->memory);
}

void fby_scratch_get_times(const fby_scratch *scratch, fby_scratch_times *out)
{
    *out = (fby_scratch_times){scratch->decode_ns, scratch->transform_ns, scratch->samples};
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
    return fby_stage_apply(at, picture, work->id, at->fixed ? work->epoch : work->turn, work->repeat);
}

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

/* Takes the picture through `stage` and all that hangs below it; ends it. */
static fby_reason descend(descent *down, int32_t stage, fby_picture *picture)
{
    fby_reason reason;
    for (;;) {
        const fby_stage *at = &down->plan->stages[stage];
        if (at->op) {
            down->op = at->op;
            reason = apply(down, stage, picture);
            if (reason) goto end;
        }
        if (at->ends & down->work->branches) {
            reason = finish(down, at, picture);
            goto end;
        }
        int32_t first = wanted(down, at->first), second = wanted(down, down->plan->stages[first].next);
        if (second < 0) {
            stage = first;
            continue;
        }
        /* The source's forks each decode in their own way. */
        reason = at->op ? share(down, first, picture) : FBY_REASON_NONE;
        for (int32_t child = first; child >= 0 && !reason;
             child = wanted(down, down->plan->stages[child].next)) {
            fby_picture branch = fby_picture_fork(picture);
            reason = descend(down, child, &branch);
        }
        goto end;
    }
end:
    down->decoder |= picture->decode_failed;
    fby_picture_end(picture);
    return reason;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The decoder's share is known in wall time; CPU time, dear to read, is split in the same proportion. */
static void account(fby_scratch *scratch, uint64_t cpu_ns, uint64_t wall_ns, uint64_t decode_wall_ns)
{
    uint64_t decode = wall_ns ? (uint64_t)((double)cpu_ns * (double)decode_wall_ns / (double)wall_ns) : 0;
    if (decode > cpu_ns) decode = cpu_ns;
    scratch->decode_ns += decode;
    scratch->transform_ns += cpu_ns - decode;
    scratch->samples++;
}

fby_reason fby_plan_run(const fby_plan *plan, fby_scratch *scratch, const fby_work *work,
                        fby_failure *failure)
{
    fby_picture_memory *memory = scratch->memory;
    descent down = {.plan = plan, .work = work};
    fby_reason reason = FBY_REASON_NONE;
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), wall = clock_ns(CLOCK_MONOTONIC);
    uint64_t decode = fby_picture_memory_decode_ns(memory);
    if (work->branches & plan->stages[0].branches) {
        fby_picture picture;
        fby_picture_start(&picture, memory, work->bytes, work->length);
        reason = descend(&down, 0, &picture);
    }
    fby_picture_memory_trim(memory);
    account(scratch, clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu, clock_ns(CLOCK_MONOTONIC) - wall,
            fby_picture_memory_decode_ns(memory) - decode);
    if (!reason || !failure) return reason;
    *failure = (fby_failure){.reason = reason, .op = down.decoder || !down.op ? "decode" : down.op->name};
    if (down.decoder) snprintf(failure->text, sizeof failure->text, "%s", fby_picture_memory_text(memory));
    return reason;
}
