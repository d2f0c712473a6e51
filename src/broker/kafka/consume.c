// SPDX-License-Identifier: MIT
// A member of a consumer group: from joining it to leaving.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "broker/kafka/kafka.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    CREATE_MS = 10000,
    KNOWN_MS = 1000,
    ASK_AGAIN_MS = 50,
    LEAVE_MS = 5000,
    LEAVE_POLL_MS = 50,
};

static rd_kafka_resp_err_t
await_topic(rd_kafka_queue_t *queue)
{
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 2 * CREATE_MS);
    if (event == NULL)
        return RD_KAFKA_RESP_ERR__TIMED_OUT;
    size_t count = 0;
    rd_kafka_resp_err_t result = rd_kafka_event_error(event);
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(
            rd_kafka_event_CreateTopics_result(event), &count);
    if (result == RD_KAFKA_RESP_ERR_NO_ERROR && count > 0)
        result = rd_kafka_topic_result_error(results[0]);
    rd_kafka_event_destroy(event);
    return result;
}

static enum skr_code
create_topic(struct kafka_broker *broker, const char *name,
             struct skr_error *error)
{
    rd_kafka_t *handle = broker->client.handle;
    char reason[160];
    // As many partitions and copies as the cluster gives by default. The
    // answer comes when every broker knows of it.
    rd_kafka_NewTopic_t *topic =
        rd_kafka_NewTopic_new(name, -1, -1, reason, sizeof(reason));
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(handle, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
    rd_kafka_resp_err_t result = RD_KAFKA_RESP_ERR__INVALID_ARG;
    if (topic != NULL && rd_kafka_AdminOptions_set_operation_timeout(
                             options, CREATE_MS, reason, sizeof(reason)) ==
                             RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_CreateTopics(handle, &topic, 1, options, queue);
        result = await_topic(queue);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    if (topic != NULL)
        rd_kafka_NewTopic_destroy(topic);
    if (result == RD_KAFKA_RESP_ERR_NO_ERROR ||
        result == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_RECONNECT,
                    "Kafka at %.60s did not make the topic %.100s: %s",
                    broker->settings.brokers, name, rd_kafka_err2str(result));
}

// What the cluster says of a topic. One that was made just now need not be
// known to the broker that is asked.
static enum skr_code
ask_for_topic(struct kafka_broker *broker, const char *name,
              int64_t patience_ms, rd_kafka_resp_err_t *answer,
              struct skr_error *error)
{
    rd_kafka_t *handle = broker->client.handle;
    int64_t end_ms = skr_clock_ms() + patience_ms;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
    enum skr_code code = SKR_OK;
    do {
        const struct rd_kafka_metadata *metadata = NULL;
        if (rd_kafka_metadata(handle, 0, topic, &metadata,
                              (int)broker->settings.connect_timeout_ms) !=
            RD_KAFKA_RESP_ERR_NO_ERROR) {
            code = skr_kafka_client_fail(&broker->client,
                                         "does not tell of its topics", error);
            break;
        }
        *answer = metadata->topic_cnt > 0
                      ? metadata->topics[0].err
                      : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        rd_kafka_metadata_destroy(metadata);
    } while (*answer == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART &&
             skr_clock_ms() < end_ms && !skr_clock_sleep(-1, ASK_AGAIN_MS));
    rd_kafka_topic_destroy(topic);
    return code;
}

static enum skr_code
check_topic(struct kafka_broker *broker, const char *name,
            struct skr_error *error)
{
    rd_kafka_resp_err_t answer = RD_KAFKA_RESP_ERR_NO_ERROR;
    bool makes = broker->settings.auto_setup;
    if (name[0] == '^')
        return SKR_OK;
    enum skr_code code =
        ask_for_topic(broker, name, makes ? 0 : KNOWN_MS, &answer, error);
    if (code == SKR_OK && makes &&
        answer == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
        code = create_topic(broker, name, error);
        if (code == SKR_OK)
            code = ask_for_topic(broker, name, CREATE_MS, &answer, error);
    }
    if (code != SKR_OK)
        return code;
    if (answer == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        return skr_fail(error, SKR_REFUSED, SKR_RECONNECT,
                        "Kafka at %.60s: the user may not read topic %.100s; "
                        "allow it by an ACL",
                        broker->settings.brokers, name);
    if (answer == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        return skr_fail(error, SKR_MISSING, SKR_RECONNECT,
                        "topic %.100s does not exist on Kafka at %.60s; create "
                        "it, or set auto_setup: true",
                        name, broker->settings.brokers);
    return SKR_OK;
}

static enum skr_code
subscribe(struct kafka_broker *broker, struct skr_error *error)
{
    const struct kafka_settings *settings = &broker->settings;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < settings->topic_count && code == SKR_OK; i++)
        code = check_topic(broker, settings->topics[i], error);
    if (code != SKR_OK)
        return code;
    rd_kafka_topic_partition_list_t *topics =
        rd_kafka_topic_partition_list_new((int)settings->topic_count);
    for (size_t i = 0; i < settings->topic_count; i++)
        rd_kafka_topic_partition_list_add(topics, settings->topics[i],
                                          RD_KAFKA_PARTITION_UA);
    rd_kafka_poll_set_consumer(broker->client.handle);
    rd_kafka_resp_err_t result =
        rd_kafka_subscribe(broker->client.handle, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (result == RD_KAFKA_RESP_ERR_NO_ERROR)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "topics in the DSN cannot be subscribed to: %s",
                    rd_kafka_err2str(result));
}

static enum skr_code
start_client(struct kafka_broker *broker, bool is_watched,
             struct skr_error *error)
{
    static const struct {
        const char *name, *value;
    } promises[] = {
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"allow.auto.create.topics", "false"},
        {"enable.partition.eof", "true"},
    };
    rd_kafka_conf_t *properties =
        rd_kafka_conf_dup(broker->settings.properties);
    enum skr_code code =
        skr_kafka_set(properties, "group.id", broker->settings.group, error);
    for (size_t i = 0; i < SKR_COUNT_OF(promises) && code == SKR_OK; i++)
        code = skr_kafka_set(properties, promises[i].name, promises[i].value,
                             error);
    if (code != SKR_OK) {
        rd_kafka_conf_destroy(properties);
        return code;
    }
    rd_kafka_conf_set_rebalance_cb(properties, skr_kafka_on_rebalance);
    return skr_kafka_client_start(&broker->client, RD_KAFKA_CONSUMER,
                                  is_watched, properties, error);
}

enum skr_code
skr_kafka_consumer_connect(struct kafka_broker *broker, bool is_watched,
                           struct skr_error *error)
{
    enum skr_code code = start_client(broker, is_watched, error);
    if (code == SKR_OK)
        code = skr_kafka_client_reach(&broker->client, broker->base.wake_fd,
                                      error);
    return code;
}

enum skr_code
skr_kafka_consumer_start(struct kafka_broker *broker, struct skr_error *error)
{
    static const uint64_t one = 1;
    struct kafka_consumer *consumer = &broker->consumer;
    consumer->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (consumer->ready_fd < 0)
        return skr_fail(error, SKR_NO_MEMORY, SKR_TRY_AGAIN,
                        "cannot make an eventfd: %s", strerror(errno));
    enum skr_code code = skr_kafka_consumer_connect(broker, true, error);
    if (code == SKR_OK)
        code = subscribe(broker, error);
    if (code != SKR_OK)
        return code;
    consumer->queue = rd_kafka_queue_get_consumer(broker->client.handle);
    rd_kafka_queue_io_event_enable(consumer->queue, consumer->ready_fd, &one,
                                   sizeof(one));
    return SKR_OK;
}

// rd_kafka_consumer_close() would wait for as long as it takes. What is settled
// is committed on the way, when the partitions go.
static void
leave_group(struct kafka_broker *broker)
{
    rd_kafka_t *handle = broker->client.handle;
    rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
    int64_t end_ms = skr_clock_ms() + LEAVE_MS;
    rd_kafka_error_t *problem = rd_kafka_consumer_close_queue(handle, queue);
    while (problem == NULL && !rd_kafka_consumer_closed(handle) &&
           skr_clock_ms() < end_ms) {
        rd_kafka_event_t *event = rd_kafka_queue_poll(queue, LEAVE_POLL_MS);
        if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_REBALANCE)
            skr_kafka_on_rebalance(handle, rd_kafka_event_error(event),
                                   rd_kafka_event_topic_partition_list(event),
                                   &broker->client);
        rd_kafka_event_destroy(event);
    }
    if (problem != NULL)
        rd_kafka_error_destroy(problem);
    rd_kafka_queue_destroy(queue);
}

void
skr_kafka_consumer_end(struct kafka_broker *broker)
{
    struct kafka_consumer *consumer = &broker->consumer;
    bool was_joined = consumer->queue != NULL;
    // A cluster that does not answer would be waited for.
    bool leaves = was_joined && broker->failure.code == SKR_OK &&
                  broker->client.down_since_ms == 0;
    if (was_joined)
        rd_kafka_queue_io_event_enable(consumer->queue, -1, NULL, 0);
    if (leaves)
        leave_group(broker);
    skr_kafka_lanes_fini(&consumer->lanes);
    if (was_joined)
        rd_kafka_queue_destroy(consumer->queue);
    skr_kafka_client_end(&broker->client);
    if (consumer->ready_fd >= 0)
        close(consumer->ready_fd);
    skr_arena_fini(&consumer->arena);
    consumer->queue = NULL;
    consumer->ready_fd = -1;
}
