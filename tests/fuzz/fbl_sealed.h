/* What lies behind the checksums of an FBL file is reached by a file of any content only once they are right.
 */
#ifndef FBY_TESTS_FUZZ_FBL_SEALED_H
#define FBY_TESTS_FUZZ_FBL_SEALED_H

#include <stdlib.h>
#include <string.h>

#include "codec/fbl/file.h"
#include "kernels/crc32c.h"

/* A copy with the checksums of header, tables and index made right; malloc'd. */
static inline uint8_t *fbl_sealed(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size ? size : 1);
    fbl_file file;

    if (!bytes) abort();
    if (size) memcpy(bytes, data, size);
    if (size < FBY_FBL_HEADER_BYTES) return bytes;
    fbl_store32(bytes + 60, fby_crc32c_c(0, bytes, 60));
    if (fbl_file_read(bytes, size, &file, NULL) || size < file.payload_at) return bytes;
    fbl_store32(bytes + 52, fby_crc32c_c(0, bytes + FBY_FBL_HEADER_BYTES,
                                         (size_t)file.payload_at - FBY_FBL_HEADER_BYTES));
    fbl_store32(bytes + 60, fby_crc32c_c(0, bytes, 60));
    return bytes;
}

#endif
