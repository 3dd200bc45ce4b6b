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
    return word * UINT64_C(0x0101010101010101) >> 56;
}

/* A word of the bitmap, without what stands beyond the last id. */
static inline uint64_t word_of(const uint64_t *words, uint32_t ids, size_t i)
{
    uint32_t last = ids % 64;
    return last && i == ids / 64 ? words[i] & ((UINT64_C(1) << last) - 1) : words[i];
}

fby_subset_digest fby_subset_digest_of(const uint64_t *words, uint32_t ids)
{
    fby_subset_digest digest = {0};
    uint64_t size = 0;
    for (size_t i = 0; i < ids / 64; i++) {
        size += bits_of(words[i]);
        digest.hash += words[i] * (FBY_GOLDEN * (2 * i + 1));
    }
    if (ids % 64) {
        uint64_t last = word_of(words, ids, ids / 64);
        size += bits_of(last);
        digest.hash += last * FBY_GOLDEN;
    }
    digest.size = (uint32_t)size;
    return digest;
}

fby_subset *fby_subset_create(const uint64_t *words, uint32_t ids, fby_subset_digest digest)
{
    fby_subset *subset = calloc(1, sizeof *subset);
    if (!subset) return NULL;

    size_t count = word_count(ids);
    subset->ids = ids;
    subset->digest = digest;
    subset->words = malloc(count * sizeof *subset->words);
    subset->before = malloc(block_count(ids) * sizeof *subset->before);
    if (!subset->words || !subset->before) {
        fby_subset_destroy(&subset);
        return NULL;
    }

    uint32_t before = 0;
    for (size_t start = 0; start < count; start += BLOCK_WORDS) {
        size_t end = count - start < BLOCK_WORDS ? count : start + BLOCK_WORDS;
        uint64_t here = 0;
        for (size_t i = start; i < end; i++) {
            subset->words[i] = word_of(words, ids, i);
            here += bits_of(subset->words[i]);
        }
        subset->before[start / BLOCK_WORDS] = before;
        before += (uint32_t)here;
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

bool fby_subset_equal(const fby_subset *subset, const uint64_t *words, fby_subset_digest digest)
{
    if (subset->digest.hash != digest.hash || subset->digest.size != digest.size) return false;
    size_t whole = subset->ids / 64;
    return memcmp(subset->words, words, whole * sizeof *words) == 0 &&
           (subset->ids % 64 == 0 || subset->words[whole] == word_of(words, subset->ids, whole));
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
