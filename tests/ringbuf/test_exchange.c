#include "tests/ringbuf/exchange.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ringbuf/fdpass.h"
#include "tests/support/test.h"

enum { DELIVERIES = 150000, ROUNDS = 3 };

static void *serve(void *context)
{
    exchange_serve(context);
    return NULL;
}

Test(exchange, between_threads)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        exchange server;
        fby_error error = FBY_ERROR_INIT;
        cr_assert_eq(exchange_create(&server, DELIVERIES, seed, &error), 0, "%s", error.text);
        exchange client = server;
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, serve, &server), 0);
        exchange_consume(&client);
        cr_assert_str_eq(client.fault, "", "seed %llu, client: %s", (unsigned long long)seed, client.fault);
        pthread_join(thread, NULL);
        cr_assert_str_eq(server.fault, "", "seed %llu, server: %s", (unsigned long long)seed, server.fault);
        cr_assert_gt(server.wakes, 0, "the client never slept: this run shows nothing");
        cr_assert_gt(client.wakes, 0, "the server never slept: this run shows nothing");
        exchange_close(&server);
    }
}

/* The whole of a client process: maps what it is sent, and consumes. */
static int client_process(int socket, uint64_t seed)
{
    fby_error error = FBY_ERROR_INIT;
    int fds[4], count = 4;
    char hello[8];
    if (fby_fdpass_receive(socket, hello, sizeof hello, fds, &count, &error) < 0 || count != 4) return 2;

    exchange client = {.deliveries = DELIVERIES, .seed = seed, .event_fd = fds[3]};
    if (fby_region_map(&client.segment, fds[0], FBY_REGION_SEGMENT, &error) != 0) return 3;
    if (fby_segment_check(&client.segment, &error) != 0) return 4;
    if (fby_region_map(&client.down, fds[1], FBY_REGION_DOWN, &error) != 0) return 5;
    if (fby_region_map(&client.up, fds[2], FBY_REGION_UP, &error) != 0) return 6;

    exchange_consume(&client);
    if (client.fault[0]) fprintf(stderr, "client: %s\n", client.fault);
    if (client.fault[0]) return 7;
    return client.wakes > 0 ? 0 : 8;
}

Test(exchange, between_processes)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        int sockets[2];
        cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        pid_t pid = fork();
        cr_assert_geq(pid, 0);
        if (pid == 0) _exit(client_process(sockets[1], seed));

        exchange server;
        fby_error error = FBY_ERROR_INIT;
        cr_assert_eq(exchange_create(&server, DELIVERIES, seed, &error), 0, "%s", error.text);
        const int fds[] = {server.segment.fd, server.down.fd, server.up.fd, server.event_fd};
        struct iovec hello = {"hello", 5};
        cr_assert_eq(fby_fdpass_send(sockets[0], &hello, 1, fds, 4, &error), 0, "%s", error.text);
        exchange_serve(&server);
        int status;
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert_str_eq(server.fault, "", "seed %llu, server: %s", (unsigned long long)seed, server.fault);
        cr_assert_eq(status, 0, "seed %llu: the client ended with status 0x%x", (unsigned long long)seed,
                     (unsigned)status);
        cr_assert_gt(server.wakes, 0, "the client never slept: this run shows nothing");
        exchange_close(&server);
        close(sockets[0]);
        close(sockets[1]);
    }
}
