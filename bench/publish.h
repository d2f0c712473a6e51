// SPDX-License-Identifier: MIT
// Publishing as an application does it, through the library.

#ifndef SKR_BENCH_PUBLISH_H
#define SKR_BENCH_PUBLISH_H

#include <skirnir/skirnir.h>
#include <stdbool.h>

enum { SKR_BENCH_MOST_MESSAGES = 1000 };

// queue NULL: `outbox`.
struct skr_outbox *skr_bench_outbox_open(const char *queue);
// The table kafka_outbox.
struct skr_outbox *skr_bench_kafka_outbox_open(const char *topic);

// Messages with the numbers first, first + 1, ... in their bodies; at most
// SKR_BENCH_MOST_MESSAGES of them. due_at_us 0: now. False: the server
// sacrificed the transaction, or let it wait for a lock for too long.
SKR_MUST_CHECK bool
skr_bench_publish(const struct skr_outbox *outbox, struct skr_tx tx, long first,
                  size_t count, int64_t due_at_us);

#endif
