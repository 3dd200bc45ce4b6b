#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/names/names.h"
#include "dataplane/spec/params.h"
#include "dataplane/spec/spec.h"
#include "dataplane/spec/value.h"

enum {
    QUOTED = 80,
    KEY_TEXT = 96,
    BATCH_MOST = 4096,
    RANKS_MOST = 1024,
    WINDOW_MOST = 1024,
    BATCHES_ECHOED_MOST = 1024
};

/* What a parse knows: the spec it fills, and the pipeline's node, which waits for augment_seed. */
typedef struct parse {
    fby_spec *spec;
    fby_spec_place place;
    const char *base;
    const fby_yaml_node *pipeline;
    bool dataset_given, window_given;
} parse;

typedef int key_parser(parse *with, const fby_yaml_node *node);

const char *const fby_spec_keys[] = {
    "dataset",  "split", "order", "seed",   "augment_seed", "epochs",     "steps_per_epoch",
    "pipeline", "batch", "ranks", "window", "on_error",     "max_errors", "sample_timeout"};
const uint32_t fby_spec_key_count = sizeof fby_spec_keys / sizeof *fby_spec_keys;

static int refuse_value(const parse *with, const fby_yaml_node *node, const char *key, const char *expected)
{
    char quoted[QUOTED];
    return fby_spec_refuse(&with->place, node->line, key, "%s; expected %s",
                           fby_yaml_describe(node, quoted, sizeof quoted), expected);
}

/* `names` and what is near to `word`, after "unknown …". */
static int refuse_name(const parse *with, uint32_t line, const char *key, const char *what, const char *word,
                       const char *const *names, size_t count)
{
    char list[500] = "", quoted[QUOTED];
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s",
                 i == 0           ? ""
                 : i + 1 == count ? " or "
                                  : ", ",
                 names[i]);
    }
    const char *nearest = fby_name_nearest(word, names, count);
    return fby_spec_refuse(&with->place, line, key, "%s %s; expected %s%s%s%s", what,
                           fby_spec_quote(word, quoted, sizeof quoted), list,
                           nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static int refuse_later(const parse *with, uint32_t line, const char *key)
{
    return fby_spec_refuse(&with->place, line, key, "not in this version; expected a spec without it");
}

static int parse_whole(const parse *with, const fby_yaml_node *node, const char *key, uint64_t low,
                       uint64_t high, uint64_t *out)
{
    if (node->kind == FBY_YAML_SCALAR && fby_value_unsigned(node->text, out) && *out >= low && *out <= high)
        return FBY_OK;
    char expected[96];
    snprintf(expected, sizeof expected, "a whole number, %" PRIu64 " to %" PRIu64, low, high);
    return refuse_value(with, node, key, expected);
}

static int parse_small(const parse *with, const fby_yaml_node *node, const char *key, uint32_t high,
                       uint32_t *out)
{
    uint64_t value;
    int status = parse_whole(with, node, key, 1, high, &value);
    if (!status) *out = (uint32_t)value;
    return status;
}

static int parse_bool(const parse *with, const fby_yaml_node *node, const char *key, bool *out)
{
    if (node->kind == FBY_YAML_SCALAR && fby_value_bool(node->text, out)) return FBY_OK;
    return refuse_value(with, node, key, "true or false");
}

static int parse_name(const parse *with, const fby_yaml_node *node, const char *key, const char *const *names,
                      uint32_t count, uint32_t *out)
{
    if (node->kind != FBY_YAML_SCALAR || fby_yaml_is_null(node)) {
        char expected[96] = "";
        for (uint32_t i = 0; i < count; i++) {
            size_t used = strlen(expected);
            snprintf(expected + used, sizeof expected - used, "%s%s",
                     i == 0           ? ""
                     : i + 1 == count ? " or "
                                      : ", ",
                     names[i]);
        }
        return refuse_value(with, node, key, expected);
    }
    for (*out = 0; *out < count; ++*out)
        if (!strcmp(node->text, names[*out])) return FBY_OK;
    return refuse_name(with, node->line, key, "unknown value", node->text, names, count);
}

static int no_memory(const parse *with)
{
    return fby_fail(with->place.error, FBY_ENOMEM, "%s: no memory to parse it", with->place.name);
}

/* A path, made absolute. */
static int set_path(const parse *with, const fby_yaml_node *node, const char *key, char **out)
{
    if (node->kind != FBY_YAML_SCALAR || fby_yaml_is_null(node) || !*node->text)
        return refuse_value(with, node, key, "a path");
    size_t base = *node->text == '/' ? 0 : strlen(with->base), length = strlen(node->text);
    if (base + length + 2 > PATH_MAX)
        return fby_spec_refuse(&with->place, node->line, key, "a path of %zu bytes; expected at most %d",
                               base + length, PATH_MAX - 2);
    char *path = *out = malloc(base + length + 2);
    if (!path) return no_memory(with);
    if (base)
        snprintf(path, base + length + 2, "%s%s%s", with->base, with->base[base - 1] == '/' ? "" : "/",
                 node->text);
    else
        memcpy(path, node->text, length + 1);
    return FBY_OK;
}

static int parse_dataset(parse *with, const fby_yaml_node *node)
{
    static const char *const names[] = {"folder", "list", "allow_empty"};
    fby_spec *spec = with->spec;
    with->dataset_given = true;
    spec->dataset_line = node->line;
    if (node->kind != FBY_YAML_MAP) {
        if (node->kind == FBY_YAML_LIST || fby_yaml_is_null(node))
            return refuse_value(with, node, "dataset", "a folder's path, {folder: path} or {list: path}");
        return set_path(with, node, "dataset", &spec->dataset_path);
    }
    for (const fby_yaml_node *entry = node->first; entry; entry = entry->next) {
        int status;
        bool list = !strcmp(entry->key, "list");
        if (list || !strcmp(entry->key, "folder")) {
            if (spec->dataset_path)
                return fby_spec_refuse(&with->place, entry->line, "dataset",
                                       "folder and list together; expected one of them");
            spec->dataset_kind = list ? FBY_DATASET_LIST : FBY_DATASET_FOLDER;
            status = set_path(with, entry, list ? "dataset.list" : "dataset.folder", &spec->dataset_path);
        } else if (!strcmp(entry->key, "allow_empty")) {
            status = parse_bool(with, entry, "dataset.allow_empty", &spec->allow_empty);
        } else if (!strcmp(entry->key, "tar")) {
            status = refuse_later(with, entry->line, "dataset.tar");
        } else {
            status = refuse_name(with, entry->line, "dataset", "unknown key", entry->key, names, 3);
        }
        if (status) return status;
    }
    if (spec->dataset_path) return FBY_OK;
    return fby_spec_refuse(&with->place, node->line, "dataset",
                           "neither folder nor list; expected one of them");
}

/* 0.8, or [0.8, 1]. */
static int parse_part(const parse *with, const fby_yaml_node *node, fby_split *split)
{
    static const char expected[] =
        "a part above 0 up to 1, such as 0.8, or [low, high], 0 <= low < high <= 1";
    const fby_yaml_node *high = node;
    split->low = 0;
    if (node->kind == FBY_YAML_LIST && node->count == 2) {
        const fby_yaml_node *low = node->first;
        high = low->next;
        if (low->kind != FBY_YAML_SCALAR || !fby_value_real(low->text, &split->low) || split->low < 0)
            return refuse_value(with, low, "split.part", expected);
        split->low += 0.0; /* -0 is 0 */
    }
    if (high->kind != FBY_YAML_SCALAR || !fby_value_real(high->text, &split->high) || split->high <= 0 ||
        split->high > 1)
        return refuse_value(with, high, "split.part", expected);
    if (split->low < split->high) return FBY_OK;
    return fby_spec_refuse(&with->place, node->line, "split.part",
                           "the first isn't below the second; expected %s", expected);
}

static int parse_classes(const parse *with, const fby_yaml_node *node, fby_split *split)
{
    char quoted[QUOTED];
    if (node->kind != FBY_YAML_LIST || !node->count)
        return node->kind == FBY_YAML_LIST
                   ? fby_spec_refuse(&with->place, node->line, "split.classes",
                                     "no classes; expected one at least")
                   : refuse_value(with, node, "split.classes", "a list of classes, such as [cat, dog]");
    if (node->count > FBY_SPLIT_CLASSES_MOST)
        return fby_spec_refuse(&with->place, node->line, "split.classes",
                               "%u classes; expected at most %d: a file of ids has no such limit",
                               node->count, FBY_SPLIT_CLASSES_MOST);
    split->classes = calloc(node->count, sizeof *split->classes);
    if (!split->classes) return no_memory(with);
    for (const fby_yaml_node *entry = node->first; entry; entry = entry->next) {
        if (entry->kind != FBY_YAML_SCALAR || fby_yaml_is_null(entry) || !*entry->text)
            return refuse_value(with, entry, "split.classes", "a class's name, or its label");
        for (uint32_t i = 0; i < split->class_count; i++)
            if (!strcmp(split->classes[i].name, entry->text))
                return fby_spec_refuse(&with->place, entry->line, "split.classes",
                                       "%s is given twice, first in line %u; expected it once",
                                       fby_spec_quote(entry->text, quoted, sizeof quoted),
                                       split->classes[i].line);
        char *name = strdup(entry->text);
        if (!name) return no_memory(with);
        split->classes[split->class_count++] = (fby_split_class){name, entry->line};
    }
    return FBY_OK;
}

static int parse_split(parse *with, const fby_yaml_node *node)
{
    /* In the order of fby_split_kind; the last belongs to part. */
    static const char *const names[] = {"all", "part", "ids", "classes", "seed"};
    fby_split *split = &with->spec->split;
    const fby_yaml_node *seed = NULL;
    split->line = node->line;
    if (node->kind == FBY_YAML_SCALAR && !strcmp(node->text, "all")) return FBY_OK;
    if (node->kind != FBY_YAML_MAP)
        return refuse_value(with, node, "split",
                            "all, {part: 0.8, seed: 0}, {ids: path} or {classes: [name, ...]}");
    for (const fby_yaml_node *entry = node->first; entry; entry = entry->next) {
        int status;
        if (!strcmp(entry->key, "seed")) {
            seed = entry;
            status = parse_whole(with, entry, "split.seed", 0, UINT64_MAX, &split->seed);
            if (status) return status;
            continue;
        }
        fby_split_kind kind = FBY_SPLIT_PART;
        while (kind <= FBY_SPLIT_CLASSES && strcmp(names[kind], entry->key)) kind++;
        if (kind > FBY_SPLIT_CLASSES)
            return refuse_name(with, entry->line, "split", "unknown key", entry->key, names + FBY_SPLIT_PART,
                               4);
        if (split->kind)
            return fby_spec_refuse(&with->place, entry->line, "split",
                                   "%s and %s together; expected one of part, ids and classes",
                                   names[split->kind], names[kind]);
        split->kind = kind;
        status = kind == FBY_SPLIT_PART  ? parse_part(with, entry, split)
                 : kind == FBY_SPLIT_IDS ? set_path(with, entry, "split.ids", &split->ids_path)
                                         : parse_classes(with, entry, split);
        if (status) return status;
    }
    if (!split->kind)
        return fby_spec_refuse(&with->place, node->line, "split",
                               "none of part, ids and classes; expected one of them");
    if (seed && split->kind != FBY_SPLIT_PART)
        return fby_spec_refuse(&with->place, seed->line, "split.seed",
                               "%s needs no seed; expected it with part only", names[split->kind]);
    return FBY_OK;
}

/* What is printed must be a spec again, however many names there are. */
static int check_printed_size(const parse *with)
{
    const fby_split *split = &with->spec->split;
    if (split->kind != FBY_SPLIT_CLASSES) return FBY_OK;
    char *text = fby_spec_print(with->spec);
    if (!text) return no_memory(with);
    size_t length = strlen(text);
    free(text);
    if (length <= FBY_SPEC_BYTES) return FBY_OK;
    return fby_spec_refuse(
        &with->place, split->line, "split.classes",
        "with every default and name written out, the spec has %zu bytes; expected at most %d: a "
        "file of ids has no such limit",
        length, FBY_SPEC_BYTES);
}

const char *const fby_order_names[FBY_ORDERS] = {"shared", "strict", "sequential"};

static int parse_order(parse *with, const fby_yaml_node *node)
{
    uint32_t order = FBY_ORDER_SHARED;
    int status = parse_name(with, node, "order", fby_order_names, FBY_ORDERS, &order);
    with->spec->order = (fby_order)order;
    return status;
}

static int parse_seed(parse *with, const fby_yaml_node *node)
{
    return parse_whole(with, node, "seed", 0, UINT64_MAX, &with->spec->seed);
}

static int parse_augment_seed(parse *with, const fby_yaml_node *node)
{
    return parse_whole(with, node, "augment_seed", 0, UINT64_MAX, &with->spec->augment_seed);
}

/* A number of at least 1, or the word for none. */
static int parse_or(const parse *with, const fby_yaml_node *node, const char *key, const char *none,
                    uint64_t *out)
{
    *out = 0;
    if (node->kind == FBY_YAML_SCALAR && !strcmp(node->text, none)) return FBY_OK;
    if (node->kind == FBY_YAML_SCALAR && fby_value_unsigned(node->text, out) && *out >= 1 &&
        *out <= INT64_MAX)
        return FBY_OK;
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number of at least 1, or %s", none);
    return refuse_value(with, node, key, expected);
}

static int parse_epochs(parse *with, const fby_yaml_node *node)
{
    return parse_or(with, node, "epochs", "unlimited", &with->spec->epochs);
}

static int parse_steps_per_epoch(parse *with, const fby_yaml_node *node)
{
    with->spec->steps_line = node->line;
    return parse_or(with, node, "steps_per_epoch", "unset", &with->spec->steps_per_epoch);
}

static int remember_pipeline(parse *with, const fby_yaml_node *node)
{
    with->pipeline = node;
    return FBY_OK;
}

/* Whole batches once more: parameters as of an op, in `batch`. */
static int parse_batch_echo(parse *with, const fby_yaml_node *node)
{
    static const fby_param list[] = {
        {"factor", FBY_PARAM_REAL, offsetof(fby_echo_params, factor), NULL, 1, FBY_ECHO_MOST, NULL,
         "how many times each batch is delivered, on average"},
        {"buffer", FBY_PARAM_INT, offsetof(fby_echo_params, buffer), "8", 1, BATCHES_ECHOED_MOST, NULL,
         "batches that wait to be delivered again, which is at random from among them"}};
    static const fby_op echo = {.name = "echo",
                                .params = list,
                                .param_count = sizeof list / sizeof *list,
                                .params_bytes = sizeof(fby_echo_params),
                                .shorthand = "factor"};
    fby_echo_params params = {0};
    int status = fby_params_parse(&echo, node, node->line, "batch.echo", 0, &with->place, &params);
    with->spec->echo = (fby_spec_echo){.kind = FBY_ECHO_BATCHES,
                                       .factor = params.factor,
                                       .max = params.factor,
                                       .buffer = (uint32_t)params.buffer,
                                       .line = node->line};
    return status;
}

static int parse_batch(parse *with, const fby_yaml_node *node)
{
    static const char *const names[] = {"size", "drop_last", "echo"};
    if (node->kind == FBY_YAML_SCALAR && !fby_yaml_is_null(node))
        return parse_small(with, node, "batch", BATCH_MOST, &with->spec->batch_size);
    if (node->kind != FBY_YAML_MAP)
        return refuse_value(with, node, "batch", "a size, or {size: 64, drop_last: false}");
    for (const fby_yaml_node *entry = node->first; entry; entry = entry->next) {
        int status;
        if (!strcmp(entry->key, "size"))
            status = parse_small(with, entry, "batch.size", BATCH_MOST, &with->spec->batch_size);
        else if (!strcmp(entry->key, "drop_last"))
            status = parse_bool(with, entry, "batch.drop_last", &with->spec->drop_last);
        else if (!strcmp(entry->key, "echo"))
            status = parse_batch_echo(with, entry);
        else
            status = refuse_name(with, entry->line, "batch", "unknown key", entry->key, names, 3);
        if (status) return status;
    }
    return FBY_OK;
}

static int parse_ranks(parse *with, const fby_yaml_node *node)
{
    return parse_small(with, node, "ranks", RANKS_MOST, &with->spec->ranks);
}

static int parse_window(parse *with, const fby_yaml_node *node)
{
    with->window_given = true;
    return parse_small(with, node, "window", WINDOW_MOST, &with->spec->window);
}

static int parse_on_error(parse *with, const fby_yaml_node *node)
{
    static const char *const names[] = {"fail", "skip"};
    uint32_t action = FBY_ON_ERROR_FAIL;
    int status = parse_name(with, node, "on_error", names, 2, &action);
    with->spec->on_error = (fby_on_error)action;
    return status;
}

static int parse_max_errors(parse *with, const fby_yaml_node *node)
{
    double value;
    bool whole = node->kind == FBY_YAML_SCALAR && fby_value_real(node->text, &value);
    if (whole && value >= 0 &&
        (value < 1 || (value <= 9007199254740992.0 && value == (double)(uint64_t)value))) {
        with->spec->max_errors = value;
        return FBY_OK;
    }
    return refuse_value(with, node, "max_errors",
                        "a part of an epoch from 0 to below 1, or a whole count from 1 on");
}

static int parse_sample_timeout(parse *with, const fby_yaml_node *node)
{
    uint64_t ns;
    if (node->kind == FBY_YAML_SCALAR && fby_value_duration(node->text, &ns) && ns >= 1000000u &&
        ns <= UINT64_C(86400000000000)) {
        with->spec->sample_timeout_ns = ns;
        return FBY_OK;
    }
    return refuse_value(with, node, "sample_timeout", "a duration from 1ms to 24h, such as 500ms, 30s or 2m");
}

/* In the order of fby_spec_keys. */
static key_parser *const parsers[] = {
    parse_dataset, parse_split,           parse_order,       parse_seed,          parse_augment_seed,
    parse_epochs,  parse_steps_per_epoch, remember_pipeline, parse_batch,         parse_ranks,
    parse_window,  parse_on_error,        parse_max_errors,  parse_sample_timeout};

static bool is_later(const char *name)
{
    static const char *const later[] = {"tar", "device"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (!strcmp(name, later[i])) return true;
    return false;
}

static int add_op(parse *with, const char *name, const fby_yaml_node *value, uint32_t line)
{
    fby_spec *spec = with->spec;
    char key[KEY_TEXT];
    snprintf(key, sizeof key, "pipeline.%.64s", name);
    if (is_later(name)) return refuse_later(with, line, key);
    const fby_op *op = fby_op_find(name);
    if (!op) {
        const char *names[FBY_SPEC_OPS] = {NULL};
        uint32_t count = fby_op_count < FBY_SPEC_OPS ? fby_op_count : FBY_SPEC_OPS;
        for (uint32_t i = 0; i < count; i++) names[i] = fby_ops[i]->name;
        return refuse_name(with, line, "pipeline", "unknown op", name, names, count);
    }
    fby_op_use *use = &spec->ops[spec->op_count];
    *use = (fby_op_use){.op = op, .params = calloc(1, op->params_bytes ? op->params_bytes : 1), .line = line};
    if (!use->params) return no_memory(with);
    spec->op_count++;
    return fby_params_parse(op, value, line, key, spec->augment_seed, &with->place, use->params);
}

static int walk(const fby_spec *spec, const fby_op_use *use, fby_shape *shape, fby_error *error)
{
    fby_spec_place place = {spec->name, error};
    fby_error why = FBY_ERROR_INIT;
    char key[KEY_TEXT];
    if (!use->op->infer(use->params, shape, &why)) {
        shape->random = shape->random || use->op->random;
        return FBY_OK;
    }
    snprintf(key, sizeof key, "pipeline.%s", use->op->name);
    return fby_spec_refuse(&place, use->line, key, "%s", why.text);
}

/* Ends a pipeline that has no `to`: normalized samples as f32, others as u8. */
static int add_to(parse *with)
{
    fby_spec *spec = with->spec;
    fby_shape shape = {0};
    for (uint32_t i = 0; i < spec->op_count; i++) {
        int status = walk(spec, &spec->ops[i], &shape, with->place.error);
        if (status) return status;
    }
    uint32_t line = spec->ops[spec->op_count - 1].line;
    if (shape.stage == FBY_STAGE_TENSOR) return FBY_OK;
    if (shape.stage == FBY_STAGE_ENCODED)
        return fby_spec_refuse(&with->place, line, "pipeline",
                               "the samples stay encoded; expected decode first");
    fby_yaml_node dtype = {
        .kind = FBY_YAML_SCALAR, .plain = true, .line = line, .key = "dtype", .text = "u8"};
    fby_yaml_node map = {.kind = FBY_YAML_MAP, .line = line, .first = &dtype, .count = 1};
    return add_op(with, "to", shape.normalized ? NULL : &map, line);
}

static int parse_pipeline(parse *with)
{
    const fby_yaml_node *list = with->pipeline;
    if (!list)
        return fby_spec_refuse(
            &with->place, 1, "pipeline",
            "missing; expected a list of ops, such as [decode, resize: [224, 224], normalize: imagenet]");
    if (list->kind != FBY_YAML_LIST || !list->count)
        return list->kind == FBY_YAML_LIST
                   ? fby_spec_refuse(&with->place, list->line, "pipeline",
                                     "no ops; expected a list that begins with decode")
                   : refuse_value(with, list, "pipeline", "a list of ops that begins with decode");
    if (list->count >= FBY_SPEC_OPS)
        return fby_spec_refuse(&with->place, list->line, "pipeline", "%u ops; expected at most %d",
                               list->count, FBY_SPEC_OPS - 1);
    with->spec->ops = calloc(list->count + 1, sizeof *with->spec->ops);
    if (!with->spec->ops) return no_memory(with);
    for (const fby_yaml_node *entry = list->first; entry; entry = entry->next) {
        int status;
        if (entry->kind == FBY_YAML_SCALAR && !fby_yaml_is_null(entry))
            status = add_op(with, entry->text, NULL, entry->line);
        else if (entry->kind == FBY_YAML_MAP && entry->count == 1)
            status = add_op(with, entry->first->key, entry->first, entry->first->line);
        else if (entry->kind == FBY_YAML_MAP && entry->count > 1)
            status = fby_spec_refuse(
                &with->place, entry->line, "pipeline",
                "%u keys in one entry; expected one op each: its parameters stand in {…} or are "
                "indented deeper than its name",
                entry->count);
        else
            status = refuse_value(with, entry, "pipeline", "an op's name, or name: {parameters}");
        if (status) return status;
    }
    return add_to(with);
}

/* Of a spec without auto, which alone can make an epoch longer as it goes. */
static int check_no_steps(const parse *with)
{
    const fby_spec *spec = with->spec;
    if (!spec->steps_per_epoch) return FBY_OK;
    return fby_spec_refuse(&with->place, spec->steps_line, "steps_per_epoch",
                           "%" PRIu64 ", but the number of samples%s how many batches an epoch has; "
                           "expected unset, or echo: {factor: auto} in the pipeline, which fills an epoch up",
                           spec->steps_per_epoch, spec->echo.kind ? " and the echo's factor say" : " says");
}

/* Takes the pipeline's echo over into the spec, and checks what only the whole spec tells. */
static int take_echo(parse *with)
{
    fby_spec *spec = with->spec;
    const char *key = spec->echo.kind ? "batch.echo" : "pipeline.echo";
    for (uint32_t i = 0; i < spec->op_count; i++) {
        const fby_op_use *use = &spec->ops[i];
        if (use->op->kind != FBY_OP_ECHO) continue;
        if (spec->echo.kind)
            return fby_spec_refuse(&with->place, use->line, "pipeline.echo",
                                   "batch.echo is there too, in line %u; expected one of them",
                                   spec->echo.line);
        const fby_echo_params *params = use->params;
        spec->echo = (fby_spec_echo){.kind = FBY_ECHO_SAMPLES,
                                     .factor = params->factor,
                                     .max = params->factor > 0 ? params->factor : params->max,
                                     .buffer = (uint32_t)params->buffer,
                                     .line = use->line};
    }
    /* While a batch of fresh samples is made, which may take as many steps as the factor bridges, that many
     * have to lie ready. */
    if (spec->echo.kind == FBY_ECHO_SAMPLES && !with->window_given)
        spec->window += (uint32_t)ceil(spec->echo.max);
    if (!spec->echo.kind || spec->echo.factor > 0) return check_no_steps(with);
    if (spec->order != FBY_ORDER_SHARED)
        return fby_spec_refuse(&with->place, spec->echo.line, key,
                               "auto emits as time goes, which no fixed order can; expected a factor, or "
                               "order: shared");
    if (spec->ranks > 1 && !spec->steps_per_epoch)
        return fby_spec_refuse(&with->place, spec->echo.line, key,
                               "auto would give each rank another number of steps; expected steps_per_epoch, "
                               "which is the same for all of them, a factor, or ranks: 1");
    return FBY_OK;
}

/* Whether an op may leave the size open: resize to a shorter side. */
static bool may_fix_one_side(const fby_op *op)
{
    for (uint32_t i = 0; i < op->param_count; i++)
        if (op->params[i].type == FBY_PARAM_SHORTER) return true;
    return false;
}

int fby_spec_infer(const fby_spec *spec, fby_shape *shape, fby_error *error)
{
    fby_spec_place place = {spec->name, error};
    const fby_op_use *open = NULL; /* the op that leaves the size open */
    bool decodes = false;
    char key[KEY_TEXT];
    *shape = (fby_shape){0};
    for (uint32_t i = 0; i < spec->op_count; i++) {
        bool encoded = shape->stage == FBY_STAGE_ENCODED;
        int status = walk(spec, &spec->ops[i], shape, error);
        if (status) return status;
        if (!encoded && !may_fix_one_side(spec->ops[i].op)) continue;
        open = &spec->ops[i];
        decodes = encoded;
    }
    if (shape->stage != FBY_STAGE_TENSOR)
        return fby_spec_refuse(&place, 1, "pipeline", "it doesn't end in to; expected a parsed spec");
    if (shape->w && shape->h) return FBY_OK;
    snprintf(key, sizeof key, "pipeline.%s", open->op->name);
    return fby_spec_refuse(
        &place, open->line, key, "samples come out in different sizes%s, and a batch needs one; expected %s",
        decodes ? "" : " (only the shorter side is fixed)",
        decodes ? "random_resized_crop: SIZE, center_crop: SIZE or resize: [HEIGHT, WIDTH] after it"
                : "center_crop: SIZE after it, or size: [HEIGHT, WIDTH]");
}

static int parse_top(parse *with, const fby_yaml_node *root)
{
    if (root->kind != FBY_YAML_MAP) return refuse_value(with, root, NULL, "a map with dataset and pipeline");
    for (const fby_yaml_node *entry = root->first; entry; entry = entry->next) {
        uint32_t i = 0;
        if (is_later(entry->key)) return refuse_later(with, entry->line, entry->key);
        while (i < fby_spec_key_count && strcmp(fby_spec_keys[i], entry->key)) i++;
        if (i == fby_spec_key_count)
            return refuse_name(with, entry->line, NULL, "unknown key", entry->key, fby_spec_keys,
                               fby_spec_key_count);
        int status = parsers[i](with, entry);
        if (status) return status;
    }
    if (!with->dataset_given)
        return fby_spec_refuse(&with->place, 1, "dataset",
                               "missing; expected a folder's path, or {list: path}");
    int status = parse_pipeline(with);
    fby_shape shape;
    if (!status) status = take_echo(with);
    if (!status) status = fby_spec_infer(with->spec, &shape, with->place.error);
    return status ? status : check_printed_size(with);
}

int fby_spec_parse(fby_spec **out, const char *name, const char *text, size_t length, const char *base,
                   fby_error *error)
{
    _Static_assert(sizeof parsers / sizeof *parsers == sizeof fby_spec_keys / sizeof *fby_spec_keys,
                   "a parser for each key");
    *out = NULL;
    parse with = {.place = {name, error}, .base = base};
    if (!base || *base != '/')
        return fby_fail(error, FBY_EINVAL, "%s: the base folder %s; expected an absolute path", name,
                        base ? base : "is not given");
    if (length > FBY_SPEC_BYTES)
        return fby_fail(error, FBY_EINVAL, "%s: %zu bytes; expected a spec of at most %d", name, length,
                        FBY_SPEC_BYTES);
    fby_yaml *yaml = NULL;
    int status = FBY_OK;
    fby_spec *spec = calloc(1, sizeof *spec);
    if (spec) spec->name = strdup(name);
    if (!spec || !spec->name) {
        status = fby_fail(error, FBY_ENOMEM, "%s: no memory to parse it", name);
        goto end;
    }
    spec->batch_size = 64;
    spec->ranks = 1;
    spec->window = FBY_SPEC_WINDOW;
    spec->max_errors = 0.001;
    spec->sample_timeout_ns = UINT64_C(30000000000);
    with.spec = spec;
    status = fby_yaml_parse(&yaml, &with.place, text, length);
    if (!status) status = parse_top(&with, fby_yaml_root(yaml));
end:
    fby_yaml_free(&yaml);
    if (status) fby_spec_free(&spec);
    *out = spec;
    return status;
}
