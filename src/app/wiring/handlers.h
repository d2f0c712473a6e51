// SPDX-License-Identifier: MIT
// From configured handlers to those of a consumer.

#ifndef SKR_APP_WIRING_HANDLERS_H
#define SKR_APP_WIRING_HANDLERS_H

#include "app/config/config.h"

struct skr_consumer;

// It forwards its messages, or there is a handler at all, and where the
// transport's messages fail without one, every type of message_types has one.
SKR_MUST_CHECK enum skr_code
skr_app_require_handlers(const struct skr_config *config,
                         const struct skr_config_transport *transport,
                         struct skr_error *error);

// Those of the transport: all, or one that forwards. Loads libraries and finds
// programs: an error names the handler.
SKR_MUST_CHECK enum skr_code
skr_app_add_handlers(const struct skr_config *config,
                     const struct skr_config_transport *transport,
                     struct skr_consumer *consumer, struct skr_error *error);

// Reports what add would refuse, and what the database says of SQL without
// running it. Loads no library: no code of its file runs. A database that
// cannot be asked is a warning, and one that is not made yet is nothing.
void skr_app_check_handlers(const struct skr_config *config,
                            skr_config_report_fn *report, void *user);

#endif
