// SPDX-License-Identifier: MIT
// A member of a consumer group: from joining it to leaving, the partitions that
// are assigned to it, and their records.
//
// What a consumer tells its group is how far each partition has come, and that
// a consumer has records of it in hand. The latter is metadata beside the
// offset: the consumer that takes over from one that died finds it, and hands
// out those records one by one, since one of them may be what killed it.

#include "broker/kafka/kafka.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct kafka_assigned *
find_assigned(const struct kafka_assignment *assignment, const char *topic,
              int32_t partition)
{
    struct kafka_assigned *assigned = assignment->first;
    while (assigned != NULL && (assigned->partition != partition ||
                                strcmp(assigned->topic, topic) != 0))
        assigned = assigned->next;
    return assigned;
}

static struct kafka_assigned *
add_assigned(struct kafka_assignment *assignment, const char *topic,
             int32_t partition)
{
    size_t size = strlen(topic) + 1;
    struct kafka_assigned *assigned = malloc(sizeof(*assigned) + size);
    if (assigned == NULL)
        return NULL;
    *assigned = (struct kafka_assigned){
        .next = assignment->first,
        .number = ++assignment->last_number,
        .position = -1,
        .committed = -1,
        .suspect_end = -1,
        .partition = partition,
    };
    memcpy(assigned->topic, topic, size);
    assignment->first = assigned;
    return assigned;
}

static void
free_first(struct kafka_assigned *assigned)
{
    struct kafka_delivery *delivery = assigned->first;
    assigned->first = delivery->next;
    if (assigned->first == NULL)
        assigned->last = NULL;
    if (delivery->message != NULL)
        rd_kafka_message_destroy(delivery->message);
    free(delivery);
}

static void
remove_assigned(struct kafka_assignment *assignment,
                struct kafka_assigned *assigned)
{
    struct kafka_assigned **place = &assignment->first;
    while (*place != assigned)
        place = &(*place)->next;
    *place = assigned->next;
    while (assigned->first != NULL)
        free_first(assigned);
    free(assigned);
}

// When the first that is deferred is due; negative: none is.
static int64_t
due_at_ms(const struct kafka_assigned *assigned)
{
    for (const struct kafka_delivery *delivery = assigned->first;
         delivery != NULL; delivery = delivery->next)
        if (delivery->state == KAFKA_DEFERRED)
            return delivery->due_ms;
    return -1;
}

static bool
has_deferred(const struct kafka_assigned *assigned)
{
    return due_at_ms(assigned) >= 0;
}

// Takes the message. It is in hand, unless others of its partition are
// deferred. False when memory is out.
static bool
append(struct kafka_assigned *assigned, rd_kafka_message_t *message)
{
    struct kafka_delivery *delivery = malloc(sizeof(*delivery));
    if (delivery == NULL) {
        rd_kafka_message_destroy(message);
        return false;
    }
    *delivery = (struct kafka_delivery){
        .assigned = assigned,
        .message = message,
        .state = has_deferred(assigned) ? KAFKA_DEFERRED : KAFKA_IN_HAND,
    };
    if (assigned->last == NULL)
        assigned->first = delivery;
    else
        assigned->last->next = delivery;
    assigned->last = delivery;
    assigned->position = message->offset + 1;
    assigned->is_at_end = false;
    return true;
}

// Frees what is settled; what the caller has not settled is deferred.
static void
prune(struct kafka_assigned *assigned)
{
    while (assigned->first != NULL && assigned->first->state == KAFKA_SETTLED)
        free_first(assigned);
    for (struct kafka_delivery *delivery = assigned->first; delivery != NULL;
         delivery = delivery->next)
        if (delivery->state == KAFKA_IN_HAND)
            delivery->state = KAFKA_DEFERRED;
}

// Hands out what is deferred and due, in order, up to most; how many it was.
static size_t
hand_out(struct kafka_assigned *assigned, size_t most, int64_t now_ms)
{
    size_t count = 0;
    for (struct kafka_delivery *delivery = assigned->first;
         delivery != NULL && count < most; delivery = delivery->next) {
        if (delivery->state != KAFKA_DEFERRED)
            continue;
        if (delivery->due_ms > now_ms)
            break;
        delivery->state = KAFKA_IN_HAND;
        count++;
    }
    return count;
}

static void
settle_delivery(struct kafka_delivery *delivery, enum skr_settlement settlement,
                uint32_t delay_ms, int64_t now_ms)
{
    delivery->state = KAFKA_DEFERRED;
    delivery->due_ms = now_ms;
    switch (settlement) {
    case SKR_SETTLE_ACK: delivery->state = KAFKA_SETTLED; return;
    case SKR_SETTLE_REQUEUE: return;
    case SKR_SETTLE_DEFER: delivery->due_ms = now_ms + delay_ms; return;
    case SKR_SETTLE_RETRY:
        delivery->due_ms = now_ms + delay_ms;
        delivery->retry_count++;
        return;
    }
}

// Everything before it is settled; negative: nothing is known.
static int64_t
settled_offset(const struct kafka_assigned *assigned)
{
    for (const struct kafka_delivery *delivery = assigned->first;
         delivery != NULL; delivery = delivery->next)
        if (delivery->state != KAFKA_SETTLED)
            return delivery->message->offset;
    return assigned->position;
}

enum { ANSWER_MS = 5000 };

#define METADATA "skirnir "

static bool
add_position(rd_kafka_topic_partition_list_t *list,
             struct kafka_assigned *assigned, size_t in_hand)
{
    int64_t settled = settled_offset(assigned);
    bool is_open = in_hand > 0;
    if (settled < 0 ||
        (settled == assigned->committed && assigned->is_open == is_open))
        return true;
    rd_kafka_topic_partition_t *partition = rd_kafka_topic_partition_list_add(
        list, assigned->topic, assigned->partition);
    partition->offset = settled;
    if (is_open) {
        char note[40];
        int size = snprintf(note, sizeof(note), METADATA "%zu", in_hand);
        partition->metadata = strdup(note);
        partition->metadata_size = (size_t)size;
        if (partition->metadata == NULL)
            return false;
    }
    assigned->committed = settled;
    assigned->is_open = is_open;
    return true;
}

static enum skr_code
send_positions(struct kafka_broker *broker,
               const rd_kafka_topic_partition_list_t *list, bool waits,
               struct skr_error *error)
{
    rd_kafka_t *handle = broker->client.handle;
    rd_kafka_resp_err_t native;
    if (!waits) {
        native = rd_kafka_commit(handle, list, 1);
    } else {
        // rd_kafka_commit() would wait for as long as it takes.
        rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
        native = rd_kafka_commit_queue(handle, list, queue, NULL, NULL);
        rd_kafka_event_t *event = native == RD_KAFKA_RESP_ERR_NO_ERROR
                                      ? rd_kafka_queue_poll(queue, ANSWER_MS)
                                      : NULL;
        if (native == RD_KAFKA_RESP_ERR_NO_ERROR)
            native = event == NULL ? RD_KAFKA_RESP_ERR__TIMED_OUT
                                   : rd_kafka_event_error(event);
        if (event != NULL)
            rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
    }
    if (native == RD_KAFKA_RESP_ERR_NO_ERROR)
        return SKR_OK;
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "Kafka at %.60s did not take the offsets of group %.60s: "
                    "%s",
                    broker->settings.brokers, broker->settings.group,
                    rd_kafka_err2str(native));
}

// only NULL: all partitions.
static enum skr_code
commit_some(struct kafka_broker *broker,
            const rd_kafka_topic_partition_list_t *only, size_t in_hand,
            bool waits, struct skr_error *error)
{
    struct kafka_assignment *assignment = &broker->consumer.assignment;
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new(4);
    bool ok = true;
    for (struct kafka_assigned *assigned = assignment->first;
         assigned != NULL && ok; assigned = assigned->next)
        if (only == NULL ||
            rd_kafka_topic_partition_list_find(only, assigned->topic,
                                               assigned->partition) != NULL)
            ok = add_position(list, assigned, in_hand);
    enum skr_code code = ok ? SKR_OK : skr_fail_memory(error);
    if (code == SKR_OK && list->cnt > 0)
        code = send_positions(broker, list, waits, error);
    rd_kafka_topic_partition_list_destroy(list);
    return code;
}

// Tells the broker how far each partition has come. waits: for its answer.
static enum skr_code
commit(struct kafka_broker *broker, bool waits, struct skr_error *error)
{
    return commit_some(broker, NULL, broker->consumer.capacity, waits, error);
}

static void
read_metadata(struct kafka_assigned *assigned,
              const rd_kafka_topic_partition_t *partition)
{
    char note[40];
    int64_t in_hand = 0;
    if (partition->offset < 0 || partition->metadata_size <= strlen(METADATA) ||
        partition->metadata_size >= sizeof(note) ||
        memcmp(partition->metadata, METADATA, strlen(METADATA)) != 0)
        return;
    memcpy(note, partition->metadata, partition->metadata_size);
    note[partition->metadata_size] = '\0';
    if (skr_text_number(note + strlen(METADATA), 1, INT32_MAX, &in_hand))
        assigned->suspect_end = partition->offset + in_hand;
}

static void
take_on(struct kafka_broker *broker,
        const rd_kafka_topic_partition_list_t *partitions)
{
    rd_kafka_topic_partition_list_t *known =
        rd_kafka_topic_partition_list_copy(partitions);
    rd_kafka_resp_err_t native =
        rd_kafka_committed(broker->client.handle, known, ANSWER_MS);
    for (int i = 0; i < known->cnt; i++) {
        const rd_kafka_topic_partition_t *partition = &known->elems[i];
        struct kafka_assigned *assigned =
            find_assigned(&broker->consumer.assignment, partition->topic,
                          partition->partition);
        if (assigned == NULL)
            assigned = add_assigned(&broker->consumer.assignment,
                                    partition->topic, partition->partition);
        if (assigned == NULL)
            broker->consumer.lacks_partition = true;
        else if (native == RD_KAFKA_RESP_ERR_NO_ERROR)
            read_metadata(assigned, partition);
    }
    rd_kafka_topic_partition_list_destroy(known);
}

static void
let_go(struct kafka_broker *broker,
       const rd_kafka_topic_partition_list_t *partitions)
{
    struct kafka_assignment *assignment = &broker->consumer.assignment;
    struct skr_error problem = {0};
    // What is lost another has by now, and may have come further.
    if (!rd_kafka_assignment_lost(broker->client.handle) &&
        broker->client.down_since_ms == 0 &&
        commit_some(broker, partitions, 0, true, &problem) != SKR_OK)
        skr_log(&broker->client.log, SKR_LOG_WARNING, "kafka.not_committed",
                SKR_LOG_TEXT("error", problem.text));
    for (int i = 0; i < partitions->cnt; i++) {
        struct kafka_assigned *assigned =
            find_assigned(assignment, partitions->elems[i].topic,
                          partitions->elems[i].partition);
        if (assigned != NULL)
            remove_assigned(assignment, assigned);
    }
}

static void
note_error(struct kafka_broker *broker, rd_kafka_error_t *problem)
{
    if (problem == NULL)
        return;
    skr_kafka_client_note(&broker->client, rd_kafka_error_code(problem),
                          rd_kafka_error_string(problem));
    rd_kafka_error_destroy(problem);
}

static void
on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
             rd_kafka_topic_partition_list_t *partitions, void *user)
{
    struct kafka_broker *broker = skr_kafka_broker_of(user);
    const char *protocol = rd_kafka_rebalance_protocol(handle);
    bool is_incremental =
        protocol != NULL && strcmp(protocol, "COOPERATIVE") == 0;
    bool is_assigned = code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    skr_log(&broker->client.log, SKR_LOG_DEBUG, "kafka.rebalanced",
            SKR_LOG_TEXT("group", broker->settings.group),
            SKR_LOG_TEXT("change", is_assigned ? "given" : "taken"),
            SKR_LOG_NUMBER("partitions", partitions->cnt));
    broker->consumer.is_member = is_assigned || is_incremental;
    if (is_assigned) {
        take_on(broker, partitions);
        if (is_incremental)
            note_error(broker, rd_kafka_incremental_assign(handle, partitions));
        else
            rd_kafka_assign(handle, partitions);
        skr_kafka_unread_note(broker);
        return;
    }
    let_go(broker, partitions);
    if (is_incremental)
        note_error(broker, rd_kafka_incremental_unassign(handle, partitions));
    else
        rd_kafka_assign(handle, NULL);
}

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
    rd_kafka_resp_err_t native = rd_kafka_event_error(event);
    const rd_kafka_topic_result_t **natives =
        rd_kafka_CreateTopics_result_topics(
            rd_kafka_event_CreateTopics_result(event), &count);
    if (native == RD_KAFKA_RESP_ERR_NO_ERROR && count > 0)
        native = rd_kafka_topic_result_error(natives[0]);
    rd_kafka_event_destroy(event);
    return native;
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
    rd_kafka_resp_err_t native = RD_KAFKA_RESP_ERR__INVALID_ARG;
    if (topic != NULL && rd_kafka_AdminOptions_set_operation_timeout(
                             options, CREATE_MS, reason, sizeof(reason)) ==
                             RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_CreateTopics(handle, &topic, 1, options, queue);
        native = await_topic(queue);
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    if (topic != NULL)
        rd_kafka_NewTopic_destroy(topic);
    if (native == RD_KAFKA_RESP_ERR_NO_ERROR ||
        native == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_RECONNECT,
                    "Kafka at %.60s did not make the topic %.100s: %s",
                    broker->settings.brokers, name, rd_kafka_err2str(native));
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
    rd_kafka_resp_err_t native =
        rd_kafka_subscribe(broker->client.handle, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (native == RD_KAFKA_RESP_ERR_NO_ERROR)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "topics in the DSN cannot be subscribed to: %s",
                    rd_kafka_err2str(native));
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
    rd_kafka_conf_set_rebalance_cb(properties, on_rebalance);
    return skr_kafka_client_start(&broker->client, RD_KAFKA_CONSUMER,
                                  is_watched, properties, error);
}

static enum skr_code
connect_client(struct kafka_broker *broker, bool is_watched,
               struct skr_error *error)
{
    enum skr_code code = start_client(broker, is_watched, error);
    if (code == SKR_OK)
        code = skr_kafka_client_reach(&broker->client, broker->base.wake_fd,
                                      error);
    return code;
}

enum skr_code
skr_kafka_consumer_start(struct kafka_broker *broker, bool joins,
                         struct skr_error *error)
{
    static const uint64_t one = 1;
    if (!joins)
        return connect_client(broker, false, error);
    struct kafka_consumer *consumer = &broker->consumer;
    consumer->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (consumer->ready_fd < 0)
        return skr_fail(error, SKR_NO_MEMORY, SKR_TRY_AGAIN,
                        "cannot make an eventfd: %s", strerror(errno));
    enum skr_code code = connect_client(broker, true, error);
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
            on_rebalance(handle, rd_kafka_event_error(event),
                         rd_kafka_event_topic_partition_list(event),
                         &broker->client);
        rd_kafka_event_destroy(event);
    }
    if (problem != NULL)
        rd_kafka_error_destroy(problem);
    rd_kafka_queue_destroy(queue);
}

void
skr_kafka_consumer_fini(struct kafka_broker *broker)
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
    while (consumer->assignment.first != NULL)
        remove_assigned(&consumer->assignment, consumer->assignment.first);
    if (was_joined)
        rd_kafka_queue_destroy(consumer->queue);
    if (consumer->ready_fd >= 0)
        close(consumer->ready_fd);
    skr_arena_fini(&consumer->arena);
    consumer->queue = NULL;
    consumer->ready_fd = -1;
}

enum { LONGEST_WAIT_MS = 250 };

static void
set_paused(struct kafka_broker *broker, struct kafka_assigned *assigned,
           bool is_paused)
{
    rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(one, assigned->topic,
                                      assigned->partition);
    if (is_paused)
        rd_kafka_pause_partitions(broker->client.handle, one);
    else
        rd_kafka_resume_partitions(broker->client.handle, one);
    rd_kafka_topic_partition_list_destroy(one);
    assigned->is_paused = is_paused;
}

static bool
is_beyond_mending(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED ||
           code == RD_KAFKA_RESP_ERR__FATAL;
}

// The partition of a record; NULL: it is not ours any more.
static struct kafka_assigned *
find_of(const struct kafka_broker *broker, const rd_kafka_message_t *message)
{
    return find_assigned(&broker->consumer.assignment,
                         rd_kafka_topic_name(message->rkt), message->partition);
}

static enum skr_code
judge_error(struct kafka_broker *broker, const rd_kafka_message_t *message,
            struct skr_error *error)
{
    const char *text = rd_kafka_message_errstr(message);
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        struct kafka_assigned *assigned = find_of(broker, message);
        if (assigned != NULL)
            assigned->is_at_end = true;
        skr_kafka_client_note_answer(&broker->client);
        return SKR_OK;
    }
    if (is_beyond_mending(message->err))
        return skr_fail(error,
                        message->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                            ? SKR_MISSING
                            : SKR_REFUSED,
                        SKR_RECONNECT, "Kafka at %.60s, group %.60s: %.160s",
                        broker->settings.brokers, broker->settings.group, text);
    if (message->err == RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED)
        skr_log(&broker->client.log, SKR_LOG_WARNING, "kafka.too_slow",
                SKR_LOG_TEXT("group", broker->settings.group),
                SKR_LOG_TEXT("error", text));
    skr_kafka_client_note(&broker->client, message->err, text);
    return SKR_OK;
}

// What librdkafka has given it does not give again: a new client begins behind
// the last that was settled.
static enum skr_code
fail_lost(const struct kafka_broker *broker, struct skr_error *error)
{
    return skr_fail(error, SKR_NO_MEMORY, SKR_RECONNECT,
                    "Kafka at %.60s, group %.60s: out of memory; what could "
                    "not be taken is fetched again",
                    broker->settings.brokers, broker->settings.group);
}

// A rebalance may take place in here, and partitions come and go.
static enum skr_code
fetch(struct kafka_broker *broker, size_t room, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < room && code == SKR_OK; i++) {
        rd_kafka_message_t *message =
            rd_kafka_consumer_poll(broker->client.handle, 0);
        if (message == NULL)
            return SKR_OK;
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
            code = judge_error(broker, message, error);
            rd_kafka_message_destroy(message);
            continue;
        }
        skr_kafka_client_note_answer(&broker->client);
        struct kafka_assigned *assigned = find_of(broker, message);
        if (assigned == NULL)
            rd_kafka_message_destroy(message);
        else if (!append(assigned, message))
            code = fail_lost(broker, error);
    }
    return code;
}

static enum skr_code
fill(struct kafka_broker *broker, struct skr_incoming *incoming,
     size_t capacity, size_t *count, bool *must_open, struct skr_error *error)
{
    struct kafka_consumer *consumer = &broker->consumer;
    enum skr_code code = SKR_OK;
    for (struct kafka_assigned *assigned = consumer->assignment.first;
         assigned != NULL; assigned = assigned->next)
        for (struct kafka_delivery *delivery = assigned->first;
             delivery != NULL && code == SKR_OK && *count < capacity;
             delivery = delivery->next) {
            if (delivery->state != KAFKA_IN_HAND)
                continue;
            *must_open = *must_open || !assigned->is_open;
            code = skr_kafka_record_read(broker, &consumer->arena, delivery,
                                         &incoming[(*count)++], error);
        }
    return code;
}

static enum skr_code
collect(struct kafka_broker *broker, struct skr_incoming *incoming,
        size_t capacity, size_t *count, struct skr_error *error)
{
    int64_t now_ms = skr_clock_ms();
    size_t held = 0;
    bool must_open = false;
    for (struct kafka_assigned *assigned = broker->consumer.assignment.first;
         assigned != NULL; assigned = assigned->next) {
        held += hand_out(assigned, capacity - held, now_ms);
        if (assigned->is_paused && !has_deferred(assigned))
            set_paused(broker, assigned, false);
    }
    *count = 0;
    enum skr_code code = fetch(broker, capacity - held, error);
    if (code == SKR_OK && broker->consumer.lacks_partition)
        code = fail_lost(broker, error);
    if (code == SKR_OK)
        code = fill(broker, incoming, capacity, count, &must_open, error);
    // Before the first of them can do harm.
    if (code == SKR_OK && must_open)
        code = commit(broker, true, error);
    return code;
}

static int64_t
next_due_ms(const struct kafka_broker *broker, int64_t end_ms)
{
    for (const struct kafka_assigned *assigned =
             broker->consumer.assignment.first;
         assigned != NULL; assigned = assigned->next) {
        int64_t due_ms = due_at_ms(assigned);
        if (due_ms >= 0 && due_ms < end_ms)
            end_ms = due_ms;
    }
    return end_ms;
}

// Whether it is known that nothing is waiting. To join a group and to ask for
// the first records takes a while.
static bool
is_empty(const struct kafka_broker *broker)
{
    const struct kafka_assigned *assigned = broker->consumer.assignment.first;
    while (assigned != NULL && (assigned->is_at_end || assigned->is_paused))
        assigned = assigned->next;
    return broker->consumer.is_member && assigned == NULL;
}

// True: the caller is to stop.
static bool
wait_for_records(struct kafka_broker *broker, int64_t end_ms)
{
    int64_t left_ms = next_due_ms(broker, end_ms) - skr_clock_ms();
    struct pollfd fds[] = {
        {.fd = broker->consumer.ready_fd, .events = POLLIN},
        {.fd = broker->base.wake_fd, .events = POLLIN},
    };
    skr_clock_poll(fds, 2,
                   left_ms < LONGEST_WAIT_MS ? left_ms : LONGEST_WAIT_MS);
    uint64_t signals;
    ssize_t unused = read(broker->consumer.ready_fd, &signals, sizeof(signals));
    (void)unused;  // it may be empty
    return (fds[1].revents & POLLIN) != 0;
}

static enum skr_code
receive(struct kafka_broker *broker, struct skr_incoming *incoming,
        size_t capacity, size_t *count, uint32_t timeout_ms,
        struct skr_error *error)
{
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    int64_t last_ms = end_ms + broker->settings.connect_timeout_ms;
    for (;;) {
        skr_kafka_unread_look_after(broker);
        enum skr_code code = collect(broker, incoming, capacity, count, error);
        if (code == SKR_OK && *count == 0 &&
            !skr_kafka_client_look_after(&broker->client))
            code = skr_kafka_client_fail(&broker->client, "is away", error);
        if (code != SKR_OK || *count > 0)
            return code;
        int64_t now_ms = skr_clock_ms();
        bool is_over =
            now_ms >= last_ms || (now_ms >= end_ms && is_empty(broker));
        int64_t until_ms = now_ms < end_ms ? end_ms : last_ms;
        if (wait_for_records(broker, is_over ? 0 : until_ms))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
        if (is_over)
            return skr_fail(error, SKR_TIMEOUT, SKR_TRY_AGAIN,
                            "no message came in time");
    }
}

struct skr_broker_status
skr_kafka_status(struct skr_broker *base)
{
    const struct kafka_broker *broker = (struct kafka_broker *)base;
    return (struct skr_broker_status){
        .has_deferred = next_due_ms(broker, INT64_MAX) < INT64_MAX};
}

enum skr_code
skr_kafka_receive(struct skr_broker *base, struct skr_incoming *incoming,
                  size_t capacity, size_t *count, uint32_t timeout_ms,
                  struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    struct kafka_consumer *consumer = &broker->consumer;
    if (broker->failure.code != SKR_OK)
        return skr_fail_with(error, &broker->failure);
    if (!consumer->is_wanted)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection publishes; another is needed to "
                        "consume");
    if (consumer->capacity < capacity)
        consumer->capacity = capacity;
    skr_arena_reset(&consumer->arena);
    for (struct kafka_assigned *assigned = consumer->assignment.first;
         assigned != NULL; assigned = assigned->next)
        prune(assigned);
    struct skr_error problem = {0};
    enum skr_code code =
        receive(broker, incoming, capacity, count, timeout_ms, &problem);
    // Only what is lost stays so.
    if (code != SKR_OK && problem.remedy == SKR_RECONNECT)
        broker->failure = problem;
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &problem);
}

enum skr_code
skr_kafka_settle(struct skr_broker *base, struct skr_incoming *incoming,
                 size_t count, struct skr_error *error)
{
    struct kafka_broker *broker = (struct kafka_broker *)base;
    int64_t now_ms = skr_clock_ms();
    for (size_t i = 0; i < count; i++) {
        struct kafka_delivery *delivery =
            (struct kafka_delivery *)(uintptr_t)incoming[i].handle;
        settle_delivery(delivery, incoming[i].settlement, incoming[i].delay_ms,
                        now_ms);
        if (delivery->state == KAFKA_DEFERRED && !delivery->assigned->is_paused)
            set_paused(broker, delivery->assigned, true);
    }
    return commit(broker, false, error);
}
