/* What a write into a read-only batch says before it kills the process.
 *
 * numpy knows that a batch is read-only and raises. PyTorch before 2.x does not: its write is a SIGSEGV,
 * which by itself says nothing. The first batch that is watched installs a handler that recognises addresses
 * of ours, prints why, and leaves the rest to the handler that was there before (faulthandler's, say) or to
 * the default. */
#ifndef FBY_PYTHON_FAULT_H
#define FBY_PYTHON_FAULT_H

#include <stddef.h>

/* From now on the memory is known as a batch of `owner`. Any thread. Past 1,024 blocks the oldest are
 * forgotten: then a write into them still kills, without the message. */
void fby_py_fault_watch(const void *owner, const void *memory, size_t bytes);
/* Forgets everything of `owner`. */
void fby_py_fault_forget(const void *owner);

#endif
