/* Threads take jobs from one stack: list a folder, or look at a run of the files of one. A folder's last look
 * sorts it and pushes the folders within it. So a thousand small folders and one with a million files both
 * spread over the threads. */
#include "io/folder_scan.h"

#include "io/index_builder.h"
#include "io/listing.h"
#include "io/message.h"
#include "io/parallel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_FILES = 1024 }; /* files to a look job */

typedef struct scan_folder {
    struct scan_folder *parent; /* NULL: the root */
    struct scan_folder *class;  /* the class's folder that it is in, or is */
    struct scan_folder *next;   /* in scan.folders */
    uint64_t device, inode;
    fby_index_stamp stamp;
    fby_listing listing;
    atomic_uint looks; /* jobs that still look at its files */
    uint32_t label;    /* of a class's folder */
    bool absent;       /* vanished, or the link of a loop */
    char path[];       /* relative to the root */
} scan_folder;

typedef struct scan_job {
    struct scan_job *next;
    scan_folder *folder;
    uint64_t first, count; /* count 0: list it; else look at these entries */
} scan_job;

typedef struct scan_state {
    int root;
    const char *path;
    fby_progress *progress;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    scan_job *jobs;
    uint32_t busy;
    int status;
    fby_error error;
    scan_folder *folders;
    uint64_t folder_count;
} scan_state;

/* The first failure is the one that counts. */
__attribute__((format(printf, 4, 5))) static void scan_fail(scan_state *scan, fby_status status,
                                                            const scan_folder *where, const char *format, ...)
{
    va_list arguments;
    char what[512];
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);

    fby_path_shown shown = fby_path_show(scan->path, where ? where->path : "");
    pthread_mutex_lock(&scan->mutex);
    if (!scan->status) scan->status = fby_fail(&scan->error, status, "%s: %s", shown.text, what);
    pthread_cond_broadcast(&scan->changed);
    pthread_mutex_unlock(&scan->mutex);
}

static bool job_push(scan_state *scan, scan_folder *folder, uint64_t first, uint64_t count)
{
    scan_job *made = malloc(sizeof *made);
    if (!made) {
        scan_fail(scan, FBY_ENOMEM, folder, "no memory to index it");
        return false;
    }
    *made = (scan_job){.folder = folder, .first = first, .count = count};
    pthread_mutex_lock(&scan->mutex);
    made->next = scan->jobs;
    scan->jobs = made;
    pthread_cond_signal(&scan->changed);
    pthread_mutex_unlock(&scan->mutex);
    return true;
}

static bool folder_push(scan_state *scan, scan_folder *parent, const char *name)
{
    size_t parent_bytes = parent ? strlen(parent->path) : 0;
    size_t bytes = parent_bytes + strlen(name) + 2;
    if (bytes > PATH_MAX) {
        scan_fail(scan, FBY_EINVAL, parent, "holds a folder whose path is longer than %d bytes",
                  PATH_MAX - 1);
        return false;
    }
    scan_folder *made = calloc(1, sizeof *made + bytes);
    if (!made) {
        scan_fail(scan, FBY_ENOMEM, parent, "no memory to index it");
        return false;
    }

    snprintf(made->path, bytes, "%s%s%s", parent_bytes ? parent->path : "", parent_bytes ? "/" : "", name);
    made->parent = parent;
    made->class = parent && parent->class ? parent->class : parent ? made : NULL;
    made->listing.only_folders = !parent;

    pthread_mutex_lock(&scan->mutex);
    made->next = scan->folders;
    scan->folders = made;
    scan->folder_count++;
    pthread_mutex_unlock(&scan->mutex);
    return job_push(scan, made, 0, 0);
}

static int folder_open(const scan_state *scan, const scan_folder *folder)
{
    const char *path = folder->path[0] ? folder->path : ".";
    return openat(scan->root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
}

/* A link to a folder above itself isn't entered: the walk would never end. */
static bool folder_loops(const scan_folder *folder)
{
    for (const struct scan_folder *above = folder->parent; above; above = above->parent) {
        if (above->device == folder->device && above->inode == folder->inode) return true;
    }
    return false;
}

static void folder_finish(scan_state *scan, scan_folder *folder)
{
    fby_listing *listing = &folder->listing;
    fby_listing_finish(listing);

    size_t path_bytes = strlen(folder->path);
    for (uint64_t i = 0; i < listing->count; i++) {
        const char *name = fby_listing_name(listing, i);
        if (listing->entries[i].kind == FBY_ENTRY_FOLDER) {
            if (!folder_push(scan, folder, name)) return;
        } else if (path_bytes + strlen(name) + 2 > PATH_MAX) {
            scan_fail(scan, FBY_EINVAL, folder, "holds a file whose path is longer than %d bytes",
                      PATH_MAX - 1);
            return;
        }
    }
}

static void files_look(scan_state *scan, scan_folder *folder, int descriptor, uint64_t first, uint64_t count)
{
    uint64_t failed;
    int status = fby_listing_resolve(&folder->listing, descriptor, first, count, &failed);
    if (status) {
        scan_fail(scan, FBY_EIO, folder, "can't look at \"%.260s\" in it: %s",
                  fby_listing_name(&folder->listing, failed), fby_errno_text(-status));
        return;
    }
    if (!fby_progress_add(scan->progress, 0, count)) {
        scan_fail(scan, FBY_EINTR, NULL, "indexing was cancelled");
        return;
    }
    /* ACQ_REL: the last look sees what all others wrote into the listing. */
    if (atomic_fetch_sub_explicit(&folder->looks, 1, memory_order_acq_rel) == 1) folder_finish(scan, folder);
}

static void folder_list(scan_state *scan, scan_folder *folder, int descriptor)
{
    struct stat status;
    if (fstat(descriptor, &status)) {
        scan_fail(scan, FBY_EIO, folder, "can't look at this folder: %s", fby_errno_text(errno));
        return;
    }
    /* The time is taken before the look: a change between the two shows next time. */
    folder->stamp = fby_index_stamp_of(&status, false);
    folder->device = status.st_dev;
    folder->inode = status.st_ino;
    if (folder_loops(folder)) {
        folder->absent = true;
        if (folder == folder->class) {
            scan_fail(scan, FBY_EINVAL, folder,
                      "this class folder is a link to a folder above it: remove it, or link to a folder of "
                      "pictures");
        }
        return;
    }

    int failed = fby_listing_read(&folder->listing, descriptor);
    if (failed) {
        scan_fail(scan, failed == -ENOMEM ? FBY_ENOMEM : FBY_EIO, folder, "can't list this folder: %s",
                  fby_errno_text(-failed));
        return;
    }

    uint64_t count = folder->listing.count;
    if (!fby_progress_add(scan->progress, count, 0)) {
        scan_fail(scan, FBY_EINTR, NULL, "indexing was cancelled");
        return;
    }
    uint64_t looks = count ? (count + LOOK_FILES - 1) / LOOK_FILES : 1;
    atomic_store_explicit(&folder->looks, (unsigned)looks, memory_order_relaxed); /* pushed by the mutex */
    for (uint64_t i = 1; i < looks; i++) {
        uint64_t first = i * LOOK_FILES;
        if (!job_push(scan, folder, first, count - first < LOOK_FILES ? count - first : LOOK_FILES)) return;
    }
    files_look(scan, folder, descriptor, 0, count < LOOK_FILES ? count : LOOK_FILES);
}

static void job_do(scan_state *scan, const scan_job *job)
{
    scan_folder *folder = job->folder;
    int descriptor = folder_open(scan, folder);
    if (descriptor < 0) {
        bool vanished = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
        if (vanished && folder->parent && !job->count) {
            folder->absent = true;
            return;
        }
        scan_fail(scan, FBY_EIO, folder, "can't open this folder: %s", fby_errno_text(errno));
        return;
    }
    if (job->count) {
        files_look(scan, folder, descriptor, job->first, job->count);
    } else {
        folder_list(scan, folder, descriptor);
    }
    close(descriptor);
}

static void scan_run(void *argument)
{
    scan_state *scan = argument;

    pthread_mutex_lock(&scan->mutex);
    for (;;) {
        while (!scan->status && !scan->jobs && scan->busy) pthread_cond_wait(&scan->changed, &scan->mutex);
        if (scan->status || !scan->jobs) break;

        scan_job *taken = scan->jobs;
        scan->jobs = taken->next;
        scan->busy++;
        pthread_mutex_unlock(&scan->mutex);

        job_do(scan, taken);
        free(taken);

        pthread_mutex_lock(&scan->mutex);
        scan->busy--;
        if (!scan->busy && !scan->jobs) pthread_cond_broadcast(&scan->changed);
    }
    pthread_mutex_unlock(&scan->mutex);
}

static int classes_compare(const void *a, const void *b)
{
    const scan_folder *const *one = a, *const *other = b;
    return strcmp((*one)->path, (*other)->path);
}

/* torchvision walks class by class, and sorts a class's folders by their whole path: "a-b" stands between "a"
 * and "a/c". The root comes first. */
static int folders_compare(const void *a, const void *b)
{
    const scan_folder *one = *(const scan_folder *const *)a, *other = *(const scan_folder *const *)b;
    if (!one->class || !other->class) return (one->class != NULL) - (other->class != NULL);
    if (one->class != other->class) return one->class->label < other->class->label ? -1 : 1;
    return strcmp(one->path, other->path);
}

static int index_build(scan_state *scan, fby_index *out, scan_folder **sorted, int64_t checked,
                       fby_error *error)
{
    fby_index_counts counts = {0};
    uint64_t present = 0, left_out = 0;

    for (scan_folder *at = scan->folders; at; at = at->next) {
        if (!at->absent) sorted[present++] = at;
    }

    /* Classes first: the order of all others depends on their labels. */
    uint64_t classes = 0;
    for (uint64_t i = 0; i < present; i++) {
        scan_folder *at = sorted[i];
        if (at->class != at) continue;
        sorted[i] = sorted[classes];
        sorted[classes++] = at;
    }
    if (!classes) {
        scan_fail(
            scan, FBY_EINVAL, NULL,
            "holds no class folders: expected one folder of pictures for each class, ROOT/CLASS/picture.jpg");
        return scan->status;
    }
    qsort(sorted, classes, sizeof(void *), classes_compare);
    for (uint64_t i = 0; i < classes; i++) sorted[i]->label = (uint32_t)i;
    qsort(sorted, present, sizeof(void *), folders_compare);

    counts.classes = classes;
    counts.folders = present;
    for (uint64_t i = 0; i < present; i++) {
        const fby_listing *listing = &sorted[i]->listing;
        size_t path_bytes = strlen(sorted[i]->path) + 1;
        counts.string_bytes += path_bytes + (sorted[i] == sorted[i]->class ? path_bytes : 0);
        counts.samples += listing->pictures;
        left_out += atomic_load_explicit(&listing->left_out, memory_order_relaxed);
        for (uint64_t k = 0; k < listing->count; k++) {
            if (listing->entries[k].kind != FBY_ENTRY_PICTURE) continue;
            counts.string_bytes += path_bytes + strlen(fby_listing_name(listing, k)) + 1;
        }
    }

    fby_index_builder builder;
    int status = fby_index_builder_begin(&builder, FBY_DATASET_FOLDER, scan->path, &counts, error);
    if (status) return status;
    for (uint64_t i = 0; i < present; i++) {
        if (sorted[i] == sorted[i]->class) fby_index_builder_class(&builder, sorted[i]->path);
    }
    for (uint64_t i = 0; i < present; i++) {
        const scan_folder *at = sorted[i];
        fby_index_builder_folder(&builder, at->path, &at->stamp, fby_listing_digest(&at->listing));
        for (uint64_t k = 0; k < at->listing.count; k++) {
            const fby_listing_entry *entry = &at->listing.entries[k];
            if (entry->kind != FBY_ENTRY_PICTURE) continue;
            fby_index_builder_sample(&builder, at->path, fby_listing_name(&at->listing, k), entry->size,
                                     at->class->label);
        }
    }
    fby_index_builder_finish(&builder, out, checked, left_out, NULL);
    return FBY_OK;
}

int fby_folder_scan(fby_index *out, int root, const char *path, uint32_t threads, fby_progress *progress,
                    fby_error *error)
{
    scan_state scan = {.root = root, .path = path, .progress = progress};
    int64_t checked = time(NULL);
    scan_folder **sorted = NULL;
    int status;

    pthread_mutex_init(&scan.mutex, NULL);
    pthread_cond_init(&scan.changed, NULL);
    if (folder_push(&scan, NULL, "")) fby_parallel_run(threads, scan_run, &scan);

    status = scan.status;
    if (!status) {
        sorted = malloc((scan.folder_count + 1) * sizeof(void *));
        status = sorted ? index_build(&scan, out, sorted, checked, &scan.error)
                        : fby_fail(&scan.error, FBY_ENOMEM, "no memory to index %lu folders",
                                   (unsigned long)scan.folder_count);
    }
    if (status && error) *error = scan.error;

    free(sorted);
    for (scan_job *next, *at = scan.jobs; at; at = next) {
        next = at->next;
        free(at);
    }
    for (scan_folder *next, *at = scan.folders; at; at = next) {
        next = at->next;
        fby_listing_free(&at->listing);
        free(at);
    }
    pthread_cond_destroy(&scan.changed);
    pthread_mutex_destroy(&scan.mutex);
    return status;
}
