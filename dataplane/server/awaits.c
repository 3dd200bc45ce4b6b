/* What the ranks that came are told of those that haven't: which they are, and what waits here that may be
 * one of them, but for what it was opened with. */
#include <stdarg.h>
#include <string.h>

#include "dataplane/server/internal.h"

enum { RANGES_MOST = 8 };

typedef struct text {
    char *at;
    size_t room; /* the end's NUL included */
} text;

__attribute__((format(printf, 2, 3))) static void say(text *out, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int length = vsnprintf(out->at, out->room, format, values);
    va_end(values);
    if (length < 0) return;
    size_t written = (size_t)length < out->room ? (size_t)length : out->room - 1;
    out->at += written;
    out->room -= written;
}

/* --- what differs
 * ----------------------------------------------------------------------------------------------------- */

static void number_say(text *out, uint32_t *count, const char *name, uint64_t theirs, uint64_t ours)
{
    if (theirs == ours) return;
    say(out, "%sits %s is %llu, this one's %llu", (*count)++ ? "; " : "", name, (unsigned long long)theirs,
        (unsigned long long)ours);
}

static void word_say(text *out, uint32_t *count, const char *name, const char *theirs, const char *ours)
{
    if (!strcmp(theirs, ours)) return;
    say(out, "%sits %s is %.200s, this one's %.200s", (*count)++ ? "; " : "", name,
        *theirs ? theirs : "not given", *ours ? ours : "not given");
}

/* The keys of one value; how many of the rest are known to differ isn't counted. */
static void spec_say(text *out, uint32_t *count, const fby_subscription *theirs, const fby_subscription *ours)
{
    const fby_spec *other = theirs->spec, *own = ours->spec;
    uint32_t before = *count;
    number_say(out, count, "`ranks`", other->ranks, own->ranks);
    number_say(out, count, "batch size", other->batch_size, own->batch_size);
    number_say(out, count, "`drop_last`", other->drop_last, own->drop_last);
    word_say(out, count, "`order`", fby_order_names[other->order], fby_order_names[own->order]);
    number_say(out, count, "`seed`", other->seed, own->seed);
    number_say(out, count, "`augment_seed`", other->augment_seed, own->augment_seed);
    number_say(out, count, "`epochs` (0: without end)", other->epochs, own->epochs);
    number_say(out, count, "`steps_per_epoch`", other->steps_per_epoch, own->steps_per_epoch);
    number_say(out, count, "`window`", other->window, own->window);
    if (*count > before) return;
    bool same_output = fby_digest_equal(theirs->key, ours->key);
    say(out, "%sits %s differs", (*count)++ ? "; " : "", same_output ? "spec's text" : "pipeline");
}

static bool states_differ(const fby_subscription *one, const fby_subscription *other)
{
    if (!one->resumed || !other->resumed) return one->resumed != other->resumed;
    return one->resumed->identity.crew != other->resumed->identity.crew || one->again != other->again;
}

/* How two tasks differ, besides their ranks; the number of differences. */
static uint32_t difference_say(text *out, const fby_subscription *theirs, const fby_subscription *ours)
{
    uint32_t count = 0;
    word_say(out, &count, "job id", theirs->job, ours->job);
    word_say(out, &count, "name", theirs->spec->name, ours->spec->name);
    word_say(out, &count, "folder", theirs->base, ours->base);
    if (states_differ(theirs, ours))
        say(out, "%s%s", count++ ? "; " : "",
            !theirs->resumed ? "it begins anew, this one goes on from a state"
            : !ours->resumed ? "it goes on from a state, this one begins anew"
                             : "their states aren't of one run");
    if (theirs->text_hash != ours->text_hash) spec_say(out, &count, theirs, ours);
    return count;
}

/* --- who is missing
 * --------------------------------------------------------------------------------------------------- */

static bool waits(const fby_subscription *task)
{
    return task->crew && !task->closing && !task->failed && !fby_crew_is_whole(task->crew) &&
           !task->crew->broken;
}

/* Of the tasks that wait here too, the one that is most like this one; NULL: none has its name, or all else.
 */
static const fby_subscription *nearest_find(const fby_subscription *task)
{
    const fby_subscription *nearest = NULL;
    uint32_t fewest = UINT32_MAX;
    for (const fby_subscription *other = task->server->tasks; other; other = other->next) {
        if (other->source != task->source || other->crew == task->crew || !waits(other)) continue;
        char unread[1];
        uint32_t differences = difference_say(&(text){unread, sizeof unread}, other, task);
        bool same_name = !strcmp(other->spec->name, task->spec->name);
        if (!differences || (!same_name && differences > 1) || differences >= fewest) continue;
        nearest = other;
        fewest = differences;
    }
    return nearest;
}

static uint32_t missing_say(text *out, const fby_crew *crew)
{
    uint32_t missing = crew->ranks - crew->present, ranges = 0;
    say(out, missing == 1 ? "rank " : "ranks ");
    for (uint32_t rank = 0; rank < crew->ranks; rank++) {
        if (crew->of[rank]) continue;
        uint32_t last = rank;
        while (last + 1 < crew->ranks && !crew->of[last + 1]) last++;
        if (ranges == RANGES_MOST) say(out, ", ...");
        if (ranges < RANGES_MOST && last > rank) say(out, "%s%u-%u", ranges ? ", " : "", rank, last);
        if (ranges < RANGES_MOST && last == rank) say(out, "%s%u", ranges ? ", " : "", rank);
        ranges++;
        rank = last;
    }
    say(out, " of %u %s come", crew->ranks, missing == 1 ? "hasn't" : "haven't");
    return missing;
}

uint32_t fby_crew_awaits(const fby_subscription *task, char *buffer, size_t bytes)
{
    text out = {buffer, bytes};
    *buffer = 0;
    if (!waits(task)) return 0;
    uint32_t missing = missing_say(&out, task->crew);
    const fby_subscription *nearest = nearest_find(task);
    if (!nearest) return missing;
    say(&out, "; rank %u of another task waits here too, process %d: ", nearest->rank, nearest->process);
    difference_say(&out, nearest, task);
    return missing;
}
