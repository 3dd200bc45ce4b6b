#include <errno.h>
#include <string.h>

#include "dataplane/cli/cli.h"

static const struct {
    const char *name;
    int (*run)(int count, char **arguments);
    const char *about;
} commands[] = {
    {"run", fby_command_run, "take batches as a trainer would, show progress, say where the time went"},
    {"serve", fby_command_serve, "serve the tasks of this user until stopped"},
    {"plan", fby_command_plan, "show what a spec would do, before it runs"},
    {"status", fby_command_status, "show what a server is doing"},
    {"doctor", fby_command_doctor, "say what this machine grants, and what to change"},
    {"convert", fby_command_convert, "make FBL files of a folder of pictures: lossless, fast to decode"},
    {"inspect", fby_command_inspect, "say what is in a picture file"},
    {"verify", fby_command_verify, "check picture files: every checksum, every pixel"},
};

static void usage(FILE *to)
{
    fputs("usage: forebay COMMAND [OPTION...] [SPEC...]\n\n", to);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].about);
    fputs("\n`forebay COMMAND --help` tells a command's options; `forebay --version` the version.\n", to);
}

static int command_run(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "";
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        usage(stdout);
        return 0;
    }
    if (!strcmp(name, "--version")) {
        puts("forebay " FBY_VERSION_TEXT);
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(name, commands[i].name)) return commands[i].run(count - 1, arguments + 1);
    if (*name) fprintf(stderr, "forebay: there is no command %s\n\n", name);
    usage(stderr);
    return FBY_EXIT_USAGE;
}

int main(int count, char **arguments)
{
    int status = command_run(count, arguments);
    /* A full disk, say: whoever reads the output must not take a part for the whole. */
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        fprintf(stderr, "forebay: can't write to the standard output: %s\n",
                errno ? strerror(errno) : "an earlier write failed");
        return FBY_EXIT_FAILED;
    }
    return status;
}
