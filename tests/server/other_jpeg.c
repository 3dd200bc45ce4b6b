/* Preloaded into a program: its libjpeg introduces itself as one that Forebay doesn't know. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

__attribute__((visibility("default"))) struct jpeg_error_mgr *jpeg_std_error(struct jpeg_error_mgr *errors)
{
    /* Written with the same bytes each time: threads don't disturb each other. */
    static const char *messages[JMSG_LASTMSGCODE + 1];
    struct jpeg_error_mgr *(*real)(struct jpeg_error_mgr *);

    *(void **)&real = dlsym(RTLD_NEXT, "jpeg_std_error");
    real(errors);
    if (errors->last_jpeg_message > JMSG_LASTMSGCODE) return errors;
    memcpy(messages, errors->jpeg_message_table, ((size_t)errors->last_jpeg_message + 1) * sizeof *messages);
    messages[JMSG_COPYRIGHT] = "Copyright (C) 2031 somebody else";
    errors->jpeg_message_table = messages;
    return errors;
}
