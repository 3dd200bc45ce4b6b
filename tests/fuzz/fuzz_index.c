/* The index reader on any bytes: as they are, and again with size and checksum made right, so that the checks
 * behind them are reached. What is accepted is walked from end to end. */
#include "io/index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void index_walk(const fby_index *index)
{
    uint64_t sum = strlen(fby_index_string(index, index->header->root));
    for (uint64_t i = 0; i < index->header->classes; i++)
        sum += strlen(fby_index_string(index, index->classes[i]));
    for (uint64_t i = 0; i < index->header->folders; i++) {
        sum += strlen(fby_index_string(index, index->folders[i].path));
        sum += fby_index_stamp_racy(&index->folders[i].stamp, index->header->checked);
    }
    for (uint64_t i = 0; i < index->header->samples; i++) {
        const fby_index_sample *sample = &index->samples[i];
        sum += strlen(fby_index_string(index, sample->path));
        if (sample->size > index->header->largest) abort();
        if (index->header->classes && (sample->label < 0 || sample->label >= index->header->classes)) abort();
    }
    if (!sum && index->header->samples) abort(); /* every sample has a path */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fby_index index;
    uint8_t *block = malloc(bytes ? bytes : 1);
    if (!block) return 0;

    if (bytes) memcpy(block, data, bytes);
    if (fby_index_check(&index, block, bytes, NULL)) index_walk(&index);
    if (bytes >= sizeof(fby_index_header)) {
        fby_index_seal(block, bytes);
        if (fby_index_check(&index, block, bytes, NULL)) index_walk(&index);
    }
    free(block);
    return 0;
}
