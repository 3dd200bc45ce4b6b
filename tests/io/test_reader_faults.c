/* Short reads, EINTR, EAGAIN, ESTALE and files that change while they are read, by fault injection. */
#include "io/reader_faults.h"
#include "tests/io/reading.h"
#include "tests/io/tree.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/* The next of a row of random numbers, whichever thread asks. */
static atomic_uint_least64_t random_state;

static uint32_t random_next(void)
{
    uint64_t x = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (uint32_t)(x >> 32);
}

static const int retryable[] = {EINTR, EAGAIN, ESTALE};

static int random_open(int directory, const char *path, int flags)
{
    if (random_next() % 32 == 0) {
        errno = retryable[random_next() % 3];
        return -1;
    }
    return openat(directory, path, flags);
}

static ssize_t random_pread(int descriptor, void *buffer, size_t count, off_t offset)
{
    if (random_next() % 16 == 0) {
        errno = retryable[random_next() % 3];
        return -1;
    }
    if (count > 4 && random_next() % 2) count = count / 4 + random_next() % (count / 2);
    return pread(descriptor, buffer, count, offset);
}

static void random_completion(const char *path, uint64_t offset, int *opened, int64_t *got)
{
    (void)path;
    (void)offset;
    if (*opened) return;
    if (random_next() % 16 == 0) {
        *got = -retryable[random_next() % 3];
    } else if (*got > 4 && random_next() % 2) {
        *got = *got / 4 + random_next() % (*got / 2);
    }
}

Test(reader_faults, random_faults_change_no_result)
{
    enum { FILES = 200 };
    static const fby_reader_faults faults = {
        .open = random_open, .pread = random_pread, .completion = random_completion};
    uint64_t seed = (uint64_t)time(NULL);
    cr_log_info("seed %lu", (unsigned long)seed);
    atomic_store(&random_state, seed);

    tree made = tree_make();
    static char names[FILES][16];
    static uint64_t sizes[FILES];
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof names[i], "%u", i);
        sizes[i] = random_next() % (i % 10 ? 5000 : 200000);
        tree_file(&made, names[i], sizes[i]);
    }
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    fby_reader_faults_installed = &faults;
    for (unsigned k = 0; k < kind_count; k++) {
        fby_reader *reader;
        cr_assert_eq(fby_reader_create(&reader, &(fby_reader_options){.kind = kinds[k]}, NULL), FBY_OK);
        static fby_read_request requests[FILES];
        for (unsigned i = 0; i < FILES; i++) {
            /* Every ninth has another size than said. */
            reading_request(&requests[i], directory, names[i], sizes[i] + (i % 9 ? 0 : 3));
        }
        reading_all(reader, requests, FILES);
        for (unsigned i = 0; i < FILES; i++) {
            if (i % 9 == 0) {
                cr_assert_eq(requests[i].failure, FBY_READ_CHANGED, "seed %lu, file %u, kind %d: %d",
                             (unsigned long)seed, i, kinds[k], requests[i].failure);
                continue;
            }
            cr_assert_eq(requests[i].bytes, (int64_t)sizes[i], "seed %lu, file %u, kind %d: %ld",
                         (unsigned long)seed, i, kinds[k], (long)requests[i].bytes);
            cr_assert_eq(tree_wrong_byte(requests[i].buffer, sizes[i]), sizes[i],
                         "seed %lu, file %u, kind %d", (unsigned long)seed, i, kinds[k]);
        }
        fby_reader_stats stats;
        fby_reader_get_stats(reader, &stats);
        cr_assert_gt(stats.retries, 0);
        fby_reader_destroy(&reader);
        reading_free(requests, FILES);
    }
    fby_reader_faults_installed = NULL;
    close(directory);
    tree_remove(&made);
}

/* A plan for one file: what its n-th read gives. */
static struct {
    int error;         /* instead of the read, where it is not 0 */
    int64_t shortened; /* at most so many bytes, where it is not -1 */
    unsigned reads;    /* that this applies to; then all is well */
} plan;
static atomic_uint reads_done;

static ssize_t planned_pread(int descriptor, void *buffer, size_t count, off_t offset)
{
    if (atomic_fetch_add(&reads_done, 1) >= plan.reads) return pread(descriptor, buffer, count, offset);
    if (plan.error) {
        errno = plan.error;
        return -1;
    }
    return pread(descriptor, buffer, count < (size_t)plan.shortened ? count : (size_t)plan.shortened, offset);
}

static void planned_completion(const char *path, uint64_t offset, int *opened, int64_t *got)
{
    (void)path;
    (void)offset;
    if (*opened || atomic_fetch_add(&reads_done, 1) >= plan.reads) return;
    if (plan.error) {
        *got = -plan.error;
    } else if (*got > plan.shortened) {
        *got = plan.shortened;
    }
}

static fby_read_request planned_read(fby_reader_kind kind, int directory, uint64_t size,
                                     fby_reader_stats *stats)
{
    static const fby_reader_faults faults = {.pread = planned_pread, .completion = planned_completion};
    fby_reader *reader;
    fby_read_request request;

    cr_assert_eq(fby_reader_create(&reader, &(fby_reader_options){.kind = kind}, NULL), FBY_OK);
    atomic_store(&reads_done, 0);
    fby_reader_faults_installed = &faults;
    reading_request(&request, directory, "file", size);
    reading_all(reader, &request, 1);
    fby_reader_get_stats(reader, stats);
    fby_reader_destroy(&reader);
    fby_reader_faults_installed = NULL;
    return request;
}

static atomic_uint opens_done;

static int open_without_descriptors(int directory, const char *path, int flags)
{
    unsigned number = atomic_fetch_add(&opens_done, 1);
    if (number < 6) {
        errno = number % 2 ? ENFILE : EMFILE;
        return -1;
    }
    return openat(directory, path, flags);
}

Test(reader_faults, a_file_waits_for_a_free_descriptor)
{
    static const fby_reader_faults faults = {.open = open_without_descriptors};
    tree made = tree_make();
    tree_file(&made, "file", 1000);
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    fby_reader *reader;
    fby_read_request request;

    cr_assert_eq(fby_reader_create(&reader, &(fby_reader_options){.kind = FBY_READER_PREAD}, NULL), FBY_OK);
    fby_reader_faults_installed = &faults;
    reading_request(&request, directory, "file", 1000);
    reading_all(reader, &request, 1);
    fby_reader_destroy(&reader);
    fby_reader_faults_installed = NULL;

    cr_assert_eq(atomic_load(&opens_done), 7);
    cr_assert_eq(request.bytes, 1000);
    cr_assert_eq(tree_wrong_byte(request.buffer, 1000), 1000);
    reading_free(&request, 1);
    close(directory);
    tree_remove(&made);
}

Test(reader_faults, each_fault_by_itself)
{
    static const struct {
        const char *name;
        int error;
        int64_t shortened;
        unsigned reads;
        uint64_t size;
        int64_t bytes;
        fby_read_failure failure;
        unsigned retries, looked_again;
    } cases[] = {
        {"none", 0, 0, 0, 1000, 1000, FBY_READ_OK, 0, 0},
        {"one byte at a time", 0, 1, 1000, 1000, 1000, FBY_READ_OK, 0, 0},
        {"empty at first look", 0, 0, 1, 1000, 1000, FBY_READ_OK, 0, 1},
        {"empty at both looks", 0, 0, 2, 1000, -ENODATA, FBY_READ_CHANGED, 0, 1},
        {"ten times EINTR", EINTR, -1, 10, 1000, 1000, FBY_READ_OK, 10, 0},
        {"always EINTR", EINTR, -1, 1000, 1000, -EINTR, FBY_READ_IO, 10, 0},
        {"ten times EAGAIN", EAGAIN, -1, 10, 1000, 1000, FBY_READ_OK, 10, 0},
        {"always EAGAIN", EAGAIN, -1, 1000, 1000, -EAGAIN, FBY_READ_IO, 10, 0},
        {"ten times ESTALE", ESTALE, -1, 10, 1000, 1000, FBY_READ_OK, 10, 0},
        {"always ESTALE", ESTALE, -1, 1000, 1000, -ESTALE, FBY_READ_IO, 10, 0},
        {"EIO", EIO, -1, 1, 1000, -EIO, FBY_READ_IO, 0, 0},
        {"EACCES", EACCES, -1, 1, 1000, -EACCES, FBY_READ_UNREADABLE, 0, 0},
        {"larger at both looks", 0, -1, 0, 999, -EFBIG, FBY_READ_CHANGED, 0, 1},
    };
    tree made = tree_make();
    tree_file(&made, "file", 1000);
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0] * kind_count; i++) {
        unsigned c = i / kind_count;
        fby_reader_kind kind = kinds[i % kind_count];
        fby_reader_stats stats;
        plan.error = cases[c].error;
        plan.shortened = cases[c].shortened;
        plan.reads = cases[c].reads;

        fby_read_request request = planned_read(kind, directory, cases[c].size, &stats);
        cr_assert_eq(request.bytes, cases[c].bytes, "%s, kind %d: %ld", cases[c].name, kind,
                     (long)request.bytes);
        cr_assert_eq(request.failure, cases[c].failure, "%s, kind %d", cases[c].name, kind);
        cr_assert_eq(stats.retries, cases[c].retries, "%s, kind %d: %lu", cases[c].name, kind,
                     (unsigned long)stats.retries);
        cr_assert_eq(stats.looked_again, cases[c].looked_again, "%s, kind %d", cases[c].name, kind);
        free(request.buffer);
    }
    close(directory);
    tree_remove(&made);
}

/* A file that another process goes on changing: never a wrong result, whatever it is. */
static int churn_directory;
static atomic_bool churn_stop;

static void *churn(void *argument)
{
    (void)argument;
    for (unsigned i = 0; !atomic_load(&churn_stop); i++) {
        int descriptor = openat(churn_directory, "file", O_WRONLY | O_CREAT, 0644);
        if (descriptor >= 0) {
            if (ftruncate(descriptor, i % 3 == 0 ? 1000 : i % 3 == 1 ? 500 : 2000)) abort();
            close(descriptor);
        }
        if (i % 5 == 0) unlinkat(churn_directory, "file", 0);
    }
    return NULL;
}

Test(reader_faults, files_that_change_all_the_time)
{
    tree made = tree_make();
    churn_directory = open(made.root, O_RDONLY | O_DIRECTORY);
    fby_reader_kind kinds[2];
    unsigned kind_count = reading_kinds(kinds);
    pthread_t other;
    atomic_store(&churn_stop, false);
    pthread_create(&other, NULL, churn, NULL);

    for (unsigned k = 0; k < kind_count; k++) {
        fby_reader *reader;
        cr_assert_eq(fby_reader_create(&reader, &(fby_reader_options){.kind = kinds[k], .depth = 4}, NULL),
                     FBY_OK);
        for (unsigned round = 0; round < 300; round++) {
            fby_read_request requests[4];
            for (unsigned i = 0; i < 4; i++) reading_request(&requests[i], churn_directory, "file", 1000);
            reading_all(reader, requests, 4);
            for (unsigned i = 0; i < 4; i++) {
                bool right = requests[i].failure == FBY_READ_OK ? requests[i].bytes == 1000
                             : requests[i].failure == FBY_READ_MISSING
                                 ? requests[i].bytes == -ENOENT
                                 : requests[i].failure == FBY_READ_CHANGED;
                cr_assert(right, "kind %d: failure %d, bytes %ld", kinds[k], requests[i].failure,
                          (long)requests[i].bytes);
            }
            reading_free(requests, 4);
        }
        fby_reader_destroy(&reader);
    }
    atomic_store(&churn_stop, true);
    pthread_join(other, NULL);
    close(churn_directory);
    tree_remove(&made);
}
