#include "ringbuf/region.h"

#include <string.h>

enum { SEGMENT_META_ALIGN = FBY_CACHE_PAIR };

/* Rounds up; true on overflow. */
static bool align_up(uint64_t number, uint64_t alignment, uint64_t *out)
{
    if (__builtin_add_overflow(number, alignment - 1, out)) return true;
    *out -= *out % alignment;
    return false;
}

/* Where everything is, and the bytes of the whole; false where that overflows or the shape is empty. */
static bool segment_divide(const fby_segment_shape *shape, fby_segment_header *head, uint64_t *bytes)
{
    uint64_t payload = shape->payload_bytes;
    if (shape->sample_bytes > 0 && __builtin_mul_overflow(shape->sample_bytes, shape->capacity, &payload))
        return false;
    if (shape->blocks == 0 || shape->capacity == 0 || payload == 0 || shape->dimensions > FBY_MAX_RANK)
        return false;
    if (shape->first_block > UINT32_MAX - shape->blocks) return false;

    *head = (fby_segment_header){
        .segment = shape->segment,
        .first_block = shape->first_block,
        .blocks = shape->blocks,
        .capacity = shape->capacity,
        .sample_stride = shape->sample_bytes,
        .dtype = shape->dtype,
        .dimensions = shape->dimensions,
    };
    memcpy(head->shape, shape->shape, sizeof head->shape);

    uint64_t meta = sizeof(fby_block_meta) + (uint64_t)shape->capacity * sizeof(fby_sample_meta);
    uint64_t metas, payloads, end;
    if (align_up(sizeof *head, SEGMENT_META_ALIGN, &head->meta_offset)) return false;
    if (align_up(meta, SEGMENT_META_ALIGN, &head->meta_stride)) return false;
    if (__builtin_mul_overflow(head->meta_stride, shape->blocks, &metas)) return false;
    if (__builtin_add_overflow(head->meta_offset, metas, &end)) return false;
    if (align_up(end, FBY_PAYLOAD_ALIGN, &head->payload_offset)) return false;
    if (align_up(payload, FBY_PAYLOAD_ALIGN, &head->payload_stride)) return false;
    if (__builtin_mul_overflow(head->payload_stride, shape->blocks, &payloads)) return false;
    if (__builtin_add_overflow(head->payload_offset, payloads, &end)) return false;
    if (__builtin_add_overflow(end, FBY_TAIL_SLACK, &end)) return false;
    return !align_up(end, FBY_PAGE, bytes) && *bytes <= (uint64_t)INT64_MAX - FBY_PAGE;
}

uint64_t fby_segment_bytes(const fby_segment_shape *shape)
{
    fby_segment_header head;
    uint64_t bytes;
    return segment_divide(shape, &head, &bytes) ? bytes : 0;
}

int fby_segment_create(fby_region *out, const fby_segment_shape *shape, int node, fby_error *error)
{
    *out = (fby_region){.fd = -1};
    fby_segment_header head;
    uint64_t bytes;
    if (!segment_divide(shape, &head, &bytes))
        return fby_fail(
            error, FBY_EINVAL,
            "a segment of %u blocks from number %u, of %u samples of %llu bytes each (%llu a block "
            "where lengths vary), of %u dimensions, is empty or too large",
            shape->blocks, shape->first_block, shape->capacity, (unsigned long long)shape->sample_bytes,
            (unsigned long long)shape->payload_bytes, shape->dimensions);

    int status = fby_region_create(out, FBY_REGION_SEGMENT, bytes, node, error);
    if (status != 0) return status;

    fby_segment_header *written = out->base;
    head.region = written->region;
    *written = head;
    for (uint32_t i = 0; i < shape->blocks; i++) fby_block_meta_at(out, i)->block = shape->first_block + i;
    return 0;
}

/* Whether `count` things of `stride` bytes from `offset` end at or before `limit`. */
static bool fits(uint64_t offset, uint64_t count, uint64_t stride, uint64_t limit)
{
    uint64_t bytes, end;
    if (__builtin_mul_overflow(count, stride, &bytes)) return false;
    if (__builtin_add_overflow(offset, bytes, &end)) return false;
    return end <= limit;
}

int fby_segment_check(const fby_region *region, fby_error *error)
{
    const fby_segment_header *head = fby_segment_head(region);
    if (region->bytes < sizeof *head || head->region.kind != FBY_REGION_SEGMENT)
        return fby_fail(error, FBY_EPROTO, "a region of kind %u and %llu bytes is no segment",
                        head->region.kind, (unsigned long long)region->bytes);
    if (head->blocks == 0 || head->capacity == 0 || head->first_block > UINT32_MAX - head->blocks)
        return fby_fail(error, FBY_EPROTO, "segment %u claims %u blocks of %u samples from block %u",
                        head->segment, head->blocks, head->capacity, head->first_block);
    if (head->dimensions > FBY_MAX_RANK)
        return fby_fail(error, FBY_EPROTO, "segment %u claims samples of %u dimensions; %d are possible",
                        head->segment, head->dimensions, FBY_MAX_RANK);

    uint64_t meta = sizeof(fby_block_meta) + (uint64_t)head->capacity * sizeof(fby_sample_meta);
    if (head->meta_offset < sizeof *head || head->meta_offset % _Alignof(fby_block_meta) != 0 ||
        head->meta_stride < meta || head->meta_stride % _Alignof(fby_block_meta) != 0 ||
        !fits(head->meta_offset, head->blocks, head->meta_stride, head->payload_offset))
        return fby_fail(
            error, FBY_EPROTO,
            "segment %u puts %u metadata of %llu bytes at %llu, before payload at %llu: they don't "
            "fit",
            head->segment, head->blocks, (unsigned long long)head->meta_stride,
            (unsigned long long)head->meta_offset, (unsigned long long)head->payload_offset);

    if (head->payload_offset % FBY_PAYLOAD_ALIGN != 0 || head->payload_stride % FBY_PAYLOAD_ALIGN != 0 ||
        head->payload_stride == 0 || region->bytes < FBY_TAIL_SLACK ||
        !fits(head->payload_offset, head->blocks, head->payload_stride, region->bytes - FBY_TAIL_SLACK) ||
        !fits(0, head->capacity, head->sample_stride, head->payload_stride))
        return fby_fail(
            error, FBY_EPROTO,
            "segment %u puts %u payloads of %llu bytes (%u samples of %llu) at %llu: they don't fit "
            "into its %llu bytes",
            head->segment, head->blocks, (unsigned long long)head->payload_stride, head->capacity,
            (unsigned long long)head->sample_stride, (unsigned long long)head->payload_offset,
            (unsigned long long)region->bytes);
    return 0;
}
