/* Indexing a folder of class folders, in parallel. */
#ifndef FBY_IO_FOLDER_SCAN_H
#define FBY_IO_FOLDER_SCAN_H

#include "io/index.h"
#include "io/progress.h"

/* Walks the folder behind descriptor `root`, whose absolute path is `path`, and builds its index. */
int fby_folder_scan(fby_index *out, int root, const char *path, uint32_t threads, fby_progress *progress,
                    fby_error *error);

typedef enum fby_freshness {
    FBY_STALE,
    FBY_FRESH,
    FBY_FRESH_AFTER_LOOK /* some folders were too young to be trusted: they were listed again, and are the
                            same */
} fby_freshness;

/* Whether every folder of the index is as it was. */
fby_freshness fby_folder_fresh(const fby_index *index, int root, uint32_t threads);

#endif
