// SPDX-License-Identifier: MIT
// From configuration to objects: drivers, URLs and tables of a transport.

#ifndef SKR_APP_WIRING_TRANSPORTS_H
#define SKR_APP_WIRING_TRANSPORTS_H

#include "app/config/config.h"
#include "db/db.h"
#include "store/store.h"

// SKR_INVALID names the scheme and what this build has.
SKR_MUST_CHECK enum skr_code
skr_transport_database(const struct skr_config_database *database,
                       const struct skr_db_ops **ops, struct skr_error *error);

// A connection of the caller's own, to be closed by skr_db_close().
SKR_MUST_CHECK enum skr_code
skr_transport_open_database(const struct skr_config_database *database,
                            struct skr_db **db, struct skr_error *error);

// Databases that did not answer, and why.
enum { SKR_MOST_SILENT = 8 };
struct skr_silent {
    const struct skr_config_database *databases[SKR_MOST_SILENT];
    struct skr_error errors[SKR_MOST_SILENT];
    size_t count;
};
// The same where many are opened: what did not answer is not asked again.
// silent may be NULL.
SKR_MUST_CHECK enum skr_code
skr_transport_open_unless_silent(const struct skr_config_database *database,
                                 struct skr_silent *silent, struct skr_db **db,
                                 struct skr_error *error);

// Its driver. SKR_INVALID: this build has none.
SKR_MUST_CHECK enum skr_code
skr_transport_broker(const struct skr_config_transport *transport,
                     const struct skr_broker_ops **ops,
                     struct skr_error *error);
// A connection to a transport's broker; the options without what the transport
// says itself.
struct skr_broker;
struct skr_broker_ops;
struct skr_broker_options;
SKR_MUST_CHECK enum skr_code
skr_transport_open_broker(const struct skr_config_transport *transport,
                          const struct skr_broker_options *options,
                          struct skr_broker **broker, struct skr_error *error);

// The table object of a doctrine or queue transport, with the configuration's
// failed table behind it. config outlives it.
SKR_MUST_CHECK enum skr_code
skr_transport_table(const struct skr_config *config,
                    const struct skr_config_transport *transport,
                    struct skr_store **table, struct skr_error *error);

// The same with a connection.
struct skr_open_table {
    struct skr_db *db;
    struct skr_store *table;
};
SKR_MUST_CHECK enum skr_code
skr_transport_open(const struct skr_config *config,
                   const struct skr_config_transport *transport,
                   struct skr_open_table *open, struct skr_error *error);
void skr_transport_close(struct skr_open_table *open);

// Connects, and checks that the table is there and has its columns.
SKR_MUST_CHECK enum skr_code
skr_transport_check(const struct skr_config *config,
                    const struct skr_config_transport *transport,
                    struct skr_error *error);

// The outbox of this name; where none is named, the only one there is. With
// only_ordered others do not count. SKR_INVALID says what there is instead.
SKR_MUST_CHECK enum skr_code
skr_transport_choose_outbox(const struct skr_config *config, const char *name,
                            bool only_ordered,
                            const struct skr_config_transport **outbox,
                            struct skr_error *error);

// An outbox, or a queue that is a table.
bool skr_transport_has_table(const struct skr_config_transport *transport);
// What consumers know of messages that they are about to put into the table of
// failed messages lies beside it. Without a failure transport that table
// belongs to no transport, so that it has no scheme, and is where handlers run.
bool skr_transport_keeps_failures(const struct skr_config *config,
                                  const struct skr_config_transport *transport);

// Prints a statement of a setup; user is not used.
skr_sql_text_fn skr_transport_print_sql;
// Gives each statement that makes the tables of a transport, of an inbox, of
// all that is configured.
SKR_MUST_CHECK enum skr_code
skr_transport_give_sql(const struct skr_config *config,
                       const struct skr_config_transport *transport,
                       skr_sql_text_fn *each, void *user,
                       struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_inbox_give_sql(const struct skr_config *config, skr_sql_text_fn *each,
                   void *user, struct skr_error *error);
SKR_MUST_CHECK enum skr_code
skr_config_give_sql(const struct skr_config *config, skr_sql_text_fn *each,
                    void *user, struct skr_error *error);

// Where failed messages go: the failure transport's table and queue, and
// whether Symfony reads it as JSON.
struct skr_failed_place {
    const struct skr_config_database *database;  // NULL: wherever it failed
    struct skr_queue_place place;
    bool readable;
};
// A table in which consumers record what they handled, in the database of the
// inbox: the shared one, or that of a transport.
struct skr_deduplication_place {
    const char *table;
    const char *before;   // see skr_deduplication_succeed(); NULL: none
    bool before_is_said;  // by read_default: it is no default
};
struct skr_deduplication_place
skr_transport_deduplication(const struct skr_config *config,
                            const struct skr_config_transport *transport);
// All of them, one a call, the shared one first; *at begins with 0. False:
// there are no more.
bool skr_deduplication_place_next(const struct skr_config *config, size_t *at,
                                  struct skr_deduplication_place *place);
// The caller frees the table.
struct skr_deduplication;
SKR_MUST_CHECK enum skr_code
skr_deduplication_place_table(const struct skr_config *config,
                              const struct skr_deduplication_place *place,
                              struct skr_deduplication **table,
                              struct skr_error *error);

struct skr_failed_place
skr_transport_failed_place(const struct skr_config *config);

// Whether it is the configuration's failure transport, which nothing relays or
// consumes.
bool skr_transport_is_failure(const struct skr_config *config,
                              const struct skr_config_transport *transport);

// How its relays make rows their own.
enum skr_claim
skr_transport_claim(const struct skr_config_transport *transport);

#endif
