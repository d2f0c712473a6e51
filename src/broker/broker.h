// SPDX-License-Identifier: MIT
// What a broker driver provides. A broker is one connection (Kafka: one client
// instance), used by one thread. Publishing and consuming never share one.

#ifndef SKR_BROKER_BROKER_H
#define SKR_BROKER_BROKER_H

#include "base/arena.h"
#include "base/host.h"
#include "base/log.h"
#include "base/url.h"
#include "message/headers.h"

#include <stdbool.h>

struct skr_db_ops;
struct skr_route;
struct skr_topology_ops;

// What a driver can do, by the URL that it was opened with. Set by open(), and
// the same from then on.
struct skr_broker_capabilities {
    // settle() can carry out SKR_SETTLE_RETRY. Where it cannot, the caller
    // stores what is to be tried again, and acknowledges it.
    bool delays;
    // retry_count tells of deliveries that were not settled, too, and they are
    // counted before they are handed out. Where it does not, the consumer
    // counts those that come as redelivered.
    bool counts;
    // How long the caller should have deliveries in hand; what it does not get
    // to by then is better requeued. 0: as long as it likes.
    int64_t hold_ms;
};

// How things stand between two calls.
struct skr_broker_status {
    // The server takes no messages for now. What is submitted waits until it
    // does.
    bool is_blocked;
    // Deliveries are deferred, so that a queue that gives nothing is not empty.
    bool has_deferred;
    // So many are, or for so long, that more are better stored elsewhere and
    // acknowledged.
    bool is_over_capacity;
};

// The first member of every driver's own struct.
struct skr_broker {
    const struct skr_broker_ops *ops;
    // The options' to begin with; the caller that opened it may name another.
    // It lives as long as the broker does.
    int wake_fd;
    struct skr_broker_capabilities can;
};

struct skr_broker_options {
    const char *url;
    const struct skr_db_ops *database;  // under a queue broker; else NULL
    const char *database_url;
    bool auto_setup;  // make what is missing on the broker
    // receive() will be called: what it needs is looked for by open(), so that
    // a mistake is told before the first message is waited for. Without it the
    // first receive() does so.
    bool consumes;
    bool inspects;  // nothing but depth() will be called
    // The consumer that opened it stored what it delivers: headers may be
    // larger than those of a message, by what was added.
    bool is_own;
    // Readable: receive() ends early, and so does connecting; negative: none.
    int wake_fd;
    struct skr_log log;
};

enum skr_publish_result {
    SKR_CONFIRMED,         // the broker has stored it
    SKR_REFUSED_FOR_NOW,   // a nack, a server's error, busy: may pass later
    SKR_REFUSED_FOR_GOOD,  // too large, malformed
    SKR_UNROUTABLE,        // it got there, and no queue wanted it
    SKR_UNCERTAIN,         // the connection ended first: it may be there
    // Not sent: nothing can go there now, whatever the message. What the route
    // names is missing, or may not be written to. Not the message's fault:
    // wait.
    SKR_ROUTE_UNAVAILABLE,
    // Not sent: one before it, which it is in order with, was refused, and the
    // caller did not know yet.
    SKR_HELD_BACK,
};

struct skr_published {
    uint64_t tag;  // as given to submit()
    enum skr_publish_result result;
    struct skr_error reason;  // unset when confirmed
};

// SKR_INVALID when no broker can be at this URL, whatever the server says: an
// option that makes no sense, a part that is missing. The error repeats no
// password. text is what url was parsed from. An option that is no mistake but
// means nothing is logged as a warning, with its name in the first field. Asks
// no server; open() refuses, and warns of, the same.
typedef enum skr_code
skr_broker_check_url_fn(const char *text, const struct skr_url *url,
                        const struct skr_log *log, struct skr_error *error);
// A driver parses options->url into url before open().
// close() must be safe after an open() that failed, and never fails.
typedef enum skr_code
skr_broker_open_fn(struct skr_broker *broker, const struct skr_url *url,
                   const struct skr_broker_options *options,
                   struct skr_error *error);
typedef void skr_broker_close_fn(struct skr_broker *broker);

// Where the message goes is route's to say; a broker that is one queue takes
// NULL. Hands one message over and returns without waiting for the broker, so
// that reading, publishing and settling overlap. The message is borrowed until
// its result or close(), the route for the call. Messages submitted in order
// reach the broker in order. headers are the wire's, complete but for the
// content type. An error means that the message was not taken and there will
// be no result for it.
typedef enum skr_code
skr_broker_submit_fn(struct skr_broker *broker,
                     const struct skr_message *message,
                     const struct skr_route *route, uint64_t tag,
                     struct skr_error *error);

// Gives the results that have come in, waiting up to timeout_ms for the first
// while any is due. Where none is, it may take a moment, once in seconds, to
// see whether the server is there; that it is not is logged, and no error.
// Every tag gets exactly one result, also when the connection is lost: then
// SKR_UNCERTAIN for each, and an error (remedy SKR_RECONNECT) once all have
// been given.
typedef enum skr_code
skr_broker_results_fn(struct skr_broker *broker, struct skr_published *results,
                      size_t capacity, size_t *count, uint32_t timeout_ms,
                      struct skr_error *error);

enum skr_settlement {
    // Give it back as it came: the initial value. A queue that counts this
    // drops a message after some times, unless it was told where to.
    SKR_SETTLE_REQUEUE,
    // Not settled yet: it comes again after delay_ms, as it came, and others
    // meanwhile. The server takes it for in hand, and gets it back when the
    // connection ends. Where deliveries are rows, theirs wait instead.
    SKR_SETTLE_DEFER,
    SKR_SETTLE_ACK,  // it is dealt with
    // Again after delay_ms, with retry_count raised. In a broker that has no
    // delays it is given back at once, as it came.
    SKR_SETTLE_RETRY,
};

// A delivery as it came. Everything but the settlement is the driver's.
struct skr_incoming {
    // Parsed headers, or count 0 and raw_headers where that failed, with the
    // reason in problem.
    struct skr_headers headers;
    const char *raw_headers;
    size_t raw_headers_size;
    struct skr_error problem;

    const void *body;
    size_t body_size;
    const char *broker_id;  // the broker's own message id; NULL: none
    int64_t created_at_us;  // 0: unknown
    uint32_t retry_count;   // how often it was tried before
    bool redelivered;  // a consumer had it and did not settle: handle it alone
    // How often it was handed out before, by a count that the broker keeps; 0:
    // it keeps none. It counts consumers that were gone before they looked at
    // the message, too, so that it is no measure of what the message did.
    uint32_t delivery_count;
    uint64_t handle;  // the driver's
    // Those of one partition are in order, and stay so: when one is to be tried
    // again, those behind it are requeued. 0: no order.
    uint64_t partition;

    enum skr_settlement settlement;
    uint32_t delay_ms;
    struct skr_error reason;  // of a retry
    // Set by settle(): another has it by now, and the retry came to nothing.
    bool was_lost;
    // Set by settle(): a retry that the broker cannot carry out. It is in hand
    // as before; the caller keeps it elsewhere, and settles it again.
    bool was_refused;
};

// Gives what is waiting, up to capacity, and waits up to timeout_ms for the
// first: SKR_TIMEOUT when nothing came, SKR_STOPPED when the wake_fd is
// readable. Deliveries are borrowed until the next receive(), and each has
// been settled, or deferred, by then.
typedef enum skr_code
skr_broker_receive_fn(struct skr_broker *broker, struct skr_incoming *incoming,
                      size_t capacity, size_t *count, uint32_t timeout_ms,
                      struct skr_error *error);

// Carries out the settlements, in one go where the broker can. After an error
// the caller reconnects: what was not settled will be delivered again.
typedef enum skr_code
skr_broker_settle_fn(struct skr_broker *broker, struct skr_incoming *incoming,
                     size_t count, struct skr_error *error);

typedef struct skr_broker_status
skr_broker_status_fn(struct skr_broker *broker);

// What a URL consumes from a log: each group gets all messages of its topics.
// All of it lives in the arena, which is the caller's to end, also after an
// error. Asks no server.
struct skr_subscription {
    struct skr_arena arena;
    const char *server;  // one or more: "kafka1:9092,kafka2:9092"
    const char *group;
    const char *const *topics;
    size_t topic_count;  // 0: it names nothing to consume
};
typedef enum skr_code
skr_broker_subscription_fn(const struct skr_url *url,
                           struct skr_subscription *subscription,
                           struct skr_error *error);

// How far consumers are in one partition of a log.
struct skr_lag {
    char topic[256];
    int32_t partition;
    uint64_t written;   // messages that ever came
    bool has_position;  // the consumers have said how far they are
    uint64_t position;
    uint64_t behind;  // of what is still there
};

// What waits to be consumed by a transport; of a log, how far its consumers are
// behind. Opened with `inspects`. The caller ends it with skr_depth_fini(),
// also after an error.
struct skr_depth {
    // False: no consumer is known, and the transport need not have anything to
    // consume from: others may be published to by it.
    bool has_messages;
    uint64_t messages;
    bool are_due;  // none of them is in a consumer's hand: a queue's
    bool has_consumers;
    uint64_t consumers;  // how many there are, where that is known
    // How long the oldest of them has been there, within some percent;
    // has_oldest: that is known, and there is one.
    bool has_oldest;
    int64_t oldest_s;
    // Messages that ever came, and of those, how many were consumed.
    bool has_written, has_taken;
    uint64_t written, taken;
    // Of a log that is read, its partitions; the furthest behind is the first.
    struct skr_lag *lags;
    size_t lag_count;
};
typedef enum skr_code
skr_broker_depth_fn(struct skr_broker *broker, struct skr_depth *depth,
                    struct skr_error *error);

// NULL may be receive and settle in a driver that only publishes, depth in one
// that cannot tell, subscription where has_topics is false, and topology: their
// callers ask. Every driver has all the others.
struct skr_broker_ops {
    const char *scheme;  // "amqp", "kafka", "queue"
    size_t size;         // of the driver's struct; allocated zeroed
    bool has_topics;     // a log: routes name topics and keys

    skr_broker_check_url_fn *check_url;
    skr_exposure_fn *exposure;
    struct skr_url_files files;
    skr_broker_open_fn *open;
    skr_broker_close_fn *close;
    skr_broker_submit_fn *submit;
    skr_broker_results_fn *results;
    skr_broker_receive_fn *receive;
    skr_broker_settle_fn *settle;
    skr_broker_status_fn *status;
    skr_broker_depth_fn *depth;
    skr_broker_subscription_fn *subscription;
    // What can be made on its server, see topology.h. NULL: nothing.
    const struct skr_topology_ops *topology;
};

SKR_MUST_CHECK enum skr_code
skr_broker_open(const struct skr_broker_ops *ops,
                const struct skr_broker_options *options,
                struct skr_broker **broker, struct skr_error *error);
void skr_broker_close(struct skr_broker *broker);
void skr_depth_fini(struct skr_depth *depth);

#endif
