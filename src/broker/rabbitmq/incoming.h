// SPDX-License-Identifier: MIT
// A message of RabbitMQ as a consumer sees it.

#ifndef SKR_BROKER_RABBITMQ_INCOMING_H
#define SKR_BROKER_RABBITMQ_INCOMING_H

#include "broker/rabbitmq/deliveries.h"
#include "message/headers.h"

// The delivery as the caller of receive() gets it, with its texts in the arena.
SKR_MUST_CHECK enum skr_code
skr_rabbit_incoming_fill(struct skr_arena *arena, const char *queue,
                         const struct rabbit_delivery *delivery, uint64_t tag,
                         struct skr_incoming *incoming,
                         struct skr_error *error);
// By the count of a queue that keeps one: a consumer had it before.
bool skr_rabbit_delivery_was_out(const struct rabbit_delivery *delivery);

// The table as headers, in the arena. Text stands as it is. Everything else
// becomes its JSON text: numbers, true, false, null; timestamps as seconds,
// decimals with their digits, nested tables as objects and arrays as arrays. A
// float that is no number is "NaN", "Infinity" or "-Infinity". Bytes that are
// no UTF-8, or hold a zero, become base64, in names too. Of two headers with
// one name the last counts. SKR_MALFORMED says what cannot be read.
SKR_MUST_CHECK enum skr_code
skr_rabbit_headers_read(struct skr_arena *arena, struct skr_amqp_piece table,
                        struct skr_headers *headers, struct skr_error *error);

// How often a message was rejected from this queue, by its x-death header.
uint32_t
skr_rabbit_rejections(struct skr_amqp_piece headers, const char *queue);
// How often it was handed out before, by a quorum queue's own count.
uint32_t skr_rabbit_delivery_count(struct skr_amqp_piece headers);

#endif
