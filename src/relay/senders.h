// SPDX-License-Identifier: MIT
// The brokers that one relay sends to. The first is where the outbox goes;
// others are named by rules for single messages, opened when they are first
// needed, and their trouble is not the first one's.

#ifndef SKR_RELAY_SENDERS_H
#define SKR_RELAY_SENDERS_H

#include "broker/broker.h"

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
    size_t pending;               // sent, without an outcome yet
    // When it last gave an outcome, or owed none.
    int64_t heard_ms;
};

struct skr_senders {
    struct skr_sender items[SKR_MAX_SENDERS];
    size_t count;
};

// Opens the first one.
SKR_MUST_CHECK enum skr_code
skr_senders_open(struct skr_senders *senders, struct skr_error *error);
void skr_senders_close(struct skr_senders *senders);

// As a broker's submit(); *is_away tells that the sender, which is not the
// first, cannot be reached or takes nothing now, and the error why.
SKR_MUST_CHECK enum skr_code
skr_senders_submit(struct skr_senders *senders, size_t sender,
                   const struct skr_message *message,
                   const struct skr_route *route, uint64_t ticket,
                   bool *is_away, struct skr_error *error);

// As a broker's outcomes(), of all of them. A sender beyond the first that is
// lost is closed here; its outcomes are SKR_UNCERTAIN.
SKR_MUST_CHECK enum skr_code
skr_senders_outcomes(struct skr_senders *senders, struct skr_outcome *outcomes,
                     size_t capacity, size_t *count, uint32_t timeout_ms,
                     struct skr_error *error);

// Closes a sender beyond the first that owes outcomes and has given none for
// seconds, and tells why; 0: there is none. What was sent to it is the caller's
// to judge as SKR_UNCERTAIN.
size_t
skr_senders_close_silent(struct skr_senders *senders, struct skr_error *reason);

// How many were sent and have no outcome yet.
size_t skr_senders_pending(const struct skr_senders *senders);

#endif
