#include "ringbuf/layout.h"

/* FNV-1a over 64-bit numbers: the hash must be a constant of the layout on every compiler, no more. */
static uint64_t mix(uint64_t hash, uint64_t number)
{
    for (int byte = 0; byte < 8; byte++) {
        hash ^= number >> (8 * byte) & 0xff;
        hash *= 0x100000001b3ULL;
    }
    return hash;
}

#define SIZE(Type)         sizeof(Type)
#define FIELD(Type, Field) offsetof(Type, Field), sizeof(((Type *)0)->Field)

uint64_t fby_layout_hash(void)
{
    static const uint64_t numbers[] = {
        FBY_LAYOUT_VERSION,
        FBY_CACHE_PAIR,
        FBY_PAGE,
        FBY_PAYLOAD_ALIGN,
        FBY_TAIL_SLACK,
        FBY_MAX_RANK,
        FBY_REGION_MAGIC,
        FBY_REGION_SEGMENT,
        FBY_REGION_DOWN,
        FBY_REGION_UP,

        SIZE(fby_region_header),
        FIELD(fby_region_header, magic),
        FIELD(fby_region_header, version),
        FIELD(fby_region_header, kind),
        FIELD(fby_region_header, layout_hash),
        FIELD(fby_region_header, bytes),
        FIELD(fby_region_header, words),

        SIZE(fby_segment_header),
        FIELD(fby_segment_header, region),
        FIELD(fby_segment_header, segment),
        FIELD(fby_segment_header, first_block),
        FIELD(fby_segment_header, blocks),
        FIELD(fby_segment_header, capacity),
        FIELD(fby_segment_header, meta_offset),
        FIELD(fby_segment_header, meta_stride),
        FIELD(fby_segment_header, payload_offset),
        FIELD(fby_segment_header, payload_stride),
        FIELD(fby_segment_header, sample_stride),
        FIELD(fby_segment_header, dtype),
        FIELD(fby_segment_header, dimensions),
        FIELD(fby_segment_header, shape),
        FIELD(fby_segment_header, reserved),

        SIZE(fby_sample_meta),
        FIELD(fby_sample_meta, id),
        FIELD(fby_sample_meta, label),
        FIELD(fby_sample_meta, flags),
        FIELD(fby_sample_meta, dimensions),
        FIELD(fby_sample_meta, offset),
        FIELD(fby_sample_meta, bytes),
        FIELD(fby_sample_meta, shape),
        FIELD(fby_sample_meta, reserved),

        SIZE(fby_block_meta),
        FIELD(fby_block_meta, block),
        FIELD(fby_block_meta, generation),
        FIELD(fby_block_meta, count),
        FIELD(fby_block_meta, reserved0),
        FIELD(fby_block_meta, reserved),

        SIZE(fby_ring_entry),
        FIELD(fby_ring_entry, block),
        FIELD(fby_ring_entry, generation),
        FIELD(fby_ring_entry, run),

        SIZE(fby_down_words),
        FIELD(fby_down_words, region),
        FIELD(fby_down_words, tail),
        FIELD(fby_down_words, visits),
        FIELD(fby_down_words, parked),
        FIELD(fby_down_words, capacity),
        FIELD(fby_down_words, gone),
        FIELD(fby_down_words, end),

        SIZE(fby_up_words),
        FIELD(fby_up_words, region),
        FIELD(fby_up_words, waiting),
        FIELD(fby_up_words, waited_ns),
        FIELD(fby_up_words, return_tail),
        FIELD(fby_up_words, head),
    };

    uint64_t hash = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) hash = mix(hash, numbers[i]);
    return hash;
}
