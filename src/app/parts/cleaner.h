// SPDX-License-Identifier: MIT
// Removing what is old, by a command or beside a relay's work.

#ifndef SKR_APP_PARTS_CLEANER_H
#define SKR_APP_PARTS_CLEANER_H

#include "app/app.h"
#include "table/cleaning.h"

enum { SKR_CLEANER_BATCH = 1000, SKR_CLEANER_DAY_S = 24 * 3600 };

// Sent messages that a transport's table has kept. removed is added to.
SKR_MUST_CHECK enum skr_code
skr_cleaner_clean_transport(const struct skr_config_transport *transport,
                            const struct skr_cleaning *cleaning,
                            uint64_t *removed, struct skr_error *error);
// Whether a transport has a table that is cleaned.
bool skr_cleaner_has_table(const struct skr_config *config,
                           const struct skr_config_transport *transport);
// Ids of messages that were handled.
SKR_MUST_CHECK enum skr_code
skr_cleaner_clean_deduplication(const struct skr_config *config,
                                const struct skr_cleaning *cleaning,
                                uint64_t *removed, struct skr_error *error);

// A thread that does both at the configured interval, and nothing where there
// is none. config outlives it.
struct skr_cleaner;
SKR_MUST_CHECK enum skr_code
skr_cleaner_start(const struct skr_config *config, const struct skr_log *log,
                  struct skr_cleaner **cleaner, struct skr_error *error);
void skr_cleaner_stop(struct skr_cleaner *cleaner);

#endif
