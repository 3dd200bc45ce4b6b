/* A source's caches: one for each stage that some task has a cache at. The set-up thread makes them, counts
 * the tasks that use them, and forgets them; the conductor attaches them to plans, by what its tasks hold.
 *
 * A cache outlives its tasks, and so does its source: whoever comes next finds it full. It is forgotten when
 * memory is short and no task uses it, or the server ends. */
#include <forebay/forebay.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/server/internal.h"

/* Bytes that a cache can't need more than: all encoded samples, where it keeps those. */
static uint64_t bytes_most(const fby_dataset *dataset, uint32_t stage, uint64_t asked)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; stage == 0 && i < fby_dataset_count(dataset) && sum < asked; i++)
        sum += fby_kept_cost(fby_dataset_size(dataset, i));
    return stage == 0 && sum < asked ? sum : asked;
}

/* Beside `before` that it has. */
static int room_take(fby_subscription *task, uint64_t bytes, uint64_t before, fby_error *error)
{
    fby_server *server = task->server;
    if (fby_setup_budget_take(server, bytes)) return FBY_OK;
    uint64_t limit = server->budget.limit, used = __atomic_load_n(&server->budget.used, __ATOMIC_RELAXED);
    char more[64] = "";
    if (before)
        snprintf(more, sizeof more, " more than the %.1f MiB that it has", (double)before / (1 << 20));
    return fby_fail(
        error, FBY_ENOMEM,
        "%s: pipeline.cache needs %.1f MiB%s, but of the %.1f MiB that --memory allows %.1f MiB are "
        "free: raise --memory, or make the cache's memory smaller",
        task->spec->name, (double)bytes / (1 << 20), more, (double)limit / (1 << 20),
        (double)(limit > used ? limit - used : 0) / (1 << 20));
}

/* The source's cache at a stage, as large as is asked for. */
static int cache_open(fby_subscription *task, const fby_stage_info *stage, uint32_t number,
                      fby_source_cache **out, fby_error *error)
{
    fby_source *source = task->source;
    uint64_t count = fby_dataset_count(source->dataset),
             bytes = bytes_most(source->dataset, number, stage->cache_bytes);
    fby_source_cache *found = source->caches;
    while (found && !fby_digest_equal(found->key, stage->key)) found = found->next;
    *out = found;
    if (found) {
        if (found->bytes >= bytes) return FBY_OK;
        int status = room_take(task, bytes - found->bytes, found->bytes, error);
        if (status) return status;
        fby_cache_grow(found->cache, bytes - found->bytes);
        found->bytes = bytes;
        return FBY_OK;
    }
    int status = room_take(task, bytes + fby_cache_table_bytes(count), 0, error);
    if (status) return status;
    found = calloc(1, sizeof *found);
    status = found ? fby_cache_create(&found->cache, count, bytes, error)
                   : fby_fail(error, FBY_ENOMEM, "no memory for a cache");
    if (status) {
        free(found);
        fby_budget_give(&task->server->budget, bytes + fby_cache_table_bytes(count));
        return status;
    }
    found->key = stage->key;
    found->pack = stage->cache_pack;
    found->bytes = bytes;
    found->next = source->caches;
    source->caches = *out = found;
    return FBY_OK;
}

int fby_caches_enter(fby_subscription *task, const fby_plan *plan, fby_error *error)
{
    for (uint32_t i = 0; i < fby_plan_stages(plan); i++) {
        fby_stage_info stage;
        fby_plan_stage(plan, i, &stage);
        if (!stage.cache_bytes) continue;
        fby_source_cache **larger =
            realloc(task->caches, (task->cache_count + 1) * sizeof(fby_source_cache *));
        if (!larger) return fby_fail(error, FBY_ENOMEM, "no memory for a cache");
        task->caches = larger;
        int status = cache_open(task, &stage, i, &task->caches[task->cache_count], error);
        if (status) return status;
        task->caches[task->cache_count++]->users++;
    }
    return FBY_OK;
}

void fby_caches_leave(fby_subscription *task)
{
    for (uint32_t i = 0; i < task->cache_count; i++) task->caches[i]->users--;
    free(task->caches);
    task->caches = NULL;
    task->cache_count = 0;
}

bool fby_caches_forget(fby_source *source)
{
    bool any = false;
    for (fby_source_cache **link = &source->caches; *link;) {
        fby_source_cache *cache = *link;
        if (cache->users) {
            link = &cache->next;
            continue;
        }
        *link = cache->next;
        fby_budget_give(&source->server->budget,
                        cache->bytes + fby_cache_table_bytes(fby_dataset_count(source->dataset)));
        fby_cache_release(&cache->cache);
        free(cache);
        any = true;
    }
    return any;
}

void fby_caches_attach(const fby_source *source, fby_plan *plan)
{
    for (const fby_subscription *task = source->tasks; task; task = task->next_of_source)
        for (uint32_t k = 0; k < task->cache_count && task->joined; k++) {
            int32_t stage = fby_plan_stage_find(plan, task->caches[k]->key);
            if (stage >= 0)
                fby_plan_cache_attach(plan, (uint32_t)stage, task->caches[k]->cache, task->caches[k]->pack);
        }
}
