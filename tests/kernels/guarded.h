/* Memory that ends at a page that can't be touched: what reads or writes past its end dies. */
#ifndef FBY_TESTS_KERNELS_GUARDED_H
#define FBY_TESTS_KERNELS_GUARDED_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct guarded {
    uint8_t *bytes; /* the last byte of these is the last before the guard page; before them lies another */
    uint8_t *map;
    size_t map_bytes;
} guarded;

/* bytes is NULL without memory. */
static inline guarded guarded_make(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    guarded it = {.map_bytes = inner + 2 * page};
    it.map = mmap(NULL, it.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (it.map == MAP_FAILED || mprotect(it.map + page, inner, PROT_READ | PROT_WRITE)) return (guarded){0};
    it.bytes = it.map + page + inner - bytes;
    return it;
}

static inline void guarded_free(guarded *it)
{
    if (it->map) munmap(it->map, it->map_bytes);
    *it = (guarded){0};
}

#endif
