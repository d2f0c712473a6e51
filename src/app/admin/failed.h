// SPDX-License-Identifier: MIT
// The failed messages of a configuration, in however many databases they stand:
// what the commands `failed show`, `failed retry` and `failed remove` share.

#ifndef SKR_APP_ADMIN_FAILED_H
#define SKR_APP_ADMIN_FAILED_H

#include "app/app.h"
#include "app/wiring/transports.h"
#include "message/failure.h"
#include "store/messenger/failed_rows.h"

// One database with a failed table.
struct skr_failed_source {
    const struct skr_config_database *database;
    struct skr_db *db;
    struct skr_failed_rows *rows;
};

struct skr_failed_session {
    const struct skr_config *config;
    struct skr_silent *silent;
    struct skr_failed_place failed;
    struct skr_failed_source *sources;
    size_t source_count;
    // Databases that messages go back to, opened when the first does. As many
    // as are configured.
    struct skr_failed_source *targets;
};

// Opens every database in which messages may have failed and that has the
// table. SKR_MISSING when none has. only: the name of one database; NULL: all.
// silent: databases that are not asked, or NULL.
SKR_MUST_CHECK enum skr_code
skr_failed_open(struct skr_failed_session *session,
                const struct skr_config *config, const char *only,
                struct skr_silent *silent, struct skr_error *error);
void skr_failed_close(struct skr_failed_session *session);

// What options ask for; NULL and 0: anything. Texts are borrowed.
struct skr_failed_filter {
    const char *transport;   // where it failed
    const char *name;        // a pattern: "order.*"
    const char *class_name;  // the same, of the PHP class
    const char *error_text;  // a part of the error
    struct skr_since since, before;
    uint64_t max;
};
void skr_failed_filter_read(const struct skr_arguments *arguments,
                            struct skr_failed_filter *filter);
// SKR_INVALID: it asks for what failed in the failure transport, where all of
// them stand and none failed. Symfony's option of the same name says where they
// stand. A transport that is not configured is said to be none, and may have
// been one when something failed in it.
SKR_MUST_CHECK enum skr_code
skr_failed_filter_check(const struct skr_app *app,
                        const struct skr_failed_filter *filter,
                        const struct skr_config *config,
                        struct skr_error *error);
bool skr_failed_filter_is_empty(const struct skr_failed_filter *filter);

struct skr_failed_found {
    // TRANSPORT/ROW of one that holds back its partition, and that; NULL: it is
    // in the failed table.
    const char *blocked_head, *partition;
    const struct skr_config_database *database;
    struct skr_failed_source *source;  // NULL where it is a blocked head
    const struct skr_failed_row *row;
    const struct skr_failure_report *report;
};
// Statements may be run meanwhile. SKR_STOPPED ends the search, well.
typedef enum skr_code skr_failed_found_fn(const struct skr_failed_found *found,
                                          void *user, struct skr_error *error);

// Every message that the filter lets pass. The oldest first leaves out what has
// failed since it began, so that a message that fails again is met once.
SKR_MUST_CHECK enum skr_code
skr_failed_each(struct skr_failed_session *session,
                const struct skr_failed_filter *filter, bool newest_first,
                skr_failed_found_fn *each, void *user, struct skr_error *error);

// One message, with its body. SKR_MISSING when there is none, SKR_INVALID when
// several databases have one of this number.
SKR_MUST_CHECK enum skr_code
skr_failed_find(struct skr_failed_session *session, int64_t id,
                skr_failed_found_fn *each, void *user, struct skr_error *error);

// An id on the command line. SKR_INVALID: it is none.
SKR_MUST_CHECK enum skr_code
skr_failed_read_id(const char *text, int64_t *id, struct skr_error *error);

#endif
