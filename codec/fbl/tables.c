/* The tables: which there are, the picture's palette, then each set's bits. */
#include <string.h>

#include "codec/fbl/bits.h"
#include "codec/fbl/file.h"

enum { TABLES_HEAD = 4 };

/* Bits that say how many raw bits a class has. */
static uint32_t raw_bits_of(const fbl_file *file, uint32_t set)
{
    return file->bits > 8 && set < FBL_PALETTE_SET ? 4 : 3;
}

static bool contexts_read(fbl_bits *bits, fby_fbl_set *set)
{
    bool listed = fbl_bits_read(bits, 1);
    uint32_t context = 0;

    for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) {
        if (listed)
            context = fbl_bits_read(bits, 4);
        else if (sum)
            context += fbl_bits_read(bits, 1);
        if (context >= set->contexts) return false;
        set->context[sum] = (uint8_t)context;
    }
    return true;
}

static bool classes_read(fbl_bits *bits, fby_fbl_set *set, uint32_t context, uint32_t raw_bits, uint32_t mask)
{
    uint32_t base = 0, start = 0, last = fbl_bits_read(bits, 3);

    set->tokens[context] = (uint8_t)(last + 1);
    for (uint32_t token = 0; token <= last; token++) {
        uint32_t at = context * FBY_FBL_TOKENS + token, raw = fbl_bits_read(bits, raw_bits);
        uint32_t frequency = token < last ? fbl_bits_read(bits, FBY_FBL_SCALE_BITS) : FBY_FBL_SCALE - start;
        if (start + frequency > FBY_FBL_SCALE) return false;
        set->raw[at] = (uint8_t)raw;
        set->frequency[at] = (uint16_t)frequency;
        set->start[at] = (uint16_t)start;
        set->base[at] = (uint16_t)(base & mask);
        start += frequency;
        base += 1u << raw;
    }
    return true;
}

static bool set_read(const fbl_file *file, fbl_bits *bits, uint32_t index, fby_fbl_set *set)
{
    uint32_t mask = index >= FBL_PALETTE_SET ? 255 : (1u << file->bits) - 1;

    memset(set, 0, sizeof *set);
    set->shift = fbl_bits_read(bits, 4);
    set->contexts = fbl_bits_read(bits, 4) + 1;
    if (!contexts_read(bits, set)) return false;
    for (uint32_t context = 0; context < set->contexts; context++) {
        if (!classes_read(bits, set, context, raw_bits_of(file, index), mask)) return false;
    }
    fby_fbl_set_finish(set);
    return !bits->short_of_bits && !(set->shift && (file->bits == 8 || index >= FBL_PALETTE_SET));
}

static int corrupt(fby_error *error, const char *what)
{
    fby_fail(error, FBY_ESAMPLE, "FBL: the tables hold %s: the file is damaged", what);
    return FBY_FBL_CORRUPT;
}

int fbl_tables_read(const fbl_file *file, const uint8_t *bytes, fbl_tables *tables, fby_error *error)
{
    if (file->table_bytes < TABLES_HEAD) return corrupt(error, "nothing");
    tables->present = bytes[0];
    tables->colours = (uint32_t)bytes[2] | (uint32_t)bytes[3] << 8;
    size_t palette = tables->colours * fbl_pixel_bytes(file);
    if (tables->present >> FBL_SETS || bytes[1] || tables->colours > FBY_FBL_SHARED)
        return corrupt(error, "what can't be");
    if (TABLES_HEAD + palette > file->table_bytes) return corrupt(error, "a palette that doesn't fit");
    fbl_samples_copy(file, bytes + TABLES_HEAD, (size_t)tables->colours * file->channels, tables->colour);

    fbl_bits bits = {.in = bytes, .at = (TABLES_HEAD + palette) * 8, .end = (size_t)file->table_bytes * 8};
    for (uint32_t i = 0; i < FBL_SETS; i++) {
        if ((tables->present >> i & 1) && !set_read(file, &bits, i, &tables->set[i])) {
            return corrupt(error, "a set that can't be");
        }
    }
    return FBY_FBL_OK;
}

static void contexts_write(fbl_bits *bits, const fby_fbl_set *set)
{
    bool listed = set->context[0] != 0;

    for (uint32_t sum = 1; sum < FBY_FBL_SUMS; sum++) {
        uint32_t before = set->context[sum - 1];
        listed |= set->context[sum] != before && set->context[sum] != before + 1;
    }
    fbl_bits_write(bits, listed, 1);
    for (uint32_t sum = 0; sum < FBY_FBL_SUMS; sum++) {
        if (listed)
            fbl_bits_write(bits, set->context[sum], 4);
        else if (sum)
            fbl_bits_write(bits, set->context[sum] != set->context[sum - 1], 1);
    }
}

static void set_write(const fbl_file *file, fbl_bits *bits, uint32_t index, const fby_fbl_set *set)
{
    fbl_bits_write(bits, set->shift, 4);
    fbl_bits_write(bits, set->contexts - 1, 4);
    contexts_write(bits, set);
    for (uint32_t context = 0; context < set->contexts; context++) {
        uint32_t tokens = set->tokens[context];
        fbl_bits_write(bits, tokens - 1, 3);
        for (uint32_t token = 0; token < tokens; token++) {
            uint32_t at = context * FBY_FBL_TOKENS + token;
            fbl_bits_write(bits, set->raw[at], raw_bits_of(file, index));
            if (token + 1 < tokens) fbl_bits_write(bits, set->frequency[at], FBY_FBL_SCALE_BITS);
        }
    }
}

size_t fbl_tables_write(const fbl_file *file, const fbl_tables *tables, uint8_t *bytes)
{
    size_t palette = tables->colours * fbl_pixel_bytes(file);

    memset(bytes, 0, TABLES_HEAD + palette + FBL_SETS * FBL_SET_BYTES);
    bytes[0] = (uint8_t)tables->present;
    bytes[2] = (uint8_t)tables->colours;
    bytes[3] = (uint8_t)(tables->colours >> 8);
    fbl_samples_copy(file, tables->colour, (size_t)tables->colours * file->channels, bytes + TABLES_HEAD);

    fbl_bits bits = {.out = bytes, .at = (TABLES_HEAD + palette) * 8};
    for (uint32_t i = 0; i < FBL_SETS; i++) {
        if (tables->present >> i & 1) set_write(file, &bits, i, &tables->set[i]);
    }
    return ((bits.at + 7) / 8 + 3) & ~(size_t)3;
}
