/* What a cgroup and an affinity grant, read from made-up files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/engine/grant.h"
#include "tests/support/test.h"

typedef struct fake_root {
    char path[64];
} fake_root;

static void root_make(fake_root *root)
{
    strcpy(root->path, "/tmp/forebay-grant-XXXXXX");
    cr_assert_not_null(mkdtemp(root->path));
    strcat(root->path, "/");
}

static void root_write(const fake_root *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root->path, name);
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static void root_remove(const fake_root *root)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root->path);
    cr_assert_eq(system(command), 0);
}

static fby_cpus cpus_of(uint32_t first, uint32_t count)
{
    fby_cpus cpus = {{0}};
    for (uint32_t i = 0; i < count; i++) fby_cpus_add(&cpus, first + i);
    return cpus;
}

Test(grant, quota_of_version_2_is_the_least_of_all_groups_above)
{
    fake_root root;
    root_make(&root);
    root_write(&root, "proc/self/cgroup", "0::/system/job\n");
    root_write(&root, "sys/fs/cgroup/system/cpu.max", "150000 100000\n");
    root_write(&root, "sys/fs/cgroup/system/job/cpu.max", "max 100000\n");
    cr_assert_eq(fby_grant_quota(root.path), 1500);
    root_write(&root, "sys/fs/cgroup/system/job/cpu.max", "50000 100000\n");
    cr_assert_eq(fby_grant_quota(root.path), 500);
    root_remove(&root);
}

Test(grant, quota_of_version_1)
{
    fake_root root;
    root_make(&root);
    root_write(&root, "proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n");
    root_write(&root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    root_write(&root, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(fby_grant_quota(root.path), 0);
    root_write(&root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n");
    cr_assert_eq(fby_grant_quota(root.path), 2500);
    root_remove(&root);
}

Test(grant, nothing_known_is_no_quota)
{
    fake_root root;
    root_make(&root);
    cr_assert_eq(fby_grant_quota(root.path), 0);
    root_write(&root, "proc/self/cgroup", "rubbish\n0::\n::::\n0::/a\n");
    root_write(&root, "sys/fs/cgroup/a/cpu.max", "not a number\n");
    cr_assert_eq(fby_grant_quota(root.path), 0);
    root_remove(&root);
}

Test(grant, threads_are_the_smaller_of_affinity_and_quota_rounded_up)
{
    fby_cpus one = cpus_of(3, 1), eight = cpus_of(0, 8), none = {{0}};
    cr_assert_eq(fby_grant_threads(&one, 0), 1);
    cr_assert_eq(fby_grant_threads(&eight, 0), 8);
    cr_assert_eq(fby_grant_threads(&eight, 1500), 2, "a quota of 1.5 CPUs keeps two threads busy");
    cr_assert_eq(fby_grant_threads(&eight, 100), 1);
    cr_assert_eq(fby_grant_threads(&eight, 9000), 8);
    cr_assert_eq(fby_grant_threads(&none, 0), 1);
}

Test(grant, memory_is_the_least_limit)
{
    fake_root root;
    root_make(&root);
    uint64_t machine = fby_grant_memory(root.path);
    cr_assert_gt(machine, 1 << 20);
    root_write(&root, "proc/self/cgroup", "0::/a/b\n");
    root_write(&root, "sys/fs/cgroup/a/b/memory.max", "max\n");
    cr_assert_eq(fby_grant_memory(root.path), machine);
    root_write(&root, "sys/fs/cgroup/a/memory.max", "1048576\n");
    cr_assert_eq(fby_grant_memory(root.path), 1048576);
    root_write(&root, "proc/self/cgroup", "9:memory:/old\n");
    root_write(&root, "sys/fs/cgroup/memory/old/memory.limit_in_bytes", "2097152\n");
    cr_assert_eq(fby_grant_memory(root.path), 2097152);
    root_remove(&root);
}

Test(grant, the_affinity_is_what_the_kernel_says)
{
    fby_cpus cpus;
    fby_cpus_of_process(&cpus);
    cpu_set_t set;
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    cr_assert_eq(fby_cpus_count(&cpus), (uint32_t)CPU_COUNT(&set));
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        cr_assert_eq(fby_cpus_has(&cpus, cpu), CPU_ISSET(cpu, &set) != 0);
    cr_assert(!fby_cpus_has(&cpus, FBY_GRANT_CPUS));
}
