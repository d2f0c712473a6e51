// SPDX-License-Identifier: MIT
// The line that a worker begins with: which version of the program runs, under
// which file, from where to where. Secrets are masked.

#ifndef SKR_APP_PARTS_STARTING_H
#define SKR_APP_PARTS_STARTING_H

#include "app/app.h"
#include "app/parts/routing.h"

void skr_starting_say_relay(const struct skr_app *app,
                            const struct skr_config *config,
                            const struct skr_config_transport *outbox,
                            const struct skr_routing *routing);
// For so many consumers of the transport.
void skr_starting_say_consumers(const struct skr_app *app,
                                const struct skr_config *config,
                                const struct skr_config_transport *transport,
                                size_t consumers);

#endif
