#include "dataplane/sampler/arena.h"

#include <forebay/error.h>
#include <stddef.h>
#include <sys/mman.h>

void *fby_reserve(uint64_t bytes)
{
    void *start =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

void fby_unreserve(void *start, uint64_t bytes)
{
    if (start) munmap(start, bytes);
}

int fby_arena_create(fby_arena *arena, uint32_t width, uint64_t capacity)
{
    if (capacity >= FBY_NONE) capacity = FBY_NONE - 1;
    *arena = (fby_arena){.width = width, .free = FBY_NONE, .capacity = (uint32_t)capacity};
    arena->cells = fby_reserve(capacity * width * sizeof *arena->cells);
    return arena->cells ? FBY_OK : FBY_ENOMEM;
}

void fby_arena_destroy(fby_arena *arena)
{
    fby_unreserve(arena->cells, (uint64_t)arena->capacity * arena->width * sizeof *arena->cells);
    arena->cells = NULL;
}
