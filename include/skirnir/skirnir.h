// SPDX-License-Identifier: MIT
// Skirnir: publish inside your own database transaction, consume exactly once.
//
// Threads: objects are confined to one thread at a time unless marked [shared].
// Memory: pointers passed in are borrowed for the call; *_new and *_open give
// the caller an object that the matching *_free or *_close takes back (NULL is
// accepted). Out-parameters are written only on SKR_OK.
// The library never prints, exits or touches signals.

#ifndef SKIRNIR_SKIRNIR_H
#define SKIRNIR_SKIRNIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SKR_VERSION_MAJOR 0
#define SKR_VERSION_MINOR 1
#define SKR_VERSION_PATCH 0
#define SKR_VERSION "0.1.0"

#if defined(__GNUC__)
#define SKR_API __attribute__((visibility("default")))
#define SKR_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SKR_API
#define SKR_MUST_CHECK
#endif

#ifdef __cplusplus
#define SKR_EXTERN extern "C"
extern "C" {
#else
#define SKR_EXTERN extern
#endif

// The version of the library that is loaded; SKR_VERSION is the header's.
SKR_API const char *skr_version(void);

// One list makes the enum, skr_code_name() and skr_code_text().
#define SKR_CODES(X)                                            \
    X(OK, "ok")                                                 \
    X(DUPLICATE, "message was processed before")                \
    X(INVALID, "invalid argument")                              \
    X(MALFORMED, "data from outside cannot be understood")      \
    X(NO_MEMORY, "out of memory")                               \
    X(NO_TRANSACTION, "connection is not inside a transaction") \
    X(MISSING, "a table or object does not exist")              \
    X(CONFLICT, "lost a race with another transaction")         \
    X(UNAVAILABLE, "database or broker cannot be reached")      \
    X(REFUSED, "database or broker refused the request")        \
    X(TIMEOUT, "deadline passed")                               \
    X(STOPPED, "stop was requested")

enum skr_code {
#define SKR_CODE_ENUM(name, text) SKR_##name,
    SKR_CODES(SKR_CODE_ENUM)
#undef SKR_CODE_ENUM
};

// What helps. Callers branch on this, never on a driver's own code.
enum skr_remedy {
    SKR_GIVE_UP,    // the same call will fail again
    SKR_TRY_AGAIN,  // the same call may succeed later, on this connection
    SKR_RECONNECT,  // this connection is lost
};

// Caller-owned, usually on the stack. Holding its text inline keeps the error
// path free of allocation. Functions accept NULL where the text is not wanted.
struct skr_error {
    enum skr_code code;
    enum skr_remedy remedy;
    char native[16];  // the driver's own code, for logs: "40001", "1213", "404"
    char text[320];
};

// "INVALID" and "invalid argument" for SKR_INVALID.
SKR_API const char *skr_code_name(enum skr_code code);
SKR_API const char *skr_code_text(enum skr_code code);

// A message's identity for its whole life: any UUID or ULID, 16 bytes either
// way. Ids that the library makes are UUIDv7 and sort by time of creation,
// strictly so within a process.
struct skr_id {
    uint8_t bytes[16];
};

enum { SKR_ID_TEXT_SIZE = 37 };  // with its terminating zero

// [shared]
SKR_API SKR_MUST_CHECK enum skr_code
skr_id_new(struct skr_id *id, struct skr_error *error);
// Writes the canonical UUID text.
SKR_API void skr_id_format(struct skr_id id, char text[SKR_ID_TEXT_SIZE]);
// Reads a UUID or a ULID in text form.
SKR_API SKR_MUST_CHECK enum skr_code
skr_id_parse(const char *text, struct skr_id *id, struct skr_error *error);

struct skr_header {
    const char *name;
    const char *value;
};

struct skr_message {
    struct skr_id id;  // all zero: publishing makes one
    const char *name;  // "order.placed"; picks route and handler
    // Those that share it stay in order, in an ordered outbox; "": no order;
    // NULL: none was given. At most 255 bytes. Refused by an outbox that is
    // neither ordered nor Kafka's.
    const char *partition_key;
    const char *content_type;  // NULL: "application/json"
    const void *body;          // text in UTF-8
    size_t body_size;
    const struct skr_header *headers;  // beyond those the library writes
    size_t header_count;
    // W3C Trace Context. Publishing refuses what is malformed, and a tracestate
    // without a traceparent. In a delivery: what came, NULL where there was
    // none or it was malformed. They travel as headers of these names, and may
    // be given as such instead.
    const char *traceparent;
    const char *tracestate;
    // Microseconds since 1970. Not used when publishing: the database's clock
    // says when.
    int64_t created_at_us;
    int64_t due_at_us;  // not before this time; 0: at once
};

// A transaction that someone else has open. Skirnir writes in it and never
// begins, commits, rolls back or closes it. Made by skr_sqlite_tx() and kin.
struct skr_tx_ops;
struct skr_tx {
    const struct skr_tx_ops *ops;
    void *connection;
};

// ---------------------------------------------------------------- publishing

// The producing side: a table and a queue name in it. [shared]
struct skr_outbox;

struct skr_outbox_options {
    const char *table;  // NULL: "messenger_outbox"
    const char *queue;  // NULL: "outbox"
    // Namespace of the stamp header that carries the id; NULL:
    // "Freyr\\MessageBroker\\Inbox"; "": no stamp, X-Message-Id alone.
    const char *stamp_namespace;
    // The zone of the table's times, where other writers do not write UTC: an
    // offset such as "+02:00", or a name that the database knows. NULL: UTC.
    const char *time_zone;
    // The table has the column partition_key, and messages of one key reach the
    // broker in the order in which they were published. A message without a key
    // is refused; one with the key "" has no order.
    bool is_ordered;
    // The table is the one of `skirnir kafka-relay`; table NULL:
    // "kafka_outbox"; queue and time_zone have no meaning there. A message
    // becomes a record of Kafka: its topic is the one below, else its name; its
    // key the partition key, else the id. The body must be JSON, and due_at_us
    // 0.
    bool is_kafka;
    const char *topic;
};

// options may be NULL: all defaults.
SKR_API SKR_MUST_CHECK enum skr_code
skr_outbox_new(const struct skr_outbox_options *options,
               struct skr_outbox **outbox, struct skr_error *error);
SKR_API void skr_outbox_free(struct skr_outbox *outbox);

// Adds messages to the outbox; the relay sees them if and only if tx commits.
// ids, which may be NULL, has room for count and receives the id of each. All
// messages are checked before the first is written: SKR_INVALID leaves tx
// untouched. SKR_NO_TRANSACTION when tx is in autocommit: the promise would be
// void. After any other error the caller rolls tx back, as after a failed
// statement of its own.
SKR_API SKR_MUST_CHECK enum skr_code
skr_publish(const struct skr_outbox *outbox, struct skr_tx tx,
            const struct skr_message *messages, size_t count,
            struct skr_id *ids, struct skr_error *error);

// ----------------------------------------------------------------- consuming

// For applications that run their own consume loop: SKR_OK the first time that
// id is seen, SKR_DUPLICATE after that. Both last only if tx commits. table
// may be NULL: "message_broker_deduplication". message_name has at most 255
// characters.
SKR_API SKR_MUST_CHECK enum skr_code
skr_inbox_admit(struct skr_tx tx, const char *table, const char *message_name,
                struct skr_id id, struct skr_error *error);

struct skr_delivery {
    struct skr_message message;
    uint32_t attempt;    // 1 on the first delivery
    const char *source;  // the consumer's name
};

enum skr_verdict {
    SKR_ACCEPT,  // commit tx, then acknowledge to the broker
    SKR_RETRY,   // roll back, deliver again after the back-off
    SKR_REJECT,  // roll back, keep the message in the failed table
};

// Called inside the transaction that holds the deduplication row: what it
// writes through tx commits with that row or not at all. It may be called
// again for the same delivery after a rollback. For SKR_RETRY and SKR_REJECT
// it may say why in reason->text, which the failed table will show; nothing
// else of reason counts. Whether a retry is the message's own the library finds
// out: a connection that was lost, or a transaction that the server has ended
// as after a deadlock, costs the message none of its retries.
typedef enum skr_verdict
skr_handler_fn(const struct skr_delivery *delivery, struct skr_tx tx,
               void *user, struct skr_error *reason);

// A shared object with handlers, which `skirnir consume` loads, has this once,
// with a semicolon behind it. The number says which structs and functions it
// was compiled for; one of another number is refused.
#define SKR_HANDLER_ABI 1
#define SKR_HANDLER_LIBRARY                            \
    SKR_EXTERN SKR_API const uint32_t skr_handler_abi; \
    const uint32_t skr_handler_abi = SKR_HANDLER_ABI

enum skr_log_level {
    SKR_LOG_ERROR,
    SKR_LOG_WARNING,
    SKR_LOG_INFO,
    SKR_LOG_DEBUG,
};

struct skr_log_field {
    const char *name;
    const char *text;  // NULL: number is the value
    int64_t number;
};

// Receives events such as "consumer.failed"; never a body, never a secret.
// May be called from several threads at once.
typedef void skr_log_fn(void *user, enum skr_log_level level, const char *event,
                        const struct skr_log_field *fields, size_t count);

struct skr_db_ops;
struct skr_broker_ops;
struct skr_consumer;

// Drivers are named by the application (&skr_sqlite_db, &skr_queue_broker), so
// that it links only those it uses and nothing registers itself. Zero in a
// number means its default.
struct skr_consumer_options {
    const char *name;  // as logs and the failed table show it

    // Handlers' transactions and deduplication.
    const struct skr_db_ops *database;
    const char *database_url;
    // The failed table; NULL: in the database above.
    const struct skr_db_ops *failed_database;
    const char *failed_database_url;

    const struct skr_broker_ops *broker;
    const char *broker_url;
    // The database under a queue broker; NULL for any other.
    const struct skr_db_ops *queue_database;
    const char *queue_database_url;
    // For a broker that is no table: &skr_queue_broker. What such a broker
    // cannot deliver again later waits for its retry as a row of the failed
    // table, under the queue "<name>.retry", and the consumer looks there too.
    // NULL: the broker itself delays what is to be retried.
    const struct skr_broker_ops *retry_broker;

    const char *deduplication_table;  // NULL: "message_broker_deduplication"
    const char *failed_table;         // NULL: "messenger_messages"
    const char *failed_queue;         // NULL: "failed"

    uint32_t batch;           // deliveries that may share a transaction: 100
    int32_t max_retries;      // 0: default 3; negative: none
    uint32_t retry_delay_ms;  // before the first retry: 1000
    double retry_multiplier;  // 2
    uint32_t max_retry_delay_ms;  // 0: unbounded
    // Each delay is moved at random by up to this part of it, either way. 0:
    // default 0.1; negative: none.
    double retry_jitter;

    skr_log_fn *log;  // NULL: silent
    void *log_user;
};

SKR_API SKR_MUST_CHECK enum skr_code
skr_consumer_open(const struct skr_consumer_options *options,
                  struct skr_consumer **consumer, struct skr_error *error);
SKR_API void skr_consumer_close(struct skr_consumer *consumer);

// message_name is any name, or the class, that a message has; or a pattern in
// which each * stands for any number of characters. A name goes before a
// pattern, a longer pattern before a shorter one, and "*" comes last.
SKR_API SKR_MUST_CHECK enum skr_code
skr_consumer_handle(struct skr_consumer *consumer, const char *message_name,
                    skr_handler_fn *handler, void *user,
                    struct skr_error *error);

// The same for a handler that wants no transaction, since it takes long or has
// its effects elsewhere. Its tx is empty: tx.ops is NULL. It runs first, and
// once it has accepted the id is recorded in a transaction. So its effects
// happen at least once: again after a crash in between, and twice where two
// consumers get the same message at the same time.
SKR_API SKR_MUST_CHECK enum skr_code
skr_consumer_handle_without_tx(struct skr_consumer *consumer,
                               const char *message_name,
                               skr_handler_fn *handler, void *user,
                               struct skr_error *error);

// Told of a delivery that came to nothing, after the rollback: SKR_RETRY when
// it will come again, SKR_REJECT when it goes to the failed table.
typedef void
skr_hook_error_fn(const struct skr_delivery *delivery, enum skr_verdict verdict,
                  const struct skr_error *reason, void *user);

// Around every handler; members may be NULL. before and after are given the
// handler's own tx and their verdict counts like its own: what is not
// SKR_ACCEPT ends the delivery there, and takes the effects back. before is
// called unless the message is a duplicate, after when the handler accepted.
// Like handlers both may be called again for the same delivery after a
// rollback; on_error is called once for each try that counts.
struct skr_hook {
    skr_handler_fn *before;
    skr_handler_fn *after;
    skr_hook_error_fn *on_error;
    void *user;
};

// Hooks are called in the order in which they were added. To be called before
// skr_consumer_run(); the struct is copied.
SKR_API SKR_MUST_CHECK enum skr_code
skr_consumer_add_hook(struct skr_consumer *consumer,
                      const struct skr_hook *hook, struct skr_error *error);

// Consumes until skr_consumer_stop() and returns SKR_STOPPED. What was received
// and not handled has been given back by then, and every connection is closed.
// It may be called again.
//
// It returns with another code only while it has not yet been connected to the
// databases and the broker with all tables in place, and only for mistakes that
// waiting does not mend:
//   SKR_MISSING    a database, a table or a queue does not exist
//   SKR_INVALID    an option or a URL makes no sense, or a table has another
//                  shape
//   SKR_NO_MEMORY  there was none to begin with
// All other trouble, and any after that, is logged once as consumer.trouble and
// waited out: servers that do not answer or refuse the login, a full disk,
// tables that go away, statements of a handler that do not fit the tables. No
// message spends a retry on it. A message that the failed table does not take
// is put off while others are handled.
SKR_API SKR_MUST_CHECK enum skr_code
skr_consumer_run(struct skr_consumer *consumer, struct skr_error *error);
// From any thread and from a signal handler. Without a run under way it ends
// the next one at its beginning.
SKR_API void skr_consumer_stop(struct skr_consumer *consumer);

#ifdef __cplusplus
}
#endif

#endif
