/* How trees of stages look as text. */
#include <stdio.h>
#include <string.h>

#include "dataplane/cli/cli.h"

enum { MARGIN = 512, STEP = 4 };

static uint32_t children_count(const fby_tree *tree, uint32_t node)
{
    uint32_t count = 0;
    for (uint32_t i = node + 1; i < tree->count; i++) count += tree->nodes[i].parent == (int32_t)node;
    return count;
}

/* `first` is drawn left of the node, `rest` left of what follows below it. */
static void node_print(const fby_tree *tree, uint32_t node, const char *first, const char *rest)
{
    tree->line(tree->user, node, first);
    uint32_t left = children_count(tree, node);
    bool fork = left > 1 || (left && tree->nodes[node].ends);
    for (uint32_t i = node + 1; i < tree->count && left; i++) {
        if (tree->nodes[i].parent != (int32_t)node) continue;
        left--;
        char next_first[MARGIN], next_rest[MARGIN];
        snprintf(next_first, MARGIN, "%.*s%s", MARGIN - STEP - 1, rest, !fork ? "" : left ? "|-- " : "`-- ");
        snprintf(next_rest, MARGIN, "%.*s%s", MARGIN - STEP - 1, rest, !fork ? "" : left ? "|   " : "    ");
        node_print(tree, i, next_first, next_rest);
    }
}

void fby_tree_print(const fby_tree *tree)
{
    if (tree->count) node_print(tree, 0, "", "");
}

int fby_numbers_text(char *out, size_t bytes, const uint64_t *numbers, uint32_t count)
{
    size_t length = 0;
    *out = 0;
    for (uint32_t i = 0; i < count && length < bytes; i++) {
        uint32_t last = i;
        while (last + 1 < count && numbers[last + 1] == numbers[last] + 1) last++;
        length += (size_t)snprintf(out + length, bytes - length, "%s%llu", length ? " " : "",
                                   (unsigned long long)numbers[i]);
        if (last > i && length < bytes)
            length += (size_t)snprintf(out + length, bytes - length, "%s%llu", last > i + 1 ? "-" : " ",
                                       (unsigned long long)numbers[last]);
        i = last;
    }
    return (int)strlen(out);
}
