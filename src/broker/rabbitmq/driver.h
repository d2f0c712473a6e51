// SPDX-License-Identifier: MIT
// RabbitMQ as a broker: one connection, and what is made of its channels.
//
// Messages go out on one channel, in confirm mode; exchanges are looked for on
// another, since asking for one that is missing closes the channel; the third
// declares, and is opened when it is needed. Nothing but open(), declare(), a
// reconnect and a set-up after a message that found no queue waits for the
// server. A broker that consumes has the fourth instead of the first two:
// publishing and consuming never share a connection, since a server that holds
// a publisher would hold acks as well. What is said on the fifth is not waited
// for.

#ifndef SKR_BROKER_RABBITMQ_DRIVER_H
#define SKR_BROKER_RABBITMQ_DRIVER_H

#include "broker/rabbitmq/consumer.h"
#include "broker/rabbitmq/options.h"
#include "broker/rabbitmq/publisher.h"

enum {
    RABBIT_PUBLISHING = 1,
    RABBIT_ASKING = 2,
    RABBIT_DECLARING = 3,
    RABBIT_CONSUMING = 4,
    RABBIT_BINDING = 5,
};

struct rabbit_broker {
    struct skr_broker base;
    struct rabbit_options options;
    struct skr_log log;
    struct skr_amqp amqp;
    struct skr_error failure;  // why the connection is lost; SKR_OK: it is not
    struct rabbit_setup setup;
    struct rabbit_publisher publisher;
    struct rabbit_consumer consumer;
};

// Sends what may be sent, handles what has come, and waits up to timeout_ms if
// nothing had. After an error the connection is lost, and failure says why.
SKR_MUST_CHECK enum skr_code
skr_rabbit_turn(struct rabbit_broker *broker, uint32_t timeout_ms,
                struct skr_error *error);
// Gives a frame to the owner of its channel.
SKR_MUST_CHECK enum skr_code
skr_rabbit_handle(struct rabbit_broker *broker,
                  const struct skr_amqp_frame *frame, struct skr_error *error);

// Waits for the server up to timeout_ms, but not so long that a heartbeat is
// missed. SKR_TIMEOUT and SKR_STOPPED as skr_amqp_wait().
SKR_MUST_CHECK enum skr_code
skr_rabbit_wait(struct rabbit_broker *broker, uint32_t timeout_ms, int wake_fd,
                struct skr_error *error);
// SKR_STOPPED when the caller that opened it wants it to end. What waits for a
// server asks; what was sent before is let come to its end.
SKR_MUST_CHECK enum skr_code
skr_rabbit_check_stop(const struct rabbit_broker *broker,
                      struct skr_error *error);
// The server has not answered for so long: SKR_UNAVAILABLE once that is over
// confirm_timeout, and other hosts are tried before this one.
SKR_MUST_CHECK enum skr_code
skr_rabbit_check_silence(const struct rabbit_broker *broker, int64_t since_ms,
                         struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_fail_unexpected(const struct rabbit_broker *broker, const char *what,
                           struct skr_error *error);

#endif
