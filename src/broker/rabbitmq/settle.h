// SPDX-License-Identifier: MIT
// Telling the server what became of deliveries. Retries go through delay
// queues, as Symfony has them, on a connection of their own.

#ifndef SKR_BROKER_RABBITMQ_SETTLE_H
#define SKR_BROKER_RABBITMQ_SETTLE_H

#include "amqp/connection.h"
#include "broker/rabbitmq/deliveries.h"

struct rabbit_delay {
    struct skr_amqp amqp;  // opened for the first retry
    bool is_open;
    uint64_t tag;     // of the copy that was published last
    int64_t used_ms;  // when that was
    // After a failure to reach the server all retries are refused for this
    // reason, so that the caller does not wait for each of them; until then, by
    // skr_clock_ms().
    struct skr_error reason;
    int64_t again_ms;
    struct skr_trouble trouble;
};

skr_broker_settle_fn skr_rabbit_settle;

// Closes the connection once it has not been used for a while.
void skr_rabbit_delay_tidy(struct rabbit_delay *delay);
void skr_rabbit_delay_close(struct rabbit_delay *delay, bool is_alive);

#endif
