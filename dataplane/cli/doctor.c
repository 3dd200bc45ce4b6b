/* Says what this machine grants, one line a thing, and what to change where it grants little. */
#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "codec/decode.h"
#include "dataplane/cli/cli.h"
#include "dataplane/engine/grant.h"
#include "dataplane/engine/placement.h"
#include "dataplane/protocol/paths.h"
#include "io/reader.h"
#include "kernels/tier.h"
#include "ringbuf/region.h"

enum { OPTION_JSON = 256, TEXT = 400 };

typedef struct doctor_arguments {
    bool json;
} doctor_arguments;

static const struct argp_option options[] = {{"json", OPTION_JSON, NULL, 0, "print the findings as JSON", 0},
                                             {0}};

static error_t option_take(int key, char *value, struct argp_state *state)
{
    doctor_arguments *arguments = state->input;
    switch (key) {
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "doctor takes no argument, got %s", value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* good: as fast as can be; fair: works, but something could be better; bad: Forebay can't work. */
typedef enum verdict { GOOD, FAIR, BAD } verdict;

typedef struct doctor_finding {
    const char *name;
    verdict verdict;
    char what[TEXT], advice[TEXT];
} doctor_finding;

static void kernel_look(doctor_finding *finding)
{
    struct utsname names;
    uname(&names);
    unsigned major = 0, minor = 0;
    sscanf(names.release, "%u.%u", &major, &minor);
    snprintf(finding->what, TEXT, "Linux %s", names.release);
    if (major > 6 || (major == 6 && minor >= 1)) return;
    finding->verdict = FAIR;
    snprintf(finding->advice, TEXT, "6.1 or newer is what Forebay is built and tested for");
}

static void cpus_look(doctor_finding *finding)
{
    fby_cpus cpus;
    fby_cpus_of_process(&cpus);
    uint32_t quota = fby_grant_quota("/"), threads = fby_grant_threads(&cpus, quota),
             count = fby_cpus_count(&cpus);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    char limit[64] = "no cgroup quota";
    if (quota) snprintf(limit, sizeof limit, "a cgroup quota of %.2f", quota / 1000.0);
    snprintf(finding->what, TEXT, "%u of %ld CPUs by affinity, %s: %u workers", count, online, limit,
             threads);
    if ((long)threads >= online) return;
    finding->verdict = FAIR;
    snprintf(
        finding->advice, TEXT,
        "give the launcher more CPUs (taskset, --cpus-per-task, cpu.max) where decoding is the bottleneck");
}

static void simd_look(doctor_finding *finding)
{
    fby_tier tier = fby_tier_best();
    snprintf(finding->what, TEXT, "%s kernels", fby_tier_name(tier));
    if (tier != FBY_TIER_C) return;
    finding->verdict = FAIR;
    snprintf(finding->advice, TEXT,
             "a CPU with AVX2 resizes several times faster (FOREBAY_TIER may have lowered it)");
}

static void jpeg_look(doctor_finding *finding)
{
    snprintf(finding->what, TEXT, "entropy decoder: %.300s", fby_decode_entropy_about());
    if (fby_decode_own_entropy()) return;
    finding->verdict = FAIR;
    snprintf(finding->advice, TEXT,
             "JPEGs decode about a third faster with the libjpeg-turbo that Forebay knows (2.1.5)");
}

static void numa_look(doctor_finding *finding)
{
    fby_topology *topology = NULL;
    fby_error error = FBY_ERROR_INIT;
    if (fby_topology_load(&topology, NULL, &error)) {
        finding->verdict = FAIR;
        snprintf(finding->what, TEXT, "unknown: %.300s", error.text);
        return;
    }
    snprintf(finding->what, TEXT, "%u NUMA node%s", fby_topology_nodes(topology),
             fby_topology_nodes(topology) == 1 ? "" : "s");
    fby_topology_free(&topology);
}

static void memory_look(doctor_finding *finding)
{
    char all[32], half[32];
    uint64_t granted = fby_grant_memory("/");
    snprintf(finding->what, TEXT, "%s granted; a server uses up to %s unless --memory says otherwise",
             fby_size_text(all, (double)granted), fby_size_text(half, (double)granted / 2));
    if (granted >= 1ull << 30) return;
    finding->verdict = FAIR;
    snprintf(finding->advice, TEXT,
             "large batches need more: a batch of 64 pictures of 224 x 224 in f32 is 37 MiB");
}

static void shared_memory_look(doctor_finding *finding)
{
    fby_region region = {.fd = -1};
    fby_error error = FBY_ERROR_INIT;
    int status = fby_region_create(&region, FBY_REGION_DOWN, 1 << 20, -1, &error);
    if (!status) status = fby_region_seal(&region, &error);
    fby_region_close(&region);
    snprintf(finding->what, TEXT, status ? "%.300s" : "sealed memfds", error.text);
    if (!status) return;
    finding->verdict = BAD;
    snprintf(finding->advice, TEXT,
             "Forebay needs memfd_create with F_SEAL_FUTURE_WRITE (Linux 5.1) and free memory");
}

static void memlock_look(doctor_finding *finding)
{
    struct rlimit limit;
    char size[32];
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        snprintf(finding->what, TEXT, "unlimited");
    else
        snprintf(finding->what, TEXT, "%s", fby_size_text(size, (double)limit.rlim_cur));
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= 64 << 20 || geteuid() == 0) return;
    finding->verdict = FAIR;
    snprintf(finding->advice, TEXT,
             "`ulimit -l` could be raised (limits.conf, LimitMEMLOCK=): pinned memory and large io_urings "
             "need it");
}

static void huge_pages_look(doctor_finding *finding)
{
    char line[256];
    unsigned long total = 0, free_pages = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "HugePages_Total: %lu", &total);
        sscanf(line, "HugePages_Free: %lu", &free_pages);
    }
    if (file) fclose(file);
    snprintf(finding->what, TEXT, "%lu reserved, %lu free; this version doesn't use them", total, free_pages);
}

static void uring_look(doctor_finding *finding)
{
    const char *why = "";
    bool granted = fby_uring_granted(&why);
    if (granted) {
        snprintf(finding->what, TEXT, "granted");
        return;
    }
    snprintf(finding->what, TEXT, "refused: %.300s", why);
    finding->verdict = FAIR;
    snprintf(finding->advice, TEXT,
             "allow io_uring_setup in the container's seccomp profile and set kernel.io_uring_disabled=0; "
             "until then a pool of threads reads");
}

static void descriptors_look(doctor_finding *finding)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    snprintf(finding->what, TEXT, "%llu descriptors, at most %llu", (unsigned long long)limit.rlim_cur,
             (unsigned long long)limit.rlim_max);
    if (limit.rlim_max >= 1024) return;
    finding->verdict = FAIR;
    snprintf(finding->advice, TEXT, "`ulimit -Hn 4096` or more lets a server hold many tasks");
}

static void cuda_look(doctor_finding *finding)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        snprintf(finding->what, TEXT, "no driver (libcuda.so.1): batches are for the CPU");
        return;
    }
    int (*version)(int *) = NULL;
    int number = 0;
    *(void **)&version = dlsym(library, "cuDriverGetVersion");
    if (version && version(&number) == 0)
        snprintf(finding->what, TEXT, "driver for CUDA %d.%d; this version doesn't pin memory for it",
                 number / 1000, number % 1000 / 10);
    else
        snprintf(finding->what, TEXT, "a driver that doesn't tell its version");
    dlclose(library);
}

static void socket_look(doctor_finding *finding)
{
    char path[PATH_MAX];
    fby_error error = FBY_ERROR_INIT;
    if (!fby_paths_folder(path, &error)) {
        snprintf(finding->what, TEXT, "%.300s", path);
        return;
    }
    finding->verdict = BAD;
    snprintf(finding->what, TEXT, "%.300s", error.text);
    snprintf(finding->advice, TEXT, "set XDG_RUNTIME_DIR to a folder of yours, or FOREBAY_SOCKET");
}

static const struct {
    const char *name;
    void (*look)(doctor_finding *finding);
} looks[] = {{"kernel", kernel_look},
             {"CPUs", cpus_look},
             {"SIMD", simd_look},
             {"JPEG", jpeg_look},
             {"NUMA", numa_look},
             {"memory", memory_look},
             {"shared memory", shared_memory_look},
             {"memlock", memlock_look},
             {"huge pages", huge_pages_look},
             {"io_uring", uring_look},
             {"descriptors", descriptors_look},
             {"CUDA", cuda_look},
             {"socket folder", socket_look}};

int fby_command_doctor(int count, char **values)
{
    static const struct argp argp = {
        options, option_take, "", "Say what this machine grants, and what to change.", NULL, NULL, NULL};
    static const char *const verdicts[] = {"good", "fair", "bad"};
    doctor_arguments arguments = {0};
    if (fby_arguments_parse(&argp, "doctor", count, values, &arguments)) return FBY_EXIT_USAGE;
    json_t *document = json_object();
    bool works = true;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        doctor_finding finding = {.name = looks[i].name};
        looks[i].look(&finding);
        works = works && finding.verdict != BAD;
        if (arguments.json) {
            json_t *entry = json_object();
            json_object_set_new(entry, "verdict", json_string(verdicts[finding.verdict]));
            json_object_set_new(entry, "what", json_string(finding.what));
            json_object_set_new(entry, "advice", json_string(finding.advice));
            json_object_set_new(document, finding.name, entry);
            continue;
        }
        printf("%-4s  %-14s %s\n", verdicts[finding.verdict], finding.name, finding.what);
        if (*finding.advice) printf("      %-14s -> %s\n", "", finding.advice);
    }
    if (arguments.json) {
        json_dumpf(document, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        puts(works ? "\nForebay can work here." : "\nForebay can't work here: see what is bad.");
    }
    json_decref(document);
    return works ? 0 : FBY_EXIT_FAILED;
}
