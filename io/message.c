#include "io/message.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_SHOWN = 100 };

fby_path_shown fby_path_show(const char *folder, const char *name)
{
    static const char gap[] = "...";
    char whole[2 * PATH_MAX];
    fby_path_shown shown = {""};

    int length = snprintf(whole, sizeof whole, "%s%s%s", folder, folder[0] && name[0] ? "/" : "", name);
    size_t bytes = length < 0 ? 0 : (size_t)length;
    if (bytes >= sizeof whole) bytes = sizeof whole - 1;

    if (bytes < sizeof shown.text) {
        memcpy(shown.text, whole, bytes);
        return shown;
    }
    size_t tail = sizeof shown.text - HEAD_SHOWN - sizeof gap;
    memcpy(shown.text, whole, HEAD_SHOWN);
    memcpy(shown.text + HEAD_SHOWN, gap, sizeof gap - 1);
    memcpy(shown.text + HEAD_SHOWN + sizeof gap - 1, whole + bytes - tail, tail);
    return shown;
}

const char *fby_errno_text(int error)
{
    const char *text = strerrordesc_np(error);
    return text ? text : "unknown error";
}
