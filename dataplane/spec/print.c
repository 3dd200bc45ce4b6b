#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dataplane/spec/params.h"
#include "dataplane/spec/spec.h"
#include "dataplane/spec/value.h"

/* In double quotes, with what YAML doesn't print escaped. */
static void print_text(const char *text, FILE *out)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < ' ' || *c == 127)
            fprintf(out, "\\x%02x", *c);
        else if (*c == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) /* U+0080 to U+009F */
            fprintf(out, "\\x%02x", *++c);
        else if (*c == 0xE2 && c[1] == 0x80 &&
                 (c[2] == 0xA8 || c[2] == 0xA9)) /* line and paragraph separators */
            fprintf(out, "\\u20%02x", c[2] - 0x80), c += 2;
        else if (*c == 0xEF && c[1] == 0xBB && c[2] == 0xBF) /* byte order mark */
            fputs("\\ufeff", out), c += 2;
        else if (*c == 0xEF && c[1] == 0xBF && (c[2] == 0xBE || c[2] == 0xBF)) /* no characters */
            fprintf(out, "\\uff%02x", c[2] + 0x40), c += 2;
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void print_count(const char *key, uint64_t count, const char *none, FILE *out)
{
    if (count)
        fprintf(out, "%s: %" PRIu64 "\n", key, count);
    else
        fprintf(out, "%s: %s\n", key, none);
}

static void print_split(const fby_split *split, FILE *out)
{
    char low[FBY_VALUE_TEXT], high[FBY_VALUE_TEXT];
    fputs("split: ", out);
    switch (split->kind) {
    case FBY_SPLIT_ALL:
        fputs("all", out);
        break;
    case FBY_SPLIT_PART:
        fby_value_print_real(split->low, low);
        fby_value_print_real(split->high, high);
        fprintf(out, "{part: [%s, %s], seed: %" PRIu64 "}", low, high, split->seed);
        break;
    case FBY_SPLIT_IDS:
        fputs("{ids: ", out);
        print_text(split->ids_path, out);
        fputc('}', out);
        break;
    case FBY_SPLIT_CLASSES:
        fputs("{classes: [", out);
        for (uint32_t i = 0; i < split->class_count; i++) {
            if (i) fputs(", ", out);
            print_text(split->classes[i].name, out);
        }
        fputs("]}", out);
        break;
    }
    fputc('\n', out);
}

static void print_spec(const fby_spec *spec, FILE *out)
{
    char text[FBY_VALUE_TEXT];
    fprintf(out, "dataset: {%s: ", spec->dataset_kind == FBY_DATASET_LIST ? "list" : "folder");
    print_text(spec->dataset_path, out);
    fprintf(out, ", allow_empty: %s}\n", spec->allow_empty ? "true" : "false");
    print_split(&spec->split, out);
    fprintf(out, "order: %s\nseed: %" PRIu64 "\naugment_seed: %" PRIu64 "\n", fby_order_names[spec->order],
            spec->seed, spec->augment_seed);
    print_count("epochs", spec->epochs, "unlimited", out);
    print_count("steps_per_epoch", spec->steps_per_epoch, "unset", out);
    fputs("pipeline:\n", out);
    for (uint32_t i = 0; i < spec->op_count; i++) {
        fprintf(out, "  - %s: ", spec->ops[i].op->name);
        fby_params_print(spec->ops[i].op, spec->ops[i].params, out);
        fputc('\n', out);
    }
    fprintf(out, "batch: {size: %u, drop_last: %s", spec->batch_size, spec->drop_last ? "true" : "false");
    if (spec->echo.kind == FBY_ECHO_BATCHES) {
        fby_value_print_real(spec->echo.factor, text);
        fprintf(out, ", echo: {factor: %s, buffer: %u}", text, spec->echo.buffer);
    }
    fprintf(out, "}\nranks: %u\nwindow: %u\non_error: %s\n", spec->ranks, spec->window,
            spec->on_error == FBY_ON_ERROR_SKIP ? "skip" : "fail");
    fby_value_print_real(spec->max_errors, text);
    fprintf(out, "max_errors: %s\n", text);
    fby_value_print_duration(spec->sample_timeout_ns, text);
    fprintf(out, "sample_timeout: %s\n", text);
}

char *fby_spec_print(const fby_spec *spec)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return NULL;
    print_spec(spec, out);
    bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}
