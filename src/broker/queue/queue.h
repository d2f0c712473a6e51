// SPDX-License-Identifier: MIT
// The inside of the queue broker, shared by its files alone.

#ifndef SKR_BROKER_QUEUE_QUEUE_H
#define SKR_BROKER_QUEUE_QUEUE_H

#include "base/text.h"
#include "broker/broker.h"
#include "store/messenger/messenger.h"
#include "store/parked.h"

#include <pthread.h>

// A message that was submitted: borrowed until its result is given.
struct queue_pending {
    const struct skr_message *message;
    uint64_t tag;
    enum skr_publish_result result;
    struct skr_error *reason;  // owned; NULL: the publisher's own error
};

// pending: 0 .. given .. written .. count
//   given     their results have been handed out
//   written   their result is known
//   the rest  submitted, not yet tried
struct queue_publisher {
    struct queue_pending *pending;
    size_t given, written, count, capacity;
    struct skr_error failure;  // why a write failed; code SKR_OK: it did not

    // What one write needs, kept between writes.
    struct skr_messenger_row *rows;
    size_t *row_owner;  // which pending message a row belongs to
    struct skr_header *headers;
    size_t header_capacity;
    struct skr_text json;
};

// Renews the lease of rows that a handler keeps longer than expected. The
// mutex guards everything below it, and the lease of the rows in the table as
// well: the thread that writes delivered_at of held rows holds it meanwhile.
struct queue_keepalive {
    pthread_t thread;
    bool is_running;    // of the broker's thread alone
    struct skr_db *db;  // of the keepalive's thread alone
    bool logged_busy;

    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool is_ready;  // mutex and condition exist
    bool stopping;
    bool is_idle;           // the thread sleeps until rows are held
    struct skr_batch held;  // rows alone: claimed and not settled
    bool has_lost;          // some of what was claimed is another's by now
    int64_t renew_at_ms;
};

struct queue_broker {
    struct skr_broker base;
    struct skr_db *db;
    struct skr_store *table;
    const struct skr_db_ops *database;
    char *database_url;
    char *name;
    int64_t redeliver_timeout_s;
    bool auto_setup;
    bool derives_ids;  // rows without an id get one that is always the same
    struct skr_log log;

    struct queue_publisher publisher;

    struct skr_reader *reader;  // NULL: nothing was received yet
    struct skr_batch batch;     // claimed
    struct skr_batch settling;  // items of it, in the order of a settle call
    struct skr_parked parked;   // rows that cannot be claimed,
    struct skr_row_set passed;  // and those of them that are not to be now
    size_t claim_size;
    int64_t deferred_until_ms;  // the last row that it deferred is due then
    bool has_deferred;          // some were not, when receive() began
    struct queue_keepalive keepalive;
};

// The consuming side, consume.c.
skr_broker_receive_fn skr_queue_receive;
skr_broker_settle_fn skr_queue_settle;
skr_broker_status_fn skr_queue_status;
void skr_queue_consumer_fini(struct queue_broker *broker);

#endif
