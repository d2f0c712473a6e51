// SPDX-License-Identifier: MIT
// The relay inside an application: moves what was published from the outbox to
// a broker, as `skirnir relay` does. Part of libskirnir.

#ifndef SKIRNIR_RELAY_H
#define SKIRNIR_RELAY_H

#include <skirnir/skirnir.h>

#ifdef __cplusplus
extern "C" {
#endif

struct skr_relay;

// How relays of one queue stay out of each other's way. All of them use the
// same.
enum skr_relay_claim {
    SKR_RELAY_EXCLUSIVE,  // one works, others stand by
    SKR_RELAY_SHARED,     // each works on a part of the queue
    // Rows are leased one by one, so that workers of Symfony can work on the
    // same queue. An ordered queue is shared instead.
    SKR_RELAY_LEASE,
};

// Drivers are named by the application, as for a consumer. Zero in a number
// means its default.
struct skr_relay_options {
    const char *name;  // as logs and the failed table show it

    // The outbox: as in skr_outbox_options.
    const struct skr_db_ops *database;
    const char *database_url;
    const char *table;  // NULL: "messenger_outbox"
    const char *queue;  // NULL: "outbox"
    bool is_ordered;
    enum skr_relay_claim claim;

    // On RabbitMQ the exchange is the one that the URL names, as
    // exchange[name] or behind the virtual host, else the first two words of
    // the message's name, which is the routing key. On Kafka the topic is the
    // URL's, else the message's name.
    const struct skr_broker_ops *broker;
    const char *broker_url;
    // The database under a queue broker; NULL for any other.
    const struct skr_db_ops *queue_database;
    const char *queue_database_url;

    // Where messages go that cannot be sent, in the outbox's database. In an
    // ordered queue such a message blocks its partition instead.
    const char *failed_table;  // NULL: "messenger_messages"
    const char *failed_queue;  // NULL: "failed"

    uint32_t in_flight;    // sent and not yet deleted: 1000
    bool stop_when_empty;  // skr_relay_run() ends once nothing is left to send

    skr_log_fn *log;  // NULL: silent
    void *log_user;
};

// Connects to nothing yet. The options are copied; drivers, and what log_user
// points to, outlive the relay. SKR_INVALID says which option is wrong.
SKR_API SKR_MUST_CHECK enum skr_code
skr_relay_new(const struct skr_relay_options *options, struct skr_relay **relay,
              struct skr_error *error);
// After the run.
SKR_API void skr_relay_free(struct skr_relay *relay);

// Relays in the calling thread, and settles in one thread of its own, in which
// every signal is blocked. It may be called once: SKR_INVALID after that. When
// it returns, what was in flight is settled, or is given up after 8 seconds and
// will be sent again by the next relay; every connection is closed.
//   SKR_STOPPED    skr_relay_stop() was called
//   SKR_OK         stop_when_empty: the queue is empty
//   SKR_REFUSED    stop_when_empty: messages are left that cannot be sent now
//                  (the broker has closed their route) or deleted
// It returns with another code only while it has not yet been connected to the
// database and the broker with all tables in place, and only for mistakes that
// waiting does not mend:
//   SKR_MISSING    a database or a table does not exist
//   SKR_INVALID    an option or a URL makes no sense, or a table has another
//                  shape
//   SKR_REFUSED    the broker or the database refuses the login, or a right is
//                  missing
//   SKR_NO_MEMORY  there was none to begin with
// All other trouble, and any after that, is logged as relay.trouble and
// waited out; no message is lost to it.
SKR_API SKR_MUST_CHECK enum skr_code
skr_relay_run(struct skr_relay *relay, struct skr_error *error);
// From any thread and from a signal handler. Before the run it ends that at its
// beginning.
SKR_API void skr_relay_stop(struct skr_relay *relay);

#ifdef __cplusplus
}
#endif

#endif
