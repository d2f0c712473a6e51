// SPDX-License-Identifier: MIT
// One relay as the configuration describes it, with all that it borrows.

#ifndef SKR_APP_RELAYING_H
#define SKR_APP_RELAYING_H

#include "app/app.h"
#include "app/routing.h"
#include "outbox/relay.h"
#include "outbox/settler.h"

enum { SKR_RELAYING_LOCK_SIZE = 32 };

struct skr_relaying {
    struct skr_routing routing;
    struct skr_relay_options options;
    struct skr_sender_options senders[SKR_ROUTING_MAX_TARGETS];
    char *urls[SKR_ROUTING_MAX_TARGETS];
    char lock_name[SKR_RELAYING_LOCK_SIZE];
    struct skr_limits limits;
    struct skr_relay_tally tally;
    struct skr_relay *relay;
};

// One relay works a queue at a time, wherever it runs: the name of its lock is
// made from what is being worked.
void skr_relaying_lock_name(const struct skr_config_transport *outbox,
                            char name[SKR_RELAYING_LOCK_SIZE]);

// For the outbox of this name. It is not to be moved afterwards.
SKR_MUST_CHECK enum skr_code
skr_relaying_init(struct skr_relaying *relaying, const struct skr_app *app,
                  const struct skr_config *config, const char *name,
                  struct skr_error *error);
// Safe after an init that failed, and on zeroes.
void skr_relaying_fini(struct skr_relaying *relaying);

#endif
