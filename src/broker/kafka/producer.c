// SPDX-License-Identifier: MIT
// Publishing: the window of messages on their way, the producer of librdkafka
// with its properties, reports and end, and what became of each message.

#include "broker/kafka/kafka.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "message/route.h"

#include <stdlib.h>
#include <string.h>

// As Java's client: a key goes to the same partition as from there.
static uint32_t
murmur2(const uint8_t *bytes, size_t size)
{
    const uint32_t multiplier = 0x5bd1e995;
    const uint32_t seed = 0x9747b28c;
    uint32_t hash = seed ^ (uint32_t)size;
    size_t left = size;
    for (; left >= 4; left -= 4, bytes += 4) {
        uint32_t word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
                        (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        word *= multiplier;
        word ^= word >> 24;
        word *= multiplier;
        hash = hash * multiplier ^ word;
    }
    uint32_t rest = 0;
    for (size_t i = 0; i < left; i++)
        rest |= (uint32_t)bytes[i] << 8 * i;
    if (left > 0)
        hash = (hash ^ rest) * multiplier;
    hash ^= hash >> 13;
    hash *= multiplier;
    return hash ^ hash >> 15;
}

// As Go's Sarama.
static uint32_t
fnv1a(const uint8_t *bytes, size_t size)
{
    uint32_t hash = 0x811c9dc5;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x01000193;
    return hash;
}

int32_t
skr_kafka_partition(bool is_fnv1a, const void *key, size_t size, int32_t count)
{
    // Java drops the sign, and so gets another number than its absolute.
    if (!is_fnv1a)
        return (int32_t)(murmur2(key, size) & 0x7fffffff) % count;
    // Go's remainder has the sign of the hash, which is then turned.
    int32_t rest = (int32_t)fnv1a(key, size) % count;
    return rest < 0 ? -rest : rest;
}

static void
append(struct kafka_list *list, struct kafka_entry *entry)
{
    entry->next = NULL;
    entry->previous = list->last;
    if (list->last == NULL)
        list->first = entry;
    else
        list->last->next = entry;
    list->last = entry;
    list->count++;
}

static void
detach(struct kafka_list *list, struct kafka_entry *entry)
{
    if (entry->previous == NULL)
        list->first = entry->next;
    else
        entry->previous->next = entry->next;
    if (entry->next == NULL)
        list->last = entry->previous;
    else
        entry->next->previous = entry->previous;
    list->count--;
}

static size_t
size_of(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

static const char *
copy(char **place, const char *text)
{
    if (text == NULL)
        return NULL;
    char *start = *place;
    memcpy(start, text, size_of(text));
    *place += size_of(text);
    return start;
}

// A message without a key is in order with none.
static bool
is_in_order(const struct kafka_entry *entry, const struct kafka_entry *other)
{
    return entry->partition_key != NULL && other->partition_key != NULL &&
           strcmp(entry->partition_key, other->partition_key) == 0 &&
           strcmp(entry->topic, other->topic) == 0;
}

static const struct kafka_entry *
find_refused(const struct kafka_window *window, const struct kafka_entry *entry)
{
    const struct kafka_entry *other =
        window->refused == 0 ? NULL : window->finished.first;
    while (other != NULL && (!other->is_refused || !is_in_order(other, entry)))
        other = other->next;
    return other;
}

static void
window_finish(struct kafka_window *window, struct kafka_entry *entry,
              enum skr_publish_result result, rd_kafka_resp_err_t native)
{
    if (window->waiting == entry)
        window->waiting = entry->next;
    detach(&window->open, entry);
    window->suspects -= entry->is_suspect;
    entry->result = result;
    entry->native = native;
    append(&window->finished, entry);
}

// Copies the texts. Held back at once behind one that was refused and has not
// been taken yet.
static enum skr_code
window_add(struct kafka_window *window, const struct kafka_entry *wanted,
           struct skr_error *error)
{
    struct kafka_entry *entry =
        malloc(sizeof(*entry) + size_of(wanted->topic) + size_of(wanted->key) +
               size_of(wanted->partition_key));
    if (entry == NULL)
        return skr_fail_memory(error);
    char *place = (char *)(entry + 1);
    *entry = *wanted;
    entry->topic = copy(&place, wanted->topic);
    entry->key = copy(&place, wanted->key);
    entry->partition_key = copy(&place, wanted->partition_key);
    append(&window->open, entry);
    if (window->waiting == NULL)
        window->waiting = entry;
    const struct kafka_entry *refused = find_refused(window, entry);
    if (refused != NULL)
        window_finish(window, entry, SKR_HELD_BACK, refused->native);
    return SKR_OK;
}

// Those of its key that librdkafka does not have are held back with it: whether
// they may pass is for the caller to say.
static void
window_refuse(struct kafka_window *window, struct kafka_entry *entry,
              enum skr_publish_result result, rd_kafka_resp_err_t native)
{
    window_finish(window, entry, result, native);
    entry->is_refused = true;
    window->refused++;
    for (struct kafka_entry *next, *behind = window->waiting; behind != NULL;
         behind = next) {
        next = behind->next;
        if (is_in_order(entry, behind))
            window_finish(window, behind, SKR_HELD_BACK, native);
    }
}

// The oldest that is finished, for the caller to free; NULL: none.
static struct kafka_entry *
window_take(struct kafka_window *window)
{
    struct kafka_entry *entry = window->finished.first;
    if (entry == NULL)
        return NULL;
    detach(&window->finished, entry);
    window->refused -= entry->is_refused;
    return entry;
}

// What is open has to be sent from the start; each one is suspected, or none.
static void
window_rewind(struct kafka_window *window, bool are_suspects)
{
    window->waiting = window->open.first;
    window->suspects = are_suspects ? window->open.count : 0;
    for (struct kafka_entry *entry = window->open.first; entry != NULL;
         entry = entry->next)
        entry->is_suspect = are_suspects;
}

static void
free_all(struct kafka_list *list)
{
    for (struct kafka_entry *entry = list->first; entry != NULL;) {
        struct kafka_entry *next = entry->next;
        free(entry);
        entry = next;
    }
}

// What librdkafka says of a message.
enum kafka_blame {
    KAFKA_BLAME_MESSAGE,   // or another of its batch
    KAFKA_BLAME_TOPIC,     // nothing can go there now
    KAFKA_BLAME_BROKER,    // may pass later
    KAFKA_BLAME_PRODUCER,  // it has ended: a new one has to send this again
};

static const struct {
    rd_kafka_resp_err_t code;
    enum kafka_blame blame;
    const char *cure;
} errors[] = {
    {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, KAFKA_BLAME_MESSAGE,
     "it is larger than the topic takes; raise its max.message.bytes, or make "
     "the message smaller"},
    {RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, KAFKA_BLAME_MESSAGE,
     "it is larger than a segment of the topic's log"},
    {RD_KAFKA_RESP_ERR_INVALID_RECORD, KAFKA_BLAME_MESSAGE,
     "a topic that is compacted wants a key"},
    {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, KAFKA_BLAME_MESSAGE,
     "its time is out of the topic's bounds"},
    {RD_KAFKA_RESP_ERR_POLICY_VIOLATION, KAFKA_BLAME_MESSAGE,
     "a policy of the cluster forbids it"},
    {RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC, KAFKA_BLAME_TOPIC,
     "it does not exist, and the cluster does not make it by itself; create "
     "it"},
    {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, KAFKA_BLAME_TOPIC,
     "it does not exist, and the cluster does not make it by itself; create "
     "it"},
    {RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, KAFKA_BLAME_TOPIC,
     "a partition of it is not there"},
    {RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, KAFKA_BLAME_TOPIC,
     "the cluster takes no topic of that name"},
    {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, KAFKA_BLAME_TOPIC,
     "the user may not write to it; allow it by an ACL"},
    {RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, KAFKA_BLAME_PRODUCER,
     "the user needs the right IdempotentWrite"},
    {RD_KAFKA_RESP_ERR__FATAL, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR__PURGE_QUEUE, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR__PURGE_INFLIGHT, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR__DESTROY, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_BLAME_PRODUCER,
     NULL},
    {RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, KAFKA_BLAME_PRODUCER, NULL},
    {RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, KAFKA_BLAME_PRODUCER, NULL},
};

static enum kafka_blame
blame_of(rd_kafka_resp_err_t code)
{
    for (size_t i = 0; i < SKR_COUNT_OF(errors); i++)
        if (errors[i].code == code)
            return errors[i].blame;
    return KAFKA_BLAME_BROKER;
}

static const char *
find_cure(rd_kafka_resp_err_t code, bool was_taken)
{
    // The client has a limit of its own, and says the same.
    if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE && !was_taken)
        return "it is larger than this client sends; raise message.max.bytes "
               "in the DSN, or make the message smaller";
    for (size_t i = 0; i < SKR_COUNT_OF(errors); i++)
        if (errors[i].code == code && errors[i].cure != NULL)
            return errors[i].cure;
    return "it is tried again";
}

static enum skr_code
code_of(enum skr_publish_result result)
{
    switch (result) {
    case SKR_CONFIRMED: return SKR_OK;
    case SKR_REFUSED_FOR_NOW:
    case SKR_REFUSED_FOR_GOOD:
    case SKR_UNROUTABLE:
    case SKR_HELD_BACK: return SKR_REFUSED;
    case SKR_UNCERTAIN: return SKR_UNAVAILABLE;
    case SKR_ROUTE_UNAVAILABLE: return SKR_MISSING;
    }
    abort();
}

// Why a finished one was not confirmed.
static void
explain(const struct kafka_entry *entry, struct skr_error *reason)
{
    skr_fail(reason, code_of(entry->result),
             entry->result == SKR_REFUSED_FOR_NOW ? SKR_TRY_AGAIN : SKR_GIVE_UP,
             "topic %.100s: %s (%s)", entry->topic,
             find_cure(entry->native, entry->was_taken),
             rd_kafka_err2name(entry->native));
    skr_error_set_native(reason, "%d", (int)entry->native);
}

enum { END_LIMIT_MS = 5000, END_POLL_MS = 50 };

static void
note_progress(struct kafka_broker *broker)
{
    broker->producer.progress_ms = skr_clock_ms();
    broker->producer.changes = 0;
}

static bool
is_missing_topic(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
           code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
}

// What a refusal means for a message whose fault it is.
static enum skr_publish_result
result_of(const struct kafka_broker *broker, rd_kafka_resp_err_t native)
{
    enum kafka_blame blame = blame_of(native);
    if (blame == KAFKA_BLAME_TOPIC &&
        !(broker->settings.fails_missing_topics && is_missing_topic(native)))
        return SKR_ROUTE_UNAVAILABLE;
    return blame == KAFKA_BLAME_BROKER ? SKR_REFUSED_FOR_NOW
                                       : SKR_REFUSED_FOR_GOOD;
}

static void
on_report(rd_kafka_t *handle, const rd_kafka_message_t *report, void *user)
{
    struct kafka_broker *broker = skr_kafka_broker_of(user);
    struct kafka_producer *producer = &broker->producer;
    struct kafka_entry *entry = report->_private;
    (void)handle;
    if (report->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        skr_kafka_client_note_answer(&broker->client);
        note_progress(broker);
        window_finish(&producer->window, entry, SKR_CONFIRMED, report->err);
        return;
    }
    if (producer->is_ending)
        return;  // it stays open, for the next producer
    enum kafka_blame blame = blame_of(report->err);
    if (blame == KAFKA_BLAME_PRODUCER)
        producer->must_change = true;
    else if (producer->is_careful || blame == KAFKA_BLAME_TOPIC) {
        note_progress(broker);
        window_refuse(&producer->window, entry, result_of(broker, report->err),
                      report->err);
    } else  // it may be another's fault, and those behind it would pass
        producer->must_change = producer->finds_blame = true;
}

// By the key for the partition, which may be another than the record's.
static int32_t
choose_partition(const rd_kafka_topic_t *topic, const void *key,
                 size_t key_size, int32_t count, void *user, void *message)
{
    const struct kafka_settings *settings = user;
    const struct kafka_entry *entry = message;
    if (entry->partition_key == NULL)
        return rd_kafka_msg_partitioner_random(topic, key, key_size, count,
                                               NULL, NULL);
    return skr_kafka_partition(settings->is_fnv1a, entry->partition_key,
                               strlen(entry->partition_key), count);
}

static enum skr_code
set_promises(rd_kafka_conf_t *properties, bool is_careful,
             struct skr_error *error)
{
    const struct {
        const char *name, *value;
    } promises[] = {
        {"enable.idempotence", "true"},
        {"acks", "all"},
        {"message.timeout.ms", "0"},
        {"retries", "2147483647"},
        {"max.in.flight.requests.per.connection", is_careful ? "1" : "5"},
        // One message is under way, behind which nothing can pass.
        {"enable.gapless.guarantee", is_careful ? "false" : "true"},
        {"queue.buffering.max.messages", "10000000"},
        // Or records without a key would not be given to our partitioner.
        {"sticky.partitioning.linger.ms", "0"},
        {"topic.metadata.propagation.max.ms", "10000"},
    };
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(promises) && code == SKR_OK; i++)
        code = skr_kafka_set(properties, promises[i].name, promises[i].value,
                             error);
    if (code == SKR_OK && is_careful)
        code = skr_kafka_set(properties, "batch.num.messages", "1", error);
    return code;
}

enum skr_code
skr_kafka_producer_start(struct kafka_broker *broker, bool is_careful,
                         struct skr_error *error)
{
    rd_kafka_conf_t *properties =
        rd_kafka_conf_dup(broker->settings.properties);
    enum skr_code code = set_promises(properties, is_careful, error);
    if (code != SKR_OK) {
        rd_kafka_conf_destroy(properties);
        return code;
    }
    rd_kafka_conf_set_dr_msg_cb(properties, on_report);
    // Properties of topics are set through it: it is there already.
    rd_kafka_topic_conf_t *of_topics =
        rd_kafka_conf_get_default_topic_conf(properties);
    rd_kafka_topic_conf_set_opaque(of_topics, &broker->settings);
    rd_kafka_topic_conf_set_partitioner_cb(of_topics, choose_partition);
    code = skr_kafka_client_start(&broker->client, RD_KAFKA_PRODUCER, true,
                                  properties, error);
    broker->producer.is_careful = is_careful;
    broker->producer.must_change = false;
    broker->producer.progress_ms = skr_clock_ms();
    return code;
}

// Ends the client at once: what was not confirmed is left open in the window.
static void
end_producer(struct kafka_broker *broker)
{
    rd_kafka_t *handle = broker->client.handle;
    if (handle == NULL)
        return;
    broker->producer.is_ending = true;
    rd_kafka_purge(handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    // Reports that are here already count.
    int64_t end_ms = skr_clock_ms() + END_LIMIT_MS;
    while (rd_kafka_outq_len(handle) > 0 && skr_clock_ms() < end_ms)
        rd_kafka_poll(handle, END_POLL_MS);
    rd_kafka_destroy(handle);
    broker->client.handle = NULL;
    broker->producer.is_ending = false;
}

enum {
    LONGEST_WAIT_MS = 250,
    MOST_CHANGES = 3,
};

void
skr_kafka_producer_fini(struct kafka_broker *broker)
{
    end_producer(broker);
    free_all(&broker->producer.window.open);
    free_all(&broker->producer.window.finished);
    broker->producer.window = (struct kafka_window){.suspects = 0};
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
    rd_kafka_error_t *problem =
        rd_kafka_produceva(broker->client.handle, parts, SKR_COUNT_OF(parts));
    rd_kafka_resp_err_t native = rd_kafka_error_code(problem);
    if (problem != NULL)
        rd_kafka_error_destroy(problem);
    struct kafka_window *window = &broker->producer.window;
    if (native == RD_KAFKA_RESP_ERR_NO_ERROR) {
        window->waiting = entry->next;
        entry->was_taken = true;
        return SKR_OK;
    }
    rd_kafka_headers_destroy(headers);
    *is_full = native == RD_KAFKA_RESP_ERR__QUEUE_FULL;
    if (*is_full)
        return SKR_OK;
    if (blame_of(native) == KAFKA_BLAME_PRODUCER)
        broker->producer.must_change = *is_full = true;
    else
        window_refuse(window, entry, result_of(broker, native), native);
    return SKR_OK;
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
    end_producer(broker);
    producer->finds_blame = false;
    if (++producer->changes > MOST_CHANGES)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "Kafka at %.60s ends one producer after the other: %s",
                        broker->settings.brokers, reason);
    skr_log(&broker->client.log, SKR_LOG_INFO, "kafka.producer_changed",
            SKR_LOG_TEXT("brokers", broker->settings.brokers),
            SKR_LOG_NUMBER("open", producer->window.open.count),
            SKR_LOG_TEXT("error", reason));
    window_rewind(&producer->window, is_careful);
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
    end_producer(broker);
    while (window->open.first != NULL)
        window_finish(window, window->open.first, SKR_UNCERTAIN,
                      RD_KAFKA_RESP_ERR__TRANSPORT);
}

static size_t
give(struct kafka_broker *broker, struct skr_published *results,
     size_t capacity)
{
    size_t count = 0;
    struct kafka_entry *entry;
    while (count < capacity &&
           (entry = window_take(&broker->producer.window)) != NULL) {
        struct skr_published *published = &results[count++];
        published->tag = entry->tag;
        published->result = entry->result;
        if (entry->result == SKR_UNCERTAIN)
            published->reason = broker->failure;
        else if (entry->result != SKR_CONFIRMED)
            explain(entry, &published->reason);
        free(entry);
    }
    return count;
}

enum skr_code
skr_kafka_results(struct skr_broker *base, struct skr_published *results,
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
    *count = give(broker, results, capacity);
    // The error comes when there is nothing else left to tell.
    return *count > 0 || broker->failure.code == SKR_OK
               ? SKR_OK
               : skr_fail_with(error, &broker->failure);
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
                 const struct skr_route *route, uint64_t tag,
                 struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    if (broker->consumer.is_wanted)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection consumes; another is needed to "
                        "publish");
    if (broker->failure.code != SKR_OK)
        return skr_fail_with(error, &broker->failure);
    char id[SKR_ID_TEXT_SIZE];
    struct kafka_entry entry = {.message = message, .tag = tag};
    if (route == NULL) {
        skr_id_format(message->id, id);
        entry.key =
            message->partition_key == NULL ? id : message->partition_key;
        entry.partition_key = entry.key;
    } else {
        entry.topic = route->topic;
        entry.key = route->key;
        entry.partition_key = route->partition_key;
    }
    if (entry.topic == NULL)
        entry.topic = broker->settings.topic == NULL ? message->name
                                                     : broker->settings.topic;
    enum skr_code code = check_topic(entry.topic, error);
    // It owes an answer from now on, however long ago the last one was.
    if (broker->producer.window.open.count == 0)
        broker->producer.progress_ms = skr_clock_ms();
    if (code == SKR_OK)
        code = window_add(&broker->producer.window, &entry, error);
    // From here on it has a result, whatever happens.
    if (code == SKR_OK && send_waiting(broker, &broker->failure) != SKR_OK)
        lose(broker);
    return code;
}
