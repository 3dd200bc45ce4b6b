/* Plans: what is done to a sample, for whom, and what comes out.
 *
 * A plan is immutable, but for counts of what it cost, and counted itself; workers run it from many threads
 * at once, each with a scratch of its own. It has one branch per distinct output; equal prefixes (by stage
 * key) are run once. */
#ifndef FBY_DATAPLANE_PLAN_H
#define FBY_DATAPLANE_PLAN_H

#include "dataplane/cache/cache.h"
#include "dataplane/ops/picture.h"
#include "dataplane/spec/spec.h"

typedef struct fby_plan fby_plan;
typedef struct fby_scratch fby_scratch;

/* What a branch delivers. Every sample of it has this one shape (CPU batches need one). */
typedef struct fby_branch_info {
    uint64_t sample_bytes;
    uint32_t dtype, layout;        /* fby_dtype, fby_layout */
    uint32_t dimensions, shape[4]; /* outermost first: {channels, h, w} or {h, w, channels} */
} fby_branch_info;

enum { FBY_PLAN_BRANCHES = 64 };

/* One branch for each of 1 to FBY_PLAN_BRANCHES specs, in order (merging equal ones is the planner's
 * business). All specs are over the data set with `fingerprint`. From their first random op on, pipelines in
 * shared order merge with those in shared order, and fixed orders with fixed ones: the counters of their
 * draws are of two kinds. A pipeline whose samples don't come out in one shape is refused naming the op. */
int fby_plan_create(fby_plan **out, const fby_spec *const *specs, uint32_t count, fby_digest fingerprint,
                    fby_error *error);
/* One more holder, each of which calls fby_plan_destroy: the last frees it. Any thread. */
fby_plan *fby_plan_hold(const fby_plan *plan);
void fby_plan_destroy(fby_plan **plan);
/* What identifies a branch's output: the key of its last stage. */
fby_digest fby_plan_branch_key(const fby_plan *plan, uint32_t branch);
uint32_t fby_plan_branches(const fby_plan *plan);
fby_branch_info fby_plan_branch(const fby_plan *plan, uint32_t branch);

/* Stages, for `forebay plan` and status. */
typedef struct fby_stage_info {
    fby_digest key;
    int32_t parent;    /* index of the stage above; -1 for the source */
    const char *op;    /* "source" for the data set itself; borrowed */
    char params[200];  /* as in a spec, cut where longer; "" for the source */
    uint64_t branches; /* bit b: branch b passes here */
    uint64_t ends;     /* and ends here */
    bool random;
    uint64_t cache_bytes; /* what the largest cache at this stage may take; 0: there is none */
    fby_cache_pack cache_pack;
    uint64_t echoes; /* bit b: branch b echoes what this stage makes */
} fby_stage_info;
uint32_t fby_plan_stages(const fby_plan *plan);
void fby_plan_stage(const fby_plan *plan, uint32_t stage, fby_stage_info *out);

/* The stage of this key; -1: there is none. */
int32_t fby_plan_stage_find(const fby_plan *plan, fby_digest key);
/* The stage at which a branch echoes, as the spec that it was made of says; -1: it doesn't. */
int32_t fby_plan_echo_stage(const fby_plan *plan, uint32_t branch);
/* Has a stage keep what it makes in `cache`, which the plan holds. Before the plan is run. */
void fby_plan_cache_attach(fby_plan *plan, uint32_t stage, fby_cache *cache, fby_cache_pack pack);

/* Whether any stage has a cache. */
bool fby_plan_has_caches(const fby_plan *plan);

/* What a stage has cost since the plan was made. Work is lazy and fused, so it counts where it was asked for:
 * decoding at `decode`, whichever op needed the pixels; a resize at the op that set it, with its conversion
 * where it goes straight into the batch. */
typedef struct fby_stage_cost {
    uint64_t samples, cpu_ns;
    uint64_t wall_ns; /* what passed meanwhile, other programs' turns included */
} fby_stage_cost;
/* Any thread, also while others run the plan: then a sample under way counts in some stages already. */
void fby_plan_stage_cost(const fby_plan *plan, uint32_t stage, fby_stage_cost *out);
uint64_t fby_plan_age_ns(const fby_plan *plan);

/* A worker's private memory: decoder, resampler, buffers; kept from sample to sample, outsized buffers given
 * back. */
int fby_scratch_create(fby_scratch **out);
void fby_scratch_destroy(fby_scratch **scratch);
size_t fby_scratch_bytes(const fby_scratch *scratch);
/* Since creation: CPU nanoseconds by part, which `run` calls "where the time went", and what was worked. */
typedef struct fby_scratch_times {
    uint64_t decode_ns, transform_ns, samples;
    fby_jpeg_counts jpegs;
} fby_scratch_times;
void fby_scratch_get_times(const fby_scratch *scratch, fby_scratch_times *out);

/* One sample through the tree. */
typedef struct fby_work {
    const uint8_t *bytes; /* encoded; 64 bytes past `length` readable */
    size_t length;
    uint64_t id;
    uint64_t branches; /* bit b: branch b wants it */
    uint64_t turn;     /* counter of the random ops of branches in shared order: the visit */
    uint64_t epoch;    /* and of those in a fixed order */
    /* An item of an echo: `repeat` counts its emissions, from 0 on, for the random ops below the stage that
     * echoes. What that stage makes is kept in `items`, and taken from there where it is there. */
    uint32_t repeat;
    uint32_t echo_count;
    const int32_t *echo_stages;  /* as many; the first is that of the repeat */
    fby_kept_item *const *items; /* as many; NULL: nothing is to be kept */
    void *const *out;            /* out[b]: where branch b's sample goes, sample_bytes of it */
    /* Asked once everything is decoded, before the first byte is written to any `out`; false: nothing may be
     * written any more, and run returns FBY_REASON_TIMEOUT. NULL: always true. */
    bool (*commit)(void *user);
    void *user;
} fby_work;

typedef struct fby_failure {
    fby_reason reason;
    const char *op;             /* borrowed from the plan: the op at which it happened */
    char text[FBY_DECODE_TEXT]; /* what the library said, or "" */
} fby_failure;

/* FBY_REASON_NONE, or why the sample is bad for all its branches; then `failure` says more. Depends on
 * nothing but the plan and the work: not on thread, time or what ran before. */
fby_reason fby_plan_run(const fby_plan *plan, fby_scratch *scratch, const fby_work *work,
                        fby_failure *failure);

/* Whether the run would need the encoded bytes: false where all that is wanted is kept. Once it says no, it
 * stays so as long as the plan and the work's items are held. */
bool fby_plan_reads(const fby_plan *plan, const fby_work *work);

/* The geometry that a branch's ops draw for a sample whose picture is w x h, without its pixels: what a tool
 * needs to do the same with another library. */
typedef struct fby_trace {
    uint32_t count;
    fby_trace_step steps[FBY_SPEC_OPS]; /* one for each op of the branch */
} fby_trace;
/* FBY_EINVAL where there is no such branch, or an op can't take a picture of that size. */
int fby_plan_trace(const fby_plan *plan, uint32_t branch, uint64_t id, uint64_t turn, uint32_t repeat,
                   uint32_t w, uint32_t h, fby_trace *out);

#endif
