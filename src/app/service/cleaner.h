// SPDX-License-Identifier: MIT
// Removing what is old, by a command or beside a relay's work.

#ifndef SKR_APP_SERVICE_CLEANER_H
#define SKR_APP_SERVICE_CLEANER_H

#include "app/app.h"
#include "app/wiring/transports.h"
#include "store/cleaning.h"

enum { SKR_CLEANER_BATCH = 1000, SKR_CLEANER_DAY_S = 24 * 3600 };

// Sent messages that a transport's table has kept. removed is added to. Those
// of a kafka_outbox go after an hour, whatever the cleaning says.
SKR_MUST_CHECK enum skr_code
skr_cleaner_clean_transport(const struct skr_config *config,
                            const struct skr_config_transport *transport,
                            const struct skr_cleaning *cleaning,
                            uint64_t *removed, struct skr_error *error);
// Whether a transport has a table that is cleaned.
bool skr_cleaner_has_table(const struct skr_config *config,
                           const struct skr_config_transport *transport);
// Ids of messages that were handled.
SKR_MUST_CHECK enum skr_code
skr_cleaner_clean_deduplication(const struct skr_config *config,
                                const struct skr_deduplication_place *place,
                                const struct skr_cleaning *cleaning,
                                uint64_t *removed, struct skr_error *error);

// For a command: step after step, each shown as progress.
struct skr_progress;
struct skr_cleaning
skr_cleaner_shown_pace(struct skr_progress *progress, uint32_t age_s);

// A thread that cleans now and then beside others' work.
struct skr_cleaner;
struct skr_cleaner_options {
    uint32_t interval_s;  // 0: never, and no thread is started
    struct skr_log log;
    // Cleans once, at the cleaner's pace; soon over when it is stopped.
    void (*clean)(struct skr_cleaner *cleaner, const void *user);
    const void *user;  // outlives the thread
};
SKR_MUST_CHECK enum skr_code
skr_cleaner_start(const struct skr_cleaner_options *options,
                  struct skr_cleaner **cleaner, struct skr_error *error);
void skr_cleaner_stop(struct skr_cleaner *cleaner);

// One for a configuration: all its tables, as old as it says.
void
skr_cleaner_clean_configured(struct skr_cleaner *cleaner, const void *config);

#endif
