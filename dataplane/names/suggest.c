#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "dataplane/names/names.h"

/* Names that are looked at: a folder of a million files shall not delay an error. */
enum { LOOKED_AT = 10000 };

/* The nearest to `word` among the names in a folder, or NULL; the caller frees it. */
static char *nearest_in(const char *folder, const char *word)
{
    DIR *open = opendir(folder);
    char *nearest = NULL;
    const struct dirent *entry;
    for (int looked = 0; open && looked < LOOKED_AT && (entry = readdir(open)); looked++) {
        const char *both[] = {nearest, entry->d_name};
        if ((entry->d_name[0] == '.' && word[0] != '.') || strpbrk(entry->d_name, "\n\r\t\033")) continue;
        const char *nearer = nearest ? fby_name_nearest(word, both, 2) : fby_name_nearest(word, &both[1], 1);
        if (nearer != entry->d_name) continue;
        free(nearest);
        nearest = strdup(entry->d_name);
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
