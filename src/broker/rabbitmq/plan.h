// SPDX-License-Identifier: MIT
// What a transport has of its own on the server, as its DSN names it.

#ifndef SKR_BROKER_RABBITMQ_PLAN_H
#define SKR_BROKER_RABBITMQ_PLAN_H

#include "broker/rabbitmq/settings.h"

// The default exchange is always there, and every queue bound to it.
bool skr_rabbit_has_exchange(const struct rabbit_settings *settings);
bool
skr_rabbit_is_own(const struct rabbit_settings *settings, const char *exchange);
// How many queues are the transport's own, in the DSN's words or by default; 0:
// it publishes to what others have made.
size_t skr_rabbit_own_queues(const struct rabbit_settings *settings);
// All that they point to is that of the settings.
struct skr_declaration
skr_rabbit_exchange_of(const struct rabbit_settings *settings);
struct skr_declaration skr_rabbit_queue_of(const struct rabbit_queue *queue);
size_t skr_rabbit_binding_count(const struct rabbit_settings *settings,
                                const struct rabbit_queue *queue);
struct skr_declaration
skr_rabbit_binding_of(const struct rabbit_settings *settings,
                      const struct rabbit_queue *queue, size_t index);

skr_broker_plan_fn skr_rabbit_plan;

#endif
