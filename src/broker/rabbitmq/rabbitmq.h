// SPDX-License-Identifier: MIT
// The inside of the RabbitMQ broker, shared by its files alone.
//
// Channels: messages go out on one, in confirm mode; exchanges are looked for
// on another, since asking for one that is missing closes the channel; the
// third declares, and is opened when it is needed. Nothing but open(),
// declare(), a reconnect and a set-up after a message that found no queue waits
// for the server. A broker that consumes has the fourth instead of the first
// two: publishing and consuming never share a connection, since a server that
// holds a publisher would hold acks as well. What is said on the fifth is not
// waited for.

#ifndef SKR_BROKER_RABBITMQ_RABBITMQ_H
#define SKR_BROKER_RABBITMQ_RABBITMQ_H

#include "base/backoff.h"
#include "broker/rabbitmq/consume.h"
#include "broker/rabbitmq/link.h"
#include "broker/rabbitmq/window.h"

enum {
    RABBIT_PUBLISHING = 1,
    RABBIT_ASKING = 2,
    RABBIT_DECLARING = 3,
    RABBIT_CONSUMING = 4,
    RABBIT_BINDING = 5,
};

// What is known of an exchange.
struct rabbit_exchange {
    char *name;
    bool is_there;
    int64_t ask_again_ms;      // of one that is closed
    struct skr_error trouble;  // why it is closed
};

struct rabbit_exchanges {
    struct rabbit_exchange *items;  // by name
    size_t count, capacity;
};

// A message that comes back in several frames, without its tag.
struct rabbit_return {
    bool is_coming;
    char exchange[256], routing_key[256];
    struct skr_error reason;
    uint64_t body_left;
};

struct rabbit_broker {
    struct skr_broker base;
    struct rabbit_settings settings;
    struct skr_log log;

    struct rabbit_link link;
    struct skr_error failure;  // why the connection is lost; SKR_OK: it is not
    bool must_reconnect;       // it was closed for what a message did

    struct rabbit_window window;
    bool is_publishing_open;
    int64_t renew_ms;  // when another takes its place; 0: it refused nothing
    struct skr_backoff renewal;  // how long after the refusal
    int64_t renewed_ms;          // when that was last done; 0: never
    size_t body_sent;            // of the message whose body is being sent
    const struct skr_message *sending;  // NULL: none
    struct rabbit_return returning;
    amqp_table_entry_t *headers;  // for one message, kept between them
    size_t header_capacity;

    struct rabbit_exchanges exchanges;
    bool is_asking_open;
    char asked[256];  // the exchange that an answer is due for
    bool is_asking;

    bool is_declaring_open;
    bool is_unbound;  // bindings may be missing: they are waited for
    bool is_binding_open;
    // Why what is missing could not be made; SKR_OK: nothing is known of that.
    struct skr_error set_up_trouble;
    bool must_mend;     // a message found no queue: nothing is sent meanwhile
    int64_t mended_ms;  // when that was last done; 0: never
    enum rabbit_answer { RABBIT_NONE, RABBIT_YES, RABBIT_NO } answer;
    struct skr_error answer_error;
    uint32_t answer_messages, answer_consumers;  // of a queue

    int64_t unblocked_ms;      // since when the server takes messages again
    int64_t channel_asked_ms;  // since when an answer about channels is due

    struct rabbit_consumer consumer;
};

skr_broker_submit_fn skr_rabbit_submit;
skr_broker_outcomes_fn skr_rabbit_outcomes;
skr_broker_receive_fn skr_rabbit_receive;
skr_broker_settle_fn skr_rabbit_settle;
skr_broker_declare_fn skr_rabbit_declare;
skr_broker_depth_fn skr_rabbit_depth;

// Connects and opens the channels.
SKR_MUST_CHECK enum skr_code
skr_rabbit_connect(struct rabbit_broker *broker, struct skr_error *error);

// Sends what may be sent, handles what has come, and waits up to timeout_ms if
// nothing had. After an error the connection is lost, and failure says why.
SKR_MUST_CHECK enum skr_code
skr_rabbit_turn(struct rabbit_broker *broker, uint32_t timeout_ms,
                struct skr_error *error);

// SKR_STOPPED when the caller that opened it wants it to end. What waits for a
// server asks; what was sent before is let come to its end.
SKR_MUST_CHECK enum skr_code
skr_rabbit_check_stop(const struct rabbit_broker *broker,
                      struct skr_error *error);

// What skr_rabbit_turn() is made of: publish.c, answers.c and exchanges.c.
SKR_MUST_CHECK enum skr_code
skr_rabbit_send_waiting(struct rabbit_broker *broker, struct skr_error *error);
// The channel has refused a message: soon another takes its place.
void skr_rabbit_plan_renewal(struct rabbit_broker *broker);
SKR_MUST_CHECK enum skr_code
skr_rabbit_handle(struct rabbit_broker *broker, const amqp_frame_t *frame,
                  struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_open_channel(struct rabbit_broker *broker, amqp_channel_t channel,
                        struct skr_error *error);

SKR_MUST_CHECK enum skr_code
skr_rabbit_fail_unexpected(const struct rabbit_broker *broker, const char *what,
                           struct skr_error *error);

// topology.c: an argument as the client has it, which borrows its texts.
amqp_table_entry_t skr_rabbit_entry(const struct skr_argument *argument);
// Whether a queue or an exchange is there; SKR_MISSING: it is not.
SKR_MUST_CHECK enum skr_code
skr_rabbit_look_for(struct rabbit_broker *broker,
                    enum skr_declaration_kind kind, const char *name,
                    struct skr_error *error);

// A binding on a channel of its own, of which no answer is waited for: a
// cluster of which a node hangs gives none. A refusal is logged.
SKR_MUST_CHECK enum skr_code
skr_rabbit_bind_aside(struct rabbit_broker *broker,
                      const struct skr_declaration *binding,
                      struct skr_error *error);
// Deletes an exchange that nothing is bound to; it stays if that fails.
void
skr_rabbit_exchange_take_back(struct rabbit_broker *broker, const char *name);

// queue_setup.c: makes what the transport has of its own and is missing, queues
// first, so that its exchange is never there without them. What it may not make
// is logged, and no error: a publisher need not have the right.
SKR_MUST_CHECK enum skr_code
skr_rabbit_publishing_set_up(struct rabbit_broker *broker,
                             struct skr_error *error);
// A message for the exchange, sent then, found no exchange or no queue. True:
// it goes again after the set-up that is, or was, made since.
bool skr_rabbit_may_mend(struct rabbit_broker *broker, const char *exchange,
                         int64_t sent_ms);
// That set-up. After an error that needs a reconnect, failure says so.
void skr_rabbit_mend(struct rabbit_broker *broker);
// For a consumer, if auto_setup is on: the parts of it. error is written to in
// any case. SKR_MISSING: the queue is not there, and may not be made.
SKR_MUST_CHECK enum skr_code
skr_rabbit_exchange_make(struct rabbit_broker *broker, bool *is_new,
                         struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_queue_make(struct rabbit_broker *broker,
                      const struct rabbit_queue *queue,
                      struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_queue_bind(struct rabbit_broker *broker,
                      const struct rabbit_queue *queue,
                      struct skr_error *error);
// What the server said of a queue, with its place, the right that was needed
// and the cure; the same of an exchange that is missing. error is both what was
// said and what becomes of it.
enum skr_code
skr_rabbit_fail_queue(const struct rabbit_broker *broker, const char *queue,
                      const char *right, struct skr_error *error);
enum skr_code
skr_rabbit_fail_exchange(const struct rabbit_broker *broker,
                         const char *exchange, struct skr_error *error);

// consume.c: opens the channel and sees to the queues, by open() or the first
// receive().
SKR_MUST_CHECK enum skr_code
skr_rabbit_consumer_prepare(struct rabbit_broker *broker,
                            struct skr_error *error);
// Lets messages come, at most twice as many as receive() is asked for if the
// settings do not say.
SKR_MUST_CHECK enum skr_code
skr_rabbit_subscribe(struct rabbit_broker *broker, size_t capacity,
                     struct skr_error *error);
void skr_rabbit_consumer_fini(struct rabbit_broker *broker);

// subscriptions.c: makes, or looks for, the queues to consume from.
// SKR_MISSING: none is there. Those that are missing beside others are logged.
SKR_MUST_CHECK enum skr_code
skr_rabbit_subscriptions_set_up(struct rabbit_broker *broker,
                                struct skr_error *error);
// Asks for the messages of the next queue, if there is one; its answer asks for
// those of the one after it.
SKR_MUST_CHECK enum skr_code
skr_rabbit_subscribe_next(struct rabbit_broker *broker,
                          struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_on_subscribed(struct rabbit_broker *broker, struct skr_error *error);
// The server has ended the consumer of a queue; queue_count: of none of ours.
void skr_rabbit_on_lost(struct rabbit_broker *broker, size_t queue);
// Now and then, and at once after an end: those that are back are consumed
// from.
SKR_MUST_CHECK enum skr_code
skr_rabbit_ask_for_missing(struct rabbit_broker *broker,
                           struct skr_error *error);
// Under which the server knows the consumer of a queue.
enum { RABBIT_TAG_SIZE = 24 };
void skr_rabbit_consumer_tag(const struct rabbit_broker *broker, size_t queue,
                             char tag[RABBIT_TAG_SIZE]);
// What comes on its channel.
SKR_MUST_CHECK enum skr_code
skr_rabbit_on_consuming(struct rabbit_broker *broker, const amqp_frame_t *frame,
                        struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_on_consuming_closed(struct rabbit_broker *broker,
                               const struct skr_error *reason,
                               struct skr_error *error);
// Sends and takes what can be without waiting, then waits up to timeout_ms if
// nothing came. After an error the connection is lost, and failure says why.
SKR_MUST_CHECK enum skr_code
skr_rabbit_consumer_turn(struct rabbit_broker *broker, uint32_t timeout_ms,
                         struct skr_error *error);

// settle.c: gives back what the caller was given and has not settled.
SKR_MUST_CHECK enum skr_code
skr_rabbit_release_unsettled(struct rabbit_broker *broker,
                             struct skr_error *error);

// What has come and was not given to the caller goes back, unless it did before
// and its queue counts: then it is put off.
SKR_MUST_CHECK enum skr_code
skr_rabbit_release_waiting(struct rabbit_broker *broker,
                           struct skr_error *error);

// hold.c: so many are put off, or for so long, that it should not be more.
bool skr_rabbit_is_laden(const struct rabbit_broker *broker);
// Sees to it that nothing waits here for too long, and that what was
// put off leaves room for others, by cancelling the consumers; the next
// receive() makes new ones with another prefetch.
SKR_MUST_CHECK enum skr_code
skr_rabbit_hold_review(struct rabbit_broker *broker, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_on_cancelled(struct rabbit_broker *broker, struct skr_error *error);

// incoming.c: a delivery as the caller gets it, with its texts in the arena.
SKR_MUST_CHECK enum skr_code
skr_rabbit_incoming_fill(struct skr_arena *arena, const char *queue,
                         const struct rabbit_delivery *delivery, uint64_t tag,
                         struct skr_incoming *incoming,
                         struct skr_error *error);
// By the count of a queue that keeps one: a consumer had it before.
bool skr_rabbit_delivery_was_out(const struct rabbit_delivery *delivery);

// heartbeat.c: a thread that serves the connection while the caller is busy.
SKR_MUST_CHECK enum skr_code
skr_rabbit_heartbeat_start(struct rabbit_broker *broker,
                           struct skr_error *error);
void skr_rabbit_heartbeat_stop(struct rabbit_broker *broker);

// NULL: nothing is known of it.
struct rabbit_exchange *
skr_rabbit_exchange_find(struct rabbit_exchanges *exchanges, const char *name);
// trouble NULL: it is there.
SKR_MUST_CHECK enum skr_code
skr_rabbit_exchange_note(struct rabbit_exchanges *exchanges, const char *name,
                         const struct skr_error *trouble,
                         struct skr_error *error);
void skr_rabbit_exchanges_forget(struct rabbit_exchanges *exchanges);
// Asks the server; the answer comes later.
SKR_MUST_CHECK enum skr_code
skr_rabbit_exchange_ask(struct rabbit_broker *broker, const char *name,
                        struct skr_error *error);

#endif
