/* JPEGs of any content through our entropy decoder and through libjpeg's: the same verdict, the same words,
 * the same pixels, whole and by region. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/codec/jpeg_paths.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static jpeg_paths paths;
    uint32_t seed = 2166136261u;

    if (!paths.ours) jpeg_paths_create(&paths);
    if (fby_format_of(data, size) != FBY_FORMAT_JPEG) return 0;
    for (size_t i = 0; i < size; i++) seed = (seed ^ data[i]) * 16777619u;
    if (!jpeg_paths_agree(&paths, data, size, seed)) {
        fprintf(stderr, "%s\n", paths.difference);
        abort();
    }
    return 0;
}
