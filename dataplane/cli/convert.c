/* A folder of pictures as a folder of FBL files. */
#include "dataplane/cli/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <forebay/fbl.h>
#include <jansson.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/cli/cli.h"
#include "dataplane/cli/progress.h"
#include "dataplane/cli/run.h"
#include "io/parallel.h"
#include "ringbuf/wait.h"

enum { OPTION_JSON = 256, OPTION_MAX_SIDE, MOST_SIDE = 1 << 24, SHOWN = 20 };

typedef struct convert_arguments {
    const char *from, *to;
    fby_convert_options convert;
    uint64_t threads;
    bool json, quiet;
} convert_arguments;

static const struct argp_option options[] = {
    {"level", 'l', "LEVEL", 0, "small (the default), or fast: a fifth larger, decoded faster", 0},
    {"max-side", OPTION_MAX_SIDE, "N", 0, "shrink pictures whose longer side is above N to it", 0},
    {"threads", 't', "N", 0, "use N threads (default: the CPUs there are)", 0},
    {"json", OPTION_JSON, NULL, 0, "print the summary as JSON", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0}};

static error_t option_take(int key, char *value, struct argp_state *state)
{
    convert_arguments *arguments = state->input;
    uint64_t side;
    switch (key) {
    case 'l':
        if (!strcmp(value, "small"))
            arguments->convert.level = FBY_FBL_SMALL;
        else if (!strcmp(value, "fast"))
            arguments->convert.level = FBY_FBL_FAST;
        else
            argp_error(state, "--level %s: expected small or fast", value);
        return 0;
    case OPTION_MAX_SIDE:
        if (!fby_count_parse(value, MOST_SIDE, &side) || !side)
            argp_error(state, "--max-side %s: expected a number of pixels above 0", value);
        arguments->convert.max_side = (uint32_t)side;
        return 0;
    case 't':
        arguments->threads = fby_threads_parse(state, value);
        return 0;
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case 'q':
        arguments->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->to) argp_error(state, "one SRC and one DST are expected, got also %s", value);
        if (arguments->from)
            arguments->to = value;
        else
            arguments->from = value;
        return 0;
    case ARGP_KEY_END:
        if (!arguments->to) argp_error(state, "a folder SRC with pictures and a folder DST are expected");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- the work ----------------------------------------------------------------------------------------- */

typedef struct converting {
    const convert_arguments *arguments;
    fby_convert_list list;
    fby_convert_place place;
    uint64_t started_ns;
    /* Counters that publish nothing: relaxed suffices; the files' states are read after the threads ended. */
    atomic_uint_least64_t next, done, done_bytes, new_bytes;
    fby_progress_line progress;
} converting;

static void work(void *argument)
{
    converting *all = argument;
    fby_converter *converter = NULL;

    if (fby_converter_create(&converter)) return;
    while (!fby_run_stopped()) {
        uint64_t at = atomic_fetch_add_explicit(&all->next, 1, memory_order_relaxed);
        if (at >= all->list.count) break;
        fby_convert_file *file = &all->list.files[at];
        fby_convert_file_do(converter, &all->place, &all->arguments->convert, file);
        uint64_t bytes = file->bytes, worked = file->fresh ? file->bytes : 0;
        worked += atomic_fetch_add_explicit(&all->new_bytes, worked, memory_order_relaxed);
        bytes += atomic_fetch_add_explicit(&all->done_bytes, bytes, memory_order_relaxed);
        uint64_t done = 1 + atomic_fetch_add_explicit(&all->done, 1, memory_order_relaxed);
        fby_progress_line_show(&all->progress, done, bytes, worked, false);
    }
    fby_converter_destroy(&converter);
}

/* --- the summary -------------------------------------------------------------------------------------- */

typedef struct figures {
    uint64_t converted, there, copied, failed, first_frames;
    uint64_t before, after; /* bytes of the pictures, those that were there already included */
    uint64_t worked, worked_bytes;
    double seconds;
} figures;

static figures figures_of(const converting *all)
{
    figures sum = {.seconds = (double)(fby_now_ns() - all->started_ns) * 1e-9};
    for (uint64_t i = 0; i < all->list.count; i++) {
        const fby_convert_file *file = &all->list.files[i];
        bool made = file->state == FBY_FILE_CONVERTED || file->state == FBY_FILE_THERE;
        sum.converted += file->state == FBY_FILE_CONVERTED;
        sum.there += file->state == FBY_FILE_THERE;
        sum.copied += file->state == FBY_FILE_COPIED;
        sum.failed += file->state == FBY_FILE_FAILED;
        sum.first_frames += made && file->frames > 1;
        if (made) sum.before += file->bytes, sum.after += file->after;
        if (file->state == FBY_FILE_CONVERTED) sum.worked++, sum.worked_bytes += file->bytes;
    }
    return sum;
}

static const char *why(const fby_convert_file *file)
{
    return file->text ? file->text : "no memory";
}

static void summary_json(const converting *all, const figures *sum)
{
    json_t *summary = json_object(), *refused = json_array(), *failed = json_array();
    for (uint64_t i = 0; i < all->list.count; i++) {
        const fby_convert_file *file = &all->list.files[i];
        if (file->state == FBY_FILE_COPIED)
            json_array_append_new(refused,
                                  json_pack("{s:s%,s:s,s:s}", "path", file->from, strlen(file->from),
                                            "reason", fby_reason_name(file->reason), "text", why(file)));
        if (file->state == FBY_FILE_FAILED)
            json_array_append_new(
                failed, json_pack("{s:s%,s:s}", "path", file->from, strlen(file->from), "text", why(file)));
    }
    json_object_set_new(summary, "files", json_integer((json_int_t)all->list.count));
    json_object_set_new(summary, "converted", json_integer((json_int_t)sum->converted));
    json_object_set_new(summary, "there_already", json_integer((json_int_t)sum->there));
    json_object_set_new(summary, "first_frame_only", json_integer((json_int_t)sum->first_frames));
    json_object_set_new(summary, "bytes_before", json_integer((json_int_t)sum->before));
    json_object_set_new(summary, "bytes_after", json_integer((json_int_t)sum->after));
    json_object_set_new(summary, "wall_s", json_real(sum->seconds));
    json_object_set_new(summary, "files_per_s",
                        json_real(sum->seconds > 0 ? (double)sum->worked / sum->seconds : 0));
    json_object_set_new(summary, "mb_per_s",
                        json_real(sum->seconds > 0 ? (double)sum->worked_bytes * 1e-6 / sum->seconds : 0));
    json_object_set_new(summary, "copied", refused);
    json_object_set_new(summary, "failed", failed);
    json_object_set_new(summary, "interrupted", json_boolean(fby_run_stopped() != 0));
    json_dumpf(summary, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(summary);
}

static void list_print(const converting *all, fby_file_state state, uint64_t count, const char *heading)
{
    uint64_t shown = 0;
    if (!count) return;
    puts(heading);
    for (uint64_t i = 0; i < all->list.count && shown < SHOWN; i++) {
        const fby_convert_file *file = &all->list.files[i];
        if (file->state != state) continue;
        if (state == FBY_FILE_COPIED)
            printf("  %s: %s: %s\n", file->from, fby_reason_name(file->reason), why(file));
        else
            printf("  %s: %s\n", file->from, why(file));
        shown++;
    }
    if (shown < count) printf("  and %llu more: --json lists all\n", (unsigned long long)(count - shown));
}

static void summary_print(const converting *all, const figures *sum)
{
    char before[32], after[32];
    unsigned long long converted = sum->converted, there = sum->there, files = all->list.count;
    printf("%s: %llu of %llu files are FBL now, %llu of them were already; %.2f s",
           fby_run_stopped() ? "Stopped early; a second run goes on" : "Done", converted + there, files,
           there, sum->seconds);
    if (sum->worked && sum->seconds > 0)
        printf(", %.1f files/s, %.1f MB/s", (double)sum->worked / sum->seconds,
               (double)sum->worked_bytes * 1e-6 / sum->seconds);
    putchar('\n');
    if (sum->before)
        printf("  %s became %s: %.3g times as much\n", fby_size_text(before, (double)sum->before),
               fby_size_text(after, (double)sum->after), (double)sum->after / (double)sum->before);
    if (sum->first_frames)
        printf("  of %llu animations or files of several pages only the first is there\n",
               (unsigned long long)sum->first_frames);
    list_print(all, FBY_FILE_COPIED, sum->copied, "Copied as they are:");
    list_print(all, FBY_FILE_FAILED, sum->failed, "Failed:");
}

/* --- the command -------------------------------------------------------------------------------------- */

/* Both folders, DST made where it isn't there and held so that no other run writes to it. */
static int places_open(converting *all, fby_error *error)
{
    const convert_arguments *arguments = all->arguments;
    char from[PATH_MAX], to[PATH_MAX];

    all->place.from = open(arguments->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (all->place.from < 0 || !realpath(arguments->from, from))
        return fby_fail(error, FBY_EIO, "can't open %s: %s; a folder of pictures is expected",
                        arguments->from, strerror(errno));
    if (mkdir(arguments->to, 0777) && errno != EEXIST)
        return fby_fail(error, FBY_EIO, "can't make %s: %s", arguments->to, strerror(errno));
    all->place.to = open(arguments->to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (all->place.to < 0 || !realpath(arguments->to, to))
        return fby_fail(error, FBY_EIO, "can't open %s: %s; a folder is expected", arguments->to,
                        strerror(errno));
    size_t length = strlen(from);
    if (!strncmp(to, from, length) && (!to[length] || to[length] == '/' || length == 1))
        return fby_fail(error, FBY_EINVAL, "%s lies within %s; a folder outside of it is expected",
                        arguments->to, arguments->from);
    if (flock(all->place.to, LOCK_EX | LOCK_NB))
        return fby_fail(error, FBY_EIO, "another forebay convert is writing to %s", arguments->to);
    return 0;
}

static int convert_all(converting *all)
{
    const convert_arguments *arguments = all->arguments;
    fby_error error = FBY_ERROR_INIT;
    int status = places_open(all, &error);
    if (!status) status = fby_convert_list_make(&all->list, arguments->from, &error);
    if (status) return fby_complain(&error);

    uint64_t threads = arguments->threads ? arguments->threads : fby_threads_default(FBY_THREADS_MOST);
    if (threads > all->list.count) threads = all->list.count ? all->list.count : 1;
    all->started_ns = fby_now_ns();
    fby_progress_line_begin(&all->progress, arguments->quiet, all->list.count, all->list.bytes);
    fby_parallel_run((uint32_t)threads, work, all);
    fby_progress_line_end(&all->progress, atomic_load(&all->done), atomic_load(&all->done_bytes),
                          atomic_load(&all->new_bytes));

    figures sum = figures_of(all);
    if (arguments->json)
        summary_json(all, &sum);
    else
        summary_print(all, &sum);
    if (fby_run_stopped()) return 128 + fby_run_stopped();
    if (sum.converted + sum.there + sum.copied + sum.failed < all->list.count) {
        fputs("forebay: no memory to convert with\n", stderr);
        return FBY_EXIT_FAILED;
    }
    return sum.failed ? FBY_EXIT_FAILED : 0;
}

int fby_command_convert(int count, char **values)
{
    static const struct argp argp = {
        options,
        option_take,
        "SRC DST",
        "Make a folder of FBL files of a folder of pictures: lossless, and decoded many times faster. What "
        "can't be "
        "taken is copied as it is. A second run goes on where the first was stopped.",
        NULL,
        NULL,
        NULL};
    convert_arguments arguments = {.convert = {.level = FBY_FBL_SMALL}};
    converting all = {.arguments = &arguments, .place = {-1, -1}};
    if (fby_arguments_parse(&argp, "convert", count, values, &arguments)) return FBY_EXIT_USAGE;
    fby_run_signals(true);
    int status = convert_all(&all);
    fby_convert_list_free(&all.list);
    if (all.place.from >= 0) close(all.place.from);
    if (all.place.to >= 0) close(all.place.to);
    return status;
}
