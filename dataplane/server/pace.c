/* What a task's trainer and its upstream take: their ratio says whether emitting samples again would help.
 *
 * A step is what passes between batches while the client doesn't wait for one; how long it waited is its own
 * word, so that a false one makes its own figures wrong and nothing else. What upstream takes is the time
 * with fresh samples on their way, over what came of it: as long as there is always something on its way,
 * that is what the source can do. */
#include "dataplane/server/internal.h"
#include "ringbuf/atomic.h"

static const uint64_t PACE_NS = 5000 * 1000 * 1000ull;

void fby_pace_made(fby_source *source, bool back, uint32_t samples)
{
    uint64_t now = fby_now_ns();
    if (source->fresh_out) source->made.busy_ns += now - source->busy_since_ns;
    source->busy_since_ns = now;
    if (!back) {
        source->fresh_out++;
        return;
    }
    source->fresh_out--;
    source->made.samples += samples;
}

static fby_pace pace_of(const fby_subscription *task, uint64_t now_ns)
{
    const fby_up_words *up = task->up.base;
    return (fby_pace){now_ns, fby_load_relaxed_u64(&up->waited_ns), task->returned_samples}; /* for show */
}

void fby_pace_step(fby_server *server, uint64_t now_ns)
{
    for (fby_subscription *task = server->tasks; task; task = task->next) {
        if (now_ns - task->pace_next.at_ns < PACE_NS) continue;
        task->pace = task->pace_next;
        task->pace_next = pace_of(task, now_ns);
    }
}

double fby_pace_step_s(const fby_subscription *task, uint64_t now_ns)
{
    const fby_pace *from = task->pace.at_ns ? &task->pace : &task->pace_next;
    fby_pace to = pace_of(task, now_ns);
    uint64_t returned = to.returned - from->returned, waited = to.waited_ns - from->waited_ns;
    if (!from->at_ns || returned < task->spec->batch_size || waited > now_ns - from->at_ns) return 0;
    return (double)(now_ns - from->at_ns - waited) * 1e-9 * task->spec->batch_size / (double)returned;
}

double fby_pace_batch_s(const fby_subscription *task)
{
    const fby_made *made = &task->source->made;
    if (made->samples < task->spec->batch_size) return 0;
    return (double)made->busy_ns * 1e-9 * task->spec->batch_size / (double)made->samples;
}
