// SPDX-License-Identifier: MIT
// The consumer, for the program: what the public header leaves out. It
// receives, handles and settles, and lives on through trouble.
//
// A delivery is received (consumer.c) and decoded (decode.c); its message is
// recorded, its handler called and both committed (transaction.c, handlers.c);
// what becomes of it is decided (decide.h) and carried out (settle.c): it is
// acknowledged, retried after a while, stored as a dead letter, deferred, or
// requeued. decide.h tells the whole way; consumer_internals.h has the struct.
// Beside them: connect.c has the consumer's connections; a handler is a
// function, a shared object (library.c), SQL (sql_handler.c) or a process
// (child.c); admit.c is deduplication for an application's own loop.

#ifndef SKR_INBOX_CONSUMER_H
#define SKR_INBOX_CONSUMER_H

#include "base/beat.h"
#include "base/histogram.h"
#include "base/log.h"
#include "message/name.h"

#include <skirnir/skirnir.h>
#include <stdatomic.h>
#include <stdbool.h>

struct skr_store;

struct skr_consumer_counts {
    uint64_t handled;     // effects committed
    uint64_t duplicates;  // seen before, acknowledged
    uint64_t retried;
    uint64_t failed;   // dead letters
    uint64_t ignored;  // without a handler, acknowledged
    // How long each call of a handler took, whatever its verdict.
    const struct skr_histogram *handling;
    // From the time in the id of a message to the commit of its effects.
    // Messages whose id does not tell a time are not counted.
    const struct skr_histogram *latency;
    // For how long the oldest of the messages that the broker gave last has
    // been on its way, by the same time; 0: the broker had none to give. While
    // a queue holds more than is asked for at once, its oldest are those.
    int64_t oldest_us;
};

// What becomes of a message that no handler is for.
enum skr_unhandled {
    SKR_UNHANDLED_FAIL,    // it is a dead letter
    SKR_UNHANDLED_IGNORE,  // it is acknowledged
    SKR_UNHANDLED_WAIT,    // it stays, and is looked at again now and then
};

// From any thread.
struct skr_consumer_counts
skr_consumer_counts(const struct skr_consumer *consumer);

// Of its loop.
struct skr_pulse skr_consumer_pulse(const struct skr_consumer *consumer);

// How much several consumers may do together. Zeroed but for the limits.
// [shared]
struct skr_consumer_budget {
    uint64_t messages;  // stop after so many deliveries; 0: never
    uint64_t failures;  // stop after so many retries and failures; 0: never
    // The consumers' own: deliveries that are in hand or dealt with, those that
    // are dealt with, and failures.
    atomic_uint_fast64_t claimed, taken, failed;
};

// To be called between skr_consumer_open() and skr_consumer_run().
struct skr_consumer_extras {
    const struct skr_names *names;  // message_types; borrowed; NULL: none
    const char *failed_time_zone;   // of the failed table; NULL: UTC
    bool failed_readable;           // see skr_messenger_options
    // A message without an id is handled, each time it comes; else it is a dead
    // letter.
    bool handles_missing_ids;
    enum skr_unhandled unhandled;
    // Dead letters of one handler within a minute, after which its messages
    // wait; 0: any number.
    uint32_t failure_limit;
    bool auto_setup;  // make the failed table when it is missing
    bool deduplication_auto_setup;
    // The table that deduplication_table takes over from; see
    // skr_deduplication_succeed(). Borrowed; NULL: none.
    const char *deduplication_before;
    bool warns_of_before;  // when it holds what a new consumer never handled
    // So long may all that comes be duplicates before it is said; 0: two
    // minutes.
    uint32_t duplicates_ms;
    uint64_t limit;  // stop after so many deliveries; 0: never
    // Shared with others, and instead of the limit; borrowed; NULL: none.
    struct skr_consumer_budget *budget;
    uint32_t sleep_ms;     // longest wait for a delivery; 0: 1000
    bool stop_when_empty;  // return SKR_OK once nothing is waiting
    // Asked after each batch and each wait; true ends the run with SKR_OK.
    bool (*is_over)(void *user);
    void *user;
    // Asked while it has not been connected yet and a mistake keeps it from
    // that, which waiting does not mend, such as a wrong password too: true
    // ends the run with that error. NULL: as skr_consumer_run() says.
    bool (*gives_up)(void *user);
    void *gives_up_user;
    skr_health_fn *tell_health;  // NULL: health is of no interest
    void *health_user;
};
void skr_consumer_extend(struct skr_consumer *consumer,
                         const struct skr_consumer_extras *extras);

// A handler that is SQL: statements run in the handler's transaction, with
// :id :name :body :headers :partition_key bound. See inbox/sql_handler.h.
SKR_MUST_CHECK enum skr_code
skr_consumer_handle_sql(struct skr_consumer *consumer, const char *message_name,
                        const char *const *statements, size_t count,
                        struct skr_error *error);

// Instead of handlers: every message becomes a row of a queue in the consumer's
// database, in the transaction that records it.
struct skr_forward {
    const char *insert;       // SQL as of a handler, with :body and :headers
    struct skr_store *queue;  // its table; the consumer frees it in any case
    bool makes_queue;         // when it is missing
};
SKR_MUST_CHECK enum skr_code
skr_consumer_forward(struct skr_consumer *consumer,
                     const struct skr_forward *forward,
                     struct skr_error *error);

// A handler in a shared object. SKR_INVALID says what is wrong and what helps:
// the object cannot be loaded, it was made for another version, it has no such
// function.
SKR_MUST_CHECK enum skr_code
skr_consumer_handle_library(struct skr_consumer *consumer,
                            const char *message_name, const char *path,
                            const char *function, bool wants_transaction,
                            struct skr_error *error);
// What would be said of the object's file, which has a slash in its name, if it
// were loaded, without doing so: nothing in it runs. What it needs besides
// itself is not looked for.
SKR_MUST_CHECK enum skr_code
skr_library_look(const char *path, const char *function,
                 struct skr_error *error);

// Who writes the deduplication record of a message that a process handled.
enum skr_recorder {
    SKR_RECORDER_CONSUMER,  // once the process has accepted the message
    // The process, in the transaction of its effects and in the consumer's
    // table, where the consumer looks for it.
    SKR_RECORDER_HANDLER,
    SKR_RECORDER_OWN,  // the process, elsewhere: that is its own business
};

// A handler that is a process, outside of any transaction: see inbox/child.h.
struct skr_handler_command {
    const char *const *words;  // the program and its arguments
    size_t word_count;
    // Variables of the environment that it does not get; ends with NULL.
    const char *const *withheld;
    uint32_t timeout_ms;  // for an answer, and for getting ready
    // Where the process does not say so itself.
    enum skr_recorder recorder;
};
SKR_MUST_CHECK enum skr_code
skr_consumer_handle_command(struct skr_consumer *consumer,
                            const char *message_name,
                            const struct skr_handler_command *command,
                            struct skr_error *error);

#endif
