/* Status codes and error details, shared by every part of Forebay and by its clients.
 *
 * Functions return 0 (or a count) on success and a negative fby_status on failure. What exactly went wrong
 * travels in a fby_error that the caller passes in; it may always be NULL. The library never prints, never
 * sets errno on purpose and never exits. */
#ifndef FOREBAY_ERROR_H
#define FOREBAY_ERROR_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are part of the ABI: they are never reused and never change their meaning. */
typedef enum fby_status {
    FBY_OK = 0,
    FBY_EINVAL = -1,    /* an argument, a spec or a file list is wrong */
    FBY_ENOMEM = -2,    /* memory, or the part of it that --memory grants, is short */
    FBY_EIO = -3,       /* the system refused or failed: the message holds the reason */
    FBY_ESAMPLE = -4,   /* a sample can't be read or decoded, and on_error is `fail` */
    FBY_ETIMEDOUT = -5, /* the deadline passed; nothing is lost, the call may be repeated */
    FBY_ELOST = -6,     /* the server is gone: fby_error.pid, and .signal where it is known */
    FBY_EFULL = -7,     /* no room for another task */
    FBY_EWINDOW = -8,   /* the caller holds every batch of its window: release one first */
    FBY_EEND = -9,      /* the last epoch is over */
    FBY_EVERSION = -10, /* client and server, or a file and this build, don't fit together */
    FBY_EPERM = -11,    /* the peer is another user, or a permission is missing */
    FBY_EFORKED = -12,  /* the handle belongs to the process that forked this one */
    FBY_ECLOSED = -13,  /* the handle, or the other side of it, was closed */
    FBY_EINTR = -14,    /* a signal handler ran, or a callback said stop; the call may be repeated */
    FBY_ENOTSUP = -15,  /* valid, but not in this version or not on this machine */
    FBY_EPROTO = -16    /* the peer broke the protocol */
} fby_status;

enum { FBY_ERROR_TEXT = 1000 };

/* Details of a failure. Start from FBY_ERROR_INIT, or zeroed; reusable; no clean-up. The reserved space lets
 * it grow without breaking programs. */
typedef struct fby_error {
    int32_t code;   /* a fby_status */
    int32_t pid;    /* FBY_ELOST: the server that died; else 0 */
    int32_t signal; /* FBY_ELOST: the signal that killed it, where the kernel tells; else 0 */
    int32_t reserved0;
    uint64_t sample; /* FBY_ESAMPLE: id of the sample; else 0 */
    uint64_t reserved[4];
    char text[FBY_ERROR_TEXT]; /* one line of UTF-8 or raw path bytes: what, where, what was expected, what to
                                  do */
} fby_error;

#define FBY_ERROR_INIT                                                                                       \
    {                                                                                                        \
        0                                                                                                    \
    }

/* Fills `error` (which may be NULL) and returns `code`, so that a failing function ends with
 * `return fby_fail(error, FBY_EINVAL, "…", …);`. Too long a text is cut. */
__attribute__((format(printf, 3, 4))) static inline int fby_fail(fby_error *error, fby_status code,
                                                                 const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        error->code = code;
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return code;
}

#ifdef __cplusplus
}
#endif
#endif
