// SPDX-License-Identifier: MIT
// Messages on their way to Kafka, and what became of them.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "broker/kafka/errors.h"
#include "broker/kafka/kafka.h"
#include "message/route.h"

#include <stdlib.h>
#include <string.h>

enum {
    LONGEST_WAIT_MS = 250,
    MOST_CHANGES = 3,
};

static enum skr_code
repeat_failure(const struct kafka_broker *broker, struct skr_error *error)
{
    if (error != NULL)
        *error = broker->failure;
    return broker->failure.code;
}

// A value of NULL is one that is null.
static bool
add_header(rd_kafka_headers_t *headers, const char *name, const char *value)
{
    return rd_kafka_header_add(headers, name, -1, value,
                               value == NULL ? 0 : -1) ==
           RD_KAFKA_RESP_ERR_NO_ERROR;
}

// Rows of a table that knows no type of content give "", and have none.
static enum skr_code
make_headers(const struct skr_message *message, rd_kafka_headers_t **headers,
             struct skr_error *error)
{
    const char *content_type = message->content_type == NULL
                                   ? SKR_DEFAULT_CONTENT_TYPE
                                   : message->content_type;
    rd_kafka_headers_t *made = rd_kafka_headers_new(message->header_count + 1);
    bool ok = made != NULL;
    for (size_t i = 0; ok && i < message->header_count; i++)
        ok = add_header(made, message->headers[i].name,
                        message->headers[i].value);
    if (ok && content_type[0] != '\0')
        ok = add_header(made, SKR_HEADER_CONTENT_TYPE, content_type);
    if (ok) {
        *headers = made;
        return SKR_OK;
    }
    if (made != NULL)
        rd_kafka_headers_destroy(made);
    return skr_fail_memory(error);
}

// librdkafka does not write to what it is given.
static void *
unconst(const void *bytes)
{
    union {
        const void *given;
        void *wanted;
    } pointer = {.given = bytes};
    return pointer.wanted;
}

static rd_kafka_resp_err_t
take_code(rd_kafka_error_t *problem)
{
    rd_kafka_resp_err_t code = rd_kafka_error_code(problem);
    if (problem != NULL)
        rd_kafka_error_destroy(problem);
    return code;
}

// *is_full: it has to wait, and those behind it as well.
static enum skr_code
send_entry(struct kafka_broker *broker, struct kafka_entry *entry,
           bool *is_full, struct skr_error *error)
{
    const struct skr_message *message = entry->message;
    rd_kafka_headers_t *headers = NULL;
    size_t key_size = entry->key == NULL ? 0 : strlen(entry->key);
    enum skr_code code = make_headers(message, &headers, error);
    if (code != SKR_OK)
        return code;
    const rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = entry->topic},
        {.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = RD_KAFKA_PARTITION_UA},
        {.vtype = RD_KAFKA_VTYPE_VALUE,
         .u.mem = {.ptr = unconst(message->body), .size = message->body_size}},
        {.vtype = RD_KAFKA_VTYPE_KEY,
         .u.mem = {.ptr = unconst(entry->key), .size = key_size}},
        {.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers},
        {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = entry},
    };
    rd_kafka_resp_err_t result = take_code(
        rd_kafka_produceva(broker->client.handle, parts, SKR_COUNT_OF(parts)));
    struct kafka_window *window = &broker->producer.window;
    if (result == RD_KAFKA_RESP_ERR_NO_ERROR) {
        window->waiting = entry->next;
        entry->was_taken = true;
        return SKR_OK;
    }
    rd_kafka_headers_destroy(headers);
    *is_full = result == RD_KAFKA_RESP_ERR__QUEUE_FULL;
    if (*is_full)
        return SKR_OK;
    switch (skr_kafka_blame(result)) {
    case KAFKA_BLAME_MESSAGE:
        skr_kafka_window_refuse(window, entry, SKR_REFUSED_FOR_GOOD, result);
        return SKR_OK;
    case KAFKA_BLAME_TOPIC:
        skr_kafka_window_refuse(window, entry,
                                skr_kafka_topic_fate(broker, result), result);
        return SKR_OK;
    case KAFKA_BLAME_BROKER:
        skr_kafka_window_refuse(window, entry, SKR_REFUSED_ONCE, result);
        return SKR_OK;
    case KAFKA_BLAME_PRODUCER:
        broker->producer.must_change = true;
        *is_full = true;
        return SKR_OK;
    }
    abort();
}

// Suspects go alone, one when the one before it is known, and what was
// submitted after them waits until all are.
static enum skr_code
send_waiting(struct kafka_broker *broker, struct skr_error *error)
{
    struct kafka_producer *producer = &broker->producer;
    struct kafka_entry *entry;
    bool is_full = producer->must_change;
    enum skr_code code = SKR_OK;
    while (code == SKR_OK && !is_full &&
           (entry = producer->window.waiting) != NULL &&
           (!producer->is_careful ||
            (entry->is_suspect && entry == producer->window.open.first)))
        code = send_entry(broker, entry, &is_full, error);
    return code;
}

// The new one begins at the least that is open, so that nothing is passed.
static enum skr_code
change_producer(struct kafka_broker *broker, struct skr_error *error)
{
    struct kafka_producer *producer = &broker->producer;
    char reason[200] = "a batch was refused";
    // Reports of the batch may not have come yet.
    bool is_careful =
        rd_kafka_fatal_error(broker->client.handle, reason, sizeof(reason)) ==
            RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE ||
        producer->finds_blame;
    skr_kafka_producer_end(broker);
    producer->finds_blame = false;
    if (++producer->changes > MOST_CHANGES)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "Kafka at %.60s ends one producer after the other: %s",
                        broker->settings.brokers, reason);
    skr_log(&broker->client.log, SKR_LOG_INFO, "kafka.producer_changed",
            SKR_LOG_TEXT("brokers", broker->settings.brokers),
            SKR_LOG_NUMBER("open", producer->window.open.count),
            SKR_LOG_TEXT("error", reason));
    skr_kafka_window_rewind(&producer->window, is_careful);
    return skr_kafka_producer_start(broker, is_careful, error);
}

static enum skr_code
check_patience(struct kafka_broker *broker, struct skr_error *error)
{
    struct kafka_client *client = &broker->client;
    int64_t now_ms = skr_clock_ms();
    if (broker->producer.window.open.count == 0) {
        broker->producer.progress_ms = now_ms;
        // Nothing is to go there: it has the time to come back.
        skr_kafka_client_look_after(client);
        return SKR_OK;
    }
    int64_t waited_ms = now_ms - broker->producer.progress_ms;
    if (waited_ms > broker->settings.confirm_timeout_ms)
        return skr_kafka_client_fail(
            client, "has confirmed nothing for a while (confirm_timeout)",
            error);
    skr_kafka_client_say_away(client, waited_ms);
    return SKR_OK;
}

static enum skr_code
turn(struct kafka_broker *broker, uint32_t timeout_ms, struct skr_error *error)
{
    struct kafka_producer *producer = &broker->producer;
    enum skr_code code = send_waiting(broker, error);
    if (code != SKR_OK)
        return code;
    rd_kafka_poll(broker->client.handle, timeout_ms < LONGEST_WAIT_MS
                                             ? (int)timeout_ms
                                             : LONGEST_WAIT_MS);
    char unused[8];
    if (rd_kafka_fatal_error(broker->client.handle, unused, sizeof(unused)) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        producer->must_change = true;
    if (producer->is_careful && producer->window.suspects == 0)
        producer->must_change = true;
    if (producer->must_change)
        code = change_producer(broker, error);
    if (code == SKR_OK)
        code = send_waiting(broker, error);
    return code == SKR_OK ? check_patience(broker, error) : code;
}

static void
lose(struct kafka_broker *broker)
{
    struct kafka_window *window = &broker->producer.window;
    broker->failure.remedy = SKR_RECONNECT;
    // Nothing may arrive once it was called uncertain and is sent anew.
    skr_kafka_producer_end(broker);
    while (window->open.first != NULL)
        skr_kafka_window_finish(window, window->open.first, SKR_UNCERTAIN,
                                RD_KAFKA_RESP_ERR__TRANSPORT);
}

static size_t
give(struct kafka_broker *broker, struct skr_outcome *outcomes, size_t capacity)
{
    size_t count = 0;
    struct kafka_entry *entry;
    while (count < capacity &&
           (entry = skr_kafka_window_take(&broker->producer.window)) != NULL) {
        struct skr_outcome *outcome = &outcomes[count++];
        outcome->ticket = entry->ticket;
        outcome->fate = entry->fate;
        if (entry->fate == SKR_UNCERTAIN)
            outcome->reason = broker->failure;
        else if (entry->fate != SKR_CONFIRMED)
            skr_kafka_explain(entry, &outcome->reason);
        free(entry);
    }
    return count;
}

enum skr_code
skr_kafka_outcomes(struct skr_broker *base, struct skr_outcome *outcomes,
                   size_t capacity, size_t *count, uint32_t timeout_ms,
                   struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    struct kafka_window *window = &broker->producer.window;
    int64_t deadline_ms = skr_clock_ms() + timeout_ms;
    bool waits = true;
    while (broker->failure.code == SKR_OK && waits) {
        int64_t left = deadline_ms - skr_clock_ms();
        waits =
            left > 0 && window->open.count > 0 && window->finished.count == 0;
        if (turn(broker, waits ? (uint32_t)left : 0, &broker->failure) !=
            SKR_OK)
            lose(broker);
        waits = waits && window->finished.count == 0;
    }
    *count = give(broker, outcomes, capacity);
    // The error comes when there is nothing else left to tell.
    return *count > 0 || broker->failure.code == SKR_OK
               ? SKR_OK
               : repeat_failure(broker, error);
}

static enum skr_code
check_topic(const char *topic, struct skr_error *error)
{
    if (skr_kafka_is_topic(topic))
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "'%.100s' is no name of a topic: 1 to 249 letters, digits, "
                    "dots, underscores and hyphens are needed",
                    topic);
}

enum skr_code
skr_kafka_submit(struct skr_broker *base, const struct skr_message *message,
                 const struct skr_route *route, uint64_t ticket,
                 struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    if (broker->consumer.is_wanted)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection consumes; another is needed to "
                        "publish");
    if (broker->failure.code != SKR_OK)
        return repeat_failure(broker, error);
    const char *topic = route == NULL ? NULL : route->topic;
    const char *key = route == NULL ? NULL : route->key;
    const char *partition_key = route == NULL ? NULL : route->partition_key;
    char id[SKR_ID_TEXT_SIZE];
    if (topic == NULL)
        topic = broker->settings.topic == NULL ? message->name
                                               : broker->settings.topic;
    if (route == NULL) {
        skr_id_format(message->id, id);
        key = message->partition_key == NULL ? id : message->partition_key;
        partition_key = key;
    }
    enum skr_code code = check_topic(topic, error);
    // It owes an answer from now on, however long ago the last one was.
    if (broker->producer.window.open.count == 0)
        broker->producer.progress_ms = skr_clock_ms();
    if (code == SKR_OK)
        code = skr_kafka_window_add(&broker->producer.window, message, topic,
                                    key, partition_key, ticket, error);
    // From here on it has an outcome, whatever happens.
    if (code == SKR_OK && send_waiting(broker, &broker->failure) != SKR_OK)
        lose(broker);
    return code;
}
