// SPDX-License-Identifier: MIT
// What becomes of a row, from what the broker said of its message. No clock, no
// log, no state: tests/unit/test_retry.c goes through the whole table.

#ifndef SKR_RELAY_RETRY_H
#define SKR_RELAY_RETRY_H

#include "broker/broker.h"
#include "message/failure.h"
#include "message/route.h"
#include "relay/breaker.h"

enum skr_decision {
    SKR_DECISION_DONE,     // the broker has it, or no queue wants it
    SKR_DECISION_RETRY,    // again after a while
    SKR_DECISION_GIVE_UP,  // retries exhausted, or refused for good
    SKR_DECISION_LEAVE,    // as if it had not been sent
};

struct skr_publish_facts {
    enum skr_publish_result result;  // what the broker said
    enum skr_blame blame;            // of what it refused this time
    enum skr_unroutable unroutable;  // what the route says; UNSAID: FAIL
    uint32_t retries;                // that the message has had
};

struct skr_retry_decision {
    enum skr_decision decision;
    uint32_t delay_ms;    // of a retry
    bool is_not_counted;  // a retry that costs the message nothing
};

// random is any number; by it the jitter of a delay is drawn.
struct skr_retry_decision
skr_retry_decide(const struct skr_publish_facts *facts,
                 const struct skr_retry_policy *policy, uint32_t random);

#endif
