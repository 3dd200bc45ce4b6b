#include "tests/io/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void must(bool done, const char *what)
{
    if (done) return;
    perror(what);
    abort();
}

tree tree_make(void)
{
    tree made;
    const char *parent = getenv("TMPDIR");
    snprintf(made.root, sizeof made.root, "%s/forebay-io-XXXXXX", parent ? parent : "/tmp");
    must(mkdtemp(made.root) != NULL, made.root);
    must(!chmod(made.root, 0755), made.root);
    return made;
}

/* By descriptors, so that no path is too long. */
static void content_remove(int folder)
{
    DIR *stream = fdopendir(folder);
    if (!stream) abort();
    const struct dirent *entry;
    while ((entry = readdir(stream))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (!unlinkat(folder, entry->d_name, 0)) continue;
        int below = openat(folder, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        must(below >= 0, entry->d_name);
        content_remove(below);
        must(!unlinkat(folder, entry->d_name, AT_REMOVEDIR), entry->d_name);
    }
    closedir(stream);
}

void tree_remove(tree *made)
{
    int folder = open(made->root, O_RDONLY | O_DIRECTORY);
    must(folder >= 0, made->root);
    content_remove(folder);
    must(!rmdir(made->root), made->root);
}

tree_path tree_at(const tree *made, const char *path)
{
    tree_path at;
    snprintf(at.text, sizeof at.text, "%s%s%s", made->root, path[0] ? "/" : "", path);
    return at;
}

void tree_folder(const tree *made, const char *path)
{
    tree_path at = tree_at(made, path);
    for (char *slash = at.text + strlen(made->root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(at.text, 0755);
        *slash = '/';
    }
    mkdir(at.text, 0755);
    must(!access(at.text, F_OK), at.text);
}

static void bytes_write(const tree *made, const char *path, const void *bytes, size_t count)
{
    tree_path at = tree_at(made, path);
    char *slash = strrchr(at.text, '/');
    if (slash > at.text + strlen(made->root)) {
        *slash = '\0';
        tree_folder(made, at.text + strlen(made->root) + 1);
        *slash = '/';
    }
    FILE *file = fopen(at.text, "w");
    must(file != NULL, at.text);
    must(fwrite(bytes, 1, count, file) == count, at.text);
    must(!fclose(file), at.text);
}

void tree_file(const tree *made, const char *path, size_t bytes)
{
    uint8_t *content = malloc(bytes + 1);
    must(content != NULL, path);
    for (size_t i = 0; i < bytes; i++) content[i] = tree_byte(bytes, i);
    bytes_write(made, path, content, bytes);
    free(content);
}

void tree_text(const tree *made, const char *path, const char *text)
{
    bytes_write(made, path, text, strlen(text));
}

void tree_link(const tree *made, const char *target, const char *path)
{
    tree_path at = tree_at(made, path);
    must(!symlink(target, at.text), at.text);
}

void tree_hard_link(const tree *made, const char *file, const char *path)
{
    tree_path from = tree_at(made, file), to = tree_at(made, path);
    must(!link(from.text, to.text), to.text);
}

static void path_age(const char *path, long seconds)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[1]);
    times[1].tv_sec += seconds - 3600;
    times[0] = times[1];
    must(!utimensat(AT_FDCWD, path, times, 0), path);
}

void tree_age(const tree *made, const char *path, long seconds)
{
    path_age(tree_at(made, path).text, seconds);
}

static int folder_age(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)where;
    if (type == FTW_D) path_age(path, 0);
    return 0;
}

void tree_age_all(const tree *made)
{
    must(!nftw(made->root, folder_age, 16, FTW_PHYS), made->root);
}

pid_t tree_child_begin(int (*body)(void *argument), void *argument)
{
    fflush(NULL);
    pid_t child = fork();
    must(child >= 0, "fork");
    if (!child) {
        int code = body(argument);
        fflush(NULL);
        _exit(code);
    }
    return child;
}

int tree_child_end(pid_t child)
{
    int status;
    must(waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int tree_child(int (*body)(void *argument), void *argument)
{
    return tree_child_end(tree_child_begin(body, argument));
}

int tree_become_plain(void)
{
    return setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534);
}
