/* Regions: sealed memfds that two processes map. See layout.h for what is in them.
 *
 * The creator's order is fixed: memfd_create, ftruncate, mmap read-write, mbind, populate
 * (MADV_POPULATE_WRITE, so that a shortage is an error here and never a SIGBUS later), write the header, then
 * seal. After sealing no process but the creator, through its existing mapping, can write a segment or a down
 * region; nobody can grow or shrink any region.
 *
 * Thread safety: a region is plain data of its owner; different regions are independent. */
#ifndef FBY_RINGBUF_REGION_H
#define FBY_RINGBUF_REGION_H

#include <forebay/error.h>
#include <stdbool.h>

#include "ringbuf/layout.h"

typedef struct fby_region {
    void *base;
    uint64_t bytes;
    int fd; /* owned; -1 once given away */
    bool writable;
} fby_region;

/* Creates, populates and maps a region of `bytes` (rounded up to pages) with its header written, not yet
 * sealed. `node` binds its pages to a NUMA node, -1 leaves them to the kernel. FBY_ENOMEM names the bytes. */
int fby_region_create(fby_region *out, fby_region_kind kind, uint64_t bytes, int node, fby_error *error);

/* Forbids what clients must never do: resizing for all kinds, writing too for segments and down regions. */
int fby_region_seal(fby_region *region, fby_error *error);

/* Maps a region received from a peer; takes ownership of `fd` in every case. Refuses a descriptor that isn't
 * sealed as its kind demands, or whose size, magic, version or layout hash differ from ours (both are named).
 * The mapping is MADV_DONTFORK. Only an up region is mapped writable. */
int fby_region_map(fby_region *out, int fd, fby_region_kind kind, fby_error *error);

/* Unmaps and closes; a zeroed or already closed region is fine. */
void fby_region_close(fby_region *region);

/* --- segments ---------------------------------------------------------------------------------------- */

typedef struct fby_segment_shape {
    uint32_t segment, first_block, blocks, capacity;
    uint64_t sample_bytes;  /* bytes of a sample of fixed shape; 0: variable */
    uint64_t payload_bytes; /* variable samples: payload budget of a block */
    uint32_t dtype, dimensions;
    uint32_t shape[FBY_MAX_RANK];
} fby_segment_shape;

/* Bytes that a segment of this shape takes, or 0 where that overflows. Samples of fixed shape are contiguous
 * (stride = sample_bytes), so that a whole block is one tensor; each block starts at FBY_PAYLOAD_ALIGN. */
uint64_t fby_segment_bytes(const fby_segment_shape *shape);

/* Creates a segment region and writes its header and block table; seal it next. */
int fby_segment_create(fby_region *out, const fby_segment_shape *shape, int node, fby_error *error);

/* Checks every offset of a mapped segment against its size: after this, the accessors below stay inside it
 * for any block < blocks and sample < capacity. */
int fby_segment_check(const fby_region *region, fby_error *error);

static inline const fby_segment_header *fby_segment_head(const fby_region *region)
{
    return (const fby_segment_header *)region->base;
}

/* `index` is the block's number less first_block. */
static inline fby_block_meta *fby_block_meta_at(const fby_region *region, uint32_t index)
{
    const fby_segment_header *head = fby_segment_head(region);
    return (fby_block_meta *)((uint8_t *)region->base + head->meta_offset + index * head->meta_stride);
}

static inline fby_sample_meta *fby_sample_meta_at(fby_block_meta *block, uint32_t sample)
{
    return (fby_sample_meta *)(block + 1) + sample;
}

static inline void *fby_block_payload(const fby_region *region, uint32_t index)
{
    const fby_segment_header *head = fby_segment_head(region);
    return (uint8_t *)region->base + head->payload_offset + index * head->payload_stride;
}

#endif
