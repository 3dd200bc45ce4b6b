/* Data sets: an immutable, indexed list of samples.
 *
 * A folder follows torchvision's ImageFolder: classes are the sorted names of the root's folders, files a
 * sorted walk below each, links followed (a link to a folder above itself is not entered). A list is a text
 * file, a line a sample: `path TAB label`, or JSONL {"path": …, "label": …}; labels are all integers or all
 * class names; relative paths are relative to the list's folder (of the list itself, where its path is a
 * link). The index is made once, in parallel, kept under the cache folder, mapped read-only, and made anew
 * when a folder's time (or the list) changed.
 *
 * An open data set is immutable: every accessor may be called from any thread. */
#ifndef FBY_IO_DATASET_H
#define FBY_IO_DATASET_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum fby_dataset_kind { FBY_DATASET_FOLDER, FBY_DATASET_LIST } fby_dataset_kind;

/* Called from any thread, at most ten times a second; returning false cancels (FBY_EINTR). */
typedef bool fby_dataset_progress(void *user, uint64_t files_found, uint64_t files_done);

typedef struct fby_dataset_options {
    fby_dataset_kind kind;
    const char *path;  /* absolute, or relative to the working directory */
    bool allow_empty;  /* a class without a file is an error unless set */
    const char *cache; /* folder for indexes; NULL: $XDG_CACHE_HOME/forebay or ~/.cache/forebay; "": none */
    uint32_t threads;  /* 0: as many as CPUs granted, at most 8 */
    fby_dataset_progress *progress;
    void *user;
} fby_dataset_options;

typedef struct fby_digest {
    uint64_t high, low;
} fby_digest;

static inline bool fby_digest_equal(fby_digest a, fby_digest b)
{
    return a.high == b.high && a.low == b.low;
}

typedef struct fby_dataset fby_dataset;

int fby_dataset_open(fby_dataset **out, const fby_dataset_options *options, fby_error *error);
void fby_dataset_close(fby_dataset **dataset);

uint64_t fby_dataset_count(const fby_dataset *dataset);
/* The path of a sample relative to fby_dataset_directory (or absolute); borrowed. */
const char *fby_dataset_path(const fby_dataset *dataset, uint64_t id);
int fby_dataset_directory(const fby_dataset *dataset);              /* descriptor of the root; borrowed */
const char *fby_dataset_root(const fby_dataset *dataset);           /* its path, for messages; borrowed */
uint64_t fby_dataset_size(const fby_dataset *dataset, uint64_t id); /* bytes of the file */
int64_t fby_dataset_label(const fby_dataset *dataset, uint64_t id);
uint64_t fby_dataset_largest(const fby_dataset *dataset); /* bytes of the largest file */
uint32_t fby_dataset_classes(const fby_dataset *dataset); /* 0 for a list with numeric labels */
const char *fby_dataset_class(const fby_dataset *dataset, uint32_t label); /* name; borrowed */
/* Of relative paths, sizes and labels: equal data, equal fingerprint, wherever it lies. XXH3 128. */
fby_digest fby_dataset_fingerprint(const fby_dataset *dataset);
bool fby_dataset_from_cache(const fby_dataset *dataset); /* the index was there and still valid */
/* Files left out: no decoder knows their ending (.ppm, .bmp, .pgm), or they have a picture's name and are no
 * regular file (a dangling link, a pipe). */
uint64_t fby_dataset_left_out(const fby_dataset *dataset);
uint64_t fby_dataset_index_bytes(const fby_dataset *dataset); /* mapped memory it holds */

#endif
