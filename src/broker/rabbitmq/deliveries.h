// SPDX-License-Identifier: MIT
// Messages that the server has handed to us, by their tag. The server counts
// tags from 1 in each channel, one after the other, over all of its queues.
//
//   first .. next .. end
//     first to next   given to the caller; settled one by one
//     next to end     waiting to be given; the last may still be coming
//
// Those that were deferred are among those that were given, and are given again
// when their time has come. The server takes them for in hand and knows nothing
// of it: were they given back, a queue that counts would drop them in the end.

#ifndef SKR_BROKER_RABBITMQ_DELIVERIES_H
#define SKR_BROKER_RABBITMQ_DELIVERIES_H

#include "amqp/fields.h"
#include "broker/broker.h"
#include "message/headers.h"

enum rabbit_delivery_state {
    RABBIT_COMING,
    RABBIT_COME,
    RABBIT_GIVEN,
    RABBIT_ACK_DUE,  // dealt with, and the server does not know
    RABBIT_OVER,     // the server knows
};

struct rabbit_delivery {
    uint64_t tag;
    enum rabbit_delivery_state state;
    bool is_deferred;  // once or more
    int64_t until_ms;  // of one that is, by skr_clock_ms()
    size_t queue;      // its place in the settings
    bool redelivered;
    bool has_properties;
    int64_t came_ms;       // when it began to
    unsigned char *block;  // properties, then the body; NULL: none, or let go
    size_t properties_size;
    size_t body_size, body_got;
};

struct rabbit_deliveries {
    struct rabbit_delivery *items;  // by tag; what is over is tidied away
    size_t count, capacity;
    uint64_t next, end;  // tags
    size_t held_bytes;   // in the blocks of those that were never deferred
    size_t deferred_count, deferred_bytes;
};

void skr_rabbit_deliveries_init(struct rabbit_deliveries *deliveries);
void skr_rabbit_deliveries_fini(struct rabbit_deliveries *deliveries);

// One begins to come, piece by piece. *fits is false, here and below, when that
// makes no sense: it is not the next one by its tag, or the last one has not
// come in full.
SKR_MUST_CHECK enum skr_code
skr_rabbit_deliveries_begin(struct rabbit_deliveries *deliveries, uint64_t tag,
                            size_t queue, bool redelivered, bool *fits,
                            struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_rabbit_deliveries_properties(struct rabbit_deliveries *deliveries,
                                 struct skr_amqp_piece properties,
                                 uint64_t body_size, bool *fits,
                                 struct skr_error *error);
SKR_MUST_CHECK bool
skr_rabbit_deliveries_body(struct rabbit_deliveries *deliveries,
                           struct skr_amqp_piece piece);

// How many have come in full and were not given.
size_t
skr_rabbit_deliveries_waiting(const struct rabbit_deliveries *deliveries);
// The one that has waited longest; NULL: none waits.
const struct rabbit_delivery *
skr_rabbit_deliveries_oldest(const struct rabbit_deliveries *deliveries);
// The next one that waits; it is given from now on. NULL: none does.
struct rabbit_delivery *
skr_rabbit_deliveries_give(struct rabbit_deliveries *deliveries, uint64_t *tag);
// It is over, and its bytes are let go.
void skr_rabbit_deliveries_drop(struct rabbit_deliveries *deliveries,
                                struct rabbit_delivery *delivery);
// One that was given and is not settled; NULL: there is no such.
struct rabbit_delivery *
skr_rabbit_deliveries_find(struct rabbit_deliveries *deliveries, uint64_t tag);

// One that was given and is not settled waits until then.
void
skr_rabbit_deliveries_defer(struct rabbit_deliveries *deliveries,
                            struct rabbit_delivery *delivery, int64_t until_ms);
// When the first of those is to be given again; INT64_MAX: none waits.
int64_t
skr_rabbit_deliveries_due_ms(const struct rabbit_deliveries *deliveries);
// One whose time has come; it is given from now on. NULL: none.
struct rabbit_delivery *
skr_rabbit_deliveries_give_due(struct rabbit_deliveries *deliveries,
                               int64_t now_ms, uint64_t *tag);

// The highest tag whose ack is due and below which nothing is open: one ack
// "up to here" stands for all of them. They are over then. 0: there is none.
uint64_t skr_rabbit_deliveries_ack(struct rabbit_deliveries *deliveries);
// The first ack from this tag on that is due by itself, since something below
// it is open; 0: none.
uint64_t skr_rabbit_deliveries_ack_alone(struct rabbit_deliveries *deliveries,
                                         uint64_t tag);

// Lets go of what is over; what was given and not settled stays.
void skr_rabbit_deliveries_tidy(struct rabbit_deliveries *deliveries);

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
