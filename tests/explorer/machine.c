#include "tests/explorer/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

enum {
    LOCATIONS = 64,
    HISTORY = 64,
    OBJECTS = 64,
    EVENTS = 2,
    STEPS = 1000,
    STACK_BYTES = 64 * 1024,
    CLOCK_STEP_NS = 10,
    IDLE_PAUSES = 40, /* alone and reading nothing old: it spins for ever */
    TRACED_STEPS = 120,
};

/* What a role, or a message, knows: per location the oldest value that may still be read (a position in its
 * history), per role the step up to which everything happened before. */
typedef struct knowledge {
    uint8_t seen[LOCATIONS];
    uint32_t clock[EXPLORE_ROLES];
} knowledge;

typedef struct message {
    uint64_t value;
    knowledge carried; /* what a reader that acquires learns */
} message;

typedef struct location {
    const void *word;
    size_t bytes;
    int count;
    uint8_t futex_seen; /* what a waker of this word had seen of it */
    message history[HISTORY];
} location;

typedef struct object {
    const void *start;
    int writer; /* -1: only set-up */
    uint32_t written_at;
    uint32_t read_at[EXPLORE_ROLES];
} object;

typedef struct role {
    explore_state state;
    knowledge now;
    knowledge acquirable; /* read by relaxed loads: known after the next fence */
    knowledge released;   /* known at the last fence: carried by relaxed stores */
    const void *sleeps_on;
    bool has_deadline;
    bool expired; /* its deadline has passed, once and for all */
    bool timed_out;
    int idle_pauses, stale_reads_left, steps;
    ucontext_t context;
} role;

static struct machine {
    const explore_scenario *scenario;
    explore_chooser *choose;
    explore_bounds left;
    bool running, trace, killed;
    int current, steps, trace_from;
    role roles[EXPLORE_ROLES];
    int location_count, object_count;
    location locations[LOCATIONS];
    object objects[OBJECTS];
    uint8_t ordered[LOCATIONS]; /* the latest of each history in the total order of seq_cst operations */
    uint32_t events[EVENTS];
    uint64_t clock_ns;
    char violation[400];
    ucontext_t outside;
} machine;

static uint8_t stacks[EXPLORE_ROLES][STACK_BYTES] __attribute__((aligned(64)));

/* --- knowledge ------------------------------------------------------------------------------------------ */

static void seen_join(uint8_t *into, const uint8_t *from)
{
    for (int i = 0; i < machine.location_count; i++)
        if (into[i] < from[i]) into[i] = from[i];
}

static void knowledge_join(knowledge *into, const knowledge *from)
{
    seen_join(into->seen, from->seen);
    for (int i = 0; i < EXPLORE_ROLES; i++)
        if (into->clock[i] < from->clock[i]) into->clock[i] = from->clock[i];
}

static bool acquires(explore_order order)
{
    return order == EXPLORE_ACQUIRE || order == EXPLORE_ACQ_REL || order == EXPLORE_SEQ_CST;
}

static bool releases(explore_order order)
{
    return order == EXPLORE_RELEASE || order == EXPLORE_ACQ_REL || order == EXPLORE_SEQ_CST;
}

/* --- scheduling ----------------------------------------------------------------------------------------- */

static role *current_role(void)
{
    return &machine.roles[machine.current];
}

static void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void trace(const char *format, ...)
{
    if (!machine.trace || machine.steps < machine.trace_from) return;
    va_list arguments;
    va_start(arguments, format);
    printf("  role %d  ", machine.current);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

static void leave(void)
{
    role *me = current_role();
    swapcontext(&me->context, &machine.outside);
}

void explore_violation(const char *format, ...)
{
    if (machine.violation[0]) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(machine.violation, sizeof machine.violation, format, arguments);
    va_end(arguments);
    if (machine.running) leave();
}

static bool can_run(const role *it)
{
    return it->state == EXPLORE_RUNNING && !it->sleeps_on;
}

static bool can_time_out(const role *it)
{
    return it->state == EXPLORE_RUNNING && it->sleeps_on && it->has_deadline &&
           (it->expired || machine.left.deadlines > 0);
}

/* Hands over to a role that can run; with `stay` the current one may go on instead. Leaves the execution
 * when nobody can. */
static void hand_over(bool stay)
{
    int candidates[EXPLORE_ROLES], count = 0;
    if (stay) candidates[count++] = machine.current;
    if (!stay || machine.left.preemptions > 0) {
        for (int i = 1; i <= machine.scenario->roles; i++) {
            int other = (machine.current + i) % machine.scenario->roles;
            if (other == machine.current && stay) continue;
            if (can_run(&machine.roles[other]) || can_time_out(&machine.roles[other]))
                candidates[count++] = other;
        }
    }
    if (count == 0) {
        leave();
        return;
    }

    int chosen = count == 1 ? 0 : machine.choose(count, 4);
    if (stay && chosen > 0) machine.left.preemptions--;
    int next = candidates[chosen];
    role *to = &machine.roles[next], *from = current_role();
    if (can_time_out(to)) {
        if (!to->expired) machine.left.deadlines--;
        to->sleeps_on = NULL;
        to->expired = to->timed_out = true;
    }
    if (next == machine.current) return;
    machine.current = next;
    swapcontext(&from->context, &to->context);
}

/* Comes before every step of a role. */
static void step(void)
{
    hand_over(true);
    role *me = current_role();
    me->steps++;
    me->now.clock[machine.current]++;
    if (++machine.steps > STEPS) explore_violation("no end after %d steps", STEPS);

    if (machine.left.kills > 0 && machine.scenario->killable[machine.current] && machine.choose(2, 60)) {
        trace("is stopped for good");
        machine.left.kills--;
        machine.killed = true;
        me->state = EXPLORE_KILLED;
        hand_over(false);
    }
}

static void role_main(void)
{
    machine.scenario->role[machine.current]();
    trace("ends");
    current_role()->state = EXPLORE_ENDED;
    hand_over(false);
}

void explore_pause(void)
{
    if (!machine.running) return;
    role *me = current_role();
    for (int i = 1; i < machine.scenario->roles; i++) {
        int other = (machine.current + i) % machine.scenario->roles;
        if (!can_run(&machine.roles[other])) continue;

        /* Not a preemption, since the role asked for it, and no choice: an unfair one would never end. */
        me->idle_pauses = 0;
        machine.current = other;
        swapcontext(&me->context, &machine.roles[other].context);
        return;
    }

    if (me->stale_reads_left != machine.left.stale_reads) me->idle_pauses = 0;
    me->stale_reads_left = machine.left.stale_reads;
    if (++me->idle_pauses > IDLE_PAUSES) {
        me->state = EXPLORE_BLOCKED;
        hand_over(false);
    }
}

/* --- atomic operations ---------------------------------------------------------------------------------- */

static uint64_t memory_get(const void *word, size_t bytes)
{
    uint32_t narrow;
    uint64_t wide;
    if (bytes == sizeof narrow) {
        memcpy(&narrow, word, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, word, sizeof wide);
    return wide;
}

static void memory_set(void *word, uint64_t value, size_t bytes)
{
    uint32_t narrow = (uint32_t)value;
    memcpy(word, bytes == sizeof narrow ? (void *)&narrow : (void *)&value, bytes);
}

static uint64_t cut(uint64_t value, size_t bytes)
{
    return bytes == sizeof(uint32_t) ? (uint32_t)value : value;
}

static int location_of(const void *word, size_t bytes)
{
    for (int i = 0; i < machine.location_count; i++)
        if (machine.locations[i].word == word) return i;

    if (machine.location_count == LOCATIONS) {
        explore_violation("more than %d words: raise LOCATIONS", LOCATIONS);
        return 0;
    }
    int index = machine.location_count++;
    location *it = &machine.locations[index];
    it->word = word;
    it->bytes = bytes;
    it->count = 1;
    it->futex_seen = 0;
    it->history[0].value = memory_get(word, bytes);
    memset(&it->history[0].carried, 0, sizeof it->history[0].carried);
    machine.ordered[index] = 0;
    return index;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Learns what the message at `position` carries. */
static void learn(int index, int position, explore_order order)
{
    role *me = current_role();
    const message *read = &machine.locations[index].history[position];
    if (me->now.seen[index] < position) me->now.seen[index] = (uint8_t)position;
    knowledge_join(acquires(order) ? &me->now : &me->acquirable, &read->carried);
}

/* The position that a load reads: the latest, or an older one that nothing forbids. `needless` is a value
 * that only the latest position may have (a compare-and-swap that succeeds), or NULL. */
static int read_position(int index, explore_order order, const uint64_t *needless)
{
    const location *it = &machine.locations[index];
    int oldest = current_role()->now.seen[index];
    if (order == EXPLORE_SEQ_CST && oldest < machine.ordered[index]) oldest = machine.ordered[index];

    int latest = it->count - 1, options[HISTORY], count = 0;
    options[count++] = latest;
    if (machine.left.stale_reads > 0)
        for (int position = latest - 1; position >= oldest; position--)
            if (!needless || it->history[position].value != *needless) options[count++] = position;

    int chosen = count == 1 ? 0 : machine.choose(count, 3);
    if (chosen > 0) machine.left.stale_reads--;
    return options[chosen];
}

/* Appends a value; `follows` is the message that an update replaces (its knowledge goes on), or NULL. */
static void append(int index, uint64_t value, explore_order order, const message *follows)
{
    location *it = &machine.locations[index];
    role *me = current_role();
    if (it->count == HISTORY) {
        explore_violation("more than %d values of a word: raise HISTORY", HISTORY);
        return;
    }
    int position = it->count++;
    message *added = &it->history[position];
    added->value = value;
    me->now.seen[index] = (uint8_t)position;
    added->carried = releases(order) ? me->now : me->released;
    if (added->carried.seen[index] < position) added->carried.seen[index] = (uint8_t)position;
    if (follows) knowledge_join(&added->carried, &follows->carried);
    if (order == EXPLORE_SEQ_CST) machine.ordered[index] = (uint8_t)position;
    memory_set((void *)it->word, value, it->bytes);
}

uint64_t explore_load(explore_site *site, const void *word, size_t bytes)
{
    if (!machine.running) return memory_get(word, bytes);
    step();
    site->hits++;
    int index = location_of(word, bytes);
    int position = read_position(index, site->order, NULL);
    learn(index, position, site->order);
    const location *it = &machine.locations[index];
    trace("%s:%d  load %llu%s", base_name(site->file), site->line,
          (unsigned long long)it->history[position].value, position < it->count - 1 ? "  (stale)" : "");
    return it->history[position].value;
}

void explore_store(explore_site *site, void *word, uint64_t value, size_t bytes)
{
    value = cut(value, bytes);
    if (!machine.running) {
        memory_set(word, value, bytes);
        return;
    }
    step();
    site->hits++;
    trace("%s:%d  store %llu", base_name(site->file), site->line, (unsigned long long)value);
    append(location_of(word, bytes), value, site->order, NULL);
}

typedef enum update { EXCHANGE, ADD } update;

static uint64_t update_word(explore_site *site, void *word, update how, uint64_t operand, size_t bytes)
{
    if (!machine.running) {
        uint64_t before = memory_get(word, bytes);
        memory_set(word, how == ADD ? before + operand : operand, bytes);
        return before;
    }
    step();
    site->hits++;
    int index = location_of(word, bytes);
    int latest = machine.locations[index].count - 1;
    const message *replaced = &machine.locations[index].history[latest];
    uint64_t after = cut(how == ADD ? replaced->value + operand : operand, bytes);
    trace("%s:%d  update %llu to %llu", base_name(site->file), site->line,
          (unsigned long long)replaced->value, (unsigned long long)after);
    learn(index, latest, site->order);
    append(index, after, site->order, replaced);
    return replaced->value;
}

uint64_t explore_exchange(explore_site *site, void *word, uint64_t value, size_t bytes)
{
    return update_word(site, word, EXCHANGE, value, bytes);
}

uint64_t explore_fetch_add(explore_site *site, void *word, uint64_t value, size_t bytes)
{
    return update_word(site, word, ADD, value, bytes);
}

bool explore_compare_exchange(explore_site *site, void *word, void *expected, uint64_t value, size_t bytes)
{
    uint64_t wanted = memory_get(expected, bytes);
    if (!machine.running) {
        uint64_t found = memory_get(word, bytes);
        memory_set(found == wanted ? word : expected, found == wanted ? value : found, bytes);
        return found == wanted;
    }
    step();
    site->hits++;
    int index = location_of(word, bytes);
    int position = read_position(index, site->order, &wanted);
    const message *read = &machine.locations[index].history[position];
    learn(index, position, site->order);
    bool same = read->value == wanted;
    trace("%s:%d  compare %llu with %llu", base_name(site->file), site->line, (unsigned long long)read->value,
          (unsigned long long)wanted);
    if (same)
        append(index, cut(value, bytes), site->order, read);
    else
        memory_set(expected, read->value, bytes);
    return same;
}

void explore_fence(explore_site *site)
{
    if (!machine.running) return;
    step();
    site->hits++;
    role *me = current_role();
    trace("%s:%d  fence", base_name(site->file), site->line);
    if (acquires(site->order)) knowledge_join(&me->now, &me->acquirable);
    if (site->order == EXPLORE_SEQ_CST) {
        seen_join(me->now.seen, machine.ordered);
        seen_join(machine.ordered, me->now.seen);
    }
    if (releases(site->order)) me->released = me->now;
}

/* --- data ----------------------------------------------------------------------------------------------- */

static object *object_at(const void *start)
{
    for (int i = 0; i < machine.object_count; i++)
        if (machine.objects[i].start == start) return &machine.objects[i];

    if (machine.object_count == OBJECTS) {
        explore_violation("more than %d data objects: raise OBJECTS", OBJECTS);
        return &machine.objects[0];
    }
    object *it = &machine.objects[machine.object_count++];
    *it = (object){.start = start, .writer = -1};
    return it;
}

static bool write_is_known(const object *it)
{
    return it->writer < 0 || current_role()->now.clock[it->writer] >= it->written_at;
}

void explore_data_read(void *to, const void *shared, size_t bytes)
{
    if (machine.running) {
        step();
        object *it = object_at(shared);
        trace("reads data");
        if (!write_is_known(it))
            explore_violation("role %d reads data that role %d may be writing", machine.current, it->writer);
        it->read_at[machine.current] = current_role()->now.clock[machine.current];
    }
    memcpy(to, shared, bytes);
}

void explore_data_write(void *shared, const void *from, size_t bytes)
{
    if (machine.running) {
        step();
        object *it = object_at(shared);
        trace("writes data");
        if (!write_is_known(it))
            explore_violation("role %d writes data that role %d may be writing", machine.current, it->writer);
        for (int i = 0; i < machine.scenario->roles; i++)
            if (current_role()->now.clock[i] < it->read_at[i])
                explore_violation("role %d writes data that role %d may be reading", machine.current, i);
        it->writer = machine.current;
        it->written_at = current_role()->now.clock[machine.current];
    }
    memcpy(shared, from, bytes);
}

/* --- system calls -----------------------------------------------------------------------------------------
 */

/* Only what the manual promises: calls on one word are totally ordered, and comparing and falling asleep are
 * one step. No call is taken for a fence. */
int explore_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    step();
    role *me = current_role();
    int index = location_of(word, sizeof *word);
    location *it = &machine.locations[index];
    if (me->now.seen[index] < it->futex_seen) me->now.seen[index] = it->futex_seen;
    int position = read_position(index, EXPLORE_RELAXED, NULL);
    me->now.seen[index] = (uint8_t)position;
    if (it->history[position].value != expected) {
        trace("futex wait: the word is %llu", (unsigned long long)it->history[position].value);
        return EAGAIN;
    }
    trace("sleeps on a futex");
    me->sleeps_on = word;
    me->has_deadline = deadline_ns != UINT64_MAX;
    me->timed_out = false;
    hand_over(false);
    return me->timed_out ? ETIMEDOUT : 0;
}

void explore_futex_wake(uint32_t *word, uint32_t most)
{
    step();
    int index = location_of(word, sizeof *word);
    location *it = &machine.locations[index];
    if (it->futex_seen < current_role()->now.seen[index]) it->futex_seen = current_role()->now.seen[index];

    for (; most > 0; most--) {
        int sleepers[EXPLORE_ROLES], count = 0;
        for (int i = 0; i < machine.scenario->roles; i++)
            if (machine.roles[i].sleeps_on == word) sleepers[count++] = i;
        if (count == 0) return;

        int woken = sleepers[count == 1 ? 0 : machine.choose(count, 2)];
        trace("wakes role %d", woken);
        machine.roles[woken].sleeps_on = NULL;
    }
}

void explore_event_post(int event)
{
    step();
    trace("posts event %d", event);
    machine.events[event]++;
    for (int i = 0; i < machine.scenario->roles; i++)
        if (machine.roles[i].sleeps_on == &machine.events[event]) machine.roles[i].sleeps_on = NULL;
}

void explore_event_wait(int event)
{
    step();
    while (machine.events[event] == 0) {
        trace("sleeps on event %d", event);
        current_role()->sleeps_on = &machine.events[event];
        current_role()->has_deadline = false;
        hand_over(false);
    }
    machine.events[event] = 0;
}

uint64_t explore_clock(void)
{
    return machine.clock_ns += CLOCK_STEP_NS;
}

/* --- executions -------------------------------------------------------------------------------------------
 */

explore_state explore_state_of(int number)
{
    return machine.roles[number].state;
}

bool explore_any_killed(void)
{
    return machine.killed;
}

int explore_steps_of(int number)
{
    return machine.roles[number].steps;
}

static void start(int number)
{
    role *it = &machine.roles[number];
    it->state = EXPLORE_RUNNING;
    it->sleeps_on = NULL;
    it->idle_pauses = it->stale_reads_left = it->steps = 0;
    it->has_deadline = it->expired = it->timed_out = false;
    memset(&it->now, 0, sizeof it->now);
    memset(&it->acquirable, 0, sizeof it->acquirable);
    memset(&it->released, 0, sizeof it->released);
    getcontext(&it->context);
    it->context.uc_stack.ss_sp = stacks[number];
    it->context.uc_stack.ss_size = STACK_BYTES;
    it->context.uc_link = NULL;
    makecontext(&it->context, role_main, 0);
}

const char *explore_execute(const explore_scenario *scenario, const explore_bounds *bounds,
                            explore_chooser *choose, bool with_trace)
{
    machine.scenario = scenario;
    machine.choose = choose;
    machine.left = *bounds;
    machine.trace = with_trace;
    machine.trace_from = machine.steps - TRACED_STEPS; /* the same execution as the last */
    machine.killed = false;
    machine.steps = machine.location_count = machine.object_count = 0;
    machine.clock_ns = 0;
    machine.violation[0] = 0;
    memset(machine.events, 0, sizeof machine.events);
    scenario->set_up();
    for (int i = 0; i < scenario->roles; i++) start(i);

    machine.current = scenario->roles == 1 ? 0 : choose(scenario->roles, 2);
    machine.running = true;
    swapcontext(&machine.outside, &current_role()->context);
    machine.running = false;

    for (int i = 0; i < scenario->roles && !machine.violation[0]; i++) {
        role *it = &machine.roles[i];
        if (it->state == EXPLORE_RUNNING) it->state = EXPLORE_BLOCKED;
        if (it->state == EXPLORE_BLOCKED && !(machine.killed && scenario->may_starve[i]))
            explore_violation("role %d waits for ever", i);
    }
    if (!machine.violation[0] && scenario->check) scenario->check();
    return machine.violation[0] ? machine.violation : NULL;
}
