/* XXH3, compiled in: its streaming state is no part of the shared library's stable interface. */
#ifndef FBY_IO_HASH_H
#define FBY_IO_HASH_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#endif
