/* What this process may use of the machine. */
#ifndef FBY_DATAPLANE_GRANT_H
#define FBY_DATAPLANE_GRANT_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

enum { FBY_GRANT_CPUS = 8192 };

/* CPUs as bits: 64 to a word. */
typedef struct fby_cpus {
    uint64_t words[FBY_GRANT_CPUS / 64];
} fby_cpus;

void fby_cpus_of_process(fby_cpus *out); /* the affinity of the calling thread */
uint32_t fby_cpus_count(const fby_cpus *cpus);
bool fby_cpus_has(const fby_cpus *cpus, uint32_t cpu);
void fby_cpus_add(fby_cpus *cpus, uint32_t cpu);

/* CPUs' worth of time that the cgroup's quota grants, in thousandths; 0: no quota. Versions 1 and 2. `root`
 * is "/" but in tests. */
uint32_t fby_grant_quota(const char *root);
/* min(CPUs of the set, ceil(quota)), at least 1. */
uint32_t fby_grant_threads(const fby_cpus *cpus, uint32_t quota_thousandths);

/* The smaller of the machine's memory and the cgroup's limit, in bytes. */
uint64_t fby_grant_memory(const char *root);

#endif
