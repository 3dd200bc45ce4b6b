#include "dataplane/sampler/subset.h"

#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/generator.h"

enum { BLOCK_WORDS = 8 };

static size_t word_count(uint32_t ids)
{
    return ((size_t)ids + 63) / 64;
}

static size_t block_count(uint32_t ids)
{
    return (word_count(ids) + BLOCK_WORDS - 1) / BLOCK_WORDS;
}

/* Counts bits without an instruction for it that not every CPU has: compilers make vectors of this. */
static inline uint64_t bits_of(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    word += word >> 8;
    word += word >> 16;
    word += word >> 32;
    return word & 0x7f;
}

/* The last word of the bitmap where it is used in part: without what stands beyond the last id. */
static uint64_t part_word(const uint64_t *words, uint32_t ids)
{
    return words[ids / 64] & ((UINT64_C(1) << ids % 64) - 1);
}

uint64_t fby_subset_hash(const uint64_t *words, uint32_t ids)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < ids / 64; i++) hash += words[i] * (FBY_GOLDEN * (2 * i + 1));
    return ids % 64 ? hash ^ fby_mix64(part_word(words, ids)) : hash;
}

fby_subset *fby_subset_create(const uint64_t *words, uint32_t ids)
{
    fby_subset *subset = calloc(1, sizeof *subset);
    if (!subset) return NULL;

    size_t count = word_count(ids);
    subset->ids = ids;
    subset->hash = fby_subset_hash(words, ids);
    subset->words = malloc(count * sizeof *subset->words);
    subset->before = malloc(block_count(ids) * sizeof *subset->before);
    if (!subset->words || !subset->before) {
        fby_subset_destroy(&subset);
        return NULL;
    }

    memcpy(subset->words, words, ids / 64 * sizeof *words);
    if (ids % 64) subset->words[ids / 64] = part_word(words, ids);
    for (size_t start = 0; start < count; start += BLOCK_WORDS) {
        size_t end = count - start < BLOCK_WORDS ? count : start + BLOCK_WORDS;
        uint64_t here = 0;
        for (size_t i = start; i < end; i++) here += bits_of(subset->words[i]);
        subset->before[start / BLOCK_WORDS] = subset->size;
        subset->size += (uint32_t)here;
    }
    return subset;
}

void fby_subset_destroy(fby_subset **subset)
{
    if (!*subset) return;
    free((*subset)->words);
    free((*subset)->before);
    free(*subset);
    *subset = NULL;
}

bool fby_subset_equal(const fby_subset *subset, const uint64_t *words, uint64_t hash)
{
    uint32_t whole = subset->ids / 64;
    return subset->hash == hash && memcmp(subset->words, words, whole * sizeof *words) == 0 &&
           (subset->ids % 64 == 0 || subset->words[whole] == part_word(words, subset->ids));
}

uint32_t fby_subset_at(const fby_subset *subset, uint32_t rank)
{
    size_t low = 0, high = block_count(subset->ids);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (subset->before[middle] <= rank)
            low = middle;
        else
            high = middle;
    }

    uint32_t left = rank - subset->before[low];
    size_t word = low * BLOCK_WORDS;
    for (;;) {
        uint32_t here = (uint32_t)__builtin_popcountll(subset->words[word]);
        if (left < here) break;
        left -= here;
        word++;
    }

    uint64_t bits = subset->words[word];
    while (left--) bits &= bits - 1;
    return (uint32_t)(word * 64 + (size_t)__builtin_ctzll(bits));
}

uint32_t fby_subset_rank(const fby_subset *subset, uint32_t id)
{
    size_t last = id / 64, word = last - last % BLOCK_WORDS;
    uint32_t rank = subset->before[last / BLOCK_WORDS];
    for (; word < last; word++) rank += (uint32_t)__builtin_popcountll(subset->words[word]);
    return rank + (uint32_t)__builtin_popcountll(subset->words[last] & ((UINT64_C(1) << id % 64) - 1));
}

uint64_t fby_subset_bytes(const fby_subset *subset)
{
    return sizeof *subset + word_count(subset->ids) * sizeof *subset->words +
           block_count(subset->ids) * sizeof *subset->before;
}
