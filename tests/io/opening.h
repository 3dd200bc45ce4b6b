/* Opening data sets in tests. */
#ifndef FBY_TESTS_IO_OPENING_H
#define FBY_TESTS_IO_OPENING_H

#include "io/dataset.h"
#include "tests/io/tree.h"

#include <string.h>

/* Opens without a cache; NULL: `error` says why not. */
static inline fby_dataset *opening(fby_dataset_kind kind, const char *path, fby_error *error)
{
    fby_dataset *dataset;
    fby_dataset_options options = {.kind = kind, .path = path, .cache = "", .threads = 3};
    fby_dataset_open(&dataset, &options, error);
    return dataset;
}

static inline bool opening_same(const fby_dataset *one, const fby_dataset *other)
{
    return fby_digest_equal(fby_dataset_fingerprint(one), fby_dataset_fingerprint(other));
}

#endif
