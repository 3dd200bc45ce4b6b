/* Graphs as pictures: Graphviz's language, and its program `dot`. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataplane/cli/graph.h"

extern char **environ;

enum { LINE = 44 };

/* A text inside a label's quotes. Parameters are broken after a comma where lines get long. */
static void label_put(FILE *out, const char *text, bool broken)
{
    int column = 0;
    for (; *text; text++, column++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') fputc('\\', out);
        if (c < 0x20)
            fprintf(out, "\\\\x%02x", c);
        else
            fputc(c, out);
        if (!broken || column < LINE || c != ',') continue;
        fputs("\\n", out);
        column = 0;
    }
}

/* The more of the data set's tasks share a stage, the darker. */
static const char *shade(uint32_t sharers, uint32_t tasks)
{
    static const char *const shades[] = {"#deebf7", "#c6dbef", "#9ecae1", "#6baed6"};
    if (sharers < 2) return "#ffffff";
    return shades[tasks > 2 ? (sharers - 2) * 3 / (tasks - 2) : 3];
}

static void stage_put(FILE *out, uint32_t number, const fby_graph *graph, uint32_t s)
{
    const fby_stage_info *stage = &graph->stages[s].info;
    uint32_t sharers = (uint32_t)__builtin_popcountll(stage->branches);
    fprintf(out, "    g%u_s%u [label=\"", number, s);
    label_put(out, stage->op, false);
    if (*stage->params) {
        fputs("\\n", out);
        label_put(out, stage->params, true);
    }
    if (graph->measured) fprintf(out, "\\n%.1f us", graph->stages[s].us);
    fprintf(out, "\", style=\"filled%s\", fillcolor=\"%s\"];\n", stage->random ? ",dashed" : "",
            shade(sharers, graph->task_count));
    if (stage->parent >= 0)
        fprintf(out, "    g%u_s%d -> g%u_s%u [label=\"  %u\", penwidth=%u];\n", number, stage->parent, number,
                s, sharers, sharers < 6 ? sharers : 6);
    for (uint64_t ends = stage->ends; ends; ends &= ends - 1) {
        uint32_t t = (uint32_t)__builtin_ctzll(ends);
        fprintf(out, "    g%u_t%u [label=\"", number, t);
        label_put(out, graph->tasks[t].label, false);
        fprintf(out, "\", shape=ellipse];\n    g%u_s%u -> g%u_t%u;\n", number, s, number, t);
    }
}

static void graph_put(FILE *out, uint32_t number, const fby_graph *graph)
{
    fprintf(out, "  subgraph cluster_%u {\n    label=\"", number);
    label_put(out, fby_dataset_root(graph->dataset), false);
    fprintf(out, "\\n%llu samples", (unsigned long long)fby_dataset_count(graph->dataset));
    if (graph->measured && graph->task_count > 1)
        fprintf(out, "; apart %.1f us, together %.1f us a sample", fby_graph_apart_us(graph),
                fby_graph_together_us(graph));
    fputs("\";\n", out);
    for (uint32_t s = 0; s < graph->stage_count; s++) stage_put(out, number, graph, s);
    fputs("  }\n", out);
}

static void graphs_put(FILE *out, fby_graph *const *graphs, uint32_t count)
{
    fputs(
        "digraph forebay {\n"
        "  label=\"boxes: stages, dashed where random, the darker the more tasks share them; numbers: tasks "
        "that pass; ellipses: tasks\";\n"
        "  node [shape=box, fontname=\"Helvetica\", fontsize=11];\n"
        "  edge [fontname=\"Helvetica\", fontsize=9];\n"
        "  graph [fontname=\"Helvetica\", fontsize=11];\n",
        out);
    for (uint32_t i = 0; i < count; i++) graph_put(out, i, graphs[i]);
    fputs("}\n", out);
}

int fby_graphs_dot(const char *path, fby_graph *const *graphs, uint32_t count, fby_error *error)
{
    FILE *out = fopen(path, "we");
    if (!out) return fby_fail(error, FBY_EIO, "--dot: can't write %s: %s", path, strerror(errno));
    graphs_put(out, graphs, count);
    bool lost = ferror(out);
    if (fclose(out) || lost)
        return fby_fail(error, FBY_EIO, "--dot: can't write %s: %s", path, strerror(errno));
    return FBY_OK;
}

/* Starts dot, which reads what is written to *input. */
static int dot_start(const char *path, pid_t *process, FILE **input, fby_error *error)
{
    size_t bytes = strlen(path) + 3;
    char *to = malloc(bytes);
    int ends[2];
    if (!to) return fby_fail(error, FBY_ENOMEM, "--svg: no memory");
    snprintf(to, bytes, "-o%s", path);
    if (pipe2(ends, O_CLOEXEC)) {
        free(to);
        return fby_fail(error, FBY_EIO, "--svg: pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
    char *const arguments[] = {(char[]){"dot"}, (char[]){"-Tsvg"}, to, NULL};
    int refused = posix_spawnp(process, "dot", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(to);
    close(ends[0]);
    *input = refused ? NULL : fdopen(ends[1], "w");
    if (!*input) close(ends[1]);
    if (refused == ENOENT)
        return fby_fail(
            error, FBY_EIO,
            "--svg %s needs the program dot of Graphviz, which isn't installed: install the package "
            "graphviz (Debian, Ubuntu: apt-get install graphviz), or write the graph with --dot",
            path);
    if (refused) return fby_fail(error, FBY_EIO, "--svg %s: can't start dot: %s", path, strerror(refused));
    return FBY_OK;
}

int fby_graphs_svg(const char *path, fby_graph *const *graphs, uint32_t count, fby_error *error)
{
    pid_t process;
    FILE *input;
    int status = dot_start(path, &process, &input, error);
    if (status) return status;
    /* dot may end before it has read all: its exit status says so. */
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGPIPE, &ignore, &before);
    bool written = input != NULL;
    if (input) {
        graphs_put(input, graphs, count);
        written = !ferror(input);
        written = !fclose(input) && written;
    }
    sigaction(SIGPIPE, &before, NULL);
    int ended = 0;
    while (waitpid(process, &ended, 0) < 0 && errno == EINTR) continue;
    if (written && WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return FBY_OK;
    return fby_fail(error, FBY_EIO, "--svg %s: dot failed (%s %d); its own message stands above", path,
                    WIFSIGNALED(ended) ? "signal" : "exit status",
                    WIFSIGNALED(ended) ? WTERMSIG(ended) : WEXITSTATUS(ended));
}
