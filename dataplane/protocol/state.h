/* A task's state: what is left of the epoch that it is in, as the bytes that fby_task_state gives a program
 * to keep and OPEN brings to a server in a sealed memfd.
 *
 *     head | bitmap of the ids that it had of its epoch (shared order, once it had any): words of 64, id 0 in
 *            the lowest bit of the first
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

/* `order` of a task: the values of the spec's fby_order. */
enum { FBY_STATE_SHARED = 0 };

/* Which task it is: a state fits tasks of the same, whatever crew they are. */
typedef struct fby_task_identity {
    uint64_t dataset_high, dataset_low; /* the data set's fingerprint */
    uint64_t output_high, output_low;   /* the key of what its pipeline makes of it */
    uint64_t samples;                   /* of the data set */
    uint64_t subset;                    /* a hash of the ids that its split leaves; 0: all */
    uint64_t seed;                      /* of strict order; 0 elsewhere */
    uint32_t order, batch, drop_last;
    uint32_t rank, ranks; /* one of so many */
    uint32_t reserved;
    uint64_t crew; /* of several ranks: a number that those which ran together have in common */
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
    uint64_t
        position; /* samples of it that the task had, in whole batches: less than all; but one of several
                     ranks may have had all of its part, and is in that epoch until it goes on to the next */
} fby_state_head;
static_assert(sizeof(fby_state_head) == 136, "state");

/* Words of the bitmap. */
static inline uint64_t fby_state_words(const fby_state_head *head)
{
    if (head->identity.order != FBY_STATE_SHARED || !head->position) return 0;
    return head->identity.samples / 64 + (head->identity.samples % 64 != 0);
}

static inline uint64_t *fby_state_bitmap(fby_state_head *state)
{
    return (uint64_t *)(state + 1);
}

/* Where the next batch comes from: the samples before it in its epoch, of which a part has `samples`. */
static inline uint64_t fby_state_next(const fby_state_head *state, uint64_t samples, uint64_t *epoch)
{
    bool whole = state->position == samples;
    *epoch = state->epoch + whole;
    return whole ? 0 : state->position;
}

/* Fills in magic, version, bytes and sum of a state whose other fields and bitmap are there. */
void fby_state_seal(fby_state_head *state);

/* Whether these are the bytes of a state, undamaged: 0, FBY_EINVAL, or FBY_EVERSION. `state` is aligned as a
 * u64. */
int fby_state_check(const fby_state_head *state, uint64_t bytes, fby_error *error);

/* Whether a checked state belongs to a task of this identity, whose epochs have `samples` samples and which
 * ends after `epochs` of them (0: never). `name`: what messages call the task. */
int fby_state_fits(const fby_state_head *state, const fby_task_identity *identity, uint64_t samples,
                   uint64_t epochs, const char *name, fby_error *error);

#endif
