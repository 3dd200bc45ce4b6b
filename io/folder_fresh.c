/* Threads take folders by a counter, a run at a time, and stop at the first that changed. */
#include "io/folder_scan.h"
#include "io/listing.h"
#include "io/parallel.h"

#include <fcntl.h>
#include <unistd.h>

enum { RUN_FOLDERS = 64 };

typedef struct fresh_check {
    const fby_index *index;
    int root;
    atomic_uint_least64_t next; /* relaxed, all three: results are read after the threads were joined */
    atomic_bool stale, looked;
} fresh_check;

/* Lists a folder again. */
static bool folder_same(int descriptor, bool only_folders, uint64_t digest)
{
    fby_listing listing = {.only_folders = only_folders};
    uint64_t failed;
    bool same = !fby_listing_read(&listing, descriptor) &&
                !fby_listing_resolve(&listing, descriptor, 0, listing.count, &failed);
    if (same) {
        fby_listing_finish(&listing);
        same = fby_listing_digest(&listing) == digest;
    }
    fby_listing_free(&listing);
    return same;
}

static bool folder_check(fresh_check *check, const fby_index_folder *folder)
{
    const char *path = fby_index_string(check->index, folder->path);
    bool is_root = !path[0];
    struct stat status;
    if (is_root) path = ".";

    if (fstatat(check->root, path, &status, 0) || !S_ISDIR(status.st_mode)) return false;
    fby_index_stamp stamp = fby_index_stamp_of(&status, false);
    if (!fby_index_stamp_equal(&stamp, &folder->stamp)) return false;
    if (!fby_index_stamp_racy(&stamp, check->index->header->checked)) return true;

    atomic_store_explicit(&check->looked, true, memory_order_relaxed);
    int descriptor = openat(check->root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return false;
    bool same = folder_same(descriptor, is_root, folder->listing);
    close(descriptor);
    return same;
}

static void freshness_run(void *argument)
{
    fresh_check *check = argument;
    const uint64_t count = check->index->header->folders;

    while (!atomic_load_explicit(&check->stale, memory_order_relaxed)) {
        uint64_t first = atomic_fetch_add_explicit(&check->next, RUN_FOLDERS, memory_order_relaxed);
        if (first >= count) break;
        for (uint64_t i = first; i < count && i < first + RUN_FOLDERS; i++) {
            if (folder_check(check, &check->index->folders[i])) continue;
            atomic_store_explicit(&check->stale, true, memory_order_relaxed);
            return;
        }
    }
}

fby_freshness fby_folder_fresh(const fby_index *index, int root, uint32_t threads)
{
    fresh_check check = {.index = index, .root = root};
    uint64_t runs = index->header->folders / RUN_FOLDERS + 1;

    fby_parallel_run(runs < threads ? (uint32_t)runs : threads, freshness_run, &check);
    if (atomic_load_explicit(&check.stale, memory_order_relaxed)) return FBY_STALE;
    return atomic_load_explicit(&check.looked, memory_order_relaxed) ? FBY_FRESH_AFTER_LOOK : FBY_FRESH;
}
