#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataplane/cli/cli.h"

enum { MARGIN = 64 };

ssize_t fby_file_read_some(int from, uint8_t *out, size_t length)
{
    size_t done = 0;

    while (done < length) {
        ssize_t got = read(from, out + done, length - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (!got) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

uint8_t *fby_file_read(int from, size_t *length)
{
    struct stat file;

    if (fstat(from, &file) || lseek(from, 0, SEEK_SET) < 0) return NULL;
    if (S_ISDIR(file.st_mode)) {
        errno = EISDIR;
        return NULL;
    }
    size_t size = (size_t)file.st_size;
    uint8_t *bytes = malloc(size + MARGIN);
    ssize_t got = bytes ? fby_file_read_some(from, bytes, size) : -1;
    if (got < 0) {
        int number = bytes ? errno : ENOMEM;
        free(bytes);
        errno = number;
        return NULL;
    }
    memset(bytes + got, 0, size - (size_t)got + MARGIN);
    *length = (size_t)got;
    return bytes;
}
