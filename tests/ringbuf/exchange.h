/* A server and a client that pass blocks to and fro over one task's regions, both sleeping now and then. The
 * two may be threads of one process over one mapping, or processes. */
#ifndef FBY_TESTS_RINGBUF_EXCHANGE_H
#define FBY_TESTS_RINGBUF_EXCHANGE_H

#include "ringbuf/region.h"
#include "ringbuf/spsc.h"

enum { EXCHANGE_BLOCKS = 12, EXCHANGE_RING = 16 };

typedef struct exchange {
    fby_region segment, down, up; /* as this side has them */
    fby_delivery_writer delivery; /* the server's alone */
    fby_returns_reader returns;   /* likewise */
    int event_fd;
    uint32_t deliveries; /* how many blocks pass in all */
    uint64_t seed;
    uint32_t wakes;  /* out: system calls made to wake the other side */
    char fault[200]; /* out: empty when all went well */
} exchange;

/* Creates the three regions, sealed, as a server does. */
int exchange_create(exchange *out, uint32_t deliveries, uint64_t seed, fby_error *error);
void exchange_close(exchange *it);

void exchange_serve(exchange *it);
void exchange_consume(exchange *it);

#endif
