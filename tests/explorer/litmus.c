#include "tests/explorer/litmus.h"

static uint32_t x, y;
static uint32_t r0, r1, r2, r3;
static uint64_t data;

bool litmus_outcome;

static void clear(void)
{
    x = y = 0;
    r0 = r1 = r2 = r3 = 9;
    data = 0;
}

/* Store buffering: both read 0. */
#define STORE_BUFFERING(Name, Store, Between, Load)                                                          \
    static void Name##_0(void)                                                                               \
    {                                                                                                        \
        Store(&x, 1);                                                                                        \
        Between;                                                                                             \
        r0 = Load(&y);                                                                                       \
    }                                                                                                        \
    static void Name##_1(void)                                                                               \
    {                                                                                                        \
        Store(&y, 1);                                                                                        \
        Between;                                                                                             \
        r1 = Load(&x);                                                                                       \
    }

STORE_BUFFERING(sb_relaxed, fby_store_relaxed_u32, (void)0, fby_load_relaxed_u32)
STORE_BUFFERING(sb_release, fby_store_release_u32, (void)0, fby_load_acquire_u32)
STORE_BUFFERING(sb_half, fby_store_seq_cst_u32, (void)0, fby_load_acquire_u32)
STORE_BUFFERING(sb_fence, fby_store_relaxed_u32, fby_fence_seq_cst(), fby_load_relaxed_u32)
STORE_BUFFERING(sb_seq_cst, fby_store_seq_cst_u32, (void)0, fby_load_seq_cst_u32)
STORE_BUFFERING(sb_update, fby_exchange_seq_cst_u32, (void)0, fby_load_relaxed_u32)

static void both_zero(void)
{
    litmus_outcome |= r0 == 0 && r1 == 0;
}

/* Message passing: the flag is seen, what it publishes is not. */
#define MESSAGE_PASSING(Name, Store, Load)                                                                   \
    static void Name##_0(void)                                                                               \
    {                                                                                                        \
        fby_store_relaxed_u32(&x, 1);                                                                        \
        Store(&y, 1);                                                                                        \
    }                                                                                                        \
    static void Name##_1(void)                                                                               \
    {                                                                                                        \
        r0 = Load(&y);                                                                                       \
        r1 = fby_load_relaxed_u32(&x);                                                                       \
    }

MESSAGE_PASSING(mp_relaxed, fby_store_relaxed_u32, fby_load_acquire_u32)
MESSAGE_PASSING(mp_no_acquire, fby_store_release_u32, fby_load_relaxed_u32)
MESSAGE_PASSING(mp_release, fby_store_release_u32, fby_load_acquire_u32)

static void flag_without_message(void)
{
    litmus_outcome |= r0 == 1 && r1 == 0;
}

/* Coherence: one word read twice, the older value last. */
static void coherence_0(void)
{
    fby_store_relaxed_u32(&x, 1);
    fby_store_relaxed_u32(&x, 2);
}

static void coherence_1(void)
{
    r0 = fby_load_relaxed_u32(&x);
    r1 = fby_load_relaxed_u32(&x);
}

static void went_back(void)
{
    litmus_outcome |= r1 < r0;
}

/* Release sequence: an update by another role between release and acquire keeps the edge. */
static void sequence_0(void)
{
    const uint64_t one = 1;
    fby_data_write(&data, &one, sizeof one);
    fby_store_release_u32(&x, 1);
}

static void sequence_1(void)
{
    fby_fetch_add_relaxed_u32(&x, 10);
}

static void sequence_2(void)
{
    uint64_t value;
    if (fby_load_acquire_u32(&x) == 11) fby_data_read(&value, &data, sizeof value);
}

/* Two writers, two readers that disagree on who was first. */
static void write_x_release(void)
{
    fby_store_release_u32(&x, 1);
}

static void write_y_release(void)
{
    fby_store_release_u32(&y, 1);
}

static void write_x_seq_cst(void)
{
    fby_store_seq_cst_u32(&x, 1);
}

static void write_y_seq_cst(void)
{
    fby_store_seq_cst_u32(&y, 1);
}

#define READ_BOTH(Name, Load)                                                                                \
    static void Name##_x_first(void)                                                                         \
    {                                                                                                        \
        r0 = Load(&x);                                                                                       \
        r1 = Load(&y);                                                                                       \
    }                                                                                                        \
    static void Name##_y_first(void)                                                                         \
    {                                                                                                        \
        r2 = Load(&y);                                                                                       \
        r3 = Load(&x);                                                                                       \
    }

READ_BOTH(acquire, fby_load_acquire_u32)
READ_BOTH(seq_cst, fby_load_seq_cst_u32)

static void disagree(void)
{
    litmus_outcome |= r0 == 1 && r1 == 0 && r2 == 1 && r3 == 0;
}

#define BOUNDS .bounds = {6, 4, 0, 0}

const litmus litmus_tests[LITMUS_TESTS] = {
    {{"store buffering, relaxed", 2, clear, {sb_relaxed_0, sb_relaxed_1}, both_zero, BOUNDS}, true},
    {{"store buffering, release and acquire", 2, clear, {sb_release_0, sb_release_1}, both_zero, BOUNDS},
     true},
    {{"store buffering, seq_cst stores only", 2, clear, {sb_half_0, sb_half_1}, both_zero, BOUNDS}, true},
    {{"store buffering, seq_cst updates, relaxed loads",
      2,
      clear,
      {sb_update_0, sb_update_1},
      both_zero,
      BOUNDS},
     true},
    {{"store buffering, fences", 2, clear, {sb_fence_0, sb_fence_1}, both_zero, BOUNDS}, false},
    {{"store buffering, seq_cst", 2, clear, {sb_seq_cst_0, sb_seq_cst_1}, both_zero, BOUNDS}, false},
    {{"message passing, relaxed store", 2, clear, {mp_relaxed_0, mp_relaxed_1}, flag_without_message, BOUNDS},
     true},
    {{"message passing, relaxed load",
      2,
      clear,
      {mp_no_acquire_0, mp_no_acquire_1},
      flag_without_message,
      BOUNDS},
     true},
    {{"message passing, release and acquire",
      2,
      clear,
      {mp_release_0, mp_release_1},
      flag_without_message,
      BOUNDS},
     false},
    {{"coherence", 2, clear, {coherence_0, coherence_1}, went_back, BOUNDS}, false},
    {{"release sequence through an update", 3, clear, {sequence_0, sequence_1, sequence_2}, NULL, BOUNDS},
     false},
    {{"independent reads, acquire",
      4,
      clear,
      {write_x_release, write_y_release, acquire_x_first, acquire_y_first},
      disagree,
      BOUNDS},
     true},
    {{"independent reads, seq_cst",
      4,
      clear,
      {write_x_seq_cst, write_y_seq_cst, seq_cst_x_first, seq_cst_y_first},
      disagree,
      BOUNDS},
     false},
};
