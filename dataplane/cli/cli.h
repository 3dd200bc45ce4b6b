/* What the commands of the program share. */
#ifndef FBY_DATAPLANE_CLI_H
#define FBY_DATAPLANE_CLI_H

#include <argp.h>
#include <forebay/error.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { FBY_EXIT_FAILED = 1, FBY_EXIT_USAGE = 64 };

int fby_command_serve(int count, char **values);
int fby_command_run(int count, char **values);
int fby_command_plan(int count, char **values);
int fby_command_status(int count, char **values);
int fby_command_doctor(int count, char **values);
int fby_command_convert(int count, char **values);
int fby_command_inspect(int count, char **values);
int fby_command_verify(int count, char **values);

/* Parses with argp under the name "forebay COMMAND". */
int fby_arguments_parse(const struct argp *argp, const char *command, int count, char **arguments,
                        void *input);

/* A whole number of at most `most`. */
bool fby_count_parse(const char *text, uint64_t most, uint64_t *out);

/* What to call each of some files: its name, with its folder where two have one name, with a number where a
 * file is there twice. Each malloc'd, and so is the array; NULL without memory. */
char **fby_labels_make(char *const *paths, uint32_t count);
void fby_labels_free(char ***labels, uint32_t count);

/* A tree as text: a chain goes straight down, a fork moves in. Parents stand before what hangs below them. */
typedef struct fby_tree_node {
    int32_t parent; /* -1 for the first */
    bool ends;      /* something ends here, whether or not it goes on */
} fby_tree_node;

typedef struct fby_tree {
    const fby_tree_node *nodes;
    uint32_t count;
    /* Prints a line for a node; `lead` is what is drawn left of it. */
    void (*line)(void *user, uint32_t node, const char *lead);
    void *user;
} fby_tree;

void fby_tree_print(const fby_tree *tree);

enum { FBY_NUMBERS_TEXT = 200 };
/* Ascending numbers as "1-3 5", cut where longer; its length. */
int fby_numbers_text(char *out, size_t bytes, const uint64_t *numbers, uint32_t count);

/* "12.3 MiB" in a buffer of 32. */
const char *fby_size_text(char *out, double bytes);

/* What a file holds from where it stands, at most `length` bytes; how many, or -1 and errno. */
ssize_t fby_file_read_some(int from, uint8_t *out, size_t length);
/* A whole open file, malloc'd, 64 zero bytes behind it. NULL: errno. */
uint8_t *fby_file_read(int from, size_t *length);

enum { FBY_THREADS_MOST = 64 };
/* The value of --threads; ends the program where it is none. */
uint64_t fby_threads_parse(struct argp_state *state, const char *value);
/* The CPUs that this process may run on, at most `most`. */
uint32_t fby_threads_default(uint32_t most);

/* Prints "forebay: TEXT" to stderr and returns FBY_EXIT_FAILED. */
int fby_complain(const fby_error *error);

#endif
