// SPDX-License-Identifier: MIT
// Collects counts, lags and rates of all transports, for `skirnir stats` and
// the metrics.

#include "app/parts/stats.h"

#include "app/drivers.h"
#include "app/parts/failed.h"
#include "app/parts/transports.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FAILED = 10000 };

static enum skr_code
read_table(struct skr_transport_stats *stats, struct skr_error *error)
{
    const struct skr_config_transport *transport = stats->transport;
    const struct skr_queue_place place = {
        .table = transport->table_name,
        .queue = transport->queue_name,
        .redeliver_timeout_s = transport->redeliver_timeout_s,
        .time_zone = transport->time_zone,
    };
    struct skr_db *db = NULL;
    enum skr_code code =
        skr_transport_open_database(transport->database, &db, error);
    if (code == SKR_OK)
        code = skr_queue_count(db, &place, &stats->counts, error);
    if (code == SKR_MISSING)
        code =
            skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                     "there is no table %s; run `skirnir setup`", place.table);
    stats->has_counts = code == SKR_OK;
    bool is_outbox = transport->kind == SKR_TRANSPORT_OUTBOX;
    if (code == SKR_OK && is_outbox)
        code = skr_queue_holder(db, &place, stats->holder, error);
    if (code == SKR_OK)
        code = skr_queue_attendance(
            db, &place, is_outbox ? SKR_ATTEND_WAITING : SKR_ATTEND_CONSUMING,
            &stats->attendance, error);
    skr_db_close(db);
    return code;
}

// Whether rows of others are in its table: a count of the whole table includes
// those.
static bool
shares_table(const struct skr_config *config,
             const struct skr_config_transport *transport)
{
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *other = &config->transports[i];
        if (other != transport && other->database != NULL &&
            strcmp(other->database->url, transport->database->url) == 0 &&
            strcmp(other->table_name, transport->table_name) == 0)
            return true;
    }
    return false;
}

static void
find_totals(struct skr_transport_stats *stats, const struct skr_config *config)
{
    const struct skr_queue_counts *counts = &stats->counts;
    if (stats->has_depth) {
        stats->has_written = stats->depth.has_written;
        stats->has_taken = stats->depth.has_taken;
        stats->written = stats->depth.written;
        stats->taken = stats->depth.taken;
    } else if (stats->has_counts && counts->written >= counts->depth &&
               counts->written > 0 && !counts->depth_is_estimate &&
               !shares_table(config, stats->transport)) {
        stats->has_written = stats->has_taken = true;
        stats->written = counts->written;
        stats->taken = counts->written - counts->depth;
    }
}

// What a consumer has put off.
static enum skr_code
read_retries(struct skr_transport_stats *stats, const struct skr_config *config,
             struct skr_error *error)
{
    struct skr_failed_place failed = skr_transport_failed_place(config);
    const struct skr_config_database *database =
        failed.database != NULL ? failed.database : config->inbox_database;
    struct skr_db *db = NULL;
    struct skr_queue_counts counts;
    char *queue = NULL;
    if (database == NULL)
        return SKR_OK;
    if (asprintf(&queue, "%s.retry", stats->transport->name) < 0)
        return skr_fail_memory(error);
    const struct skr_queue_place place = {
        .table = failed.table, .queue = queue, .time_zone = failed.time_zone};
    enum skr_code code = skr_transport_open_database(database, &db, error);
    if (code == SKR_OK)
        code = skr_queue_count(db, &place, &counts, error);
    if (code == SKR_OK)
        stats->retries = counts.depth;
    skr_db_close(db);
    free(queue);
    return code == SKR_MISSING ? SKR_OK : code;
}

static enum skr_code
read_broker(struct skr_transport_stats *stats, const struct skr_app *app,
            const struct skr_config *config, struct skr_error *error)
{
    const struct skr_config_transport *transport = stats->transport;
    const struct skr_broker_ops *ops =
        skr_driver_find_broker(transport->scheme);
    char *url = NULL;
    struct skr_broker *broker = NULL;
    enum skr_code code = read_retries(stats, config, error);
    if (code != SKR_OK || ops == NULL || ops->depth == NULL)
        return code;
    code = skr_config_broker_url(transport, &url, error);
    if (code == SKR_OK) {
        const struct skr_broker_options options = {
            .url = url, .inspects = true, .wake_fd = -1, .log = app->log};
        code = skr_broker_open(ops, &options, &broker, error);
    }
    if (code == SKR_OK)
        code = broker->ops->depth(broker, &stats->depth, error);
    stats->has_depth = code == SKR_OK;
    skr_broker_close(broker);
    free(url);
    return code;
}

// What stands behind a blocked head cannot be taken.
static void
leave_out_blocked(struct skr_queue_counts *counts,
                  const struct skr_partition_stats *partitions)
{
    uint64_t heads = partitions->blocked_count;
    uint64_t behind =
        partitions->waiting > heads ? partitions->waiting - heads : 0;
    counts->due = counts->due > behind ? counts->due - behind : 0;
}

static void
read_one(struct skr_transport_stats *stats, const struct skr_app *app,
         const struct skr_config *config)
{
    struct skr_error error = {0};
    enum skr_code code = SKR_OK;
    stats->is_failure = skr_transport_is_failure(config, stats->transport);
    if (stats->is_failure)
        return;
    switch (stats->transport->kind) {
    case SKR_TRANSPORT_OUTBOX:
    case SKR_TRANSPORT_QUEUE:
        code = read_table(stats, &error);
        if (code == SKR_OK && stats->transport->is_ordered)
            code = skr_partition_stats_read(config, stats->transport,
                                            &stats->partitions, &error);
        if (stats->partitions != NULL)
            leave_out_blocked(&stats->counts, stats->partitions);
        break;
    case SKR_TRANSPORT_OTHER:
        code = read_broker(stats, app, config, &error);
        break;
    }
    if (code != SKR_OK)
        stats->trouble = error;
    find_totals(stats, config);
}

struct counting {
    struct skr_stats *stats;
    const struct skr_config *config;
};

static enum skr_code
count_failed(const struct skr_failed_found *found, void *user,
             struct skr_error *error)
{
    const struct counting *counting = user;
    const struct skr_config_transport *unused = NULL;
    struct skr_stats *stats = counting->stats;
    const char *name = found->report->transport;
    (void)error;
    if (stats->failed == MOST_FAILED) {
        stats->failed_is_estimate = true;
        return SKR_STOPPED;
    }
    stats->failed++;
    stats->strayed +=
        name == NULL || skr_config_find_transport(counting->config, name,
                                                  &unused, NULL) != SKR_OK;
    for (size_t i = 0; i < stats->count && name != NULL; i++)
        if (strcmp(stats->items[i].transport->name, name) == 0)
            stats->items[i].failed++;
    return SKR_OK;
}

// Each failed row says in its headers where it comes from. Without the tables
// there are none.
static void
read_failed(struct skr_stats *stats, const struct skr_config *config)
{
    struct skr_failed_session session;
    struct skr_error error = {0};
    const struct skr_failed_filter all = {.max = 0};
    struct counting counting = {.stats = stats, .config = config};
    enum skr_code code = skr_failed_open(&session, config, NULL, &error);
    if (code == SKR_OK) {
        code = skr_failed_each(&session, &all, true, count_failed, &counting,
                               &error);
        skr_failed_close(&session);
    }
    bool is_told = code == SKR_OK || code == SKR_MISSING;
    if (!is_told)
        stats->failed_trouble = error;
    for (size_t i = 0; i < stats->count; i++) {
        struct skr_transport_stats *item = &stats->items[i];
        item->has_failed = is_told;
        item->failed_is_estimate = stats->failed_is_estimate;
        if (!item->is_failure)
            continue;
        item->trouble = stats->failed_trouble;
        item->failed = stats->failed;
        item->has_depth = is_told;
        item->depth =
            (struct skr_depth){.has_messages = true, .messages = stats->failed};
    }
}

static bool
is_wanted(const struct skr_config *config,
          const struct skr_config_transport *transport, const char *const *only,
          size_t only_count)
{
    for (size_t i = 0; i < only_count; i++)
        if (strcmp(only[i], transport->name) == 0)
            return true;
    return only_count == 0 && !skr_transport_is_failure(config, transport);
}

enum skr_code
skr_stats_read(const struct skr_app *app, const struct skr_config *config,
               const char *const *only, size_t only_count,
               struct skr_stats *stats, struct skr_error *error)
{
    *stats = (struct skr_stats){
        .items = calloc(config->transport_count + 1, sizeof(*stats->items))};
    if (stats->items == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < config->transport_count; i++)
        if (is_wanted(config, &config->transports[i], only, only_count))
            stats->items[stats->count++].transport = &config->transports[i];
    for (size_t i = 0; i < stats->count; i++)
        read_one(&stats->items[i], app, config);
    read_failed(stats, config);
    return SKR_OK;
}

bool
skr_stats_find_consumers(const struct skr_transport_stats *stats,
                         uint64_t *consumers)
{
    bool is_queue = stats->transport->kind == SKR_TRANSPORT_QUEUE;
    bool is_counted = is_queue && stats->has_counts && stats->attendance >= 0;
    *consumers =
        is_counted ? (uint64_t)stats->attendance : stats->depth.consumers;
    return is_counted || (stats->has_depth && stats->depth.has_consumers);
}

bool
skr_stats_find_oldest(const struct skr_transport_stats *stats,
                      int64_t *oldest_s)
{
    bool is_table = stats->has_counts;
    int64_t age_s = is_table ? stats->counts.oldest_s : stats->depth.oldest_s;
    *oldest_s = age_s < 0 ? 0 : age_s;
    return is_table ? stats->counts.has_oldest
                    : stats->has_depth && stats->depth.has_oldest;
}

static double
rate_of(uint64_t before, uint64_t after, int64_t elapsed_ms)
{
    return after > before ? (double)(after - before) * 1000 / (double)elapsed_ms
                          : 0;
}

static bool
find_depth(const struct skr_transport_stats *stats, uint64_t *depth)
{
    bool is_told = stats->has_depth && stats->depth.has_messages;
    *depth = is_told ? stats->depth.messages : stats->counts.depth;
    return is_told || (stats->has_counts && !stats->counts.depth_is_estimate);
}

static void
measure_one(struct skr_transport_stats *item,
            const struct skr_transport_stats *before, int64_t elapsed_ms)
{
    uint64_t depth = 0, depth_before = 0;
    item->has_in_rate = item->has_written && before->has_written;
    item->has_out_rate = item->has_taken && before->has_taken;
    item->in_rate = rate_of(before->written, item->written, elapsed_ms);
    item->out_rate = rate_of(before->taken, item->taken, elapsed_ms);
    item->has_net_rate =
        find_depth(item, &depth) && find_depth(before, &depth_before);
    if (item->has_net_rate)
        item->net_rate = rate_of(depth_before, depth, elapsed_ms) -
                         rate_of(depth, depth_before, elapsed_ms);
}

void
skr_stats_measure(struct skr_stats *stats, const struct skr_stats *earlier,
                  int64_t elapsed_ms)
{
    for (size_t i = 0; i < stats->count && i < earlier->count && elapsed_ms > 0;
         i++)
        measure_one(&stats->items[i], &earlier->items[i], elapsed_ms);
}

void
skr_stats_fini(struct skr_stats *stats)
{
    for (size_t i = 0; i < stats->count; i++) {
        skr_partition_stats_free(stats->items[i].partitions);
        skr_depth_fini(&stats->items[i].depth);
    }
    free(stats->items);
    skr_unread_fini(&stats->unread);
    stats->items = NULL;
    stats->count = 0;
}
