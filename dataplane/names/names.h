/* What was meant by a name that there isn't. */
#ifndef FBY_DATAPLANE_NAMES_H
#define FBY_DATAPLANE_NAMES_H

#include <forebay/error.h>
#include <stddef.h>

/* The nearest of `names` to `word` (edit distance, at most a third of its length), or NULL. */
const char *fby_name_nearest(const char *word, const char *const *names, size_t count);

/* Ends the text of `error` with "; did you mean PATH?", where `path` leads nowhere and a name that is there
 * is near to the first that isn't. */
void fby_name_suggest(const char *path, fby_error *error);

#endif
