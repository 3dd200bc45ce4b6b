/* Equal cells of a few numbers each, from address space that is reserved at once and filled as it is used:
 * taking one never fails and costs a few instructions. */
#ifndef FBY_DATAPLANE_SAMPLER_ARENA_H
#define FBY_DATAPLANE_SAMPLER_ARENA_H

#include <stdint.h>

#define FBY_NONE UINT32_MAX

typedef struct fby_arena {
    uint32_t *cells;
    uint32_t width;    /* numbers a cell */
    uint32_t free;     /* a chain through the cells' first numbers */
    uint32_t used;     /* cells ever taken */
    uint32_t capacity; /* the caller sees to it that it is enough */
} fby_arena;

/* Zeroed address space, or NULL. Pages take memory when they are first written. */
void *fby_reserve(uint64_t bytes);
void fby_unreserve(void *start, uint64_t bytes);

int fby_arena_create(fby_arena *arena, uint32_t width, uint64_t capacity); /* 0 or FBY_ENOMEM */
void fby_arena_destroy(fby_arena *arena);

static inline uint32_t *fby_arena_at(const fby_arena *arena, uint32_t cell)
{
    return arena->cells + (uint64_t)cell * arena->width;
}

static inline uint32_t fby_arena_take(fby_arena *arena)
{
    if (arena->free == FBY_NONE) return arena->used++;
    uint32_t cell = arena->free;
    arena->free = *fby_arena_at(arena, cell);
    return cell;
}

static inline void fby_arena_give(fby_arena *arena, uint32_t cell)
{
    *fby_arena_at(arena, cell) = arena->free;
    arena->free = cell;
}

#endif
