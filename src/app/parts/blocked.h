// SPDX-License-Identifier: MIT
// Heads of blocked partitions, as the command line names them.

#ifndef SKR_APP_PARTS_BLOCKED_H
#define SKR_APP_PARTS_BLOCKED_H

#include "app/app.h"
#include "app/parts/failed.h"

// A blocked head is named TRANSPORT/ROW.
bool skr_blocked_is_name(const char *text);
// Gives the message, with its body. SKR_MISSING: it does not block its
// partition; SKR_INVALID: that is no name.
SKR_MUST_CHECK enum skr_code
skr_blocked_find(const struct skr_config *config, const char *name,
                 skr_failed_found_fn *each, void *user,
                 struct skr_error *error);
// `skirnir failed retry` of such names: makes each due.
SKR_MUST_CHECK enum skr_code
skr_blocked_retry(const struct skr_app *app, const struct skr_config *config,
                  struct skr_error *error);

#endif
