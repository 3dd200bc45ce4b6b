/* Faults for tests: short reads, EINTR, EAGAIN, ESTALE, files that change while they are read.
 *
 * Nothing but tests sets the pointer, and only while no reader exists; readers look at it once per file. */
#ifndef FBY_IO_READER_FAULTS_H
#define FBY_IO_READER_FAULTS_H

#include <stdint.h>
#include <sys/types.h>

typedef struct fby_reader_faults {
    /* The pread pool calls these instead of the system's; each may be NULL. Called by any of its threads. */
    int (*open)(int directory, const char *path, int flags);
    ssize_t (*pread)(int descriptor, void *buffer, size_t count, off_t offset);
    int (*close)(int descriptor);
    /* The io_uring reader shows each chain's outcome before it is judged: 0 or -errno of the open, bytes or
     * -errno of the read that began at `offset`. The hook may make a result worse, never longer. */
    void (*completion)(const char *path, uint64_t offset, int *opened, int64_t *got);
} fby_reader_faults;

extern const fby_reader_faults *fby_reader_faults_installed; /* NULL: none */

#endif
