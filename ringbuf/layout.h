/* What two processes share: the layout of every mapped region, u32 and u64 only.
 *
 * A task's client maps three kinds of region (memfds, sent by SCM_RIGHTS):
 *
 *   kind      who writes                what is in it
 *   segment   server; sealed            header | block table | metadata of every block | payload of every
 * block down      server; sealed            header | words (tail, parked, state) | delivery ring up client
 * (server re-checks) header | words (waiting, return tail, delivery head) | return ring
 *
 * Everything in `up` is hostile to the server: it copies a word once, checks it, then uses the copy.
 * Words of different writers stand 128 bytes apart. FBY_LAYOUT_HASH changes whenever this file's structures
 * do; each header carries it, and a mismatch is refused naming both. */
#ifndef FBY_RINGBUF_LAYOUT_H
#define FBY_RINGBUF_LAYOUT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FBY_LAYOUT_VERSION = 1,
    FBY_CACHE_PAIR = 128, /* two lines: the adjacent-line prefetcher pulls them together */
    FBY_PAGE = 4096,
    FBY_PAYLOAD_ALIGN = 4096,
    FBY_TAIL_SLACK = 64, /* readable bytes past the last payload byte of a segment */
    FBY_MAX_RANK = 4     /* dimensions of a sample */
};

#define FBY_REGION_MAGIC 0x79616265726f66ULL /* "forebay" */

typedef enum fby_region_kind {
    FBY_REGION_SEGMENT = 1,
    FBY_REGION_DOWN = 2,
    FBY_REGION_UP = 3
} fby_region_kind;

/* First bytes of every region. */
typedef struct fby_region_header {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    uint64_t layout_hash;
    uint64_t bytes;    /* of the whole region; equals fstat's size */
    uint64_t words[4]; /* segment: fby_segment_header follows instead of use */
} fby_region_header;
static_assert(sizeof(fby_region_header) == 64, "layout");
static_assert(offsetof(fby_region_header, layout_hash) == 16, "layout");
static_assert(offsetof(fby_region_header, bytes) == 24, "layout");

/* How a segment is divided. All offsets are from the segment's start. */
typedef struct fby_segment_header {
    fby_region_header region;
    uint32_t segment;     /* number of the segment within its server */
    uint32_t first_block; /* block numbers are unique across a server's segments */
    uint32_t blocks;
    uint32_t capacity;    /* samples a block can hold */
    uint64_t meta_offset; /* fby_block_meta of block i: meta_offset + i * meta_stride */
    uint64_t meta_stride;
    uint64_t payload_offset; /* payload of block i: payload_offset + i * payload_stride */
    uint64_t payload_stride;
    uint64_t sample_stride; /* bytes between samples in a block's payload; 0 where lengths vary */
    uint32_t dtype;         /* fby_dtype */
    uint32_t dimensions;    /* of a sample's shape, outermost first */
    uint32_t shape[FBY_MAX_RANK];
    uint64_t reserved[2];
} fby_segment_header;
static_assert(sizeof(fby_segment_header) == 160, "layout");

/* Metadata of one sample of a block. */
typedef struct fby_sample_meta {
    uint64_t id;
    uint64_t label; /* two's complement of an int64 */
    uint32_t flags; /* fby_sample_flag */
    uint32_t dimensions;
    uint64_t offset; /* from the block's payload */
    uint64_t bytes;
    uint32_t shape[FBY_MAX_RANK];
    uint64_t reserved;
} fby_sample_meta;
static_assert(sizeof(fby_sample_meta) == 64, "layout");

/* Metadata of one block: this header, then `capacity` fby_sample_meta. Written once per generation. */
typedef struct fby_block_meta {
    uint32_t block;
    uint32_t generation;
    uint32_t count;
    uint32_t reserved0;
    uint64_t reserved[6];
} fby_block_meta;
static_assert(sizeof(fby_block_meta) == 64, "layout");

/* One entry of a delivery ring: a run of samples within a block, packed (four to a line: how many lines cross
 * between two cores is what a delivery costs). A batch is one or more of these; the last carries
 * FBY_DESCRIPTOR_LAST. Epoch and batch are the client's to count, by the flags. spsc.h has the unpacked form.
 */
typedef struct fby_ring_entry {
    uint32_t block; /* unique among the segments that a task maps */
    uint32_t generation;
    uint64_t run; /* first: 16 bits from bit 0 | count: 16 | flags: 8 | number of the batch in its epoch,
                     modulo 2^24: 24 */
} fby_ring_entry;
static_assert(sizeof(fby_ring_entry) == 16, "layout");

typedef enum fby_descriptor_flag {
    FBY_DESCRIPTOR_LAST = 1,         /* last extent of its batch */
    FBY_DESCRIPTOR_EPOCH_LAST = 2,   /* of the last batch of its epoch */
    FBY_DESCRIPTOR_ERROR = 4,        /* no block: the task has failed; ask the server why */
    FBY_DESCRIPTOR_END = 8,          /* no block: the last epoch is over */
    FBY_DESCRIPTOR_EPOCH_FIRST = 16, /* of the first batch that is delivered of its epoch */
    FBY_DESCRIPTOR_SAMPLE_SHIFT = 5  /* from here on: the flags that all its samples have (fby_sample_flag) */
} fby_descriptor_flag;

/* The words of a down region, and its ring at FBY_PAGE. Written by the server alone. */
typedef struct fby_down_words {
    fby_region_header region;
    uint8_t pad0[FBY_CACHE_PAIR - sizeof(fby_region_header)];
    uint32_t tail;   /* free-running count of published descriptors; the client's futex word */
    uint32_t visits; /* visits of all ids that were drawn until then are below this */
    uint8_t pad1[FBY_CACHE_PAIR - 8];
    uint32_t parked; /* 1 while the conductor sleeps or is about to: a return then writes the eventfd */
    uint8_t pad2[FBY_CACHE_PAIR - 4];
    uint32_t capacity; /* entries; a power of two */
    uint32_t gone; /* counts segments that are unmapped by the server: a client that sees it change asks which
                      are left */
    uint32_t
        end; /* 1 + an epoch that won't be whole, since another rank has left; 0: none. The reason was sent
                before. The epoch's last batch, and all beyond, are nobody's, though they lie in the ring */
    uint8_t pad3[FBY_CACHE_PAIR - 12];
} fby_down_words;
static_assert(offsetof(fby_down_words, tail) == 128, "layout");
static_assert(offsetof(fby_down_words, parked) == 256, "layout");
static_assert(offsetof(fby_down_words, capacity) == 384, "layout");
static_assert(sizeof(fby_down_words) == 512, "layout");

/* The words of an up region, and its ring of u64 (generation << 32 | block) at FBY_PAGE. Written by the
 * client. */
typedef struct fby_up_words {
    fby_region_header region;
    uint8_t pad0[FBY_CACHE_PAIR - sizeof(fby_region_header)];
    uint32_t waiting; /* 1 while the client sleeps on down.tail or is about to */
    uint32_t reserved;
    uint64_t waited_ns; /* what it spent there, all in all; for show */
    uint8_t pad1[FBY_CACHE_PAIR - 16];
    uint32_t return_tail; /* free-running count of returned blocks */
    uint8_t pad2[FBY_CACHE_PAIR - 4];
    uint32_t head; /* free-running count of descriptors taken from the delivery ring */
    uint8_t pad3[FBY_CACHE_PAIR - 4];
} fby_up_words;
static_assert(offsetof(fby_up_words, waiting) == 128, "layout");
static_assert(offsetof(fby_up_words, waited_ns) == 136, "layout");
static_assert(offsetof(fby_up_words, return_tail) == 256, "layout");
static_assert(offsetof(fby_up_words, head) == 384, "layout");
static_assert(sizeof(fby_up_words) == 512, "layout");

/* A hash of every size and offset above (layout.c computes it; a golden test holds it). */
uint64_t fby_layout_hash(void);

#endif
