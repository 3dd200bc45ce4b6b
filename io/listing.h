/* What one folder holds, of interest to a data set: pictures with their sizes, and folders. */
#ifndef FBY_IO_LISTING_H
#define FBY_IO_LISTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum fby_entry_kind {
    FBY_ENTRY_PICTURE,
    FBY_ENTRY_FOLDER,
    FBY_ENTRY_UNKNOWN, /* a link, or the filesystem doesn't tell: before fby_listing_resolve only */
    FBY_ENTRY_DROPPED  /* neither picture nor folder: goes in fby_listing_finish */
} fby_entry_kind;

typedef struct fby_listing_entry {
    uint64_t name; /* offset into names */
    uint64_t size; /* pictures: bytes */
    fby_entry_kind kind;
} fby_listing_entry;

typedef struct fby_listing {
    fby_listing_entry *entries;
    char *names;
    uint64_t count, room;
    uint64_t name_bytes, name_room;
    uint64_t pictures, folders;     /* after fby_listing_finish */
    atomic_uint_least64_t left_out; /* see fby_dataset_left_out */
    bool only_folders;              /* of a root: its files belong to no class */
} fby_listing;

static inline const char *fby_listing_name(const fby_listing *listing, uint64_t entry)
{
    return listing->names + listing->entries[entry].name;
}

/* Lists an open folder; the descriptor stays the caller's. `listing` is zeroed but for only_folders. 0 or
 * -errno. */
int fby_listing_read(fby_listing *listing, int folder);

/* Looks at entries first … first + count - 1: what they are, following links, and their sizes. Different
 * ranges may be resolved by different threads at once. 0 or -errno, *failed then being the entry. */
int fby_listing_resolve(fby_listing *listing, int folder, uint64_t first, uint64_t count, uint64_t *failed);

/* Drops what is of no interest and sorts by name, as raw bytes. */
void fby_listing_finish(fby_listing *listing);

/* XXH3 64 of a finished listing: names, kinds, sizes, and how many were left out. */
uint64_t fby_listing_digest(const fby_listing *listing);

void fby_listing_free(fby_listing *listing);

#endif
