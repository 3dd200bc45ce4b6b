/* Encoding: every tile is looked at and modelled, then the tables are made of what all tiles need, then every
 * tile is written, then all is put together and decoded again. Tiles are shared out to workers; what comes
 * out doesn't depend on who did which. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "codec/fbl/colours.h"
#include "codec/fbl/decode.h"
#include "codec/fbl/head.h"
#include "codec/fbl/parallel.h"
#include "codec/fbl/words.h"
#include "kernels/buffer.h"
#include "kernels/fbl_indices.h"

enum {
    MOST_WORKERS = 64,
    SAMPLE_ROWS = 61, /* of which one is looked at to choose the sums' shift */
    GUESS_SHIFT = 3,  /* of sums, where modes are compared */
    COLOUR_COST = 12, /* bits that a palette's colour takes beside its samples */
    STATE_COST = 24,  /* bits that a state takes */
    LOW_COST = 7,     /* bits that a low byte takes */
    WIDE_PART = 64,   /* pixels that a colour of the picture's palette must stand for */
    /* Pixels to a change of colour, where a palette is tried: residuals are smaller than indices where there
     * are less. Palettes decode slower than packed tiles, and must be clearly smaller. */
    SMALL_RUN = 2,
    FAST_RUN = 6,
    ROOM = FBY_FBL_PLANES * FBY_FBL_TILE_SAMPLES * 4 + FBL_HEAD_BYTES + 4096 /* for a tile being written */
};

/* What is known of a tile between its passes. */
typedef struct piece {
    uint32_t mode;
    size_t bytes;
    uint32_t minus_green, colours; /* 0 colours: the picture's palette */
    uint64_t predictor[FBY_FBL_PLANES][2];
} piece;

/* A worker's memory. */
typedef struct bench {
    _Alignas(64) uint8_t samples[FBY_FBL_PLANES * FBY_FBL_TILE_SAMPLES * 2];
    _Alignas(64) uint8_t residuals[FBY_FBL_PLANES * FBY_FBL_TILE_SAMPLES * 2];
    uint8_t indices[FBY_FBL_TILE_SAMPLES], index_sums[FBY_FBL_TILE_SAMPLES], index_low[FBY_FBL_TILE_SAMPLES];
    uint8_t room[ROOM];
    fbl_counts counts[FBL_SETS];
    uint32_t guess[FBY_FBL_SUMS][FBL_BUCKETS];
    fbl_colours colours;
} bench;

struct fby_fbl_encoder {
    const fby_fbl_kernels *kernels;
    fby_fbl_decoder *decoder; /* for verifying */
    struct encoding *run;
    fby_buffer benches, pieces, residuals, sums, low, colours, slots, out, decoded, known;
};

/* One call of fby_fbl_encode. */
typedef struct encoding {
    fby_fbl_encoder *encoder;
    const fby_fbl_image *image;
    fbl_file file;
    fby_fbl_place from;
    uint32_t level, workers;
    uint32_t shift[FBY_FBL_PLANES];
    fbl_buckets buckets;
    bench *bench; /* of each worker */
    piece *piece; /* of each tile, and so on: */
    uint8_t *residuals, *sums, *low, *slots;
    bool all_shared;     /* the picture's palette has all its colours */
    fbl_colour *colours; /* FBY_FBL_COLOURS each */
    size_t tile_pixels, tile_samples, slot_bytes;
    _Atomic uint32_t next;
    _Atomic bool out_of_range;
    /* From here on nothing need be zero. */
    fbl_tables tables;
    fbl_coder coder[FBL_SETS];
    fbl_shared shared;
} encoding;

int fbl_encoder_create_with(fby_fbl_encoder **out, const fby_fbl_kernels *kernels)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return FBY_FBL_MEMORY;
    (*out)->kernels = kernels;
    (*out)->run = malloc(sizeof *(*out)->run);
    int reason = (*out)->run ? fbl_decoder_create_with(&(*out)->decoder, kernels) : FBY_FBL_MEMORY;
    if (reason) fby_fbl_encoder_destroy(out);
    return reason;
}

int fby_fbl_encoder_create(fby_fbl_encoder **out)
{
    return fbl_encoder_create_with(out, fby_fbl_kernels_of(fby_tier_best()));
}

void fby_fbl_encoder_destroy(fby_fbl_encoder **encoder)
{
    fby_fbl_encoder *it = *encoder;

    if (!it) return;
    fby_fbl_decoder_destroy(&it->decoder);
    free(it->run);
    fby_buffer *buffers[] = {&it->benches, &it->pieces, &it->residuals, &it->sums, &it->colours,
                             &it->slots,   &it->out,    &it->decoded,   &it->low,  &it->known};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) fby_buffer_free(buffers[i]);
    free(it);
    *encoder = NULL;
}

/* Whether a set can come to be used. */
static bool counted(const encoding *run, uint32_t set)
{
    return set >= FBL_PALETTE_SET || (run->level == FBY_FBL_SMALL && set < run->file.channels);
}

/* ---- the first pass ---- */

static fbl_tile tile_of(const fbl_file *file, uint32_t index)
{
    fbl_tile tile = {.x = index % file->across * file->tile_width,
                     .y = index / file->across * file->tile_height};
    tile.width = file->width - tile.x < file->tile_width ? file->width - tile.x : file->tile_width;
    tile.height = file->height - tile.y < file->tile_height ? file->height - tile.y : file->tile_height;
    return tile;
}

static fby_fbl_place place_of(const encoding *run, const fbl_tile *tile)
{
    fby_fbl_place place = run->from;
    size_t pixel = place.planar ? fbl_sample_bytes(&run->file) : fbl_pixel_bytes(&run->file);

    place.at += tile->y * place.row + tile->x * pixel;
    return place;
}

static uint8_t *slot_of(const encoding *run, uint32_t index)
{
    return run->slots + index * run->slot_bytes;
}

static size_t raw_bytes(const encoding *run, const fbl_tile *tile)
{
    return fbl_pixel_bytes(&run->file) * tile->width * tile->height;
}

/* Zeros up to a multiple of 4. */
static size_t padded(uint8_t *bytes, size_t length)
{
    while (length % 4) bytes[length++] = 0;
    return length;
}

static void raw_write(const encoding *run, const fbl_tile *tile, uint32_t index)
{
    const fbl_file *file = &run->file;
    const size_t sample = fbl_sample_bytes(file);
    fby_fbl_place from = place_of(run, tile);
    uint8_t *slot = slot_of(run, index), *to = slot;

    for (uint32_t y = 0; y < tile->height; y++) {
        const uint8_t *row = from.at + y * from.row;
        if (!from.planar) {
            fbl_samples_copy(file, row, (size_t)tile->width * file->channels, to);
            to += tile->width * fbl_pixel_bytes(file);
            continue;
        }
        for (uint32_t x = 0; x < tile->width; x++) {
            for (uint32_t channel = 0; channel < file->channels; channel++, to += sample) {
                fbl_samples_copy(file, row + channel * from.plane + x * sample, 1, to);
            }
        }
    }
    run->piece[index].mode = FBY_FBL_MODE_RAW;
    run->piece[index].bytes = padded(slot, (size_t)(to - slot));
}

/* Takes what was written where it is smaller than the samples themselves. */
static void slot_take(const encoding *run, const fbl_tile *tile, uint32_t index, uint32_t mode,
                      const uint8_t *bytes, size_t length)
{
    uint8_t *slot = slot_of(run, index);

    if (length >= raw_bytes(run, tile)) {
        raw_write(run, tile, index);
        return;
    }
    memcpy(slot, bytes, length);
    run->piece[index].mode = mode;
    run->piece[index].bytes = padded(slot, length);
}

static void const_write(const encoding *run, uint32_t index, fbl_colour colour)
{
    uint8_t samples[FBL_COLOUR_BYTES], *slot = slot_of(run, index);

    fbl_colour_store(&run->file, colour, samples);
    fbl_samples_copy(&run->file, samples, run->file.channels, slot);
    run->piece[index].mode = FBY_FBL_MODE_CONST;
    run->piece[index].bytes = padded(slot, fbl_pixel_bytes(&run->file));
}

/* A palette that a tile could use. */
typedef struct candidate {
    bool possible, wide; /* wide: the picture's, with indices of two symbols */
    fby_fbl_shape shape;
} candidate;

static candidate palette_look(const encoding *run, bench *on, const fbl_tile *tile)
{
    candidate it = {.possible = true, .shape = fby_fbl_rans_shape(tile->width, tile->height)};
    fby_fbl_place from = place_of(run, tile);

    if (on->colours.count == FBL_TOO_MANY) {
        if (!run->all_shared) return (candidate){.possible = false};
        it.wide = true;
        fbl_shared_indices(&run->file, &from, tile->width, tile->height, &run->shared, on->colours.index);
    }
    fby_fbl_indices_model(&it.shape, on->colours.index, it.wide, on->indices, on->index_sums, on->index_low);
    return it;
}

/* What a palette would take, in bits, by the tile's own statistics. */
static uint64_t palette_guess(const encoding *run, bench *on, const candidate *palette)
{
    fbl_buckets buckets;
    size_t count = (size_t)palette->shape.micro_width * palette->shape.micro_height * FBY_LANES;
    uint64_t bits = STATE_COST * FBY_FBL_STATES;

    fbl_buckets_make(8, &buckets);
    memset(on->guess, 0, sizeof on->guess);
    for (size_t i = 0; i < count; i++) {
        on->guess[on->index_sums[i]][on->indices[i]]++;
        if (palette->wide && on->indices[i] >= FBY_FBL_NEIGHBOURS) bits += LOW_COST;
    }
    if (!palette->wide) bits += (uint64_t)on->colours.count * (8 * fbl_pixel_bytes(&run->file) + COLOUR_COST);
    return bits + fbl_entropy_bits((const uint32_t(*)[FBL_BUCKETS])on->guess, FBY_FBL_SUMS, &buckets);
}

/* What residuals would take. */
static uint64_t rans_guess(const encoding *run, bench *on, const fby_fbl_work *work)
{
    uint64_t bits = (uint64_t)STATE_COST * FBY_LANES;
    const uint32_t run_length = work->shape.micro_width * FBY_LANES;

    for (uint32_t plane = 0; plane < work->channels; plane++) {
        memset(on->guess, 0, sizeof on->guess);
        for (uint32_t step = 0; step < work->shape.micro_height; step++) {
            size_t at = ((size_t)step * work->channels + plane) * run_length;
            for (uint32_t i = 0; i < run_length; i++, at++) {
                uint32_t value = work->bits == 8 ? ((const uint8_t *)work->residuals)[at]
                                                 : ((const uint16_t *)work->residuals)[at];
                on->guess[work->sums[at] >> GUESS_SHIFT][fbl_bucket_of(value, work->bits)]++;
            }
        }
        bits += fbl_entropy_bits((const uint32_t(*)[FBL_BUCKETS])on->guess, FBY_FBL_SUMS >> GUESS_SHIFT,
                                 &run->buckets);
    }
    return bits;
}

static void palette_keep(encoding *run, bench *on, uint32_t index, const candidate *palette)
{
    piece *it = &run->piece[index];
    uint32_t symbols = palette->shape.micro_width * palette->shape.micro_height * FBY_LANES;
    uint8_t *values = run->residuals + index * run->tile_samples * fbl_sample_bytes(&run->file);
    uint8_t *sums = run->sums + index * run->tile_samples;

    it->mode = FBY_FBL_MODE_PALETTE;
    it->colours = palette->wide ? 0 : on->colours.count;
    memcpy(run->colours + (size_t)index * FBY_FBL_COLOURS, on->colours.colour,
           it->colours * sizeof(fbl_colour));
    memcpy(values, on->indices, symbols);
    memcpy(sums, on->index_sums, symbols);
    if (palette->wide) memcpy(run->low + index * run->tile_pixels, on->index_low, symbols);
    for (uint32_t i = 0; i < symbols; i++) {
        on->counts[FBL_PALETTE_SET][sums[i]][values[i]]++;
        if (palette->wide && values[i] >= FBY_FBL_NEIGHBOURS)
            on->counts[FBL_LOW_SET][fby_fbl_low_sum(values[i])][on->index_low[i]]++;
    }
}

static void rans_keep(encoding *run, bench *on, uint32_t index, const fby_fbl_work *work)
{
    piece *it = &run->piece[index];
    const uint32_t run_length = work->shape.micro_width * FBY_LANES;
    size_t at = 0;

    it->mode = FBY_FBL_MODE_RANS;
    it->minus_green = work->minus_green;
    memcpy(it->predictor, work->predictor, sizeof it->predictor);
    for (uint32_t step = 0; step < work->shape.micro_height; step++) {
        for (uint32_t plane = 0; plane < work->channels; plane++) {
            fbl_counts *counts = &on->counts[plane];
            for (uint32_t i = 0; i < run_length; i++, at++) {
                uint32_t value = work->bits == 8 ? ((const uint8_t *)work->residuals)[at]
                                                 : ((const uint16_t *)work->residuals)[at];
                (*counts)[work->sums[at]][fbl_bucket_of(value, work->bits)]++;
            }
        }
    }
}

static void small_model(encoding *run, bench *on, uint32_t index, const fbl_tile *tile,
                        const candidate *palette)
{
    fby_fbl_work work = {
        .shape = fby_fbl_rans_shape(tile->width, tile->height),
        .channels = run->file.channels,
        .bits = run->file.bits,
        .from = place_of(run, tile),
        .samples = on->samples,
        .residuals = run->residuals + index * run->tile_samples * fbl_sample_bytes(&run->file),
        .sums = run->sums + index * run->tile_samples,
    };
    run->encoder->kernels->model_rans(&work, run->shift);
    /* Residuals are decoded faster, a sample a time: an eighth must be saved. */
    if (palette->possible && palette_guess(run, on, palette) * 8 <= rans_guess(run, on, &work) * 7)
        palette_keep(run, on, index, palette);
    else
        rans_keep(run, on, index, &work);
}

static void fast_model(encoding *run, bench *on, uint32_t index, const fbl_tile *tile,
                       const candidate *palette)
{
    fby_fbl_work work = {
        .shape = fby_fbl_pack_shape(tile->width, tile->height),
        .channels = run->file.channels,
        .bits = run->file.bits,
        .from = place_of(run, tile),
        .samples = on->samples,
        .residuals = on->residuals,
    };
    run->encoder->kernels->model_pack(&work);
    size_t head = 8 + (size_t)16 * work.channels;
    size_t bytes = head + run->encoder->kernels->encode_pack(&work, on->room + head);
    if (palette->possible && palette_guess(run, on, palette) <= 8 * bytes) {
        palette_keep(run, on, index, palette);
        return;
    }
    fbl_pack_head_write(&work, on->room);
    slot_take(run, tile, index, FBY_FBL_MODE_PACK, on->room, bytes);
}

/* Samples of 9 to 15 bits must have no others. */
static bool range_check(const encoding *run, const fbl_tile *tile)
{
    const fbl_file *file = &run->file;
    fby_fbl_place from = place_of(run, tile);
    const uint32_t planes = from.planar ? file->channels : 1,
                   row = tile->width * (from.planar ? 1 : file->channels);
    uint32_t all = 0;

    if (file->bits == 8 || file->bits == 16) return true;
    for (uint32_t plane = 0; plane < planes; plane++) {
        for (uint32_t y = 0; y < tile->height; y++) {
            const uint8_t *at = from.at + plane * from.plane + y * from.row;
            for (uint32_t x = 0; x < row; x++, at += 2) {
                uint16_t value;
                memcpy(&value, at, 2);
                all |= value;
            }
        }
    }
    return !(all >> file->bits);
}

static void look(encoding *run, bench *on, uint32_t index)
{
    fbl_tile tile = tile_of(&run->file, index);
    fby_fbl_place from = place_of(run, &tile);

    if (!range_check(run, &tile)) atomic_store(&run->out_of_range, true);
    fbl_colours_collect(&run->file, &from, tile.width, tile.height,
                        run->level == FBY_FBL_FAST ? FAST_RUN : SMALL_RUN, &on->colours);
    if (on->colours.count == 1) {
        const_write(run, index, on->colours.colour[0]);
        return;
    }
    candidate palette = palette_look(run, on, &tile);
    if (run->level == FBY_FBL_SMALL)
        small_model(run, on, index, &tile, &palette);
    else
        fast_model(run, on, index, &tile, &palette);
}

static void look_all(void *context, uint32_t number)
{
    encoding *run = context;
    for (uint32_t index; (index = atomic_fetch_add(&run->next, 1)) < run->file.tiles;) {
        look(run, &run->bench[number], index);
    }
}

/* ---- tables ---- */

/* The sums' shift of a channel: so that most sums of its residuals are well below the cap. */
static uint32_t shift_of(const encoding *run, uint32_t channel)
{
    const fbl_file *file = &run->file;
    const size_t step = run->from.planar ? 2 : (size_t)2 * file->channels;
    uint64_t total = 0, count = 0;

    for (uint32_t y = 0; y < file->height; y += SAMPLE_ROWS) {
        const uint8_t *at =
            run->from.at + y * run->from.row + channel * (run->from.planar ? run->from.plane : 2);
        uint16_t before = 0, value;
        for (uint32_t x = 0; x < file->width; x++, at += step) {
            memcpy(&value, at, 2);
            if (x) total += value > before ? (uint64_t)(value - before) : (uint64_t)(before - value);
            before = value;
        }
        count += file->width;
    }
    uint64_t mean = count ? total / count : 0, shift = 0;
    while (mean * 3 >> shift >= FBY_FBL_SUMS / 2) shift++;
    return (uint32_t)shift;
}

/* The picture's palette: all its colours where a tile needs them, else those that several tiles use. */
static int shared_make(encoding *run)
{
    size_t count = 0;
    int result = 0;

    if (!(run->tables.present >> FBL_LOW_SET & 1)) {
        fbl_colour *all = malloc(sizeof *all * FBY_FBL_COLOURS * run->file.tiles);
        for (uint32_t i = 0; all && i < run->file.tiles; i++) {
            if (run->piece[i].mode != FBY_FBL_MODE_PALETTE) continue;
            memcpy(all + count, run->colours + (size_t)i * FBY_FBL_COLOURS,
                   run->piece[i].colours * sizeof *all);
            count += run->piece[i].colours;
        }
        result = all ? fbl_shared_choose(all, count, &run->shared) : -1;
        free(all);
    }
    run->tables.colours = run->shared.count;
    for (uint32_t i = 0; i < run->shared.count; i++) {
        fbl_colour_store(&run->file, run->shared.colour[i],
                         run->tables.colour + i * fbl_pixel_bytes(&run->file));
    }
    return result ? FBY_FBL_MEMORY : FBY_FBL_OK;
}

/* Adds what the workers counted to the first one's. */
static bool counts_join(encoding *run, uint32_t set)
{
    uint32_t *total = (uint32_t *)run->bench[0].counts[set], any = 0;
    const size_t count = (size_t)FBY_FBL_SUMS * FBL_BUCKETS;

    for (uint32_t i = 1; i < run->workers; i++) {
        const uint32_t *more = (const uint32_t *)run->bench[i].counts[set];
        for (size_t at = 0; at < count; at++) total[at] += more[at];
    }
    for (size_t at = 0; at < count; at++) any |= total[at];
    return any;
}

static int tables_make(encoding *run)
{
    run->tables.present = run->tables.colours = 0;
    for (uint32_t set = 0; set < FBL_SETS; set++) {
        if (!counted(run, set) || !counts_join(run, set)) continue;
        run->tables.present |= 1u << set;
        if (set >= FBL_PALETTE_SET)
            fbl_train_indices((const uint32_t(*)[FBL_BUCKETS])run->bench[0].counts[set],
                              &run->tables.set[set]);
        else
            fbl_train_residuals((const uint32_t(*)[FBL_BUCKETS])run->bench[0].counts[set], run->file.bits,
                                run->shift[set], &run->tables.set[set]);
        fbl_coder_make(&run->tables.set[set], set >= FBL_PALETTE_SET ? 8 : run->file.bits, &run->coder[set]);
    }
    bool palettes = run->tables.present >> FBL_PALETTE_SET & 1;
    return palettes && fbl_pixel_bytes(&run->file) > 1 ? shared_make(run) : FBY_FBL_OK;
}

/* ---- the second pass ---- */

static size_t head_write(const encoding *run, uint32_t index, uint8_t *out)
{
    const piece *it = &run->piece[index];
    const fbl_colour *colour = run->colours + (size_t)index * FBY_FBL_COLOURS;
    int32_t reference[FBY_FBL_COLOURS];
    uint8_t samples[FBY_FBL_COLOURS * FBL_COLOUR_BYTES];

    if (it->mode == FBY_FBL_MODE_RANS) {
        fby_fbl_work work = {.channels = run->file.channels, .minus_green = it->minus_green};
        memcpy(work.predictor, it->predictor, sizeof work.predictor);
        return fbl_rans_head_write(&work, out);
    }
    for (uint32_t i = 0; i < it->colours; i++) {
        reference[i] = run->tables.colours ? fbl_shared_find(&run->shared, colour[i]) : -1;
        fbl_colour_store(&run->file, colour[i], samples + i * fbl_pixel_bytes(&run->file));
    }
    return fbl_palette_head_write(&run->file, run->tables.colours, samples, it->colours, reference, out);
}

/* Writes a tile's symbols to the end of `room`; returns where they begin, and in *end where they end. */
static uint8_t *symbols_write(const encoding *run, uint32_t index, const fby_fbl_shape *shape, uint8_t *room,
                              uint8_t **end)
{
    const piece *it = &run->piece[index];
    const uint8_t *values = run->residuals + index * run->tile_samples * fbl_sample_bytes(&run->file);
    const uint8_t *sums = run->sums + index * run->tile_samples;
    const uint32_t count = shape->micro_width * shape->micro_height;

    if (it->mode == FBY_FBL_MODE_PALETTE) {
        fbl_indices indices = {.symbols = values, .sums = sums, .count = count};
        indices.coder = &run->coder[FBL_PALETTE_SET];
        indices.low_coder = &run->coder[FBL_LOW_SET];
        if (!it->colours) indices.low = run->low + index * run->tile_pixels;
        *end = room + fbl_indices_bytes(&indices);
        return fbl_indices_write(&indices, room, fbl_indices_bytes(&indices));
    }
    fbl_symbols symbols = {
        .values = values, .sums = sums, .run = shape->micro_width, .kernels = run->encoder->kernels};
    symbols.coders = run->file.channels;
    symbols.count = count * symbols.coders;
    for (uint32_t plane = 0; plane < symbols.coders; plane++) symbols.coder[plane] = &run->coder[plane];
    *end = room + fbl_words_bytes(&symbols);
    return fbl_words_write(&symbols, room, fbl_words_bytes(&symbols));
}

static void write_tile(encoding *run, bench *on, uint32_t index)
{
    const fbl_tile tile = tile_of(&run->file, index);
    const fby_fbl_shape shape = fby_fbl_rans_shape(tile.width, tile.height);
    uint32_t mode = run->piece[index].mode;
    uint8_t head[FBL_HEAD_BYTES], *end;

    if (mode != FBY_FBL_MODE_PALETTE && mode != FBY_FBL_MODE_RANS) return;
    size_t head_bytes = head_write(run, index, head);
    uint8_t *bytes = symbols_write(run, index, &shape, on->room + FBL_HEAD_BYTES, &end) - head_bytes;
    memcpy(bytes, head, head_bytes);
    slot_take(run, &tile, index, mode, bytes, (size_t)(end - bytes));
}

static void write_all(void *context, uint32_t number)
{
    encoding *run = context;
    for (uint32_t index; (index = atomic_fetch_add(&run->next, 1)) < run->file.tiles;) {
        write_tile(run, &run->bench[number], index);
    }
}

/* ---- the file ---- */

static size_t chunk_bytes(const fby_fbl_chunk *chunk)
{
    return (8 + chunk->length + 3) & ~(size_t)3;
}

static void metadata_write(const fby_fbl_encode_options *options, uint8_t *to)
{
    for (uint32_t i = 0; i < options->chunks; i++) {
        const fby_fbl_chunk *chunk = &options->chunk[i];
        memset(to, 0, chunk_bytes(chunk));
        memcpy(to, chunk->type, sizeof chunk->type);
        fbl_store32(to + 4, (uint32_t)chunk->length);
        if (chunk->length) memcpy(to + 8, chunk->data, chunk->length);
        to += chunk_bytes(chunk);
    }
}

/* Leaves out the sets that no tile uses in the end: raw may have been smaller. */
static void sets_drop(encoding *run)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < run->file.tiles; i++) {
        const piece *it = &run->piece[i];
        if (it->mode == FBY_FBL_MODE_RANS) used |= (1u << run->file.channels) - 1;
        if (it->mode == FBY_FBL_MODE_PALETTE)
            used |= 1u << FBL_PALETTE_SET | (it->colours ? 0 : 1u << FBL_LOW_SET);
    }
    run->tables.present &= used;
    if (!(used >> FBL_PALETTE_SET & 1)) run->tables.colours = 0;
}

static int put_together(encoding *run, const fby_fbl_encode_options *options, fby_error *error)
{
    const fby_fbl_kernels *kernels = run->encoder->kernels;
    fbl_file *file = &run->file;
    uint8_t *tables = malloc(FBL_TABLE_BYTES);

    if (!tables) return FBY_FBL_MEMORY;
    file->table_bytes = (uint32_t)fbl_tables_write(file, &run->tables, tables);
    for (uint32_t i = 0; i < file->tiles; i++) file->payload_bytes += run->piece[i].bytes;
    for (uint32_t i = 0; i < options->chunks; i++) file->metadata_bytes += chunk_bytes(&options->chunk[i]);
    int reason = FBY_FBL_OK;
    if (fbl_file_lay_out(file)) {
        fby_fail(error, FBY_EINVAL, "FBL: the picture takes more than 2 GiB, or its metadata more than 4");
        reason = FBY_FBL_TOO_LARGE;
    } else if (fby_buffer_reserve(&run->encoder->out, (size_t)file->file_bytes)) {
        reason = FBY_FBL_MEMORY;
    } else {
        memcpy((uint8_t *)run->encoder->out.data + FBY_FBL_HEADER_BYTES, tables, file->table_bytes);
    }
    free(tables);
    if (reason) return reason;

    uint8_t *out = run->encoder->out.data, *entry = out + file->index_at, *payload = out + file->payload_at;
    uint8_t *to = payload;
    for (uint32_t i = 0; i < file->tiles; i++, entry += FBL_INDEX_ENTRY) {
        memcpy(to, slot_of(run, i), run->piece[i].bytes);
        fbl_store32(entry, (uint32_t)((to - payload) / 4) << 3 | run->piece[i].mode);
        fbl_store32(entry + 4, kernels->crc32c(0, to, run->piece[i].bytes));
        to += run->piece[i].bytes;
    }
    metadata_write(options, out + file->metadata_at);
    memset(out + file->metadata_at + file->metadata_bytes, 0, FBY_FBL_SLACK_BYTES);
    file->metadata_checksum = kernels->crc32c(0, out + file->metadata_at, (size_t)file->metadata_bytes);
    file->prefix_checksum =
        kernels->crc32c(0, out + FBY_FBL_HEADER_BYTES, (size_t)(file->payload_at - FBY_FBL_HEADER_BYTES));
    fbl_file_write(file, kernels, out);
    return FBY_FBL_OK;
}

static int verify(encoding *run, fby_error *error)
{
    fby_fbl_encoder *encoder = run->encoder;
    const fbl_file *file = &run->file;
    const bool planar = run->from.planar;
    const size_t row = file->width * (planar ? fbl_sample_bytes(file) : fbl_pixel_bytes(file));
    fby_fbl_open_options options = FBY_FBL_OPEN_OPTIONS_INIT;
    fby_fbl_output output = FBY_FBL_OUTPUT_INIT;

    if (fby_buffer_reserve(&encoder->decoded, row * file->height * (planar ? file->channels : 1))) {
        return FBY_FBL_MEMORY;
    }
    options.max_pixels = UINT64_MAX;
    output.data = encoder->decoded.data;
    output.layout = run->image->layout;
    output.threads = run->workers;
    int reason =
        fby_fbl_open(encoder->decoder, encoder->out.data, (size_t)file->file_bytes, &options, NULL, error);
    if (!reason) reason = fby_fbl_decode(encoder->decoder, NULL, &output, error);
    if (reason == FBY_FBL_MEMORY) return reason;

    const uint8_t *decoded = encoder->decoded.data;
    for (uint32_t plane = 0; !reason && plane < (planar ? file->channels : 1); plane++) {
        for (uint32_t y = 0; y < file->height; y++, decoded += row) {
            if (memcmp(decoded, run->from.at + plane * run->from.plane + y * run->from.row, row)) reason = 1;
        }
    }
    if (!reason) return FBY_FBL_OK;
    fby_fail(error, FBY_EIO, "FBL: the encoded picture doesn't decode to the same: please report it");
    return FBY_FBL_VERIFY;
}

/* ---- a call ---- */

static int argument(fby_error *error, const char *what, uint64_t value)
{
    fby_fail(error, FBY_EINVAL, "FBL: the image can't be encoded with %s %llu", what,
             (unsigned long long)value);
    return FBY_FBL_ARGUMENT;
}

static int begin(encoding *run, const fby_fbl_encode_options *options, fby_error *error)
{
    const fby_fbl_image *image = run->image;
    fbl_file *file = &run->file;

    if (!image->width || image->width >> 31) return argument(error, "a width of", image->width);
    if (!image->height || image->height >> 31) return argument(error, "a height of", image->height);
    if (!image->channels || image->channels > FBY_FBL_PLANES)
        return argument(error, "channels:", image->channels);
    if (image->bits < 8 || image->bits > 16) return argument(error, "bits a sample:", image->bits);
    if (image->layout > FBY_FBL_CHW) return argument(error, "layout", image->layout);
    if (!image->data) return argument(error, "data at", 0);
    if (options->level > FBY_FBL_FAST) return argument(error, "level", options->level);
    *file = (fbl_file){
        .width = image->width,
        .height = image->height,
        .channels = image->channels,
        .bits = image->bits,
        .tile_width = options->tile_width ? options->tile_width : FBY_FBL_TILE_SIDE,
        .tile_height = options->tile_height ? options->tile_height : FBY_FBL_TILE_SIDE,
    };
    uint32_t wide = file->tile_width, high = file->tile_height;
    if (wide % 16 || wide > FBY_FBL_TILE_SIDE) return argument(error, "a tile width of", wide);
    if (high % 16 || high > FBY_FBL_TILE_SIDE) return argument(error, "a tile height of", high);

    const bool planar = image->layout == FBY_FBL_CHW;
    size_t row = image->width * (planar ? fbl_sample_bytes(file) : fbl_pixel_bytes(file));
    run->from = (fby_fbl_place){.at = (uint8_t *)(uintptr_t)image->data, .planar = planar};
    run->from.row = image->row_stride ? image->row_stride : row;
    run->from.plane = image->plane_stride ? image->plane_stride : run->from.row * image->height;
    if (run->from.row < row) return argument(error, "a row stride of", run->from.row);
    if (fbl_file_lay_out(file)) {
        fby_fail(error, FBY_EINVAL, "FBL: %u x %u pixels are more than the format holds", image->width,
                 image->height);
        return FBY_FBL_TOO_LARGE;
    }
    return FBY_FBL_OK;
}

static int prepare(encoding *run)
{
    fby_fbl_encoder *encoder = run->encoder;
    const fbl_file *file = &run->file;
    const size_t tiles = file->tiles;

    run->tile_pixels = (size_t)file->tile_width * file->tile_height;
    run->tile_samples = run->tile_pixels * file->channels;
    run->slot_bytes = run->tile_samples * fbl_sample_bytes(file) + 64;
    if (fby_buffer_reserve(&encoder->benches, run->workers * sizeof(bench)) ||
        fby_buffer_reserve(&encoder->pieces, tiles * sizeof(piece)) ||
        fby_buffer_reserve(&encoder->residuals, tiles * run->tile_samples * fbl_sample_bytes(file)) ||
        fby_buffer_reserve(&encoder->sums, tiles * run->tile_samples) ||
        fby_buffer_reserve(&encoder->low, tiles * run->tile_pixels) ||
        fby_buffer_reserve(&encoder->colours, tiles * FBY_FBL_COLOURS * sizeof(fbl_colour)) ||
        fby_buffer_reserve(&encoder->slots, tiles * run->slot_bytes)) {
        return FBY_FBL_MEMORY;
    }
    run->bench = encoder->benches.data;
    run->piece = encoder->pieces.data;
    run->residuals = encoder->residuals.data;
    run->sums = encoder->sums.data;
    run->low = encoder->low.data;
    run->colours = encoder->colours.data;
    run->slots = encoder->slots.data;
    fbl_buckets_make(file->bits, &run->buckets);
    for (uint32_t i = 0; i < run->workers; i++) {
        for (uint32_t set = 0; set < FBL_SETS; set++) {
            if (counted(run, set)) memset(run->bench[i].counts[set], 0, sizeof run->bench[i].counts[set]);
        }
    }
    for (uint32_t plane = 0; plane < file->channels && file->bits > 8; plane++) {
        run->shift[plane] = shift_of(run, fby_fbl_channel_of(plane, file->channels));
    }
    return FBY_FBL_OK;
}

/* Whether the picture's palette can have all its colours. */
static int shared_look(encoding *run)
{
    const fbl_file *file = &run->file;
    uint64_t pixels = (uint64_t)file->width * file->height;
    uint64_t most = FBY_FBL_COLOURS + pixels / WIDE_PART;

    run->shared.count = 0;
    /* Wide indices are decoded too slowly for the level fast. */
    if (fbl_pixel_bytes(file) == 1 || run->level == FBY_FBL_FAST) return FBY_FBL_OK;
    int result = fbl_shared_collect(file, &run->from, most < FBY_FBL_SHARED ? (uint32_t)most : FBY_FBL_SHARED,
                                    &run->encoder->known, &run->shared);
    run->all_shared = !result;
    return result < 0 ? FBY_FBL_MEMORY : FBY_FBL_OK;
}

static int encode(encoding *run, const fby_fbl_encode_options *options, fby_error *error)
{
    int reason = prepare(run);
    if (!reason) reason = shared_look(run);
    if (reason) return reason;
    fbl_parallel(run->workers, look_all, run);
    if (atomic_load(&run->out_of_range)) {
        fby_fail(error, FBY_EINVAL, "FBL: the image has samples of more than %u bits", run->file.bits);
        return FBY_FBL_ARGUMENT;
    }
    reason = tables_make(run);
    if (reason) return reason;
    atomic_store(&run->next, 0);
    fbl_parallel(run->workers, write_all, run);
    sets_drop(run);
    reason = put_together(run, options, error);
    return reason || options->unverified ? reason : verify(run, error);
}

int fby_fbl_encode(fby_fbl_encoder *encoder, const fby_fbl_image *image,
                   const fby_fbl_encode_options *options, const void **bytes, size_t *length,
                   fby_error *error)
{
    static const fby_fbl_encode_options defaults = FBY_FBL_ENCODE_OPTIONS_INIT;
    encoding *run = encoder->run;

    if (!options) options = &defaults;
    memset(run, 0, offsetof(encoding, tables));
    run->encoder = encoder;
    run->image = image;
    run->level = options->level;
    run->workers = options->threads ? options->threads : 1;
    int reason = begin(run, options, error);
    if (!reason) {
        if (run->workers > MOST_WORKERS) run->workers = MOST_WORKERS;
        if (run->workers > run->file.tiles) run->workers = run->file.tiles;
        reason = encode(run, options, error);
    }
    if (reason == FBY_FBL_MEMORY) fby_fail(error, FBY_ENOMEM, "FBL: no memory to encode with");
    if (!reason) {
        *bytes = encoder->out.data;
        *length = (size_t)run->file.file_bytes;
    }
    return reason;
}
