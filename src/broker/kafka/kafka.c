// SPDX-License-Identifier: MIT
// Apache Kafka as a broker, on librdkafka: opening it, and how far a group is
// behind the topics that it reads.

#include "broker/kafka/kafka.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/text.h"
#include "base/url.h"

#include <regex.h>
#include <skirnir/kafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static enum skr_code
check_topics(const struct kafka_settings *settings, struct skr_error *error)
{
    if (settings->topic_count > 0)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "the DSN names no topic to consume from; add topics=NAME");
}

static enum skr_code
check_as(const struct skr_url *url, bool consumes, struct skr_error *error)
{
    struct kafka_settings settings;
    enum skr_code code =
        skr_kafka_settings_read(url, false, consumes, &settings, error);
    if (code == SKR_OK && consumes)
        code = check_topics(&settings, error);
    skr_kafka_settings_fini(&settings);
    return code;
}

// It is not known whether it is to publish to or to consume from: only a
// consumer may name several topics, or a pattern.
static enum skr_code
kafka_check_url(const char *text, const struct skr_url *url,
                const struct skr_log *log, struct skr_error *error)
{
    (void)text;
    (void)log;
    bool consumes = false;
    for (size_t i = 0; i < url->parameter_count; i++)
        consumes = consumes || strcmp(url->parameters[i].name, "topics") == 0 ||
                   skr_text_starts_with(url->parameters[i].name, "topics[");
    struct skr_error problem = {0};
    enum skr_code code = skr_host_check_list(url, error);
    if (code != SKR_OK)
        return code;
    code = check_as(url, consumes, &problem);
    if (code == SKR_INVALID && !consumes && check_as(url, true, NULL) == SKR_OK)
        return SKR_OK;
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &problem);
}

static const char *
find_last(const struct skr_url *url, const char *name, const char *other)
{
    const char *value = NULL;
    for (size_t i = 0; i < url->parameter_count; i++)
        if (strcmp(url->parameters[i].name, name) == 0 ||
            strcmp(url->parameters[i].name, other) == 0)
            value = url->parameters[i].value;
    return value;
}

// SCRAM and Kerberos send no password; the token of OAUTHBEARER is as good as
// one.
static void
kafka_exposure(const struct skr_url *url, char said[SKR_EXPOSURE_SIZE])
{
    struct skr_host host;
    const char *protocol = find_last(url, "security.protocol", "");
    const char *mechanism = find_last(url, "sasl.mechanism", "sasl.mechanisms");
    said[0] = '\0';
    if (protocol == NULL || strcasecmp(protocol, "sasl_plaintext") != 0 ||
        mechanism == NULL ||
        (strcasecmp(mechanism, "PLAIN") != 0 &&
         strcasecmp(mechanism, "OAUTHBEARER") != 0) ||
        !skr_host_find_other(url->host, &host))
        return;
    snprintf(said, SKR_EXPOSURE_SIZE,
             "sasl_plaintext with %.20s sends the login to %.80s in plaintext; "
             "take security.protocol out, or set sasl.mechanisms to "
             "SCRAM-SHA-512",
             mechanism, host.name);
}

static enum skr_code
kafka_open(struct skr_broker *base, const struct skr_url *url,
           const struct skr_broker_options *options, struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    bool reads = options->consumes || options->inspects;
    broker->consumer.is_wanted = reads;
    broker->consumer.ready_fd = -1;
    broker->client.settings = &broker->settings;
    broker->client.log = options->log;
    base->can.delays = true;
    enum skr_code code = skr_kafka_settings_read(
        url, options->auto_setup, reads, &broker->settings, error);
    if (code == SKR_OK && options->inspects)
        return skr_kafka_consumer_start(broker, false, error);
    if (code == SKR_OK && options->consumes)
        code = check_topics(&broker->settings, error);
    if (code == SKR_OK && options->consumes)
        return skr_kafka_consumer_start(broker, true, error);
    if (code == SKR_OK)
        code = skr_kafka_producer_start(broker, false, error);
    if (code == SKR_OK)
        code = skr_kafka_client_reach(&broker->client, base->wake_fd, error);
    return code;
}

static void
kafka_close(struct skr_broker *base)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    if (broker->consumer.is_wanted)
        skr_kafka_consumer_fini(broker);
    else
        skr_kafka_producer_fini(broker);
    skr_kafka_client_fini(&broker->client);
    skr_kafka_settings_fini(&broker->settings);
}

static enum skr_code
kafka_subscription(const struct skr_url *url,
                   struct skr_subscription *subscription,
                   struct skr_error *error)
{
    struct kafka_settings settings;
    *subscription = (struct skr_subscription){.server = "", .group = ""};
    enum skr_code code =
        skr_kafka_settings_read(url, false, true, &settings, error);
    if (code == SKR_OK && settings.is_consumed)
        *subscription = (struct skr_subscription){
            .server = settings.brokers,
            .group = settings.group,
            .topics = settings.topics,
            .topic_count = settings.topic_count,
        };
    // All texts are the caller's from now on.
    subscription->arena = settings.arena;
    settings.arena = (struct skr_arena){0};
    skr_kafka_settings_fini(&settings);
    return code;
}

enum { OLDEST_S = 10 * 366 * 24 * 3600 };  // older than that is not asked for

// A topic that begins with ^ is a pattern, as for a subscription.
static bool
is_matched(const char *wanted, const char *name)
{
    regex_t pattern;
    if (wanted[0] != '^')
        return strcmp(wanted, name) == 0;
    if (regcomp(&pattern, wanted, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    bool matches = regexec(&pattern, name, 0, NULL, 0) == 0;
    regfree(&pattern);
    return matches;
}

static void
add_partitions(const struct kafka_settings *settings,
               const struct rd_kafka_metadata *metadata,
               rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const rd_kafka_metadata_topic_t *topic = &metadata->topics[i];
        bool is_wanted = false;
        for (size_t k = 0; k < settings->topic_count && !is_wanted; k++)
            is_wanted = is_matched(settings->topics[k], topic->topic);
        for (int p = 0; is_wanted && p < topic->partition_cnt; p++)
            rd_kafka_topic_partition_list_add(partitions, topic->topic,
                                              topic->partitions[p].id);
    }
}

static enum skr_code
check_lagging(const struct kafka_settings *settings,
              const rd_kafka_topic_partition_list_t *partitions,
              struct skr_error *error)
{
    for (size_t i = 0; i < settings->topic_count; i++) {
        const char *name = settings->topics[i];
        bool is_there = name[0] == '^';
        for (int p = 0; p < partitions->cnt && !is_there; p++)
            is_there = strcmp(partitions->elems[p].topic, name) == 0;
        if (!is_there)
            return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                            "topic %.100s does not exist on Kafka at %.60s",
                            name, settings->brokers);
    }
    return SKR_OK;
}

// One request for each broker, however many partitions there are.
static bool
ask_offsets(struct kafka_broker *broker,
            rd_kafka_topic_partition_list_t *offsets)
{
    bool is_told =
        rd_kafka_offsets_for_times(broker->client.handle, offsets,
                                   (int)broker->settings.connect_timeout_ms) ==
        RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; i < offsets->cnt && is_told; i++)
        is_told = offsets->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR;
    return is_told;
}

// Where each partition begins, or ends: which is one of librdkafka's names for
// these.
static enum skr_code
read_offsets(struct kafka_broker *broker,
             const rd_kafka_topic_partition_list_t *partitions, int64_t which,
             rd_kafka_topic_partition_list_t **offsets, struct skr_error *error)
{
    *offsets = rd_kafka_topic_partition_list_copy(partitions);
    for (int i = 0; i < (*offsets)->cnt; i++)
        (*offsets)->elems[i].offset = which;
    return ask_offsets(broker, *offsets)
               ? SKR_OK
               : skr_kafka_client_fail(&broker->client,
                                       "does not tell of its offsets", error);
}

static int64_t
offset_of(rd_kafka_topic_partition_list_t *offsets,
          const rd_kafka_topic_partition_t *partition)
{
    const rd_kafka_topic_partition_t *found =
        rd_kafka_topic_partition_list_find(offsets, partition->topic,
                                           partition->partition);
    return found == NULL || found->offset < 0 ? 0 : found->offset;
}

// The group begins at the first message where it has not said how far it is,
// and where that is gone.
static struct skr_lag
lag_of(const rd_kafka_topic_partition_t *partition, int64_t first, int64_t end)
{
    int64_t from = partition->offset > first ? partition->offset : first;
    struct skr_lag lag = {
        .partition = partition->partition,
        .written = (uint64_t)end,
        .has_position = partition->offset >= 0,
        .position = partition->offset >= 0 ? (uint64_t)partition->offset : 0,
        .behind = end > from ? (uint64_t)(end - from) : 0,
    };
    snprintf(lag.topic, sizeof(lag.topic), "%s", partition->topic);
    return lag;
}

static int
compare_lags(const void *left, const void *right)
{
    const struct skr_lag *a = left, *b = right;
    if (a->behind != b->behind)
        return a->behind < b->behind ? 1 : -1;
    int order = strcmp(a->topic, b->topic);
    return order != 0 ? order : a->partition - b->partition;
}

static enum skr_code
read_lags(struct kafka_broker *broker,
          const rd_kafka_topic_partition_list_t *partitions,
          struct skr_depth *depth, struct skr_error *error)
{
    rd_kafka_topic_partition_list_t *firsts = NULL, *ends = NULL;
    size_t count = (size_t)partitions->cnt;
    if (count == 0)
        return SKR_OK;
    depth->lags = calloc(count, sizeof(*depth->lags));
    if (depth->lags == NULL)
        return skr_fail_memory(error);
    enum skr_code code = read_offsets(
        broker, partitions, RD_KAFKA_OFFSET_BEGINNING, &firsts, error);
    if (code == SKR_OK)
        code =
            read_offsets(broker, partitions, RD_KAFKA_OFFSET_END, &ends, error);
    for (size_t i = 0; i < count && code == SKR_OK; i++) {
        const rd_kafka_topic_partition_t *partition = &partitions->elems[i];
        depth->lags[depth->lag_count++] =
            lag_of(partition, offset_of(firsts, partition),
                   offset_of(ends, partition));
    }
    qsort(depth->lags, depth->lag_count, sizeof(*depth->lags), compare_lags);
    rd_kafka_topic_partition_list_destroy(firsts);
    if (ends != NULL)
        rd_kafka_topic_partition_list_destroy(ends);
    return code;
}

// Whether the group has left any message unread that is older than this. Only
// offsets are asked for: nothing is fetched.
static bool
has_older(struct kafka_broker *broker, const struct skr_depth *depth,
          int64_t age_s, bool *has)
{
    int64_t at_ms = skr_clock_wall_us() / 1000 - age_s * 1000;
    rd_kafka_topic_partition_list_t *times =
        rd_kafka_topic_partition_list_new((int)depth->lag_count);
    for (size_t i = 0; i < depth->lag_count; i++)
        if (depth->lags[i].behind > 0)
            rd_kafka_topic_partition_list_add(times, depth->lags[i].topic,
                                              depth->lags[i].partition)
                ->offset = at_ms;
    bool is_told = ask_offsets(broker, times);
    *has = false;
    for (size_t i = 0; i < depth->lag_count && is_told; i++) {
        const struct skr_lag *lag = &depth->lags[i];
        const rd_kafka_topic_partition_t *found =
            rd_kafka_topic_partition_list_find(times, lag->topic,
                                               lag->partition);
        int64_t first = (int64_t)(lag->written - lag->behind);
        // A negative one is the end: all are older.
        *has = *has ||
               (found != NULL && (found->offset < 0 || found->offset > first));
    }
    rd_kafka_topic_partition_list_destroy(times);
    return is_told;
}

// By doubling and halving: some twenty questions. A cluster that keeps no times
// does not answer them.
static void
find_oldest(struct kafka_broker *broker, struct skr_depth *depth)
{
    int64_t low_s = 0, high_s = 1;
    bool has = true, is_told = depth->messages > 0;
    while (is_told && has && high_s < OLDEST_S) {
        is_told = has_older(broker, depth, high_s, &has);
        low_s = has ? high_s : low_s;
        high_s = has ? 2 * high_s : high_s;
    }
    while (is_told && high_s - low_s > 1 + low_s / 50) {
        int64_t middle_s = low_s + (high_s - low_s) / 2;
        is_told = has_older(broker, depth, middle_s, &has);
        low_s = has ? middle_s : low_s;
        high_s = has ? high_s : middle_s;
    }
    depth->has_oldest = is_told;
    depth->oldest_s = low_s;
}

static void
count_members(struct kafka_broker *broker, struct skr_depth *depth)
{
    const struct rd_kafka_group_list *groups = NULL;
    if (rd_kafka_list_groups(broker->client.handle, broker->settings.group,
                             &groups,
                             (int)broker->settings.connect_timeout_ms) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    depth->has_consumers = true;
    for (int i = 0; i < groups->group_cnt; i++)
        depth->consumers += (uint64_t)groups->groups[i].member_cnt;
    rd_kafka_group_list_destroy(groups);
}

// Where no consumer reads by the name of the group, the transport may be there
// to publish to; then it is known what came, and no more.
static void
add_up(const struct kafka_broker *broker, struct skr_depth *depth)
{
    bool is_read = broker->settings.is_consumed || depth->consumers > 0;
    depth->has_written = depth->lag_count > 0;
    for (size_t i = 0; i < depth->lag_count; i++) {
        is_read = is_read || depth->lags[i].has_position;
        depth->written += depth->lags[i].written;
        depth->messages += depth->lags[i].behind;
    }
    depth->taken = depth->written - depth->messages;
    depth->has_messages = is_read;
    depth->has_taken = is_read && depth->has_written;
    if (!is_read)
        depth->lag_count = 0;
}

// How far a group is behind the topics that it reads.
static enum skr_code
kafka_depth(struct skr_broker *base, struct skr_depth *depth,
            struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    rd_kafka_t *handle = broker->client.handle;
    int timeout_ms = (int)broker->settings.connect_timeout_ms;
    const struct rd_kafka_metadata *metadata = NULL;
    *depth = (struct skr_depth){.messages = 0};
    if (rd_kafka_metadata(handle, 1, NULL, &metadata, timeout_ms) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        return skr_kafka_client_fail(&broker->client,
                                     "does not tell of its topics", error);
    rd_kafka_topic_partition_list_t *partitions =
        rd_kafka_topic_partition_list_new(metadata->topic_cnt);
    add_partitions(&broker->settings, metadata, partitions);
    rd_kafka_metadata_destroy(metadata);
    enum skr_code code = SKR_OK;
    if (broker->settings.is_consumed)
        code = check_lagging(&broker->settings, partitions, error);
    if (code == SKR_OK && rd_kafka_committed(handle, partitions, timeout_ms) !=
                              RD_KAFKA_RESP_ERR_NO_ERROR)
        code = skr_kafka_client_fail(
            &broker->client, "does not tell how far the group is", error);
    if (code == SKR_OK)
        code = read_lags(broker, partitions, depth, error);
    if (code == SKR_OK) {
        count_members(broker, depth);
        add_up(broker, depth);
        if (depth->has_messages)
            find_oldest(broker, depth);
    }
    rd_kafka_topic_partition_list_destroy(partitions);
    return code;
}

static const char *const file_parameters[] = {
    "cacert",
    "cert",
    "key",
    "sasl.kerberos.keytab",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.keystore.location",
    NULL,
};

const struct skr_broker_ops skr_kafka_broker = {
    .scheme = "kafka",
    .size = sizeof(struct kafka_broker),
    .has_topics = true,
    .check_url = kafka_check_url,
    .exposure = kafka_exposure,
    .files = {.parameters = file_parameters},
    .open = kafka_open,
    .close = kafka_close,
    .submit = skr_kafka_submit,
    .results = skr_kafka_results,
    .receive = skr_kafka_receive,
    .settle = skr_kafka_settle,
    .status = skr_kafka_status,
    .depth = kafka_depth,
    .subscription = kafka_subscription,
};
