#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/names/names.h"

/* Names that are looked at: a folder of a million files shall not delay an error. */
enum { LOOKED_AT = 10000 };

/* A name without its ending, where `other` ends in the same: what ends alike isn't alike by that. */
static const char *stem_of(const char *name, const char *other, char *stem)
{
    const char *dot = strrchr(name, '.'), *others = strrchr(other, '.');
    if (!dot || dot == name || !others || strcmp(dot, others) != 0) return name;
    snprintf(stem, NAME_MAX + 1, "%.*s", (int)(dot - name), name);
    return stem;
}

/* Whether `name` is nearer to `word` than `nearest` is, which may be NULL. */
static bool is_nearer(const char *word, const char *name, const char *nearest)
{
    char short_word[NAME_MAX + 1], short_name[NAME_MAX + 1];
    const char *wanted = stem_of(word, name, short_word), *found = stem_of(name, word, short_name);
    if (!fby_name_nearest(wanted, &found, 1)) return false;
    const char *both[] = {nearest, name};
    return !nearest || fby_name_nearest(word, both, 2) == name;
}

/* The nearest to `word` among the names in a folder, or NULL; the caller frees it. */
static char *nearest_in(const char *folder, const char *word)
{
    DIR *open = opendir(folder);
    char *nearest = NULL;
    const struct dirent *entry;
    for (int looked = 0; open && looked < LOOKED_AT && (entry = readdir(open)); looked++) {
        const char *name = entry->d_name;
        if ((name[0] == '.' && word[0] != '.') || strpbrk(name, "\n\r\t\033")) continue;
        if (!is_nearer(word, name, nearest)) continue;
        free(nearest);
        nearest = strdup(name);
    }
    if (open) closedir(open);
    return nearest;
}

void fby_name_suggest(const char *path, fby_error *error)
{
    struct stat found;
    char folder[PATH_MAX];
    size_t length = strlen(path);
    if (!error || length >= sizeof folder || !stat(path, &found)) return;
    memcpy(folder, path, length + 1);
    while (length > 1 && folder[length - 1] == '/') folder[--length] = 0;
    /* Up to the last folder that is there: what follows it is the name in question. */
    char *slash = strrchr(folder, '/');
    for (; slash; slash = strrchr(folder, '/')) {
        *slash = 0;
        if (slash == folder || !stat(folder, &found)) break;
    }
    const char *word = slash ? slash + 1 : folder;
    char *nearest = nearest_in(!slash ? "." : *folder ? folder : "/", word);
    if (nearest) {
        size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof error->text - used, "; did you mean %s%s%s?", slash ? folder : "",
                 slash ? "/" : "", nearest);
    }
    free(nearest);
}
