/* Folders: names, order, labels, links, and what is refused. The order on random trees is compared with
 * torchvision's rule in folder_order.py. */
#include "tests/io/opening.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static fby_dataset *folder_open(const tree *made, fby_error *error)
{
    return opening(FBY_DATASET_FOLDER, made->root, error);
}

static void samples_check(const fby_dataset *dataset, const char *const *paths, const int64_t *labels,
                          uint64_t count)
{
    cr_assert_eq(fby_dataset_count(dataset), count, "%lu samples", (unsigned long)fby_dataset_count(dataset));
    for (uint64_t i = 0; i < count; i++) {
        cr_assert_str_eq(fby_dataset_path(dataset, i), paths[i], "sample %lu is %s", (unsigned long)i,
                         fby_dataset_path(dataset, i));
        cr_assert_eq(fby_dataset_label(dataset, i), labels[i], "%s", paths[i]);
        struct stat status;
        cr_assert_eq(fstatat(fby_dataset_directory(dataset), paths[i], &status, 0), 0);
        cr_assert_eq(fby_dataset_size(dataset, i), (uint64_t)status.st_size, "%s", paths[i]);
    }
}

Test(dataset_folder, order_and_labels)
{
    /* Classes by name; a class's folders by their whole path, so that "a/x-y" stands between "a/x" and
     * "a/x/z". */
    static const char *const paths[] = {
        ".dot/b.png",  "Z/1.JPG",        "Z/1.jPeG",     "a/.jpg",       "a/10.jpg",
        "a/9.jpg",     "a/x/2.tif",      "a/x-y/1.tiff", "a/x/z/1.webp", "a-b/new\nline.gif",
        "a-b/w s.fbl", "\xc3\xa9/1.jpg", "\xff/1.jpg",
    };
    static const int64_t labels[] = {0, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 4, 5};
    static const char *const classes[] = {".dot", "Z", "a", "a-b", "\xc3\xa9", "\xff"};
    enum { COUNT = sizeof paths / sizeof paths[0] };
    tree made = tree_make();
    for (unsigned i = COUNT; i-- > 0;) tree_file(&made, paths[i], 10 + i);
    tree_file(&made, "in_no_class.jpg", 5);
    tree_file(&made, "a/notes.txt", 5);
    tree_file(&made, "a/jpg", 5);
    tree_file(&made, "a/x.jpg.bak", 5);
    tree_file(&made, "a/old.bmp", 5);
    tree_file(&made, "a/x/old.PPM", 5);
    tree_file(&made, "Z/old.pgm", 5);

    fby_error error = FBY_ERROR_INIT;
    fby_dataset *dataset = folder_open(&made, &error);
    cr_assert_not_null(dataset, "%s", error.text);
    samples_check(dataset, paths, labels, COUNT);
    cr_assert_eq(fby_dataset_classes(dataset), 6);
    for (unsigned i = 0; i < 6; i++) cr_assert_str_eq(fby_dataset_class(dataset, i), classes[i]);
    cr_assert_null(fby_dataset_class(dataset, 6));
    cr_assert_eq(fby_dataset_left_out(dataset), 3);
    cr_assert_eq(fby_dataset_largest(dataset), 10 + COUNT - 1);
    cr_assert(!fby_dataset_from_cache(dataset));
    cr_assert_gt(fby_dataset_index_bytes(dataset), COUNT * 24);
    cr_assert(strstr(fby_dataset_root(dataset), strrchr(made.root, '/')));
    fby_dataset_close(&dataset);
    cr_assert_null(dataset);
    tree_remove(&made);
}

Test(dataset_folder, links)
{
    tree made = tree_make(), elsewhere = tree_make();
    tree_file(&elsewhere, "pictures/1.jpg", 11);
    tree_file(&elsewhere, "pictures/2.dat", 12);
    tree_file(&made, "a/1.jpg", 13);
    tree_file(&made, "a/sub/1.jpg", 14);
    tree_link(&made, tree_at(&elsewhere, "pictures").text, "b");             /* a class */
    tree_link(&made, tree_at(&elsewhere, "pictures").text, "a/linked");      /* a folder in one */
    tree_link(&made, tree_at(&elsewhere, "pictures/2.dat").text, "a/2.jpg"); /* a file, by the link's name */
    tree_link(&made, "..", "a/sub/up");                                      /* loops: to a class, */
    tree_link(&made, "../..", "a/sub/top");                                  /* the root, */
    tree_link(&made, ".", "a/sub/self");                                     /* itself */
    tree_link(&made, "nowhere", "a/dangling.jpg");
    tree_link(&made, "circle.png", "a/circle.png");
    tree_link(&made, "nowhere", "dangling_class");
    tree_link(&made, "nowhere", "a/dangling.txt");
    mkfifo(tree_at(&made, "a/pipe.jpg").text, 0644);

    static const char *const paths[] = {"a/1.jpg", "a/2.jpg", "a/linked/1.jpg", "a/sub/1.jpg", "b/1.jpg"};
    static const int64_t labels[] = {0, 0, 0, 0, 1};
    fby_error error = FBY_ERROR_INIT;
    fby_dataset *dataset = folder_open(&made, &error);
    cr_assert_not_null(dataset, "%s", error.text);
    samples_check(dataset, paths, labels, 5);
    cr_assert_eq(fby_dataset_left_out(dataset), 3, "%lu", (unsigned long)fby_dataset_left_out(dataset));
    fby_dataset_close(&dataset);

    tree_link(&made, ".", "loop");
    cr_assert_null(folder_open(&made, &error));
    cr_assert_eq(error.code, FBY_EINVAL);
    cr_assert(strstr(error.text, "/loop: ") && strstr(error.text, "link to a folder above"), "%s",
              error.text);
    tree_remove(&made);
    tree_remove(&elsewhere);
}

Test(dataset_folder, the_root_may_be_a_link_or_relative)
{
    tree made = tree_make();
    tree_file(&made, "real/a/1.jpg", 11);
    tree_link(&made, "real", "link");
    fby_error error = FBY_ERROR_INIT;
    fby_dataset *straight = opening(FBY_DATASET_FOLDER, tree_at(&made, "real").text, &error);
    fby_dataset *linked = opening(FBY_DATASET_FOLDER, tree_at(&made, "link").text, &error);
    int before = open(".", O_RDONLY | O_DIRECTORY);
    cr_assert_eq(chdir(made.root), 0);
    fby_dataset *relative = opening(FBY_DATASET_FOLDER, "link/../real/", &error);
    cr_assert_eq(fchdir(before), 0);
    close(before);

    cr_assert(straight && linked && relative, "%s", error.text);
    cr_assert_str_eq(fby_dataset_root(straight), fby_dataset_root(linked));
    cr_assert_str_eq(fby_dataset_root(straight), fby_dataset_root(relative));
    cr_assert_eq(faccessat(fby_dataset_directory(relative), "a/1.jpg", R_OK, 0), 0);
    fby_dataset_close(&straight);
    fby_dataset_close(&linked);
    fby_dataset_close(&relative);
    tree_remove(&made);
}

Test(dataset_folder, empty_classes)
{
    tree made = tree_make();
    tree_file(&made, "a/1.jpg", 11);
    tree_file(&made, "b/1.bmp", 11);
    tree_file(&made, "c/1.jpg", 11);
    tree_folder(&made, "d");

    fby_error error = FBY_ERROR_INIT;
    cr_assert_null(folder_open(&made, &error));
    cr_assert_eq(error.code, FBY_EINVAL);
    cr_assert(strstr(error.text, "/b holds no pictures; 1 were left out") &&
                  strstr(error.text, "allow_empty"),
              "%s", error.text);

    fby_dataset *dataset;
    fby_dataset_options options = {.path = made.root, .cache = "", .allow_empty = true};
    cr_assert_eq(fby_dataset_open(&dataset, &options, &error), FBY_OK, "%s", error.text);
    static const char *const paths[] = {"a/1.jpg", "c/1.jpg"};
    static const int64_t labels[] = {0, 2};
    samples_check(dataset, paths, labels, 2);
    cr_assert_eq(fby_dataset_classes(dataset), 4);
    fby_dataset_close(&dataset);

    unlink(tree_at(&made, "b/1.bmp").text);
    rmdir(tree_at(&made, "b").text);
    cr_assert_null(folder_open(&made, &error));
    cr_assert(strstr(error.text, "/d holds no pictures:"), "the last class: %s", error.text);
    tree_remove(&made);
}

static int closed_folder_run(void *argument)
{
    fby_error error = FBY_ERROR_INIT;
    CHILD_CHECK(!tree_become_plain());
    CHILD_CHECK(!folder_open(argument, &error));
    CHILD_CHECK(error.code == FBY_EIO &&
                strstr(error.text, "/a/closed: can't open this folder: Permission denied"));
    return 0;
}

Test(dataset_folder, what_is_refused)
{
    tree made = tree_make();
    fby_error error = FBY_ERROR_INIT;
    cr_assert_null(folder_open(&made, &error));
    cr_assert(strstr(error.text, "no class folders"), "%s", error.text);

    tree_folder(&made, "a");
    cr_assert_null(folder_open(&made, &error));
    cr_assert(strstr(error.text, "holds no pictures: expected ROOT/CLASS"), "%s", error.text);

    cr_assert_null(opening(FBY_DATASET_FOLDER, tree_at(&made, "nowhere").text, &error));
    cr_assert_eq(error.code, FBY_EINVAL);
    cr_assert(strstr(error.text, "/nowhere: No such file"), "%s", error.text);
    cr_assert_null(opening(FBY_DATASET_FOLDER, "", &error));
    cr_assert_null(opening(FBY_DATASET_FOLDER, NULL, &error));

    tree_file(&made, "a/1.jpg", 10);
    cr_assert_null(opening(FBY_DATASET_FOLDER, tree_at(&made, "a/1.jpg").text, &error));
    cr_assert(strstr(error.text, "is no folder") && strstr(error.text, "`list:`"), "%s", error.text);

    tree_folder(&made, "a/closed");
    chmod(tree_at(&made, "a/closed").text, 0700);
    if (!geteuid()) cr_assert_eq(tree_child(closed_folder_run, &made), 0);
    tree_remove(&made);
}

Test(dataset_folder, too_long_a_path_is_refused)
{
    tree made = tree_make();
    char name[201];
    memset(name, 'd', 200);
    name[200] = '\0';
    tree_file(&made, "a/1.jpg", 10);
    int folder = open(tree_at(&made, "a").text, O_RDONLY | O_DIRECTORY);
    for (unsigned depth = 0; depth < 25; depth++) {
        cr_assert_eq(mkdirat(folder, name, 0755), 0);
        int below = openat(folder, name, O_RDONLY | O_DIRECTORY);
        close(folder);
        folder = below;
    }
    close(folder);

    fby_error error = FBY_ERROR_INIT;
    cr_assert_null(folder_open(&made, &error));
    cr_assert_eq(error.code, FBY_EINVAL);
    cr_assert(strstr(error.text, "...") && strstr(error.text, "longer than 4095 bytes"), "%s", error.text);
    tree_remove(&made);
}

Test(dataset_folder, many_files_on_any_number_of_threads)
{
    enum { FILES = 3000 };
    tree made = tree_make();
    char path[64], first_of_size[64];
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "flat/%05u.jpg", i);
        snprintf(first_of_size, sizeof first_of_size, "flat/%05u.jpg", i % 50);
        if (i < 50) {
            tree_file(&made, path, i);
        } else {
            tree_hard_link(&made, first_of_size, path);
        }
    }
    for (unsigned i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "class-%u/sub-%u", i % 20, i % 7);
        tree_folder(&made, path);
        snprintf(path, sizeof path, "class-%u/sub-%u/%u.png", i % 20, i % 7, i);
        tree_hard_link(&made, "flat/00049.jpg", path);
    }

    fby_dataset *first = NULL;
    static const uint32_t threads[] = {1, 2, 5, 16};
    for (unsigned t = 0; t < 4; t++) {
        fby_dataset *dataset;
        fby_dataset_options options = {.path = made.root, .cache = "", .threads = threads[t]};
        cr_assert_eq(fby_dataset_open(&dataset, &options, NULL), FBY_OK);
        cr_assert_eq(fby_dataset_count(dataset), FILES + 300);
        uint64_t base = 300;
        for (unsigned i = 0; i < FILES; i++) {
            cr_assert_eq(fby_dataset_size(dataset, base + i), i % 50);
            cr_assert_eq(fby_dataset_label(dataset, base + i), 20);
        }
        if (first) {
            cr_assert(opening_same(first, dataset));
            fby_dataset_close(&dataset);
        } else {
            first = dataset;
        }
    }
    fby_dataset_close(&first);
    tree_remove(&made);
}

Test(dataset_folder, fingerprint_is_of_paths_sizes_and_labels)
{
    static const struct {
        const char *name;
        const char *extra; /* a file that differs */
        size_t bytes;
        bool same;
    } cases[] = {
        {"the same", "a/2.jpg", 12, true},        {"another size", "a/2.jpg", 13, false},
        {"another name", "a/3.jpg", 12, false},   {"another class", "b/2.jpg", 12, false},
        {"a class before", "0/2.jpg", 12, false},
    };
    tree reference = tree_make();
    tree_file(&reference, "a/1.jpg", 11);
    tree_file(&reference, "a/2.jpg", 12);
    tree_file(&reference, "c/1.jpg", 13);
    fby_dataset *expected = folder_open(&reference, NULL);

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tree made = tree_make();
        tree_file(&made, "c/1.jpg", 13);
        tree_file(&made, cases[i].extra, cases[i].bytes);
        tree_file(&made, "a/1.jpg", 11);
        tree_file(&made, "a/notes.txt", i);
        fby_dataset *dataset = folder_open(&made, NULL);
        cr_assert_eq(opening_same(expected, dataset), cases[i].same, "%s", cases[i].name);
        fby_dataset_close(&dataset);
        tree_remove(&made);
    }
    fby_dataset_close(&expected);
    tree_remove(&reference);
}

typedef struct report {
    unsigned calls;
    bool cancel;
} report;

static bool progress_report(void *user, uint64_t found, uint64_t done)
{
    report *seen = user;
    __atomic_fetch_add(&seen->calls, 1, __ATOMIC_RELAXED);
    (void)found;
    (void)done;
    return !seen->cancel;
}

Test(dataset_folder, progress_and_cancelling)
{
    tree made = tree_make();
    char path[64];
    for (unsigned i = 0; i < 100; i++) {
        snprintf(path, sizeof path, "class-%u/%u.png", i % 50, i);
        tree_file(&made, path, i);
    }
    for (unsigned cancel = 0; cancel < 2; cancel++) {
        report seen = {.cancel = cancel};
        fby_dataset *dataset;
        fby_error error = FBY_ERROR_INIT;
        fby_dataset_options options = {
            .path = made.root, .cache = "", .threads = 4, .progress = progress_report, .user = &seen};
        int status = fby_dataset_open(&dataset, &options, &error);
        cr_assert_eq(status, cancel ? FBY_EINTR : FBY_OK, "%d: %s", status, error.text);
        cr_assert(seen.calls >= 1 && seen.calls <= 100, "%u calls", seen.calls);
        fby_dataset_close(&dataset);
    }
    tree_remove(&made);
}
