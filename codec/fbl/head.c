#include "codec/fbl/head.h"

#include <string.h>

/* How a palette tile gives its colours. */
enum { COLOURS_OWN = 0, COLOURS_SHARED = 1, COLOURS_MIXED = 2 };

static uint64_t load64(const uint8_t *at)
{
    return fbl_load32(at) | (uint64_t)fbl_load32(at + 4) << 32;
}

static bool rans_read(const fbl_file *file, const fbl_tables *tables, fby_fbl_rans *rans)
{
    fby_fbl_coded *coded = &rans->coded;
    size_t head = 4 + (size_t)8 * file->channels, states = (size_t)4 * FBY_LANES;

    if ((size_t)(coded->end - coded->bytes) < head + states) return false;
    coded->minus_green = fbl_load32(coded->bytes);
    for (uint32_t plane = 0; plane < file->channels; plane++) {
        if (!(tables->present >> plane & 1)) return false;
        rans->set[plane] = &tables->set[plane];
        rans->predictor[plane][0] = fbl_load32(coded->bytes + 4 + (size_t)plane * 8);
        rans->predictor[plane][1] = fbl_load32(coded->bytes + 8 + (size_t)plane * 8);
    }
    coded->bytes += head;
    coded->shape = fby_fbl_rans_shape(coded->shape.width, coded->shape.height);
    return true;
}

static bool pack_read(const fbl_file *file, fby_fbl_pack *pack)
{
    fby_fbl_coded *coded = &pack->coded;
    size_t head = 8 + (size_t)16 * file->channels;
    uint32_t widest = file->bits == 8 ? 8 : 16;

    coded->shape = fby_fbl_pack_shape(coded->shape.width, coded->shape.height);
    size_t codes = fby_fbl_pack_codes(&coded->shape, file->channels, file->bits);
    if ((size_t)(coded->end - coded->bytes) < head + codes) return false;
    coded->minus_green = fbl_load32(coded->bytes);
    for (uint32_t plane = 0; plane < file->channels; plane++) {
        pack->left_out[plane] = coded->bytes[4 + plane];
        if (pack->left_out[plane] > widest) return false;
        pack->predictor[plane][0] = load64(coded->bytes + 8 + (size_t)plane * 16);
        pack->predictor[plane][1] = load64(coded->bytes + 16 + (size_t)plane * 16);
    }
    coded->bytes += head;
    return true;
}

/* Bytes of a place in the picture's palette. */
static size_t reference_bytes(uint32_t shared)
{
    return shared > 256 ? 2 : 1;
}

static bool colours_read(const fbl_file *file, const fbl_tables *tables, fby_fbl_palette *palette,
                         uint32_t how, uint8_t *colour)
{
    fby_fbl_coded *coded = &palette->coded;
    const size_t pixel = fbl_pixel_bytes(file);
    const uint8_t *flags = coded->bytes;
    size_t flag_bytes = how == COLOURS_MIXED ? (palette->colours + 7) / 8 : 0;

    if ((size_t)(coded->end - coded->bytes) < flag_bytes) return false;
    coded->bytes += flag_bytes;
    for (uint32_t i = 0; i < palette->colours; i++, colour += pixel) {
        bool shared = how == COLOURS_MIXED ? flags[i / 8] >> i % 8 & 1 : how == COLOURS_SHARED;
        size_t bytes = shared ? reference_bytes(tables->colours) : pixel;
        if ((size_t)(coded->end - coded->bytes) < bytes) return false;
        if (shared) {
            uint32_t place = coded->bytes[0] | (bytes == 2 ? (uint32_t)coded->bytes[1] << 8 : 0);
            if (place >= tables->colours) return false;
            memcpy(colour, tables->colour + place * pixel, pixel);
        } else {
            fbl_samples_copy(file, coded->bytes, file->channels, colour);
        }
        coded->bytes += bytes;
    }
    return true;
}

static bool palette_read(const fbl_file *file, const fbl_tables *tables, const uint8_t *tile, fbl_job *job)
{
    fby_fbl_palette *palette = &job->as.palette;
    fby_fbl_coded *coded = &palette->coded;

    if (!(tables->present >> FBL_PALETTE_SET & 1) || coded->end - coded->bytes < 4) return false;
    palette->colours = coded->bytes[0];
    palette->colour = job->colour;
    palette->set = &tables->set[FBL_PALETTE_SET];
    palette->low = NULL;
    uint32_t how = coded->bytes[1];
    if (palette->colours > FBY_FBL_COLOURS || how > COLOURS_MIXED) return false;
    if (coded->bytes[2] || coded->bytes[3] || (!palette->colours && how)) return false;
    coded->bytes += 4;
    if (!palette->colours) {
        if (!(tables->present >> FBL_LOW_SET & 1)) return false;
        palette->colours = tables->colours;
        palette->colour = tables->colour;
        palette->low = &tables->set[FBL_LOW_SET];
    } else if (!colours_read(file, tables, palette, how, job->colour)) {
        return false;
    }
    size_t head = ((size_t)(coded->bytes - tile) + 3) & ~(size_t)3;
    if ((size_t)(coded->end - tile) < head + (size_t)4 * FBY_FBL_STATES) return false;
    coded->bytes = tile + head;
    coded->shape = fby_fbl_rans_shape(coded->shape.width, coded->shape.height);
    return true;
}

bool fbl_head_read(const fbl_file *file, const fbl_tables *tables, const fbl_tile *tile, const uint8_t *bytes,
                   const fby_fbl_place *place, fbl_job *job)
{
    fby_fbl_coded *coded = &job->as.rans.coded;
    bool good = false;

    job->mode = tile->mode;
    *coded = (fby_fbl_coded){
        .shape = {.width = tile->width, .height = tile->height},
        .channels = file->channels,
        .bits = file->bits,
        .bytes = bytes,
        .end = bytes + tile->bytes,
        .place = *place,
    };
    if (tile->mode == FBY_FBL_MODE_RANS) good = rans_read(file, tables, &job->as.rans);
    if (tile->mode == FBY_FBL_MODE_PACK) good = pack_read(file, &job->as.pack);
    if (tile->mode == FBY_FBL_MODE_PALETTE) good = palette_read(file, tables, bytes, job);
    return good && !(coded->minus_green & ~(file->channels >= 3 ? 6u : 0u));
}

size_t fbl_rans_head_write(const fby_fbl_work *work, uint8_t *out)
{
    fbl_store32(out, work->minus_green);
    for (uint32_t plane = 0; plane < work->channels; plane++) {
        fbl_store32(out + 4 + (size_t)plane * 8, (uint32_t)work->predictor[plane][0]);
        fbl_store32(out + 8 + (size_t)plane * 8, (uint32_t)work->predictor[plane][1]);
    }
    return 4 + (size_t)8 * work->channels;
}

size_t fbl_pack_head_write(const fby_fbl_work *work, uint8_t *out)
{
    memset(out, 0, 8);
    fbl_store32(out, work->minus_green);
    for (uint32_t plane = 0; plane < work->channels; plane++) {
        out[4 + plane] = (uint8_t)work->left_out[plane];
        for (uint32_t bit = 0; bit < 2; bit++) {
            uint8_t *at = out + 8 + (size_t)plane * 16 + (size_t)bit * 8;
            fbl_store32(at, (uint32_t)work->predictor[plane][bit]);
            fbl_store32(at + 4, (uint32_t)(work->predictor[plane][bit] >> 32));
        }
    }
    return 8 + (size_t)16 * work->channels;
}

size_t fbl_palette_head_write(const fbl_file *file, uint32_t shared, const uint8_t *colour, uint32_t colours,
                              const int32_t *reference, uint8_t *out)
{
    const size_t pixel = fbl_pixel_bytes(file);
    uint32_t known = 0;
    for (uint32_t i = 0; i < colours; i++) known += reference[i] >= 0;
    uint32_t how = known && known == colours ? COLOURS_SHARED : known ? COLOURS_MIXED : COLOURS_OWN;
    uint8_t *flags = out + 4, *at = flags;

    fbl_store32(out, colours | how << 8);
    if (how == COLOURS_MIXED) {
        at += (colours + 7) / 8;
        memset(flags, 0, (size_t)(at - flags));
    }
    for (uint32_t i = 0; i < colours; i++, colour += pixel) {
        if (reference[i] < 0) {
            fbl_samples_copy(file, colour, file->channels, at);
            at += pixel;
            continue;
        }
        if (how == COLOURS_MIXED) flags[i / 8] |= (uint8_t)(1u << i % 8);
        *at++ = (uint8_t)reference[i];
        if (reference_bytes(shared) == 2) *at++ = (uint8_t)(reference[i] >> 8);
    }
    while ((at - out) % 4) *at++ = 0;
    return (size_t)(at - out);
}
