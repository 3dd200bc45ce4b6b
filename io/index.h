/* The index of a data set: one block of memory, the same in a file as in use.
 *
 *   header | samples | folders | classes | strings
 *
 * Little-endian. Strings are NUL-terminated bytes, referred to by their offset into the strings' part, whose
 * last byte is NUL: so an offset within it is a string within it. Nothing is read from a block before
 * fby_index_check has found every count, offset and label of it within bounds and its checksum right. */
#ifndef FBY_IO_INDEX_H
#define FBY_IO_INDEX_H

#include "io/dataset.h"

#include <assert.h>
#include <stddef.h>
#include <sys/stat.h>

#define INDEX_MAGIC UINT64_C(0x31584449594246) /* "FBYIDX1", read as little-endian */
enum { INDEX_VERSION = 1 };

/* When a folder or list was last changed, and which one it is. A device number is no part of it: some
 * filesystems get another one at every mount. */
typedef struct fby_index_stamp {
    int64_t seconds;
    uint64_t nanoseconds;
    uint64_t inode;
    uint64_t size; /* of a list; 0 for a folder */
} fby_index_stamp;

typedef struct fby_index_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t bytes;    /* of the whole block */
    uint64_t checksum; /* XXH3 64 of the whole block, this field being 0 */
    uint32_t kind;     /* fby_dataset_kind */
    uint32_t classes;
    uint64_t samples;
    uint64_t folders;
    uint64_t string_bytes;
    uint64_t root;    /* string: absolute path of the folder or list */
    uint64_t largest; /* bytes of the largest file */
    uint64_t left_out;
    uint64_t fingerprint_high, fingerprint_low;
    int64_t checked; /* CLOCK_REALTIME seconds before anything that it holds was looked at */
    fby_index_stamp list;
} fby_index_header;

typedef struct fby_index_sample {
    uint64_t path; /* string, relative to the data set's directory, or absolute */
    uint64_t size;
    int64_t label;
} fby_index_sample;

/* A folder that was walked; path "" is the root. */
typedef struct fby_index_folder {
    uint64_t path;    /* string */
    uint64_t listing; /* digest of what it held: fby_listing_digest */
    fby_index_stamp stamp;
} fby_index_folder;

static_assert(sizeof(fby_index_header) == 144, "part of the format");
static_assert(sizeof(fby_index_sample) == 24, "part of the format");
static_assert(sizeof(fby_index_folder) == 48, "part of the format");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

/* A block in use: pointers into it, valid as long as the mapping. Read-only, any thread. */
typedef struct fby_index {
    const fby_index_header *header;
    const fby_index_sample *samples;
    const fby_index_folder *folders;
    const uint64_t *classes; /* strings: names in label order */
    const char *strings;
    void *mapping; /* of header->bytes bytes, to be unmapped by fby_index_close; NULL: the caller's memory */
} fby_index;

/* Bytes of a block with these counts; 0: more than there can be. */
uint64_t fby_index_bytes(uint64_t samples, uint64_t folders, uint64_t classes, uint64_t string_bytes);

/* Sets size and checksum in the header of a block of at least a header. */
void fby_index_seal(void *block, uint64_t bytes);
uint64_t fby_index_checksum(const fby_index_header *header, const void *body, uint64_t body_bytes);

/* Fills `out` from a block (8-byte aligned) if it holds an index, without taking it over; false: it doesn't,
 * and *why says in a few words what is wrong. Any bytes will do. */
bool fby_index_check(fby_index *out, const void *block, uint64_t bytes, const char **why);

/* Sets the pointers into a block that is known to be right. */
void fby_index_point(fby_index *index, const void *block);

void fby_index_close(fby_index *index);

static inline const char *fby_index_string(const fby_index *index, uint64_t offset)
{
    return index->strings + offset;
}

fby_index_stamp fby_index_stamp_of(const struct stat *status, bool with_size);
bool fby_index_stamp_equal(const fby_index_stamp *a, const fby_index_stamp *b);

/* Whether what bears this stamp may have changed after it was looked at without its time showing it: clocks
 * are coarse, so what changed within 2 s of the look, or in the future, isn't trusted. */
bool fby_index_stamp_racy(const fby_index_stamp *stamp, int64_t checked);

#endif
