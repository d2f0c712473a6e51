// SPDX-License-Identifier: MIT
// A client of librdkafka, producer or consumer, and what it says of its
// brokers. librdkafka has threads of its own; whatever they find out comes as
// callbacks inside of a poll, on our thread.

#ifndef SKR_BROKER_KAFKA_CLIENT_H
#define SKR_BROKER_KAFKA_CLIENT_H

#include "base/backoff.h"
#include "base/log.h"
#include "broker/kafka/settings.h"

// What librdkafka's own statistics say of a cluster. To ask the cluster costs
// time, and a question waits behind the fetch that a broker is busy with; the
// statistics are here already, and tell of each broker and each partition.
struct kafka_view {
    // No broker is connected, or those that are have not answered for a while.
    bool is_down;
    // A broker has answered within the last moments.
    bool has_answered;
    // What keeps the client from its work, for people: "partition 2 of topic
    // orders: broker 3 (10.0.0.3:9092), its leader, is away". "": nothing.
    char missing[200];
};

// json is librdkafka's. A broker that owes an answer for patience_ms does not
// answer. SKR_MALFORMED, SKR_NO_MEMORY: nothing is known.
SKR_MUST_CHECK enum skr_code
skr_kafka_view_read(const char *json, size_t size, int64_t patience_ms,
                    struct kafka_view *view, struct skr_error *error);

struct kafka_client {
    const struct kafka_settings *settings;
    struct skr_log log;
    rd_kafka_t *handle;  // NULL: none

    // The last trouble that was told, and since when no broker was reached; 0:
    // one is.
    rd_kafka_resp_err_t trouble;
    char trouble_text[256];
    int64_t down_since_ms;
    int64_t all_down_ms;  // since when each was tried in vain; 0: not so
    int64_t answered_ms;  // when one last did
    // When they were last asked for a sign of life, how often in vain, and how
    // long an answer to that may take.
    int64_t looked_ms;
    int misses;
    struct skr_backoff patience;
    // By librdkafka's statistics: how long a broker may owe an answer, whether
    // a consumer has heard nothing for that long although no broker owes it an
    // answer, what keeps the client from its work, and since when; 0: nothing
    // does.
    int64_t silence_ms;
    bool is_unheard;
    char missing[200];
    int64_t missing_since_ms;
    struct skr_trouble reported;
};

// Makes the client from properties, which it takes, also when it fails. One
// that is watched is polled for as long as it lives: its statistics come there.
SKR_MUST_CHECK enum skr_code
skr_kafka_client_start(struct kafka_client *client, rd_kafka_type_t type,
                       bool is_watched, rd_kafka_conf_t *properties,
                       struct skr_error *error);

// Once it is not asked any more: what was said of it is over, if not mended.
// Ends a consumer; a producer has ended by then. librdkafka waits for every
// answer that it is owed: of a cluster that hangs, for minutes. What is not
// over within seconds is left to a thread, and calls no callback.
void skr_kafka_client_fini(struct kafka_client *client);

// Waits until a broker answers. What waiting does not mend, such as a password
// that is wrong, ends it at once; so does a wake_fd that is readable, with
// SKR_STOPPED.
SKR_MUST_CHECK enum skr_code
skr_kafka_client_reach(struct kafka_client *client, int wake_fd,
                       struct skr_error *error);

// What librdkafka said, with the brokers and the cure. Always fails, so that
// the connection is made anew.
enum skr_code skr_kafka_client_fail(const struct kafka_client *client,
                                    const char *doing, struct skr_error *error);

// From a callback or an error that came instead of a message.
void skr_kafka_client_note(struct kafka_client *client,
                           rd_kafka_resp_err_t code, const char *text);
// A broker has answered.
void skr_kafka_client_note_answer(struct kafka_client *client);

// Says that the cluster is away, or what of it is missing, to a caller that has
// waited for that long, unless that is a moment or all is there.
void skr_kafka_client_say_away(struct kafka_client *client, int64_t waited_ms);

// For a caller that waits for nothing, or in vain: says when the cluster, or
// what is needed of it, is away and when it is back. A consumer mostly waits
// for an answer, so that its statistics tell. While it waits for its group,
// which may keep it waiting for minutes, they do not. It asks for a sign of
// life then, as one that publishes and has nothing to send does where none has
// come for a while: that takes a part of a second, once in seconds. False: it
// was away for confirm_timeout and still is.
bool skr_kafka_client_look_after(struct kafka_client *client);

#endif
