/* The index file: when it is used again, when not, and that nothing wrong with it or its folder matters. */
#include "tests/io/opening.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct kept {
    tree data, cache;
} kept;

static kept kept_make(void)
{
    kept made = {tree_make(), tree_make()};
    tree_file(&made.data, "a/1.jpg", 11);
    tree_file(&made.data, "a/sub/2.jpg", 12);
    tree_file(&made.data, "b/1.jpg", 13);
    tree_age_all(&made.data);
    return made;
}

static void kept_remove(kept *made)
{
    tree_remove(&made->data);
    tree_remove(&made->cache);
}

static fby_dataset *kept_open_kind(const kept *made, fby_dataset_kind kind, const char *path)
{
    fby_dataset *dataset;
    fby_error error = FBY_ERROR_INIT;
    tree_path at = tree_at(&made->data, path);
    fby_dataset_options options = {.kind = kind, .path = at.text, .cache = made->cache.root, .threads = 2};
    int status = fby_dataset_open(&dataset, &options, &error);
    cr_assert_eq(status, FBY_OK, "%s", error.text);
    return dataset;
}

static fby_dataset *kept_open(const kept *made)
{
    return kept_open_kind(made, FBY_DATASET_FOLDER, "");
}

/* Opens, and says whether the index was used again; the count must be right either way. */
static bool kept_used(const kept *made, uint64_t count)
{
    fby_dataset *dataset = kept_open(made);
    bool used = fby_dataset_from_cache(dataset);
    cr_assert_eq(fby_dataset_count(dataset), count, "%lu files", (unsigned long)fby_dataset_count(dataset));
    cr_assert_str_eq(fby_dataset_path(dataset, 0), "a/1.jpg");
    fby_dataset_close(&dataset);
    return used;
}

/* The one file in the cache folder. */
static tree_path index_path(const kept *made)
{
    tree_path found = {""};
    unsigned count = 0;
    DIR *folder = opendir(made->cache.root);
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.') continue;
        found = tree_at(&made->cache, entry->d_name);
        count++;
    }
    closedir(folder);
    cr_assert_eq(count, 1, "%u files in the cache", count);
    return found;
}

Test(dataset_cache, used_again_while_nothing_changes)
{
    kept made = kept_make();
    fby_dataset *first = kept_open(&made), *second = kept_open(&made);
    cr_assert(!fby_dataset_from_cache(first));
    cr_assert(fby_dataset_from_cache(second));
    cr_assert(opening_same(first, second));
    cr_assert_eq(fby_dataset_count(second), 3);
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_str_eq(fby_dataset_path(first, i), fby_dataset_path(second, i));
        cr_assert_eq(fby_dataset_size(second, i), 11 + i);
        cr_assert_eq(fby_dataset_label(second, i), i / 2);
    }
    cr_assert_str_eq(fby_dataset_class(second, 1), "b");

    struct stat status;
    cr_assert_eq(stat(index_path(&made).text, &status), 0);
    cr_assert_eq(status.st_mode & 0777, 0600);
    cr_assert_eq((uint64_t)status.st_size, fby_dataset_index_bytes(second));
    fby_dataset_close(&first);
    fby_dataset_close(&second);
    kept_remove(&made);
}

Test(dataset_cache, changes_are_noticed)
{
    kept made = kept_make();
    cr_assert(!kept_used(&made, 3));
    cr_assert(kept_used(&made, 3));

    tree_file(&made.data, "a/sub/3.jpg", 14);
    cr_assert(!kept_used(&made, 4), "a file more");
    tree_age_all(&made.data);
    cr_assert(!kept_used(&made, 4), "times that went back");
    cr_assert(kept_used(&made, 4));

    unlink(tree_at(&made.data, "b/1.jpg").text);
    tree_file(&made.data, "b/2.jpg", 14);
    cr_assert(!kept_used(&made, 4), "another name");
    tree_file(&made.data, "b/new/2.jpg", 14);
    cr_assert(!kept_used(&made, 5), "a folder more");
    tree_file(&made.data, "c/2.jpg", 14);
    cr_assert(!kept_used(&made, 6), "a class more");

    /* Another folder of the same name and time. */
    tree_age_all(&made.data);
    cr_assert(!kept_used(&made, 6));
    rename(tree_at(&made.data, "c").text, tree_at(&made.cache, "old").text);
    tree_file(&made.data, "c/1.jpg", 14);
    tree_file(&made.data, "c/2.jpg", 14);
    tree_age_all(&made.data);
    tree_file(&made.cache, "old/keeps_its_inode", 1);
    cr_assert(!kept_used(&made, 7), "another folder in its place");
    kept_remove(&made);
}

Test(dataset_cache, young_folders_are_looked_at_again)
{
    kept made = kept_make();
    struct stat status;
    tree_path sub = tree_at(&made.data, "a/sub");
    tree_file(&made.data, "a/sub/3.jpg", 14);
    cr_assert(!kept_used(&made, 4));
    cr_assert(kept_used(&made, 4), "looked at again, and the same");

    /* A change that the folder's time doesn't show, as within one tick of a coarse clock. */
    cr_assert_eq(stat(sub.text, &status), 0);
    struct timespec times[2] = {status.st_atim, status.st_mtim};
    tree_file(&made.data, "a/sub/4.jpg", 15);
    cr_assert_eq(utimensat(AT_FDCWD, sub.text, times, 0), 0);
    cr_assert(!kept_used(&made, 5), "a file more, at the same time");

    /* Nor a size that changed there. */
    cr_assert_eq(truncate(tree_at(&made.data, "a/sub/4.jpg").text, 100), 0);
    fby_dataset *dataset = kept_open(&made);
    cr_assert_eq(fby_dataset_largest(dataset), 100);
    fby_dataset_close(&dataset);
    kept_remove(&made);
}

Test(dataset_cache, a_look_is_remembered)
{
    kept made = kept_make();
    tree_age(&made.data, "b", 3600 - 1); /* a second ago */
    cr_assert(!kept_used(&made, 3));
    struct stat before, after;
    tree_path file = index_path(&made);
    cr_assert_eq(stat(file.text, &before), 0);
    sleep(3);
    cr_assert(kept_used(&made, 3), "looked at again: now old enough to be trusted");
    cr_assert_eq(stat(file.text, &after), 0);
    cr_assert(before.st_ino != after.st_ino || before.st_mtim.tv_sec != after.st_mtim.tv_sec);
    cr_assert(kept_used(&made, 3));
    before = after;
    cr_assert_eq(stat(file.text, &after), 0);
    cr_assert(before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec,
              "trusted: not written");
    kept_remove(&made);
}

Test(dataset_cache, lists)
{
    kept made = kept_make();
    tree_text(&made.data, "list.txt", "a/1.jpg\t1\nb/1.jpg\t2\n");
    tree_age(&made.data, "list.txt", 0);
    for (unsigned round = 0; round < 2; round++) {
        fby_dataset *dataset = kept_open_kind(&made, FBY_DATASET_LIST, "list.txt");
        cr_assert_eq(fby_dataset_from_cache(dataset), round == 1);
        cr_assert_eq(fby_dataset_count(dataset), 2);
        cr_assert_eq(fby_dataset_label(dataset, 1), 2);
        fby_dataset_close(&dataset);
    }
    static const char *const texts[] = {"a/1.jpg\t1\nb/1.jpg\t3\n", "a/1.jpg\t1\nb/1.jpg\t4\nb/1.jpg\t4\n"};
    for (unsigned i = 0; i < 2; i++) {
        tree_text(&made.data, "list.txt", texts[i]);
        fby_dataset *dataset = kept_open_kind(&made, FBY_DATASET_LIST, "list.txt");
        cr_assert(!fby_dataset_from_cache(dataset));
        cr_assert_eq(fby_dataset_label(dataset, 1), 3 + i);
        fby_dataset_close(&dataset);
    }
    /* Young: changed again, its size and time the same. */
    struct stat status;
    tree_path list = tree_at(&made.data, "list.txt");
    cr_assert_eq(stat(list.text, &status), 0);
    struct timespec times[2] = {status.st_atim, status.st_mtim};
    tree_text(&made.data, "list.txt", "a/1.jpg\t1\nb/1.jpg\t5\nb/1.jpg\t5\n");
    cr_assert_eq(utimensat(AT_FDCWD, list.text, times, 0), 0);
    fby_dataset *dataset = kept_open_kind(&made, FBY_DATASET_LIST, "list.txt");
    cr_assert_eq(fby_dataset_label(dataset, 1), 5);
    fby_dataset_close(&dataset);
    kept_remove(&made);
}

static size_t file_read(const char *path, uint8_t *out, size_t most)
{
    FILE *file = fopen(path, "r");
    size_t bytes = fread(out, 1, most, file);
    fclose(file);
    return bytes;
}

static void file_write(const char *path, const uint8_t *bytes, size_t count)
{
    FILE *file = fopen(path, "w");
    fwrite(bytes, 1, count, file);
    fclose(file);
}

Test(dataset_cache, a_wrong_index_is_made_anew)
{
    kept made = kept_make();
    cr_assert(!kept_used(&made, 3));
    static uint8_t right[65536], wrong[65536];
    tree_path file = index_path(&made);
    size_t bytes = file_read(file.text, right, sizeof right);
    cr_assert_gt(bytes, 200);

    for (size_t cut = 0; cut < bytes; cut += cut < 200 ? 7 : 61) {
        file_write(file.text, right, cut);
        cr_assert(!kept_used(&made, 3), "cut to %zu bytes", cut);
    }
    memcpy(wrong, right, bytes);
    wrong[bytes] = 0;
    file_write(file.text, wrong, bytes + 1);
    cr_assert(!kept_used(&made, 3), "a byte too many");

    uint64_t seed = (uint64_t)time(NULL);
    for (unsigned i = 0; i < 200; i++) {
        seed = seed * 6364136223846793005 + 1442695040888963407;
        size_t at = (seed >> 33) % bytes;
        memcpy(wrong, right, bytes);
        wrong[at] ^= 1u << (seed >> 30 & 7);
        file_write(file.text, wrong, bytes);
        cr_assert(!kept_used(&made, 3), "byte %zu changed", at);
    }
    cr_assert(kept_used(&made, 3));

    /* Right, but others may write it, and so cut it while it is mapped. */
    chmod(file.text, 0666);
    cr_assert(!kept_used(&made, 3));
    cr_assert(kept_used(&made, 3));

    /* Another data set's index in its place. */
    kept other = kept_make();
    cr_assert(!kept_used(&other, 3));
    size_t other_bytes = file_read(index_path(&other).text, wrong, sizeof wrong);
    file_write(file.text, wrong, other_bytes);
    cr_assert(!kept_used(&made, 3));

    unlink(file.text);
    cr_assert_eq(symlink(index_path(&other).text, file.text), 0);
    cr_assert(!kept_used(&made, 3), "a link is not followed");
    unlink(file.text);
    cr_assert_eq(mkfifo(file.text, 0600), 0);
    cr_assert(!kept_used(&made, 3));
    kept_remove(&made);
    kept_remove(&other);
}

static int readonly_run(void *argument)
{
    const kept *made = argument;
    fby_dataset *dataset;
    tree_path below = tree_at(&made->cache, "closed/below");
    fby_dataset_options options = {.path = made->data.root, .cache = below.text};
    CHILD_CHECK(!tree_become_plain());
    for (unsigned i = 0; i < 2; i++) {
        CHILD_CHECK(!fby_dataset_open(&dataset, &options, NULL));
        CHILD_CHECK(fby_dataset_count(dataset) == 3 && !fby_dataset_from_cache(dataset));
        fby_dataset_close(&dataset);
    }
    return 0;
}

Test(dataset_cache, a_folder_that_cant_be_written_is_no_error)
{
    kept made = kept_make();
    tree_file(&made.cache, "file", 1);
    tree_path file = tree_at(&made.cache, "file"), below = tree_at(&made.cache, "file/below");
    static char long_path[6000];
    memset(long_path, '/', sizeof long_path - 1);
    const char *const caches[] = {file.text, below.text, long_path, "/proc/self/nowhere"};
    for (unsigned i = 0; i < 4; i++) {
        fby_dataset *dataset;
        fby_error error = FBY_ERROR_INIT;
        fby_dataset_options options = {.path = made.data.root, .cache = caches[i]};
        cr_assert_eq(fby_dataset_open(&dataset, &options, &error), FBY_OK, "%s", error.text);
        cr_assert_eq(fby_dataset_count(dataset), 3);
        fby_dataset_close(&dataset);
    }
    tree_folder(&made.cache, "closed");
    chmod(tree_at(&made.cache, "closed").text, 0755);
    if (!geteuid()) cr_assert_eq(tree_child(readonly_run, &made), 0);
    kept_remove(&made);
}

static int environment_run(void *argument)
{
    const kept *made = argument;
    fby_dataset_options options = {.path = made->data.root};
    tree_path xdg = tree_at(&made->cache, "xdg/deep"), home = tree_at(&made->cache, "home");
    fby_dataset *dataset;
    struct stat status;

    setenv("HOME", home.text, 1);
    setenv("XDG_CACHE_HOME", xdg.text, 1);
    CHILD_CHECK(!fby_dataset_open(&dataset, &options, NULL));
    fby_dataset_close(&dataset);
    CHILD_CHECK(!stat(tree_at(&made->cache, "xdg/deep/forebay").text, &status) &&
                (status.st_mode & 0777) == 0700);
    CHILD_CHECK(access(home.text, F_OK));

    setenv("XDG_CACHE_HOME", "relative/is/ignored", 1);
    CHILD_CHECK(!fby_dataset_open(&dataset, &options, NULL));
    fby_dataset_close(&dataset);
    CHILD_CHECK(!access(tree_at(&made->cache, "home/.cache/forebay").text, F_OK));

    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    CHILD_CHECK(!fby_dataset_open(&dataset, &options, NULL));
    fby_dataset_close(&dataset);
    return 0;
}

Test(dataset_cache, where_it_lies)
{
    kept made = kept_make();
    cr_assert_eq(tree_child(environment_run, &made), 0);
    kept_remove(&made);
}

Test(dataset_cache, an_empty_class_is_an_error_from_the_cache_too)
{
    kept made = kept_make();
    tree_folder(&made.data, "empty");
    tree_age_all(&made.data);
    for (unsigned i = 0; i < 4; i++) {
        fby_dataset *dataset;
        fby_error error = FBY_ERROR_INIT;
        fby_dataset_options options = {
            .path = made.data.root, .cache = made.cache.root, .allow_empty = i % 2};
        int status = fby_dataset_open(&dataset, &options, &error);
        cr_assert_eq(status, i % 2 ? FBY_OK : FBY_EINVAL);
        if (status) cr_assert(strstr(error.text, "/empty holds no pictures"), "%s", error.text);
        fby_dataset_close(&dataset);
    }
    kept_remove(&made);
}

static void *builder_run(void *argument)
{
    const kept *made = argument;
    for (unsigned i = 0; i < 20; i++) {
        fby_dataset *dataset;
        fby_dataset_options options = {.path = made->data.root, .cache = made->cache.root, .threads = 2};
        if (fby_dataset_open(&dataset, &options, NULL)) return "open failed";
        bool right = fby_dataset_count(dataset) == 3 && !strcmp(fby_dataset_path(dataset, 2), "b/1.jpg");
        fby_dataset_close(&dataset);
        if (!right) return "wrong index";
        /* So that the others build it anew. */
        tree_age(&made->data, "a", i);
    }
    return NULL;
}

static int builder_child(void *argument)
{
    const char *wrong = builder_run(argument);
    CHILD_CHECK(!wrong);
    return 0;
}

Test(dataset_cache, several_build_the_same_index_at_once)
{
    kept made = kept_make();
    pid_t child[2];
    pthread_t thread[2];
    for (unsigned i = 0; i < 2; i++) child[i] = tree_child_begin(builder_child, &made);
    for (unsigned i = 0; i < 2; i++) pthread_create(&thread[i], NULL, builder_run, &made);
    for (unsigned i = 0; i < 2; i++) {
        void *wrong;
        pthread_join(thread[i], &wrong);
        cr_assert_null(wrong, "%s", (const char *)wrong);
        cr_assert_eq(tree_child_end(child[i]), 0);
    }
    index_path(&made);
    tree_age_all(&made.data);
    kept_used(&made, 3);
    cr_assert(kept_used(&made, 3));
    kept_remove(&made);
}
