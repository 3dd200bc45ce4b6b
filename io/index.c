#include "io/index.h"

#include "io/hash.h"

#include <string.h>
#include <sys/mman.h>

enum { RACY_SECONDS = 2 };

uint64_t fby_index_bytes(uint64_t samples, uint64_t folders, uint64_t classes, uint64_t string_bytes)
{
    const uint64_t most = UINT64_C(1) << 48; /* of each part: their sum can't wrap round */
    if (samples > most / sizeof(fby_index_sample) || folders > most / sizeof(fby_index_folder) ||
        classes > UINT32_MAX || string_bytes > most) {
        return 0;
    }
    return sizeof(fby_index_header) + samples * sizeof(fby_index_sample) +
           folders * sizeof(fby_index_folder) + classes * sizeof(uint64_t) + string_bytes;
}

uint64_t fby_index_checksum(const fby_index_header *header, const void *body, uint64_t body_bytes)
{
    fby_index_header plain = *header;
    plain.checksum = XXH3_64bits(body, body_bytes);
    return XXH3_64bits(&plain, sizeof plain);
}

void fby_index_seal(void *block, uint64_t bytes)
{
    fby_index_header *header = block;
    header->bytes = bytes;
    header->checksum = fby_index_checksum(header, header + 1, bytes - sizeof *header);
}

void fby_index_point(fby_index *index, const void *block)
{
    index->header = block;
    index->samples = (const fby_index_sample *)(index->header + 1);
    index->folders = (const fby_index_folder *)(index->samples + index->header->samples);
    index->classes = (const uint64_t *)(index->folders + index->header->folders);
    index->strings = (const char *)(index->classes + index->header->classes);
}

static const char *header_wrong(const fby_index_header *header, uint64_t bytes)
{
    if (bytes < sizeof *header) return "shorter than a header";
    if (header->magic != INDEX_MAGIC) return "not an index";
    if (header->version != INDEX_VERSION || header->header_bytes != sizeof *header) return "another version";
    if (header->bytes != bytes) return "cut short, or longer than it says";
    if (fby_index_bytes(header->samples, header->folders, header->classes, header->string_bytes) != bytes) {
        return "counts don't fit its size";
    }
    if (header->kind != FBY_DATASET_FOLDER && header->kind != FBY_DATASET_LIST) return "of an unknown kind";
    if (header->checksum != fby_index_checksum(header, header + 1, bytes - sizeof *header))
        return "checksum wrong";
    if (!header->string_bytes || header->root >= header->string_bytes) return "without a root";
    return NULL;
}

static const char *records_wrong(const fby_index *index)
{
    const fby_index_header *header = index->header;
    const uint64_t string_bytes = header->string_bytes;
    uint64_t largest = 0;

    if (index->strings[string_bytes - 1]) return "last string without an end";
    for (uint64_t i = 0; i < header->classes; i++) {
        if (index->classes[i] >= string_bytes) return "class name out of bounds";
    }
    for (uint64_t i = 0; i < header->folders; i++) {
        if (index->folders[i].path >= string_bytes) return "folder's path out of bounds";
    }
    for (uint64_t i = 0; i < header->samples; i++) {
        const fby_index_sample *sample = &index->samples[i];
        if (sample->path >= string_bytes || !index->strings[sample->path])
            return "path out of bounds, or empty";
        if (sample->size > INT64_MAX) return "size out of bounds";
        if (header->classes && (sample->label < 0 || sample->label >= header->classes))
            return "label out of bounds";
        if (sample->size > largest) largest = sample->size;
    }
    if (largest != header->largest) return "largest file isn't";
    return NULL;
}

bool fby_index_check(fby_index *out, const void *block, uint64_t bytes, const char **why)
{
    const char *wrong = header_wrong(block, bytes);
    *out = (fby_index){0};
    if (!wrong) {
        fby_index_point(out, block);
        wrong = records_wrong(out);
    }
    if (wrong) *out = (fby_index){0};
    if (why) *why = wrong;
    return !wrong;
}

void fby_index_close(fby_index *index)
{
    if (index->mapping) munmap(index->mapping, index->header->bytes);
    *index = (fby_index){0};
}

fby_index_stamp fby_index_stamp_of(const struct stat *status, bool with_size)
{
    return (fby_index_stamp){
        .seconds = status->st_mtim.tv_sec,
        .nanoseconds = (uint64_t)status->st_mtim.tv_nsec,
        .inode = status->st_ino,
        .size = with_size ? (uint64_t)status->st_size : 0,
    };
}

bool fby_index_stamp_equal(const fby_index_stamp *a, const fby_index_stamp *b)
{
    return a->seconds == b->seconds && a->nanoseconds == b->nanoseconds && a->inode == b->inode &&
           a->size == b->size;
}

bool fby_index_stamp_racy(const fby_index_stamp *stamp, int64_t checked)
{
    return checked < RACY_SECONDS || stamp->seconds >= checked - RACY_SECONDS;
}
