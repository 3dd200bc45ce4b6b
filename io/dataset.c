/* Opening a data set: its index from the cache where that is still right, else made anew. */
#include "io/dataset.h"

#include "io/folder_scan.h"
#include "io/index_file.h"
#include "io/list_file.h"
#include "io/message.h"
#include "io/parallel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fby_dataset {
    fby_index index;
    int directory;
    bool from_cache;
    char *path;       /* absolute: the folder or the list */
    char *root;       /* absolute: what relative paths are relative to */
    const char *list; /* name of the list within root; NULL: a folder */
};

static int root_open(fby_dataset *dataset, const fby_dataset_options *options, fby_error *error)
{
    fby_path_shown shown = fby_path_show(options->path, "");
    bool is_list = options->kind == FBY_DATASET_LIST;
    struct stat status;

    dataset->path = realpath(options->path, NULL);
    if (!dataset->path || stat(dataset->path, &status)) {
        return fby_fail(
            error, errno == ENOMEM ? FBY_ENOMEM : FBY_EINVAL, "can't open the %s %s: %s; expected %s",
            is_list ? "file list" : "folder", shown.text, fby_errno_text(errno),
            is_list ? "a text file with a path and a label on each line" : "a folder of class folders");
    }
    if (!is_list && !S_ISDIR(status.st_mode)) {
        return fby_fail(
            error, FBY_EINVAL,
            "%s is no folder: expected a folder of class folders; a file list is named by `list:`",
            shown.text);
    }
    if (is_list && !S_ISREG(status.st_mode)) {
        return fby_fail(error, FBY_EINVAL,
                        "%s is no regular file: expected a file list; a folder of class folders is named by "
                        "`folder:`",
                        shown.text);
    }

    dataset->root = strdup(dataset->path);
    if (!dataset->root) return fby_fail(error, FBY_ENOMEM, "no memory to open %s", shown.text);
    if (is_list) {
        char *slash = strrchr(dataset->root, '/');
        dataset->list = dataset->path + (slash - dataset->root) + 1;
        slash[slash == dataset->root] = '\0';
    }
    dataset->directory = open(dataset->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dataset->directory < 0) {
        return fby_fail(error, FBY_EINVAL, "can't open the folder of %s: %s", shown.text,
                        fby_errno_text(errno));
    }
    return FBY_OK;
}

static bool list_fresh(const fby_dataset *dataset)
{
    const fby_index_header *header = dataset->index.header;
    struct stat status;
    if (fstatat(dataset->directory, dataset->list, &status, 0)) return false;
    fby_index_stamp stamp = fby_index_stamp_of(&status, true);
    return fby_index_stamp_equal(&stamp, &header->list) && !fby_index_stamp_racy(&stamp, header->checked);
}

static bool index_load(fby_dataset *dataset, const char *cache, const char *file, uint32_t threads)
{
    int64_t checked = time(NULL);
    if (!fby_index_file_load(&dataset->index, file)) return false;

    const fby_index_header *header = dataset->index.header;
    fby_dataset_kind kind = dataset->list ? FBY_DATASET_LIST : FBY_DATASET_FOLDER;
    fby_freshness fresh = FBY_STALE;
    if (header->kind == kind && !strcmp(fby_index_string(&dataset->index, header->root), dataset->path)) {
        fresh = dataset->list ? (list_fresh(dataset) ? FBY_FRESH : FBY_STALE)
                              : fby_folder_fresh(&dataset->index, dataset->directory, threads);
    }
    if (fresh == FBY_FRESH_AFTER_LOOK) fby_index_file_save(&dataset->index, cache, file, checked);
    if (fresh == FBY_STALE) fby_index_close(&dataset->index);
    dataset->from_cache = fresh != FBY_STALE;
    return dataset->from_cache;
}

/* An empty class is more likely a mistake than meant. */
static int classes_check(const fby_dataset *dataset, bool allow_empty, fby_error *error)
{
    const fby_index *index = &dataset->index;
    const uint64_t left_out = index->header->left_out;
    uint32_t expected = 0;
    char note[120] = "";

    if (left_out) {
        snprintf(note, sizeof note, "; %lu were left out: .ppm, .bmp, .pgm, or no regular file",
                 (unsigned long)left_out);
    }
    if (!index->header->samples) {
        fby_path_shown shown = fby_path_show(dataset->path, "");
        return fby_fail(
            error, FBY_EINVAL,
            "%s holds no pictures: expected ROOT/CLASS/*.jpg, .jpeg, .png, .webp, .tif, .tiff, .gif or "
            ".fbl%s",
            shown.text, note);
    }
    if (allow_empty || dataset->list) return FBY_OK;

    /* Samples are sorted by label: a gap shows. */
    for (uint64_t i = 0; i < index->header->samples && index->samples[i].label <= expected; i++) {
        if (index->samples[i].label == expected) expected++;
    }
    if (expected == index->header->classes) return FBY_OK;
    fby_path_shown shown = fby_path_show(dataset->path, fby_dataset_class(dataset, expected));
    return fby_fail(
        error, FBY_EINVAL,
        "the class folder %s holds no pictures%s: add some, remove the folder, or set allow_empty",
        shown.text, note);
}

static int index_make(fby_dataset *dataset, const fby_dataset_options *options, uint32_t threads,
                      fby_error *error)
{
    fby_progress progress;
    fby_progress_begin(&progress, options->progress, options->user);
    int status = dataset->list ? fby_list_file_index(&dataset->index, dataset->directory, dataset->list,
                                                     dataset->path, threads, &progress, error)
                               : fby_folder_scan(&dataset->index, dataset->directory, dataset->path, threads,
                                                 &progress, error);
    fby_progress_end(&progress);
    return status;
}

int fby_dataset_open(fby_dataset **out, const fby_dataset_options *options, fby_error *error)
{
    char cache[PATH_MAX], file[PATH_MAX];
    uint32_t threads = options->threads ? options->threads : fby_parallel_default();

    *out = NULL;
    if (!options->path || !options->path[0]) {
        return fby_fail(error, FBY_EINVAL, "the path of the data set is empty");
    }
    fby_dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset) return fby_fail(error, FBY_ENOMEM, "no memory to open %.400s", options->path);
    dataset->directory = -1;

    int status = root_open(dataset, options, error);
    if (status) goto fail;

    bool wanted = (!options->cache || options->cache[0]) &&
                  fby_index_file_folder(cache, sizeof cache, options->cache) &&
                  fby_index_file_path(file, sizeof file, cache, options->kind, dataset->path);
    if (!wanted || !index_load(dataset, cache, file, threads)) {
        status = index_make(dataset, options, threads, error);
        if (status) goto fail;
        if (wanted) fby_index_file_save(&dataset->index, cache, file, dataset->index.header->checked);
    }
    status = classes_check(dataset, options->allow_empty, error);
    if (status) goto fail;

    *out = dataset;
    return FBY_OK;

fail:
    fby_dataset_close(&dataset);
    return status;
}

void fby_dataset_close(fby_dataset **dataset)
{
    if (!*dataset) return;
    fby_index_close(&(*dataset)->index);
    if ((*dataset)->directory >= 0) close((*dataset)->directory);
    free((*dataset)->root);
    free((*dataset)->path);
    free(*dataset);
    *dataset = NULL;
}

uint64_t fby_dataset_count(const fby_dataset *dataset)
{
    return dataset->index.header->samples;
}

const char *fby_dataset_path(const fby_dataset *dataset, uint64_t id)
{
    return fby_index_string(&dataset->index, dataset->index.samples[id].path);
}

int fby_dataset_directory(const fby_dataset *dataset)
{
    return dataset->directory;
}

const char *fby_dataset_root(const fby_dataset *dataset)
{
    return dataset->root;
}

uint64_t fby_dataset_size(const fby_dataset *dataset, uint64_t id)
{
    return dataset->index.samples[id].size;
}

int64_t fby_dataset_label(const fby_dataset *dataset, uint64_t id)
{
    return dataset->index.samples[id].label;
}

uint64_t fby_dataset_largest(const fby_dataset *dataset)
{
    return dataset->index.header->largest;
}

uint32_t fby_dataset_classes(const fby_dataset *dataset)
{
    return dataset->index.header->classes;
}

const char *fby_dataset_class(const fby_dataset *dataset, uint32_t label)
{
    if (label >= dataset->index.header->classes) return NULL;
    return fby_index_string(&dataset->index, dataset->index.classes[label]);
}

fby_digest fby_dataset_fingerprint(const fby_dataset *dataset)
{
    const fby_index_header *header = dataset->index.header;
    return (fby_digest){header->fingerprint_high, header->fingerprint_low};
}

bool fby_dataset_from_cache(const fby_dataset *dataset)
{
    return dataset->from_cache;
}

uint64_t fby_dataset_left_out(const fby_dataset *dataset)
{
    return dataset->index.header->left_out;
}

uint64_t fby_dataset_index_bytes(const fby_dataset *dataset)
{
    return dataset->index.header->bytes;
}
