// SPDX-License-Identifier: MIT
// RabbitMQ's reply codes as errors.

#ifndef SKR_BROKER_RABBITMQ_ERRORS_H
#define SKR_BROKER_RABBITMQ_ERRORS_H

#include "broker/broker.h"

#include <amqp.h>

// "NOT_FOUND - no exchange 'x' in vhost '/'", as the server says it.
enum skr_code skr_rabbit_fail_reply(struct skr_error *error, uint16_t reply,
                                    amqp_bytes_t text);

// What a closed channel says about the one message that closed it.
enum skr_fate skr_rabbit_fate(uint16_t reply);

// Whether the server closed the connection for something that we sent.
bool skr_rabbit_blames_us(uint16_t reply);

#endif
