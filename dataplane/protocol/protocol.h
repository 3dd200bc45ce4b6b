/* Messages between client and server, over a SOCK_SEQPACKET Unix socket: one structure a message, followed by
 * text.
 *
 * A connection begins with HELLO; the server answers WELCOME or FAILED. A connection carries at most one
 * task: OPEN is answered by any number of PROGRESS and then OPENED (with descriptors) or FAILED. After that
 * only what follows is sent:
 *
 *   client                         server
 *   ABANDON {epoch}                ABANDONED {next epoch} | FAILED {FBY_EEND}
 *                                  TASK_FAILED {code, sample, text}: before the descriptor that says so
 *   SEGMENT {block}                SEGMENT_REPLY {block} with a descriptor: a descriptor of the ring named it
 *   BLOCKS                         BLOCKS_REPLY {count, blocks}: those there are. The client unmaps all
 *                                  others: the server has (its down region's `gone` has changed)
 *   AWAITS                         AWAITS_REPLY {missing, text}: how many ranks haven't come, and which
 *   STATUS                         STATUS_REPLY with a descriptor of JSON text
 *
 * Closing the socket ends the task. Sizes are fixed and little-endian; a message of another size, type or
 * order is answered by a disconnect: FBY_EPROTO. Messages grow only with the protocol's version. */
#ifndef FBY_DATAPLANE_PROTOCOL_H
#define FBY_DATAPLANE_PROTOCOL_H

#include <assert.h>
#include <stdint.h>

#include "dataplane/protocol/state.h"

enum {
    FBY_PROTOCOL_VERSION = 1,
    FBY_MESSAGE_TEXT = 72 * 1024, /* longest text of a message */
    FBY_AFFINITY_WORDS = 128,     /* 8192 CPUs */
    FBY_JOB_MOST = 256            /* bytes of a job id */
};

#define FBY_MESSAGE_MAGIC 0x46425930u /* "0YBF" in memory */

typedef enum fby_message_type {
    FBY_MESSAGE_HELLO = 1,
    FBY_MESSAGE_WELCOME = 2,
    FBY_MESSAGE_FAILED = 3,
    FBY_MESSAGE_OPEN = 4,
    FBY_MESSAGE_PROGRESS = 5,
    FBY_MESSAGE_OPENED = 6,
    FBY_MESSAGE_ABANDON = 7,
    FBY_MESSAGE_ABANDONED = 8,
    FBY_MESSAGE_TASK_FAILED = 9,
    FBY_MESSAGE_STATUS = 10,
    FBY_MESSAGE_STATUS_REPLY = 11,
    FBY_MESSAGE_SEGMENT = 12,
    FBY_MESSAGE_SEGMENT_REPLY = 13,
    FBY_MESSAGE_BLOCKS = 14,
    FBY_MESSAGE_BLOCKS_REPLY = 15,
    FBY_MESSAGE_AWAITS = 16,
    FBY_MESSAGE_AWAITS_REPLY = 17
} fby_message_type;

typedef struct fby_message {
    uint32_t magic;
    uint32_t type;
    uint32_t version;
    uint32_t text_bytes; /* that follow the structure */
} fby_message;
static_assert(sizeof(fby_message) == 16, "protocol");

typedef struct fby_hello {
    fby_message head;
    uint64_t layout_hash;
    uint32_t pid;
    uint32_t flags;
    uint64_t affinity[FBY_AFFINITY_WORDS]; /* CPUs the client may run on */
} fby_hello;
static_assert(sizeof(fby_hello) == 16 + 16 + 8 * FBY_AFFINITY_WORDS, "protocol");

typedef struct fby_welcome {
    fby_message head;
    uint64_t layout_hash;
    uint32_t pid;
    uint32_t embedded;
} fby_welcome;
static_assert(sizeof(fby_welcome) == 32, "protocol");

/* Followed by the message's text. */
typedef struct fby_failed {
    fby_message head;
    int32_t code;
    uint32_t reserved;
    uint64_t sample;
} fby_failed;
static_assert(sizeof(fby_failed) == 32, "protocol");

/* Followed by four texts, one after the other: name, base folder, spec, job id. With one descriptor: a memfd,
 * sealed against every change, that holds the state (state.h) with which the task goes on. */
typedef struct fby_open {
    fby_message head;
    uint32_t name_bytes, base_bytes, spec_bytes;
    uint32_t rank;
    /* 1: a task whose server is lost goes on by itself. Of several ranks, OPENED comes once all are there. */
    uint32_t again;
    uint32_t job_bytes; /* 0: it has no id */
} fby_open;
static_assert(sizeof(fby_open) == 40, "protocol");

typedef struct fby_progress_message {
    fby_message head;
    uint64_t found, done;
} fby_progress_message;
static_assert(sizeof(fby_progress_message) == 32, "protocol");

/* Descriptors: down, up, eventfd, class names (text of NUL-terminated names; absent where classes is 0). */
enum { FBY_OPENED_FDS = 3 };

typedef struct fby_opened {
    fby_message head;
    uint64_t dataset, samples, batches, epochs;
    uint64_t sample_bytes, shared_bytes, first_epoch;
    uint32_t batch, window;
    uint32_t element, channels_last;
    uint32_t dimensions, shape[4];
    uint32_t classes;
    uint32_t return_capacity;
    uint32_t spin_ns;
    uint32_t ranks, reserved;
    /* Where a resumed task goes on in first_epoch, as in fby_state_head. */
    uint64_t behind, part, position;
    uint64_t first_batch; /* its number within that epoch */
    fby_task_identity identity;
} fby_opened;
static_assert(sizeof(fby_opened) == 16 + 7 * 8 + 14 * 4 + 4 * 8 + sizeof(fby_task_identity), "protocol");

/* SEGMENT and its reply. */
typedef struct fby_block_message {
    fby_message head;
    uint32_t block, reserved;
} fby_block_message;
static_assert(sizeof(fby_block_message) == 24, "protocol");

enum { FBY_BLOCKS_MOST = 1024 };

typedef struct fby_blocks_message {
    fby_message head;
    uint32_t count, reserved;
    uint32_t blocks[FBY_BLOCKS_MOST]; /* `count` of them */
} fby_blocks_message;
static_assert(sizeof(fby_blocks_message) == 24 + 4 * FBY_BLOCKS_MOST, "protocol");

/* Followed by text, where any rank is missing. */
typedef struct fby_awaits_reply {
    fby_message head;
    uint32_t missing, reserved;
} fby_awaits_reply;
static_assert(sizeof(fby_awaits_reply) == 24, "protocol");

typedef struct fby_epoch_message {
    fby_message head;
    uint64_t epoch;
} fby_epoch_message;
static_assert(sizeof(fby_epoch_message) == 24, "protocol");

static inline fby_message fby_message_head(fby_message_type type, uint32_t text_bytes)
{
    return (fby_message){FBY_MESSAGE_MAGIC, type, FBY_PROTOCOL_VERSION, text_bytes};
}

#endif
