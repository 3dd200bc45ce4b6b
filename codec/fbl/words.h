/* The encoder of symbols: rANS, from the last symbol to the first. Private to codec/fbl/. */
#ifndef FBY_CODEC_FBL_WORDS_H
#define FBY_CODEC_FBL_WORDS_H

#include "codec/fbl/train.h"

/* A class as the encoder wants it. */
typedef struct fbl_class {
    uint64_t reciprocal; /* of the frequency, in 2^-64, rounded up; 1's is short of it: see words.c */
    uint32_t most;       /* the largest state that takes it without giving a word away */
    uint16_t rest, add;  /* rest: 512 - frequency */
    uint16_t base;
    uint8_t raw, scale; /* scale: 2^raw, of the raw bits that are taken at once */
} fbl_class;

/* A set as the encoder wants it. */
typedef struct fbl_coder {
    uint32_t bits;
    uint16_t row_of[FBY_FBL_SUMS];                    /* of class_of, by sum */
    uint8_t class_of[FBY_FBL_CONTEXTS * FBL_BUCKETS]; /* by context and bucket */
    fbl_class class[FBY_FBL_CONTEXTS * FBY_FBL_TOKENS];
    fby_fbl_push push;
} fbl_coder;

void fbl_coder_make(const fby_fbl_set *set, uint32_t bits, fbl_coder *coder);

/* Values of 32 lanes, one or two bytes each, and their sums. Runs of `run` symbols use one coder after the
 * other, again and again. */
typedef struct fbl_symbols {
    const void *values;
    const uint8_t *sums;
    uint32_t count; /* of each lane */
    uint32_t run, coders;
    const fbl_coder *coder[FBY_FBL_PLANES];
    const fby_fbl_kernels *kernels;
} fbl_symbols;

/* Bytes that the symbols may take: states, and up to two words each. */
size_t fbl_words_bytes(const fbl_symbols *symbols);
/* Writes states and words to the end of `room`, whose `bytes` are as many as the above says, and before which
 * 16 more are overwritten; returns where they begin. */
uint8_t *fbl_words_write(const fbl_symbols *symbols, uint8_t *room, size_t bytes);

/* A palette tile's symbols, as fby_fbl_indices_model makes them. */
typedef struct fbl_indices {
    const uint8_t *symbols, *sums, *low; /* low: NULL but for wide indices */
    uint32_t count;                      /* of each lane */
    const fbl_coder *coder, *low_coder;
} fbl_indices;

size_t fbl_indices_bytes(const fbl_indices *indices);
uint8_t *fbl_indices_write(const fbl_indices *indices, uint8_t *room, size_t bytes);

#endif
