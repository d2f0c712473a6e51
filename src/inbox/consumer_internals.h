// SPDX-License-Identifier: MIT
// The struct of a consumer, for the files of this folder alone. Each part is
// its file's to write.

#ifndef SKR_INBOX_CONSUMER_INTERNALS_H
#define SKR_INBOX_CONSUMER_INTERNALS_H

#include "base/arena.h"
#include "broker/broker.h"
#include "inbox/connect.h"
#include "inbox/consumer.h"
#include "inbox/handlers.h"
#include "inbox/settle.h"
#include "inbox/transaction.h"

// Read by any thread.
struct tally {
    atomic_uint_fast64_t handled, duplicates, retried, failed, ignored;
    struct skr_histogram handling;  // how long handlers took
    struct skr_histogram latency;   // from the time in the id to the commit
    // When the oldest that the broker gave last was made, by its id; 0: none.
    atomic_int_fast64_t oldest_us;
};

// Where deliveries come from: the broker, and the queue of retries beside it.
struct sources {
    struct skr_broker *broker;
    struct skr_broker *retries;  // NULL: no queue of retries, or closed
    struct skr_broker *current;  // one of both: where the jobs came from
    const char *retry_queue;     // "<name>.retry"
    int64_t retry_again_ms;      // when to look there; by skr_clock_ms()
    struct skr_trouble retry_trouble;
};

// What was received last.
struct batch {
    struct skr_incoming *incoming;
    struct job *jobs;
    size_t count;
    size_t capacity;
    size_t most;          // so many at once find time; at least 1
    size_t alone_left;    // so many are handled each by itself, after trouble
    int64_t received_ms;  // by skr_clock_ms()
    struct skr_arena arena;
};

struct budget {
    struct skr_consumer_budget own;
    struct skr_consumer_budget *shared;  // with others, or own
    uint64_t taken;                      // deliveries that were dealt with
};

struct skr_consumer {
    // As they were given; texts are in the arena. failed_database is NULL also
    // where it has turned out to be the consumer's, by another name.
    struct skr_arena texts;
    struct skr_consumer_options options;
    struct skr_consumer_extras extras;
    struct skr_delivery_policy policy;
    struct skr_log log;

    int stop_fd;
    atomic_bool is_stopped;  // stop_fd is readable: asked without a system call
    struct skr_beat beat;
    struct tally tally;

    struct handlers handlers;          // handlers.c
    struct unhandled unhandled;        // handlers.c
    struct hooks hooks;                // handlers.c
    struct skr_db *db;                 // connect.c; NULL: not open
    struct connection connection;      // connect.c
    struct sources sources;            // consumer.c
    struct records records;            // transaction.c
    struct attempt_counts attempts;    // settle.c
    struct dead_letters dead_letters;  // settle.c
    struct batch batch;                // consumer.c
    struct budget budget;              // consumer.c; settle.c counts
    uint32_t random;                   // settle.c; moves retries apart
};

// When to look for retries again, by the clock of now_ms: second_ms is how far
// the server's second has gone, where there are any rows.
int64_t
skr_retries_next_look_ms(int64_t now_ms, bool has_rows, int64_t second_ms);
// The queue of retries is looked at beside the broker: a queue that is a table
// has its retries in itself.
bool skr_consumer_has_retries(const struct skr_consumer *consumer);
// The broker should hear of what was received: begin nothing more.
bool skr_consumer_is_late(const struct skr_consumer *consumer);
// Closes the one that the jobs came from.
void skr_consumer_drop_source(struct skr_consumer *consumer);

#endif
