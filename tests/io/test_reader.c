/* Both readers on the same files: same results, which are the right ones. */
#include "io/clock.h"
#include "tests/io/reading.h"
#include "tests/io/tree.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct expected {
    const char *path;
    uint64_t size; /* that the index says */
    uint64_t real; /* that the file has, where it is read */
    fby_read_failure failure;
    int error;
} expected;

static fby_reader *reader_open(fby_reader_kind kind, uint32_t depth, uint32_t threads)
{
    fby_error error = FBY_ERROR_INIT;
    fby_reader *reader;
    fby_reader_options options = {.kind = kind, .depth = depth, .threads = threads};
    cr_assert_eq(fby_reader_create(&reader, &options, &error), FBY_OK, "%s", error.text);
    cr_assert_eq(fby_reader_kind_of(reader), kind);
    return reader;
}

static unsigned descriptors_count(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

/* Files that stand in the slots of this process's one ring. */
static unsigned slots_filled(void)
{
    unsigned filled = 0;
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        char path[300], target[64] = "", line[512];
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) < 0 || !strstr(target, "io_uring")) continue;
        snprintf(path, sizeof path, "/proc/self/fdinfo/%s", entry->d_name);
        FILE *file = fopen(path, "r");
        bool within = false;
        unsigned number;
        while (fgets(line, sizeof line, file)) {
            if (within && sscanf(line, " %u:", &number) == 1) filled++;
            if (within && !strncmp(line, "UserBufs", 8)) within = false;
            if (!strncmp(line, "UserFiles", 9)) within = true;
        }
        fclose(file);
    }
    closedir(folder);
    return filled;
}

static char name_255[256];

static uint32_t tree_fill(const tree *made, expected *all)
{
    uint32_t count = 0;
    static const char *names[] = {
        "empty",           "one",          "page", "big",   "with space", "new\nline",
        "non\xff\xfeutf8", "deep/er/file", "-",    name_255};
    static const uint64_t sizes[] = {0, 1, 4096, 5000000, 100, 101, 102, 103, 104, 105};

    memset(name_255, 'n', 255);
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        tree_file(made, names[i], sizes[i]);
        all[count++] = (expected){names[i], sizes[i], sizes[i], FBY_READ_OK, 0};
    }
    tree_folder(made, "folder");
    tree_link(made, "page", "link");
    tree_link(made, "nowhere", "dangling");
    tree_link(made, "loop", "loop");
    mkfifo(tree_at(made, "pipe").text, 0644);

    all[count++] = (expected){"link", 4096, 4096, FBY_READ_OK, 0};
    all[count++] = (expected){"missing", 7, 0, FBY_READ_MISSING, ENOENT};
    all[count++] = (expected){"dangling", 7, 0, FBY_READ_MISSING, ENOENT};
    all[count++] = (expected){"loop", 7, 0, FBY_READ_MISSING, ELOOP};
    all[count++] = (expected){"page/x", 7, 0, FBY_READ_MISSING, ENOTDIR};
    all[count++] = (expected){"folder", 4096, 0, FBY_READ_UNREADABLE, EISDIR};
    all[count++] = (expected){"folder", 0, 0, FBY_READ_UNREADABLE, EISDIR};
    all[count++] = (expected){"page", 4095, 0, FBY_READ_CHANGED, EFBIG};
    all[count++] = (expected){"page", 0, 0, FBY_READ_CHANGED, EFBIG};
    all[count++] = (expected){"page", 4097, 0, FBY_READ_CHANGED, ENODATA};
    all[count++] = (expected){"empty", 1, 0, FBY_READ_CHANGED, ENODATA};
    all[count++] = (expected){"big", 1000000, 0, FBY_READ_CHANGED, EFBIG};
    all[count++] = (expected){"pipe", 10, 0, FBY_READ_CHANGED, ENODATA};
    return count;
}

static void result_check(const fby_read_request *request, const expected *wanted, fby_reader_kind kind)
{
    cr_assert_eq(request->failure, wanted->failure, "%s, kind %d: failure %d, bytes %ld", wanted->path, kind,
                 request->failure, (long)request->bytes);
    if (wanted->failure) {
        cr_assert_eq(request->bytes, -wanted->error, "%s, kind %d: %ld", wanted->path, kind,
                     (long)request->bytes);
        return;
    }
    cr_assert_eq(request->bytes, (int64_t)wanted->size, "%s, kind %d: %ld", wanted->path, kind,
                 (long)request->bytes);
    cr_assert_eq(tree_wrong_byte(request->buffer, wanted->size), wanted->size, "%s, kind %d", wanted->path,
                 kind);
}

Test(reader, all_sorts_of_files)
{
    tree made = tree_make();
    expected all[64];
    uint32_t count = tree_fill(&made, all);
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);
    static const uint32_t depths[] = {1, 3, 32};

    for (unsigned k = 0; k < kind_count * 3; k++) {
        fby_reader *reader = reader_open(kinds[k / 3], depths[k % 3], 0);
        fby_read_request requests[64];
        uint64_t bytes = 0, files = 0;
        for (uint32_t i = 0; i < count; i++) {
            reading_request(&requests[i], directory, all[i].path, all[i].size);
            bytes += all[i].failure ? 0 : all[i].size;
            files += !all[i].failure;
        }
        reading_all(reader, requests, count);
        for (uint32_t i = 0; i < count; i++) {
            result_check(&requests[i], &all[i], kinds[k / 3]);
            cr_assert_eq((uintptr_t)requests[i].user, 1, "%s came back %lu times", all[i].path,
                         (unsigned long)(uintptr_t)requests[i].user);
        }

        fby_reader_stats stats;
        fby_reader_get_stats(reader, &stats);
        cr_assert_eq(stats.files, files);
        cr_assert_eq(stats.bytes, bytes);
        cr_assert_eq(stats.looked_again, 6);
        cr_assert_gt(stats.system_calls, 0);
        cr_assert_eq(fby_reader_room(reader), depths[k % 3]);
        fby_reader_destroy(&reader);
        cr_assert_null(reader);
        reading_free(requests, count);
    }
    close(directory);
    tree_remove(&made);
}

Test(reader, absolute_paths_and_working_directory)
{
    tree made = tree_make();
    tree_file(&made, "file", 77);
    tree_path at = tree_at(&made, "file");
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    for (unsigned k = 0; k < kind_count; k++) {
        fby_reader *reader = reader_open(kinds[k], 0, 0);
        fby_read_request requests[3];
        reading_request(&requests[0], AT_FDCWD, at.text, 77);
        reading_request(&requests[1], -1, "relative", 5);
        reading_request(&requests[2], AT_FDCWD, at.text, 77);
        requests[2].capacity = 77;
        reading_all(reader, requests, 3);
        cr_assert_eq(requests[0].bytes, 77);
        cr_assert_eq(requests[1].bytes, -EBADF);
        cr_assert_eq(requests[1].failure, FBY_READ_IO);
        cr_assert_eq(requests[2].bytes, -EINVAL, "a buffer without room for the byte too many is refused");
        fby_reader_destroy(&reader);
        reading_free(requests, 3);
    }
    tree_remove(&made);
}

typedef struct plain_case {
    int directory;
    fby_reader_kind kind;
} plain_case;

static int plain_read(void *argument)
{
    const plain_case *plain = argument;
    fby_reader *reader;
    fby_read_request requests[3];

    CHILD_CHECK(!tree_become_plain());
    CHILD_CHECK(!fby_reader_create(&reader, &(fby_reader_options){.kind = plain->kind}, NULL));
    reading_request(&requests[0], plain->directory, "secret", 50);
    reading_request(&requests[1], plain->directory, "open", 51);
    reading_request(&requests[2], plain->directory, "closed/file", 52);
    reading_all(reader, requests, 3);
    fby_reader_destroy(&reader);
    reading_free(requests, 3);
    CHILD_CHECK(requests[0].failure == FBY_READ_UNREADABLE && requests[0].bytes == -EACCES);
    CHILD_CHECK(requests[1].failure == FBY_READ_OK && requests[1].bytes == 51);
    CHILD_CHECK(requests[2].failure == FBY_READ_UNREADABLE && requests[2].bytes == -EACCES);
    return 0;
}

Test(reader, unreadable_files_of_another_user)
{
    if (geteuid()) {
        cr_log_info("not root: can't become another user");
        return;
    }
    tree made = tree_make();
    tree_file(&made, "secret", 50);
    tree_file(&made, "open", 51);
    tree_file(&made, "closed/file", 52);
    chmod(tree_at(&made, "secret").text, 0600);
    chmod(tree_at(&made, "closed").text, 0700);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    plain_case plain = {.directory = open(made.root, O_RDONLY | O_DIRECTORY)};
    for (unsigned k = 0; k < kind_count; k++) {
        plain.kind = kinds[k];
        cr_assert_eq(tree_child(plain_read, &plain), 0);
    }
    close(plain.directory);
    tree_remove(&made);
}

Test(reader, ten_thousand_reads_keep_no_descriptor)
{
    enum { FILES = 50, ROUNDS = 200 };
    tree made = tree_make();
    char names[FILES][24];
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof names[i], "file-%u", i);
        if (i % 10) tree_file(&made, names[i], i * 37);
    }
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    for (unsigned k = 0; k < kind_count; k++) {
        fby_reader *reader = reader_open(kinds[k], 16, 2);
        fby_read_request requests[FILES];
        unsigned before = descriptors_count();
        for (unsigned round = 0; round < ROUNDS; round++) {
            /* Every tenth is missing, every seventh another size than said, which makes short reads. */
            for (unsigned i = 0; i < FILES; i++) {
                reading_request(&requests[i], directory, names[i], i * 37 + (i % 7 ? 0 : 5));
            }
            reading_all(reader, requests, FILES);
            for (unsigned i = 0; i < FILES; i++) {
                fby_read_failure failure = !(i % 10)  ? FBY_READ_MISSING
                                           : !(i % 7) ? FBY_READ_CHANGED
                                                      : FBY_READ_OK;
                cr_assert_eq(requests[i].failure, failure, "file %u: %d", i, requests[i].failure);
            }
            reading_free(requests, FILES);
        }
        cr_assert_eq(descriptors_count(), before);
        cr_assert_eq(slots_filled(), 0, "%u slots of the ring still hold a file", slots_filled());
        fby_reader_destroy(&reader);
    }
    close(directory);
    tree_remove(&made);
}

Test(reader, most_bounds_what_a_wait_hands_back)
{
    tree made = tree_make();
    tree_file(&made, "file", 10);
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    for (unsigned k = 0; k < kind_count; k++) {
        fby_reader *reader = reader_open(kinds[k], 8, 0);
        fby_read_request requests[8];
        fby_read_request *done[8];
        for (unsigned i = 0; i < 8; i++) {
            reading_request(&requests[i], directory, "file", 10);
            fby_reader_submit(reader, &requests[i]);
        }
        cr_assert_eq(fby_reader_room(reader), 0);
        for (unsigned back = 0; back < 8;) {
            uint32_t came = fby_reader_wait(reader, done, 3, UINT64_MAX);
            cr_assert(came >= 1 && came <= 3);
            back += came;
            cr_assert_eq(fby_reader_room(reader), back);
        }
        cr_assert_eq(fby_reader_wait(reader, done, 3, 0), 0);
        fby_reader_destroy(&reader);
        reading_free(requests, 8);
    }
    close(directory);
    tree_remove(&made);
}

typedef struct late_waker {
    fby_reader *reader;
    sem_t woken; /* the wait is over: two wakes before it would be one */
} late_waker;

static void *wake_later(void *argument)
{
    late_waker *waker = argument;
    for (unsigned i = 0; i < 3; i++) {
        usleep(10000);
        fby_reader_wake(waker->reader);
        sem_wait(&waker->woken);
    }
    return NULL;
}

Test(reader, wakes_and_deadlines)
{
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    for (unsigned k = 0; k < kind_count; k++) {
        fby_reader *reader = reader_open(kinds[k], 4, 0);
        fby_read_request *done[4];

        uint64_t begin = fby_io_now_ns();
        cr_assert_eq(fby_reader_wait(reader, done, 4, begin + 30000000), 0);
        cr_assert_geq(fby_io_now_ns() - begin, 30000000);
        cr_assert_eq(fby_reader_wait(reader, done, 4, begin), 0, "a deadline that passed");
        cr_assert_eq(fby_reader_wait(reader, done, 4, 0), 0);

        /* One that came before counts, and many are one. */
        for (unsigned i = 0; i < 5; i++) fby_reader_wake(reader);
        cr_assert_eq(fby_reader_wait(reader, done, 4, UINT64_MAX), 0);
        begin = fby_io_now_ns();
        cr_assert_eq(fby_reader_wait(reader, done, 4, begin + 20000000), 0);
        cr_assert_geq(fby_io_now_ns() - begin, 20000000, "kind %d: woken by a wake that was used up",
                      kinds[k]);

        pthread_t other;
        late_waker waker = {.reader = reader};
        sem_init(&waker.woken, 0, 0);
        pthread_create(&other, NULL, wake_later, &waker);
        for (unsigned i = 0; i < 3; i++) {
            cr_assert_eq(fby_reader_wait(reader, done, 4, UINT64_MAX), 0);
            sem_post(&waker.woken);
        }
        pthread_join(other, NULL);
        sem_destroy(&waker.woken);
        fby_reader_destroy(&reader);
    }
}

typedef struct wake_call {
    fby_reader *reader;
    volatile unsigned *stop;
} wake_call;

static void *wake_often(void *argument)
{
    const wake_call *call = argument;
    while (!__atomic_load_n(call->stop, __ATOMIC_RELAXED)) {
        fby_reader_wake(call->reader);
        usleep(50);
    }
    return NULL;
}

Test(reader, wakes_from_several_threads_while_reading)
{
    enum { FILES = 500 };
    tree made = tree_make();
    tree_file(&made, "file", 3000);
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    for (unsigned k = 0; k < kind_count; k++) {
        fby_reader *reader = reader_open(kinds[k], 8, 3);
        static fby_read_request requests[FILES];
        volatile unsigned stop = 0;
        wake_call call = {reader, &stop};
        pthread_t other[2];
        for (unsigned i = 0; i < FILES; i++) reading_request(&requests[i], directory, "file", 3000);
        for (unsigned i = 0; i < 2; i++) pthread_create(&other[i], NULL, wake_often, &call);
        reading_all(reader, requests, FILES);
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        for (unsigned i = 0; i < 2; i++) pthread_join(other[i], NULL);
        for (unsigned i = 0; i < FILES; i++) {
            result_check(&requests[i], &(expected){"file", 3000, 3000, FBY_READ_OK, 0}, kinds[k]);
        }
        fby_reader_destroy(&reader);
        reading_free(requests, FILES);
    }
    close(directory);
    tree_remove(&made);
}

Test(reader, destroy_ends_what_is_in_flight)
{
    tree made = tree_make();
    tree_file(&made, "file", 300000);
    mkfifo(tree_at(&made, "pipe").text, 0644);
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    int writer = open(tree_at(&made, "pipe").text, O_RDWR);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    for (unsigned k = 0; k < kind_count; k++) {
        fby_reader *reader = reader_open(kinds[k], 8, 2);
        fby_read_request requests[8];
        fby_read_request *done[8];
        /* A pipe with a writer and nothing in it: through io_uring, such a read ends only when it is
         * cancelled. */
        for (unsigned i = 0; i < 8; i++) {
            reading_request(&requests[i], directory, i ? "file" : "pipe", 300000);
            fby_reader_submit(reader, &requests[i]);
        }
        fby_reader_wait(reader, done, 1, UINT64_MAX);
        fby_reader_destroy(&reader);
        reading_free(requests, 8);
    }
    close(writer);
    close(directory);
    tree_remove(&made);
}

Test(reader, wrong_options_are_refused)
{
    fby_error error = FBY_ERROR_INIT;
    fby_reader *reader;
    cr_assert_eq(fby_reader_create(&reader, &(fby_reader_options){.depth = 5000}, &error), FBY_EINVAL);
    cr_assert(strstr(error.text, "5000"), "%s", error.text);
    cr_assert_null(reader);
    cr_assert_eq(fby_reader_create(&reader, &(fby_reader_options){.threads = 5000}, &error), FBY_EINVAL);
}

Test(reader, says_what_it_is)
{
    const char *why;
    bool granted = fby_uring_granted(&why);
    cr_assert(why[0]);
    fby_reader *reader;
    cr_assert_eq(fby_reader_create(&reader, NULL, NULL), FBY_OK);
    cr_assert_eq(fby_reader_kind_of(reader), granted ? FBY_READER_URING : FBY_READER_PREAD);
    cr_assert_eq(fby_reader_room(reader), 32);
    cr_assert(strstr(fby_reader_about(reader), granted ? "io_uring: depth 32" : why), "%s",
              fby_reader_about(reader));
    fby_reader_destroy(&reader);
    fby_reader_destroy(&reader);
}
