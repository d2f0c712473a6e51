// SPDX-License-Identifier: MIT
// The consumer's connections, the tables it needs, and waiting for them.

#ifndef SKR_INBOX_CONNECT_H
#define SKR_INBOX_CONNECT_H

#include "base/backoff.h"
#include "base/log.h"
#include "db/db.h"

struct connection {
    struct skr_trouble passed_over;  // hosts that can only be read
    struct skr_trouble trouble;
    struct skr_backoff backoff;
    int64_t idle_check_ms;  // when to ask an idle database; by skr_clock_ms()
    bool is_refused;  // by a broker that is a server, at the last connection
    bool was_ready;   // both were there, with their tables
};

// Opens what is not open and checks the tables.
SKR_MUST_CHECK enum skr_code
skr_consumer_connect(struct skr_consumer *consumer, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_consumer_connect_database(struct skr_consumer *consumer,
                              struct skr_error *error);
// The connection that the failed table is on, open and checked.
SKR_MUST_CHECK enum skr_code
skr_consumer_connect_failed(struct skr_consumer *consumer, struct skr_db **db,
                            struct skr_error *error);
void skr_consumer_drop_database(struct skr_consumer *consumer);
// The same connection, where the failed table is in that database.
void skr_consumer_drop_failed(struct skr_consumer *consumer);
// SKR_MISSING: the failed table, and how to make it.
enum skr_code skr_consumer_fail_missing(const struct skr_consumer *consumer,
                                        struct skr_error *error);

bool skr_consumer_is_stopping(const struct skr_consumer *consumer);
// Stopped, at its limit, or over by the caller's own measure.
bool skr_consumer_is_ending(const struct skr_consumer *consumer);
// Says the trouble once and waits, longer each time, or until the stop.
void skr_consumer_wait_out(struct skr_consumer *consumer,
                           const struct skr_error *error);

#endif
