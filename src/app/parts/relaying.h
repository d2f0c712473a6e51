// SPDX-License-Identifier: MIT
// One relay as the configuration describes it, with all that it borrows.

#ifndef SKR_APP_PARTS_RELAYING_H
#define SKR_APP_PARTS_RELAYING_H

#include "app/app.h"
#include "app/parts/routing.h"
#include "relay/relay.h"
#include "relay/tally.h"

struct skr_relaying {
    struct skr_routing routing;
    struct skr_relay_settings options;
    struct skr_sender_options senders[SKR_ROUTING_MAX_TARGETS];
    char *urls[SKR_ROUTING_MAX_TARGETS];
    struct skr_limits limits;
    uint64_t failure_limit;  // 0: none
    struct skr_relay_tally tally;
    struct skr_relay *relay;
};

// For the outbox of this name. It is not to be moved afterwards.
SKR_MUST_CHECK enum skr_code
skr_relaying_init(struct skr_relaying *relaying, const struct skr_app *app,
                  const struct skr_config *config, const char *name,
                  struct skr_error *error);
// Safe after an init that failed, and on zeroes.
void skr_relaying_fini(struct skr_relaying *relaying);

#endif
