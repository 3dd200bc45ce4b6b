#include "dataplane/engine/placement.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

struct fby_topology {
    hwloc_topology_t hwloc;
};

int fby_topology_load(fby_topology **out, const char *synthetic, fby_error *error)
{
    *out = NULL;
    fby_topology *topology = calloc(1, sizeof *topology);
    if (!topology) return fby_fail(error, FBY_ENOMEM, "no memory for the topology");
    if (hwloc_topology_init(&topology->hwloc)) {
        free(topology);
        return fby_fail(error, FBY_EIO, "hwloc can't be initialised");
    }
    hwloc_topology_set_io_types_filter(topology->hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (synthetic && hwloc_topology_set_synthetic(topology->hwloc, synthetic)) {
        fby_topology_free(&topology);
        return fby_fail(error, FBY_EINVAL, "hwloc doesn't understand the topology \"%s\"", synthetic);
    }
    if (hwloc_topology_load(topology->hwloc)) {
        fby_topology_free(&topology);
        return fby_fail(error, FBY_EIO, "hwloc can't read this machine's topology");
    }
    *out = topology;
    return 0;
}

void fby_topology_free(fby_topology **topology)
{
    if (!*topology) return;
    hwloc_topology_destroy((*topology)->hwloc);
    free(*topology);
    *topology = NULL;
}

uint32_t fby_topology_nodes(const fby_topology *topology)
{
    int nodes = hwloc_get_nbobjs_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE);
    return nodes > 0 ? (uint32_t)nodes : 1;
}

/* The one NUMA node that holds all of `set`, or -1. */
static int32_t node_of(hwloc_topology_t hwloc, hwloc_const_cpuset_t set)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)))
        if (hwloc_bitmap_isincluded(set, node->cpuset)) return (int32_t)node->os_index;
    return -1;
}

int fby_placement_plan(const fby_topology *topology, const fby_cpus *allowed, uint32_t count, fby_place *out,
                       fby_error *error)
{
    int status = 0;
    memset(out, 0, count * sizeof *out);
    hwloc_bitmap_t mask = hwloc_bitmap_alloc(), share = hwloc_bitmap_alloc();
    hwloc_bitmap_t *sets = calloc(count, sizeof *sets);
    hwloc_topology_t restricted = NULL;
    if (!mask || !share || !sets) {
        status = fby_fail(error, FBY_ENOMEM, "no memory for a placement of %u workers", count);
        goto out;
    }
    for (uint32_t cpu = 0; cpu < FBY_GRANT_CPUS; cpu++)
        if (fby_cpus_has(allowed, cpu)) hwloc_bitmap_set(mask, cpu);
    hwloc_bitmap_and(mask, mask, hwloc_topology_get_topology_cpuset(topology->hwloc));
    for (uint32_t i = 0; i < count; i++) out[i].node = -1;
    if (hwloc_bitmap_iszero(mask)) goto out;
    if (hwloc_topology_dup(&restricted, topology->hwloc) || hwloc_topology_restrict(restricted, mask, 0)) {
        status = fby_fail(error, FBY_EIO, "hwloc can't restrict the topology to the CPUs granted");
        goto out;
    }
    hwloc_obj_t root = hwloc_get_root_obj(restricted);
    if (hwloc_distrib(restricted, &root, 1, sets, count, INT_MAX, 0)) {
        status = fby_fail(error, FBY_EIO, "hwloc can't distribute %u workers", count);
        goto out;
    }
    for (uint32_t i = 0; i < count; i++) {
        hwloc_bitmap_and(share, sets[i], mask);
        if (hwloc_bitmap_iszero(share)) hwloc_bitmap_copy(share, mask);
        int cpu;
        hwloc_bitmap_foreach_begin(cpu, share) fby_cpus_add(&out[i].cpus, (uint32_t)cpu);
        hwloc_bitmap_foreach_end();
        out[i].node = node_of(restricted, share);
    }
out:
    for (uint32_t i = 0; sets && i < count; i++)
        if (sets[i]) hwloc_bitmap_free(sets[i]);
    free(sets);
    if (restricted) hwloc_topology_destroy(restricted);
    hwloc_bitmap_free(mask);
    hwloc_bitmap_free(share);
    return status;
}

void fby_place_enter(const fby_place *place)
{
    if (!fby_cpus_count(&place->cpus)) return;
    cpu_set_t *set = CPU_ALLOC(FBY_GRANT_CPUS);
    if (!set) return;
    size_t bytes = CPU_ALLOC_SIZE(FBY_GRANT_CPUS);
    CPU_ZERO_S(bytes, set);
    for (uint32_t cpu = 0; cpu < FBY_GRANT_CPUS; cpu++)
        if (fby_cpus_has(&place->cpus, cpu)) CPU_SET_S(cpu, bytes, set);
    sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
}
