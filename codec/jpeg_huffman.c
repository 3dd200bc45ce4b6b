#include "codec/jpeg_huffman.h"

#include <string.h>

enum {
    LOOKUP_BITS = FBY_HUFFMAN_LOOKUP_BITS,
    LOOKUP_SIZE = 1 << LOOKUP_BITS,
    LONGEST_CODE = 16,
    /* Of 8-bit samples. Larger ones fit the format, but no encoder makes them. */
    LONGEST_DC = 11,
    LONGEST_AC = 10,
    ZEROS_OF_16 = 15,
};

/* 0 for a symbol that baseline JPEG doesn't know. */
static uint16_t entry_of(fby_huffman_kind kind, unsigned symbol, unsigned length)
{
    unsigned size = kind == FBY_HUFFMAN_DC ? symbol : symbol & 15;
    unsigned run = kind == FBY_HUFFMAN_DC ? 0 : symbol >> 4;

    if (size > (kind == FBY_HUFFMAN_DC ? LONGEST_DC : LONGEST_AC)) return 0;
    if (kind == FBY_HUFFMAN_AC && !size) {
        if (run == 0)
            run = FBY_HUFFMAN_END_OF_BLOCK;
        else if (run != ZEROS_OF_16)
            return 0;
    }
    return (uint16_t)((length + size) | size << FBY_HUFFMAN_SIZE_SHIFT | run << FBY_HUFFMAN_RUN_SHIFT);
}

bool fby_huffman_make(fby_huffman *table, fby_huffman_kind kind, const uint8_t counts[17],
                      const uint8_t values[256])
{
    if (table->made && table->kind == kind && !memcmp(table->counts, counts, sizeof table->counts) &&
        !memcmp(table->values, values, sizeof table->values)) {
        return true;
    }
    table->made = table->walk_made = false;
    table->kind = kind;
    memcpy(table->counts, counts, sizeof table->counts);
    memcpy(table->values, values, sizeof table->values);
    memset(table->lookup, 0, sizeof table->lookup);

    uint32_t code = 0, place = 0;
    for (unsigned length = 1; length <= LONGEST_CODE; length++, code <<= 1) {
        table->first[length] = (int32_t)place - (int32_t)code;
        if (place + counts[length] > sizeof table->values || code + counts[length] > 1u << length)
            return false;
        for (unsigned i = 0; i < counts[length]; i++, code++, place++) {
            if (length > LOOKUP_BITS) continue;
            uint16_t entry = entry_of(kind, values[place], length);
            unsigned spare = LOOKUP_BITS - length;
            for (uint32_t at = code << spare; at < (code + 1) << spare; at++) table->lookup[at] = entry;
        }
        table->limit[length] = code << (LONGEST_CODE - length);
    }
    table->made = true;
    return true;
}

void fby_huffman_make_walk(fby_huffman *table)
{
    if (table->walk_made) return;
    for (uint32_t bits = 0; bits < LOOKUP_SIZE; bits++) {
        unsigned length = 0, coefficients = 0, end = 0;
        while (!end && length < LOOKUP_BITS) {
            uint16_t entry = table->lookup[(bits << length) & (LOOKUP_SIZE - 1)];
            unsigned both = entry & FBY_HUFFMAN_LENGTH_MASK;
            unsigned size = entry >> FBY_HUFFMAN_SIZE_SHIFT & FBY_HUFFMAN_SIZE_MASK;
            unsigned run = entry >> FBY_HUFFMAN_RUN_SHIFT;
            /* The code itself must lie within the bits that are known; its value may lie beyond. */
            if (!entry || length + both - size > LOOKUP_BITS) break;
            if (run == FBY_HUFFMAN_END_OF_BLOCK) {
                end = FBY_HUFFMAN_WALK_END;
            } else {
                if (coefficients + run + 1 > 63) break;
                coefficients += run + 1;
            }
            length += both;
        }
        table->walk[bits] = (uint16_t)(length | coefficients << FBY_HUFFMAN_WALK_ZEROS_SHIFT | end);
    }
    table->walk_made = true;
}

uint16_t fby_huffman_search(const fby_huffman *table, uint32_t next)
{
    for (unsigned length = 1; length <= LONGEST_CODE; length++) {
        if (next >= table->limit[length]) continue;
        int32_t place = (int32_t)(next >> (LONGEST_CODE - length)) + table->first[length];
        return entry_of(table->kind, table->values[place & 255], length);
    }
    return 0;
}
