#include "dataplane/spec/params.h"
#include "dataplane/names/names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "dataplane/spec/spec.h"
#include "dataplane/spec/value.h"

enum { KEY_TEXT = 160, QUOTED = 80, NAMES = 32 };

typedef struct context {
    const fby_op *op;
    const fby_spec_place *place;
    uint64_t augment_seed;
    void *params;
} context;

static void *field(const context *with, const fby_param *param)
{
    return (char *)with->params + param->offset;
}

static void range_text(const fby_param *param, char *text, size_t room)
{
    char low[FBY_VALUE_TEXT], high[FBY_VALUE_TEXT];
    fby_value_print_real(param->low, low);
    fby_value_print_real(param->high, high);
    snprintf(text, room, "%s to %s", low, high);
}

static int parse_reals(const context *with, const fby_param *param, const fby_yaml_node *node,
                       const char *key)
{
    uint32_t count = param->type == FBY_PARAM_REAL ? 1 : param->type == FBY_PARAM_TRIPLE ? 3 : 2;
    char quoted[QUOTED], range[2 * FBY_VALUE_TEXT + 8];
    range_text(param, range, sizeof range);
    const char *expected = count == 1 ? "a number" : count == 2 ? "[low, high]" : "[red, green, blue]";
    double *out = field(with, param);
    const fby_yaml_node *entry = node;
    bool triple = param->type == FBY_PARAM_TRIPLE;
    if (triple && node->kind == FBY_YAML_LIST && node->count == 1) entry = node->first;
    bool one = triple && entry->kind == FBY_YAML_SCALAR; /* for all three */
    if (count > 1 && !one) {
        if (node->kind != FBY_YAML_LIST || node->count != count)
            return fby_spec_refuse(with->place, node->line, key, "%s; expected %s, each %s",
                                   node->kind == FBY_YAML_LIST
                                       ? "the wrong number of values"
                                       : fby_yaml_describe(node, quoted, sizeof quoted),
                                   expected, range);
        entry = node->first;
    }
    for (uint32_t i = 0; i < count; i++, entry = one ? entry : entry->next) {
        if (entry->kind != FBY_YAML_SCALAR || !fby_value_real(entry->text, &out[i]))
            return fby_spec_refuse(with->place, entry->line, key, "%s is not a number; expected %s, %s",
                                   fby_yaml_describe(entry, quoted, sizeof quoted), expected, range);
        if (!(out[i] >= param->low && out[i] <= param->high))
            return fby_spec_refuse(with->place, entry->line, key, "%s is out of range; expected %s, %s",
                                   entry->text, expected, range);
    }
    if (count == 2 && out[0] > out[1])
        return fby_spec_refuse(with->place, node->line, key,
                               "the first is above the second; expected [low, high]");
    return FBY_OK;
}

/* f or s for a range around 1 or 0; or [low, high]. */
static int parse_around(const context *with, const fby_param *param, const fby_yaml_node *node,
                        const char *key)
{
    if (node->kind == FBY_YAML_LIST) return parse_reals(with, param, node, key);
    char quoted[QUOTED], range[2 * FBY_VALUE_TEXT + 8], most[FBY_VALUE_TEXT];
    double *out = field(with, param), value;
    if (node->kind != FBY_YAML_SCALAR || !fby_value_real(node->text, &value) || value < 0 ||
        value > param->high) {
        range_text(param, range, sizeof range);
        fby_value_print_real(param->high, most);
        return fby_spec_refuse(with->place, node->line, key,
                               "%s; expected a number, 0 to %s, or [low, high], each %s",
                               fby_yaml_describe(node, quoted, sizeof quoted), most, range);
    }
    bool factor = param->type == FBY_PARAM_FACTOR;
    out[0] = factor ? (value < 1 ? 1 - value : 0) : 0 - value;
    out[1] = factor ? 1 + value : value;
    /* What is printed must be in range again. */
    if (out[1] > param->high) out[1] = param->high;
    return FBY_OK;
}

/* One of several whole numbers. */
static int parse_count(const context *with, const fby_param *param, const fby_yaml_node *node,
                       const char *key, const char *expected, uint32_t *out)
{
    char quoted[QUOTED], range[2 * FBY_VALUE_TEXT + 8];
    uint64_t value;
    range_text(param, range, sizeof range);
    if (node->kind != FBY_YAML_SCALAR || !fby_value_unsigned(node->text, &value) ||
        (double)value < param->low || (double)value > param->high)
        return fby_spec_refuse(with->place, node->line, key, "%s; expected %s, %s",
                               fby_yaml_describe(node, quoted, sizeof quoted), expected, range);
    *out = (uint32_t)value;
    return FBY_OK;
}

/* One for all, all of them, or half of them, repeated where that is allowed. */
static int parse_counts(const context *with, const fby_param *param, const fby_yaml_node *node,
                        const char *key)
{
    bool sides = param->type == FBY_PARAM_SIDES;
    uint32_t wanted = sides ? 4 : 3;
    const char *expected = sides ? "whole pixels: one number for all sides, [left and right, top and bottom] "
                                   "or [left, top, right, bottom]"
                                 : "a level, or [red, green, blue]";
    uint32_t *out = field(with, param), given = node->kind == FBY_YAML_LIST ? node->count : 1;
    if (given != 1 && given != wanted && !(sides && given == 2))
        return fby_spec_refuse(with->place, node->line, key, "%u values; expected %s", given, expected);
    const fby_yaml_node *entry = node->kind == FBY_YAML_LIST ? node->first : node;
    for (uint32_t i = 0; i < given; i++, entry = entry->next) {
        int status = parse_count(with, param, entry, key, expected, &out[i]);
        if (status) return status;
    }
    for (uint32_t i = given; i < wanted; i++) out[i] = out[i - given];
    return FBY_OK;
}

/* One side of a size. */
static int parse_side(const context *with, const fby_param *param, const fby_yaml_node *node, const char *key,
                      uint32_t *out)
{
    char quoted[QUOTED], range[2 * FBY_VALUE_TEXT + 8];
    uint64_t value;
    range_text(param, range, sizeof range);
    if (node->kind != FBY_YAML_SCALAR || !fby_value_unsigned(node->text, &value) ||
        (double)value < param->low || (double)value > param->high)
        return fby_spec_refuse(with->place, node->line, key,
                               "%s; expected whole pixels, %s: s or [height, width]",
                               fby_yaml_describe(node, quoted, sizeof quoted), range);
    *out = (uint32_t)value;
    return FBY_OK;
}

static int parse_size(const context *with, const fby_param *param, const fby_yaml_node *node, const char *key)
{
    uint32_t *size = field(with, param);
    if (node->kind == FBY_YAML_LIST && node->count == 2) {
        int status = parse_side(with, param, node->first, key, &size[1]);
        return status ? status : parse_side(with, param, node->first->next, key, &size[0]);
    }
    int status = parse_side(with, param, node, key, &size[1]);
    size[0] = param->type == FBY_PARAM_SHORTER ? 0 : size[1];
    return status;
}

static size_t names_count(const char *const *names)
{
    size_t count = 0;
    while (names[count]) count++;
    return count;
}

/* The choice that `word` is another name for, or is near to; or NULL. */
static const char *nearest_choice(const fby_param *param, const char *word, size_t count)
{
    for (const char *const(*pair)[2] = param->foreign; pair && (*pair)[0]; pair++)
        if (!strcasecmp(word, (*pair)[0])) return (*pair)[1];
    return fby_name_nearest(word, param->choices, count);
}

static int parse_choice(const context *with, const fby_param *param, const fby_yaml_node *node,
                        const char *key)
{
    size_t count = names_count(param->choices);
    char list[256] = "", quoted[QUOTED];
    for (size_t i = 0; i < count; i++) {
        if (node->kind == FBY_YAML_SCALAR && !strcmp(node->text, param->choices[i])) {
            *(int32_t *)field(with, param) = (int32_t)i;
            return FBY_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s",
                 i == 0           ? ""
                 : i + 1 == count ? " or "
                                  : ", ",
                 param->choices[i]);
    }
    const char *nearest = node->kind == FBY_YAML_SCALAR ? nearest_choice(param, node->text, count) : NULL;
    return fby_spec_refuse(with->place, node->line, key, "%s; expected %s%s%s%s",
                           fby_yaml_describe(node, quoted, sizeof quoted), list,
                           nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static int parse_bytes(const context *with, const fby_param *param, const fby_yaml_node *node,
                       const char *key)
{
    char quoted[QUOTED], least[FBY_VALUE_TEXT];
    uint64_t *out = field(with, param);
    if (node->kind == FBY_YAML_SCALAR && fby_value_bytes(node->text, out) && (double)*out >= param->low &&
        (double)*out <= param->high)
        return FBY_OK;
    fby_value_print_bytes((uint64_t)param->low, least);
    return fby_spec_refuse(with->place, node->line, key,
                           "%s; expected a size from %s, such as 500MiB or 40GiB",
                           fby_yaml_describe(node, quoted, sizeof quoted), least);
}

/* A number, or auto. */
static int parse_times(const context *with, const fby_param *param, const fby_yaml_node *node,
                       const char *key)
{
    char quoted[QUOTED], range[2 * FBY_VALUE_TEXT + 8];
    double *out = field(with, param);
    *out = 0;
    if (node->kind == FBY_YAML_SCALAR && !strcmp(node->text, "auto")) return FBY_OK;
    if (node->kind == FBY_YAML_SCALAR && fby_value_real(node->text, out) && *out >= param->low &&
        *out <= param->high)
        return FBY_OK;
    range_text(param, range, sizeof range);
    return fby_spec_refuse(with->place, node->line, key, "%s; expected a number, %s, or auto",
                           fby_yaml_describe(node, quoted, sizeof quoted), range);
}

static int parse_param(const context *with, const fby_param *param, const fby_yaml_node *node,
                       const char *key)
{
    char quoted[QUOTED], range[2 * FBY_VALUE_TEXT + 8];
    uint64_t whole;
    const char *text = node->kind == FBY_YAML_SCALAR ? node->text : "";
    switch (param->type) {
    case FBY_PARAM_BOOL:
        if (fby_value_bool(text, field(with, param))) return FBY_OK;
        return fby_spec_refuse(with->place, node->line, key, "%s; expected true or false",
                               fby_yaml_describe(node, quoted, sizeof quoted));
    case FBY_PARAM_INT:
        range_text(param, range, sizeof range);
        if (!fby_value_unsigned(text, &whole) || (double)whole < param->low || (double)whole > param->high)
            return fby_spec_refuse(with->place, node->line, key, "%s; expected a whole number, %s",
                                   fby_yaml_describe(node, quoted, sizeof quoted), range);
        *(int64_t *)field(with, param) = (int64_t)whole;
        return FBY_OK;
    case FBY_PARAM_REAL:
    case FBY_PARAM_PAIR:
    case FBY_PARAM_TRIPLE:
        return parse_reals(with, param, node, key);
    case FBY_PARAM_FACTOR:
    case FBY_PARAM_SHIFT:
        return parse_around(with, param, node, key);
    case FBY_PARAM_SIDES:
    case FBY_PARAM_LEVELS:
        return parse_counts(with, param, node, key);
    case FBY_PARAM_SIZE:
    case FBY_PARAM_SHORTER:
        return parse_size(with, param, node, key);
    case FBY_PARAM_CHOICE:
        return parse_choice(with, param, node, key);
    case FBY_PARAM_BYTES:
        return parse_bytes(with, param, node, key);
    case FBY_PARAM_TIMES:
        return parse_times(with, param, node, key);
    case FBY_PARAM_SEED:
        if (fby_value_unsigned(text, field(with, param))) return FBY_OK;
        return fby_spec_refuse(with->place, node->line, key,
                               "%s; expected a whole number, 0 to 18446744073709551615",
                               fby_yaml_describe(node, quoted, sizeof quoted));
    }
    return FBY_OK;
}

/* A default is read as a spec's text would be. */
static int parse_fallback(const context *with, const fby_param *param, const char *key)
{
    if (param->type == FBY_PARAM_SEED) {
        *(uint64_t *)field(with, param) = with->augment_seed;
        return FBY_OK;
    }
    fby_yaml *yaml;
    int status = fby_yaml_parse(&yaml, with->place, param->fallback, strlen(param->fallback));
    if (status) return status;
    status = parse_param(with, param, fby_yaml_root(yaml), key);
    fby_yaml_free(&yaml);
    return status;
}

static void param_key(char *text, const char *op_key, const char *name)
{
    snprintf(text, KEY_TEXT, "%s.%s", op_key, name);
}

static int parse_map(const context *with, const fby_yaml_node *map, uint32_t line, const char *op_key)
{
    const fby_op *op = with->op;
    char key[KEY_TEXT];
    bool given[NAMES] = {false};
    for (const fby_yaml_node *entry = map ? map->first : NULL; entry; entry = entry->next) {
        uint32_t i = 0;
        while (i < op->param_count && strcmp(op->params[i].name, entry->key)) i++;
        if (i == op->param_count) {
            const char *names[NAMES];
            char list[300] = "", quoted[QUOTED];
            for (uint32_t k = 0; k < op->param_count; k++) {
                size_t used = strlen(list);
                names[k] = op->params[k].name;
                snprintf(list + used, sizeof list - used, "%s%s", k ? ", " : "", names[k]);
            }
            const char *nearest =
                op->param_count ? fby_name_nearest(entry->key, names, op->param_count) : NULL;
            return fby_spec_refuse(with->place, entry->line, op_key, "unknown key %s; expected %s%s%s%s",
                                   fby_spec_quote(entry->key, quoted, sizeof quoted),
                                   op->param_count ? list : "no parameters", nearest ? "; did you mean " : "",
                                   nearest ? nearest : "", nearest ? "?" : "");
        }
        param_key(key, op_key, entry->key);
        int status = parse_param(with, &op->params[i], entry, key);
        if (status) return status;
        given[i] = true;
    }
    for (uint32_t i = 0; i < op->param_count; i++) {
        if (given[i]) continue;
        param_key(key, op_key, op->params[i].name);
        if (!op->params[i].fallback)
            return fby_spec_refuse(with->place, line, key, "missing; expected %s", op->params[i].about);
        int status = parse_fallback(with, &op->params[i], key);
        if (status) return status;
    }
    return FBY_OK;
}

static int parse_preset(const context *with, const char *text, uint32_t line, const char *key)
{
    fby_yaml *yaml;
    int status = fby_yaml_parse(&yaml, with->place, text, strlen(text));
    if (status) return status;
    status = parse_map(with, fby_yaml_root(yaml), line, key);
    fby_yaml_free(&yaml);
    return status;
}

/* "normalize: imagenet", "resize: 256", "resize: [224, 224]". */
static int parse_lone(const context *with, const fby_yaml_node *value, uint32_t line, const char *key)
{
    const fby_op *op = with->op;
    char quoted[QUOTED];
    const char *names[NAMES];
    size_t count = 0;
    for (const char *const *preset = op->presets; preset && *preset; preset += 2) {
        if (value->kind == FBY_YAML_SCALAR && !strcmp(value->text, *preset))
            return parse_preset(with, preset[1], line, key);
        names[count++] = *preset;
    }
    if (op->shorthand) {
        fby_yaml_node entry = *value, map = {.kind = FBY_YAML_MAP, .line = line, .first = &entry, .count = 1};
        entry.key = op->shorthand;
        entry.next = NULL;
        return parse_map(with, &map, line, key);
    }
    if (!op->param_count)
        return fby_spec_refuse(with->place, value->line, key, "%s; expected no parameters",
                               fby_yaml_describe(value, quoted, sizeof quoted));
    const char *nearest =
        value->kind == FBY_YAML_SCALAR && count ? fby_name_nearest(value->text, names, count) : NULL;
    return fby_spec_refuse(with->place, value->line, key, "%s; expected a map {%s: …}%s%s%s%s%s",
                           fby_yaml_describe(value, quoted, sizeof quoted), op->params[0].name,
                           count ? " or " : "", count ? names[0] : "", nearest ? "; did you mean " : "",
                           nearest ? nearest : "", nearest ? "?" : "");
}

int fby_params_parse(const fby_op *op, const fby_yaml_node *value, uint32_t line, const char *key,
                     uint64_t augment_seed, const fby_spec_place *place, void *params)
{
    context with = {op, place, augment_seed, params};
    int status = !value || fby_yaml_is_null(value) || value->kind == FBY_YAML_MAP
                     ? parse_map(&with, value && value->kind == FBY_YAML_MAP ? value : NULL, line, key)
                     : parse_lone(&with, value, line, key);
    if (status || !op->check) return status;
    fby_error why = FBY_ERROR_INIT;
    return op->check(params, &why) ? fby_spec_refuse(place, line, key, "%s", why.text) : FBY_OK;
}

int fby_params_default(const fby_op *op, uint64_t augment_seed, void *params, fby_error *error)
{
    fby_spec_place place = {op->name, error};
    return fby_params_parse(op, NULL, 1, op->name, augment_seed, &place, params);
}

static void print_reals(const double *values, uint32_t count, FILE *out)
{
    char text[FBY_VALUE_TEXT];
    for (uint32_t i = 0; i < count; i++) {
        fby_value_print_real(values[i], text);
        fprintf(out, "%s%s", i ? ", " : "", text);
    }
}

static void print_counts(const uint32_t *values, uint32_t count, FILE *out)
{
    bool equal = true;
    for (uint32_t i = 1; i < count; i++) equal = equal && values[i] == values[0];
    if (equal) {
        fprintf(out, "%u", values[0]);
        return;
    }
    for (uint32_t i = 0; i < count; i++) fprintf(out, "%s%u", i ? ", " : "[", values[i]);
    fputc(']', out);
}

static void print_param(const fby_param *param, const void *value, FILE *out)
{
    const uint32_t *size = value;
    char text[FBY_VALUE_TEXT];
    switch (param->type) {
    case FBY_PARAM_BOOL:
        fputs(*(const bool *)value ? "true" : "false", out);
        break;
    case FBY_PARAM_INT:
        fprintf(out, "%" PRId64, *(const int64_t *)value);
        break;
    case FBY_PARAM_REAL:
        print_reals(value, 1, out);
        break;
    case FBY_PARAM_PAIR:
    case FBY_PARAM_FACTOR:
    case FBY_PARAM_SHIFT:
    case FBY_PARAM_TRIPLE:
        fputc('[', out);
        print_reals(value, param->type == FBY_PARAM_TRIPLE ? 3 : 2, out);
        fputc(']', out);
        break;
    case FBY_PARAM_SIZE:
    case FBY_PARAM_SHORTER:
        if (size[0] == (param->type == FBY_PARAM_SHORTER ? 0 : size[1]))
            fprintf(out, "%u", size[1]);
        else
            fprintf(out, "[%u, %u]", size[1], size[0]);
        break;
    case FBY_PARAM_SIDES:
        print_counts(value, 4, out);
        break;
    case FBY_PARAM_LEVELS:
        print_counts(value, 3, out);
        break;
    case FBY_PARAM_CHOICE:
        fputs(param->choices[*(const int32_t *)value], out);
        break;
    case FBY_PARAM_BYTES:
        fby_value_print_bytes(*(const uint64_t *)value, text);
        fputs(text, out);
        break;
    case FBY_PARAM_TIMES:
        if (*(const double *)value > 0)
            print_reals(value, 1, out);
        else
            fputs("auto", out);
        break;
    case FBY_PARAM_SEED:
        fprintf(out, "%" PRIu64, *(const uint64_t *)value);
        break;
    }
}

void fby_params_print(const fby_op *op, const void *params, FILE *out)
{
    fputc('{', out);
    for (uint32_t i = 0; i < op->param_count; i++) {
        fprintf(out, "%s%s: ", i ? ", " : "", op->params[i].name);
        print_param(&op->params[i], (const char *)params + op->params[i].offset, out);
    }
    fputc('}', out);
}
