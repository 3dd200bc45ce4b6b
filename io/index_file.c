#include "io/index_file.h"

#include "io/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool fby_index_file_folder(char *out, size_t bytes, const char *given)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int length;

    if (given) {
        length = snprintf(out, bytes, "%s", given);
    } else if (cache && cache[0] == '/') {
        length = snprintf(out, bytes, "%s/forebay", cache);
    } else if (home && home[0] == '/') {
        length = snprintf(out, bytes, "%s/.cache/forebay", home);
    } else {
        return false;
    }
    return length > 0 && (size_t)length < bytes;
}

bool fby_index_file_path(char *out, size_t bytes, const char *folder, fby_dataset_kind kind, const char *root)
{
    XXH128_hash_t name = XXH3_128bits_withSeed(root, strlen(root), kind);
    int length = snprintf(out, bytes, "%s/%016lx%016lx.index", folder, (unsigned long)name.high64,
                          (unsigned long)name.low64);
    return length > 0 && (size_t)length < bytes;
}

/* A file that others may write could be cut while it is mapped: it isn't used. */
static bool file_own(const struct stat *status)
{
    return S_ISREG(status->st_mode) && status->st_uid == geteuid() &&
           !(status->st_mode & (S_IWGRP | S_IWOTH)) && status->st_size >= (off_t)sizeof(fby_index_header);
}

static bool descriptor_load(fby_index *out, int descriptor)
{
    struct stat status;
    if (fstat(descriptor, &status) || !file_own(&status)) return false;

    size_t bytes = (size_t)status.st_size;
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapping == MAP_FAILED) return false;
    if (!fby_index_check(out, mapping, bytes, NULL)) {
        munmap(mapping, bytes);
        return false;
    }
    out->mapping = mapping;
    return true;
}

bool fby_index_file_load(fby_index *out, const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) return false;
    bool loaded = descriptor_load(out, descriptor);
    close(descriptor);
    return loaded;
}

/* Makes a folder and those above it. What fails shows when a file is made there. */
static void folder_make(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    mkdir(path, 0700);
}

static bool bytes_write(int descriptor, const void *bytes, uint64_t count)
{
    const char *at = bytes;
    while (count) {
        ssize_t written = write(descriptor, at, count < (1u << 30) ? count : 1u << 30);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        at += written;
        count -= (uint64_t)written;
    }
    return true;
}

void fby_index_file_save(fby_index *index, const char *folder, const char *path, int64_t checked)
{
    const uint64_t body_bytes = index->header->bytes - sizeof *index->header;
    fby_index_header header = *index->header;
    char temporary[PATH_MAX];
    fby_index saved;

    int length = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof temporary) return;
    folder_make(folder);
    int descriptor = mkostemp(temporary, O_CLOEXEC);
    if (descriptor < 0) return;

    header.checked = checked;
    header.checksum = fby_index_checksum(&header, index->header + 1, body_bytes);
    bool written = bytes_write(descriptor, &header, sizeof header) &&
                   bytes_write(descriptor, index->header + 1, body_bytes);
    if (!written || rename(temporary, path)) {
        unlink(temporary);
    } else if (descriptor_load(&saved, descriptor)) {
        fby_index_close(index);
        *index = saved;
    }
    close(descriptor);
}
