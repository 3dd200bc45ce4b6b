/* Forebay's client API: training batches out of shared memory.
 *
 *     fby_error error = FBY_ERROR_INIT;
 *     fby_client *client = NULL;
 *     fby_task *task = NULL;
 *     fby_task_options options = FBY_TASK_OPTIONS_INIT;
 *     options.spec_path = "train.yaml";
 *     if (fby_connect(&client, NULL, &error) || fby_task_open(&task, client, &options, &error))
 *         return complain(error.text);
 *     for (;;) {
 *         fby_batch *batch = NULL;
 *         int status = fby_task_next(task, -1, &batch, &error);
 *         if (status == FBY_EEND) break;
 *         if (status == FBY_EINTR) continue;
 *         if (status < 0) return complain(error.text);
 *         fby_tensor images;
 *         fby_batch_tensor(batch, &images, &error);     borrowed from the batch: no copy was made
 *         train(images.data, fby_batch_labels(batch), fby_batch_count(batch));
 *         fby_batch_release(&batch);                    the memory goes back to the server
 *     }
 *     fby_task_close(&task);
 *     fby_disconnect(&client);
 *
 * One data plane serves every training task of a user on a node. fby_connect finds a running `forebay serve`,
 * or else starts one that ends by itself a while after the last task.
 *
 * Ownership: handles are closed by the function that takes their address and nulls it. Pointers that
 * accessors return are borrowed from their handle. Thread safety: fby_batch_release and the batch accessors
 * may be called from any thread; everything else from one thread at a time per handle. Fork: a child must not
 * use its parent's handles; every call there fails with FBY_EFORKED and the parent is not disturbed.
 *
 * Options structures start with their own size, set by their _INIT macro, so that they can grow. */
#ifndef FOREBAY_FOREBAY_H
#define FOREBAY_FOREBAY_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FBY_API __attribute__((visibility("default")))

typedef struct fby_client fby_client;
typedef struct fby_task fby_task;
typedef struct fby_batch fby_batch;

/* "0.1.0" */
FBY_API const char *fby_version(void);

/* --- connecting
 * --------------------------------------------------------------------------------------------- */

typedef enum fby_mode {
    FBY_MODE_AUTO = 0,     /* a running server, else an embedded one */
    FBY_MODE_RUNNING = 1,  /* only a running server */
    FBY_MODE_EMBEDDED = 2, /* only an embedded one */
    FBY_MODE_FOUND = 3     /* a running server or a running embedded one: nothing is started */
} fby_mode;

typedef struct fby_connect_options {
    size_t size;
    const char *socket;   /* path of the server's socket; NULL: $FOREBAY_SOCKET, else the default path */
    const char *server;   /* program to start as an embedded server; NULL: $FOREBAY_SERVER, else the one
                             installed beside the library */
    uint32_t mode;        /* fby_mode */
    int32_t timeout_ms;   /* for connecting and starting; 0: 10,000 */
    int32_t reconnect_ms; /* how long a task waits for the successor of a server that is gone; negative: not
                             at all; 0: $FOREBAY_RECONNECT (seconds), else 30,000 */
} fby_connect_options;

#define FBY_CONNECT_OPTIONS_INIT                                                                             \
    {                                                                                                        \
        sizeof(fby_connect_options), NULL, NULL, FBY_MODE_AUTO, 0, 0                                         \
    }

/* Connects; `options` may be NULL. FBY_ELOST where no server answers, FBY_EPERM where it is another user's,
 * FBY_EVERSION where it speaks another protocol. */
FBY_API int fby_connect(fby_client **out, const fby_connect_options *options, fby_error *error);
/* Closes. Tasks opened through the client live on until they are closed. */
FBY_API void fby_disconnect(fby_client **client);
/* The server's process. */
FBY_API int32_t fby_client_pid(const fby_client *client);
/* What the server is doing, as JSON; malloc'd, for free(). */
FBY_API int fby_client_status(fby_client *client, char **json, fby_error *error);

/* --- tasks
 * ----------------------------------------------------------------------------------------------------- */

/* Called while the data set is being indexed, at most ten times a second; returning false gives up
 * (FBY_EINTR). */
typedef bool fby_progress(void *user, uint64_t files_found, uint64_t files_done);

/* Called from within fby_task_next, once at most: a line of text about what keeps the task waiting. It must
 * not use the task. */
typedef void fby_notice(void *user, const char *text);

typedef struct fby_task_options {
    size_t size;
    const char *spec_path; /* a spec file; or */
    const char *spec;      /* the text itself (YAML; JSON is YAML) */
    const char *name;      /* what messages call it; NULL: the file's name, or "spec" */
    const char *base;      /* with `spec`: what relative paths are relative to; NULL: the working directory */
    fby_progress *progress; /* NULL: none */
    void *user;
    /* Which of the spec's `ranks` this client is, from 0. The ranks of a task hand in the same spec under the
     * same name, with the same `job`; nothing comes before all of them have. */
    uint32_t rank;
    const void *state; /* what fby_task_state or fby_state_merge gave: the task goes on from there; NULL: from
                          the beginning */
    size_t state_bytes;
    /* Of several ranks: what tells their job from others with the same spec that run at the same time, 1 to
     * 256 bytes, the same for all of its ranks and no other job's (a launcher's job id, for example). NULL or
     * "": none. Then a second process with a rank that is there already is refused: FBY_EINVAL. A job that
     * goes on from states may have another id than it had. */
    const char *job;
    /* Of several ranks: told once where some of them haven't come after `notice_ms` (0: 30,000) of waiting,
     * which these are, and what may have kept them. NULL: nobody is told; the text of FBY_ETIMEDOUT says it
     * as well. Gets `user`. */
    fby_notice *notice;
    uint32_t notice_ms;
} fby_task_options;

#define FBY_TASK_OPTIONS_INIT                                                                                \
    {                                                                                                        \
        sizeof(fby_task_options), NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, NULL, 0              \
    }

typedef enum fby_element {
    FBY_ELEMENT_U8 = 1,
    FBY_ELEMENT_U16 = 2,
    FBY_ELEMENT_F16 = 3,
    FBY_ELEMENT_BF16 = 4,
    FBY_ELEMENT_F32 = 5
} fby_element;

enum { FBY_DIMENSIONS = 5 };

/* What a task delivers; fixed for its life. */
typedef struct fby_task_info {
    size_t size;            /* set by the caller to sizeof(fby_task_info) */
    uint64_t dataset;       /* samples of the data set */
    uint64_t samples;       /* per epoch, for this rank: with an echo of samples all emissions; where whole
                               batches come again, or samples as time goes (auto), the fresh ones */
    uint64_t batches;       /* per epoch, for this rank: exact; 0 where samples come again as time goes,
                               without steps_per_epoch */
    uint64_t epochs;        /* 0: unlimited */
    uint32_t batch;         /* samples of a full batch */
    uint32_t window;        /* batches that can be held or under way at once */
    uint32_t element;       /* fby_element */
    uint32_t channels_last; /* 1: height, width, channels; 0: channels, height, width */
    uint32_t dimensions;    /* of one sample */
    uint32_t shape[4];
    uint32_t classes; /* names known; 0: labels are plain numbers */
    uint64_t sample_bytes;
    uint64_t shared_bytes; /* shared memory that this task added */
} fby_task_info;

/* Hands in a spec. Everything that is wrong with it is said here: FBY_EINVAL with name, line, key, what was
 * expected. */
FBY_API int fby_task_open(fby_task **out, fby_client *client, const fby_task_options *options,
                          fby_error *error);
/* Ends the subscription. Batches still held stay readable until they are released. */
FBY_API void fby_task_close(fby_task **task);
FBY_API int fby_task_info_get(const fby_task *task, fby_task_info *out);
/* Name of a class, or NULL; borrowed from the task. */
FBY_API const char *fby_task_class(const fby_task *task, uint32_t label);

/* The next batch, waiting up to `timeout_ns` (negative: without limit; 0: not at all). Epochs follow each
 * other without a pause: a batch says which it belongs to. FBY_ETIMEDOUT  nothing came in time; the text says
 * how far the batch is FBY_EWINDOW    the caller holds every batch of its window, so none can come; the text
 * names the window FBY_EEND       the last epoch is over (and again at every further call) FBY_ESAMPLE    a
 * sample is bad and on_error is fail (and again at every further call) FBY_ELOST      the server is gone, and
 * so is its successor FBY_EINTR      a signal handler ran; call again
 *
 * A server that is gone is noticed within a second. The task then goes on with the next one, within the same
 * call: a client of an embedded server starts it, another waits for it (reconnect_ms), at most five times a
 * minute. Nothing is lost and nothing comes twice; batches that are held stay readable. Several ranks go on
 * once all of them have come to the next server, each by a thread that it has for this: whichever of them
 * wait for a batch then. Such a call may take longer
 * than its timeout, by what it takes a server to start or to answer a greeting. */
FBY_API int fby_task_next(fby_task *task, int64_t timeout_ns, fby_batch **out, fby_error *error);

/* Gives up the rest of the epoch that the last batch belonged to: the next batch is the first of the next
 * epoch. Where nothing is left of it, or no batch came yet, it does nothing. Returns 0, or FBY_EEND where
 * that was the last epoch. One of several ranks gives up its own part only, which is prepared all the same.
 */
FBY_API int fby_task_abandon(fby_task *task, fby_error *error);

/* Where the task is, after all batches that fby_task_next has returned: malloc'd, for free(). A task that is
 * opened with these bytes goes on from there, in another process, on another server, with any number of
 * workers: in a fixed order with the same batches to the last bit; in shared order with the ids that its
 * epoch still lacks, each once, and random ops draw afresh. The data set, split, order, seed, batch, pipeline
 * and augment_seed must be the same, or fby_task_open says what isn't (FBY_EINVAL); epochs, window and what
 * is done about bad samples may differ. Also where the task has failed. */
FBY_API int fby_task_state(fby_task *task, void **state, size_t *bytes, fby_error *error);

/* For a task that goes on with another number of ranks: the states that all its ranks saved after the same
 * batch, one of each, in any order, made into one that every new rank opens the task with, whatever their
 * number (1 as well) and batch size. What is left of the epoch is dealt to them in equal parts; without
 * drop_last these are made equal by padding, as in every epoch, and the batches are counted so that the last
 * one has the number that it always has. Malloc'd, for free(). FBY_EINVAL says which state is missing, of
 * another task, or of another step. */
FBY_API int fby_state_merge(const void *const *states, const size_t *bytes, uint32_t count, void **merged,
                            size_t *merged_bytes, fby_error *error);

/* --- batches
 * --------------------------------------------------------------------------------------------------- */

typedef enum fby_sample_flag {
    FBY_SAMPLE_PADDED = 1,    /* repeats a sample so that all ranks have equal parts */
    FBY_SAMPLE_REPEAT = 2,    /* was in this epoch before */
    FBY_SAMPLE_SUBSTITUTE = 4 /* stands in for a bad sample */
} fby_sample_flag;

/* Memory that is never written again while the batch is held. Strides are in bytes. */
typedef struct fby_tensor {
    const void *data;
    uint64_t bytes;
    uint32_t element; /* fby_element */
    uint32_t dimensions;
    int64_t shape[FBY_DIMENSIONS]; /* samples first */
    int64_t strides[FBY_DIMENSIONS];
} fby_tensor;

FBY_API uint64_t fby_batch_epoch(const fby_batch *batch);
FBY_API uint64_t fby_batch_index(const fby_batch *batch); /* within its epoch */
FBY_API bool fby_batch_last(const fby_batch *batch);      /* of its epoch */
FBY_API uint32_t fby_batch_count(const fby_batch *batch); /* samples */
FBY_API const uint64_t *fby_batch_ids(const fby_batch *batch);
FBY_API const int64_t *fby_batch_labels(const fby_batch *batch);
FBY_API const uint32_t *fby_batch_flags(const fby_batch *batch); /* fby_sample_flag */

/* A batch stands in one or more pieces. */
FBY_API uint32_t fby_batch_extents(const fby_batch *batch);
/* Piece `index` as a tensor. */
FBY_API int fby_batch_extent(const fby_batch *batch, uint32_t index, fby_tensor *out, fby_error *error);
/* The whole batch as one tensor: without a copy where it is one piece; else FBY_ENOTSUP: read extents, or
 * fby_batch_copy. */
FBY_API int fby_batch_tensor(const fby_batch *batch, fby_tensor *out, fby_error *error);
/* Copies the whole batch to `out`, which holds `bytes` >= count * sample_bytes. */
FBY_API int fby_batch_copy(const fby_batch *batch, void *out, uint64_t bytes, fby_error *error);
/* Gives the memory back. Any thread; also after the task was closed. */
FBY_API void fby_batch_release(fby_batch **batch);

#ifdef __cplusplus
}
#endif
#endif
