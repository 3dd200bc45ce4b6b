#include "io/listing.h"

#include "io/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum ending { ENDING_OTHER, ENDING_PICTURE, ENDING_NO_DECODER } ending;

/* torchvision's IMG_EXTENSIONS, and .gif and .fbl. As there, a name is lower-cased and its end compared, so
 * that
 * `.jpg` alone is a picture's name. */
static ending ending_of(const char *name)
{
    static const struct {
        const char text[6];
        ending means;
    } endings[] = {
        {".jpg", ENDING_PICTURE},    {".jpeg", ENDING_PICTURE},   {".png", ENDING_PICTURE},
        {".tif", ENDING_PICTURE},    {".tiff", ENDING_PICTURE},   {".webp", ENDING_PICTURE},
        {".gif", ENDING_PICTURE},    {".fbl", ENDING_PICTURE},    {".ppm", ENDING_NO_DECODER},
        {".bmp", ENDING_NO_DECODER}, {".pgm", ENDING_NO_DECODER},
    };
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t bytes = strlen(endings[i].text);
        if (length < bytes) continue;
        const char *end = name + length - bytes;
        size_t at = 0;
        while (at < bytes &&
               (end[at] >= 'A' && end[at] <= 'Z' ? end[at] + 32 : end[at]) == endings[i].text[at])
            at++;
        if (at == bytes) return endings[i].means;
    }
    return ENDING_OTHER;
}

static int entry_add(fby_listing *listing, const char *name, fby_entry_kind kind)
{
    size_t bytes = strlen(name) + 1;

    if (listing->count == listing->room) {
        uint64_t room = listing->room ? 2 * listing->room : 64;
        fby_listing_entry *entries = realloc(listing->entries, room * sizeof *entries);
        if (!entries) return -ENOMEM;
        listing->entries = entries;
        listing->room = room;
    }
    if (listing->name_room - listing->name_bytes < bytes) {
        uint64_t room = 2 * listing->name_room + 1024;
        char *names = realloc(listing->names, room);
        if (!names) return -ENOMEM;
        listing->names = names;
        listing->name_room = room;
    }
    memcpy(listing->names + listing->name_bytes, name, bytes);
    listing->entries[listing->count++] = (fby_listing_entry){.name = listing->name_bytes, .kind = kind};
    listing->name_bytes += bytes;
    return 0;
}

/* Counts what has a picture's name and is left out. The counter publishes nothing: relaxed suffices. */
static void left_out_add(fby_listing *listing)
{
    if (!listing->only_folders) atomic_fetch_add_explicit(&listing->left_out, 1, memory_order_relaxed);
}

static int entry_take(fby_listing *listing, const struct dirent *entry)
{
    const char *name = entry->d_name;
    if (!strcmp(name, ".") || !strcmp(name, "..")) return 0;

    switch (entry->d_type) {
    case DT_DIR:
        return entry_add(listing, name, FBY_ENTRY_FOLDER);
    case DT_LNK:
    case DT_UNKNOWN:
        return entry_add(listing, name, FBY_ENTRY_UNKNOWN);
    case DT_REG:
        if (ending_of(name) == ENDING_PICTURE && !listing->only_folders) {
            return entry_add(listing, name, FBY_ENTRY_PICTURE);
        }
        if (ending_of(name) == ENDING_NO_DECODER) left_out_add(listing);
        return 0;
    default:
        if (ending_of(name) != ENDING_OTHER) left_out_add(listing);
        return 0;
    }
}

int fby_listing_read(fby_listing *listing, int folder)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0) return -errno;
    DIR *stream = fdopendir(copy);
    if (!stream) {
        int error = errno;
        close(copy);
        return -error;
    }

    int status = 0;
    while (!status) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) {
            status = -errno;
            break;
        }
        status = entry_take(listing, entry);
    }
    closedir(stream);
    return status;
}

static int entry_resolve(fby_listing *listing, int folder, uint64_t number)
{
    fby_listing_entry *entry = &listing->entries[number];
    const char *name = fby_listing_name(listing, number);
    if (entry->kind == FBY_ENTRY_FOLDER) return 0;

    struct stat status;
    bool link = entry->kind == FBY_ENTRY_UNKNOWN;
    ending means = ending_of(name);
    entry->kind = FBY_ENTRY_DROPPED;
    if (fstatat(folder, name, &status, 0)) {
        /* A link that leads nowhere, or a file that vanished since it was listed. */
        if (errno != ENOENT && errno != ELOOP && errno != ENOTDIR) return -errno;
        if (link && means != ENDING_OTHER) left_out_add(listing);
        return 0;
    }
    if (S_ISDIR(status.st_mode)) {
        entry->kind = FBY_ENTRY_FOLDER;
    } else if (S_ISREG(status.st_mode) && means == ENDING_PICTURE && !listing->only_folders) {
        entry->kind = FBY_ENTRY_PICTURE;
        entry->size = (uint64_t)status.st_size;
    } else if (means != ENDING_OTHER) {
        left_out_add(listing);
    }
    return 0;
}

int fby_listing_resolve(fby_listing *listing, int folder, uint64_t first, uint64_t count, uint64_t *failed)
{
    for (uint64_t i = first; i < first + count; i++) {
        int status = entry_resolve(listing, folder, i);
        if (status) {
            *failed = i;
            return status;
        }
    }
    return 0;
}

static int names_compare(const void *a, const void *b, void *names)
{
    const fby_listing_entry *one = a, *other = b;
    return strcmp((const char *)names + one->name, (const char *)names + other->name);
}

void fby_listing_finish(fby_listing *listing)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < listing->count; i++) {
        if (listing->entries[i].kind == FBY_ENTRY_PICTURE) {
            listing->pictures++;
        } else if (listing->entries[i].kind == FBY_ENTRY_FOLDER) {
            listing->folders++;
        } else {
            continue;
        }
        listing->entries[kept++] = listing->entries[i];
    }
    listing->count = kept;
    if (kept) qsort_r(listing->entries, kept, sizeof listing->entries[0], names_compare, listing->names);
}

uint64_t fby_listing_digest(const fby_listing *listing)
{
    uint64_t left_out = atomic_load_explicit(&listing->left_out, memory_order_relaxed);
    XXH3_state_t state;

    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, &left_out, sizeof left_out);
    for (uint64_t i = 0; i < listing->count; i++) {
        const fby_listing_entry *entry = &listing->entries[i];
        const char *name = fby_listing_name(listing, i);
        uint64_t about[2] = {entry->kind, entry->size};
        XXH3_64bits_update(&state, name, strlen(name) + 1);
        XXH3_64bits_update(&state, about, sizeof about);
    }
    return XXH3_64bits_digest(&state);
}

void fby_listing_free(fby_listing *listing)
{
    free(listing->entries);
    free(listing->names);
    listing->entries = NULL;
    listing->names = NULL;
}
