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

fby_subset *fby_subset_create(const uint64_t *words, uint32_t ids)
{
    fby_subset *subset = calloc(1, sizeof *subset);
    if (!subset) return NULL;

    size_t count = word_count(ids);
    subset->ids = ids;
    subset->words = malloc(count * sizeof *subset->words);
    subset->before = malloc(block_count(ids) * sizeof *subset->before);
    if (!subset->words || !subset->before) {
        fby_subset_destroy(&subset);
        return NULL;
    }

    memcpy(subset->words, words, count * sizeof *words);
    if (ids % 64) subset->words[count - 1] &= (UINT64_C(1) << ids % 64) - 1;
    for (size_t i = 0; i < count; i++) {
        if (i % BLOCK_WORDS == 0) subset->before[i / BLOCK_WORDS] = subset->size;
        subset->size += (uint32_t)__builtin_popcountll(subset->words[i]);
        subset->hash = (subset->hash ^ subset->words[i]) * FBY_GOLDEN;
        subset->hash ^= subset->hash >> 29;
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

bool fby_subset_equal(const fby_subset *a, const fby_subset *b)
{
    return a->hash == b->hash && a->size == b->size && a->ids == b->ids &&
           memcmp(a->words, b->words, word_count(a->ids) * sizeof *a->words) == 0;
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
