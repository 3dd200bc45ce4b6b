/* WebP by libwebp: of an animation its first frame, on a canvas of zeros as Pillow has it. Alpha is decoded,
 * since a file whose alpha is broken is bad, and dropped. libwebp's cropping doesn't give the pixels of a
 * whole decode along the cut, so frames are decoded whole. */
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "codec/exif.h"
#include "codec/format.h"

typedef struct webp_state {
    WebPDemuxer *demuxer; /* of the open picture */
} webp_state;

static uint32_t little32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t chunk_orientation(WebPDemuxer *demuxer, const char *name,
                                  uint32_t (*read)(const uint8_t *bytes, size_t length))
{
    WebPChunkIterator chunk;
    uint32_t orientation = 0;

    if (WebPDemuxGetChunk(demuxer, name, 1, &chunk)) orientation = read(chunk.chunk.bytes, chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
    return orientation;
}

static fby_reason picture_open(fby_decoder *d)
{
    static const char first_chunks[][5] = {"VP8 ", "VP8L", "VP8X"};
    webp_state *w = d->state[FBY_FORMAT_WEBP];
    WebPData data = {d->bytes, d->length};
    WebPBitstreamFeatures features;
    bool known = false;

    if (!w) w = d->state[FBY_FORMAT_WEBP] = calloc(1, sizeof *w);
    if (!w) return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for a WebP decoder");
    if (d->length < 20 || little32(d->bytes + 4) > d->length - 8) {
        return fby_decode_fail(d, FBY_REASON_TRUNCATED, "the file is shorter than its header says");
    }
    for (size_t i = 0; i < sizeof first_chunks / sizeof *first_chunks; i++) {
        known |= !memcmp(d->bytes + 12, first_chunks[i], 4);
    }
    if (known) w->demuxer = WebPDemux(&data);
    if (!w->demuxer) return fby_decode_fail(d, FBY_REASON_CORRUPT, "libwebp: the file's chunks are invalid");

    bool alpha = WebPGetFeatures(d->bytes, d->length, &features) != VP8_STATUS_OK || features.has_alpha;
    d->info.w = WebPDemuxGetI(w->demuxer, WEBP_FF_CANVAS_WIDTH);
    d->info.h = WebPDemuxGetI(w->demuxer, WEBP_FF_CANVAS_HEIGHT);
    d->info.frames = WebPDemuxGetI(w->demuxer, WEBP_FF_FRAME_COUNT);
    d->info.bits = 8;
    d->info.channels = alpha ? 4 : 3;

    uint32_t orientation = chunk_orientation(w->demuxer, "EXIF", fby_exif_orientation);
    if (!orientation) orientation = chunk_orientation(w->demuxer, "XMP ", fby_xmp_orientation);
    if (orientation) d->info.orientation = orientation;
    return FBY_REASON_NONE;
}

static fby_reason fail_by_status(fby_decoder *d, VP8StatusCode status)
{
    static const char *const names[] = {
        [VP8_STATUS_OUT_OF_MEMORY] = "out of memory",
        [VP8_STATUS_INVALID_PARAM] = "invalid parameter",
        [VP8_STATUS_BITSTREAM_ERROR] = "the bitstream is broken",
        [VP8_STATUS_UNSUPPORTED_FEATURE] = "unsupported feature",
        [VP8_STATUS_SUSPENDED] = "the data ends early",
        [VP8_STATUS_USER_ABORT] = "aborted",
        [VP8_STATUS_NOT_ENOUGH_DATA] = "the data ends early",
    };
    fby_reason reason = FBY_REASON_CORRUPT;

    if (status == VP8_STATUS_OUT_OF_MEMORY)
        reason = FBY_REASON_MEMORY;
    else if (status == VP8_STATUS_UNSUPPORTED_FEATURE)
        reason = FBY_REASON_UNSUPPORTED;
    else if (status == VP8_STATUS_SUSPENDED || status == VP8_STATUS_NOT_ENOUGH_DATA)
        reason = FBY_REASON_TRUNCATED;
    return fby_decode_fail(d, reason, "libwebp: %s", names[status]);
}

static fby_reason decode_frame(fby_decoder *d, const WebPIterator *frame, size_t channels)
{
    WebPDecoderConfig config;
    size_t stride = (size_t)frame->width * channels;

    if (!WebPInitDecoderConfig(&config))
        return fby_decode_fail(d, FBY_REASON_UNSUPPORTED, "libwebp: wrong version");
    if (stride > INT32_MAX || !fby_buffer_reserve(&d->scratch[0], stride * (size_t)frame->height)) {
        return fby_decode_fail(d, FBY_REASON_MEMORY, "no memory for %d x %d pixels", frame->width,
                               frame->height);
    }
    config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = d->scratch[0].bytes;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = stride * (size_t)frame->height;

    VP8StatusCode status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    WebPFreeDecBuffer(&config.output);
    return status == VP8_STATUS_OK ? FBY_REASON_NONE : fail_by_status(d, status);
}

/* Copies what of the frame lies within the region, with its alpha or without; the rest of the region is
 * zeros. */
static void place_frame(const fby_decoder *d, const WebPIterator *frame, size_t channels, size_t kept,
                        const fby_region_of *region, uint8_t *out, size_t stride)
{
    for (uint32_t y = 0; y < region->h; y++, out += stride) {
        int64_t frame_y = (int64_t)region->y + y - frame->y_offset;
        int64_t from = (int64_t)region->x - frame->x_offset;
        int64_t left = from < 0 ? -from : 0;
        int64_t right = frame->width - from < region->w ? frame->width - from : region->w;

        if (frame_y < 0 || frame_y >= frame->height || left >= right) {
            memset(out, 0, (size_t)region->w * kept);
            continue;
        }
        const uint8_t *in =
            d->scratch[0].bytes + ((size_t)frame_y * (size_t)frame->width + (size_t)(from + left)) * channels;
        memset(out, 0, (size_t)left * kept);
        memset(out + (size_t)right * kept, 0, (size_t)(region->w - right) * kept);
        if (channels == kept) {
            memcpy(out + (size_t)left * kept, in, (size_t)(right - left) * kept);
        } else {
            for (int64_t x = left; x < right; x++, in += 4) memcpy(out + x * 3, in, 3);
        }
    }
}

static fby_reason read_region(fby_decoder *d, size_t kept, const fby_region_of *region, uint8_t *out,
                              size_t stride)
{
    webp_state *w = d->state[FBY_FORMAT_WEBP];
    WebPIterator frame;
    fby_reason reason;

    if (WebPDemuxGetFrame(w->demuxer, 1, &frame)) {
        size_t channels = frame.has_alpha || kept == 4 ? 4 : 3;
        reason = decode_frame(d, &frame, channels);
        if (!reason) place_frame(d, &frame, channels, kept, region, out, stride);
    } else {
        reason = fby_decode_fail(d, FBY_REASON_CORRUPT, "libwebp: the file has no frame");
    }
    WebPDemuxReleaseIterator(&frame);
    return reason;
}

static fby_reason picture_region(fby_decoder *d, const fby_region_of *region, uint8_t *out, size_t stride)
{
    return read_region(d, 3, region, out, stride);
}

static void picture_form(const fby_decoder *d, fby_original *out)
{
    out->channels = d->info.channels;
}

static fby_reason picture_original(fby_decoder *d, fby_original *original, uint8_t *out, size_t stride)
{
    const fby_region_of whole = {0, 0, d->file_w, d->file_h};

    return read_region(d, original->channels, &whole, out, stride);
}

static fby_reason picture_metadata(fby_decoder *d, fby_metadata *out)
{
    static const char *const names[FBY_METADATA_KINDS] = {
        [FBY_METADATA_EXIF] = "EXIF", [FBY_METADATA_ICC] = "ICCP", [FBY_METADATA_XMP] = "XMP "};
    static const char start[] = "Exif\0";
    const webp_state *w = d->state[FBY_FORMAT_WEBP];
    fby_reason reason = FBY_REASON_NONE;

    for (int kind = 0; kind < FBY_METADATA_KINDS && !reason; kind++) {
        WebPChunkIterator chunk;
        if (WebPDemuxGetChunk(w->demuxer, names[kind], 1, &chunk)) {
            const uint8_t *bytes = chunk.chunk.bytes;
            size_t length = chunk.chunk.size;
            if (kind == FBY_METADATA_EXIF && length >= sizeof start && !memcmp(bytes, start, sizeof start)) {
                bytes += sizeof start;
                length -= sizeof start;
            }
            reason = fby_metadata_add(d, out, (fby_metadata_kind)kind, bytes, length);
        }
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    return reason;
}

static void picture_close(fby_decoder *d)
{
    webp_state *w = d->state[FBY_FORMAT_WEBP];

    if (!w) return;
    WebPDemuxDelete(w->demuxer);
    w->demuxer = NULL;
}

static void picture_destroy(fby_decoder *d)
{
    picture_close(d);
    free(d->state[FBY_FORMAT_WEBP]);
    d->state[FBY_FORMAT_WEBP] = NULL;
}

static size_t picture_bytes(const fby_decoder *d)
{
    (void)d;
    return sizeof(webp_state);
}

const fby_codec fby_codec_webp = {
    .format = FBY_FORMAT_WEBP,
    .blames_the_file = true,
    .open = picture_open,
    .region = picture_region,
    .form = picture_form,
    .original = picture_original,
    .metadata = picture_metadata,
    .close = picture_close,
    .destroy = picture_destroy,
    .bytes = picture_bytes,
};
