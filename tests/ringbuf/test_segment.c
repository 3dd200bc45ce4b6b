#include <string.h>

#include "ringbuf/region.h"
#include "tests/ringbuf/random.h"
#include "tests/support/test.h"

static const fby_segment_shape pictures = {
    .segment = 7,
    .first_block = 100,
    .blocks = 5,
    .capacity = 3,
    .sample_bytes = 3 * 50 * 40,
    .dtype = 2,
    .dimensions = 3,
    .shape = {3, 50, 40},
};

Test(segment, blocks_are_apart_and_inside)
{
    fby_region region;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_segment_create(&region, &pictures, -1, &error), 0, "%s", error.text);
    cr_assert_eq(region.bytes, fby_segment_bytes(&pictures));
    cr_assert_eq(fby_segment_check(&region, &error), 0, "%s", error.text);

    const fby_segment_header *head = fby_segment_head(&region);
    cr_assert_eq(head->segment, 7);
    cr_assert_eq(head->first_block, 100);
    cr_assert_eq(head->sample_stride, 6000);
    cr_assert_eq(head->dtype, 2);
    cr_assert_eq(head->dimensions, 3);
    cr_assert_eq(head->shape[1], 50);

    /* Fill everything, each block with its own byte: an overlap would show. */
    for (uint32_t i = 0; i < pictures.blocks; i++) {
        fby_block_meta *meta = fby_block_meta_at(&region, i);
        cr_assert_eq(meta->block, 100 + i);
        cr_assert_eq(meta->generation, 0);
        for (uint32_t sample = 0; sample < pictures.capacity; sample++)
            memset(fby_sample_meta_at(meta, sample), (int)(0x10 + i), sizeof(fby_sample_meta));
        cr_assert_eq((uintptr_t)fby_block_payload(&region, i) % FBY_PAYLOAD_ALIGN, 0);
        memset(fby_block_payload(&region, i), (int)(0x80 + i), pictures.capacity * pictures.sample_bytes);
    }
    for (uint32_t i = 0; i < pictures.blocks; i++) {
        fby_block_meta *meta = fby_block_meta_at(&region, i);
        cr_assert_eq(meta->block, 100 + i);
        const uint8_t *sample_bytes = (const uint8_t *)fby_sample_meta_at(meta, 0);
        for (size_t byte = 0; byte < pictures.capacity * sizeof(fby_sample_meta); byte++)
            cr_assert_eq(sample_bytes[byte], 0x10 + i);
        const uint8_t *payload = fby_block_payload(&region, i);
        for (size_t byte = 0; byte < pictures.capacity * pictures.sample_bytes; byte++)
            cr_assert_eq(payload[byte], 0x80 + i);
    }
    const uint8_t *end = (uint8_t *)fby_block_payload(&region, pictures.blocks - 1) +
                         pictures.capacity * pictures.sample_bytes;
    cr_assert_leq(end + FBY_TAIL_SLACK, (uint8_t *)region.base + region.bytes);
    cr_assert_eq(fby_segment_check(&region, &error), 0, "%s", error.text);
    fby_region_close(&region);
}

Test(segment, whole_page_payload_still_has_slack)
{
    fby_segment_shape shape = {.blocks = 1, .capacity = 1, .sample_bytes = FBY_PAGE};
    fby_region region;
    cr_assert_eq(fby_segment_create(&region, &shape, -1, NULL), 0);
    const uint8_t *end = (uint8_t *)fby_block_payload(&region, 0) + FBY_PAGE;
    cr_assert_leq(end + FBY_TAIL_SLACK, (uint8_t *)region.base + region.bytes);
    fby_region_close(&region);
}

Test(segment, variable_samples_have_no_stride)
{
    fby_segment_shape shape = {.blocks = 2, .capacity = 16, .payload_bytes = 100000};
    fby_region region;
    cr_assert_eq(fby_segment_create(&region, &shape, -1, NULL), 0);
    cr_assert_eq(fby_segment_head(&region)->sample_stride, 0);
    cr_assert_geq(fby_segment_head(&region)->payload_stride, 100000);
    cr_assert_eq(fby_segment_check(&region, NULL), 0);
    fby_region_close(&region);
}

Test(segment, impossible_shapes_are_refused)
{
    static const fby_segment_shape shapes[] = {
        {.blocks = 0, .capacity = 1, .sample_bytes = 1},
        {.blocks = 1, .capacity = 0, .sample_bytes = 1},
        {.blocks = 1, .capacity = 1},
        {.blocks = 1, .capacity = 1, .sample_bytes = 1, .dimensions = FBY_MAX_RANK + 1},
        {.blocks = 2, .capacity = 1, .sample_bytes = 1, .first_block = UINT32_MAX - 1},
        {.blocks = 1, .capacity = 2, .sample_bytes = UINT64_MAX / 2 + 1},
        {.blocks = 1, .capacity = 1, .sample_bytes = UINT64_MAX},
        {.blocks = UINT32_MAX, .capacity = UINT32_MAX, .sample_bytes = UINT32_MAX},
        {.blocks = 1, .capacity = 1, .payload_bytes = UINT64_MAX - FBY_PAGE},
        {.blocks = 1u << 31, .capacity = 1, .payload_bytes = UINT64_C(1) << 33},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fby_region region;
        fby_error error = FBY_ERROR_INIT;
        cr_assert_eq(fby_segment_bytes(&shapes[i]), 0, "shape %zu", i);
        cr_assert_eq(fby_segment_create(&region, &shapes[i], -1, &error), FBY_EINVAL, "shape %zu", i);
        cr_assert_null(region.base);
    }
}

/* Random words in a segment's header: whatever fby_segment_check accepts, the accessors stay inside. */
Test(segment, hostile_headers)
{
    const uint64_t seed = 20;
    uint64_t random = seed;
    fby_region region;
    cr_assert_eq(fby_segment_create(&region, &pictures, -1, NULL), 0);
    const fby_segment_header good = *fby_segment_head(&region);
    const uint64_t extremes[] = {0,
                                 1,
                                 8,
                                 63,
                                 64,
                                 127,
                                 128,
                                 4095,
                                 4096,
                                 8192,
                                 UINT32_MAX,
                                 UINT32_MAX - 1,
                                 1ULL << 32,
                                 1ULL << 62,
                                 1ULL << 63,
                                 UINT64_MAX,
                                 UINT64_MAX - 4095,
                                 0 - 8192ULL,
                                 256,
                                 100,
                                 5};
    int refusals = 0;
    for (int round = 0; round < 200000; round++) {
        fby_segment_header *head = region.base;
        *head = good;
        int changes = 1 + (int)random_below(&random, 3);
        for (int change = 0; change < changes; change++) {
            uint64_t value = extremes[random_below(&random, sizeof extremes / sizeof *extremes)];
            if (random_below(&random, 2)) value += random_below(&random, 9000);
            switch (random_below(&random, 8)) {
            case 0:
                head->first_block = (uint32_t)value;
                break;
            case 1:
                head->blocks = (uint32_t)value;
                break;
            case 2:
                head->capacity = (uint32_t)value;
                break;
            case 3:
                head->meta_offset = value;
                break;
            case 4:
                head->meta_stride = value;
                break;
            case 5:
                head->payload_offset = value;
                break;
            case 6:
                head->payload_stride = value;
                break;
            case 7:
                head->sample_stride = value;
                break;
            }
        }
        if (fby_segment_check(&region, NULL) != 0) {
            refusals++;
            continue;
        }
        const uint8_t *base = region.base, *end = base + region.bytes;
        uint32_t last = head->blocks - 1;
        const fby_block_meta *meta = fby_block_meta_at(&region, last);
        const fby_sample_meta *sample = fby_sample_meta_at((fby_block_meta *)meta, head->capacity - 1);
        const uint8_t *payload = fby_block_payload(&region, last);
        cr_assert((const uint8_t *)meta > base && (const uint8_t *)(sample + 1) <= end, "seed %llu round %d",
                  (unsigned long long)seed, round);
        cr_assert(payload > base && payload + head->payload_stride + FBY_TAIL_SLACK <= end,
                  "seed %llu round %d", (unsigned long long)seed, round);
        cr_assert_leq(head->sample_stride * head->capacity, head->payload_stride);
    }
    cr_assert_gt(refusals, 1000);
    *(fby_segment_header *)region.base = good;
    fby_region_close(&region);
}

Test(segment, other_regions_are_no_segments)
{
    fby_region region;
    cr_assert_eq(fby_region_create(&region, FBY_REGION_DOWN, FBY_PAGE, -1, NULL), 0);
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_segment_check(&region, &error), FBY_EPROTO);
    fby_region_close(&region);
}
