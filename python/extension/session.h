/* A subscription and the memory that its batches lend, counted without Python.
 *
 * The last view of a batch may die on any thread, with or without the interpreter's lock, or after the
 * interpreter is gone (DLPack lets a consumer do all of that). So neither structure here is a Python object:
 * both are counted atomically, and what their last holder does is plain C.
 *
 * A forked child inherits the objects but not the right to use them: there, the last holder does nothing. */
#ifndef FBY_PYTHON_SESSION_H
#define FBY_PYTHON_SESSION_H

#include <forebay/forebay.h>
#include <stdbool.h>
#include <stdint.h>

/* A connection and its task. Closed by its last holder: a view keeps its memory readable even where the
 * Loader was closed before it. */
typedef struct fby_py_session fby_py_session;

/* Takes both handles over, also where it fails (NULL: no memory). */
fby_py_session *fby_py_session_create(fby_client *client, fby_task *task);
void fby_py_session_keep(fby_py_session *session);
void fby_py_session_drop(fby_py_session *session);
fby_client *fby_py_session_client(const fby_py_session *session);
fby_task *fby_py_session_task(const fby_py_session *session);
/* The process that opened it, if that is not this one; else 0. */
int32_t fby_py_session_foreign(const fby_py_session *session);

/* A few buffers of one size, kept from one copy of a batch to the next. Any thread. */
typedef struct fby_py_pool fby_py_pool;

fby_py_pool *fby_py_pool_create(uint64_t bytes, uint32_t kept); /* NULL: no memory */
void fby_py_pool_drop(fby_py_pool *pool);                       /* lent buffers live on */

/* Memory that tensors look at: a batch in shared memory, a buffer of a pool, or plain memory. */
typedef struct fby_py_hold fby_py_hold;

/* Each returns one reference, or NULL where memory is short. The batch is taken over only on success. */
fby_py_hold *fby_py_hold_batch(fby_py_session *session, fby_batch *batch);
fby_py_hold *fby_py_hold_buffer(fby_py_pool *pool);
fby_py_hold *fby_py_hold_plain(uint64_t bytes);
/* A buffer's or plain memory; NULL for a batch. */
void *fby_py_hold_memory(const fby_py_hold *hold);
void fby_py_hold_keep(fby_py_hold *hold);
void fby_py_hold_drop(fby_py_hold *hold);

#endif
