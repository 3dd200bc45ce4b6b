#include "dataplane/protocol/crash.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "ringbuf/atomic.h"

static uint32_t hits;

void fby_crash_point(const char *name)
{
    const char *wanted = getenv("FOREBAY_CRASH_POINT");
    const char *colon = wanted ? strrchr(wanted, ':') : NULL;
    size_t length = strlen(name);
    if (!colon || (size_t)(colon - wanted) != length || strncmp(wanted, name, length)) return;
    uint32_t number = (uint32_t)strtoul(colon + 1, NULL, 10);
    if (fby_fetch_add_relaxed_u32(&hits, 1) + 1 >= number)
        raise(SIGKILL); /* a count: nothing is ordered by it */
}
