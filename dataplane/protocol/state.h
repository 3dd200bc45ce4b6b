/* A task's state: what is left of the epoch that it is in, as the bytes that fby_task_state gives a program
 * to keep and OPEN brings to a server in a sealed memfd.
 *
 *     head | bitmap of the ids that were had of its epoch (shared order, once there were any): words of 64,
 *            id 0 in the lowest bit of the first
 *          | how often each id was had, a byte each, filled up to whole words (of a task that echoes, where
 * there is a bitmap)
 *
 * An epoch is dealt to a task's ranks in equal parts. One that goes on with another number of ranks is dealt
 * anew: what was had by then lies `behind`, and each rank has a part of the rest. What all ranks had comes
 * from their states, merged into one (fby_state_merge): that is a state of none of them, and any number of
 * ranks goes on from it.
 *
 * Numbers are fixed in size and little-endian. A file may have been cut or damaged, and a server takes these
 * bytes from a client: everything is checked before it is used, the check sum to tell accidents. */
#ifndef FBY_DATAPLANE_STATE_H
#define FBY_DATAPLANE_STATE_H

#include <assert.h>
#include <forebay/error.h>
#include <stdbool.h>
#include <stdint.h>

#define FBY_STATE_MAGIC UINT64_C(0x4554415453594246) /* "FBYSTATE" in memory */

enum { FBY_STATE_VERSION = 1 };

/* Far beyond all training: a state says at most so many visits, lest one that is wrong brings counters to
 * their end. */
#define FBY_STATE_VISITS (UINT32_C(1) << 30)

enum { FBY_STATE_RANKS = 1024 }; /* at most, of a task */

/* `order` of a task: the values of the spec's fby_order. */
enum { FBY_STATE_SHARED = 0 };

/* How a task emits samples again, which tells what its position counts. */
typedef enum fby_state_echo {
    FBY_STATE_ECHO_NONE,
    FBY_STATE_ECHO_COUNTED, /* so often that an epoch comes to a number known before: all emissions */
    FBY_STATE_ECHO_FREE /* as time goes, or whole batches: fresh samples alone; what was owed is dropped */
} fby_state_echo;

/* Which task it is: a state fits tasks of the same, whatever crew they are; a merged one, whatever their
 * ranks and batches are. */
typedef struct fby_task_identity {
    uint64_t dataset_high, dataset_low; /* the data set's fingerprint */
    uint64_t output_high, output_low;   /* the key of what its pipeline makes of it */
    uint64_t samples;                   /* of the data set */
    uint64_t subset;                    /* a hash of the ids that its split leaves; 0: all */
    uint64_t seed;                      /* of strict order; 0 elsewhere */
    uint32_t order, batch, drop_last;
    uint32_t rank, ranks; /* one of so many; 0 of 0: merged */
    uint32_t echo;        /* fby_state_echo */
    uint64_t crew; /* of several ranks, and of their merged state: a number that those which ran together
                      have in common */
} fby_task_identity;
static_assert(sizeof(fby_task_identity) == 88, "state");

typedef struct fby_state_head {
    uint64_t magic;
    uint32_t version;
    uint32_t visits; /* visits of any id that it has seen are below this; at most FBY_STATE_VISITS */
    uint64_t bytes;  /* head and bitmap */
    uint64_t sum;    /* of all else */
    fby_task_identity identity;
    uint64_t epoch;
    uint64_t behind;   /* samples of it that were had when the rest was dealt to these ranks; 0: all was */
    uint64_t part;     /* samples of the rank's part; merged: 0, since there is no part yet */
    uint64_t position; /* samples of its part that the task had, in whole batches: less than all; but one of
                          several ranks may have had all, and is in that epoch until it goes on to the next */
} fby_state_head;
static_assert(sizeof(fby_state_head) == 152, "state");

static inline bool fby_state_is_merged(const fby_state_head *state)
{
    return !state->identity.ranks;
}

/* Words of the bitmap. */
static inline uint64_t fby_state_words(const fby_state_head *head)
{
    if (head->identity.order != FBY_STATE_SHARED || !(head->behind | head->position)) return 0;
    return head->identity.samples / 64 + (head->identity.samples % 64 != 0);
}

/* Words of the counts behind it. */
static inline uint64_t fby_state_count_words(const fby_state_head *head)
{
    bool counted = head->identity.echo == FBY_STATE_ECHO_COUNTED && fby_state_words(head);
    return counted ? (head->identity.samples + 7) / 8 : 0;
}

/* The most bytes that the state of such a task has. */
static inline uint64_t fby_state_bytes_most(const fby_task_identity *identity)
{
    uint64_t counts = identity->echo == FBY_STATE_ECHO_COUNTED ? (identity->samples + 7) / 8 : 0;
    return sizeof(fby_state_head) + (identity->samples / 64 + 1 + counts) * 8;
}

static inline uint64_t *fby_state_bitmap(fby_state_head *state)
{
    return (uint64_t *)(state + 1);
}

static inline uint8_t *fby_state_counts(fby_state_head *state)
{
    return (uint8_t *)(fby_state_bitmap(state) + fby_state_words(state));
}

/* Where the next batch comes from: the samples before it in the task's part of its epoch. A merged state must
 * have got a part. */
static inline uint64_t fby_state_next(const fby_state_head *state, uint64_t *epoch)
{
    bool whole = state->position == state->part;
    *epoch = state->epoch + whole;
    return whole ? 0 : state->position;
}

/* Its number within the epoch, of `batches` of so many samples. Parts that are less than an epoch's are
 * counted from their end: the last batch has the number that it always has. */
static inline uint64_t fby_state_next_batch(const fby_state_head *state, uint64_t batches, uint32_t batch)
{
    if (state->position == state->part) return 0;
    return batches - (state->part + batch - 1) / batch + state->position / batch;
}

/* Fills in magic, version, bytes and sum of a state whose other fields and bitmap are there. */
void fby_state_seal(fby_state_head *state);

/* Whether these are the bytes of a state, undamaged: 0, FBY_EINVAL, or FBY_EVERSION. `state` is aligned as a
 * u64. */
int fby_state_check(const fby_state_head *state, uint64_t bytes, fby_error *error);

/* What a state must fit. */
typedef struct fby_state_task {
    const char *name; /* for messages */
    const fby_task_identity *identity;
    uint64_t samples; /* of its split: what an epoch draws from */
    uint64_t part;    /* of a rank, where `behind` of them were had */
    uint64_t epochs;  /* it ends after so many; 0: never */
} fby_state_task;

/* Whether a checked state belongs to this task. */
int fby_state_fits(const fby_state_head *state, const fby_state_task *task, fby_error *error);

#endif
