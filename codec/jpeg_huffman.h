/* Huffman tables of baseline JPEG as the decoder of jpeg_entropy.c looks them up. Private to codec/. */
#ifndef FBY_CODEC_JPEG_HUFFMAN_H
#define FBY_CODEC_JPEG_HUFFMAN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FBY_HUFFMAN_LOOKUP_BITS = 10, /* wider tables push other data out of the first cache and were slower */
    FBY_HUFFMAN_LENGTH_MASK = 63,
    FBY_HUFFMAN_SIZE_SHIFT = 6,
    FBY_HUFFMAN_SIZE_MASK = 15,
    FBY_HUFFMAN_RUN_SHIFT = 10,
    FBY_HUFFMAN_END_OF_BLOCK = 63, /* as a run: no real one is longer than 15 */

    FBY_HUFFMAN_WALK_ZEROS_SHIFT = 6,
    FBY_HUFFMAN_WALK_END = 1 << 12,
};

typedef enum fby_huffman_kind { FBY_HUFFMAN_DC, FBY_HUFFMAN_AC } fby_huffman_kind;

typedef struct fby_huffman {
    /* What a code means, by the next bits of the data: bits 0-5 the length of the code and of the value
     * behind it, 6-9 the value's length, 10-15 the zeros before it. 0: the code is longer, or none at all. */
    uint16_t lookup[1 << FBY_HUFFMAN_LOOKUP_BITS];
    /* The same where values don't matter, of as many codes as lie within the bits: bits 0-5 their length,
     * 6-11 how many coefficients they stand for, 12: they end the block. 0: look the next code up alone. */
    uint16_t walk[1 << FBY_HUFFMAN_LOOKUP_BITS];
    /* Longer codes. Of those of length n: 16 bits of data below limit[n] start with one, and first[n] is what
     * its bits lack to be its place in values. */
    uint32_t limit[17];
    int32_t first[17];

    /* What it was made from, to see that the next picture brings the same. */
    uint8_t counts[17], values[256];
    fby_huffman_kind kind;
    bool made, walk_made;
} fby_huffman;

/* Makes the table from a file's: counts[n] codes of length n (1-16), values in the order of the codes. A
 * table equal to the one before, as most files bring it, is kept. False: this is no table. */
bool fby_huffman_make(fby_huffman *table, fby_huffman_kind kind, const uint8_t counts[17],
                      const uint8_t values[256]);
/* Adds `walk`, which costs more than the rest and helps only those who leave something out. */
void fby_huffman_make_walk(fby_huffman *table);
/* The entry of a code that `lookup` doesn't have; 0: there is none, or baseline JPEG knows no such symbol.
 * `next` holds the data's next 16 bits. */
uint16_t fby_huffman_search(const fby_huffman *table, uint32_t next);

#endif
