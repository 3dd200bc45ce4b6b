/* Plays a schedule from standard input on a sampler and prints each draw: what the model's port in
 * tests/python is compared with.
 *
 *     new IDS SEED
 *     join ORDER SEED FIRST_EPOCH EPOCHS BATCH DROP_LAST RANKS WINDOW SUBSET   subset: hex, the lowest ids
 * first; or - leave TASK | abandon TASK | back TASK RANK COUNT | draw BLOCKED
 *
 * A draw prints "draw" and its ids, then "for" with task:rank:epoch:position for each target, "turns",
 * "flags"; or "none". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/sampler/sampler.h"

static fby_sampler *sampler;
static uint64_t ids;
static fby_draw draw;

static void fail(const char *what)
{
    fprintf(stderr, "sampler_replay: %s\n", what);
    exit(1);
}

static uint64_t number(char **rest)
{
    char *word = strtok_r(NULL, " \n", rest);
    if (!word) fail("a number is missing");
    return strtoull(word, NULL, 10);
}

static void subset_read(const char *hex, uint64_t *words)
{
    memset(words, 0, (ids + 63) / 64 * sizeof *words);
    for (uint64_t i = 0; hex[i]; i++) {
        char digit[2] = {hex[i], 0};
        words[i / 16] |= strtoull(digit, NULL, 16) << (i % 16 * 4);
    }
}

static void join(char **rest)
{
    fby_sampler_task what = {0};
    what.order = (fby_order)number(rest);
    what.seed = number(rest);
    what.first_epoch = number(rest);
    what.epochs = number(rest);
    what.batch = (uint32_t)number(rest);
    what.drop_last = number(rest);
    what.ranks = (uint32_t)number(rest);
    what.window = (uint32_t)number(rest);
    char *hex = strtok_r(NULL, " \n", rest);
    if (!hex) fail("a subset is missing");
    uint64_t *words = malloc((ids + 63) / 64 * sizeof *words);
    if (!words) fail("no memory");
    if (hex[0] != '-') {
        subset_read(hex, words);
        what.subset = words;
    }
    uint32_t task = 0;
    int code = fby_sampler_join(sampler, &what, &task, NULL);
    if (code)
        printf("refused %d\n", code);
    else
        printf("task %u\n", task);
    free(words);
}

static void draw_print(uint64_t blocked)
{
    if (!fby_sampler_draw(sampler, blocked, &draw)) {
        puts("none");
        return;
    }
    printf("draw");
    for (uint32_t i = 0; i < draw.count; i++) printf(" %u", draw.ids[i]);
    printf(" for");
    for (uint32_t i = 0; i < draw.target_count; i++) {
        const fby_draw_target *t = &draw.targets[i];
        printf(" %u:%u:%" PRIu64 ":%" PRIu64, t->task, t->rank, t->epoch, t->position);
    }
    printf(" turns");
    for (uint32_t i = 0; i < draw.count; i++) printf(" %" PRIu64, draw.turns[i]);
    printf(" flags");
    for (uint32_t i = 0; i < draw.count; i++) printf(" %u", draw.flags[i]);
    puts("");
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        char *rest = NULL, *word = strtok_r(line, " \n", &rest);
        if (!word) continue;
        if (!strcmp(word, "new")) {
            fby_sampler_destroy(&sampler);
            ids = number(&rest);
            if (fby_sampler_create(&sampler, ids, number(&rest), NULL)) fail("create");
        } else if (!sampler) {
            fail("a schedule begins with new");
        } else if (!strcmp(word, "join")) {
            join(&rest);
        } else if (!strcmp(word, "leave")) {
            fby_sampler_leave(sampler, (uint32_t)number(&rest));
        } else if (!strcmp(word, "abandon")) {
            printf("epoch %" PRIu64 "\n", fby_sampler_abandon(sampler, (uint32_t)number(&rest)));
        } else if (!strcmp(word, "back")) {
            uint32_t task = (uint32_t)number(&rest), rank = (uint32_t)number(&rest);
            fby_sampler_give_back(sampler, task, rank, (uint32_t)number(&rest));
        } else if (!strcmp(word, "draw")) {
            draw_print(number(&rest));
        } else {
            fail("unknown command");
        }
    }
    free(line);
    fby_sampler_destroy(&sampler);
    return 0;
}
