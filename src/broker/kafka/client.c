// SPDX-License-Identifier: MIT
// What producer and consumer share of librdkafka: start and end of its
// instance, its logs and errors, and whether the cluster answers. Its
// statistics tell of that: which brokers are down or silent, which partitions
// have no leader.

#include "broker/kafka/client.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"
#include "message/json.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { US_A_MS = 1000 };

static const struct skr_json *
find(const struct skr_json *object, const char *name)
{
    const struct skr_json *member = object == NULL ? NULL : object->first;
    while (member != NULL && strcmp(member->name, name) != 0)
        member = member->next;
    return member;
}

static const char *
text_of(const struct skr_json *object, const char *name)
{
    const struct skr_json *member = find(object, name);
    return member == NULL || member->text == NULL ? "" : member->text;
}

static int64_t
number_of(const struct skr_json *object, const char *name)
{
    return strtoll(text_of(object, name), NULL, 10);
}

static bool
is_up(const struct skr_json *broker)
{
    return strcmp(text_of(broker, "state"), "UP") == 0;
}

// One that librdkafka has no need of is not connected, and not missed.
static bool
is_away(const struct skr_json *broker)
{
    return !is_up(broker) && strcmp(text_of(broker, "state"), "INIT") != 0;
}

// A member that waits for the others of its group is answered when all are
// there.
static bool
is_joining(const struct skr_json *group)
{
    static const char *const states[] = {"wait-join", "wait-metadata",
                                         "wait-sync"};
    return skr_text_is_among(text_of(group, "join_state"), states,
                             SKR_COUNT_OF(states));
}

// A broker that was asked nothing for a while has answered nothing either: it
// does not owe an answer for longer than since the last request.
static bool
is_silent(const struct skr_json *broker, int64_t patience_ms)
{
    return is_up(broker) && number_of(broker, "waitresp_cnt") > 0 &&
           number_of(broker, "txidle") > patience_ms * US_A_MS &&
           number_of(broker, "rxidle") > patience_ms * US_A_MS;
}

static void
read_brokers(const struct skr_json *brokers, const struct skr_json *group,
             int64_t patience_ms, struct kafka_view *view)
{
    bool any_up = false, any_silent = false;
    const struct skr_json *broker = brokers == NULL ? NULL : brokers->first;
    for (; broker != NULL; broker = broker->next) {
        bool is_logical = strcmp(text_of(broker, "source"), "logical") == 0;
        if (is_logical && is_joining(group))
            continue;
        bool has_spoken = number_of(broker, "rx") > 0 &&
                          number_of(broker, "rxidle") <= patience_ms * US_A_MS;
        any_up = any_up || is_up(broker);
        any_silent = any_silent || is_silent(broker, patience_ms);
        view->has_answered =
            view->has_answered || (is_up(broker) && has_spoken);
    }
    view->is_down = !view->has_answered && (any_silent || !any_up);
}

static const struct skr_json *
find_broker(const struct skr_json *brokers, int64_t id)
{
    const struct skr_json *broker = brokers == NULL ? NULL : brokers->first;
    while (broker != NULL &&
           (number_of(broker, "nodeid") != id ||
            strcmp(text_of(broker, "source"), "logical") == 0))
        broker = broker->next;
    return broker;
}

// That a consumer fetches from, or that a producer has messages for.
static bool
is_needed(const struct skr_json *partition)
{
    static const char *const idle[] = {"", "none", "stopping", "stopped"};
    return number_of(partition, "partition") >= 0 &&
           (!skr_text_is_among(text_of(partition, "fetch_state"), idle,
                               SKR_COUNT_OF(idle)) ||
            number_of(partition, "msgq_cnt") +
                    number_of(partition, "xmit_msgq_cnt") +
                    number_of(partition, "msgs_inflight") >
                0);
}

// Of a cluster with ten thousand partitions the text has megabytes, and a tree
// would take six times as much: each partition is a tree of its own.
struct reading {
    struct skr_arena arena;
    struct skr_json *brokers, *group;
    char topic[80];
    int64_t patience_ms;
    struct kafka_view *view;
};

static void
judge_partition(const struct skr_json *partition, struct reading *reading)
{
    struct kafka_view *view = reading->view;
    int64_t id = number_of(partition, "leader");
    long long number = number_of(partition, "partition");
    const struct skr_json *leader = find_broker(reading->brokers, id);
    if (id < 0)
        snprintf(view->missing, sizeof(view->missing),
                 "partition %lld of topic %s has no leader", number,
                 reading->topic);
    else if (leader != NULL &&
             (is_away(leader) || is_silent(leader, reading->patience_ms)))
        snprintf(view->missing, sizeof(view->missing),
                 "partition %lld of topic %s: broker %.60s, its leader, %s",
                 number, reading->topic, leader->name,
                 is_away(leader) ? "is away" : "does not answer");
}

static enum skr_code
take_partition(void *user, const struct skr_json *child,
               struct skr_error *error)
{
    struct reading *reading = user;
    struct skr_arena arena = {0};
    struct skr_json *partition = NULL;
    if (reading->view->missing[0] != '\0')
        return SKR_OK;
    enum skr_code code = skr_json_parse(&arena, &arena, child->text,
                                        child->text_size, &partition, error);
    if (code == SKR_OK && is_needed(partition))
        judge_partition(partition, reading);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
walk(skr_json_child_fn *take, struct reading *reading, const char *text,
     size_t size, struct skr_error *error)
{
    const struct skr_json_walker walker = {.take = take, .user = reading};
    enum skr_json_kind kind;
    return skr_json_walk(&walker, text, size, &kind, error);
}

static skr_json_child_fn take_topic;

// Of the whole, where brokers stand before topics, and of a topic.
static enum skr_code
take_member(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct reading *reading = user;
    const char *text = child->text;
    size_t size = child->text_size;
    bool is_group = skr_json_has_name(child, "cgrp");
    if (is_group || skr_json_has_name(child, "brokers"))
        return skr_json_parse(&reading->arena, &reading->arena, text, size,
                              is_group ? &reading->group : &reading->brokers,
                              error);
    if (skr_json_has_name(child, "topics"))
        return walk(take_topic, reading, text, size, error);
    return skr_json_has_name(child, "partitions")
               ? walk(take_partition, reading, text, size, error)
               : SKR_OK;
}

static enum skr_code
take_topic(void *user, const struct skr_json *child, struct skr_error *error)
{
    struct reading *reading = user;
    snprintf(reading->topic, sizeof(reading->topic), "%.*s",
             (int)child->name_size, child->name);
    return walk(take_member, reading, child->text, child->text_size, error);
}

static void
read_group(const struct skr_json *group, const struct skr_json *brokers,
           int64_t patience_ms, struct kafka_view *view)
{
    const char *state = text_of(group, "state");
    const struct skr_json *coordinator = find(brokers, "GroupCoordinator");
    if (group == NULL || strcmp(state, "init") == 0)
        return;
    bool is_known = strcmp(state, "up") == 0;
    if (is_known && (is_joining(group) || !is_silent(coordinator, patience_ms)))
        return;
    snprintf(view->missing, sizeof(view->missing),
             "the coordinator of the group %.60s%s",
             is_known ? text_of(coordinator, "nodename") : "",
             is_known ? " does not answer" : "is away");
}

enum skr_code
skr_kafka_view_read(const char *json, size_t size, int64_t patience_ms,
                    struct kafka_view *view, struct skr_error *error)
{
    struct reading reading = {.patience_ms = patience_ms, .view = view};
    *view = (struct kafka_view){.is_down = false};
    enum skr_code code = walk(take_member, &reading, json, size, error);
    if (code == SKR_OK) {
        read_brokers(reading.brokers, reading.group, patience_ms, view);
        if (view->missing[0] == '\0')
            read_group(reading.group, reading.brokers, patience_ms, view);
    }
    skr_arena_fini(&reading.arena);
    return code;
}

enum {
    // An answer that comes later than it is waited for is lost.
    LEAST_PATIENCE_MS = 100,
    MOST_PATIENCE_MS = 1000,
    REASON_MS = 500,
    END_MS = 2000,
    LOOK_MS = 5000,  // one that is silent is asked so often
    LOOK_AGAIN_MS =
        1000,  // and once more so soon, as another broker may answer
    SAY_AWAY_MS = 1000,
    // A partition is without its leader for a moment whenever that moves.
    SAY_MISSING_MS = 3000,
    SILENCE_MS = 5000,
};

static void
on_error(rd_kafka_t *handle, int code, const char *text, void *user)
{
    (void)handle;
    skr_kafka_client_note(user, (rd_kafka_resp_err_t)code, text);
}

static void
on_log(const rd_kafka_t *handle, int level, const char *facility,
       const char *text)
{
    const struct kafka_client *client = rd_kafka_opaque(handle);
    (void)level;
    // It warns of a property that is experimental, each time it starts.
    if (strcmp(facility, "CONFWARN") == 0)
        return;
    // Trouble comes as an error as well, and is told from there.
    skr_log(&client->log, SKR_LOG_DEBUG, "kafka.client",
            SKR_LOG_TEXT("facility", facility), SKR_LOG_TEXT("text", text));
}

// The login was refused, or one side does not trust the other's certificate:
// waiting mends neither, once no broker is left that may be right. Only the
// text tells an alert of TLS from a connection that broke.
static bool
is_refused(const struct kafka_client *client)
{
    const char *text = client->trouble_text;
    const char *alert = strstr(text, "alert ");
    return client->all_down_ms != 0 &&
           (client->trouble == RD_KAFKA_RESP_ERR__AUTHENTICATION ||
            client->trouble == RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED ||
            strstr(text, "certificate verify failed") != NULL ||
            (alert != NULL && (strstr(alert, "certificate") != NULL ||
                               strstr(alert, "unknown ca") != NULL)));
}

void
skr_kafka_client_note(struct kafka_client *client, rd_kafka_resp_err_t code,
                      const char *text)
{
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        // Why is what was said before.
        if (client->all_down_ms == 0)
            client->all_down_ms = skr_clock_ms();
        if (client->down_since_ms == 0)
            client->down_since_ms = client->all_down_ms;
        if (client->trouble != RD_KAFKA_RESP_ERR_NO_ERROR)
            return;
    }
    if (client->trouble == RD_KAFKA_RESP_ERR__AUTHENTICATION &&
        code == RD_KAFKA_RESP_ERR__TRANSPORT)
        return;
    client->trouble = code;
    // How many milliseconds it took is another number each time, and the same
    // trouble is to be said once.
    const char *aside = strstr(text, " (after ");
    int size = aside == NULL ? (int)strlen(text) : (int)(aside - text);
    snprintf(client->trouble_text, sizeof(client->trouble_text), "%.*s", size,
             text);
}

void
skr_kafka_client_note_answer(struct kafka_client *client)
{
    client->down_since_ms = 0;
    client->all_down_ms = 0;
    client->misses = 0;
    client->answered_ms = skr_clock_ms();
    client->trouble = RD_KAFKA_RESP_ERR_NO_ERROR;
    client->trouble_text[0] = '\0';
    if (client->missing_since_ms == 0)
        skr_trouble_end(&client->reported, &client->log, SKR_TROUBLE_BROKER,
                        "kafka.recovered", client->settings->brokers);
}

static void
note_silence(struct kafka_client *client)
{
    if (client->down_since_ms != 0)
        return;
    skr_kafka_client_note(client, RD_KAFKA_RESP_ERR__TIMED_OUT,
                          "it does not answer");
    client->down_since_ms = skr_clock_ms();
}

static void
note_missing(struct kafka_client *client, const char *missing)
{
    bool was_missing = client->missing_since_ms != 0;
    bool is_missing = missing[0] != '\0';
    if (is_missing && !was_missing)
        client->missing_since_ms = skr_clock_ms();
    if (!is_missing)
        client->missing_since_ms = 0;
    snprintf(client->missing, sizeof(client->missing), "%s", missing);
    if (was_missing && !is_missing && client->down_since_ms == 0)
        skr_kafka_client_note_answer(client);
}

static int
on_statistics(rd_kafka_t *handle, char *json, size_t size, void *user)
{
    struct kafka_client *client = user;
    struct kafka_view view;
    bool consumes = rd_kafka_type(handle) == RD_KAFKA_CONSUMER;
    if (skr_kafka_view_read(json, size, client->silence_ms, &view, NULL) !=
        SKR_OK)
        return 0;
    note_missing(client, view.missing);
    client->is_unheard = consumes && !view.has_answered && !view.is_down;
    // One that publishes and has nothing to send hears nothing.
    if (consumes && view.has_answered)
        skr_kafka_client_note_answer(client);
    else if (consumes && view.is_down)
        note_silence(client);
    return 0;
}

static enum skr_code
watch(struct kafka_client *client, rd_kafka_conf_t *properties,
      struct skr_error *error)
{
    char wait_ms[24] = "";
    size_t size = sizeof(wait_ms);
    // A broker that has nothing to tell answers a fetch so late.
    rd_kafka_conf_get(properties, "fetch.wait.max.ms", wait_ms, &size);
    client->silence_ms = SILENCE_MS + strtol(wait_ms, NULL, 10);
    client->is_unheard = false;
    client->missing[0] = '\0';
    client->missing_since_ms = 0;
    rd_kafka_conf_set_stats_cb(properties, on_statistics);
    return skr_kafka_set(properties, "statistics.interval.ms", "1000", error);
}

enum skr_code
skr_kafka_client_start(struct kafka_client *client, rd_kafka_type_t type,
                       bool is_watched, rd_kafka_conf_t *properties,
                       struct skr_error *error)
{
    char reason[200] = "";
    rd_kafka_conf_set_opaque(properties, client);
    rd_kafka_conf_set_error_cb(properties, on_error);
    rd_kafka_conf_set_log_cb(properties, on_log);
    // Otherwise its threads would call on_log(), also when we are gone.
    enum skr_code code = skr_kafka_set(properties, "log.queue", "true", error);
    if (code == SKR_OK && is_watched)
        code = watch(client, properties, error);
    if (code == SKR_OK) {
        client->handle = rd_kafka_new(type, properties, reason, sizeof(reason));
        if (client->handle == NULL)
            code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "librdkafka refuses the properties of the DSN: %s",
                            reason);
    }
    if (code != SKR_OK) {
        rd_kafka_conf_destroy(properties);
        return code;
    }
    rd_kafka_set_log_queue(client->handle, NULL);
    return SKR_OK;
}

// A client on its way out, of two holders: the thread that waits for its end
// and the thread that ends it.
struct ending {
    rd_kafka_t *handle;
    int done_fd;
    atomic_int holders;
};

static void
let_go(struct ending *ending)
{
    if (atomic_fetch_sub(&ending->holders, 1) > 1)
        return;
    close(ending->done_fd);
    free(ending);
}

static void *
end(void *user)
{
    struct ending *ending = user;
    rd_kafka_destroy_flags(ending->handle,
                           RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    eventfd_write(ending->done_fd, 1);
    let_go(ending);
    return NULL;
}

// False: nothing was begun.
static bool
end_in_thread(rd_kafka_t *handle)
{
    pthread_t thread;
    struct ending *ending = malloc(sizeof(*ending));
    if (ending == NULL)
        return false;
    *ending = (struct ending){
        .handle = handle, .done_fd = eventfd(0, EFD_CLOEXEC), .holders = 2};
    if (ending->done_fd < 0 || skr_thread_start(&thread, end, ending) != 0) {
        if (ending->done_fd >= 0)
            close(ending->done_fd);
        free(ending);
        return false;
    }
    if (skr_clock_sleep(ending->done_fd, END_MS))
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    let_go(ending);
    return true;
}

void
skr_kafka_client_fini(struct kafka_client *client)
{
    if (client->handle != NULL && !end_in_thread(client->handle))
        rd_kafka_destroy_flags(client->handle,
                               RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    client->handle = NULL;
    skr_trouble_end(&client->reported, &client->log, SKR_TROUBLE_BROKER,
                    "kafka.given_up", client->settings->brokers);
}

// What the text of librdkafka means, and what helps.
static const char *
find_cure(rd_kafka_resp_err_t code, const char *text)
{
    if (code == RD_KAFKA_RESP_ERR__AUTHENTICATION ||
        code == RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED)
        return "the login was refused: check user and password of the DSN, and "
               "sasl.mechanisms";
    // A broker that hears no greeting of its protocol hangs up.
    if (strstr(text, "PLAINTEXT broker listener") != NULL ||
        strstr(text, "unexpected eof") != NULL ||
        strstr(text, "wrong version number") != NULL)
        return "TLS met a port without it: take the broker's TLS port, or tls "
               "and security.protocol out of the DSN";
    // A size that is none is how another protocol begins: RabbitMQ's with AMQP,
    // an alert of TLS with 21.
    const char *found = strstr(text, "response size ");
    long long size = 0;
    if (found != NULL && sscanf(found, "response size %lld", &size) == 1 &&
        size >> 24 != 21)
        return "what answers there is no Kafka broker: check the port in the "
               "DSN";
    if (size != 0 || strstr(text, "requesting ApiVersion") != NULL)
        return "the port seems to want TLS or a login: add tls=1, or user and "
               "password, to the DSN";
    if (code == RD_KAFKA_RESP_ERR__SSL || strstr(text, "SSL") != NULL)
        return "TLS failed: check cacert, cert and key in the DSN, and that "
               "its hosts are named as in the certificates";
    if (code == RD_KAFKA_RESP_ERR__RESOLVE)
        return "check the names of the brokers in the DSN";
    return "check that a broker runs there";
}

// What was said first may be no more than that a connection broke.
static bool
is_beyond_waiting(const struct kafka_client *client)
{
    return client->all_down_ms != 0 &&
           (is_refused(client) || client->trouble == RD_KAFKA_RESP_ERR__SSL ||
            skr_clock_ms() - client->all_down_ms > REASON_MS);
}

// librdkafka begins with "sasl_ssl://host:1/bootstrap: ".
static const char *
without_prefix(const char *text)
{
    const char *end = strstr(text, ": ");
    const char *slashes = strstr(text, "://");
    return slashes != NULL && end != NULL && slashes < end ? end + 2 : text;
}

enum skr_code
skr_kafka_client_fail(const struct kafka_client *client, const char *doing,
                      struct skr_error *error)
{
    const char *said = client->trouble != RD_KAFKA_RESP_ERR_NO_ERROR
                           ? without_prefix(client->trouble_text)
                       : client->missing_since_ms != 0 ? client->missing
                                                       : "nothing was said";
    enum skr_code code = is_refused(client) ? SKR_REFUSED : SKR_UNAVAILABLE;
    skr_fail(error, code, SKR_RECONNECT, "Kafka at %.100s %s: %s (%.190s)",
             client->settings->brokers, doing,
             find_cure(client->trouble, client->trouble_text), said);
    skr_error_set_native(error, "%d", (int)client->trouble);
    return code;
}

static bool
is_answering(const struct kafka_client *client)
{
    const struct rd_kafka_metadata *metadata = NULL;
    if (rd_kafka_metadata(client->handle, 0, NULL, &metadata,
                          (int)client->patience.pause_ms) !=
        RD_KAFKA_RESP_ERR_NO_ERROR)
        return false;
    rd_kafka_metadata_destroy(metadata);
    return true;
}

enum skr_code
skr_kafka_client_reach(struct kafka_client *client, int wake_fd,
                       struct skr_error *error)
{
    int64_t end_ms = skr_clock_ms() + client->settings->connect_timeout_ms;
    client->patience = (struct skr_backoff){.first_ms = LEAST_PATIENCE_MS,
                                            .longest_ms = MOST_PATIENCE_MS};
    for (;;) {
        skr_backoff_next(&client->patience);
        bool has_answered = is_answering(client);
        rd_kafka_poll(client->handle, 0);
        if (has_answered) {
            skr_kafka_client_note_answer(client);
            // Later on it may be busier than now.
            skr_backoff_next(&client->patience);
            skr_backoff_next(&client->patience);
            return SKR_OK;
        }
        if (is_beyond_waiting(client))
            return skr_kafka_client_fail(client, "cannot be reached", error);
        if (skr_clock_ms() >= end_ms)
            return skr_kafka_client_fail(
                client, "did not answer in time (connect_timeout)", error);
        if (skr_clock_sleep(wake_fd, 0))
            return skr_fail(error, SKR_STOPPED, SKR_GIVE_UP, "stopped");
    }
}

void
skr_kafka_client_say_away(struct kafka_client *client, int64_t waited_ms)
{
    struct skr_error away;
    int64_t now_ms = skr_clock_ms();
    if (client->down_since_ms != 0 && waited_ms >= SAY_AWAY_MS)
        skr_kafka_client_fail(client, "is away", &away);
    else if (client->down_since_ms == 0 && client->missing_since_ms != 0 &&
             now_ms - client->missing_since_ms >= SAY_MISSING_MS)
        skr_fail(&away, SKR_UNAVAILABLE, SKR_RECONNECT,
                 "Kafka at %.100s cannot do its work: %.190s",
                 client->settings->brokers, client->missing);
    else
        return;
    skr_trouble_report(&client->reported, &client->log, SKR_TROUBLE_BROKER,
                       "kafka.trouble", client->settings->brokers, &away);
}

// A while after it was asked or has answered; or after librdkafka called it
// away, which may be mended by then. A question of a consumer would wait behind
// its fetch: it asks when there is none.
static bool
must_look(const struct kafka_client *client, int64_t now_ms)
{
    if (now_ms - client->looked_ms <
        (client->misses == 1 ? LOOK_AGAIN_MS : LOOK_MS))
        return false;
    if (rd_kafka_type(client->handle) == RD_KAFKA_CONSUMER)
        return client->is_unheard;
    return client->down_since_ms == 0
               ? now_ms - client->answered_ms >= LOOK_MS
               : now_ms - client->down_since_ms >= SAY_AWAY_MS;
}

// librdkafka asks any broker. One that hangs it takes for gone after that, so
// that the next question goes to another.
static void
look(struct kafka_client *client, int64_t now_ms)
{
    client->looked_ms = now_ms;
    if (is_answering(client)) {
        skr_kafka_client_note_answer(client);
        return;
    }
    if (++client->misses > 1)
        note_silence(client);
}

bool
skr_kafka_client_look_after(struct kafka_client *client)
{
    int64_t now_ms = skr_clock_ms();
    if (must_look(client, now_ms))
        look(client, now_ms);
    int64_t away_ms =
        client->down_since_ms == 0 ? 0 : now_ms - client->down_since_ms;
    skr_kafka_client_say_away(client, away_ms);
    return away_ms <= client->settings->confirm_timeout_ms;
}
