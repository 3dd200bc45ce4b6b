/* How it is fast:
 * - Stuffed zero bytes are taken out of the data before it is decoded: a refill is one load of 8 bytes
 * without a test, and serves two symbols.
 * - One look-up gives a symbol's run, the length of its value, and how far to go on, so that what each symbol
 *   waits for of the one before it is a shift, a load and a shift. The value itself is computed beside that,
 *   without a branch.
 * - Of what is not wanted (rows that are skipped, columns outside the region) only lengths are looked up,
 *   several symbols at a time.
 *
 * How it is safe:
 * - The data of a restart interval, or of the scan, is copied up to its next marker, which must be there.
 * Then come zeros, more than a unit of blocks (MCU) can take. So nothing is read outside the copy; whether a
 * unit took bits that weren't there is looked at after it.
 * - An index into a block is a look-up in a table that covers every index that a run can lead to.
 * - What it doesn't know, or what no encoder makes, it leaves to libjpeg. */
#include "codec/jpeg_entropy.h"

#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpegint.h>

#include "codec/buffer.h"
#include "codec/jpeg_entropy_check.h"
#include "codec/jpeg_huffman.h"

enum {
    /* What a block can take: 27 bits for its first coefficient, 26 for each other; and the look-ahead. */
    BLOCK_BYTES = (27 + 63 * 26) / 8 + 1,
    AHEAD_BYTES = 16,
    DC_RANGE = 2048, /* what a block's first coefficient of 8-bit samples can be, either side of 0 */
};

struct fby_jpeg_entropy {
    struct jpeg_entropy_decoder shown; /* what libjpeg sees. First: a pointer to it is one to this */
    bool declined;

    fby_huffman dc_tables[NUM_HUFF_TBLS], ac_tables[NUM_HUFF_TBLS];
    /* of each block of a unit */
    const fby_huffman *dc_of[D_MAX_BLOCKS_IN_MCU];
    const fby_huffman *ac_of[D_MAX_BLOCKS_IN_MCU];
    bool walks_made;

    int32_t dc[MAX_COMPS_IN_SCAN]; /* the block before's, of each component */
    uint32_t column;               /* of the next unit */
    uint64_t units_left;           /* of the scan */
    uint64_t units_of_interval;    /* and up to the next restart marker */
    unsigned restarts;

    fby_buffer data;   /* the interval's, without stuffed bytes */
    const uint8_t *at; /* the next byte to load */
    const uint8_t *end;
    uint64_t bits; /* the next ones, from the top */
    unsigned left; /* how many of them count */
};

/* Where a coefficient stands in its block, by its place in the data. Runs can lead up to 63 places too far:
 * those all stand for the last one. */
static const uint8_t order[128] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45,
    38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63,
    63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

__attribute__((noreturn)) static void decline(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    entropy->declined = true;
    ERREXIT(jpeg, JERR_BAD_STATE);
    __builtin_unreachable();
}

fby_jpeg_entropy *fby_jpeg_entropy_create(void)
{
    return calloc(1, sizeof(fby_jpeg_entropy));
}

void fby_jpeg_entropy_destroy(fby_jpeg_entropy **entropy)
{
    if (!*entropy) return;
    fby_buffer_free(&(*entropy)->data);
    free(*entropy);
    *entropy = NULL;
}

size_t fby_jpeg_entropy_bytes(const fby_jpeg_entropy *entropy)
{
    return sizeof *entropy + entropy->data.capacity;
}

void fby_jpeg_entropy_trim(fby_jpeg_entropy *entropy)
{
    fby_buffer_trim(&entropy->data);
}

bool fby_jpeg_entropy_declined(const fby_jpeg_entropy *entropy)
{
    return entropy->declined;
}

/* The data up to the next marker, which libjpeg will find next in the source. False where there is none: the
 * file ends early. FF FF 00 has two meanings; libjpeg knows which one is its own. */
static bool take_interval(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    const uint8_t *from = jpeg->src->next_input_byte;
    const uint8_t *end = from + jpeg->src->bytes_in_buffer;
    uint8_t *to = entropy->data.bytes;

    for (;;) {
        const uint8_t *escape = memchr(from, 0xFF, (size_t)(end - from));
        if (!escape) return false;
        memcpy(to, from, (size_t)(escape - from));
        to += escape - from;
        from = escape + 1;
        if (from < end && *from == 0) {
            *to++ = 0xFF;
            from++;
            continue;
        }
        while (from < end && *from == 0xFF) from++;
        if (from == end || *from == 0) return false;

        jpeg->src->next_input_byte = escape;
        jpeg->src->bytes_in_buffer = (size_t)(end - escape);
        break;
    }
    memset(to, 0, (size_t)jpeg->blocks_in_MCU * BLOCK_BYTES + AHEAD_BYTES);
    entropy->at = entropy->data.bytes;
    entropy->end = to;
    entropy->bits = 0;
    entropy->left = 0;
    memset(entropy->dc, 0, sizeof entropy->dc);
    entropy->units_of_interval = entropy->units_left;
    if (jpeg->restart_interval && jpeg->restart_interval < entropy->units_left)
        entropy->units_of_interval = jpeg->restart_interval;
    return true;
}

static bool take_restart_marker(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    struct jpeg_source_mgr *source = jpeg->src;

    if (source->bytes_in_buffer < 2 || source->next_input_byte[1] != JPEG_RST0 + entropy->restarts % 8)
        return false;
    entropy->restarts++;
    source->next_input_byte += 2;
    source->bytes_in_buffer -= 2;
    return true;
}

static void make_walks(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    for (int i = 0; i < jpeg->comps_in_scan; i++)
        fby_huffman_make_walk(&entropy->ac_tables[jpeg->cur_comp_info[i]->ac_tbl_no]);
    entropy->walks_made = true;
}

/* Bits that wait to be read, as local variables while a unit is decoded. */
typedef struct reader {
    const uint8_t *at;
    uint64_t bits;
    unsigned left;
} reader;

/* Leaves at least 56 bits: enough for two codes with their values. */
static inline void refill(reader *r)
{
    uint64_t next;

    memcpy(&next, r->at, sizeof next);
    r->bits |= be64toh(next) >> r->left;
    r->at += (63 - r->left) >> 3;
    r->left |= 56;
}

static inline void drop(reader *r, unsigned length)
{
    r->bits <<= length;
    r->left -= length;
}

/* The code at the front. A long one, and one that isn't in the table, is searched for; `unknown` keeps that
 * there was none. It then reads as the end of a block. */
static __attribute__((noinline)) unsigned search(const fby_huffman *table, uint64_t bits, bool *unknown)
{
    unsigned entry = fby_huffman_search(table, (uint32_t)(bits >> 48));

    if (entry) return entry;
    *unknown = true;
    return FBY_HUFFMAN_END_OF_BLOCK << FBY_HUFFMAN_RUN_SHIFT;
}

static inline unsigned look(const fby_huffman *table, const reader *r, bool *unknown)
{
    unsigned entry = table->lookup[r->bits >> (64 - FBY_HUFFMAN_LOOKUP_BITS)];

    return __builtin_expect(!entry, 0) ? search(table, r->bits, unknown) : entry;
}

/* The value behind a code: as it is where its first bit is 1, else less 2^size - 1. */
static inline int32_t value_of(const reader *r, unsigned entry)
{
    unsigned size = entry >> FBY_HUFFMAN_SIZE_SHIFT & FBY_HUFFMAN_SIZE_MASK;
    uint64_t value = r->bits << ((entry & FBY_HUFFMAN_LENGTH_MASK) - size);
    int32_t negative = (int32_t)(value >> 63) - 1; /* all ones where its first bit is 0 */

    return (int32_t)(value >> 1 >> (63 - size)) + (negative & (1 - (1 << size)));
}

/* The coefficients behind the first; false where they don't end with the block. The first code is there to be
 * read; then a refill serves two. */
static inline bool decode_block(reader *r, const fby_huffman *table, JCOEF *block, bool *unknown)
{
    unsigned place = 1;
    unsigned entry;

    for (;;) {
        entry = look(table, r, unknown);
        place += entry >> FBY_HUFFMAN_RUN_SHIFT;
        block[order[place]] = (JCOEF)value_of(r, entry);
        drop(r, entry & FBY_HUFFMAN_LENGTH_MASK);
        if (++place >= DCTSIZE2) break;
        refill(r);
        entry = look(table, r, unknown);
        place += entry >> FBY_HUFFMAN_RUN_SHIFT;
        block[order[place]] = (JCOEF)value_of(r, entry);
        drop(r, entry & FBY_HUFFMAN_LENGTH_MASK);
        if (++place >= DCTSIZE2) break;
    }
    /* An end of block writes 0 to the last coefficient, which no code before it can have been. */
    return place == DCTSIZE2 || entry >> FBY_HUFFMAN_RUN_SHIFT == FBY_HUFFMAN_END_OF_BLOCK;
}

static inline bool walk_block(reader *r, const fby_huffman *table, bool *unknown)
{
    unsigned place = 1;

    for (;;) {
        unsigned entry = table->walk[r->bits >> (64 - FBY_HUFFMAN_LOOKUP_BITS)];
        unsigned end = entry & FBY_HUFFMAN_WALK_END;
        unsigned to = place + (entry >> FBY_HUFFMAN_WALK_ZEROS_SHIFT & 63);
        if (__builtin_expect(!entry || to + !!end > DCTSIZE2, 0)) {
            entry = look(table, r, unknown);
            unsigned run = entry >> FBY_HUFFMAN_RUN_SHIFT;
            end = run == FBY_HUFFMAN_END_OF_BLOCK;
            to = end ? place : place + run + 1;
            if (to > DCTSIZE2) return false;
        }
        drop(r, entry & FBY_HUFFMAN_LENGTH_MASK);
        if (end || to == DCTSIZE2) return true;
        place = to;
        refill(r);
    }
}

static void end_unit(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    int64_t unread = 8 * (entropy->end - entropy->at) + (int64_t)entropy->left;

    if (unread < 0) decline(entropy, jpeg);
    entropy->units_left--;
    entropy->units_of_interval--;
    /* What is left then is less than a byte, which pads the last one. */
    if (!entropy->units_of_interval && unread >= 8) decline(entropy, jpeg);
    if (++entropy->column == jpeg->MCUs_per_row) entropy->column = 0;
}

/* What libjpeg calls for each unit of blocks, which it has set to 0. `blocks` is NULL where it skips rows;
 * the columns outside jpeg_crop_scanline()'s it drops. */
static boolean decode_unit(j_decompress_ptr jpeg, JBLOCKROW *blocks)
{
    fby_jpeg_entropy *entropy = (fby_jpeg_entropy *)jpeg->entropy;
    bool wanted = blocks && entropy->column >= jpeg->master->first_iMCU_col &&
                  entropy->column <= jpeg->master->last_iMCU_col;
    bool unknown = false;
    bool fits = true;

    if (!entropy->units_of_interval &&
        (!entropy->units_left || !take_restart_marker(entropy, jpeg) || !take_interval(entropy, jpeg))) {
        decline(entropy, jpeg);
    }
    if (!wanted && !entropy->walks_made) make_walks(entropy, jpeg);

    reader r = {entropy->at, entropy->bits, entropy->left};
    for (int b = 0; b < jpeg->blocks_in_MCU; b++) {
        refill(&r);
        unsigned entry = look(entropy->dc_of[b], &r, &unknown);
        int32_t dc = entropy->dc[jpeg->MCU_membership[b]] += value_of(&r, entry);
        drop(&r, entry & FBY_HUFFMAN_LENGTH_MASK);
        fits &= dc >= -DC_RANGE && dc < DC_RANGE;
        if (wanted) {
            JCOEF *block = blocks[b][0];
            block[0] = (JCOEF)dc;
            fits &= decode_block(&r, entropy->ac_of[b], block, &unknown);
        } else {
            fits &= walk_block(&r, entropy->ac_of[b], &unknown);
        }
    }
    entropy->at = r.at;
    entropy->bits = r.bits;
    entropy->left = r.left;
    if (unknown || !fits) decline(entropy, jpeg);
    end_unit(entropy, jpeg);
    return TRUE;
}

/* libjpeg starts one pass, which it did before. */
static void start_again(j_decompress_ptr jpeg)
{
    decline((fby_jpeg_entropy *)jpeg->entropy, jpeg);
}

static bool is_for_us(const struct jpeg_decompress_struct *jpeg)
{
    if (jpeg->progressive_mode || jpeg->arith_code || jpeg->data_precision != 8 ||
        jpeg->inputctl->has_multiple_scans || jpeg->comps_in_scan != jpeg->num_components ||
        jpeg->unread_marker || jpeg->Ss != 0 || jpeg->Se != DCTSIZE2 - 1 || jpeg->Ah != 0 || jpeg->Al != 0) {
        return false;
    }
    for (int i = 0; i < jpeg->comps_in_scan; i++) {
        if (!jpeg->cur_comp_info[i]->component_needed) return false;
    }
    return true;
}

static bool make_table(fby_huffman *tables, fby_huffman_kind kind, JHUFF_TBL *const *from, int number)
{
    return number >= 0 && number < NUM_HUFF_TBLS && from[number] &&
           fby_huffman_make(&tables[number], kind, from[number]->bits, from[number]->huffval);
}

static bool make_tables(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    for (int i = 0; i < jpeg->comps_in_scan; i++) {
        const jpeg_component_info *c = jpeg->cur_comp_info[i];
        if (!make_table(entropy->dc_tables, FBY_HUFFMAN_DC, jpeg->dc_huff_tbl_ptrs, c->dc_tbl_no) ||
            !make_table(entropy->ac_tables, FBY_HUFFMAN_AC, jpeg->ac_huff_tbl_ptrs, c->ac_tbl_no)) {
            return false;
        }
    }
    for (int b = 0; b < jpeg->blocks_in_MCU; b++) {
        const jpeg_component_info *c = jpeg->cur_comp_info[jpeg->MCU_membership[b]];
        entropy->dc_of[b] = &entropy->dc_tables[c->dc_tbl_no];
        entropy->ac_of[b] = &entropy->ac_tables[c->ac_tbl_no];
    }
    entropy->walks_made = false;
    return true;
}

fby_jpeg_attached fby_jpeg_entropy_attach_unchecked(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    entropy->declined = false;
    if (!is_for_us(jpeg) || !make_tables(entropy, jpeg)) return FBY_JPEG_NOT_ATTACHED;
    if (!fby_buffer_reserve(&entropy->data, jpeg->src->bytes_in_buffer +
                                                (size_t)jpeg->blocks_in_MCU * BLOCK_BYTES + AHEAD_BYTES)) {
        return FBY_JPEG_NO_MEMORY;
    }
    entropy->column = 0;
    entropy->restarts = 0;
    entropy->units_left = (uint64_t)jpeg->MCUs_per_row * jpeg->MCU_rows_in_scan;
    if (!take_interval(entropy, jpeg)) return FBY_JPEG_NOT_ATTACHED;
    entropy->shown = (struct jpeg_entropy_decoder){.start_pass = start_again, .decode_mcu = decode_unit};
    jpeg->entropy = &entropy->shown;
    return FBY_JPEG_ATTACHED;
}

fby_jpeg_attached fby_jpeg_entropy_attach(fby_jpeg_entropy *entropy, j_decompress_ptr jpeg)
{
    entropy->declined = false;
    if (fby_jpeg_entropy_refused()) return FBY_JPEG_NOT_ATTACHED;
    return fby_jpeg_entropy_attach_unchecked(entropy, jpeg);
}
