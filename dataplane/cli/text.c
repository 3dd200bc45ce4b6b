#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/cli/cli.h"

int fby_arguments_parse(const struct argp *argp, const char *command, int count, char **arguments,
                        void *input)
{
    char name[64];
    snprintf(name, sizeof name, "forebay %s", command);
    char *before = arguments[0];
    arguments[0] = name;
    argp_err_exit_status = FBY_EXIT_USAGE;
    int status = argp_parse(argp, count, arguments, 0, NULL, input);
    arguments[0] = before;
    return status;
}

bool fby_count_parse(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    if (*text < '0' || *text > '9') return false;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || value > most) return false;
    *out = value;
    return true;
}

uint64_t fby_threads_parse(struct argp_state *state, const char *value)
{
    uint64_t threads = 0;
    if (!fby_count_parse(value, FBY_THREADS_MOST, &threads) || !threads)
        argp_error(state, "--threads %s: expected 1 to %d", value, FBY_THREADS_MOST);
    return threads;
}

uint32_t fby_threads_default(uint32_t most)
{
    cpu_set_t allowed;
    /* It fails where there are more than 1,024 CPUs. */
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return most;
    uint32_t cpus = (uint32_t)CPU_COUNT(&allowed);
    return cpus > most ? most : cpus;
}

const char *fby_size_text(char *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 32, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char **fby_labels_make(char *const *paths, uint32_t count)
{
    char **labels = calloc(count, sizeof *labels);
    bool whole = labels != NULL;
    for (uint32_t i = 0; i < count && whole; i++) {
        bool ambiguous = false;
        uint32_t before = 0;
        for (uint32_t k = 0; k < count; k++) {
            bool equal = !strcmp(paths[k], paths[i]);
            ambiguous = ambiguous || (!equal && !strcmp(name_of(paths[k]), name_of(paths[i])));
            before += equal && k < i;
        }
        const char *name = ambiguous ? paths[i] : name_of(paths[i]);
        size_t bytes = strlen(name) + 16;
        labels[i] = malloc(bytes);
        whole = labels[i] != NULL;
        if (!whole) break;
        if (before)
            snprintf(labels[i], bytes, "%s #%u", name, before + 1);
        else
            snprintf(labels[i], bytes, "%s", name);
    }
    if (!whole) fby_labels_free(&labels, count);
    return labels;
}

void fby_labels_free(char ***labels, uint32_t count)
{
    for (uint32_t i = 0; *labels && i < count; i++) free((*labels)[i]);
    free(*labels);
    *labels = NULL;
}

int fby_complain(const fby_error *error)
{
    fprintf(stderr, "forebay: %s\n", error->text);
    return FBY_EXIT_FAILED;
}
