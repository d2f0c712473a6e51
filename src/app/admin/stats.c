// SPDX-License-Identifier: MIT
// Collects counts, lags and rates of all transports, and says what each figure
// is called in the tables and the JSON of `skirnir stats` and in the metrics;
// and searches the tables for queues that no transport reads.

#include "app/admin/stats.h"

#include "app/admin/failed.h"
#include "app/drivers.h"
#include "app/wiring/transports.h"
#include "base/error.h"
#include "base/text.h"
#include "store/kafka_outbox/kafka_outbox.h"
#include "store/messenger/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FAILED = 10000 };

static enum skr_code
read_table(struct skr_transport_stats *stats, struct skr_silent *silent,
           struct skr_error *error)
{
    const struct skr_config_transport *transport = stats->transport;
    const struct skr_queue_place *place = &transport->place;
    struct skr_db *db = NULL;
    enum skr_code code = skr_transport_open_unless_silent(transport->database,
                                                          silent, &db, error);
    if (code == SKR_OK)
        code = skr_queue_count(db, place, &stats->counts, error);
    if (code == SKR_MISSING)
        code =
            skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                     "there is no table %s; run `skirnir setup`", place->table);
    stats->has_counts = code == SKR_OK;
    bool is_outbox = transport->kind == SKR_TRANSPORT_OUTBOX;
    if (code == SKR_OK && is_outbox)
        code = skr_queue_holder(db, place, stats->holder, error);
    if (code == SKR_OK)
        code = skr_queue_attendance(
            db, place, is_outbox ? SKR_ATTEND_WAITING : SKR_ATTEND_CONSUMING,
            &stats->attendance, error);
    skr_db_close(db);
    return code;
}

// Errored rows are its failed ones; which of the others are claimed or delayed
// is not counted.
static enum skr_code
read_kafka_outbox(struct skr_transport_stats *stats,
                  const struct skr_config *config, struct skr_error *error)
{
    struct skr_kafka_outbox_counts counts = {0};
    struct skr_open_table open;
    enum skr_code code =
        skr_transport_open(config, stats->transport, &open, error);
    if (code == SKR_OK)
        code = skr_kafka_outbox_count(open.table, open.db, &counts, error);
    skr_transport_close(&open);
    if (code != SKR_OK)
        return code;
    stats->has_depth = stats->has_failed = true;
    stats->depth.has_messages = true;
    stats->depth.messages = (uint64_t)(counts.queued - counts.errored);
    stats->failed = (uint64_t)counts.errored;
    stats->counts.sent = counts.total > counts.queued
                             ? (uint64_t)(counts.total - counts.queued)
                             : 0;
    return SKR_OK;
}

// Whether rows of others are in its table: a count of the whole table includes
// those.
static bool
shares_table(const struct skr_config *config,
             const struct skr_config_transport *transport)
{
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *other = &config->transports[i];
        if (other != transport && skr_config_share_table(other, transport))
            return true;
    }
    return false;
}

static void
find_totals(struct skr_transport_stats *stats, const struct skr_config *config)
{
    const struct skr_queue_counts *counts = &stats->counts;
    if (stats->has_depth) {
        stats->written =
            (struct skr_total){stats->depth.has_written, stats->depth.written};
        stats->taken =
            (struct skr_total){stats->depth.has_taken, stats->depth.taken};
    } else if (stats->has_counts && counts->written >= counts->depth &&
               counts->written > 0 && !counts->depth_is_estimate &&
               !shares_table(config, stats->transport)) {
        stats->written = (struct skr_total){true, counts->written};
        stats->taken =
            (struct skr_total){true, counts->written - counts->depth};
    }
}

// What a consumer has put off.
static enum skr_code
read_retries(struct skr_transport_stats *stats, struct skr_silent *silent,
             const struct skr_config *config, struct skr_error *error)
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
    failed.place.queue = queue;
    enum skr_code code =
        skr_transport_open_unless_silent(database, silent, &db, error);
    if (code == SKR_OK)
        code = skr_queue_count(db, &failed.place, &counts, error);
    if (code == SKR_OK)
        stats->retries = counts.depth;
    skr_db_close(db);
    free(queue);
    return code == SKR_MISSING ? SKR_OK : code;
}

static enum skr_code
read_broker(struct skr_transport_stats *stats, struct skr_silent *silent,
            const struct skr_app *app, const struct skr_config *config,
            struct skr_error *error)
{
    const struct skr_config_transport *transport = stats->transport;
    const struct skr_broker_ops *ops =
        skr_driver_find_broker(transport->scheme);
    const struct skr_broker_options options = {
        .inspects = true, .wake_fd = -1, .log = app->log};
    struct skr_broker *broker = NULL;
    enum skr_code code = read_retries(stats, silent, config, error);
    if (code != SKR_OK || ops == NULL || ops->depth == NULL)
        return code;
    code = skr_transport_open_broker(transport, &options, &broker, error);
    if (code == SKR_OK)
        code = broker->ops->depth(broker, &stats->depth, error);
    stats->has_depth = code == SKR_OK;
    skr_broker_close(broker);
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
read_one(struct skr_transport_stats *stats, struct skr_silent *silent,
         const struct skr_app *app, const struct skr_config *config)
{
    struct skr_error error = {0};
    enum skr_code code = SKR_OK;
    stats->is_failure = skr_transport_is_failure(config, stats->transport);
    if (stats->is_failure)
        return;
    switch (stats->transport->kind) {
    case SKR_TRANSPORT_OUTBOX:
    case SKR_TRANSPORT_QUEUE:
        if (stats->transport->kafka_outbox != NULL) {
            code = read_kafka_outbox(stats, config, &error);
            break;
        }
        code = read_table(stats, silent, &error);
        if (code == SKR_OK && skr_ordered_is_meant(stats->transport, NULL))
            code = skr_partition_stats_read(config, stats->transport,
                                            &stats->partitions, &error);
        if (stats->partitions.transport != NULL)
            leave_out_blocked(&stats->counts, &stats->partitions);
        break;
    case SKR_TRANSPORT_OTHER:
        code = read_broker(stats, silent, app, config, &error);
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
    enum skr_code code =
        skr_failed_open(&session, config, NULL, &stats->silent, &error);
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

// None are named: all are meant.
static bool
is_named(const struct skr_app *app,
         const struct skr_config_transport *transport)
{
    const struct skr_arguments *arguments = app->arguments;
    return arguments->positional_count == 0 ||
           skr_text_is_among(transport->name, arguments->positional,
                             arguments->positional_count);
}

enum skr_code
skr_stats_read(const struct skr_app *app, const struct skr_config *config,
               struct skr_stats *stats, struct skr_error *error)
{
    *stats = (struct skr_stats){
        .unread = {.columns = skr_unread_columns},
        .items = calloc(config->transport_count + 1, sizeof(*stats->items))};
    if (stats->items == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < config->transport_count; i++)
        if (is_named(app, &config->transports[i]) &&
            (app->arguments->positional_count > 0 ||
             !skr_transport_is_failure(config, &config->transports[i])))
            stats->items[stats->count++].transport = &config->transports[i];
    for (size_t i = 0; i < stats->count; i++)
        read_one(&stats->items[i], &stats->silent, app, config);
    // A configuration has tables of one layout; those of kafka-outbox-relay
    // keep errored rows themselves.
    if (stats->count == 0 || stats->items[0].transport->kafka_outbox == NULL)
        read_failed(stats, config);
    return SKR_OK;
}

static bool
find_consumers(const struct skr_transport_stats *stats, uint64_t *consumers)
{
    bool is_queue = stats->transport->kind == SKR_TRANSPORT_QUEUE;
    bool is_counted = is_queue && stats->has_counts && stats->attendance >= 0;
    *consumers =
        is_counted ? (uint64_t)stats->attendance : stats->depth.consumers;
    return is_counted || (stats->has_depth && stats->depth.has_consumers);
}

static bool
find_oldest(const struct skr_transport_stats *stats, int64_t *oldest_s)
{
    bool is_table = stats->has_counts;
    int64_t age_s = is_table ? stats->counts.oldest_s : stats->depth.oldest_s;
    *oldest_s = age_s < 0 ? 0 : age_s;
    return is_table ? stats->counts.has_oldest
                    : stats->has_depth && stats->depth.has_oldest;
}

void
skr_stats_fini(struct skr_stats *stats)
{
    for (size_t i = 0; i < stats->count; i++) {
        skr_report_fini(&stats->items[i].partitions.blocked);
        skr_depth_fini(&stats->items[i].depth);
    }
    free(stats->items);
    skr_report_fini(&stats->unread);
    stats->items = NULL;
    stats->count = 0;
}

enum { MOST_UNREAD = 20, NAME_SIZE = 4 * 190 + 1 };

struct search {
    const struct skr_config *config;
    const struct skr_config_transport *transport;
    char names[MOST_UNREAD][NAME_SIZE];
    size_t count;
};

// A name that is made of another and an ending.
static bool
is_made_of(const char *name, const char *stem, const char *ending)
{
    size_t size = strlen(stem);
    return strncmp(name, stem, size) == 0 && strcmp(name + size, ending) == 0;
}

static bool
is_its_table(const struct search *search, const char *table)
{
    return skr_config_same_table(search->transport->database,
                                 search->transport->place.table, table);
}

// In whichever database: two may be one under two names.
static bool
is_read_by(const struct skr_config_transport *transport,
           const struct search *search, const char *queue)
{
    return transport->kind != SKR_TRANSPORT_OTHER &&
           is_its_table(search, transport->place.table) &&
           (is_made_of(queue, transport->place.queue, "") ||
            is_made_of(queue, transport->place.queue, ".sent"));
}

static bool
is_read(const struct search *search, const char *queue)
{
    const struct skr_config *config = search->config;
    struct skr_failed_place failed = skr_transport_failed_place(config);
    bool is_failed = is_its_table(search, failed.place.table);
    if (skr_text_starts_with(queue, "skirnir.test.") ||
        (is_failed && (is_made_of(queue, failed.place.queue, "") ||
                       is_made_of(queue, failed.place.queue, ".skirnir"))))
        return true;
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *transport = &config->transports[i];
        if (is_read_by(transport, search, queue) ||
            (is_failed && is_made_of(queue, transport->name, ".retry")))
            return true;
    }
    return false;
}

static enum skr_code
note_unread(const char *queue, void *user, struct skr_error *error)
{
    struct search *search = user;
    (void)error;
    if (search->count < MOST_UNREAD && strlen(queue) < NAME_SIZE &&
        !is_read(search, queue))
        strcpy(search->names[search->count++], queue);
    return SKR_OK;
}

static const struct skr_column unread_items[] = {
    {"database", SKR_AS_TEXT},
    {"table", SKR_AS_TEXT},
    {"queue", SKR_AS_TEXT},
    {"rows", SKR_AS_INTEGER},
    {"rows_are_estimate", SKR_AS_TRUTH},
};
const struct skr_columns skr_unread_columns = {unread_items,
                                               SKR_COUNT_OF(unread_items)};

// What is done is of no concern, and a row may have gone since.
static void
add_unread(const struct search *search, struct skr_db *db, const char *queue,
           struct skr_report *report)
{
    const struct skr_config_transport *transport = search->transport;
    struct skr_queue_place place = transport->place;
    struct skr_queue_counts counts;
    place.queue = queue;
    if (skr_queue_count(db, &place, &counts, NULL) != SKR_OK ||
        counts.depth == 0)
        return;
    bool is_estimate = counts.depth_is_estimate;
    skr_report_add_row(report);
    skr_report_text(report, "database", transport->database->name);
    skr_report_text(report, "table", transport->place.table);
    skr_report_text(report, "queue", queue);
    skr_report_estimate(report, "rows", counts.depth, is_estimate);
    skr_report_number(report, "rows_are_estimate", is_estimate);
}

// Several transports may share a table, which is looked at once.
static bool
is_first_of_table(const struct skr_app *app, const struct skr_config *config,
                  size_t which)
{
    const struct skr_config_transport *transport = &config->transports[which];
    if (transport->kind == SKR_TRANSPORT_OTHER || transport->database == NULL ||
        transport->kafka_outbox != NULL || !is_named(app, transport))
        return false;
    for (size_t i = 0; i < which; i++) {
        const struct skr_config_transport *other = &config->transports[i];
        if (other->kind != SKR_TRANSPORT_OTHER &&
            skr_config_share_table(other, transport) && is_named(app, other))
            return false;
    }
    return true;
}

void
skr_unread_find(const struct skr_app *app, const struct skr_config *config,
                struct skr_silent *silent, struct skr_report *report)
{
    struct skr_error ignored;
    for (size_t i = 0; i < config->transport_count; i++) {
        struct search search = {.config = config,
                                .transport = &config->transports[i]};
        struct skr_db *db = NULL;
        if (!is_first_of_table(app, config, i) ||
            skr_transport_open_unless_silent(search.transport->database, silent,
                                             &db, &ignored) != SKR_OK)
            continue;
        if (skr_queue_each_name(db, search.transport->place.table, note_unread,
                                &search, NULL) == SKR_OK)
            for (size_t k = 0; k < search.count; k++)
                add_unread(&search, db, search.names[k], report);
        skr_db_close(db);
    }
}

static const struct skr_column partition_items[] = {
    {"transport", "ORDERED", .label = "transport", .is_hidden = true},
    {"count", "PARTITIONS", "skirnir_partitions",
     "Partitions with messages that wait.", SKR_AS_INTEGER},
    {"is_estimate", SKR_AS_TRUTH},
    {"blocked", "BLOCKED", "skirnir_blocked_partitions",
     "Partitions whose head waits for a person; 100 at most are counted.",
     SKR_AS_INTEGER, .is_hidden = true},
    {"blocked_messages", NULL, "skirnir_blocked_messages",
     "Messages in those partitions.", SKR_AS_INTEGER, .is_hidden = true},
    {"largest_length", "LENGTH", "skirnir_largest_partition",
     "Messages in the longest partition.", SKR_AS_INTEGER},
    {"largest", "LARGEST", SKR_AS_TEXT},
    {"oldest_row", "ROW", SKR_AS_INTEGER},
    {"oldest_seconds", "SINCE", .unit = "s", SKR_AS_INTEGER},
    {"oldest", "OLDEST HEAD", SKR_AS_TEXT},
};
static const struct skr_columns partition_columns = {
    partition_items, SKR_COUNT_OF(partition_items)};

static const struct skr_column lag_items[] = {
    {"topic/partition", "PARTITION", .is_hidden = true},
    {"topic", SKR_AS_TEXT},
    {"partition", SKR_AS_INTEGER},
    {"behind", "BEHIND", SKR_AS_INTEGER},
    {"committed", "COMMITTED", SKR_AS_INTEGER},
    {"end", "END", SKR_AS_INTEGER},
};
static const struct skr_columns lag_columns = {lag_items,
                                               SKR_COUNT_OF(lag_items)};

static const struct skr_column transport_items[] = {
    {"transport", "TRANSPORT", .label = "transport"},
    {"scheme", SKR_AS_TEXT},
    {"depth", "DEPTH", "skirnir_queue_depth",
     "Messages that wait in the transport.", SKR_AS_INTEGER},
    {"due", "DUE", "skirnir_queue_due", "Messages that may be taken now.",
     SKR_AS_INTEGER},
    {"in_flight", "IN FLIGHT", "skirnir_queue_in_flight",
     "Messages that a worker has claimed.", SKR_AS_INTEGER},
    {"delayed", "DELAYED", "skirnir_queue_delayed",
     "Messages whose time has not come.", SKR_AS_INTEGER},
    {"blocked", "BLOCKED", "skirnir_queue_blocked",
     "Messages that wait for a person.", SKR_AS_INTEGER},
    {"php", SKR_AS_INTEGER},
    {"sent", SKR_AS_INTEGER},
    {"depth_is_estimate", SKR_AS_TRUTH},
    {"sent_is_estimate", SKR_AS_TRUTH},
    {"parts_are_estimates", SKR_AS_TRUTH},
    {"consumers", NULL, "skirnir_queue_consumers",
     "Consumers that the queue has.", SKR_AS_INTEGER},
    {"retries", SKR_AS_INTEGER},
    {"failed", "FAILED", "skirnir_failed_messages",
     "Failed messages of the transport.", SKR_AS_INTEGER},
    {"failed_is_estimate", SKR_AS_TRUTH},
    {"oldest_seconds", "OLDEST", .kind = SKR_COLUMN_DURATION},
    // Where nothing waits it is 0.
    {"oldest_metric", NULL, "skirnir_queue_oldest_seconds",
     "How long the oldest message has been due.", SKR_AS_INTEGER,
     .is_hidden = true},
    {"rates", "IN/OUT", SKR_AS_INTEGER, .is_hidden = true},
    {"state", "STATE", .is_hidden = true},
    {"lags", .kind = SKR_COLUMN_LIST, .nested = &lag_columns},
    {"active", SKR_AS_TRUTH},
    {"holder", SKR_AS_TEXT},
    {"waiting_for_broker", SKR_AS_INTEGER},
    {"partitions", .kind = SKR_COLUMN_OBJECT, .nested = &partition_columns},
    {"blocked_partitions", .kind = SKR_COLUMN_LIST,
     .nested = &skr_blocked_columns},
    {"blocked_partitions_are_cut", SKR_AS_TRUTH},
    {"in_per_second", SKR_AS_INTEGER},
    {"out_per_second", SKR_AS_INTEGER},
    {"net_per_second", SKR_AS_INTEGER},
    {"error", SKR_AS_TEXT},
};
static const struct skr_columns transport_columns = {
    transport_items, SKR_COUNT_OF(transport_items)};

static const struct skr_column columns[] = {
    {"transports", .kind = SKR_COLUMN_LIST, .nested = &transport_columns},
    {"unread_queues", .kind = SKR_COLUMN_LIST, .nested = &skr_unread_columns},
    {"failed", SKR_AS_INTEGER},
    {"failed_elsewhere", SKR_AS_INTEGER},
    {"failed_is_estimate", SKR_AS_TRUTH},
};

static void
fill_partitions(struct skr_partition_stats *stats,
                struct skr_report *transports)
{
    struct skr_report partitions = {.columns = partition_columns};
    struct skr_report *report = &partitions;
    const struct skr_partitions *counts = &stats->counts;
    bool is_estimate = counts->is_estimate, has_some = counts->count > 0;
    bool has_oldest = counts->oldest[0] != '\0';
    skr_report_add_row(report);
    skr_report_text(report, "transport", stats->transport);
    skr_report_estimate(report, "count", counts->count, is_estimate);
    skr_report_number(report, "is_estimate", is_estimate);
    skr_report_number(report, "blocked", (int64_t)stats->blocked_count);
    if (stats->has_more)
        skr_report_show(report, "blocked", "%zu+", stats->blocked_count);
    skr_report_number(report, "blocked_messages", (int64_t)stats->waiting);
    skr_report_estimate(report, "largest_length", counts->largest_length,
                        is_estimate);
    skr_report_text(report, "largest", has_some ? counts->largest : NULL);
    if (!has_some)
        skr_report_show(report, "largest_length", "-");
    else if (is_estimate)
        skr_report_show(report, "largest", "perhaps %s", counts->largest);
    skr_report_known(report, "oldest_row", has_oldest, counts->oldest_row);
    skr_report_number(report, "oldest_seconds", counts->oldest_s);
    if (!has_oldest)
        skr_report_show(report, "oldest_seconds", "-");
    skr_report_text(report, "oldest", has_oldest ? counts->oldest : NULL);
    skr_report_put(transports, "partitions", report);
    skr_report_put(transports, "blocked_partitions", &stats->blocked);
    skr_report_number(transports, "blocked_partitions_are_cut",
                      stats->has_more);
}

static void
fill_lags(const struct skr_depth *depth, struct skr_report *report)
{
    struct skr_report lags = {.columns = lag_columns};
    for (size_t i = 0; i < depth->lag_count; i++) {
        const struct skr_lag *lag = &depth->lags[i];
        skr_report_add_row(&lags);
        skr_report_text(&lags, "topic", lag->topic);
        skr_report_number(&lags, "partition", lag->partition);
        skr_report_show(&lags, "topic/partition", "%s/%ld", lag->topic,
                        (long)lag->partition);
        skr_report_number(&lags, "behind", (int64_t)lag->behind);
        skr_report_known(&lags, "committed", lag->has_position,
                         (int64_t)lag->position);
        skr_report_number(&lags, "end", (int64_t)lag->written);
    }
    skr_report_put(report, "lags", &lags);
}

static void
fill_counts(const struct skr_queue_counts *counts, struct skr_report *report)
{
    bool is_estimate = counts->depth_is_estimate;
    bool are_estimates = counts->parts_are_estimates;
    skr_report_estimate(report, "depth", counts->depth, is_estimate);
    skr_report_estimate(report, "due", counts->due, is_estimate);
    skr_report_estimate(report, "in_flight", counts->in_flight, are_estimates);
    skr_report_estimate(report, "delayed", counts->delayed, are_estimates);
    skr_report_estimate(report, "blocked", counts->blocked, are_estimates);
    skr_report_number(report, "php", (int64_t)counts->php);
    skr_report_number(report, "sent", (int64_t)counts->sent);
    skr_report_number(report, "depth_is_estimate", is_estimate);
    skr_report_number(report, "sent_is_estimate", counts->sent_is_estimate);
    skr_report_number(report, "parts_are_estimates", are_estimates);
}

// Of a broker, or of what could not be asked: every count is there.
static void
fill_depth(const struct skr_transport_stats *stats, struct skr_report *report)
{
    const struct skr_depth *depth = &stats->depth;
    bool is_told = stats->has_depth && depth->has_messages;
    skr_report_estimate(report, "depth", depth->messages,
                        stats->is_failure && stats->failed_is_estimate);
    if (!is_told)
        skr_report_known(report, "depth", false, 0);
    skr_report_known(report, "due", is_told && depth->are_due,
                     (int64_t)depth->messages);
    skr_report_known(report, "in_flight", false, 0);
    skr_report_known(report, "delayed", stats->has_depth,
                     (int64_t)stats->retries);
    skr_report_known(report, "blocked", false, 0);
    skr_report_known(report, "retries", stats->has_depth,
                     (int64_t)stats->retries);
    if (stats->transport->kafka_outbox != NULL)
        skr_report_number(report, "sent", (int64_t)stats->counts.sent);
    if (stats->has_depth && depth->lag_count > 0)
        fill_lags(depth, report);
}

static void
fill_oldest(const struct skr_transport_stats *stats, struct skr_report *report)
{
    int64_t oldest_s = 0;
    bool has_oldest = find_oldest(stats, &oldest_s);
    bool is_told = stats->has_depth && stats->depth.has_messages;
    bool has_some = is_told && stats->depth.messages > 0;
    skr_report_known(report, "oldest_seconds", has_oldest, oldest_s);
    if (!has_oldest && has_some)
        skr_report_show(report, "oldest_seconds", "unknown");
    skr_report_known(report, "oldest_metric",
                     stats->has_counts || has_oldest || (is_told && !has_some),
                     has_oldest ? oldest_s : 0);
}

struct rate {
    bool is_known;
    double per_second;
};

static struct rate
rate_of(struct skr_total before, struct skr_total after, int64_t elapsed_ms)
{
    uint64_t more = after.count > before.count ? after.count - before.count : 0;
    if (!before.is_known || !after.is_known)
        return (struct rate){.is_known = false};
    return (struct rate){true, (double)more * 1000 / (double)elapsed_ms};
}

static struct skr_total
find_depth(const struct skr_transport_stats *stats)
{
    if (stats->has_depth && stats->depth.has_messages)
        return (struct skr_total){true, stats->depth.messages};
    return (struct skr_total){stats->has_counts &&
                                  !stats->counts.depth_is_estimate,
                              stats->counts.depth};
}

static void
put_rate(struct skr_report *report, const char *name, const struct rate *rate)
{
    double half = rate->per_second < 0 ? -0.5 : 0.5;
    skr_report_known(report, name, rate->is_known,
                     (int64_t)(rate->per_second + half));
}

// Where it is not known what came and what went, it may still be known by how
// much it became more, or fewer: net is negative.
static void
fill_rates(const struct skr_transport_stats *stats,
           const struct skr_transport_stats *before, int64_t elapsed_ms,
           struct skr_report *report)
{
    struct rate in = rate_of(before->written, stats->written, elapsed_ms);
    struct rate out = rate_of(before->taken, stats->taken, elapsed_ms);
    struct skr_total depth = find_depth(stats), earlier = find_depth(before);
    struct rate net = rate_of(earlier, depth, elapsed_ms);
    net.per_second -= rate_of(depth, earlier, elapsed_ms).per_second;
    if (in.is_known && out.is_known)
        skr_report_show(report, "rates", "%.0f/%.0f", in.per_second,
                        out.per_second);
    else if (in.is_known)
        skr_report_show(report, "rates", "%.0f/-", in.per_second);
    else if (net.is_known)
        skr_report_show(report, "rates", "%+.0f", net.per_second);
    else
        skr_report_show(report, "rates", "-");
    put_rate(report, "in_per_second", &in);
    put_rate(report, "out_per_second", &out);
    put_rate(report, "net_per_second", &net);
}

static void
show_relay(const struct skr_transport_stats *stats, struct skr_report *report)
{
    if (stats->holder[0] != '\0')
        skr_report_show(report, "state", "active: %s", stats->holder);
    else if (stats->attendance > 0)
        skr_report_show(
            report, "state", "no relay works: %lld wait%s for the broker",
            (long long)stats->attendance, stats->attendance == 1 ? "s" : "");
    else
        skr_report_show(report, "state", "no relay");
}

static void
show_state(const struct skr_transport_stats *stats, struct skr_report *report)
{
    uint64_t consumers = 0;
    if (stats->trouble.code != SKR_OK)
        skr_report_show(report, "state", "trouble: %s", stats->trouble.text);
    else if (stats->is_failure)
        skr_report_show(report, "state", "see `skirnir failed show`");
    else if (stats->transport->kind == SKR_TRANSPORT_OUTBOX)
        show_relay(stats, report);
    else if (find_consumers(stats, &consumers))
        skr_report_show(report, "state", "%llu consumer%s%s",
                        (unsigned long long)consumers,
                        consumers == 1 ? "" : "s",
                        stats->retries > 0 ? ", retries wait" : "");
    else
        skr_report_show(report, "state", stats->has_depth ? "reachable" : "-");
}

static void
fill_workers(const struct skr_transport_stats *stats, struct skr_report *report)
{
    uint64_t consumers = 0;
    bool is_outbox = stats->transport->kind == SKR_TRANSPORT_OUTBOX;
    bool is_known = find_consumers(stats, &consumers);
    if (!is_outbox || !stats->has_counts) {
        skr_report_known(report, "consumers", is_known, (int64_t)consumers);
        return;
    }
    bool is_active = stats->holder[0] != '\0';
    skr_report_number(report, "active", is_active);
    skr_report_text(report, "holder", is_active ? stats->holder : NULL);
    skr_report_known(report, "waiting_for_broker", stats->attendance >= 0,
                     stats->attendance);
}

static void
fill_transport(struct skr_transport_stats *stats,
               const struct skr_transport_stats *before, int64_t elapsed_ms,
               struct skr_report *report)
{
    skr_report_add_row(report);
    skr_report_text(report, "transport", stats->transport->name);
    skr_report_text(report, "scheme", stats->transport->scheme);
    if (stats->has_counts)
        fill_counts(&stats->counts, report);
    else
        fill_depth(stats, report);
    skr_report_estimate(report, "failed", stats->failed,
                        stats->failed_is_estimate);
    if (!stats->has_failed)
        skr_report_known(report, "failed", false, 0);
    skr_report_number(report, "failed_is_estimate", stats->failed_is_estimate);
    fill_oldest(stats, report);
    fill_workers(stats, report);
    fill_rates(stats, before, elapsed_ms, report);
    show_state(stats, report);
    skr_report_text(report, "error",
                    stats->trouble.code == SKR_OK ? NULL : stats->trouble.text);
    if (stats->partitions.transport != NULL)
        fill_partitions(&stats->partitions, report);
}

void
skr_stats_report(struct skr_stats *stats, struct skr_report *report)
{
    struct skr_report transports = {.columns = transport_columns};
    bool are_counted = stats->failed_trouble.code == SKR_OK;
    *report = (struct skr_report){.columns = SKR_COLUMNS(columns)};
    skr_report_add_row(report);
    static const struct skr_transport_stats none;
    const struct skr_stats *before = stats->earlier;
    for (size_t i = 0; i < stats->count; i++)
        fill_transport(&stats->items[i],
                       before != NULL && i < before->count ? &before->items[i]
                                                           : &none,
                       stats->elapsed_ms, &transports);
    skr_report_put(report, "transports", &transports);
    skr_report_put(report, "unread_queues", &stats->unread);
    skr_report_known(report, "failed", are_counted, (int64_t)stats->failed);
    skr_report_known(report, "failed_elsewhere", are_counted,
                     (int64_t)stats->strayed);
    skr_report_number(report, "failed_is_estimate", stats->failed_is_estimate);
}
