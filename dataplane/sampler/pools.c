#include "dataplane/sampler/pools.h"

#include <forebay/error.h>
#include <string.h>
#include <sys/mman.h>

#include "dataplane/sampler/generator.h"

/* ---- A pool's tree. Its leaves are numbered from the left; all but the last are full. ---- */

/* Which child of an inner cell, so many levels above the leaves, leads to a leaf. */
static uint32_t child_of(uint32_t leaf_number, uint32_t level)
{
    return leaf_number >> (6 * (level - 1)) & (FBY_INNER_CHILDREN - 1);
}

static uint64_t leaves_below(uint32_t level)
{
    return UINT64_C(1) << (6 * level);
}

static uint32_t leaf_at(const fby_pools *pools, const fby_pool *pool, uint32_t number)
{
    uint32_t cell = pool->root;
    for (uint32_t level = pool->depth; level > 0; level--) {
        cell = fby_arena_at(&pools->inner, cell)[child_of(number, level)];
    }
    return cell;
}

/* Puts a leaf at place `number`, the first free one. */
static void leaf_push(fby_pools *pools, fby_pool *pool, uint32_t number, uint32_t leaf)
{
    pool->tail = leaf;
    if (number == 0) {
        pool->root = leaf;
        pool->depth = 0;
        return;
    }

    if (number >= leaves_below(pool->depth)) {
        uint32_t root = fby_arena_take(&pools->inner);
        fby_arena_at(&pools->inner, root)[0] = pool->root;
        pool->root = root;
        pool->depth++;
    }
    uint32_t cell = pool->root;
    for (uint32_t level = pool->depth; level > 1; level--) {
        uint32_t *child = fby_arena_at(&pools->inner, cell) + child_of(number, level);
        if (number % leaves_below(level - 1) == 0) *child = fby_arena_take(&pools->inner);
        cell = *child;
    }
    fby_arena_at(&pools->inner, cell)[child_of(number, 1)] = leaf;
}

/* Takes the last leaf, which is `number`, out of the tree; the leaf itself is the caller's. */
static void leaf_pop(fby_pools *pools, fby_pool *pool, uint32_t number)
{
    if (number == 0) {
        pool->root = pool->tail = FBY_NONE;
        return;
    }

    uint32_t cell = pool->root;
    for (uint32_t level = pool->depth; level > 0; level--) {
        uint32_t child = fby_arena_at(&pools->inner, cell)[child_of(number, level)];
        if (number % leaves_below(level) == 0) fby_arena_give(&pools->inner, cell);
        cell = child;
    }
    if (number == leaves_below(pool->depth - 1)) {
        uint32_t root = pool->root;
        pool->root = fby_arena_at(&pools->inner, root)[0];
        pool->depth--;
        fby_arena_give(&pools->inner, root);
    }
    pool->tail = leaf_at(pools, pool, number - 1);
}

static void append(fby_pools *pools, uint32_t to, uint32_t id)
{
    fby_pool *pool = &pools->pool[to];
    uint32_t slot = pool->count % FBY_LEAF_IDS;
    if (slot == 0) {
        uint32_t leaf = fby_arena_take(&pools->leaves);
        pools->owner[leaf] = to;
        leaf_push(pools, pool, pool->count / FBY_LEAF_IDS, leaf);
    }
    fby_arena_at(&pools->leaves, pool->tail)[slot] = id;
    pools->id[id].leaf = pool->tail;
    pool->count++;
}

/* Takes the id at a slot of one of the pool's leaves; the last one goes there. */
static uint32_t take(fby_pools *pools, uint32_t from, uint32_t leaf, uint32_t slot)
{
    fby_pool *pool = &pools->pool[from];
    uint32_t *ids = fby_arena_at(&pools->leaves, leaf);
    uint32_t tail = pool->tail, last_slot = (pool->count - 1) % FBY_LEAF_IDS;
    uint32_t id = ids[slot], last = fby_arena_at(&pools->leaves, tail)[last_slot];

    ids[slot] = last;
    pools->id[last].leaf = leaf;
    pool->count--;
    if (last_slot == 0) {
        leaf_pop(pools, pool, pool->count / FBY_LEAF_IDS);
        fby_arena_give(&pools->leaves, tail);
    }
    return id;
}

uint32_t fby_pools_at(const fby_pools *pools, uint32_t pool, uint32_t k)
{
    uint32_t leaf = leaf_at(pools, &pools->pool[pool], k / FBY_LEAF_IDS);
    return fby_arena_at(&pools->leaves, leaf)[k % FBY_LEAF_IDS];
}

uint32_t fby_pools_move(fby_pools *pools, uint32_t from, uint32_t k, uint32_t to)
{
    uint32_t leaf = leaf_at(pools, &pools->pool[from], k / FBY_LEAF_IDS);
    uint32_t id = take(pools, from, leaf, k % FBY_LEAF_IDS);
    append(pools, to, id);
    return id;
}

void fby_pools_move_id(fby_pools *pools, uint32_t id, uint32_t to)
{
    uint32_t leaf = pools->id[id].leaf, slot = 0;
    const uint32_t *ids = fby_arena_at(&pools->leaves, leaf);
    while (ids[slot] != id) slot++;
    append(pools, to, take(pools, pools->owner[leaf], leaf, slot));
}

/* Moves the last leaf of one pool, a full one, to another. */
static void move_leaf(fby_pools *pools, uint32_t from, uint32_t to)
{
    fby_pool *a = &pools->pool[from], *b = &pools->pool[to];
    uint32_t leaf = a->tail;
    a->count -= FBY_LEAF_IDS;
    leaf_pop(pools, a, a->count / FBY_LEAF_IDS);
    pools->owner[leaf] = to;

    /* The other's last leaf stays last unless it is full. */
    uint32_t number = b->count / FBY_LEAF_IDS, part = FBY_NONE;
    if (b->count % FBY_LEAF_IDS) {
        part = b->tail;
        leaf_pop(pools, b, number);
    }
    leaf_push(pools, b, number, leaf);
    if (part != FBY_NONE) leaf_push(pools, b, number + 1, part);
    b->count += FBY_LEAF_IDS;
}

/* ---- The array ordered by level. ---- */

static void place_set(fby_pools *pools, uint32_t place, uint32_t record, uint64_t mask, uint16_t stratum)
{
    pools->mask[place] = mask;
    pools->stratum[place] = stratum;
    pools->record[place] = record;
    pools->pool[record].place = place;
}

static void place_move(fby_pools *pools, uint32_t from, uint32_t to)
{
    if (from != to) place_set(pools, to, pools->record[from], pools->mask[from], pools->stratum[from]);
}

static void order_insert(fby_pools *pools, uint32_t record, uint32_t stratum, uint64_t mask)
{
    uint32_t level = (uint32_t)__builtin_popcountll(mask), hole = pools->count++;
    for (uint32_t lower = 0; lower < level; lower++) {
        uint32_t first = pools->end[lower + 1];
        pools->end[lower]++;
        place_move(pools, first, hole);
        hole = first;
    }
    pools->end[level]++;
    place_set(pools, hole, record, mask, (uint16_t)stratum);
}

static uint32_t level_of(const fby_pools *pools, uint32_t place)
{
    uint32_t level = 0;
    while (place < pools->end[level + 1]) level++;
    return level;
}

static void order_remove(fby_pools *pools, uint32_t record)
{
    uint32_t hole = pools->pool[record].place;
    for (uint32_t level = level_of(pools, hole) + 1; level-- > 0;) {
        uint32_t last = --pools->end[level];
        place_move(pools, last, hole);
        hole = last;
    }
    pools->count--;
}

/* Moves a pool down to the level that it belongs to. */
static void order_lower(fby_pools *pools, uint32_t record, uint32_t to)
{
    uint32_t place = pools->pool[record].place;
    uint64_t mask = pools->mask[place];
    uint16_t stratum = pools->stratum[place];
    for (uint32_t level = level_of(pools, place); level > to; level--) {
        uint32_t last = --pools->end[level];
        place_move(pools, last, place);
        place = last;
    }
    place_set(pools, place, record, mask, stratum);
}

/* Every mask may have one bit more than before. */
static void levels_rise(fby_pools *pools)
{
    for (uint32_t level = FBY_LEVELS - 1; level > 0; level--) pools->end[level] = pools->end[level - 1];
    pools->end[0] = pools->count;
}

/* ---- Keys. ---- */

static uint32_t hash_of(const fby_pools *pools, uint32_t stratum, uint64_t mask)
{
    const fby_stratum *s = &pools->strata.all[stratum];
    uint64_t relative = mask ^ (pools->polarity & s->members);
    return (uint32_t)fby_mix64(fby_mix64(relative) + s->tag);
}

/* Chains 0 … chain_count - 1: a hash belongs to the chain that its low bits name, one bit fewer where that
 * isn't there yet. */
static uint32_t chain_of(const fby_pools *pools, uint32_t hash)
{
    uint32_t mask = UINT32_MAX >> __builtin_clz(pools->chain_count | 1);
    uint32_t chain = hash & mask;
    return chain < pools->chain_count ? chain : chain & mask >> 1;
}

static void chain_link(fby_pools *pools, uint32_t record, uint32_t hash)
{
    uint32_t *chain = &pools->chains[chain_of(pools, hash)];
    pools->pool[record].hash = hash;
    pools->pool[record].next = *chain;
    *chain = record;
}

static void chain_unlink(fby_pools *pools, uint32_t record)
{
    uint32_t *link = &pools->chains[chain_of(pools, pools->pool[record].hash)];
    while (*link != record) link = &pools->pool[*link].next;
    *link = pools->pool[record].next;
}

/* Adds a chain, and moves there what belongs there now. */
static void chain_grow(fby_pools *pools)
{
    uint32_t added = pools->chain_count;
    uint32_t split = added & (UINT32_MAX >> __builtin_clz(added)) >> 1;
    pools->chains[added] = FBY_NONE;
    pools->chain_count++;

    uint32_t record = pools->chains[split];
    pools->chains[split] = FBY_NONE;
    while (record != FBY_NONE) {
        uint32_t next = pools->pool[record].next;
        chain_link(pools, record, pools->pool[record].hash);
        record = next;
    }
}

/* Another pool of this key than `but`, or FBY_NONE. */
static uint32_t chain_find(const fby_pools *pools, uint32_t hash, uint32_t stratum, uint64_t mask,
                           uint32_t but)
{
    uint32_t record = pools->chains[chain_of(pools, hash)];
    for (; record != FBY_NONE; record = pools->pool[record].next) {
        uint32_t place = pools->pool[record].place;
        if (pools->pool[record].hash != hash || record == but) continue;
        if (pools->mask[place] == mask && pools->stratum[place] == stratum) break;
    }
    return record;
}

uint32_t fby_pools_find(fby_pools *pools, uint32_t stratum, uint64_t mask)
{
    uint32_t hash = hash_of(pools, stratum, mask);
    uint32_t record = chain_find(pools, hash, stratum, mask, FBY_NONE);
    if (record != FBY_NONE) return record;

    record = pools->pool_free;
    if (record == FBY_NONE)
        record = pools->pool_used++;
    else
        pools->pool_free = pools->pool[record].next;
    pools->pool[record] = (fby_pool){.root = FBY_NONE, .tail = FBY_NONE};
    order_insert(pools, record, stratum, mask);
    if (pools->chain_count < pools->count) chain_grow(pools);
    chain_link(pools, record, hash);
    return record;
}

void fby_pools_tidy(fby_pools *pools, uint32_t pool)
{
    if (pools->pool[pool].count) return;
    chain_unlink(pools, pool);
    order_remove(pools, pool);
    pools->pool[pool].place = FBY_NONE;
    pools->pool[pool].next = pools->pool_free;
    pools->pool_free = pool;
}

/* ---- All pools at once: a pass over the masks, no more. ---- */

static void sweep_start(fby_pools *pools)
{
    if (!pools->sweep_left) pools->sweep_next = 0;
    pools->sweep_left = pools->pool_used;
}

/* Sets tasks' bits in all masks of their strata, where they were clear before, and says whether these are all
 * strata. */
static bool bits_set(fby_pools *pools, uint64_t tasks)
{
    fby_strata *strata = &pools->strata;
    uint64_t everywhere = tasks;
    for (uint32_t i = 0; i < strata->count; i++) everywhere &= strata->all[i].members;

    if (everywhere == tasks) {
        for (uint32_t i = 0; i < pools->count; i++) pools->mask[i] |= tasks;
    } else {
        for (uint32_t i = 0; i < pools->count; i++) {
            pools->mask[i] |= strata->all[pools->stratum[i]].members & tasks;
        }
    }
    pools->polarity ^= tasks;

    for (uint64_t left = tasks; left; left &= left - 1) {
        int task = __builtin_ctzll(left);
        levels_rise(pools);
        for (uint32_t i = 0; i < strata->count; i++) strata->all[i].got[task] = 0;
        strata->got[task] = 0;
    }
    strata->now++;
    return everywhere == tasks;
}

void fby_pools_need_all(fby_pools *pools, uint64_t tasks)
{
    if (!tasks) return;
    bool spare = false;
    for (uint64_t left = tasks; left; left &= left - 1) {
        int task = __builtin_ctzll(left);
        spare = spare || pools->strata.got[task] < pools->strata.wanted[task];
    }
    bool everywhere = bits_set(pools, tasks);
    if (spare || !everywhere) sweep_start(pools);
}

void fby_pools_need_none(fby_pools *pools, uint32_t task)
{
    fby_strata *strata = &pools->strata;
    if (strata->got[task] == strata->wanted[task]) return;

    uint64_t bit = UINT64_C(1) << task;
    for (uint32_t i = 0; i < pools->count; i++) pools->mask[i] &= ~bit;
    for (uint32_t i = 0; i < strata->count; i++) {
        if (strata->all[i].members & bit) strata->all[i].got[task] = (uint32_t)strata->all[i].size;
    }
    strata->got[task] = strata->wanted[task];
    sweep_start(pools);
}

void fby_pools_enter(fby_pools *pools, uint32_t task, uint64_t of)
{
    fby_strata *strata = &pools->strata;
    for (uint32_t i = 0; i < strata->count; i++) {
        if (of && !(strata->all[i].members & of)) continue;
        strata->all[i].members |= UINT64_C(1) << task;
        strata->wanted[task] += strata->all[i].size;
    }
    if (!bits_set(pools, UINT64_C(1) << task)) sweep_start(pools);
}

/* Strata that differed in a task that left become one, and those without ids go; pools are told the new
 * numbers. */
static void strata_compact(fby_pools *pools)
{
    fby_strata *strata = &pools->strata;
    uint16_t now[FBY_SAMPLER_STRATA];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < strata->count; i++) {
        fby_stratum *from = &strata->all[i];
        uint32_t to = 0;
        while (to < kept && strata->all[to].members != from->members) to++;
        now[i] = (uint16_t)to;
        if (from->size == 0) continue; /* no pool refers to it */

        if (to == kept) {
            strata->all[kept++] = *from;
            continue;
        }
        fby_stratum *into = &strata->all[to];
        into->size += from->size;
        for (uint32_t task = 0; task < FBY_SAMPLER_TASKS; task++) into->got[task] += from->got[task];
    }
    if (kept == strata->count) return;

    strata->count = kept;
    strata->now++;
    for (uint32_t i = 0; i < pools->count; i++) pools->stratum[i] = now[pools->stratum[i]];
    sweep_start(pools);
}

void fby_pools_leave(fby_pools *pools, uint32_t task)
{
    fby_strata *strata = &pools->strata;
    uint64_t bit = UINT64_C(1) << task;
    for (uint32_t i = 0; i < pools->count; i++) pools->mask[i] &= ~bit;
    for (uint32_t i = 0; i < strata->count; i++) {
        strata->all[i].members &= ~bit;
        strata->all[i].got[task] = 0;
    }
    pools->polarity &= ~bit;
    strata->got[task] = strata->wanted[task] = 0;
    strata->now++;
    strata_compact(pools);
    sweep_start(pools);
}

void fby_pools_drop_empty_strata(fby_pools *pools)
{
    strata_compact(pools);
}

/* ---- Joining pools of equal keys. ---- */

/* Moves all ids of one pool to another, within the budget: single ones until whole leaves are left. */
static void pour(fby_pools *pools, uint32_t from, uint32_t to, uint32_t *budget)
{
    fby_pool *pool = &pools->pool[from];
    while (pool->count && *budget) {
        if (pool->count % FBY_LEAF_IDS == 0)
            move_leaf(pools, from, to);
        else
            fby_pools_move(pools, from, pool->count - 1, to);
        --*budget;
    }
}

/* False where the budget ended first. */
static bool sweep_pool(fby_pools *pools, uint32_t record, uint32_t *budget)
{
    uint32_t place = pools->pool[record].place, stratum = pools->stratum[place];
    uint64_t mask = pools->mask[place];
    uint32_t hash = hash_of(pools, stratum, mask);
    uint32_t other;
    while ((other = chain_find(pools, hash, stratum, mask, record)) != FBY_NONE) {
        bool smaller = pools->pool[record].count <= pools->pool[other].count;
        uint32_t from = smaller ? record : other, to = smaller ? other : record;
        pour(pools, from, to, budget);
        if (pools->pool[from].count) return false;
        fby_pools_tidy(pools, from);
        if (smaller) return true;
    }

    if (pools->pool[record].hash != hash) {
        chain_unlink(pools, record);
        chain_link(pools, record, hash);
    }
    order_lower(pools, record, (uint32_t)__builtin_popcountll(mask));
    return true;
}

bool fby_pools_sweep(fby_pools *pools, uint32_t budget)
{
    while (pools->sweep_left && budget) {
        budget--;
        if (pools->sweep_next >= pools->pool_used) pools->sweep_next = 0;
        uint32_t record = pools->sweep_next;
        if (pools->pool[record].place != FBY_NONE && !sweep_pool(pools, record, &budget)) break;
        pools->sweep_next++;
        pools->sweep_left--;
    }
    return pools->sweep_left > 0;
}

/* ---- Life. ---- */

int fby_pools_create(fby_pools *pools, uint32_t ids)
{
    memset(pools, 0, sizeof *pools);
    uint64_t capacity =
        (uint64_t)ids + 2; /* every id a pool of its own, and the empty one that a call may make first */
    pools->ids = ids;
    pools->capacity = capacity < FBY_NONE ? (uint32_t)capacity : FBY_NONE - 1;
    pools->pool_free = FBY_NONE;

    pools->id = fby_reserve(ids * sizeof *pools->id);
    pools->pool = fby_reserve(pools->capacity * sizeof *pools->pool);
    pools->mask = fby_reserve(pools->capacity * sizeof *pools->mask);
    pools->record = fby_reserve(pools->capacity * sizeof *pools->record);
    pools->stratum = fby_reserve(pools->capacity * sizeof *pools->stratum);
    pools->chains = fby_reserve(pools->capacity * sizeof *pools->chains);
    uint64_t leaves = capacity + ids / FBY_LEAF_IDS;
    if (fby_arena_create(&pools->leaves, FBY_LEAF_IDS, leaves) ||
        fby_arena_create(&pools->inner, FBY_INNER_CHILDREN, leaves / 8 + 64)) {
        return FBY_ENOMEM;
    }
    pools->owner = fby_reserve(pools->leaves.capacity * sizeof *pools->owner);
    if (!pools->id || !pools->pool || !pools->mask || !pools->record || !pools->stratum || !pools->chains ||
        !pools->owner) {
        return FBY_ENOMEM;
    }

    /* The one array that is read and written at random and used in full. */
    madvise(pools->id, ids * sizeof *pools->id, MADV_HUGEPAGE);

    pools->chains[0] = FBY_NONE;
    pools->chain_count = 1;
    uint32_t stratum = fby_strata_find(&pools->strata, 0);
    pools->strata.all[stratum].size = ids;
    pools->strata.now = 1;
    uint32_t pool = fby_pools_find(pools, stratum, 0);
    for (uint32_t id = 0; id < ids; id++) append(pools, pool, id);
    return FBY_OK;
}

void fby_pools_destroy(fby_pools *pools)
{
    fby_unreserve(pools->id, pools->ids * sizeof *pools->id);
    fby_unreserve(pools->pool, pools->capacity * sizeof *pools->pool);
    fby_unreserve(pools->mask, pools->capacity * sizeof *pools->mask);
    fby_unreserve(pools->record, pools->capacity * sizeof *pools->record);
    fby_unreserve(pools->stratum, pools->capacity * sizeof *pools->stratum);
    fby_unreserve(pools->chains, pools->capacity * sizeof *pools->chains);
    fby_unreserve(pools->owner, pools->leaves.capacity * sizeof *pools->owner);
    fby_arena_destroy(&pools->leaves);
    fby_arena_destroy(&pools->inner);
}

uint64_t fby_pools_bytes(const fby_pools *pools)
{
    uint64_t per_pool =
        sizeof *pools->pool + sizeof *pools->mask + sizeof *pools->record + sizeof *pools->stratum;
    return sizeof *pools + pools->ids * sizeof *pools->id + pools->pool_used * per_pool +
           pools->chain_count * sizeof *pools->chains +
           pools->leaves.used * (uint64_t)(FBY_LEAF_IDS * sizeof(uint32_t) + sizeof *pools->owner) +
           pools->inner.used * (uint64_t)(FBY_INNER_CHILDREN * sizeof(uint32_t));
}
