#include "dataplane/engine/grant.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fby_cpus_of_process(fby_cpus *out)
{
    memset(out, 0, sizeof *out);
    cpu_set_t *set = CPU_ALLOC(FBY_GRANT_CPUS);
    if (!set) {
        out->words[0] = 1;
        return;
    }
    size_t bytes = CPU_ALLOC_SIZE(FBY_GRANT_CPUS);
    CPU_ZERO_S(bytes, set);
    if (sched_getaffinity(0, bytes, set) == 0)
        for (uint32_t cpu = 0; cpu < FBY_GRANT_CPUS; cpu++)
            if (CPU_ISSET_S(cpu, bytes, set)) fby_cpus_add(out, cpu);
    CPU_FREE(set);
}

uint32_t fby_cpus_count(const fby_cpus *cpus)
{
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof cpus->words / sizeof *cpus->words; i++)
        count += (uint32_t)__builtin_popcountll(cpus->words[i]);
    return count;
}

bool fby_cpus_has(const fby_cpus *cpus, uint32_t cpu)
{
    return cpu < FBY_GRANT_CPUS && (cpus->words[cpu / 64] >> (cpu % 64) & 1);
}

void fby_cpus_add(fby_cpus *cpus, uint32_t cpu)
{
    if (cpu < FBY_GRANT_CPUS) cpus->words[cpu / 64] |= 1ull << (cpu % 64);
}

/* Reads the first line of a file; false where it isn't there. */
static bool line_read(char *out, size_t bytes, const char *root, const char *folder, const char *group,
                      const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s%s/%s", root, folder, group, name);
    if (length < 0 || length >= (int)sizeof path) return false;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool got = fgets(out, (int)bytes, file) != NULL;
    fclose(file);
    if (got) out[strcspn(out, "\n")] = 0;
    return got;
}

/* The process's group in a hierarchy: "" where it can't be told. Version 2 has the line "0::/…", version 1
 * "N:cpu,cpuacct:/…". */
static void group_find(char *out, size_t bytes, const char *root, const char *controller)
{
    char path[PATH_MAX], line[PATH_MAX];
    *out = 0;
    snprintf(path, sizeof path, "%sproc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        controllers++;
        bool found = false;
        if (!*controller) {
            found = !*controllers;
        } else {
            for (char *saved = NULL, *word = strtok_r(controllers, ",", &saved); word;
                 word = strtok_r(NULL, ",", &saved))
                found = found || !strcmp(word, controller);
        }
        if (!found) continue;
        snprintf(out, bytes, "%s", strcmp(group, "/") ? group : "");
        break;
    }
    fclose(file);
}

/* Cuts a group's last part off; false at the root. */
static bool group_up(char *group)
{
    char *slash = strrchr(group, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

uint32_t fby_grant_quota(const char *root)
{
    char group[PATH_MAX], line[128];
    uint64_t least = 0;
    /* A limit of any group above holds too. */
    group_find(group, sizeof group, root, "");
    do {
        unsigned long long quota, period;
        if (line_read(line, sizeof line, root, "sys/fs/cgroup", group, "cpu.max") &&
            sscanf(line, "%llu %llu", &quota, &period) == 2 && period) {
            uint64_t thousandths = quota * 1000 / period;
            if (!least || thousandths < least) least = thousandths;
        }
    } while (group_up(group));
    group_find(group, sizeof group, root, "cpu");
    do {
        char period_line[128];
        if (line_read(line, sizeof line, root, "sys/fs/cgroup/cpu", group, "cpu.cfs_quota_us") &&
            line_read(period_line, sizeof period_line, root, "sys/fs/cgroup/cpu", group,
                      "cpu.cfs_period_us")) {
            long long quota = atoll(line), period = atoll(period_line);
            if (quota > 0 && period > 0) {
                uint64_t thousandths = (uint64_t)quota * 1000 / (uint64_t)period;
                if (!least || thousandths < least) least = thousandths;
            }
        }
    } while (group_up(group));
    return least > UINT32_MAX ? UINT32_MAX : (uint32_t)least;
}

uint32_t fby_grant_threads(const fby_cpus *cpus, uint32_t quota)
{
    uint32_t count = fby_cpus_count(cpus), granted = (quota + 999) / 1000;
    if (granted && granted < count) count = granted;
    return count ? count : 1;
}

uint64_t fby_grant_memory(const char *root)
{
    char group[PATH_MAX], line[128];
    uint64_t least = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    group_find(group, sizeof group, root, "");
    do {
        if (line_read(line, sizeof line, root, "sys/fs/cgroup", group, "memory.max") && *line >= '0' &&
            *line <= '9') {
            uint64_t limit = strtoull(line, NULL, 10);
            if (limit < least) least = limit;
        }
    } while (group_up(group));
    group_find(group, sizeof group, root, "memory");
    do {
        if (line_read(line, sizeof line, root, "sys/fs/cgroup/memory", group, "memory.limit_in_bytes")) {
            uint64_t limit = strtoull(line, NULL, 10);
            if (limit < least) least = limit;
        }
    } while (group_up(group));
    return least;
}
