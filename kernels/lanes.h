/* The thin layer that lane-group bodies are written in: FBY_LANES lanes in lockstep.
 *
 * In C a lane variable is an array and a step is a loop over it, which compilers turn into vectors; on a GPU
 * a lane is a thread of a warp, a lane variable a register, and a step runs once. A body keeps to these
 * rules, so that both mean the same: lanes meet only between steps and only through arrays that they share; a
 * step never reads what another lane writes in it. */
#ifndef FBY_KERNELS_LANES_H
#define FBY_KERNELS_LANES_H

#include <stddef.h>
#include <stdint.h>

enum { FBY_LANES = 32 };

/* A lane variable, and what of it belongs to the lane of the step around it. */
#define FBY_LANE_VARIABLE(type, name) type name[FBY_LANES]
#define FBY_OWN(name)                 (name)[lane]
/* One step of every lane; `lane` is its number. */
#define FBY_EACH_LANE for (uint32_t lane = 0; lane < FBY_LANES; lane++)

#define FBY_LANE_BODY static inline __attribute__((always_inline))

/* Every lane that wants one takes the next word of a stream that all share, in the order of the lanes.
 * Returns how many were taken. On a GPU: a ballot, and each lane counts the bits below its own. */
FBY_LANE_BODY uint32_t fby_lanes_take(const uint8_t *words, const uint32_t *wanted, uint32_t *state)
{
    uint32_t taken = 0;
    FBY_EACH_LANE
    {
        if (!wanted[lane]) continue;
        const uint8_t *word = words + (size_t)taken++ * 2;
        state[lane] = state[lane] << 16 | word[0] | (uint32_t)word[1] << 8;
    }
    return taken;
}

#endif
