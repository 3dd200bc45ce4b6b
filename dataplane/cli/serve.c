#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/cli/cli.h"
#include "dataplane/protocol/paths.h"
#include "dataplane/server/server.h"
#include "dataplane/spec/value.h"

typedef struct serve_arguments {
    fby_server_options server;
} serve_arguments;

enum { OPTION_EMBEDDED = 256, OPTION_READY, OPTION_LINGER, OPTION_READER, OPTION_DEPTH, OPTION_CACHE };

static const struct argp_option options[] = {
    {"socket", 's', "PATH", 0, "listen here (default: $FOREBAY_SOCKET, else the user's runtime folder)", 0},
    {"memory", 'm', "SIZE", 0,
     "memory for blocks and indexes, such as 8GiB (default: half of what is granted)", 0},
    {"workers", 'w', "N", 0, "worker threads (default: the CPUs granted)", 0},
    {"reader", OPTION_READER, "KIND", 0, "auto, uring or pread (default: auto)", 0},
    {"depth", OPTION_DEPTH, "N", 0, "files read at once (default: 32)", 0},
    {"cache", OPTION_CACHE, "FOLDER", 0, "keep indexes here (default: $XDG_CACHE_HOME/forebay)", 0},
    {"embedded", OPTION_EMBEDDED, NULL, OPTION_HIDDEN, "", 0},
    {"ready-fd", OPTION_READY, "N", OPTION_HIDDEN, "", 0},
    {"linger", OPTION_LINGER, "SECONDS", OPTION_HIDDEN, "", 0},
    {0}};

static bool reader_parse(const char *text, fby_reader_kind *out)
{
    if (!strcmp(text, "auto"))
        *out = FBY_READER_AUTO;
    else if (!strcmp(text, "uring"))
        *out = FBY_READER_URING;
    else if (!strcmp(text, "pread"))
        *out = FBY_READER_PREAD;
    else
        return false;
    return true;
}

static error_t option_take(int key, char *value, struct argp_state *state)
{
    serve_arguments *arguments = state->input;
    fby_server_options *server = &arguments->server;
    uint64_t number = 0;
    switch (key) {
    case 's':
        server->socket = value;
        return 0;
    case 'm':
        if (!fby_value_bytes(value, &server->memory) || !server->memory)
            argp_error(state, "--memory %s: expected a size such as 8GiB", value);
        return 0;
    case 'w':
        if (!fby_count_parse(value, 1024, &number) || !number)
            argp_error(state, "--workers %s: expected 1 to 1024", value);
        server->workers = (uint32_t)number;
        return 0;
    case OPTION_READER:
        if (!reader_parse(value, &server->reader.kind))
            argp_error(state, "--reader %s: expected auto, uring or pread", value);
        return 0;
    case OPTION_DEPTH:
        if (!fby_count_parse(value, 1024, &number) || !number)
            argp_error(state, "--depth %s: expected 1 to 1024", value);
        server->reader.depth = (uint32_t)number;
        return 0;
    case OPTION_CACHE:
        server->cache = value;
        return 0;
    case OPTION_EMBEDDED:
        server->embedded = true;
        return 0;
    case OPTION_READY:
        if (!fby_count_parse(value, 1 << 20, &number))
            argp_error(state, "--ready-fd %s: expected a descriptor", value);
        server->ready_fd = (int)number;
        return 0;
    case OPTION_LINGER:
        if (!fby_count_parse(value, 86400, &number))
            argp_error(state, "--linger %s: expected seconds", value);
        server->linger_ns = number ? number * 1000000000ull : 1;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "serve takes no argument, got %s", value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char *environment_get(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Settings that the environment gives, for embedded servers above all: the library writes their command line.
 * The command line goes first. */
static int environment_take(fby_server_options *server, fby_error *error)
{
    const char *memory = environment_get("FOREBAY_MEMORY"), *workers = environment_get("FOREBAY_WORKERS"),
               *reader = environment_get("FOREBAY_READER");
    uint64_t number = 0;
    if (memory && !server->memory && (!fby_value_bytes(memory, &server->memory) || !server->memory))
        return fby_fail(error, FBY_EINVAL, "FOREBAY_MEMORY=%s: expected a size such as 8GiB", memory);
    if (workers && !server->workers) {
        if (!fby_count_parse(workers, 1024, &number) || !number)
            return fby_fail(error, FBY_EINVAL, "FOREBAY_WORKERS=%s: expected 1 to 1024", workers);
        server->workers = (uint32_t)number;
    }
    if (reader && server->reader.kind == FBY_READER_AUTO && !reader_parse(reader, &server->reader.kind))
        return fby_fail(error, FBY_EINVAL, "FOREBAY_READER=%s: expected auto, uring or pread", reader);
    return 0;
}

static void line_log(void *user, const char *line)
{
    (void)user;
    char stamp[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    fprintf(stderr, "%s %s\n", stamp, line);
}

int fby_command_serve(int count, char **values)
{
    static const struct argp argp = {
        options, option_take, "", "Serve the tasks of this user until SIGTERM or SIGINT.", NULL, NULL, NULL};
    serve_arguments arguments = {.server = {.ready_fd = -1, .log = line_log}};
    if (fby_arguments_parse(&argp, "serve", count, values, &arguments)) return FBY_EXIT_USAGE;
    fby_error error = FBY_ERROR_INIT;
    environment_take(&arguments.server, &error);
    char path[PATH_MAX];
    if (!error.code && !arguments.server.socket && !fby_paths_socket(path, &error))
        arguments.server.socket = path;
    if (error.code && arguments.server.ready_fd >= 0 &&
        write(arguments.server.ready_fd, error.text, strlen(error.text)) < 0)
        return FBY_EXIT_FAILED; /* nobody waits for the reason */
    if (!error.code) fby_server_run(&arguments.server, &error);
    if (!error.code) return 0;
    return fby_complain(&error);
}
