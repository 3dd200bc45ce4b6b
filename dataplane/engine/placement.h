/* Which CPUs each worker is pinned to.
 *
 * Workers are spread over the allowed CPUs by the topology (hwloc_distrib), so that they share as little as
 * can be; each is bound to one core's share of one NUMA node. Never by absolute CPU numbers: what a launcher
 * or a cgroup allows is all there is. */
#ifndef FBY_DATAPLANE_PLACEMENT_H
#define FBY_DATAPLANE_PLACEMENT_H

#include <forebay/error.h>

#include "dataplane/engine/grant.h"

typedef struct fby_topology fby_topology;

/* This machine, or a description of another: `synthetic` as hwloc writes it ("node:2 core:4 pu:2"), NULL for
 * this one. A described topology is for planning alone. */
int fby_topology_load(fby_topology **out, const char *synthetic, fby_error *error);
void fby_topology_free(fby_topology **topology);
uint32_t fby_topology_nodes(const fby_topology *topology);

typedef struct fby_place {
    fby_cpus cpus; /* what the worker may run on */
    int32_t node;  /* NUMA node (OS index) of all of them; -1 where they span several */
} fby_place;

/* Fills `count` places out of `allowed` (CPUs that the topology doesn't know are ignored; where none is left,
 * the workers aren't pinned: empty sets). Depends on its arguments alone. */
int fby_placement_plan(const fby_topology *topology, const fby_cpus *allowed, uint32_t count, fby_place *out,
                       fby_error *error);

/* Pins the calling thread; an empty set leaves it alone. A refusal is ignored: pinning is an optimisation. */
void fby_place_enter(const fby_place *place);

#endif
