/* Printing and parsing are inverse, over random specs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dataplane/spec/spec.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

enum { ROUNDS = 2000, ROOM = 16384 };

static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t below(uint64_t n)
{
    return n ? next_random() % n : 0;
}

static double between(double low, double high)
{
    return low + (high - low) * (double)below(1u << 30) / (double)((1u << 30) - 1);
}

static void write_param(FILE *out, const fby_param *param)
{
    double a, b;
    switch (param->type) {
    case FBY_PARAM_BOOL:
        fputs(below(2) ? "true" : "false", out);
        break;
    case FBY_PARAM_INT:
        fprintf(out, "%" PRIu64, (uint64_t)param->low + below((uint64_t)(param->high - param->low) + 1));
        break;
    case FBY_PARAM_REAL:
        fprintf(out, "%.17g", between(param->low, param->high));
        break;
    case FBY_PARAM_PAIR:
        a = between(param->low, param->high);
        b = between(param->low, param->high);
        fprintf(out, "[%.17g, %.17g]", a < b ? a : b, a < b ? b : a);
        break;
    case FBY_PARAM_TRIPLE:
        fprintf(out, "[%.17g, 1/%u, 2e-3]", between(0.1, 1), (unsigned)below(9) + 1);
        break;
    case FBY_PARAM_SIZE:
    case FBY_PARAM_SHORTER:
        if (below(2))
            fprintf(out, "%u", (unsigned)below(500) + 1);
        else
            fprintf(out, "[%u, %u]", (unsigned)below(3) + 1, (unsigned)below(3) + 1);
        break;
    case FBY_PARAM_FACTOR:
    case FBY_PARAM_SHIFT:
        a = between(param->low, param->high);
        b = between(param->low, param->high);
        if (below(2))
            fprintf(out, "%.17g", between(0, param->high));
        else
            fprintf(out, "[%.17g, %.17g]", a < b ? a : b, a < b ? b : a);
        break;
    case FBY_PARAM_SIDES:
        if (below(2))
            fprintf(out, "[%u, %u]", (unsigned)below(500), (unsigned)below(2));
        else
            fprintf(out, "[%u, %u, 0, 16384]", (unsigned)below(500), (unsigned)below(3));
        break;
    case FBY_PARAM_LEVELS:
        if (below(2))
            fprintf(out, "%u", (unsigned)below(256));
        else
            fprintf(out, "[%u, 255, %u]", (unsigned)below(3), (unsigned)below(3));
        break;
    case FBY_PARAM_CHOICE: {
        uint32_t count = 0;
        while (param->choices[count]) count++;
        fputs(param->choices[below(count)], out);
        break;
    }
    case FBY_PARAM_BYTES:
        fprintf(out, "%u%s", (unsigned)below(5000) + 1, below(2) ? "MiB" : "GiB");
        break;
    case FBY_PARAM_TIMES:
        if (below(2))
            fprintf(out, "%.17g", between(param->low, param->high));
        else
            fputs("auto", out);
        break;
    case FBY_PARAM_SEED:
        fprintf(out, "%" PRIu64, next_random());
        break;
    }
}

static void write_op(FILE *out, const fby_op *op)
{
    fprintf(out, "  - %s: {", op->name);
    const char *comma = "";
    for (uint32_t i = 0; i < op->param_count; i++) {
        if (op->params[i].fallback && below(2)) continue;
        fprintf(out, "%s%s: ", comma, op->params[i].name);
        write_param(out, &op->params[i]);
        comma = ", ";
    }
    fputs("}\n", out);
}

static const char *const texts[] = {"photos",
                                    "/a/b c",
                                    "\"x\\ny\\t\\\"z\\\\\\u0085\\ufeff\\u2028\"",
                                    "'é 日本 😀'",
                                    "\"\\x01\\x7f\\ufffe\"",
                                    "C:\\x",
                                    "\"# [{*&!|>'%@`\"",
                                    "'null'",
                                    "'12'"};
enum { TEXTS = sizeof texts / sizeof *texts };

static void write_split(FILE *out)
{
    double low = between(0, 0.5), high = between(0.501, 1);
    switch (below(6)) {
    case 0:
        fputs("split: all\n", out);
        break;
    case 1:
        fprintf(out, "split: {seed: %" PRIu64 ", part: [%.17g, %.17g]}\n", next_random(), low, high);
        break;
    case 2:
        fprintf(out, "split: {part: %.17g}\n", high);
        break;
    case 3:
        fprintf(out, "split:\n  part: [%u/7, 1]\n", (unsigned)below(7));
        break;
    case 4:
        fprintf(out, "split: {ids: %s}\n", texts[below(TEXTS)]);
        break;
    default:
        fputs("split:\n  classes:\n", out);
        for (uint64_t first = below(TEXTS), i = 0; i <= below(TEXTS); i++)
            fprintf(out, "    - %s\n", texts[(first + i) % TEXTS]);
    }
}

/* A valid spec, keys at random. */
static void write_spec(FILE *out)
{
    fprintf(out, "dataset: {%s: %s}\n", below(2) ? "list" : "folder", texts[below(TEXTS)]);
    if (below(2)) write_split(out);
    bool steps = below(4) == 0; /* which shared order alone takes */
    if (steps)
        fprintf(out, "steps_per_epoch: %" PRIu64 "\n", below(1000) + 1);
    else if (below(2))
        fprintf(out, "order: %s\n", (const char *const[]){"shared", "strict", "sequential"}[below(3)]);
    if (below(2))
        fprintf(out, "seed: %" PRIu64 "\naugment_seed: %" PRIu64 "\n", next_random(), next_random());
    if (below(2)) fprintf(out, "epochs: %" PRIu64 "\n", below(1000) + 1);
    if (below(2)) fprintf(out, "batch: {size: %" PRIu64 ", drop_last: true}\n", below(4096) + 1);
    if (below(2)) fprintf(out, "ranks: %" PRIu64 "\nwindow: %" PRIu64 "\n", below(1024) + 1, below(1024) + 1);
    if (below(2)) fprintf(out, "on_error: skip\nmax_errors: %.17g\n", between(0, 0.999));
    if (below(2)) fprintf(out, "sample_timeout: %" PRIu64 "ms\n", below(86400000) + 1);
    fputs("pipeline:\n", out);
    write_op(out, fby_op_find("decode"));
    if (steps) fputs("  - echo: {factor: auto, max: 3, buffer: 9}\n", out);
    for (uint64_t i = below(4); i > 0; i--) {
        const char *const names[] = {"resize", "random_horizontal_flip", "random_vertical_flip",
                                     "random_resized_crop"};
        write_op(out, fby_op_find(names[below(4)]));
    }
    write_op(out, fby_op_find("center_crop"));
    bool normalized = below(2);
    if (normalized) write_op(out, fby_op_find("normalize"));
    if (below(2)) write_op(out, fby_op_find("random_horizontal_flip"));
    if (!normalized && below(2)) write_op(out, fby_op_find("to"));
}

static bool same_split(const fby_split *a, const fby_split *b)
{
    if (a->kind != b->kind || a->class_count != b->class_count) return false;
    for (uint32_t i = 0; i < a->class_count; i++)
        if (strcmp(a->classes[i].name, b->classes[i].name)) return false;
    return a->low == b->low && a->high == b->high && a->seed == b->seed && !a->ids_path == !b->ids_path &&
           (!a->ids_path || !strcmp(a->ids_path, b->ids_path));
}

static bool same(const fby_spec *a, const fby_spec *b)
{
    if (a->op_count != b->op_count) return false;
    for (uint32_t i = 0; i < a->op_count; i++)
        if (a->ops[i].op != b->ops[i].op ||
            memcmp(a->ops[i].params, b->ops[i].params, a->ops[i].op->params_bytes))
            return false;
    return a->dataset_kind == b->dataset_kind && !strcmp(a->dataset_path, b->dataset_path) &&
           a->allow_empty == b->allow_empty && same_split(&a->split, &b->split) && a->order == b->order &&
           a->seed == b->seed && a->augment_seed == b->augment_seed && a->epochs == b->epochs &&
           a->steps_per_epoch == b->steps_per_epoch && a->batch_size == b->batch_size &&
           a->drop_last == b->drop_last && a->ranks == b->ranks && a->window == b->window &&
           a->on_error == b->on_error && a->max_errors == b->max_errors &&
           a->sample_timeout_ns == b->sample_timeout_ns;
}

Test(spec_print, parse_of_print_is_the_same_spec)
{
    uint64_t seed = (uint64_t)time(NULL);
    char text[ROOM];
    for (uint64_t round = 0; round < test_scaled(ROUNDS); round++) {
        state = (seed + round) * 0x9E3779B97F4A7C15u | 1;
        FILE *out = fmemopen(text, sizeof text, "w");
        write_spec(out);
        fclose(out);
        fby_error error = FBY_ERROR_INIT;
        fby_spec *one, *other;
        cr_assert_eq(fby_spec_parse(&one, "one", text, strlen(text), "/base", &error), FBY_OK,
                     "seed %" PRIu64 ": %s\n%s", seed + round, error.text, text);
        char *printed = fby_spec_print(one);
        cr_assert_not_null(printed);
        cr_assert_eq(fby_spec_parse(&other, "other", printed, strlen(printed), "/elsewhere", &error), FBY_OK,
                     "seed %" PRIu64 ": %s\n%s", seed + round, error.text, printed);
        cr_assert(same(one, other), "seed %" PRIu64 ":\n%s\n%s", seed + round, text, printed);
        char *again = fby_spec_print(other);
        cr_assert_str_eq(printed, again);
        free(printed);
        free(again);
        fby_spec_free(&one);
        fby_spec_free(&other);
    }
}

/* Damaged specs are refused or taken, and leave nothing behind. */
Test(spec_print, damaged_texts_do_no_harm)
{
    uint64_t seed = (uint64_t)time(NULL) * 31;
    char text[ROOM];
    for (uint64_t round = 0; round < test_scaled(ROUNDS); round++) {
        state = (seed + round) * 0x9E3779B97F4A7C15u | 1;
        FILE *out = fmemopen(text, sizeof text, "w");
        write_spec(out);
        fclose(out);
        size_t length = strlen(text);
        for (uint64_t i = below(4) + 1; i > 0; i--) {
            static const char odd[] = "{}[]:,-#&*!|>'\"%@`\n\t ?0\x80";
            text[below(length)] = odd[below(sizeof odd - 1)];
        }
        fby_error error = FBY_ERROR_INIT;
        fby_spec *spec;
        int status = fby_spec_parse(&spec, "s", text, below(2) ? length : below(length), "/base", &error);
        cr_assert((status == FBY_OK) == (spec != NULL));
        cr_assert(status == FBY_OK || (status == FBY_EINVAL && strlen(error.text) > 4), "seed %" PRIu64,
                  seed + round);
        fby_spec_free(&spec);
    }
}

/* As many ops as there can be, each with all it can say, beside a list of classes. */
static char *long_spec(uint32_t classes, uint32_t name_bytes, size_t *length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    fputs("dataset: photos\npipeline:\n- decode\n", out);
    for (int i = 0; i < 61; i++)
        fputs("- random_resized_crop: {size: [16383, 16384], scale: [0.12345678901234567, "
              "0.98765432109876543], "
              "interpolation: bilinear, augment_seed: 18446744073709551615}\n",
              out);
    fputs("- to: {dtype: bf16}\nsplit: {classes: [", out);
    for (uint32_t i = 0; i < classes; i++) fprintf(out, "%s%0*u", i ? "," : "", (int)name_bytes, i);
    fputs("]}\n", out);
    fclose(out);
    return text;
}

/* Names come out in quotes, and so longer than they went in: what would be no spec any more is refused. */
Test(spec_print, long_lists_of_classes)
{
    uint32_t taken = 0, refused = 0;
    for (uint32_t bytes = 4;; bytes++) {
        size_t length;
        char *text = long_spec(FBY_SPLIT_CLASSES_MOST, bytes, &length);
        fby_error error = FBY_ERROR_INIT;
        fby_spec *one, *other;
        bool fits = length <= FBY_SPEC_BYTES;
        int status = fits ? fby_spec_parse(&one, "s", text, length, "/base", &error) : FBY_OK;
        free(text);
        if (!fits) break;
        if (status) {
            refused++;
            cr_assert_not_null(
                strstr(error.text, "split.classes: with every default and name written out, the"), "%s",
                error.text);
            continue;
        }
        taken++;
        char *printed = fby_spec_print(one);
        cr_assert_eq(fby_spec_parse(&other, "other", printed, strlen(printed), "/", &error), FBY_OK, "%s",
                     error.text);
        cr_assert(same(one, other));
        free(printed);
        fby_spec_free(&one);
        fby_spec_free(&other);
    }
    cr_assert(taken && refused, "%u taken, %u refused", taken, refused);
}
