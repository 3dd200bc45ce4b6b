#include "tests/codec/jpeg_paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void jpeg_paths_create(jpeg_paths *paths)
{
    *paths = (jpeg_paths){.ours = NULL};
    if (fby_decoder_create(&paths->ours) || fby_decoder_create(&paths->libjpegs)) abort();
}

void jpeg_paths_destroy(jpeg_paths *paths)
{
    fby_decoder_destroy(&paths->ours);
    fby_decoder_destroy(&paths->libjpegs);
}

/* The region's pixels into `out`, in portions of `most` rows. */
static fby_reason decode(fby_decoder *decoder, const fby_region_of *region, uint32_t most, uint8_t *out)
{
    fby_reason reason = fby_decode_begin(decoder, region);

    for (uint32_t count = 1; !reason && count;) {
        const uint8_t *rows;
        size_t stride;

        reason = fby_decode_rows(decoder, &rows, &stride, most, &count);
        for (uint32_t i = 0; !reason && i < count; i++, out += (size_t)region->w * 3)
            memcpy(out, rows + i * stride, (size_t)region->w * 3);
    }
    return reason;
}

static bool verdicts_agree(jpeg_paths *paths, fby_reason ours, fby_reason theirs, const char *of)
{
    const char *our_text = fby_decode_text(paths->ours);
    const char *their_text = fby_decode_text(paths->libjpegs);

    if (ours == theirs && !strcmp(our_text, their_text)) return true;
    snprintf(paths->difference, sizeof paths->difference, "%s: ours %s (%s), libjpeg's %s (%s)", of,
             fby_reason_name(ours), our_text, fby_reason_name(theirs), their_text);
    return false;
}

static bool region_agrees(jpeg_paths *paths, const uint8_t *bytes, size_t length,
                          const fby_decode_options *options, const fby_region_of *wanted, uint32_t most)
{
    const char *of = wanted ? "region" : "whole";
    fby_decode_options alone = *options;
    fby_picture_info info;

    alone.libjpeg_entropy = true;
    fby_reason ours = fby_decode_open(paths->ours, bytes, length, options, &info);
    fby_reason theirs = fby_decode_open(paths->libjpegs, bytes, length, &alone, &info);
    if (!verdicts_agree(paths, ours, theirs, of)) return false;
    if (ours) {
        if (!wanted) paths->bad++;
        return true;
    }

    fby_region_of region = wanted ? *wanted : (fby_region_of){0, 0, info.w, info.h};
    size_t size = (size_t)region.w * region.h * 3;
    uint8_t *our_pixels = calloc(2, size);
    if (!our_pixels) abort();
    uint8_t *their_pixels = our_pixels + size;
    ours = decode(paths->ours, &region, most, our_pixels);
    theirs = decode(paths->libjpegs, &region, most, their_pixels);
    bool agree = verdicts_agree(paths, ours, theirs, of);
    for (size_t i = 0; agree && !ours && i < size; i++) {
        if (our_pixels[i] == their_pixels[i]) continue;
        snprintf(paths->difference, sizeof paths->difference,
                 "%s %u x %u at (%u, %u) of %u x %u: byte %zu is %u, libjpeg's %u", of, region.w, region.h,
                 region.x, region.y, info.w, info.h, i, our_pixels[i], their_pixels[i]);
        agree = false;
    }
    free(our_pixels);
    if (!wanted) *(ours ? &paths->bad : &paths->good) += 1;
    return agree;
}

bool jpeg_paths_agree(jpeg_paths *paths, const uint8_t *bytes, size_t length, uint32_t seed)
{
    fby_decode_options options = {
        .max_pixels = JPEG_PATHS_PIXELS,
        .fast = seed % 8 == 0,
        .exif = seed / 8 % 8 == 0,
        .tolerate_missing_eoi = seed / 64 % 4 == 0,
    };
    fby_picture_info info;

    if (!region_agrees(paths, bytes, length, &options, NULL, 1 + seed / 256 % 20)) return false;
    if (fby_decode_open(paths->ours, bytes, length, &options, &info)) return true;

    seed = seed * 2654435761u + 1;
    fby_region_of region = {.x = seed % info.w, .y = (seed >> 8) % info.h};
    region.w = 1 + (seed >> 4) % (info.w - region.x);
    region.h = 1 + (seed >> 12) % (info.h - region.y);
    return region_agrees(paths, bytes, length, &options, &region, 1 + (seed >> 20) % 20);
}
