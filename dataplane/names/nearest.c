#include <ctype.h>
#include <string.h>

#include "dataplane/names/names.h"

enum { LONGEST = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edit distance, two neighbours swapped counting as one edit; case doesn't count. Source: optimal string
 * alignment. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_length; j++) last[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == y)
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b_length];
}

const char *fby_name_nearest(const char *word, const char *const *names, size_t count)
{
    size_t length = strnlen(word, LONGEST + 1);
    if (length == 0 || length > LONGEST) return NULL;
    const char *nearest = NULL;
    size_t best = (length + 2) / 3 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t name_length = strlen(names[i]);
        if (name_length > LONGEST) continue;
        size_t edits = distance(word, length, names[i], name_length);
        if (edits >= best || edits >= name_length) continue;
        best = edits;
        nearest = names[i];
    }
    return nearest;
}
