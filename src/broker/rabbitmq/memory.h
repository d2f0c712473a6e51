// SPDX-License-Identifier: MIT
// What this process has learnt of servers, and a new connection would learn
// again at a price: what was set up. A cluster
// of which a node hangs answers no declaration and no binding that it has to
// store, not even of what is there, for as long as it waits for that node.

#ifndef SKR_BROKER_RABBITMQ_MEMORY_H
#define SKR_BROKER_RABBITMQ_MEMORY_H

#include "broker/rabbitmq/settings.h"

// The server of these settings has taken the declaration.
void skr_rabbit_note_made(const struct rabbit_settings *settings,
                          const struct skr_declaration *declaration);
bool skr_rabbit_was_made(const struct rabbit_settings *settings,
                         const struct skr_declaration *declaration);

#endif
