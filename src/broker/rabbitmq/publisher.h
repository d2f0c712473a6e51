// SPDX-License-Identifier: MIT
// The publishing side of a broker: messages on their way to the server, and the
// exchanges that they go to. window.h keeps them until the server has
// confirmed.

#ifndef SKR_BROKER_RABBITMQ_PUBLISHER_H
#define SKR_BROKER_RABBITMQ_PUBLISHER_H

#include "amqp/channel.h"
#include "base/backoff.h"
#include "broker/rabbitmq/window.h"

struct rabbit_broker;

// What is known of an exchange.
struct rabbit_exchange {
    char *name;
    bool is_there;
    int64_t ask_again_ms;      // of one that is closed
    struct skr_error trouble;  // why it is closed
};

// A message that comes back in several frames, without its tag.
struct rabbit_return {
    bool is_coming;
    char exchange[SKR_AMQP_SHORT_SIZE], routing_key[SKR_AMQP_SHORT_SIZE];
    struct skr_error reason;
    uint64_t body_left;
};

struct rabbit_publisher {
    struct rabbit_window window;
    bool is_open;                       // the channel, in confirm mode
    const struct skr_message *sending;  // its body is being sent; NULL: none
    size_t body_sent;
    struct skr_text headers, properties;  // for one message, kept between them
    struct rabbit_return returning;
    bool must_reconnect;  // the connection was closed for what a message did

    // A channel that refused a message gives way to another.
    int64_t renew_ms;            // when it does; 0: it refused nothing
    struct skr_backoff renewal;  // how long after the refusal
    int64_t renewed_ms;          // when that was last done; 0: never

    struct rabbit_exchange *exchanges;  // by name
    size_t exchange_count, exchange_capacity;
    bool is_asking_open;              // the channel on which they are asked for
    bool is_asking;                   // an answer is due
    char asked[SKR_AMQP_SHORT_SIZE];  // the exchange that it is due for
    int64_t asked_ms;  // since when an answer about a channel is due, too

    bool is_blocked;       // the server takes no messages
    int64_t unblocked_ms;  // since when it takes them again
};

skr_broker_submit_fn skr_rabbit_submit;
skr_broker_results_fn skr_rabbit_results;

// Opens the channels of a new connection; what was known of the last one is
// forgotten.
SKR_MUST_CHECK enum skr_code
skr_rabbit_publisher_start(struct rabbit_broker *broker,
                           struct skr_error *error);
void skr_rabbit_publisher_fini(struct rabbit_publisher *publisher);

// What comes on its channels.
SKR_MUST_CHECK enum skr_code
skr_rabbit_publisher_on_frame(struct rabbit_broker *broker,
                              const struct skr_amqp_frame *frame,
                              struct skr_error *error);
// The server has closed the connection. True: for what a message did, so that
// another connection takes its place.
bool skr_rabbit_publisher_on_close(struct rabbit_broker *broker, uint16_t code,
                                   const struct skr_error *reason);

SKR_MUST_CHECK enum skr_code
skr_rabbit_send_waiting(struct rabbit_broker *broker, struct skr_error *error);
// A server that is there but does not answer is as good as none.
SKR_MUST_CHECK enum skr_code
skr_rabbit_publisher_check(const struct rabbit_broker *broker,
                           struct skr_error *error);

#endif
