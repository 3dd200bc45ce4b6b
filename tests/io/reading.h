/* Reading a set of files through a reader, for the tests. */
#ifndef FBY_TESTS_IO_READING_H
#define FBY_TESTS_IO_READING_H

#include "io/reader.h"

#include <stdlib.h>
#include <string.h>

/* The kinds that this machine grants: 1 or 2. */
static inline unsigned reading_kinds(fby_reader_kind kinds[2])
{
    kinds[0] = FBY_READER_PREAD;
    kinds[1] = FBY_READER_URING;
    return fby_uring_granted(NULL) ? 2 : 1;
}

/* Sets up a request with a buffer of its own, filled with a pattern. */
static inline void reading_request(fby_read_request *request, int directory, const char *path, uint64_t size)
{
    *request = (fby_read_request){.directory = directory, .path = path, .size = size, .capacity = size + 1};
    request->buffer = malloc(request->capacity);
    memset(request->buffer, 0xee, request->capacity);
}

/* Reads all, keeping the reader full; returns how many came back. */
static inline uint32_t reading_all(fby_reader *reader, fby_read_request *requests, uint32_t count)
{
    uint32_t next = 0, back = 0;
    fby_read_request *done[16];

    while (back < count) {
        while (next < count && fby_reader_room(reader)) fby_reader_submit(reader, &requests[next++]);
        uint32_t came = fby_reader_wait(reader, done, 16, UINT64_MAX);
        for (uint32_t i = 0; i < came; i++) done[i]->user = (char *)done[i]->user + 1;
        back += came;
    }
    return back;
}

static inline void reading_free(fby_read_request *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) free(requests[i].buffer);
}

#endif
