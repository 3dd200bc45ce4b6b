#include "dataplane/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "dataplane/plan/tree.h"
#include "dataplane/spec/params.h"

/* The seed that a random op's parameters hold. */
static uint64_t seed_of(const fby_op *op, const void *params)
{
    for (uint32_t i = 0; i < op->param_count; i++)
        if (op->params[i].type == FBY_PARAM_SEED)
            return *(const uint64_t *)((const char *)params + op->params[i].offset);
    return 0;
}

/* The key of a stage: of its parent's, its op and the op's version, and its parameters as text, which include
 * a random op's augment_seed; with it goes the op's ordinal, on which its draws depend. */
static fby_digest stage_key(fby_digest parent, const fby_op *op, uint32_t ordinal, bool fixed,
                            const char *params)
{
    XXH128_hash_t of_params = XXH3_128bits(params, strlen(params));
    uint64_t parts[] = {parent.high,
                        parent.low,
                        XXH3_64bits(op->name, strlen(op->name)),
                        op->version,
                        op->random ? (uint64_t)fixed << 32 | ordinal : UINT64_MAX,
                        of_params.high64,
                        of_params.low64};
    XXH128_hash_t hash = XXH3_128bits(parts, sizeof parts);
    return (fby_digest){hash.high64, hash.low64};
}

static char *params_text(const fby_op *op, const void *params)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return NULL;
    fby_params_print(op, params, out);
    bool failed = ferror(out);
    if (!fclose(out) && !failed) return text;
    free(text);
    return NULL;
}

/* The stage below `parent` with this key, or a new one; its index, or -1 without memory. */
static int32_t stage_find(fby_plan *plan, int32_t parent, const fby_op_use *use, uint32_t ordinal, bool fixed)
{
    const fby_op *op = use->op;
    char *text = params_text(op, use->params);
    if (!text) return -1;
    fby_digest key = stage_key(plan->stages[parent].key, op, ordinal, fixed, text);
    int32_t *link = &plan->stages[parent].first;
    while (*link >= 0) {
        fby_stage *stage = &plan->stages[*link];
        if (fby_digest_equal(stage->key, key)) {
            free(text);
            return *link;
        }
        link = &stage->next;
    }
    fby_stage *stage = &plan->stages[plan->stage_count];
    *stage = (fby_stage){.key = key,
                         .parent = parent,
                         .first = -1,
                         .next = -1,
                         .op = op,
                         .fixed = op->random && fixed,
                         .ordinal = ordinal};
    snprintf(stage->text, sizeof stage->text, "%s", text);
    free(text);
    stage->augment_seed = seed_of(op, use->params);
    stage->params = malloc(op->params_bytes ? op->params_bytes : 1);
    if (!stage->params) return -1;
    memcpy(stage->params, use->params, op->params_bytes);
    *link = (int32_t)plan->stage_count++;
    return *link;
}

static int sink_make(fby_sink *sink, const fby_shape *shape)
{
    *sink = (fby_sink){.dtype = shape->dtype,
                       .layout = shape->layout,
                       .normalize = shape->normalized,
                       .unit = shape->dtype != FBY_U8,
                       .gray = shape->channels == 1};
    for (int c = 0; c < 3; c++) {
        sink->mean[c] = shape->mean[c];
        sink->std[c] = shape->normalized ? shape->std[c] : 1;
    }
    return fby_sink_prepare(sink);
}

static fby_branch_info branch_info(const fby_shape *shape)
{
    uint32_t channels = shape->channels;
    fby_branch_info info = {.sample_bytes =
                                (uint64_t)shape->w * shape->h * channels * fby_dtype_bytes(shape->dtype),
                            .dtype = shape->dtype,
                            .layout = shape->layout,
                            .dimensions = 3};
    bool planes = shape->layout == FBY_CHW;
    info.shape[0] = planes ? channels : shape->h;
    info.shape[1] = planes ? shape->h : shape->w;
    info.shape[2] = planes ? shape->w : channels;
    return info;
}

/* What an op that is no stage says of the one above it. */
static void mark(fby_plan *plan, int32_t stage, uint32_t branch, const fby_op_use *use)
{
    fby_stage *at = &plan->stages[stage];
    if (use->op->kind == FBY_OP_CACHE) {
        const fby_cache_params *params = use->params;
        if (params->memory > at->cache_bytes) {
            at->cache_bytes = params->memory;
            at->cache_pack = (fby_cache_pack)params->pack;
        }
    } else {
        at->echoes |= UINT64_C(1) << branch;
        plan->echo[branch] = stage;
    }
}

static int branch_add(fby_plan *plan, const fby_spec *spec, uint32_t branch, fby_error *error)
{
    fby_shape shape;
    int status = fby_spec_infer(spec, &shape, error);
    if (status) return status;
    int32_t at = 0;
    uint32_t ordinal = 0;
    uint64_t bit = UINT64_C(1) << branch;
    plan->stages[0].branches |= bit;
    plan->echo[branch] = -1;
    for (uint32_t i = 0; i < spec->op_count; i++) {
        if (spec->ops[i].op->kind != FBY_OP_STAGE) {
            mark(plan, at, branch, &spec->ops[i]);
            continue;
        }
        at = stage_find(plan, at, &spec->ops[i], ordinal, spec->order != FBY_ORDER_SHARED);
        if (at < 0) return fby_fail(error, FBY_ENOMEM, "%s: no memory to plan it", spec->name);
        plan->stages[at].branches |= bit;
        ordinal += spec->ops[i].op->random;
    }
    fby_stage *last = &plan->stages[at];
    if (!last->ends && sink_make(&last->sink, &shape))
        return fby_fail(error, FBY_EINVAL,
                        "%s: pipeline.normalize: std is 0 or not finite; expected numbers above 0",
                        spec->name);
    last->ends |= bit;
    plan->last[branch] = at;
    plan->branches[branch] = branch_info(&shape);
    plan->branch_count = branch + 1;
    return FBY_OK;
}

/* The counts of `stages` stages, each shard's in cache lines of its own; false without memory. */
static bool shards_make(fby_plan *plan, size_t stages)
{
    size_t bytes = (stages * sizeof(fby_stage_count) + 63) / 64 * 64;
    plan->shards = aligned_alloc(64, FBY_PLAN_SHARDS * sizeof *plan->shards);
    uint8_t *counts = plan->shards ? aligned_alloc(64, FBY_PLAN_SHARDS * bytes) : NULL;
    if (!counts) {
        free(plan->shards);
        plan->shards = NULL;
        return false;
    }
    memset(counts, 0, FBY_PLAN_SHARDS * bytes);
    for (size_t i = 0; i < FBY_PLAN_SHARDS; i++)
        plan->shards[i] = (fby_plan_shard){.stages = (fby_stage_count *)(void *)(counts + i * bytes)};
    return true;
}

int fby_plan_create(fby_plan **out, const fby_spec *const *specs, uint32_t count, fby_digest fingerprint,
                    fby_error *error)
{
    *out = NULL;
    if (count < 1 || count > FBY_PLAN_BRANCHES)
        return fby_fail(error, FBY_EINVAL, "a plan of %u branches; expected 1 to %d", count,
                        FBY_PLAN_BRANCHES);
    size_t most = 1;
    for (uint32_t i = 0; i < count; i++) most += specs[i]->op_count;
    int status = FBY_OK;
    fby_plan *plan = calloc(1, sizeof *plan);
    if (plan) plan->holders = 1;
    if (plan) plan->stages = calloc(most, sizeof *plan->stages);
    if (!plan || !plan->stages || !shards_make(plan, most)) {
        status = fby_fail(error, FBY_ENOMEM, "%s: no memory to plan it", specs[0]->name);
        goto end;
    }
    plan->stages[0] = (fby_stage){.key = fingerprint, .parent = -1, .first = -1, .next = -1};
    plan->stage_count = 1;
    plan->made_ns = fby_plan_clock_ns(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < count && !status; i++) status = branch_add(plan, specs[i], i, error);
end:
    if (status) fby_plan_destroy(&plan);
    *out = plan;
    return status;
}

void fby_plan_destroy(fby_plan **plan)
{
    fby_plan *p = *plan;
    *plan = NULL;
    /* The last one sees what all others did to it: nothing, but for their own reads. */
    if (!p || __atomic_fetch_sub(&p->holders, 1, __ATOMIC_ACQ_REL) != 1) return;
    for (uint32_t i = 0; i < p->stage_count; i++) {
        free(p->stages[i].params);
        fby_cache_release(&p->stages[i].cache);
    }
    free(p->stages);
    if (p->shards) free(p->shards[0].stages);
    free(p->shards);
    free(p);
}

fby_plan *fby_plan_hold(const fby_plan *plan)
{
    fby_plan *held = (fby_plan *)plan;
    __atomic_fetch_add(&held->holders, 1, __ATOMIC_RELAXED); /* by one who holds it: it can't go meanwhile */
    return held;
}

fby_digest fby_plan_branch_key(const fby_plan *plan, uint32_t branch)
{
    return plan->stages[plan->last[branch]].key;
}

uint32_t fby_plan_branches(const fby_plan *plan)
{
    return plan->branch_count;
}

fby_branch_info fby_plan_branch(const fby_plan *plan, uint32_t branch)
{
    return plan->branches[branch];
}

int32_t fby_plan_stage_find(const fby_plan *plan, fby_digest key)
{
    for (uint32_t i = 0; i < plan->stage_count; i++)
        if (fby_digest_equal(plan->stages[i].key, key)) return (int32_t)i;
    return -1;
}

int32_t fby_plan_echo_stage(const fby_plan *plan, uint32_t branch)
{
    return plan->echo[branch];
}

void fby_plan_cache_attach(fby_plan *plan, uint32_t stage, fby_cache *cache, fby_cache_pack pack)
{
    fby_stage *at = &plan->stages[stage];
    at->cache_pack = pack;
    fby_cache *before = at->cache;
    at->cache = fby_cache_hold(cache);
    plan->caches = true;
    if (before) fby_cache_release(&before);
}

bool fby_plan_has_caches(const fby_plan *plan)
{
    return plan->caches;
}

uint32_t fby_plan_stages(const fby_plan *plan)
{
    return plan->stage_count;
}

void fby_plan_stage(const fby_plan *plan, uint32_t stage, fby_stage_info *out)
{
    const fby_stage *s = &plan->stages[stage];
    *out = (fby_stage_info){.key = s->key,
                            .parent = s->parent,
                            .op = s->op ? s->op->name : "source",
                            .branches = s->branches,
                            .ends = s->ends,
                            .random = s->op && s->op->random,
                            .cache_bytes = s->cache_bytes,
                            .cache_pack = s->cache_pack,
                            .echoes = s->echoes};
    memcpy(out->params, s->text, sizeof out->params);
}

void fby_plan_stage_cost(const fby_plan *plan, uint32_t stage, fby_stage_cost *out)
{
    /* Relaxed: figures for show, each true by itself. */
    uint64_t samples = 0, wall = 0, all_cpu = 0, all_wall = 0;
    for (uint32_t i = 0; i < FBY_PLAN_SHARDS; i++) {
        const fby_plan_shard *shard = &plan->shards[i];
        samples += __atomic_load_n(&shard->stages[stage].samples, __ATOMIC_RELAXED);
        wall += __atomic_load_n(&shard->stages[stage].wall_ns, __ATOMIC_RELAXED);
        all_cpu += __atomic_load_n(&shard->cpu_ns, __ATOMIC_RELAXED);
        all_wall += __atomic_load_n(&shard->wall_ns, __ATOMIC_RELAXED);
    }
    double part = all_wall ? (double)all_cpu / (double)all_wall : 0;
    *out = (fby_stage_cost){samples, (uint64_t)((double)wall * (part < 1 ? part : 1)), wall};
}

uint64_t fby_plan_age_ns(const fby_plan *plan)
{
    return fby_plan_clock_ns(CLOCK_MONOTONIC) - plan->made_ns;
}
