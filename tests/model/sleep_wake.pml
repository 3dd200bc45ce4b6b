/* Sleep and wake between a server and a client, both ways, as ringbuf/wait.c and spsc.c do it.
 *
 *   server: publishes `tail`, then reads `waiting`, then wakes the client's futex
 *   client: sets `waiting`, then reads `tail` again, then sleeps while the futex word is what it saw
 *   client: publishes `returned`, then reads `parked`, then posts the event
 *   server: sets `parked`, then reads `returned` again, then sleeps until the event is posted
 *
 * Every statement is one step and every step is seen by all: the model is of the protocol, under the
 * sequential consistency that its four accesses ask for (what weaker orders do is tests/explorer's part).
 * A missed wake is a deadlock: spin reports it as an invalid end state.
 *
 * Compiled with -DMUTATION=n, one step is out of order, and spin must find the deadlock:
 *   1  the server reads `waiting` before it publishes
 *   2  the client reads `tail` before it sets `waiting`, and sleeps without the kernel's comparison
 *   3  the client reads `parked` before it publishes
 *   4  the server reads `returned` before it sets `parked` */

#ifndef MUTATION
#define MUTATION 0
#endif

#define BLOCKS     2
#define DELIVERIES 4

byte tail = 0, returned = 0;           /* the published counters */
bool waiting = false, parked = false;  /* the flags */
bool futex_sleeps = false;             /* the kernel's queue for the word `tail` */
byte events = 0;                       /* the eventfd's counter */
byte delivered = 0, collected = 0, consumed = 0;

inline client_wake() {
    if
    :: flag -> futex_sleeps = false    /* FUTEX_WAKE: whoever sleeps goes on */
    :: else
    fi
}

inline conductor_wake() {
    if
    :: flag -> events = 1
    :: else
    fi
}

active proctype server() {
    bool flag;
    byte seen;

    do
    :: collected == DELIVERIES -> break
    :: collected < DELIVERIES ->
        if
        :: delivered < DELIVERIES && delivered - collected < BLOCKS ->
            delivered++;
#if MUTATION == 1
            flag = waiting;
            tail = delivered;
#else
            tail = delivered;
            flag = waiting;
#endif
            client_wake()
        :: else ->
            seen = returned;
            if
            :: seen != collected -> collected = seen
            :: else ->
#if MUTATION == 4
                seen = returned;
                parked = true;
#else
                parked = true;
                seen = returned;
#endif
                if
                :: seen != collected -> collected = seen
                :: else ->
                    atomic { events > 0 -> events = 0 }
                fi;
                parked = false
            fi
        fi;
        assert(collected <= delivered)
    od
}

active proctype client() {
    bool flag;
    byte seen;

    do
    :: consumed == DELIVERIES -> break
    :: consumed < DELIVERIES ->
        seen = tail;
        if
        :: seen != consumed ->
            assert(seen > consumed && seen - consumed <= BLOCKS);
            consumed++;
#if MUTATION == 3
            flag = parked;
            returned = consumed;
#else
            returned = consumed;
            flag = parked;
#endif
            conductor_wake()
        :: else ->
#if MUTATION == 2
            seen = tail;
            waiting = true;
#else
            waiting = true;
            seen = tail;
#endif
            do
            :: seen != consumed -> break
            :: else ->
                /* FUTEX_WAIT compares and falls asleep in one step. */
                atomic {
                    if
#if MUTATION == 2
                    :: true -> futex_sleeps = true
#else
                    :: tail == consumed -> futex_sleeps = true
                    :: else
#endif
                    fi
                };
                !futex_sleeps;
                seen = tail
            od;
            waiting = false
        fi
    od
}
