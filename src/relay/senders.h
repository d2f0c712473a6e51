// SPDX-License-Identifier: MIT
// The brokers that one relay sends to. The first is where the outbox goes;
// others are named by rules for single messages, opened when they are first
// needed, and their trouble is not the first one's.

#ifndef SKR_RELAY_SENDERS_H
#define SKR_RELAY_SENDERS_H

#include "broker/broker.h"
#include "message/route.h"

struct skr_opening;

enum { SKR_MAX_SENDERS = 16 };

struct skr_sender_options {
    const char *name;  // the transport's
    const struct skr_broker_ops *broker;
    struct skr_broker_options options;
};

struct skr_sender {
    const struct skr_sender_options *options;
    struct skr_broker *broker;    // NULL: not open
    struct skr_opening *opening;  // NULL: it is not being opened
    size_t pending;               // sent, without a result yet
    // When it last gave a result, or owed none.
    int64_t last_received_ms;
};

struct skr_senders {
    struct skr_sender items[SKR_MAX_SENDERS];
    size_t count;
    size_t pending;  // of all of them
};

// Opens the first of so many. The options are borrowed until the end.
SKR_MUST_CHECK enum skr_code
skr_senders_open(struct skr_senders *senders,
                 const struct skr_sender_options *options, size_t count,
                 struct skr_error *error);
void skr_senders_close(struct skr_senders *senders);

// As a broker's submit(), to the sender that the route names. *is_away tells
// that the sender, which is not the first, cannot be reached or takes nothing
// now, and the error why.
SKR_MUST_CHECK enum skr_code
skr_senders_submit(struct skr_senders *senders,
                   const struct skr_message *message,
                   const struct skr_route *route, uint64_t tag, bool *is_away,
                   struct skr_error *error);

// As a broker's results(), of all of them. A sender beyond the first that is
// lost is closed here; its results are SKR_UNCERTAIN.
SKR_MUST_CHECK enum skr_code
skr_senders_results(struct skr_senders *senders, struct skr_published *results,
                    size_t capacity, size_t *count, uint32_t timeout_ms,
                    struct skr_error *error);

// Closes a sender beyond the first that owes results and has given none for
// seconds, and tells why; 0: there is none. What was sent to it is the caller's
// to judge as SKR_UNCERTAIN.
size_t
skr_senders_close_silent(struct skr_senders *senders, struct skr_error *reason);

#endif
