// SPDX-License-Identifier: MIT
// The text of /metrics, in Prometheus' own format.

#include "app/parts/stats.h"
#include "app/service/metrics.h"
#include "base/text.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
write_counters(const struct skr_metrics_options *options, struct skr_text *text)
{
    struct skr_metrics_set *set = calloc(1, sizeof(*set));
    if (set == NULL) {
        text->broken = true;
        return;
    }
    options->read(options->user, set);
    skr_metrics_set_write(set, text);
    free(set);
}

static void
write_health(const struct skr_metrics_options *options, struct skr_text *text)
{
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    size_t count = skr_health_read(options->health, entries);
    skr_metrics_write_head(
        text, "skirnir_up", "gauge",
        "Whether a worker is connected, and at work or standing by.");
    for (size_t i = 0; i < count; i++)
        skr_metrics_write_sample(text, "skirnir_up", entries[i].name,
                                 skr_health_is_ready(&entries[i]));
    skr_metrics_write_head(
        text, "skirnir_active", "gauge",
        "Whether a worker is at work; 0: it stands by or is not ready.");
    for (size_t i = 0; i < count; i++)
        skr_metrics_write_sample(text, "skirnir_active", entries[i].name,
                                 skr_health_is_ready(&entries[i]) &&
                                     entries[i].role == SKR_ROLE_ACTIVE);
    skr_metrics_write_head(text, "skirnir_troubles_total", "counter",
                           "How often database or broker became unusable.");
    for (size_t i = 0; i < count; i++)
        skr_metrics_write_sample(text, "skirnir_troubles_total",
                                 entries[i].name, entries[i].troubles);
    skr_metrics_write_head(text, "skirnir_closed_routes", "gauge",
                           "Routes to which the broker takes nothing now.");
    for (size_t i = 0; i < count; i++)
        skr_metrics_write_sample(text, "skirnir_closed_routes", entries[i].name,
                                 entries[i].closed_routes);
}

struct gauge {
    const char *name;
    const char *help;
    // False: it is not known of this transport. NULL: a member of its counts.
    bool (*read)(const struct skr_transport_stats *stats, uint64_t *value);
    size_t offset;
};

#define COUNT(member) NULL, offsetof(struct skr_queue_counts, member)

static bool
read_depth(const struct skr_transport_stats *stats, uint64_t *value)
{
    *value = stats->has_counts ? stats->counts.depth : stats->depth.messages;
    return stats->has_counts || (stats->has_depth && stats->depth.has_messages);
}

static bool
read_due(const struct skr_transport_stats *stats, uint64_t *value)
{
    *value = stats->has_counts ? stats->counts.due : stats->depth.messages;
    return stats->has_counts || (stats->has_depth && stats->depth.are_due &&
                                 stats->depth.has_messages);
}

// Of a broker, what its consumers have put off.
static bool
read_delayed(const struct skr_transport_stats *stats, uint64_t *value)
{
    *value = stats->has_counts ? stats->counts.delayed : stats->retries;
    return stats->has_counts || stats->has_depth;
}

static bool
read_consumers(const struct skr_transport_stats *stats, uint64_t *value)
{
    return skr_stats_find_consumers(stats, value);
}

static bool
read_oldest(const struct skr_transport_stats *stats, uint64_t *value)
{
    int64_t oldest_s = 0;
    bool has_oldest = skr_stats_find_oldest(stats, &oldest_s);
    *value = has_oldest ? (uint64_t)oldest_s : 0;
    // Where nothing waits it is 0.
    return stats->has_counts || has_oldest ||
           (stats->has_depth && stats->depth.has_messages &&
            stats->depth.messages == 0);
}

static bool
read_failed(const struct skr_transport_stats *stats, uint64_t *value)
{
    *value = stats->failed;
    return stats->has_failed;
}

static bool
read_partitions(const struct skr_transport_stats *stats, uint64_t *value)
{
    *value = stats->partitions == NULL ? 0 : stats->partitions->counts.count;
    return stats->partitions != NULL;
}

static bool
read_largest(const struct skr_transport_stats *stats, uint64_t *value)
{
    *value = stats->partitions == NULL
                 ? 0
                 : stats->partitions->counts.largest_length;
    return stats->partitions != NULL;
}

static bool
read_blocked(const struct skr_transport_stats *stats, uint64_t *value)
{
    *value = stats->partitions == NULL ? 0 : stats->partitions->blocked_count;
    return stats->partitions != NULL;
}

static bool
read_blocked_messages(const struct skr_transport_stats *stats, uint64_t *value)
{
    *value = stats->partitions == NULL ? 0 : stats->partitions->waiting;
    return stats->partitions != NULL;
}

static const struct gauge gauges[] = {
    {"skirnir_queue_depth", "Messages that wait in the transport.", read_depth,
     0},
    {"skirnir_queue_due", "Messages that may be taken now.", read_due, 0},
    {"skirnir_queue_in_flight", "Messages that a worker has claimed.",
     COUNT(in_flight)},
    {"skirnir_queue_delayed", "Messages whose time has not come.", read_delayed,
     0},
    {"skirnir_queue_blocked", "Messages that wait for a person.",
     COUNT(blocked)},
    {"skirnir_queue_consumers", "Consumers that the queue has.", read_consumers,
     0},
    {"skirnir_queue_oldest_seconds",
     "How long the oldest message has been due.", read_oldest, 0},
    {"skirnir_partitions", "Partitions with messages that wait.",
     read_partitions, 0},
    {"skirnir_largest_partition", "Messages in the longest partition.",
     read_largest, 0},
    {"skirnir_blocked_partitions",
     "Partitions whose head waits for a person; 100 at most are counted.",
     read_blocked, 0},
    {"skirnir_blocked_messages", "Messages in those partitions.",
     read_blocked_messages, 0},
    {"skirnir_failed_messages", "Failed messages of the transport.",
     read_failed, 0},
};

static bool
read_gauge(const struct gauge *gauge, const struct skr_transport_stats *stats,
           uint64_t *value)
{
    if (gauge->read != NULL)
        return gauge->read(stats, value);
    memcpy(value, (const char *)&stats->counts + gauge->offset, sizeof(*value));
    return stats->has_counts;
}

enum { MOST_REASON_BYTES = 200 };

// The writer of the headers may have told it at any length, and Prometheus
// keeps labels for long.
static void
cut_reason(const char *reason, char cut[MOST_REASON_BYTES + sizeof("...")])
{
    size_t size = strlen(reason), kept = size;
    if (size > MOST_REASON_BYTES)
        kept = skr_text_storable_size(reason, MOST_REASON_BYTES);
    snprintf(cut, MOST_REASON_BYTES + sizeof("..."), "%.*s%s", (int)kept,
             reason, kept < size ? "..." : "");
}

// The row makes it the only one of its kind, whatever becomes of its key.
static void
write_blocked_head(struct skr_text *text, const char *name,
                   const char *transport, const struct skr_blocked_head *head)
{
    char row[24], reason[MOST_REASON_BYTES + sizeof("...")];
    snprintf(row, sizeof(row), "%lld", (long long)head->row);
    cut_reason(head->reason, reason);
    const struct skr_metrics_label labels[] = {
        {"transport", transport},
        {"partition", head->key},
        {"head", row},
        {"reason", reason},
    };
    skr_metrics_write_labelled(text, name, labels, SKR_COUNT_OF(labels),
                               head->length);
}

static void
write_blocked_heads(const struct skr_stats *stats, struct skr_text *text)
{
    static const char name[] = "skirnir_blocked_partition_messages";
    skr_metrics_write_head(
        text, name, "gauge",
        "Messages in a partition whose head waits for a person, that head "
        "included; of the first 100 of a transport.");
    for (size_t i = 0; i < stats->count; i++) {
        const struct skr_partition_stats *partitions =
            stats->items[i].partitions;
        for (size_t j = 0; partitions != NULL && j < partitions->blocked_count;
             j++)
            write_blocked_head(text, name, stats->items[i].transport->name,
                               &partitions->blocked[j]);
    }
}

void
skr_metrics_write_stats(const struct skr_metrics_options *options,
                        struct skr_text *text)
{
    const struct skr_arguments *arguments = options->app->arguments;
    struct skr_stats stats;
    if (skr_stats_read(options->app, options->config, arguments->positional,
                       arguments->positional_count, &stats, NULL) != SKR_OK)
        return;
    for (size_t g = 0; g < SKR_COUNT_OF(gauges); g++) {
        skr_metrics_write_head(text, gauges[g].name, "gauge", gauges[g].help);
        for (size_t i = 0; i < stats.count; i++) {
            uint64_t value = 0;
            if (read_gauge(&gauges[g], &stats.items[i], &value))
                skr_metrics_write_sample(text, gauges[g].name,
                                         stats.items[i].transport->name, value);
        }
    }
    write_blocked_heads(&stats, text);
    skr_stats_fini(&stats);
}

void
skr_metrics_write_counts(const struct skr_metrics_options *options,
                         struct skr_text *text)
{
    skr_metrics_write_head(text, "skirnir_build_info", "gauge",
                           "The version of this build.");
    skr_text_add_format(text, "skirnir_build_info{version=\"%s\"} 1\n",
                        SKR_VERSION);
    skr_metrics_write_head(text, "process_start_time_seconds", "gauge",
                           "When this process began, in seconds since 1970.");
    skr_text_add_format(text, "process_start_time_seconds %lld\n",
                        (long long)options->app->start_s);
    write_counters(options, text);
    write_health(options, text);
}
