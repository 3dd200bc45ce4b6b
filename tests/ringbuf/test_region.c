#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ringbuf/region.h"
#include "tests/support/test.h"

enum { BYTES = 3 * FBY_PAGE };

static const fby_region_kind kinds[] = {FBY_REGION_SEGMENT, FBY_REGION_DOWN, FBY_REGION_UP};
enum { KINDS = sizeof kinds / sizeof *kinds };

static fby_region sealed_region(fby_region_kind kind)
{
    fby_region region;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_region_create(&region, kind, BYTES, -1, &error), 0, "%s", error.text);
    cr_assert_eq(fby_region_seal(&region, &error), 0, "%s", error.text);
    return region;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* Runs `child` in a forked process and returns its exit code, or -1 where a signal ended it. */
static int in_child(int (*child)(void *), void *context)
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) _exit(child(context));

    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* --- what seals forbid ------------------------------------------------------------------------------------
 */

static bool can_write(int fd)
{
    return pwrite(fd, "x", 1, 0) == 1;
}

static bool can_map_writable(int fd)
{
    void *base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return false;
    munmap(base, BYTES);
    return true;
}

static bool can_protect_writable(int fd)
{
    void *base = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return false;
    bool can = mprotect(base, BYTES, PROT_READ | PROT_WRITE) == 0;
    munmap(base, BYTES);
    return can;
}

static bool can_punch_hole(int fd)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, FBY_PAGE) == 0;
}

static bool can_shrink(int fd)
{
    return ftruncate(fd, FBY_PAGE) == 0;
}

static bool can_empty(int fd)
{
    return ftruncate(fd, 0) == 0;
}

static bool can_grow(int fd)
{
    return ftruncate(fd, 2 * BYTES) == 0;
}

static bool can_allocate_more(int fd)
{
    return fallocate(fd, 0, 0, 2 * BYTES) == 0;
}

static bool can_append(int fd)
{
    return pwrite(fd, "x", 1, BYTES) == 1;
}

static bool can_add_seals(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0;
}

typedef struct attempt {
    const char *what;
    bool (*succeeds)(int fd);
    bool forbidden_up; /* for up regions too */
} attempt;

static const attempt attempts[] = {
    {"write", can_write, false},
    {"map writable", can_map_writable, false},
    {"mprotect writable", can_protect_writable, false},
    {"punch a hole", can_punch_hole, false},
    {"shrink", can_shrink, true},
    {"empty", can_empty, true},
    {"grow", can_grow, true},
    {"allocate past the end", can_allocate_more, true},
    {"append", can_append, true},
    {"add seals", can_add_seals, true},
};
enum { ATTEMPTS = sizeof attempts / sizeof *attempts };

typedef struct attack {
    int fd;
    bool up, reopen;
} attack;

/* Exit code: 1 + the first attempt that succeeded though it is forbidden; 0 when all failed. */
static int attack_region(void *context)
{
    const attack *it = context;
    int fd = it->fd;
    if (it->reopen) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", it->fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) return 0;
    }
    for (int i = 0; i < ATTEMPTS; i++) {
        if (it->up && !attempts[i].forbidden_up) continue;
        if (attempts[i].succeeds(fd)) return 1 + i;
    }
    return 0;
}

Test(region, seals_bind_another_process)
{
    for (int kind = 0; kind < KINDS; kind++) {
        fby_region region = sealed_region(kinds[kind]);
        for (int reopen = 0; reopen < 2; reopen++) {
            attack it = {.fd = region.fd, .up = kinds[kind] == FBY_REGION_UP, .reopen = reopen};
            int code = in_child(attack_region, &it);
            cr_assert_geq(code, 0);
            cr_assert_eq(code, 0, "kind %d, reopened %d: another process could %s", kinds[kind], reopen,
                         attempts[code ? code - 1 : 0].what);
        }
        fby_region_close(&region);
    }
}

Test(region, attempts_succeed_without_seals)
{
    for (int i = 0; i < ATTEMPTS - 1; i++) {
        fby_region region;
        cr_assert_eq(fby_region_create(&region, FBY_REGION_DOWN, BYTES, -1, NULL), 0);
        cr_assert(attempts[i].succeeds(region.fd), "%s fails on an unsealed region: it shows nothing",
                  attempts[i].what);
        fby_region_close(&region);
    }
}

Test(region, creator_still_writes_and_client_sees_it)
{
    fby_region region = sealed_region(FBY_REGION_DOWN);
    fby_region mapped;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_region_map(&mapped, dup(region.fd), FBY_REGION_DOWN, &error), 0, "%s", error.text);
    cr_assert_eq(mapped.bytes, BYTES);
    cr_assert_not(mapped.writable);

    ((uint8_t *)region.base)[2 * FBY_PAGE] = 77;
    cr_assert_eq(((uint8_t *)mapped.base)[2 * FBY_PAGE], 77);
    fby_region_close(&mapped);
    fby_region_close(&region);
}

Test(region, client_writes_up_and_creator_sees_it)
{
    fby_region region = sealed_region(FBY_REGION_UP);
    fby_region mapped;
    cr_assert_eq(fby_region_map(&mapped, dup(region.fd), FBY_REGION_UP, NULL), 0);
    cr_assert(mapped.writable);
    ((uint8_t *)mapped.base)[FBY_PAGE] = 78;
    cr_assert_eq(((uint8_t *)region.base)[FBY_PAGE], 78);
    fby_region_close(&mapped);
    fby_region_close(&region);
}

/* --- creating ---------------------------------------------------------------------------------------------
 */

Test(region, size_is_rounded_and_header_written)
{
    fby_region region;
    cr_assert_eq(fby_region_create(&region, FBY_REGION_UP, FBY_PAGE + 1, -1, NULL), 0);
    cr_assert_eq(region.bytes, 2 * FBY_PAGE);

    const fby_region_header *header = region.base;
    cr_assert_eq(header->magic, FBY_REGION_MAGIC);
    cr_assert_eq(header->version, FBY_LAYOUT_VERSION);
    cr_assert_eq(header->kind, FBY_REGION_UP);
    cr_assert_eq(header->layout_hash, fby_layout_hash());
    cr_assert_eq(header->bytes, 2 * FBY_PAGE);
    cr_assert(fcntl(region.fd, F_GETFD) & FD_CLOEXEC);

    unsigned char resident[2] = {0};
    cr_assert_eq(mincore(region.base, region.bytes, resident), 0);
    cr_assert(resident[0] & resident[1] & 1, "the pages were not populated");
    fby_region_close(&region);
    cr_assert_eq(region.fd, -1);
    cr_assert_null(region.base);
}

Test(region, impossible_sizes_are_refused_with_figures)
{
    fby_region region;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_region_create(&region, FBY_REGION_DOWN, 0, -1, &error), FBY_EINVAL);
    cr_assert_eq(fby_region_create(&region, FBY_REGION_DOWN, UINT64_MAX, -1, &error), FBY_EINVAL);
    cr_assert_not_null(strstr(error.text, "18446744073709551615"), "%s", error.text);

    /* More than a process can map: refused before a page is touched. */
    cr_assert_eq(fby_region_create(&region, FBY_REGION_SEGMENT, UINT64_C(1) << 50, -1, &error), FBY_ENOMEM);
    cr_assert_not_null(strstr(error.text, "1125899906842624"), "%s", error.text);
    cr_assert_eq(region.fd, -1);
    cr_assert_null(region.base);
}

static int create_beyond_limit(void *context)
{
    (void)context;
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {BYTES, BYTES};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;

    fby_region region;
    fby_error error = FBY_ERROR_INIT;
    if (fby_region_create(&region, FBY_REGION_SEGMENT, 2 * BYTES, -1, &error) != FBY_ENOMEM) return 2;
    return strstr(error.text, "24576") ? 0 : 3;
}

Test(region, shortage_names_the_bytes)
{
    cr_assert_eq(in_child(create_beyond_limit, NULL), 0);
}

Test(region, node_is_a_preference)
{
    fby_region region;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_region_create(&region, FBY_REGION_SEGMENT, BYTES, 0, &error), 0, "%s", error.text);
    fby_region_close(&region);
    cr_assert_eq(fby_region_create(&region, FBY_REGION_SEGMENT, BYTES, 5000, &error), FBY_EINVAL);
    cr_assert_not_null(strstr(error.text, "5000"), "%s", error.text);
}

Test(region, sealing_twice_is_an_error)
{
    fby_region region = sealed_region(FBY_REGION_DOWN);
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_region_seal(&region, &error), FBY_EIO);
    fby_region_close(&region);
}

Test(region, closing_nothing_is_fine)
{
    fby_region region = {0};
    fby_region_close(&region);
    cr_assert(is_open(0) || errno == EBADF);
    fby_region_close(&region);
    cr_assert_eq(region.fd, -1);
}

/* --- what is refused --------------------------------------------------------------------------------------
 */

static void refused(int fd, fby_region_kind kind, int status, const char *text)
{
    fby_region mapped;
    fby_error error = FBY_ERROR_INIT;
    cr_assert_eq(fby_region_map(&mapped, fd, kind, &error), status, "%d instead of %d: %s", error.code,
                 status, error.text);
    cr_assert_not_null(strstr(error.text, text), "`%s` is not in: %s", text, error.text);
    cr_assert_null(mapped.base);
    cr_assert_eq(mapped.fd, -1);
    cr_assert_not(is_open(fd), "the descriptor of a refused region stays open");
}

/* A memfd of `bytes` with a valid header, if there is room for one, that `change` may spoil, and then
 * `seals`. */
static int crafted(fby_region_kind kind, uint64_t bytes, int seals, void (*change)(fby_region_header *))
{
    int fd = memfd_create("crafted", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
    fby_region_header header = {
        .magic = FBY_REGION_MAGIC,
        .version = FBY_LAYOUT_VERSION,
        .kind = kind,
        .layout_hash = fby_layout_hash(),
        .bytes = bytes,
    };
    if (change) change(&header);
    if (bytes >= sizeof header) cr_assert_eq(pwrite(fd, &header, sizeof header, 0), sizeof header);
    if (seals) cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

enum {
    SEALS_UP = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW,
    SEALS_DOWN = SEALS_UP | F_SEAL_FUTURE_WRITE,
};

Test(region, unsealed_is_refused)
{
    refused(crafted(FBY_REGION_DOWN, BYTES, 0, NULL), FBY_REGION_DOWN, FBY_EPROTO, "seals");

    const int needed[] = {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE};
    for (int i = 0; i < 3; i++)
        refused(crafted(FBY_REGION_SEGMENT, BYTES, SEALS_DOWN & ~needed[i], NULL), FBY_REGION_SEGMENT,
                FBY_EPROTO, "seals");
    refused(crafted(FBY_REGION_DOWN, BYTES, SEALS_DOWN & ~F_SEAL_SEAL, NULL), FBY_REGION_DOWN, FBY_EPROTO,
            "seals");
    refused(crafted(FBY_REGION_UP, BYTES, SEALS_UP & ~F_SEAL_SHRINK, NULL), FBY_REGION_UP, FBY_EPROTO,
            "seals");
}

Test(region, other_files_are_refused)
{
    refused(open("/dev/null", O_RDWR | O_CLOEXEC), FBY_REGION_DOWN, FBY_EPROTO, "no memfd");
    refused(-1, FBY_REGION_DOWN, FBY_EPROTO, "no memfd");
}

Test(region, wrong_sizes_are_refused)
{
    refused(crafted(FBY_REGION_DOWN, 0, SEALS_DOWN, NULL), FBY_REGION_DOWN, FBY_EPROTO, "0 bytes");
    refused(crafted(FBY_REGION_DOWN, 100, SEALS_DOWN, NULL), FBY_REGION_DOWN, FBY_EPROTO, "100 bytes");
    refused(crafted(FBY_REGION_DOWN, BYTES + 1, SEALS_DOWN, NULL), FBY_REGION_DOWN, FBY_EPROTO,
            "12289 bytes");
}

static void spoil_magic(fby_region_header *header)
{
    header->magic = 0x1234;
}

static void spoil_version(fby_region_header *header)
{
    header->version = 99;
}

static void spoil_hash(fby_region_header *header)
{
    header->layout_hash = 0xabcdef;
}

static void spoil_bytes(fby_region_header *header)
{
    header->bytes = UINT64_MAX;
}

static void spoil_kind(fby_region_header *header)
{
    header->kind = FBY_REGION_SEGMENT;
}

Test(region, wrong_headers_are_refused_naming_both)
{
    refused(crafted(FBY_REGION_DOWN, BYTES, SEALS_DOWN, spoil_magic), FBY_REGION_DOWN, FBY_EPROTO, "0x1234");
    refused(crafted(FBY_REGION_DOWN, BYTES, SEALS_DOWN, spoil_version), FBY_REGION_DOWN, FBY_EVERSION,
            "version 99, this process speaks 1");
    char ours[64];
    snprintf(ours, sizeof ours, "0x0000000000abcdef, this process speaks 0x%016llx",
             (unsigned long long)fby_layout_hash());
    refused(crafted(FBY_REGION_DOWN, BYTES, SEALS_DOWN, spoil_hash), FBY_REGION_DOWN, FBY_EVERSION, ours);
    refused(crafted(FBY_REGION_DOWN, BYTES, SEALS_DOWN, spoil_bytes), FBY_REGION_DOWN, FBY_EPROTO, "12288");
    refused(crafted(FBY_REGION_DOWN, BYTES, SEALS_DOWN, spoil_kind), FBY_REGION_DOWN, FBY_EPROTO, "kind 1");
    refused(crafted(FBY_REGION_DOWN, BYTES, SEALS_DOWN, NULL), FBY_REGION_SEGMENT, FBY_EPROTO, "kind 2");
}

Test(region, crafted_without_fault_is_accepted)
{
    fby_region mapped;
    fby_error error = FBY_ERROR_INIT;
    int fd = crafted(FBY_REGION_DOWN, BYTES, SEALS_DOWN, NULL);
    cr_assert_eq(fby_region_map(&mapped, fd, FBY_REGION_DOWN, &error), 0, "%s", error.text);
    fby_region_close(&mapped);
    cr_assert_not(is_open(fd));
}

/* --- forked children
 * ---------------------------------------------------------------------------------------- */

static int asks_for_mapping(void *context)
{
    const fby_region *mapped = context;
    return msync(mapped->base, FBY_PAGE, MS_ASYNC) == 0 || errno != ENOMEM;
}

Test(region, forked_child_has_no_mapping)
{
    for (int kind = 0; kind < KINDS; kind++) {
        fby_region region = sealed_region(kinds[kind]);
        fby_region mapped;
        cr_assert_eq(fby_region_map(&mapped, dup(region.fd), kinds[kind], NULL), 0);
        cr_assert_eq(in_child(asks_for_mapping, &mapped), 0, "a forked child still has the mapping");
        cr_assert(fcntl(mapped.fd, F_GETFD) & FD_CLOEXEC);
        fby_region_close(&mapped);
        fby_region_close(&region);
    }
}
