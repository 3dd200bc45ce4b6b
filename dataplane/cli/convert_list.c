#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/cli/convert.h"

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

void fby_convert_list_free(fby_convert_list *list)
{
    for (uint64_t i = 0; i < list->count; i++) {
        free(list->files[i].from);
        free(list->files[i].to);
        free(list->files[i].text);
    }
    free(list->files);
    *list = (fby_convert_list){0};
}

static int no_memory(fby_error *error)
{
    return fby_fail(error, FBY_ENOMEM, "no memory for the list of files");
}

static int add(fby_convert_list *list, const char *path, uint64_t bytes, fby_error *error)
{
    if (list->count == list->room) {
        uint64_t room = list->room ? 2 * list->room : 1024;
        fby_convert_file *larger = realloc(list->files, room * sizeof *larger);
        if (!larger) return no_memory(error);
        list->files = larger;
        list->room = room;
    }
    fby_convert_file *file = &list->files[list->count];
    *file = (fby_convert_file){.from = strdup(path), .bytes = bytes, .frames = 1};
    if (!file->from) return no_memory(error);
    file->copy = file->from;
    list->count++;
    list->bytes += bytes;
    return 0;
}

static int walk(fby_convert_list *list, FTS *tree, size_t start, fby_error *error)
{
    for (;;) {
        errno = 0;
        FTSENT *entry = fts_read(tree);
        if (!entry) return errno ? fby_fail(error, FBY_EIO, "can't list the folder: %s", strerror(errno)) : 0;
        if (entry->fts_info == FTS_F) {
            int status = add(list, entry->fts_path + start, (uint64_t)entry->fts_statp->st_size, error);
            if (status) return status;
        } else if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS) {
            return fby_fail(error, FBY_EIO, "can't list %s: %s", entry->fts_path, strerror(entry->fts_errno));
        }
    }
}

/* Where a name's ending begins: its last dot, unless that is its first character; its end where there is
 * none.
 */
static size_t stem_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');

    return dot && dot != name ? (size_t)(dot - path) : strlen(path);
}

static int by_stem(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    size_t n = stem_length(*x), m = stem_length(*y);
    int order = memcmp(*x, *y, n < m ? n : m);

    return order ? order : n < m ? -1 : n > m;
}

static bool same_stem(const char *a, const char *b)
{
    return !by_stem(&a, &b);
}

/* The list's paths sorted by stem tell which names two sources would get. */
static int names_make(fby_convert_list *list, fby_error *error)
{
    static const char ending[] = ".fbl";
    const char **sorted = malloc((list->count + 1) * sizeof *sorted);
    int status = sorted ? 0 : no_memory(error);

    for (uint64_t i = 0; i < list->count && !status; i++) sorted[i] = list->files[i].from;
    if (!status) qsort(sorted, list->count, sizeof *sorted, by_stem);
    for (uint64_t i = 0; i < list->count && !status; i++) {
        fby_convert_file *file = &list->files[i];
        const char *path = file->from;
        const char **found = bsearch(&path, sorted, list->count, sizeof *sorted, by_stem);
        bool shared = (found > sorted && same_stem(found[-1], path)) ||
                      (found + 1 < sorted + list->count && same_stem(found[1], path));
        size_t length = shared ? strlen(path) : stem_length(path);
        file->to = malloc(length + sizeof ending);
        if (!file->to) {
            status = no_memory(error);
            break;
        }
        memcpy(file->to, path, length);
        memcpy(file->to + length, ending, sizeof ending);
    }
    free(sorted);
    return status;
}

int fby_convert_list_make(fby_convert_list *list, const char *folder, fby_error *error)
{
    char *const roots[] = {(char *)(uintptr_t)folder, NULL};
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);

    if (!tree) return fby_fail(error, FBY_EIO, "can't list %s: %s", folder, strerror(errno));
    size_t start = strlen(folder);
    while (start > 1 && folder[start - 1] == '/') start--;
    int status = walk(list, tree, start + 1, error);
    fts_close(tree);
    if (!status) status = names_make(list, error);
    if (status) fby_convert_list_free(list);
    return status;
}
