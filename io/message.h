/* How paths and system errors are shown in messages. */
#ifndef FBY_IO_MESSAGE_H
#define FBY_IO_MESSAGE_H

enum { PATH_SHOWN = 400 };

/* A path short enough to leave room for the reason: the beginning and the end of a long one. */
typedef struct fby_path_shown {
    char text[PATH_SHOWN];
} fby_path_shown;

/* Shows `folder`/`name`; either may be empty. */
fby_path_shown fby_path_show(const char *folder, const char *name);

/* As strerror, but safe in any thread. */
const char *fby_errno_text(int error);

#endif
