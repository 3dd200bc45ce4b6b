/* Indexing a file list: `path TAB label`, or JSONL with {"path": …, "label": …}. */
#ifndef FBY_IO_LIST_FILE_H
#define FBY_IO_LIST_FILE_H

#include "io/index.h"
#include "io/progress.h"

/* Reads the list `name` (absolute: `path`) of the folder behind descriptor `directory`, looks at its files,
 * and builds the index. JSONL is what is named *.jsonl or *.ndjson or begins with `{`. Labels are all
 * integers or all names; names become classes, sorted as raw bytes. Errors name the first line that is wrong.
 */
int fby_list_file_index(fby_index *out, int directory, const char *name, const char *path, uint32_t threads,
                        fby_progress *progress, fby_error *error);

#endif
