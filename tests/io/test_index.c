/* The format: what the builder writes is accepted, and whatever else is accepted is within bounds. */
#include "io/index_builder.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static fby_index index_make(void)
{
    fby_index_builder builder;
    fby_index index;
    fby_index_counts counts = {.samples = 3, .folders = 2, .classes = 2};
    counts.string_bytes = sizeof "cat" + sizeof "dog" + sizeof "" + sizeof "cat" + sizeof "cat/1.jpg" +
                          sizeof "cat/2.jpg" + sizeof "1.jpg";
    fby_index_stamp stamp = {.seconds = 5, .inode = 7};
    fby_index_stamp list = {.seconds = 9, .size = 100};

    cr_assert_eq(fby_index_builder_begin(&builder, FBY_DATASET_LIST, "/root/list", &counts, NULL), FBY_OK);
    fby_index_builder_class(&builder, "cat");
    fby_index_builder_class(&builder, "dog");
    fby_index_builder_folder(&builder, "", &stamp, 1);
    fby_index_builder_folder(&builder, "cat", &stamp, 2);
    fby_index_builder_sample(&builder, "cat", "1.jpg", 10, 0);
    fby_index_builder_sample(&builder, "cat", "2.jpg", 30, 0);
    fby_index_builder_sample(&builder, "", "1.jpg", 20, 1);
    fby_index_builder_finish(&builder, &index, 1234, 4, &list);
    return index;
}

/* Reads all that an index holds. */
static uint64_t index_walk(const fby_index *index)
{
    uint64_t sum = strlen(fby_index_string(index, index->header->root));
    for (uint64_t i = 0; i < index->header->classes; i++)
        sum += strlen(fby_index_string(index, index->classes[i]));
    for (uint64_t i = 0; i < index->header->folders; i++) {
        sum += strlen(fby_index_string(index, index->folders[i].path));
    }
    for (uint64_t i = 0; i < index->header->samples; i++) {
        const fby_index_sample *sample = &index->samples[i];
        sum += strlen(fby_index_string(index, sample->path));
        cr_assert_leq(sample->size, index->header->largest);
        if (index->header->classes) {
            cr_assert(sample->label >= 0 && sample->label < (int64_t)index->header->classes);
        }
    }
    return sum;
}

Test(index, what_is_built_is_accepted)
{
    fby_index built = index_make(), read;
    const char *why;
    cr_assert(fby_index_check(&read, built.header, built.header->bytes, &why), "%s", why);
    cr_assert_null(read.mapping);
    cr_assert_eq(read.header->samples, 3);
    cr_assert_eq(read.header->largest, 30);
    cr_assert_eq(read.header->checked, 1234);
    cr_assert_eq(read.header->left_out, 4);
    cr_assert_eq(read.header->list.size, 100);
    cr_assert_str_eq(fby_index_string(&read, read.header->root), "/root/list");
    cr_assert_str_eq(fby_index_string(&read, read.samples[1].path), "cat/2.jpg");
    cr_assert_str_eq(fby_index_string(&read, read.samples[2].path), "1.jpg");
    cr_assert_str_eq(fby_index_string(&read, read.classes[1]), "dog");
    cr_assert_str_eq(fby_index_string(&read, read.folders[1].path), "cat");
    cr_assert_eq(read.folders[1].listing, 2);
    cr_assert_eq(index_walk(&read), 10 + 6 + 3 + 9 + 9 + 5);
    fby_index_close(&built);
    cr_assert_null(built.header);
}

Test(index, the_fingerprint_is_this)
{
    /* It stands in saved states: a change of the rule is a change of the format. */
    fby_index built = index_make();
    cr_assert_eq(built.header->fingerprint_high, UINT64_C(0xb15a2da0127f77b3), "%016lx",
                 (unsigned long)built.header->fingerprint_high);
    cr_assert_eq(built.header->fingerprint_low, UINT64_C(0xe487fe152bb5da3a), "%016lx",
                 (unsigned long)built.header->fingerprint_low);
    fby_index_close(&built);
}

Test(index, counts_that_would_wrap_round_are_refused)
{
    cr_assert_eq(fby_index_bytes(UINT64_MAX, 0, 0, 1), 0);
    cr_assert_eq(fby_index_bytes(UINT64_MAX / 24 + 1, 0, 0, 1), 0);
    cr_assert_eq(fby_index_bytes(0, UINT64_MAX / 48 + 1, 0, 1), 0);
    cr_assert_eq(fby_index_bytes(0, 0, UINT64_C(1) << 33, 1), 0);
    cr_assert_eq(fby_index_bytes(0, 0, 0, UINT64_MAX), 0);
    cr_assert_eq(fby_index_bytes(1, 1, 1, 1), 144 + 24 + 48 + 8 + 1);
}

/* With the checksum made right, only the checks of counts, offsets and labels stand between. The block lies
 * at the end of its memory, so that a sanitizer sees a byte too far. */
Test(index, random_changes_are_refused_or_harmless)
{
    fby_index built = index_make(), read;
    const uint64_t bytes = built.header->bytes;
    uint64_t seed = (uint64_t)time(NULL), accepted = 0;
    cr_log_info("seed %lu", (unsigned long)seed);

    for (unsigned round = 0; round < 200000; round++) {
        uint64_t x = seed + round * 0x9e3779b97f4a7c15;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x = (x ^ x >> 27) * 0x94d049bb133111eb;
        x ^= x >> 31;
        uint64_t size = x % 8 ? bytes : sizeof *built.header + (x >> 8) % (bytes - sizeof *built.header + 1);
        uint8_t *block = malloc(size);
        memcpy(block, built.header, size);
        for (unsigned change = 0; change < 1 + (x >> 16) % 3; change++) {
            uint64_t at = (x >> (20 + change * 8)) % size;
            block[at] = x >> 60 & 1 ? (uint8_t)(x >> 40) : block[at] ^ (1u << (x >> 50 & 7));
        }
        fby_index_seal(block, size);
        if (fby_index_check(&read, block, size, NULL)) {
            index_walk(&read);
            accepted++;
        } else {
            cr_assert_null(read.header);
        }
        free(block);
    }
    cr_assert_gt(accepted, 1000, "too few get as far as the records: seed %lu", (unsigned long)seed);
    fby_index_close(&built);
}

Test(index, what_is_wrong_is_said)
{
    fby_index built = index_make(), read;
    const uint64_t bytes = built.header->bytes;
    uint8_t *block = malloc(bytes);
    fby_index_header *header = (fby_index_header *)(void *)block;
    fby_index_sample *samples = (fby_index_sample *)(header + 1);
    const char *why;

#define REFUSED(Change, Said)                                                                                \
    memcpy(block, built.header, bytes);                                                                      \
    Change;                                                                                                  \
    fby_index_seal(block, bytes);                                                                            \
    cr_assert(!fby_index_check(&read, block, bytes, &why));                                                  \
    cr_assert_str_eq(why, Said)

    REFUSED(header->magic++, "not an index");
    REFUSED(header->version++, "another version");
    REFUSED(header->samples++, "counts don't fit its size");
    REFUSED(header->kind = 9, "of an unknown kind");
    REFUSED(header->root = header->string_bytes, "without a root");
    REFUSED(header->largest--, "largest file isn't");
    REFUSED(block[bytes - 1] = 'x', "last string without an end");
    REFUSED(samples[0].path = header->string_bytes, "path out of bounds, or empty");
    REFUSED(samples[0].size = UINT64_MAX, "size out of bounds");
    REFUSED(samples[0].label = 2, "label out of bounds");
    REFUSED(samples[0].label = -1, "label out of bounds");
#undef REFUSED

    memcpy(block, built.header, bytes);
    block[bytes - 3] ^= 1;
    cr_assert(!fby_index_check(&read, block, bytes, &why));
    cr_assert_str_eq(why, "checksum wrong");
    cr_assert(!fby_index_check(&read, block, 10, &why));
    cr_assert_str_eq(why, "shorter than a header");
    free(block);
    fby_index_close(&built);
}

Test(index, stamps_of_the_last_two_seconds_are_not_trusted)
{
    fby_index_stamp stamp = {.seconds = 1000};
    cr_assert(fby_index_stamp_racy(&stamp, 999));
    cr_assert(fby_index_stamp_racy(&stamp, 1002));
    cr_assert(!fby_index_stamp_racy(&stamp, 1003));
    stamp.seconds = INT64_MAX;
    cr_assert(fby_index_stamp_racy(&stamp, 1003));
    stamp.seconds = INT64_MIN;
    cr_assert(!fby_index_stamp_racy(&stamp, 1003));
    cr_assert(fby_index_stamp_racy(&stamp, INT64_MIN));
}
