#include "codec/convert/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <forebay/fbl.h>

#include "codec/convert/shrink.h"
#include "codec/original.h"
#include "kernels/tier.h"

/* Kept from picture to picture, unless it got outsized. */
typedef struct memory {
    uint8_t *bytes;
    size_t capacity;
} memory;

enum { KEPT = 64 << 20, SLACK = 64, MOST_CHUNKS = FBY_METADATA_KINDS + 1 };

struct fby_converter {
    fby_decoder *source, *result;
    fby_fbl_encoder *encoder;
    fby_resampler *resampler;
    memory pixels, small;
    char text[FBY_ERROR_TEXT];
};

static bool memory_reserve(memory *of, size_t bytes)
{
    if (of->capacity >= bytes + SLACK && of->capacity <= KEPT) return true;
    free(of->bytes);
    of->bytes = malloc(bytes + SLACK);
    of->capacity = of->bytes ? bytes + SLACK : 0;
    return of->bytes != NULL;
}

int fby_converter_create(fby_converter **out)
{
    fby_converter *c = *out = calloc(1, sizeof *c);

    if (c && !fby_decoder_create(&c->source) && !fby_decoder_create(&c->result) &&
        !fby_fbl_encoder_create(&c->encoder) && !fby_resampler_create(&c->resampler, fby_tier_best())) {
        return 0;
    }
    fby_converter_destroy(out);
    return -1;
}

void fby_converter_destroy(fby_converter **converter)
{
    fby_converter *c = *converter;

    if (!c) return;
    fby_decoder_destroy(&c->source);
    fby_decoder_destroy(&c->result);
    fby_fbl_encoder_destroy(&c->encoder);
    if (c->resampler) fby_resampler_destroy(&c->resampler);
    free(c->pixels.bytes);
    free(c->small.bytes);
    free(c);
    *converter = NULL;
}

const char *fby_converter_text(const fby_converter *converter)
{
    return converter->text;
}

static fby_reason fail(fby_converter *c, fby_reason reason, const char *text)
{
    snprintf(c->text, sizeof c->text, "%s", text);
    return reason;
}

static fby_reason no_memory(fby_converter *c)
{
    return fail(c, FBY_REASON_MEMORY, "no memory for the picture");
}

/* Shrinks what was decoded; *pixels is then the small picture. */
static fby_reason shrink(fby_converter *c, const fby_convert_options *options, fby_original *original,
                         fby_converted *out, const void **pixels)
{
    fby_shrink of = {.w = out->w, .h = out->h, .channels = original->channels, .bits = original->bits};
    int status;

    *pixels = c->pixels.bytes;
    if (!options->max_side || (of.w <= options->max_side && of.h <= options->max_side))
        return FBY_REASON_NONE;
    fby_shrink_size(of.w, of.h, options->max_side, &of.out_w, &of.out_h);
    if (!memory_reserve(&c->small, (size_t)of.out_w * of.out_h * fby_original_pixel_bytes(original)))
        return no_memory(c);
    if (of.bits == 8)
        status = fby_shrink_bytes(c->resampler, &of, c->pixels.bytes, c->small.bytes);
    else
        status = fby_shrink_words(&of, (const uint16_t *)c->pixels.bytes, (uint16_t *)c->small.bytes);
    if (status) return no_memory(c);
    /* Between two colours of a palette lie others. */
    original->entries = 0;
    out->w = of.out_w;
    out->h = of.out_h;
    *pixels = c->small.bytes;
    return FBY_REASON_NONE;
}

static fby_reason encode(fby_converter *c, const fby_convert_options *options, const fby_original *original,
                         const fby_metadata *metadata, const void *pixels, fby_converted *out)
{
    static const char types[FBY_METADATA_KINDS][5] = {
        [FBY_METADATA_EXIF] = "EXIF", [FBY_METADATA_ICC] = "ICCP", [FBY_METADATA_XMP] = "XMP "};
    fby_fbl_image image = FBY_FBL_IMAGE_INIT;
    fby_fbl_encode_options how = FBY_FBL_ENCODE_OPTIONS_INIT;
    fby_fbl_chunk chunks[MOST_CHUNKS];
    fby_error error = FBY_ERROR_INIT;

    for (int kind = 0; kind < FBY_METADATA_KINDS; kind++) {
        if (!metadata->of[kind].length) continue;
        fby_fbl_chunk *chunk = &chunks[how.chunks++];
        *chunk = (fby_fbl_chunk){.data = metadata->of[kind].bytes, .length = metadata->of[kind].length};
        memcpy(chunk->type, types[kind], sizeof chunk->type);
    }
    if (original->entries) {
        chunks[how.chunks++] = (fby_fbl_chunk){
            {'P', 'L', 'T', 'E'}, original->palette, (size_t)original->entries * original->channels};
    }
    how.chunk = chunks;
    how.level = options->level;
    image.data = pixels;
    image.width = out->w;
    image.height = out->h;
    image.channels = original->channels;
    image.bits = original->bits;
    int reason = fby_fbl_encode(c->encoder, &image, &how, &out->bytes, &out->length, &error);
    if (!reason) return FBY_REASON_NONE;
    /* Neither the picture nor the call can be wrong here: a defect of ours is told as such by its text. */
    fail(c, FBY_REASON_NONE, error.text);
    return reason < FBY_FBL_ARGUMENT ? (fby_reason)reason : FBY_REASON_UNSUPPORTED;
}

/* The encoder compared the pixels; whether metadata turns the picture as the source is turned is left. */
static fby_reason check_turn(fby_converter *c, const fby_converted *out)
{
    const uint32_t wanted = out->source.format == FBY_FORMAT_TIFF ? 1 : out->source.orientation;
    fby_picture_info info;

    fby_reason reason = fby_decode_open(c->result, out->bytes, out->length, NULL, &info);
    if (reason == FBY_REASON_TOO_LARGE) return FBY_REASON_NONE; /* it was read with the same limit */
    if (reason) return fail(c, reason, fby_decode_text(c->result));
    if (info.orientation == wanted) return FBY_REASON_NONE;
    return fail(c, FBY_REASON_UNSUPPORTED,
                "its orientation stands where FBL's metadata doesn't have it: it would be turned otherwise");
}

static fby_reason convert(fby_converter *c, const fby_convert_options *options, fby_metadata *metadata,
                          fby_converted *out)
{
    fby_original original;
    const void *pixels;

    fby_reason reason = fby_original_form(c->source, &original);
    if (!reason) reason = fby_original_metadata(c->source, metadata);
    if (reason) return fail(c, reason, fby_decode_text(c->source));
    if (!memory_reserve(&c->pixels, (size_t)out->w * out->h * fby_original_pixel_bytes(&original)))
        return no_memory(c);
    reason = fby_original_decode(c->source, &original, c->pixels.bytes);
    if (reason) return fail(c, reason, fby_decode_text(c->source));
    reason = shrink(c, options, &original, out, &pixels);
    if (!reason) reason = encode(c, options, &original, metadata, pixels, out);
    return reason ? reason : check_turn(c, out);
}

fby_reason fby_convert(fby_converter *c, const uint8_t *bytes, size_t length,
                       const fby_convert_options *options, fby_converted *out)
{
    fby_metadata metadata = {0};

    *out = (fby_converted){0};
    c->text[0] = 0;
    fby_reason reason = fby_decode_open(c->source, bytes, length, NULL, &out->source);
    if (reason) return fail(c, reason, fby_decode_text(c->source));
    out->w = out->source.w;
    out->h = out->source.h;
    reason = convert(c, options, &metadata, out);
    fby_metadata_free(&metadata);
    return reason;
}
