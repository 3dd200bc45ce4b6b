#include "perf/side/sample.h"

#include <fcntl.h>
#include <unistd.h>

#include "perf/side/side.h"

size_t perf_sample_read(const fby_dataset *dataset, uint64_t id, uint8_t *to)
{
    size_t size = fby_dataset_size(dataset, id);
    int fd = openat(fby_dataset_directory(dataset), fby_dataset_path(dataset, id), O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, to, size + 1);
    if (length != (ssize_t)size) perf_side_fail("can't read %s", fby_dataset_path(dataset, id));
    close(fd);
    return size;
}
