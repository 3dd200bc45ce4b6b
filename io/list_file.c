/* The list is read whole, parsed line by line, and then its files are looked at by several threads. */
#include "io/list_file.h"

#include "io/index_builder.h"
#include "io/message.h"
#include "io/parallel.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_FILES = 256 };

typedef struct list_entry {
    const char *path;
    const char *name; /* of its class; NULL: label is a number */
    int64_t label;
    uint64_t size;
    uint64_t line;
} list_entry;

/* Memory for strings that live as long as the list. */
typedef struct text_piece {
    struct text_piece *next;
    size_t used, room;
    char bytes[];
} text_piece;

typedef struct list_state {
    const char *path; /* for messages */
    int directory;
    fby_progress *progress;
    fby_index_stamp stamp;
    char *content;
    size_t content_bytes;
    list_entry *entries;
    uint64_t count, room;
    text_piece *text;
    fby_error *error;
    /* Looking at the files. Relaxed: what they guard is read after the threads were joined. */
    atomic_uint_least64_t next;
    pthread_mutex_t mutex;
    uint64_t wrong; /* lowest entry that is; count: none */
    int wrong_errno;
    bool cancelled;
} list_state;

__attribute__((format(printf, 3, 4))) static int line_fail(const list_state *list, uint64_t line,
                                                           const char *format, ...)
{
    char what[PATH_SHOWN + 160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);

    fby_path_shown shown = fby_path_show(list->path, "");
    return fby_fail(list->error, FBY_EINVAL, "%s:%lu: %s", shown.text, (unsigned long)line, what);
}

static int list_fail(const list_state *list, fby_status status, const char *what)
{
    fby_path_shown shown = fby_path_show(list->path, "");
    return fby_fail(list->error, status, "%s: %s", shown.text, what);
}

static int content_read(list_state *list, const char *name)
{
    int descriptor = openat(list->directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) return list_fail(list, FBY_EINVAL, fby_errno_text(errno));

    struct stat status;
    int result = FBY_OK;
    if (fstat(descriptor, &status)) {
        result = list_fail(list, FBY_EIO, fby_errno_text(errno));
    } else if (!S_ISREG(status.st_mode)) {
        result = list_fail(list, FBY_EINVAL, "is no regular file: expected a file list");
    } else {
        list->stamp = fby_index_stamp_of(&status, true);
        list->content = calloc((size_t)status.st_size + 1, 1);
        if (!list->content) result = list_fail(list, FBY_ENOMEM, "no memory to read it");
    }
    while (!result && list->content_bytes < (size_t)status.st_size) {
        ssize_t got = read(descriptor, list->content + list->content_bytes,
                           (size_t)status.st_size - list->content_bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) result = list_fail(list, FBY_EIO, fby_errno_text(errno));
        if (got == 0) result = list_fail(list, FBY_EIO, "it shrank while it was read: try again");
        if (got > 0) list->content_bytes += (size_t)got;
    }
    close(descriptor);
    return result;
}

static const char *text_keep(list_state *list, const char *text, size_t bytes)
{
    if (!list->text || list->text->room - list->text->used <= bytes) {
        size_t room = bytes + 1 > 65536 ? bytes + 1 : 65536;
        text_piece *piece = malloc(sizeof *piece + room);
        if (!piece) return NULL;
        *piece = (text_piece){.next = list->text, .room = room};
        list->text = piece;
    }
    char *kept = list->text->bytes + list->text->used;
    memcpy(kept, text, bytes);
    kept[bytes] = '\0';
    list->text->used += bytes + 1;
    return kept;
}

/* A label: a number where `name` is NULL. */
static int entry_add(list_state *list, uint64_t line, const char *path, size_t path_bytes, const char *name,
                     size_t name_bytes, int64_t label)
{
    if (!path_bytes) return line_fail(list, line, "the path is empty");
    if (path_bytes >= PATH_MAX)
        return line_fail(list, line, "the path is longer than %d bytes", PATH_MAX - 1);
    if (name && !name_bytes)
        return line_fail(list, line, "the label is empty: expected a number or a class's name");
    if (list->count && !name != !list->entries[0].name) {
        return line_fail(
            list, line, "the label is a %s, but that of line %lu is a %s: use one kind throughout",
            name ? "name" : "number", (unsigned long)list->entries[0].line, name ? "number" : "name");
    }
    if (list->count == list->room) {
        uint64_t room = list->room ? 2 * list->room : 256;
        list_entry *entries = realloc(list->entries, room * sizeof *entries);
        if (!entries) return list_fail(list, FBY_ENOMEM, "no memory to index it");
        list->entries = entries;
        list->room = room;
    }

    list_entry *entry = &list->entries[list->count];
    *entry = (list_entry){.label = label, .line = line};
    entry->path = text_keep(list, path, path_bytes);
    if (name) entry->name = text_keep(list, name, name_bytes);
    if (!entry->path || (name && !entry->name)) return list_fail(list, FBY_ENOMEM, "no memory to index it");
    list->count++;
    return FBY_OK;
}

/* Whether the whole of a label is an integer; *range: it is one, but not of 64 bits. */
static bool label_number(const char *label, size_t bytes, int64_t *out, bool *range)
{
    char digits[32];
    size_t sign = bytes && (label[0] == '-' || label[0] == '+');

    *range = false;
    if (bytes == sign) return false;
    for (size_t i = sign; i < bytes; i++) {
        if (label[i] < '0' || label[i] > '9') return false;
    }
    *range = bytes >= sizeof digits;
    if (*range) return true;
    memcpy(digits, label, bytes);
    digits[bytes] = '\0';
    errno = 0;
    *out = strtoll(digits, NULL, 10);
    *range = errno == ERANGE;
    return true;
}

/* The last TAB divides: a path may hold one, a label may not. */
static int line_parse_tab(list_state *list, uint64_t line, const char *text, size_t bytes)
{
    const char *tab = memrchr(text, '\t', bytes);
    if (!tab) return line_fail(list, line, "no TAB: expected `path TAB label`");

    const char *label = tab + 1;
    size_t label_bytes = (size_t)(text + bytes - label);
    int64_t number = 0;
    bool range;
    bool is_number = label_number(label, label_bytes, &number, &range);
    if (is_number && range) return line_fail(list, line, "the label doesn't fit into 64 bits");
    return entry_add(list, line, text, (size_t)(tab - text), is_number ? NULL : label, label_bytes, number);
}

static int line_parse_json(list_state *list, uint64_t line, const char *text, size_t bytes)
{
    json_error_t wrong;
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (!object) return line_fail(list, line, "column %d: %s", wrong.column, wrong.text);

    const json_t *path = json_object_get(object, "path");
    const json_t *label = json_object_get(object, "label");
    int status;
    if (!json_is_object(object)) {
        status = line_fail(list, line, "expected an object: {\"path\": \"…\", \"label\": …}");
    } else if (!json_is_string(path)) {
        status = line_fail(list, line, "expected a string for \"path\"%s", path ? "" : ", which is missing");
    } else if (!json_is_integer(label) && !json_is_string(label)) {
        status = line_fail(list, line, "expected an integer or a class's name for \"label\"%s",
                           label ? "" : ", which is missing");
    } else {
        bool named = json_is_string(label);
        status = entry_add(list, line, json_string_value(path), json_string_length(path),
                           named ? json_string_value(label) : NULL, named ? json_string_length(label) : 0,
                           json_integer_value(label));
    }
    json_decref(object);
    return status;
}

static bool name_ends(const char *name, const char *end)
{
    size_t bytes = strlen(name), end_bytes = strlen(end);
    return bytes >= end_bytes && !strcasecmp(name + bytes - end_bytes, end);
}

static int content_parse(list_state *list)
{
    const char *at = list->content, *end = at + list->content_bytes;
    if (list->content_bytes >= 3 && !memcmp(at, "\xef\xbb\xbf", 3)) at += 3;

    const char *first = at;
    while (first < end && (*first == ' ' || *first == '\n' || *first == '\r')) first++;
    bool json =
        name_ends(list->path, ".jsonl") || name_ends(list->path, ".ndjson") || (first < end && *first == '{');

    int status = FBY_OK;
    for (uint64_t line = 1; at < end && !status; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        size_t bytes = (size_t)(stop - at);
        if (bytes && at[bytes - 1] == '\r') bytes--;

        if (memchr(at, '\0', bytes)) {
            status = line_fail(list, line, "holds a NUL byte: expected text");
        } else if (bytes && json) {
            status = line_parse_json(list, line, at, bytes);
        } else if (bytes) {
            status = line_parse_tab(list, line, at, bytes);
        }
        at = newline ? newline + 1 : end;
    }
    if (!status && !list->count)
        status = list_fail(list, FBY_EINVAL, "names no file: expected `path TAB label` lines");
    return status;
}

/* The lowest wrong entry is reported, whichever thread comes first. */
static void file_wrong(list_state *list, uint64_t number, int error)
{
    pthread_mutex_lock(&list->mutex);
    if (number < list->wrong) {
        list->wrong = number;
        list->wrong_errno = error;
    }
    pthread_mutex_unlock(&list->mutex);
}

static void files_look(void *argument)
{
    list_state *list = argument;

    for (;;) {
        uint64_t first = atomic_fetch_add_explicit(&list->next, LOOK_FILES, memory_order_relaxed);
        if (first >= list->count) return;
        uint64_t end = list->count - first < LOOK_FILES ? list->count : first + LOOK_FILES;

        for (uint64_t i = first; i < end; i++) {
            struct stat status;
            if (fstatat(list->directory, list->entries[i].path, &status, 0)) {
                file_wrong(list, i, errno);
                return;
            }
            if (!S_ISREG(status.st_mode)) {
                file_wrong(list, i, S_ISDIR(status.st_mode) ? EISDIR : 0);
                return;
            }
            list->entries[i].size = (uint64_t)status.st_size;
        }
        if (!fby_progress_add(list->progress, 0, end - first)) {
            pthread_mutex_lock(&list->mutex);
            list->cancelled = true;
            pthread_mutex_unlock(&list->mutex);
            return;
        }
    }
}

static int names_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted names, each once; returns their number. */
static uint64_t classes_find(const list_state *list, const char **classes)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < list->count; i++) classes[i] = list->entries[i].name;
    qsort(classes, list->count, sizeof classes[0], names_compare);
    for (uint64_t i = 0; i < list->count; i++) {
        if (!count || strcmp(classes[count - 1], classes[i]) != 0) classes[count++] = classes[i];
    }
    return count;
}

static int index_build(list_state *list, fby_index *out, int64_t checked)
{
    const bool named = list->entries[0].name != NULL;
    const char **classes = NULL;
    fby_index_counts counts = {.samples = list->count};

    if (named) {
        classes = malloc(list->count * sizeof classes[0]);
        if (!classes) return list_fail(list, FBY_ENOMEM, "no memory to index it");
        counts.classes = classes_find(list, classes);
    }
    for (uint64_t i = 0; i < counts.classes; i++) counts.string_bytes += strlen(classes[i]) + 1;
    for (uint64_t i = 0; i < list->count; i++) counts.string_bytes += strlen(list->entries[i].path) + 1;

    fby_index_builder builder;
    int status = fby_index_builder_begin(&builder, FBY_DATASET_LIST, list->path, &counts, list->error);
    if (!status) {
        for (uint64_t i = 0; i < counts.classes; i++) fby_index_builder_class(&builder, classes[i]);
        for (uint64_t i = 0; i < list->count; i++) {
            const list_entry *entry = &list->entries[i];
            int64_t label = entry->label;
            if (named) {
                const char **found =
                    bsearch(&entry->name, classes, counts.classes, sizeof classes[0], names_compare);
                label = found - classes;
            }
            fby_index_builder_sample(&builder, "", entry->path, entry->size, label);
        }
        fby_index_builder_finish(&builder, out, checked, 0, &list->stamp);
    }
    free(classes);
    return status;
}

static int files_check(list_state *list, uint32_t threads)
{
    list->wrong = list->count;
    if (!fby_progress_add(list->progress, list->count, 0)) list->cancelled = true;
    if (!list->cancelled) fby_parallel_run(threads, files_look, list);

    if (list->cancelled) return list_fail(list, FBY_EINTR, "indexing was cancelled");
    if (list->wrong == list->count) return FBY_OK;
    const list_entry *entry = &list->entries[list->wrong];
    fby_path_shown shown = fby_path_show("", entry->path);
    return line_fail(list, entry->line, "can't use \"%s\": %s", shown.text,
                     list->wrong_errno ? fby_errno_text(list->wrong_errno) : "no regular file");
}

int fby_list_file_index(fby_index *out, int directory, const char *name, const char *path, uint32_t threads,
                        fby_progress *progress, fby_error *error)
{
    list_state list = {.path = path, .directory = directory, .progress = progress, .error = error};
    int64_t checked = time(NULL);

    pthread_mutex_init(&list.mutex, NULL);
    int status = content_read(&list, name);
    if (!status) status = content_parse(&list);
    if (!status) status = files_check(&list, threads);
    if (!status) status = index_build(&list, out, checked);

    for (text_piece *next, *at = list.text; at; at = next) {
        next = at->next;
        free(at);
    }
    free(list.entries);
    free(list.content);
    pthread_mutex_destroy(&list.mutex);
    return status;
}
