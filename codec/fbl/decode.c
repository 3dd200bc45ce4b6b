/* Decoding: tiles are shared out to workers, which collect what a kernel takes at once. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "codec/fbl/decode.h"
#include "codec/fbl/head.h"
#include "codec/fbl/parallel.h"
#include "kernels/buffer.h"

enum {
    SHAPES = 4, /* of tiles: whole, cut at the right, at the bottom, at both */
    DEFAULT_MAX_PIXELS = 178956970,
    MOST_WORKERS = 64
};

/* A tile that waits for others of its shape. */
typedef struct waiting {
    fbl_job job;
    fbl_tile tile;
    bool aside; /* decoded to `pixels` first, since the region takes a part of it */
    uint8_t *pixels;
} waiting;

typedef struct worker {
    fby_buffer memory;
    waiting *waiting; /* [SHAPES][FBY_FBL_WAYS] */
    uint32_t count[SHAPES];
} worker;

struct fby_fbl_decoder {
    const fby_fbl_kernels *kernels;
    const uint8_t *bytes;
    size_t length;
    bool open, trust;
    fbl_file file;
    fbl_tables *tables;
    uint32_t workers; /* whose memory there is */
    worker worker[MOST_WORKERS];
};

/* One call of fby_fbl_decode. */
typedef struct decoding {
    fby_fbl_decoder *decoder;
    fby_fbl_region region;
    fby_fbl_place out;                         /* where the region's first sample goes */
    uint32_t first_across, across, first_down; /* tiles */
    uint32_t tiles;
    _Atomic uint32_t next;
    _Atomic int reason; /* the first failure's */
    _Atomic uint32_t bad;
} decoding;

static int create(fby_fbl_decoder **out, const fby_fbl_kernels *kernels)
{
    fby_fbl_decoder *decoder = calloc(1, sizeof *decoder);
    *out = NULL;
    if (decoder) decoder->tables = malloc(sizeof *decoder->tables);
    if (!decoder || !decoder->tables) {
        free(decoder);
        return FBY_FBL_MEMORY;
    }
    decoder->kernels = kernels;
    *out = decoder;
    return FBY_FBL_OK;
}

int fbl_decoder_create_with(fby_fbl_decoder **out, const fby_fbl_kernels *kernels)
{
    return create(out, kernels);
}

int fby_fbl_decoder_create(fby_fbl_decoder **out)
{
    return create(out, fby_fbl_kernels_of(fby_tier_best()));
}

void fby_fbl_decoder_destroy(fby_fbl_decoder **decoder)
{
    if (!*decoder) return;
    for (uint32_t i = 0; i < (*decoder)->workers; i++) fby_buffer_free(&(*decoder)->worker[i].memory);
    free((*decoder)->tables);
    free(*decoder);
    *decoder = NULL;
}

size_t fby_fbl_decoder_bytes(const fby_fbl_decoder *decoder)
{
    size_t bytes = sizeof *decoder + sizeof *decoder->tables;
    for (uint32_t i = 0; i < decoder->workers; i++) bytes += decoder->worker[i].memory.bytes;
    return bytes;
}

static int truncated(fby_error *error, size_t length, uint64_t needed)
{
    fby_fail(error, FBY_ESAMPLE, "FBL: the file is %zu bytes long, its header says %llu: it is cut off",
             length, (unsigned long long)needed);
    return FBY_FBL_TRUNCATED;
}

static int check_size(const fbl_file *file, uint64_t max_pixels, fby_error *error)
{
    uint64_t pixels = (uint64_t)file->width * file->height;

    if (!max_pixels) max_pixels = DEFAULT_MAX_PIXELS;
    if (pixels <= max_pixels) return FBY_FBL_OK;
    fby_fail(error, FBY_ESAMPLE, "FBL: %u x %u pixels are more than max_pixels, %llu", file->width,
             file->height, (unsigned long long)max_pixels);
    return FBY_FBL_TOO_LARGE;
}

static int check_prefix(const fby_fbl_decoder *decoder, fby_error *error)
{
    const fbl_file *file = &decoder->file;
    const uint8_t *tables = decoder->bytes + FBY_FBL_HEADER_BYTES;
    size_t length = (size_t)(file->payload_at - FBY_FBL_HEADER_BYTES);

    if (decoder->kernels->crc32c(0, tables, length) == file->prefix_checksum) return FBY_FBL_OK;
    fby_fail(error, FBY_ESAMPLE, "FBL: the checksum of tables and index is wrong: the file is damaged");
    return FBY_FBL_CORRUPT;
}

int fby_fbl_open(fby_fbl_decoder *decoder, const void *bytes, size_t length,
                 const fby_fbl_open_options *options, fby_fbl_info *info, fby_error *error)
{
    static const fby_fbl_open_options defaults = FBY_FBL_OPEN_OPTIONS_INIT;
    const fbl_file *file = &decoder->file;

    if (!options) options = &defaults;
    decoder->open = false;
    decoder->bytes = bytes;
    decoder->length = length;
    decoder->trust = options->trust;
    int reason = fbl_file_read(bytes, length, &decoder->file, error);
    if (!reason) reason = check_size(file, options->max_pixels, error);
    if (reason) return reason;
    if (length < (options->partial ? file->payload_at : file->file_bytes)) {
        return truncated(error, length, file->file_bytes);
    }
    reason = check_prefix(decoder, error);
    if (!reason) reason = fbl_index_check(file, decoder->bytes + file->index_at, error);
    if (!reason)
        reason = fbl_tables_read(file, decoder->bytes + FBY_FBL_HEADER_BYTES, decoder->tables, error);
    if (!reason && info) fbl_file_info(file, info);
    decoder->open = !reason;
    return reason;
}

static int not_open(fby_error *error)
{
    fby_fail(error, FBY_EINVAL, "FBL: no picture is open");
    return FBY_FBL_ARGUMENT;
}

int fby_fbl_tile_read(const fby_fbl_decoder *decoder, uint32_t index, fby_fbl_tile *out, fby_error *error)
{
    const fbl_file *file = &decoder->file;

    if (!decoder->open) return not_open(error);
    if (index >= file->tiles) {
        fby_fail(error, FBY_EINVAL, "FBL: there is no tile %u: the picture has %u", index, file->tiles);
        return FBY_FBL_ARGUMENT;
    }
    fbl_tile tile = fbl_tile_of(file, decoder->bytes + file->index_at, index);
    *out = (fby_fbl_tile){
        .size = out->size,
        .mode = tile.mode,
        .x = tile.x,
        .y = tile.y,
        .width = tile.width,
        .height = tile.height,
        .offset = tile.offset,
        .bytes = tile.bytes,
        .checksum = tile.checksum,
    };
    return FBY_FBL_OK;
}

/* The first chunk of `type`, or where that is NULL the one at `index`; its data is NULL where there is none.
 */
static int chunk_find(const fby_fbl_decoder *decoder, const char *type, uint32_t index, fby_fbl_chunk *out,
                      fby_error *error)
{
    const fbl_file *file = &decoder->file;
    uint64_t left = file->metadata_bytes;

    *out = (fby_fbl_chunk){.data = NULL};
    if (!decoder->open) return not_open(error);
    const uint8_t *at = decoder->bytes + file->metadata_at;
    if (decoder->length < file->metadata_at + left)
        return truncated(error, decoder->length, file->file_bytes);
    if (decoder->kernels->crc32c(0, at, left) != file->metadata_checksum) {
        fby_fail(error, FBY_ESAMPLE, "FBL: the metadata's checksum is wrong: the file is damaged");
        return FBY_FBL_CORRUPT;
    }
    while (left) {
        uint64_t chunk = left < 8 ? 0 : ((uint64_t)fbl_load32(at + 4) + 8 + 3) & ~(uint64_t)3;
        if (!chunk || chunk > left) {
            fby_fail(error, FBY_ESAMPLE, "FBL: a metadata chunk ends behind the others: the file is damaged");
            return FBY_FBL_CORRUPT;
        }
        if (type ? !memcmp(at, type, 4) : !index--) {
            memcpy(out->type, at, sizeof out->type);
            out->data = at + 8;
            out->length = fbl_load32(at + 4);
            return FBY_FBL_OK;
        }
        at += chunk;
        left -= chunk;
    }
    return FBY_FBL_OK;
}

int fby_fbl_metadata(const fby_fbl_decoder *decoder, const char *type, const void **data, size_t *length,
                     fby_error *error)
{
    fby_fbl_chunk chunk;
    int reason = chunk_find(decoder, type, 0, &chunk, error);

    *data = chunk.data;
    *length = chunk.length;
    return reason;
}

int fby_fbl_metadata_at(const fby_fbl_decoder *decoder, uint32_t index, fby_fbl_chunk *out, fby_error *error)
{
    return chunk_find(decoder, NULL, index, out, error);
}

/* ---- tiles ---- */

static void fail(decoding *run, int reason, const fbl_tile *tile)
{
    const fbl_file *file = &run->decoder->file;
    int none = FBY_FBL_OK;

    if (atomic_compare_exchange_strong(&run->reason, &none, reason)) {
        atomic_store(&run->bad, tile->y / file->tile_height * file->across + tile->x / file->tile_width);
    }
}

/* Where a sample of the picture goes. */
static fby_fbl_place place_of(const decoding *run, uint32_t x, uint32_t y)
{
    const fbl_file *file = &run->decoder->file;
    size_t pixel = run->out.planar ? fbl_sample_bytes(file) : fbl_pixel_bytes(file);
    fby_fbl_place place = run->out;

    place.at += (size_t)(y - run->region.y) * place.row + (size_t)(x - run->region.x) * pixel;
    return place;
}

typedef struct overlap {
    uint32_t x, y, width, height; /* in the tile */
} overlap;

static overlap overlap_of(const decoding *run, const fbl_tile *tile)
{
    const fby_fbl_region *region = &run->region;
    uint32_t left = tile->x < region->x ? region->x - tile->x : 0;
    uint32_t top = tile->y < region->y ? region->y - tile->y : 0;
    uint32_t right = region->x + region->width - tile->x, bottom = region->y + region->height - tile->y;

    if (right > tile->width) right = tile->width;
    if (bottom > tile->height) bottom = tile->height;
    return (overlap){left, top, right - left, bottom - top};
}

/* Copies what the region takes of a tile whose samples lie interleaved at `pixels`. */
static void part_out(const decoding *run, const fbl_tile *tile, const uint8_t *pixels)
{
    const fbl_file *file = &run->decoder->file;
    const size_t pixel = fbl_pixel_bytes(file), sample = fbl_sample_bytes(file);
    overlap part = overlap_of(run, tile);
    fby_fbl_place to = place_of(run, tile->x + part.x, tile->y + part.y);

    for (uint32_t y = 0; y < part.height; y++) {
        const uint8_t *from = pixels + ((size_t)(part.y + y) * tile->width + part.x) * pixel;
        uint8_t *row = to.at + y * to.row;
        if (!to.planar) {
            memcpy(row, from, part.width * pixel);
            continue;
        }
        for (uint32_t channel = 0; channel < file->channels; channel++) {
            for (uint32_t x = 0; x < part.width; x++) {
                memcpy(row + channel * to.plane + x * sample, from + x * pixel + channel * sample, sample);
            }
        }
    }
}

/* Raw and constant tiles: from the file's bytes straight to the output. */
static bool plain_out(const decoding *run, const fbl_tile *tile, const uint8_t *bytes)
{
    const fbl_file *file = &run->decoder->file;
    const size_t pixel = fbl_pixel_bytes(file), sample = fbl_sample_bytes(file);
    const bool constant = tile->mode == FBY_FBL_MODE_CONST;
    overlap part = overlap_of(run, tile);
    fby_fbl_place to = place_of(run, tile->x + part.x, tile->y + part.y);

    if (tile->bytes < (constant ? pixel : pixel * tile->width * tile->height)) return false;
    for (uint32_t y = 0; y < part.height; y++) {
        const uint8_t *from = bytes + (constant ? 0 : ((size_t)(part.y + y) * tile->width + part.x) * pixel);
        uint8_t *row = to.at + y * to.row;
        if (!to.planar && !constant) {
            fbl_samples_copy(file, from, (size_t)part.width * file->channels, row);
            continue;
        }
        for (uint32_t x = 0; x < part.width; x++, from += constant ? 0 : pixel) {
            if (!to.planar) {
                fbl_samples_copy(file, from, file->channels, row + x * pixel);
                continue;
            }
            for (uint32_t channel = 0; channel < file->channels; channel++) {
                fbl_samples_copy(file, from + channel * sample, 1, row + channel * to.plane + x * sample);
            }
        }
    }
    return true;
}

/* ---- workers ---- */

static void waiting_done(decoding *run, waiting *it)
{
    if (!it->job.as.rans.coded.good)
        fail(run, FBY_FBL_CORRUPT, &it->tile);
    else if (it->aside)
        part_out(run, &it->tile, it->pixels);
}

static void flush(decoding *run, worker *of, uint32_t shape)
{
    waiting *first = of->waiting + (size_t)shape * FBY_FBL_WAYS;
    fby_fbl_rans *jobs[FBY_FBL_WAYS];

    for (uint32_t i = 0; i < of->count[shape]; i++) jobs[i] = &first[i].job.as.rans;
    if (of->count[shape]) run->decoder->kernels->rans(jobs, of->count[shape]);
    for (uint32_t i = 0; i < of->count[shape]; i++) waiting_done(run, &first[i]);
    of->count[shape] = 0;
}

static fby_fbl_place aside_place(const fbl_file *file, const fbl_tile *tile, uint8_t *pixels)
{
    return (fby_fbl_place){.at = pixels, .row = tile->width * fbl_pixel_bytes(file)};
}

static void coded_tile(decoding *run, worker *of, const fbl_tile *tile, const uint8_t *bytes)
{
    const fby_fbl_decoder *decoder = run->decoder;
    const fbl_file *file = &decoder->file;
    uint32_t shape = (tile->width != file->tile_width) + 2 * (tile->height != file->tile_height);
    waiting *it = of->waiting + (size_t)shape * FBY_FBL_WAYS + of->count[shape];
    overlap part = overlap_of(run, tile);
    fby_fbl_place place;

    it->tile = *tile;
    it->aside = part.width < tile->width || part.height < tile->height;
    place = it->aside ? aside_place(file, tile, it->pixels) : place_of(run, tile->x, tile->y);
    if (!fbl_head_read(file, decoder->tables, tile, bytes, &place, &it->job)) {
        fail(run, FBY_FBL_CORRUPT, tile);
        return;
    }
    if (tile->mode == FBY_FBL_MODE_RANS) {
        if (++of->count[shape] == decoder->kernels->ways) flush(run, of, shape);
        return;
    }
    if (tile->mode == FBY_FBL_MODE_PACK)
        decoder->kernels->pack(&it->job.as.pack);
    else
        decoder->kernels->palette(&it->job.as.palette);
    waiting_done(run, it);
}

static void decode_tile(decoding *run, worker *of, uint32_t number)
{
    const fby_fbl_decoder *decoder = run->decoder;
    const fbl_file *file = &decoder->file;
    uint32_t across = run->first_across + number % run->across, down = run->first_down + number / run->across;
    fbl_tile tile = fbl_tile_of(file, decoder->bytes + file->index_at, down * file->across + across);
    const uint8_t *bytes = decoder->bytes + tile.offset;

    if (tile.offset + tile.bytes + FBY_FBL_SLACK_BYTES > decoder->length) {
        fail(run, FBY_FBL_TRUNCATED, &tile);
        return;
    }
    if (!decoder->trust && decoder->kernels->crc32c(0, bytes, tile.bytes) != tile.checksum) {
        fail(run, FBY_FBL_CORRUPT, &tile);
        return;
    }
    if (tile.mode > FBY_FBL_MODE_CONST)
        coded_tile(run, of, &tile, bytes);
    else if (!plain_out(run, &tile, bytes))
        fail(run, FBY_FBL_CORRUPT, &tile);
}

static void work(void *context, uint32_t number)
{
    decoding *run = context;
    worker *of = &run->decoder->worker[number];

    memset(of->count, 0, sizeof of->count);
    while (!atomic_load(&run->reason)) {
        uint32_t tile = atomic_fetch_add(&run->next, 1);
        if (tile >= run->tiles) break;
        decode_tile(run, of, tile);
    }
    for (uint32_t shape = 0; shape < SHAPES; shape++) flush(run, of, shape);
}

/* Memory for a worker: tiles that wait, and their samples. */
static int worker_prepare(fby_fbl_decoder *decoder, worker *of)
{
    const fbl_file *file = &decoder->file;
    const size_t slots = (size_t)SHAPES * FBY_FBL_WAYS;
    size_t pixels = (size_t)file->tile_width * file->tile_height * fbl_pixel_bytes(file);

    if (fby_buffer_reserve(&of->memory, slots * (sizeof(waiting) + pixels))) return FBY_FBL_MEMORY;
    of->waiting = of->memory.data;
    for (size_t i = 0; i < slots; i++) {
        of->waiting[i].pixels = (uint8_t *)(of->waiting + slots) + i * pixels;
    }
    return FBY_FBL_OK;
}

static int region_check(const fbl_file *file, const fby_fbl_region *region, fby_error *error)
{
    if (region->width && region->height && region->x < file->width && region->y < file->height &&
        region->width <= file->width - region->x && region->height <= file->height - region->y) {
        return FBY_FBL_OK;
    }
    fby_fail(error, FBY_EINVAL, "FBL: the region of %u x %u at %u, %u isn't within the picture, %u x %u",
             region->width, region->height, region->x, region->y, file->width, file->height);
    return FBY_FBL_REGION;
}

static int output_check(const fbl_file *file, const fby_fbl_region *region, const fby_fbl_output *output,
                        fby_fbl_place *out, fby_error *error)
{
    const size_t sample = fbl_sample_bytes(file);
    const bool planar = output->layout == FBY_FBL_CHW;
    size_t row = region->width * (planar ? sample : fbl_pixel_bytes(file));

    *out = (fby_fbl_place){
        .at = output->data,
        .planar = planar,
        .row = output->row_stride ? output->row_stride : row,
    };
    out->plane = output->plane_stride ? output->plane_stride : out->row * region->height;
    if (output->data && output->layout <= FBY_FBL_CHW && out->row >= row &&
        !((uintptr_t)output->data % sample) && !(out->row % sample) && !(planar && out->plane % sample)) {
        return FBY_FBL_OK;
    }
    fby_fail(
        error, FBY_EINVAL,
        "FBL: the output needs memory for samples of %zu bytes, a layout of 0 or 1, and a row stride of 0 or "
        "at least %zu",
        sample, row);
    return FBY_FBL_ARGUMENT;
}

static int decode_tiles(decoding *run, uint32_t workers, fby_error *error)
{
    fby_fbl_decoder *decoder = run->decoder;

    for (uint32_t i = 0; i < workers; i++) {
        if (decoder->workers <= i) decoder->workers = i + 1;
        if (worker_prepare(decoder, &decoder->worker[i])) {
            fby_fail(error, FBY_ENOMEM, "FBL: no memory to decode with");
            return FBY_FBL_MEMORY;
        }
    }
    fbl_parallel(workers, work, run);
    int reason = atomic_load(&run->reason);
    if (reason) {
        fby_fail(error, FBY_ESAMPLE, "FBL: tile %u %s", atomic_load(&run->bad),
                 reason == FBY_FBL_TRUNCATED ? "isn't there: the file is cut off" : "is damaged");
    }
    return reason;
}

int fby_fbl_decode(fby_fbl_decoder *decoder, const fby_fbl_region *region, const fby_fbl_output *output,
                   fby_error *error)
{
    const fbl_file *file = &decoder->file;
    decoding run = {.decoder = decoder};

    if (!decoder->open) return not_open(error);
    run.region = region ? *region : (fby_fbl_region){0, 0, file->width, file->height};
    int reason = region_check(file, &run.region, error);
    if (!reason) reason = output_check(file, &run.region, output, &run.out, error);
    if (reason) return reason;

    run.first_across = run.region.x / file->tile_width;
    run.first_down = run.region.y / file->tile_height;
    run.across = (run.region.x + run.region.width - 1) / file->tile_width - run.first_across + 1;
    run.tiles =
        run.across * ((run.region.y + run.region.height - 1) / file->tile_height - run.first_down + 1);

    uint32_t workers = output->threads ? output->threads : 1;
    if (workers > MOST_WORKERS) workers = MOST_WORKERS;
    if (workers > run.tiles) workers = run.tiles;
    return decode_tiles(&run, workers, error);
}
