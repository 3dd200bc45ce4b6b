/* The table of ops. Adding an op is adding one file, dataplane/ops/op_NAME.c, which defines `const fby_op
 * fby_op_NAME`; the build collects the files into the table. */
#ifndef FBY_DATAPLANE_OP_H
#define FBY_DATAPLANE_OP_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/decode.h"
#include "kernels/dtype.h"
#include "kernels/philox.h"

/* What is known of a sample before it is read: the planner walks this through the pipeline. */
typedef struct fby_shape {
    enum { FBY_STAGE_ENCODED, FBY_STAGE_PICTURE, FBY_STAGE_TENSOR } stage;
    uint32_t w, h; /* 0: varies from sample to sample */
    uint32_t channels;
    bool random; /* an op above draws: the result isn't the sample's own any more */
    bool echoed; /* an echo stands above */
    fby_dtype dtype;
    fby_layout layout;
    bool normalized;
    float mean[3], std[3]; /* where normalized */
} fby_shape;

typedef enum fby_param_type {
    FBY_PARAM_BOOL,    /* bool */
    FBY_PARAM_INT,     /* int64_t, with range */
    FBY_PARAM_REAL,    /* double, with range; "3/4" is allowed */
    FBY_PARAM_PAIR,    /* double[2]: [low, high] */
    FBY_PARAM_SIZE,    /* uint32_t[2]: {w, h}, written as s for both, or [h, w] */
    FBY_PARAM_SHORTER, /* uint32_t[2]: {w, h}, written as [h, w]; or {0, s}, written as s: the shorter side */
    FBY_PARAM_CHOICE,  /* int32_t: index into choices */
    FBY_PARAM_TRIPLE,  /* double[3], written as list; or as v or [v], for all of them */
    FBY_PARAM_FACTOR,  /* double[2]: [low, high]; or f, for [max(0, 1 - f), 1 + f] */
    FBY_PARAM_SHIFT,   /* double[2]: [low, high]; or s, for [-s, s] */
    FBY_PARAM_SIDES,   /* uint32_t[4]: {left, top, right, bottom}, written as s for all of them,
                          [left and right, top and bottom], or [left, top, right, bottom] */
    FBY_PARAM_LEVELS, /* uint32_t[3]: {red, green, blue}, 0 to 255, written as v for all of them or as list */
    FBY_PARAM_BYTES,  /* uint64_t, with range; written as 40GiB */
    FBY_PARAM_TIMES,  /* double, with range; or `auto`, for 0 */
    FBY_PARAM_SEED    /* uint64_t; not given: the task's augment_seed */
} fby_param_type;

typedef struct fby_param {
    const char *name;
    fby_param_type type;
    size_t offset;              /* in the op's parameter structure */
    const char *fallback;       /* the default as it would be written in a spec; NULL: required */
    double low, high;           /* of numbers and pixels: inclusive range */
    const char *const *choices; /* CHOICE: NULL-terminated */
    const char *about;          /* one line, for the reference page */
    /* CHOICE: pairs of what others call a choice and its name here, NULL-terminated, for hints; or NULL. */
    const char *const (*foreign)[2];
} fby_param;

typedef struct fby_picture fby_picture; /* dataplane/ops/picture.h */

/* What an op is to the graph. Marks change no pixel: they say what is to be kept of what reaches them, and
 * tasks share stages whether they have the same marks or not. */
typedef enum fby_op_kind {
    FBY_OP_STAGE,
    FBY_OP_CACHE, /* keeps results for later epochs: fby_cache_params */
    FBY_OP_ECHO   /* emits results several times: fby_echo_params */
} fby_op_kind;

typedef struct fby_cache_params {
    uint64_t memory; /* bytes */
    int32_t pack;    /* fby_cache_pack */
} fby_cache_params;

/* How pixels are kept: as they are, or by our lossless format's levels (forebay/fbl.h). */
typedef enum fby_cache_pack { FBY_CACHE_PACK_NONE, FBY_CACHE_PACK_FAST, FBY_CACHE_PACK_SMALL } fby_cache_pack;

enum { FBY_ECHO_MOST = 64 }; /* times that a sample is emitted */

typedef struct fby_echo_params {
    double factor;  /* times that a sample is emitted, on average; 0: auto */
    double max;     /* of auto */
    int64_t buffer; /* samples */
} fby_echo_params;

typedef struct fby_op {
    const char *name;
    fby_op_kind kind;
    uint32_t version; /* raised when the op's result changes; part of the stage key */
    bool random;
    const char *about; /* one line, for the reference page */
    const fby_param *params;
    uint32_t param_count;
    size_t params_bytes;
    /* A lone value in place of a map ("normalize: imagenet", "resize: 256") sets this parameter or preset;
     * may be NULL. */
    const char *shorthand;
    /* Named presets for the shorthand: name, then a flow map ("imagenet", "{mean: […], std: […]}"), …, NULL;
     * may be NULL. */
    const char *const *presets;
    /* Checks what the ranges can't say. 0, or FBY_EINVAL with what is wrong and what was expected. May be
     * NULL. */
    int (*check)(const void *params, fby_error *error);
    /* Updates `shape`, or refuses (an op that can't stand here), saying why. */
    int (*infer)(const void *params, fby_shape *shape, fby_error *error);
    /* Applies the op to a picture. `random` is started for this op and sample; NULL for ops that aren't
     * random. NULL where infer() says it all: how finished pixels leave, and marks. */
    fby_reason (*apply)(const void *params, fby_picture *picture, fby_random *random);
} fby_op;

/* The table, sorted by name. */
extern const fby_op *const fby_ops[];
extern const uint32_t fby_op_count;
const fby_op *fby_op_find(const char *name); /* NULL where there is none */

#endif
