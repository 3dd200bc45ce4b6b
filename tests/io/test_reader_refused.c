/* io_uring denied by seccomp or missing, too little locked memory, too few descriptors: each in a child. */
#include "tests/io/reading.h"
#include "tests/io/tree.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int uring_deny(int error)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof program[0], program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* Reads two files through a reader; 0: as it should be. */
static int files_read(fby_reader *reader, int directory)
{
    fby_read_request requests[2];
    reading_request(&requests[0], directory, "file", 12345);
    reading_request(&requests[1], directory, "missing", 1);
    reading_all(reader, requests, 2);
    size_t right = tree_wrong_byte(requests[0].buffer, 12345);
    reading_free(requests, 2);
    CHILD_CHECK(requests[0].bytes == 12345 && right == 12345);
    CHILD_CHECK(requests[1].bytes == -ENOENT);
    return 0;
}

typedef struct refusal_case {
    int directory;
    int error;
    const char *said;
} refusal_case;

static int denied_run(void *argument)
{
    const refusal_case *refusal = argument;
    fby_error error = FBY_ERROR_INIT;
    fby_reader *reader;
    const char *why;

    CHILD_CHECK(!uring_deny(refusal->error));
    CHILD_CHECK(fby_reader_create(&reader, &(fby_reader_options){.kind = FBY_READER_URING}, &error) ==
                FBY_ENOTSUP);
    CHILD_CHECK(strstr(error.text, "io_uring_setup") && strstr(error.text, refusal->said));

    CHILD_CHECK(!fby_reader_create(&reader, &(fby_reader_options){.kind = FBY_READER_AUTO}, NULL));
    CHILD_CHECK(fby_reader_kind_of(reader) == FBY_READER_PREAD);
    CHILD_CHECK(strstr(fby_reader_about(reader), "pread: 4 threads; io_uring_setup"));
    CHILD_CHECK(strstr(fby_reader_about(reader), refusal->said));
    CHILD_CHECK(!files_read(reader, refusal->directory));
    fby_reader_destroy(&reader);

    /* Where this process asked before the filter came, it keeps the answer. */
    if (!fby_uring_granted(&why)) CHILD_CHECK(strstr(why, refusal->said));
    return 0;
}

Test(reader_refused, by_seccomp_or_kernel)
{
    tree made = tree_make();
    tree_file(&made, "file", 12345);
    refusal_case refusal = {.directory = open(made.root, O_RDONLY | O_DIRECTORY)};

    refusal.error = EPERM;
    refusal.said = "seccomp";
    char setting = '0';
    FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "r");
    if (file) {
        setting = (char)fgetc(file);
        fclose(file);
    }
    if (setting != '0') refusal.said = "kernel.io_uring_disabled";
    cr_assert_eq(tree_child(denied_run, &refusal), 0);

    refusal.error = ENOSYS;
    refusal.said = "has no io_uring";
    cr_assert_eq(tree_child(denied_run, &refusal), 0);

    refusal.error = ENOMEM;
    refusal.said = "ulimit -l";
    cr_assert_eq(tree_child(denied_run, &refusal), 0);
    close(refusal.directory);
    tree_remove(&made);
}

static int few_descriptors_run(void *argument)
{
    const int *directory = argument;
    fby_reader *reader;
    if (!fby_uring_granted(NULL)) return 0;

    CHILD_CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}));
    CHILD_CHECK(!fby_reader_create(&reader, &(fby_reader_options){.depth = 1000}, NULL));
    CHILD_CHECK(fby_reader_kind_of(reader) == FBY_READER_URING);
    CHILD_CHECK(fby_reader_room(reader) <= 64 && fby_reader_room(reader) >= 8);
    CHILD_CHECK(strstr(fby_reader_about(reader), "depth 1000 was refused"));
    CHILD_CHECK(strstr(fby_reader_about(reader), "ulimit -n"));
    CHILD_CHECK(!files_read(reader, *directory));
    fby_reader_destroy(&reader);
    return 0;
}

typedef struct memory_case {
    int directory;
    rlim_t limit;
} memory_case;

static int little_memory_run(void *argument)
{
    const memory_case *memory = argument;
    fby_reader *reader;

    CHILD_CHECK(!setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){memory->limit, memory->limit}));
    CHILD_CHECK(!tree_become_plain());
    CHILD_CHECK(!fby_reader_create(&reader, &(fby_reader_options){.depth = 4096}, NULL));
    fprintf(stderr, "locked memory %lu: %s\n", (unsigned long)memory->limit, fby_reader_about(reader));
    if (fby_reader_kind_of(reader) == FBY_READER_PREAD) {
        CHILD_CHECK(strstr(fby_reader_about(reader), "; io_uring_setup: "));
    } else if (fby_reader_room(reader) < 4096) {
        CHILD_CHECK(strstr(fby_reader_about(reader), "depth 4096 was refused") &&
                    strstr(fby_reader_about(reader), "ulimit -"));
    }
    CHILD_CHECK(!files_read(reader, memory->directory));
    fby_reader_destroy(&reader);
    return 0;
}

Test(reader_refused, limits_make_the_ring_smaller)
{
    tree made = tree_make();
    tree_file(&made, "file", 12345);
    int directory = open(made.root, O_RDONLY | O_DIRECTORY);
    cr_assert_eq(tree_child(few_descriptors_run, &directory), 0);

    static const rlim_t limits[] = {0, 32768, 262144, 1 << 20, 8 << 20};
    for (unsigned i = 0; i < sizeof limits / sizeof limits[0] && !geteuid(); i++) {
        memory_case memory = {directory, limits[i]};
        cr_assert_eq(tree_child(little_memory_run, &memory), 0, "locked memory %lu",
                     (unsigned long)limits[i]);
    }
    close(directory);
    tree_remove(&made);
}
