/* Decodes pictures to see whether they are whole: of FBL every checksum and every tile. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/decode.h"
#include "dataplane/cli/cli.h"
#include "dataplane/cli/convert.h"
#include "dataplane/cli/progress.h"
#include "dataplane/cli/run.h"
#include "io/parallel.h"
#include "ringbuf/wait.h"

enum { OPTION_JSON = 256, LOOK = 64, ROWS = 64 };

typedef struct verify_arguments {
    char **paths;
    uint32_t count;
    uint64_t threads;
    bool json, quiet;
} verify_arguments;

static const struct argp_option options[] = {
    {"threads", 't', "N", 0, "use N threads (default: the CPUs there are)", 0},
    {"json", OPTION_JSON, NULL, 0, "print the result as JSON", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0}};

static error_t option_take(int key, char *value, struct argp_state *state)
{
    verify_arguments *arguments = state->input;
    switch (key) {
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
        arguments->paths[arguments->count++] = value;
        return 0;
    case ARGP_KEY_END:
        if (!arguments->count) argp_error(state, "a PATH is expected, a file or a folder");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --- the work ----------------------------------------------------------------------------------------- */

typedef enum verdict { VERDICT_NONE, VERDICT_GOOD, VERDICT_BAD, VERDICT_OTHER, VERDICT_UNREADABLE } verdict;

typedef struct verified_file {
    char *path;
    bool named; /* on the command line: must be a picture */
    uint64_t bytes;
    verdict verdict;
    fby_reason reason;
    char *text;
} verified_file;

typedef struct verifying {
    const verify_arguments *arguments;
    verified_file *files;
    uint64_t count, bytes, started_ns;
    atomic_uint_least64_t next, done, done_bytes; /* relaxed: they publish nothing */
    fby_progress_line progress;
} verifying;

static void judge(verified_file *file, verdict found, fby_reason reason, const char *text)
{
    file->verdict = found;
    file->reason = reason;
    file->text = strdup(text);
}

static void decode_all(fby_decoder *decoder, const uint8_t *bytes, size_t length, verified_file *file)
{
    fby_picture_info info;
    uint32_t count = 1;
    fby_reason reason = fby_decode_open(decoder, bytes, length, NULL, &info);

    if (!reason) reason = fby_decode_begin(decoder, &(fby_region_of){0, 0, info.w, info.h});
    while (!reason && count) {
        const uint8_t *rows;
        size_t stride;
        reason = fby_decode_rows(decoder, &rows, &stride, ROWS, &count);
    }
    if (reason)
        judge(file, VERDICT_BAD, reason, fby_decode_text(decoder));
    else
        file->verdict = VERDICT_GOOD;
}

static void verify_file(fby_decoder *decoder, verified_file *file)
{
    uint8_t start[LOOK];
    size_t length = 0;
    int from = open(file->path, O_RDONLY | O_CLOEXEC);
    ssize_t got = from < 0 ? -1 : fby_file_read_some(from, start, sizeof start);

    if (got >= 0 && !file->named && !fby_format_decoded(fby_format_of(start, (size_t)got))) {
        file->verdict = VERDICT_OTHER;
    } else {
        uint8_t *bytes = got < 0 ? NULL : fby_file_read(from, &length);
        if (bytes)
            decode_all(decoder, bytes, length, file);
        else
            judge(file, VERDICT_UNREADABLE, FBY_REASON_UNREADABLE, strerror(errno));
        free(bytes);
    }
    if (from >= 0) close(from);
}

static void work(void *argument)
{
    verifying *all = argument;
    fby_decoder *decoder = NULL;

    if (fby_decoder_create(&decoder)) return;
    while (!fby_run_stopped()) {
        uint64_t at = atomic_fetch_add_explicit(&all->next, 1, memory_order_relaxed);
        if (at >= all->count) break;
        verify_file(decoder, &all->files[at]);
        uint64_t bytes = all->files[at].bytes;
        bytes += atomic_fetch_add_explicit(&all->done_bytes, bytes, memory_order_relaxed);
        uint64_t done = 1 + atomic_fetch_add_explicit(&all->done, 1, memory_order_relaxed);
        fby_progress_line_show(&all->progress, done, bytes, bytes, false);
    }
    fby_decoder_destroy(&decoder);
}

/* --- what is to be verified --------------------------------------------------------------------------- */

static int add(verifying *all, char *path, bool named, uint64_t bytes, fby_error *error)
{
    verified_file *larger = path ? realloc(all->files, (all->count + 1) * sizeof *larger) : NULL;

    if (!larger) {
        free(path);
        return fby_fail(error, FBY_ENOMEM, "no memory for the list of files");
    }
    all->files = larger;
    all->files[all->count++] = (verified_file){.path = path, .named = named, .bytes = bytes};
    all->bytes += bytes;
    return 0;
}

static int add_path(verifying *all, const char *path, fby_error *error)
{
    struct stat file;
    if (stat(path, &file)) return fby_fail(error, FBY_EIO, "can't read %s: %s", path, strerror(errno));
    if (!S_ISDIR(file.st_mode)) return add(all, strdup(path), true, (uint64_t)file.st_size, error);

    fby_convert_list list = {0};
    int status = fby_convert_list_make(&list, path, error);
    for (uint64_t i = 0; i < list.count && !status; i++) {
        char *whole = NULL;
        const char *slash = path[strlen(path) - 1] == '/' ? "" : "/";
        if (asprintf(&whole, "%s%s%s", path, slash, list.files[i].from) < 0) whole = NULL;
        status = add(all, whole, false, list.files[i].bytes, error);
    }
    fby_convert_list_free(&list);
    return status;
}

/* --- the result --------------------------------------------------------------------------------------- */

static void result_json(const verifying *all, const uint64_t counts[], double seconds)
{
    json_t *result = json_object(), *bad = json_array();
    for (uint64_t i = 0; i < all->count; i++) {
        const verified_file *file = &all->files[i];
        if (file->verdict != VERDICT_BAD && file->verdict != VERDICT_UNREADABLE) continue;
        json_array_append_new(bad,
                              json_pack("{s:s%,s:s,s:s}", "path", file->path, strlen(file->path), "reason",
                                        fby_reason_name(file->reason), "text", file->text ? file->text : ""));
    }
    json_object_set_new(result, "good", json_integer((json_int_t)counts[VERDICT_GOOD]));
    json_object_set_new(result, "bad", bad);
    json_object_set_new(result, "other_files", json_integer((json_int_t)counts[VERDICT_OTHER]));
    json_object_set_new(result, "bytes", json_integer((json_int_t)all->bytes));
    json_object_set_new(result, "wall_s", json_real(seconds));
    json_object_set_new(result, "interrupted", json_boolean(fby_run_stopped() != 0));
    json_dumpf(result, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(result);
}

static void result_print(const verifying *all, const uint64_t counts[], double seconds)
{
    for (uint64_t i = 0; i < all->count; i++) {
        const verified_file *file = &all->files[i];
        if (file->verdict == VERDICT_BAD || file->verdict == VERDICT_UNREADABLE)
            printf("%s: %s: %s\n", file->path, fby_reason_name(file->reason), file->text ? file->text : "");
    }
    const uint64_t bad = counts[VERDICT_BAD] + counts[VERDICT_UNREADABLE];
    printf("%s: %llu pictures are good, %llu aren't; %.2f s, %.1f MB/s\n",
           fby_run_stopped() ? "Stopped early" : "Done", (unsigned long long)counts[VERDICT_GOOD],
           (unsigned long long)bad, seconds,
           seconds > 0 ? (double)atomic_load(&all->done_bytes) * 1e-6 / seconds : 0);
    if (counts[VERDICT_OTHER])
        printf("  %llu other files were passed over\n", (unsigned long long)counts[VERDICT_OTHER]);
}

static int verify_all(verifying *all)
{
    fby_error error = FBY_ERROR_INIT;
    uint64_t counts[VERDICT_UNREADABLE + 1] = {0};
    for (uint32_t i = 0; i < all->arguments->count; i++) {
        if (add_path(all, all->arguments->paths[i], &error)) return fby_complain(&error);
    }
    uint64_t threads =
        all->arguments->threads ? all->arguments->threads : fby_threads_default(FBY_THREADS_MOST);
    if (threads > all->count) threads = all->count ? all->count : 1;
    all->started_ns = fby_now_ns();
    fby_progress_line_begin(&all->progress, all->arguments->quiet, all->count, all->bytes);
    fby_parallel_run((uint32_t)threads, work, all);
    fby_progress_line_end(&all->progress, atomic_load(&all->done), atomic_load(&all->done_bytes),
                          atomic_load(&all->done_bytes));

    for (uint64_t i = 0; i < all->count; i++) counts[all->files[i].verdict]++;
    double seconds = (double)(fby_now_ns() - all->started_ns) * 1e-9;
    if (all->arguments->json)
        result_json(all, counts, seconds);
    else
        result_print(all, counts, seconds);
    if (fby_run_stopped()) return 128 + fby_run_stopped();
    return counts[VERDICT_BAD] || counts[VERDICT_UNREADABLE] || counts[VERDICT_NONE] ? FBY_EXIT_FAILED : 0;
}

int fby_command_verify(int count, char **values)
{
    static const struct argp argp = {
        options,
        option_take,
        "PATH...",
        "Check picture files, and all pictures below folders: every checksum of FBL, "
        "and that all of each decodes. The exit status is 0 if all are good.",
        NULL,
        NULL,
        NULL};
    verify_arguments arguments = {.paths = calloc((size_t)count, sizeof(char *))};
    verifying all = {.arguments = &arguments};
    if (!arguments.paths) return FBY_EXIT_FAILED;
    int status = FBY_EXIT_USAGE;
    if (!fby_arguments_parse(&argp, "verify", count, values, &arguments)) {
        fby_run_signals(true);
        status = verify_all(&all);
    }
    for (uint64_t i = 0; i < all.count; i++) {
        free(all.files[i].path);
        free(all.files[i].text);
    }
    free(all.files);
    free(arguments.paths);
    return status;
}
