/* A task's spec: YAML text to a checked structure, every default filled in.
 *
 * Whatever is wrong is refused with one message: name of the spec, line, key, what was expected, and the
 * nearest valid name. A parsed spec is immutable and owns all that it points to. */
#ifndef FBY_DATAPLANE_SPEC_H
#define FBY_DATAPLANE_SPEC_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/ops/op.h"
#include "io/dataset.h"

typedef enum fby_order { FBY_ORDER_SHARED, FBY_ORDER_STRICT, FBY_ORDER_SEQUENTIAL } fby_order;
enum { FBY_ORDERS = 3 };
extern const char *const fby_order_names[FBY_ORDERS];
typedef enum fby_on_error { FBY_ON_ERROR_FAIL, FBY_ON_ERROR_SKIP } fby_on_error;

/* An op as a pipeline uses it: its parameters parsed and checked. A pipeline without `to` gets one added:
 * f32, chw after normalize, else u8, chw. */
typedef struct fby_op_use {
    const fby_op *op;
    void *params; /* op->params_bytes, owned by the spec */
    uint32_t line;
} fby_op_use;

/* Which of the data set's samples a task trains on. What it means for a data set: dataplane/server/split.h.
 */
typedef enum fby_split_kind {
    FBY_SPLIT_ALL,
    FBY_SPLIT_PART,
    FBY_SPLIT_IDS,
    FBY_SPLIT_CLASSES
} fby_split_kind;

typedef struct fby_split_class {
    char *name; /* or a label, in digits */
    uint32_t line;
} fby_split_class;

typedef struct fby_split {
    fby_split_kind kind;
    uint32_t line;
    double low, high; /* part: 0 <= low < high <= 1 */
    uint64_t seed;    /* part */
    char *ids_path;   /* absolute, as dataset_path */
    fby_split_class *classes;
    uint32_t class_count;
} fby_split;

enum { FBY_SPEC_BYTES = 64 * 1024, FBY_SPEC_OPS = 64, FBY_SPLIT_CLASSES_MOST = 2048 };

/* How a task emits samples more than once. */
typedef struct fby_spec_echo {
    enum {
        FBY_ECHO_NONE,
        FBY_ECHO_SAMPLES, /* at a point of its pipeline */
        FBY_ECHO_BATCHES  /* whole batches, as they are */
    } kind;
    double factor; /* on average; 0: auto, at most `max` times */
    double max;
    uint32_t buffer; /* samples, or batches */
    uint32_t line;
} fby_spec_echo;

/* A window in batches, unless a spec says how many: one held, one that waits, one under way, and one more.
 * With three, tasks that share their draws, of which one was once held up, would draw by turns from then on:
 * when one needs a batch the others have no room for it. */
enum { FBY_SPEC_WINDOW = 4 };

typedef struct fby_spec {
    char *name; /* file name or "spec", for messages */
    fby_dataset_kind dataset_kind;
    char *dataset_path; /* absolute: resolved against the base folder */
    bool allow_empty;
    uint32_t dataset_line;
    fby_split split;
    fby_order order;
    uint64_t seed, augment_seed;
    uint64_t epochs;          /* 0: unlimited */
    uint64_t steps_per_epoch; /* batches, of an echo that is auto; 0: unset */
    uint32_t steps_line;
    fby_op_use *ops;
    uint32_t op_count;
    fby_spec_echo echo;
    uint32_t batch_size;
    bool drop_last;
    uint32_t ranks;
    uint32_t window; /* batches; FBY_SPEC_WINDOW unless told, and more with an echo */
    fby_on_error on_error;
    double max_errors; /* < 1: part of an epoch; >= 1: a count */
    uint64_t sample_timeout_ns;
} fby_spec;

/* Parses `text` (FBY_SPEC_BYTES at most). `base` (absolute) is what relative paths are relative to. */
int fby_spec_parse(fby_spec **out, const char *name, const char *text, size_t length, const char *base,
                   fby_error *error);
/* Reads a file and parses it; base is the folder that the file stands in. */
int fby_spec_load(fby_spec **out, const char *path, fby_error *error);
void fby_spec_free(fby_spec **spec);

/* Whether an epoch of `part` fresh samples, a rank's, can have as many batches as steps_per_epoch says, where
 * it says any: it takes so many at least to have all of them, and no more than there are where each comes as
 * often as it may. FBY_EINVAL names both. */
int fby_spec_check_steps(const fby_spec *spec, uint64_t part, fby_error *error);
/* What such an epoch comes to in samples, fresh and again, or 0: all its batches are full, but for the last
 * one where each sample comes as often as it may and they don't fill it. */
uint64_t fby_spec_steps_samples(const fby_spec *spec, uint64_t part);

/* The spec with every default written out, as YAML; malloc'd, NULL without memory. Parsing it again gives an
 * equal spec (where its paths are UTF-8, as YAML must be). */
char *fby_spec_print(const fby_spec *spec);

/* What comes out of the pipeline: walks its ops' infer(). Refuses one whose samples don't come out in one
 * shape. A parsed spec always passes. */
int fby_spec_infer(const fby_spec *spec, fby_shape *shape, fby_error *error);

/* Every key that a spec may have at its top, in the order of the reference page; fby_spec_key_count of them.
 */
extern const char *const fby_spec_keys[];
extern const uint32_t fby_spec_key_count;

#endif
