/* Folders of files for the tests of io/, and child processes that give something up. */
#ifndef FBY_TESTS_IO_TREE_H
#define FBY_TESTS_IO_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum { TREE_PATH = 512 };

typedef struct tree {
    char root[TREE_PATH];
} tree;

/* A new folder that any user may enter. Aborts on failure, as all of these do. */
tree tree_make(void);
void tree_remove(tree *made);

/* root/path. */
typedef struct tree_path {
    char text[TREE_PATH + 512];
} tree_path;
tree_path tree_at(const tree *made, const char *path);

void tree_folder(const tree *made, const char *path);                      /* and those above it */
void tree_file(const tree *made, const char *path, size_t bytes);          /* and the folders above it */
void tree_hard_link(const tree *made, const char *file, const char *path); /* cheaper than another file */
void tree_text(const tree *made, const char *path, const char *text);
void tree_link(const tree *made, const char *target, const char *path);

/* Sets a folder's or file's time to an hour ago plus `seconds`: what was looked at since then is trusted. */
void tree_age(const tree *made, const char *path, long seconds);
/* Every folder below the root, and the root. */
void tree_age_all(const tree *made);

/* What tree_file wrote at byte `offset` of a file of `bytes` bytes. */
static inline uint8_t tree_byte(size_t bytes, size_t offset)
{
    return (uint8_t)((offset * 2654435761u >> 13) + bytes);
}

/* The first byte that isn't what tree_file wrote into a file of `bytes` bytes; `bytes`: none. */
static inline size_t tree_wrong_byte(const uint8_t *content, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && content[at] == tree_byte(bytes, at)) at++;
    return at;
}

/* Runs body(argument) in a child, and returns what it returned; -1 where it died. */
int tree_child(int (*body)(void *argument), void *argument);
/* The same in two steps. ThreadSanitizer wants no other thread at the first. */
pid_t tree_child_begin(int (*body)(void *argument), void *argument);
int tree_child_end(pid_t child);
/* For a child: becomes the plain user 65534. 0: done. */
int tree_become_plain(void);

/* For a child's body, which has no test framework. */
#define CHILD_CHECK(Condition)                                                                               \
    do {                                                                                                     \
        if (!(Condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: child failed: %s\n", __FILE__, __LINE__, #Condition);                    \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)

#endif
