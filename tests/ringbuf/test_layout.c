#include "ringbuf/layout.h"
#include "tests/support/test.h"

/* The hash is part of the handshake: when it changes, old clients are refused. Change it here knowingly. */
#define GOLDEN_HASH 0xf309a8eff7fea6f2ULL

Test(layout, hash_is_golden)
{
    cr_assert_eq(fby_layout_hash(), GOLDEN_HASH, "the layout's hash is now 0x%016llx",
                 (unsigned long long)fby_layout_hash());
}

Test(layout, offsets_are_golden)
{
    cr_assert_eq(offsetof(fby_region_header, magic), 0);
    cr_assert_eq(offsetof(fby_region_header, version), 8);
    cr_assert_eq(offsetof(fby_region_header, kind), 12);
    cr_assert_eq(offsetof(fby_region_header, layout_hash), 16);
    cr_assert_eq(offsetof(fby_region_header, bytes), 24);
    cr_assert_eq(offsetof(fby_region_header, words), 32);

    cr_assert_eq(offsetof(fby_segment_header, segment), 64);
    cr_assert_eq(offsetof(fby_segment_header, first_block), 68);
    cr_assert_eq(offsetof(fby_segment_header, blocks), 72);
    cr_assert_eq(offsetof(fby_segment_header, capacity), 76);
    cr_assert_eq(offsetof(fby_segment_header, meta_offset), 80);
    cr_assert_eq(offsetof(fby_segment_header, meta_stride), 88);
    cr_assert_eq(offsetof(fby_segment_header, payload_offset), 96);
    cr_assert_eq(offsetof(fby_segment_header, payload_stride), 104);
    cr_assert_eq(offsetof(fby_segment_header, sample_stride), 112);
    cr_assert_eq(offsetof(fby_segment_header, dtype), 120);
    cr_assert_eq(offsetof(fby_segment_header, dimensions), 124);
    cr_assert_eq(offsetof(fby_segment_header, shape), 128);
    cr_assert_eq(offsetof(fby_segment_header, reserved), 144);

    cr_assert_eq(offsetof(fby_sample_meta, id), 0);
    cr_assert_eq(offsetof(fby_sample_meta, label), 8);
    cr_assert_eq(offsetof(fby_sample_meta, flags), 16);
    cr_assert_eq(offsetof(fby_sample_meta, dimensions), 20);
    cr_assert_eq(offsetof(fby_sample_meta, offset), 24);
    cr_assert_eq(offsetof(fby_sample_meta, bytes), 32);
    cr_assert_eq(offsetof(fby_sample_meta, shape), 40);
    cr_assert_eq(offsetof(fby_sample_meta, reserved), 56);

    cr_assert_eq(offsetof(fby_block_meta, block), 0);
    cr_assert_eq(offsetof(fby_block_meta, generation), 4);
    cr_assert_eq(offsetof(fby_block_meta, count), 8);
    cr_assert_eq(offsetof(fby_block_meta, reserved), 16);

    cr_assert_eq(offsetof(fby_ring_entry, block), 0);
    cr_assert_eq(offsetof(fby_ring_entry, generation), 4);
    cr_assert_eq(offsetof(fby_ring_entry, run), 8);

    cr_assert_eq(offsetof(fby_down_words, end), 392);
}

Test(layout, words_of_different_writers_stand_apart)
{
    cr_assert_geq(offsetof(fby_down_words, parked) - offsetof(fby_down_words, tail), FBY_CACHE_PAIR);
    cr_assert_geq(offsetof(fby_up_words, return_tail) - offsetof(fby_up_words, waiting), FBY_CACHE_PAIR);
    cr_assert_geq(offsetof(fby_up_words, head) - offsetof(fby_up_words, return_tail), FBY_CACHE_PAIR);
    cr_assert_leq(sizeof(fby_down_words), FBY_PAGE);
    cr_assert_leq(sizeof(fby_up_words), FBY_PAGE);
}
