/* What `forebay status` and `forebay run` print: a JSON document. Times in seconds, sizes in bytes. */
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/server/internal.h"
#include "ringbuf/atomic.h"
#include "ringbuf/wait.h"

static json_t *count_of(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *seconds_of(uint64_t ns)
{
    return json_real((double)ns * 1e-9);
}

/* A path may hold any bytes; JSON holds UTF-8: what isn't is written as \xHH. */
static json_t *text_of(const char *text)
{
    json_t *plain = json_string(text);
    if (plain) return plain;
    char safe[4 * PATH_MAX + 1];
    size_t length = 0;
    for (; *text && length + 5 < sizeof safe; text++) {
        if ((unsigned char)*text >= 0x80 || (unsigned char)*text < 0x20)
            length += (size_t)snprintf(safe + length, 5, "\\x%02x", (unsigned char)*text);
        else
            safe[length++] = *text;
    }
    safe[length] = 0;
    return json_string(safe);
}

static uint64_t cpu_ns(const struct rusage *usage)
{
    return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000ull +
           (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000ull;
}

static json_t *engine_status(const fby_server *server)
{
    fby_engine_stats stats;
    fby_engine_get_stats(server->engine, &stats);
    json_t *engine = json_object();
    json_object_set_new(engine, "workers", count_of(stats.workers));
    json_object_set_new(engine, "readers", count_of(stats.readers));
    json_object_set_new(engine, "abandoned_workers", count_of(stats.abandoned));
    json_object_set_new(engine, "reader", text_of(fby_engine_reader_about(server->engine)));
    json_object_set_new(engine, "jpeg_entropy", json_string(fby_decode_entropy_about()));
    json_object_set_new(engine, "own_entropy_jpegs", count_of(stats.jpegs.own));
    json_object_set_new(engine, "own_entropy_declined", count_of(stats.jpegs.declined));
    json_object_set_new(engine, "worker_cpu_s", seconds_of(stats.worker_cpu_ns));
    json_object_set_new(engine, "reader_cpu_s", seconds_of(stats.reader_cpu_ns));
    json_object_set_new(engine, "decode_s", seconds_of(stats.decode_ns));
    json_object_set_new(engine, "transform_s", seconds_of(stats.transform_ns));
    json_object_set_new(engine, "samples", count_of(stats.samples));
    json_object_set_new(engine, "bad", count_of(stats.bad));
    json_object_set_new(engine, "files_read", count_of(stats.reader.files));
    json_object_set_new(engine, "unread", count_of(stats.unread));
    json_object_set_new(engine, "bytes_read", count_of(stats.reader.bytes));
    json_object_set_new(engine, "reader_system_calls", count_of(stats.reader.system_calls));
    json_object_set_new(engine, "read_retries", count_of(stats.reader.retries));
    json_object_set_new(engine, "read_waiting", count_of(stats.read_waiting));
    json_object_set_new(engine, "work_waiting", count_of(stats.work_waiting));
    json_object_set_new(engine, "buffer_bytes", count_of(stats.buffer_bytes));
    json_object_set_new(engine, "scratch_bytes", count_of(stats.scratch_bytes));
    return engine;
}

static json_t *bad_status(const fby_subscription *task)
{
    json_t *latest = json_array();
    uint64_t known = task->bad_total < BAD_REMEMBERED ? task->bad_total : BAD_REMEMBERED;
    for (uint64_t i = 0; i < known; i++) {
        const fby_bad_sample *bad = &task->bad[(task->bad_total - 1 - i) % BAD_REMEMBERED];
        json_t *entry = json_object();
        json_object_set_new(entry, "id", count_of(bad->id));
        json_object_set_new(entry, "path", text_of(fby_dataset_path(task->source->dataset, bad->id)));
        json_object_set_new(entry, "reason", json_string(fby_reason_name(bad->reason)));
        json_object_set_new(entry, "op", text_of(bad->op));
        json_object_set_new(entry, "text", text_of(bad->text));
        json_array_append_new(latest, entry);
    }
    json_t *status = json_object();
    json_object_set_new(status, "total", count_of(task->bad_total));
    json_object_set_new(status, "substituted", count_of(task->substituted));
    json_object_set_new(status, "latest", latest);
    return status;
}

/* What a source is called: tasks name it, and it stays the same as long as its data set. */
static json_t *source_id(const fby_source *source)
{
    char text[40];
    snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)source->fingerprint.high,
             (unsigned long long)source->fingerprint.low);
    return json_string(text);
}

/* Epochs that a task has been delivered, in full and in part. */
static double progress_of(const fby_subscription *task)
{
    return (double)task->epoch + (task->batches ? (double)task->batch / (double)task->batches : 0);
}

/* How many epochs a task is behind the one of its source that has come furthest. */
static double lag_of(const fby_subscription *task)
{
    double own = progress_of(task), most = own;
    for (const fby_subscription *other = task->source->tasks; other; other = other->next_of_source)
        if (other->joined && !other->failed && progress_of(other) > most) most = progress_of(other);
    return most - own;
}

/* Whether the task would do more steps if samples were emitted again, or kept: a line of advice, or null. */
static json_t *advice_of(const fby_subscription *task, double step_s, double batch_s)
{
    double ratio = step_s > 0 ? batch_s / step_s : 0;
    const fby_spec_echo *echo = &task->spec->echo;
    char text[200];
    if (ratio < 1.2 || (echo->kind && (!(echo->factor > 0) || echo->factor >= ratio - 0.2)))
        return json_null();
    snprintf(text, sizeof text, "making a batch takes %.1fx the step: echo up to %.0f%s%s", ratio,
             ratio < FBY_ECHO_MOST ? ratio : FBY_ECHO_MOST, echo->kind ? "" : ", before the augmentations",
             task->cache_count ? "" : "; or a cache, where the data set fits in memory");
    return json_string(text);
}

static json_t *echo_status(const fby_subscription *task)
{
    static const char *const kinds[] = {"none", "samples", "batches"};
    const fby_spec_echo *echo = &task->spec->echo;
    if (!echo->kind) return json_null();
    fby_echo_seat_stats stats = {0};
    if (task->echo) fby_echo_get_seat_stats(task->echo->echo, task->seat, &stats);
    uint64_t again = fby_batches_echo(task) ? task->again_batches * task->spec->batch_size : stats.again;
    uint64_t fresh = fby_batches_echo(task)
                         ? (task->delivered_batches - task->again_batches) * task->spec->batch_size
                         : stats.fresh;
    json_t *status = json_object();
    json_object_set_new(status, "of", json_string(kinds[echo->kind]));
    json_object_set_new(status, "factor", echo->factor > 0 ? json_real(echo->factor) : json_string("auto"));
    json_object_set_new(status, "max", json_real(echo->max));
    json_object_set_new(status, "steps_per_epoch",
                        task->spec->steps_per_epoch ? count_of(task->spec->steps_per_epoch) : json_null());
    json_object_set_new(status, "in_force", json_real(fresh ? (double)(fresh + again) / (double)fresh : 1));
    json_object_set_new(status, "fresh", count_of(fresh));
    json_object_set_new(status, "repeated", count_of(again));
    json_object_set_new(status, "buffer", count_of(echo->buffer));
    json_object_set_new(status, "buffered",
                        count_of(fby_batches_echo(task) ? task->kept_count : stats.items));
    json_object_set_new(status, "owed", count_of(stats.owed));
    json_object_set_new(status, "dropped", count_of(stats.dropped));
    return status;
}

/* The ranks of its task that haven't come, by number. */
static json_t *missing_status(const fby_subscription *task)
{
    json_t *missing = json_array();
    if (!task->crew || fby_crew_is_whole(task->crew)) return missing;
    for (uint32_t rank = 0; rank < task->crew->ranks; rank++)
        if (!task->crew->of[rank]) json_array_append_new(missing, count_of(rank));
    return missing;
}

static json_t *awaits_status(const fby_subscription *task)
{
    char text[FBY_ERROR_TEXT];
    return fby_crew_awaits(task, text, sizeof text) ? text_of(text) : json_null();
}

static json_t *task_status(const fby_subscription *task, uint64_t now)
{
    fby_sampler_stats sampler;
    fby_sampler_get_stats(task->source->sampler, &sampler);
    json_t *dataset = json_object();
    json_object_set_new(dataset, "root", text_of(fby_dataset_root(task->source->dataset)));
    json_object_set_new(dataset, "samples", count_of(fby_dataset_count(task->source->dataset)));
    json_object_set_new(dataset, "classes", count_of(fby_dataset_classes(task->source->dataset)));
    json_object_set_new(dataset, "left_out", count_of(fby_dataset_left_out(task->source->dataset)));
    json_object_set_new(dataset, "index_from_cache",
                        json_boolean(fby_dataset_from_cache(task->source->dataset)));

    json_t *status = json_object();
    json_object_set_new(status, "number", count_of(task->number));
    json_object_set_new(status, "name", text_of(task->spec->name));
    json_object_set_new(status, "pid", count_of(task->session ? (uint64_t)task->session->peer.pid : 0));
    json_object_set_new(status, "order", json_string(fby_order_names[task->spec->order]));
    json_object_set_new(status, "dataset", dataset);
    json_object_set_new(status, "source", source_id(task->source));
    json_object_set_new(status, "rank", count_of(task->rank));
    json_object_set_new(status, "ranks", count_of(task->spec->ranks));
    json_object_set_new(status, "job", *task->job ? text_of(task->job) : json_null());
    json_object_set_new(status, "missing_ranks", missing_status(task));
    json_object_set_new(status, "awaits", awaits_status(task));
    json_object_set_new(status, "batch", count_of(task->spec->batch_size));
    json_object_set_new(status, "window", count_of(task->window));
    json_object_set_new(status, "batches_per_epoch", count_of(task->batches));
    json_object_set_new(status, "epoch", count_of(task->epoch));
    json_object_set_new(status, "batch_of_epoch", count_of(task->batch));
    json_object_set_new(status, "age_s", seconds_of(now - task->opened_ns));
    json_object_set_new(
        status, "samples_per_s",
        json_real((double)task->delivered_samples / ((double)(now - task->opened_ns) * 1e-9 + 1e-9)));
    json_object_set_new(status, "delivered_samples", count_of(task->delivered_samples));
    json_object_set_new(status, "delivered_batches", count_of(task->delivered_batches));
    json_object_set_new(status, "contiguous_batches", count_of(task->contiguous_batches));
    json_object_set_new(status, "contiguous_share",
                        json_real(task->delivered_batches
                                      ? (double)task->contiguous_batches / (double)task->delivered_batches
                                      : 0));
    json_object_set_new(status, "lag_epochs", json_real(lag_of(task)));
    json_object_set_new(status, "held_samples", count_of(task->held_samples));
    json_object_set_new(status, "held_batches",
                        count_of((task->held_samples + task->spec->batch_size - 1) / task->spec->batch_size));
    json_object_set_new(status, "pending_draws", count_of(task->pending_count));
    json_object_set_new(status, "draws", count_of(sampler.draws));
    json_object_set_new(status, "drawn", count_of(sampler.drawn));
    json_object_set_new(status, "shared_bytes", count_of(task->shared_bytes));
    double step_s = fby_pace_step_s(task, now), batch_s = fby_pace_batch_s(task);
    json_object_set_new(status, "step_s", json_real(step_s));
    json_object_set_new(status, "upstream_batch_s", json_real(batch_s));
    json_object_set_new(status, "upstream_per_step", json_real(step_s > 0 ? batch_s / step_s : 0));
    json_object_set_new(status, "advice", advice_of(task, step_s, batch_s));
    json_object_set_new(status, "echo", echo_status(task));
    json_object_set_new(status, "bad", bad_status(task));
    json_object_set_new(status, "failed", task->failed ? text_of(task->failure.text) : json_null());
    return status;
}

/* The tasks that pass a stage of the plan of now. */
static json_t *passing_status(const fby_source *source, uint64_t branches)
{
    json_t *tasks = json_array();
    for (const fby_subscription *task = source->tasks; task; task = task->next_of_source)
        if (task->joined && branches >> task->group->branch & 1)
            json_array_append_new(tasks, count_of(task->number));
    return tasks;
}

static json_t *stage_status(const fby_source *source, uint32_t number, double age_s, uint64_t all_cpu_ns)
{
    fby_stage_info info;
    fby_stage_cost cost;
    fby_plan_stage(source->plan, number, &info);
    fby_plan_stage_cost(source->plan, number, &cost);
    /* It may have grown since all were added up. */
    double share = cost.cpu_ns < all_cpu_ns ? (double)cost.cpu_ns / (double)all_cpu_ns : cost.cpu_ns > 0;
    json_t *stage = json_object();
    json_object_set_new(stage, "op", text_of(info.op));
    json_object_set_new(stage, "params", text_of(info.params));
    json_object_set_new(stage, "parent", json_integer(info.parent));
    json_object_set_new(stage, "random", json_boolean(info.random));
    json_object_set_new(stage, "tasks", passing_status(source, info.branches));
    json_object_set_new(stage, "ends", passing_status(source, info.ends));
    json_object_set_new(stage, "samples", count_of(cost.samples));
    json_object_set_new(stage, "samples_per_s", json_real((double)cost.samples / age_s));
    json_object_set_new(stage, "cpu_s", seconds_of(cost.cpu_ns));
    json_object_set_new(stage, "cpu_share", json_real(share));
    return stage;
}

/* What the source's plan has done since it was made, which it is anew whenever a task comes or goes. */
static json_t *graph_status(const fby_source *source)
{
    if (!source->plan) return json_null();
    double age_s = (double)fby_plan_age_ns(source->plan) * 1e-9 + 1e-9;
    json_t *graph = json_object(), *stages = json_array();
    uint32_t count = fby_plan_stages(source->plan);
    uint64_t all_cpu_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        fby_stage_cost cost;
        fby_plan_stage_cost(source->plan, i, &cost);
        all_cpu_ns += cost.cpu_ns;
    }
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(stages, stage_status(source, i, age_s, all_cpu_ns));
    json_object_set_new(graph, "age_s", json_real(age_s));
    json_object_set_new(graph, "stages", stages);
    return graph;
}

static uint64_t segments_bytes(const fby_source *source)
{
    uint64_t bytes = 0;
    for (const fby_group *group = source->groups; group; group = group->next)
        for (const fby_store *store = group->stores; store; store = store->next) bytes += store->bytes;
    for (const fby_store *store = source->gone; store; store = store->next) bytes += store->bytes;
    return bytes;
}

/* The caches that its tasks have, each once. */
static json_t *caches_status(const fby_source *source)
{
    static const char *const packs[] = {"none", "fast", "small"};
    json_t *list = json_array();
    fby_source_cache *seen[FBY_SEATS * 4];
    uint32_t count = 0;
    for (const fby_subscription *task = source->tasks; task; task = task->next_of_source)
        for (uint32_t k = 0; k < task->cache_count && count < FBY_SEATS * 4; k++) {
            uint32_t i = 0;
            while (i < count && seen[i] != task->caches[k]) i++;
            if (i == count) seen[count++] = task->caches[k];
        }
    for (uint32_t i = 0; i < count; i++) {
        fby_cache_stats stats;
        fby_cache_get_stats(seen[i]->cache, &stats);
        fby_stage_info info = {.op = ""};
        int32_t stage = source->plan ? fby_plan_stage_find(source->plan, seen[i]->key) : -1;
        if (stage >= 0) fby_plan_stage(source->plan, (uint32_t)stage, &info);
        json_t *entry = json_object();
        json_object_set_new(entry, "after", text_of(info.op));
        json_object_set_new(entry, "stage", json_integer(stage));
        json_object_set_new(entry, "pack", json_string(packs[seen[i]->pack]));
        json_object_set_new(entry, "limit", count_of(stats.limit));
        json_object_set_new(entry, "bytes", count_of(stats.bytes));
        json_object_set_new(entry, "samples", count_of(stats.samples));
        json_object_set_new(entry, "hits", count_of(stats.hits));
        json_object_set_new(entry, "misses", count_of(stats.misses));
        json_array_append_new(list, entry);
    }
    return list;
}

static json_t *source_status(const fby_source *source)
{
    fby_sampler_stats sampler;
    fby_sampler_get_stats(source->sampler, &sampler);
    json_t *status = json_object(), *numbers = json_array();
    for (const fby_subscription *task = source->tasks; task; task = task->next_of_source)
        if (!task->closing) json_array_append_new(numbers, count_of(task->number));
    json_object_set_new(status, "source", source_id(source));
    json_object_set_new(status, "root", text_of(fby_dataset_root(source->dataset)));
    json_object_set_new(status, "samples", count_of(fby_dataset_count(source->dataset)));
    json_object_set_new(status, "tasks", numbers);
    json_object_set_new(status, "draws", count_of(sampler.draws));
    json_object_set_new(status, "drawn", count_of(sampler.drawn));
    json_object_set_new(status, "delivered", count_of(sampler.delivered));
    json_object_set_new(status, "share_factor",
                        json_real(sampler.drawn ? (double)sampler.delivered / (double)sampler.drawn : 0));
    json_object_set_new(status, "again_draws", count_of(source->again_draws));
    json_object_set_new(status, "again_samples", count_of(source->again_samples));
    json_object_set_new(status, "caches", caches_status(source));
    json_object_set_new(status, "segment_bytes", count_of(segments_bytes(source)));
    json_object_set_new(status, "graph", graph_status(source));
    return status;
}

json_t *fby_server_status(fby_server *server)
{
    uint64_t now = fby_now_ns();
    struct rusage process, thread;
    getrusage(RUSAGE_SELF, &process);
    getrusage(RUSAGE_THREAD, &thread);
    json_t *memory = json_object(), *conductor = json_object(), *tasks = json_array(),
           *sources = json_array(), *status = json_object();
    json_object_set_new(memory, "limit", count_of(server->budget.limit));
    json_object_set_new(memory, "used", count_of(fby_load_relaxed_u64(&server->budget.used)));
    json_object_set_new(memory, "resident_peak", count_of((uint64_t)process.ru_maxrss * 1024));
    json_object_set_new(conductor, "cpu_s", seconds_of(cpu_ns(&thread)));
    json_object_set_new(conductor, "rounds", count_of(server->rounds));
    json_object_set_new(conductor, "sleeps", count_of(server->sleeps));
    for (const fby_subscription *task = server->tasks; task; task = task->next)
        if (!task->closing) json_array_append_new(tasks, task_status(task, now));
    for (const fby_source *source = server->sources; source; source = source->next)
        json_array_append_new(sources, source_status(source));
    json_object_set_new(status, "version", json_string(FBY_VERSION_TEXT));
    json_object_set_new(status, "pid", count_of((uint64_t)getpid()));
    json_object_set_new(status, "socket", text_of(server->options.socket));
    json_object_set_new(status, "embedded", json_boolean(server->options.embedded));
    json_object_set_new(status, "uptime_s", seconds_of(now - server->started_ns));
    json_object_set_new(status, "cpu_s", seconds_of(cpu_ns(&process)));
    json_object_set_new(status, "cpus", count_of(fby_cpus_count(&server->cpus)));
    json_object_set_new(status, "numa_nodes", count_of(fby_topology_nodes(server->topology)));
    json_object_set_new(status, "disconnected", count_of(server->disconnected));
    json_object_set_new(status, "memory", memory);
    json_object_set_new(status, "conductor", conductor);
    json_object_set_new(status, "engine", engine_status(server));
    json_object_set_new(status, "tasks", tasks);
    json_object_set_new(status, "sources", sources);
    json_object_set_new(status, "audit", fby_server_audit(server));
    return status;
}
