#include "ringbuf/region.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { MOST_NODES = 1024 };

static const char *kind_name(fby_region_kind kind)
{
    switch (kind) {
    case FBY_REGION_SEGMENT:
        return "segment";
    case FBY_REGION_DOWN:
        return "down region";
    case FBY_REGION_UP:
        return "up region";
    }
    return "unknown region";
}

static int seals_of(fby_region_kind kind)
{
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;
    if (kind != FBY_REGION_UP) seals |= F_SEAL_FUTURE_WRITE;
    return seals;
}

/* --- creating ------------------------------------------------------------------------------------------- */

static int memfd_open(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    /* The flag came with Linux 6.3. */
    if (fd < 0 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

/* Prefers the node: its pages first, others where it has none left. A kernel without NUMA, or a sandbox that
 * refuses mbind, costs placement and nothing else. */
static int node_prefer(const fby_region *region, int node, fby_error *error)
{
    unsigned long mask[MOST_NODES / (8 * sizeof(unsigned long))] = {0};
    const int bits = 8 * sizeof *mask;
    if (node >= MOST_NODES)
        return fby_fail(error, FBY_EINVAL, "NUMA node %d: this build knows nodes 0 to %d", node,
                        MOST_NODES - 1);

    mask[node / bits] = 1UL << (node % bits);
    /* The kernel takes one bit less than maxnode says. */
    if (syscall(SYS_mbind, region->base, region->bytes, MPOL_PREFERRED, mask, MOST_NODES + 1, 0) == 0)
        return 0;

    if (errno == ENOSYS || errno == EPERM) return 0;
    return fby_fail(error, FBY_EINVAL, "placing %llu bytes on NUMA node %d: %s; is there such a node?",
                    (unsigned long long)region->bytes, node, strerror(errno));
}

static int populate(const fby_region *region, fby_region_kind kind, fby_error *error)
{
    int status;
    do status = madvise(region->base, region->bytes, MADV_POPULATE_WRITE);
    while (status != 0 && (errno == EINTR || errno == EAGAIN));
    if (status == 0) return 0;

    if (errno == EINVAL)
        return fby_fail(
            error, FBY_ENOTSUP,
            "populating a %s: this kernel lacks MADV_POPULATE_WRITE; Linux 5.14 or later is needed",
            kind_name(kind));
    return fby_fail(error, FBY_ENOMEM, "populating a %s of %llu bytes: %s; not that many bytes are free here",
                    kind_name(kind), (unsigned long long)region->bytes, strerror(errno));
}

int fby_region_create(fby_region *out, fby_region_kind kind, uint64_t bytes, int node, fby_error *error)
{
    *out = (fby_region){.fd = -1};
    if (bytes < sizeof(fby_region_header) || bytes > (uint64_t)INT64_MAX - FBY_PAGE)
        return fby_fail(error, FBY_EINVAL, "a %s of %llu bytes was asked for; %zu to %llu are possible",
                        kind_name(kind), (unsigned long long)bytes, sizeof(fby_region_header),
                        (unsigned long long)INT64_MAX - FBY_PAGE);

    fby_region region = {.writable = true};
    region.bytes = (bytes + FBY_PAGE - 1) / FBY_PAGE * FBY_PAGE;
    region.fd = memfd_open(kind_name(kind));
    if (region.fd < 0)
        return fby_fail(error, errno == ENOMEM ? FBY_ENOMEM : FBY_EIO,
                        "memfd_create for a %s of %llu bytes: %s", kind_name(kind),
                        (unsigned long long)region.bytes, strerror(errno));

    int status = 0;
    if (ftruncate(region.fd, (off_t)region.bytes) != 0) {
        status = fby_fail(error, errno == EFBIG || errno == ENOMEM ? FBY_ENOMEM : FBY_EIO,
                          "sizing a %s to %llu bytes: %s", kind_name(kind), (unsigned long long)region.bytes,
                          strerror(errno));
        goto failed;
    }
    void *base = mmap(NULL, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd, 0);
    if (base == MAP_FAILED) {
        status = fby_fail(error, FBY_ENOMEM, "mapping a %s of %llu bytes: %s", kind_name(kind),
                          (unsigned long long)region.bytes, strerror(errno));
        goto failed;
    }
    region.base = base;
    if (node >= 0) {
        status = node_prefer(&region, node, error);
        if (status != 0) goto failed;
    }
    status = populate(&region, kind, error);
    if (status != 0) goto failed;

    *(fby_region_header *)region.base = (fby_region_header){
        .magic = FBY_REGION_MAGIC,
        .version = FBY_LAYOUT_VERSION,
        .kind = (uint32_t)kind,
        .layout_hash = fby_layout_hash(),
        .bytes = region.bytes,
    };
    *out = region;
    return 0;

failed:
    fby_region_close(&region);
    return status;
}

int fby_region_seal(fby_region *region, fby_error *error)
{
    fby_region_kind kind = (fby_region_kind)((const fby_region_header *)region->base)->kind;
    if (fcntl(region->fd, F_ADD_SEALS, seals_of(kind)) != 0)
        return fby_fail(error, FBY_EIO, "sealing a %s of %llu bytes: %s", kind_name(kind),
                        (unsigned long long)region->bytes, strerror(errno));
    return 0;
}

/* --- mapping ----------------------------------------------------------------------------------------------
 */

static int sealed_check(int fd, fby_region_kind kind, fby_error *error)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return fby_fail(error, FBY_EPROTO, "the descriptor of a %s is no memfd: %s", kind_name(kind),
                        strerror(errno));

    int wanted = seals_of(kind);
    if ((seals & wanted) != wanted)
        return fby_fail(error, FBY_EPROTO, "a %s came with seals 0x%x; 0x%x were expected", kind_name(kind),
                        (unsigned)seals, (unsigned)wanted);
    return 0;
}

static int header_check(const fby_region *region, fby_region_kind kind, fby_error *error)
{
    const fby_region_header *header = region->base;
    if (header->magic != FBY_REGION_MAGIC)
        return fby_fail(error, FBY_EPROTO, "a %s starts with 0x%llx; the magic number 0x%llx was expected",
                        kind_name(kind), (unsigned long long)header->magic,
                        (unsigned long long)FBY_REGION_MAGIC);
    if (header->version != FBY_LAYOUT_VERSION)
        return fby_fail(
            error, FBY_EVERSION,
            "a %s has layout version %u, this process speaks %d: start server and client from the "
            "same release",
            kind_name(kind), header->version, FBY_LAYOUT_VERSION);
    if (header->layout_hash != fby_layout_hash())
        return fby_fail(
            error, FBY_EVERSION,
            "a %s has layout 0x%016llx, this process speaks 0x%016llx: start server and client from "
            "the same release",
            kind_name(kind), (unsigned long long)header->layout_hash, (unsigned long long)fby_layout_hash());
    if (header->kind != (uint32_t)kind)
        return fby_fail(error, FBY_EPROTO, "a region of kind %u came where a %s (%d) was expected",
                        header->kind, kind_name(kind), (int)kind);
    if (header->bytes != region->bytes)
        return fby_fail(error, FBY_EPROTO, "a %s says it has %llu bytes; its file has %llu", kind_name(kind),
                        (unsigned long long)header->bytes, (unsigned long long)region->bytes);
    return 0;
}

int fby_region_map(fby_region *out, int fd, fby_region_kind kind, fby_error *error)
{
    *out = (fby_region){.fd = -1};
    fby_region region = {.fd = fd, .writable = kind == FBY_REGION_UP};

    int status = sealed_check(fd, kind, error);
    if (status != 0) goto failed;

    struct stat file;
    if (fstat(fd, &file) != 0) {
        status =
            fby_fail(error, FBY_EIO, "asking for the size of a %s: %s", kind_name(kind), strerror(errno));
        goto failed;
    }
    region.bytes = (uint64_t)file.st_size;
    if (region.bytes < FBY_PAGE || region.bytes % FBY_PAGE != 0) {
        status = fby_fail(error, FBY_EPROTO, "a %s has %llu bytes; whole pages of %d were expected",
                          kind_name(kind), (unsigned long long)region.bytes, FBY_PAGE);
        goto failed;
    }
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        status = fby_fail(error, FBY_EIO, "marking a %s close-on-exec: %s", kind_name(kind), strerror(errno));
        goto failed;
    }

    int protection = region.writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *base = mmap(NULL, region.bytes, protection, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        status = fby_fail(error, errno == ENOMEM ? FBY_ENOMEM : FBY_EIO, "mapping a %s of %llu bytes: %s",
                          kind_name(kind), (unsigned long long)region.bytes, strerror(errno));
        goto failed;
    }
    region.base = base;
    if (madvise(base, region.bytes, MADV_DONTFORK) != 0) {
        status = fby_fail(error, FBY_EIO, "keeping a %s from forked children: %s", kind_name(kind),
                          strerror(errno));
        goto failed;
    }
    status = header_check(&region, kind, error);
    if (status != 0) goto failed;

    *out = region;
    return 0;

failed:
    if (region.base) munmap(region.base, region.bytes);
    close(fd);
    return status;
}

void fby_region_close(fby_region *region)
{
    if (region->base) munmap(region->base, region->bytes);
    /* A zeroed region owns nothing: descriptor 0 is only ever its own beside a size. */
    if (region->fd > 0 || (region->fd == 0 && region->bytes > 0)) close(region->fd);
    *region = (fby_region){.fd = -1};
}
