// SPDX-License-Identifier: MIT
// New rows, written in the transaction of the application that publishes: they
// are there if and only if its own rows are. An appender knows a table and no
// database: the dialect comes with the transaction. [shared]

#ifndef SKR_STORE_APPEND_H
#define SKR_STORE_APPEND_H

#include "base/arena.h"
#include "db/db.h"

#include <skirnir/skirnir.h>
#include <stdatomic.h>

struct skr_appender;

// A message that was checked, and what it has to have besides.
struct skr_append_row {
    const struct skr_message *message;
    struct skr_id id;     // the message's own may be zero
    const char *headers;  // all of them, as JSON
    size_t headers_size;
};

struct skr_append_ops {
    // SKR_INVALID: the layout has no place for something that the message asks
    // for.
    enum skr_code (*check)(const struct skr_appender *appender,
                           const struct skr_message *message,
                           struct skr_error *error);
    // Writes the rows in order.
    enum skr_code (*insert)(const struct skr_appender *appender,
                            struct skr_tx tx, const struct skr_append_row *rows,
                            size_t count, struct skr_error *error);
    const char *setup;  // how the table is made: "run `skirnir setup` first"
};

// What appenders of all layouts begin with.
struct skr_appender {
    const struct skr_append_ops *ops;
    const char *table;
    atomic_bool is_checked;  // the table was seen to roll back
    struct skr_arena arena;
};

// The appender of the layout that the options ask for. Copies their texts.
SKR_MUST_CHECK enum skr_code
skr_appender_new(const struct skr_outbox_options *options,
                 struct skr_appender **appender, struct skr_error *error);
void skr_appender_free(struct skr_appender *appender);

// All rows, or SKR_MISSING when there is no table, and so on. The first call
// asks whether the table takes part in transactions.
SKR_MUST_CHECK enum skr_code
skr_append(struct skr_appender *appender, struct skr_tx tx,
           const struct skr_append_row *rows, size_t count,
           struct skr_error *error);

// Of each layout. size is that of its own struct, which begins with the
// appender; the text is copied into its arena.
typedef enum skr_code
skr_appender_new_fn(const struct skr_outbox_options *options,
                    struct skr_appender **appender, struct skr_error *error);
skr_appender_new_fn skr_messenger_appender_new;
skr_appender_new_fn skr_kafka_outbox_appender_new;
struct skr_appender *skr_appender_make(const struct skr_append_ops *ops,
                                       const char *table, size_t size);

#endif
