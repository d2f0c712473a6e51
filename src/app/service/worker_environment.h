// SPDX-License-Identifier: MIT
// What surrounds workers that run for weeks: their health, metrics, and what
// the service manager wants to hear.

#ifndef SKR_APP_SERVICE_WORKER_ENVIRONMENT_H
#define SKR_APP_SERVICE_WORKER_ENVIRONMENT_H

#include "app/service/metrics.h"
#include "app/wiring/routing.h"

struct skr_cleaner;
struct skr_notifier;

struct skr_environment {
    struct skr_app app;  // as the one given
    struct skr_health health;
    struct skr_metrics_options options;
    struct skr_metrics *metrics;
    struct skr_notifier *notifier;
    struct skr_cleaner *unread_watcher;  // NULL: none
    struct skr_cleaner *cleaner;         // NULL: none
};

// For so many workers of each of the command's transports, which run between
// start() and stop(). It is not to be moved.
SKR_MUST_CHECK enum skr_code
skr_environment_init(struct skr_environment *environment,
                     const struct skr_app *app, const struct skr_config *config,
                     size_t each, struct skr_error *error);
// What a worker is made with: its events are noted, and its alone.
struct skr_app
skr_environment_app(struct skr_environment *environment, size_t index);
SKR_MUST_CHECK enum skr_code
skr_environment_start(struct skr_environment *environment,
                      skr_metrics_read_fn *read, void *user,
                      struct skr_error *error);
// What asks databases, within any thread; stop() does what was not done.
void skr_environment_close(struct skr_environment *environment);
void skr_environment_stop(struct skr_environment *environment);
// After a stop, or instead of a start.
void skr_environment_fini(struct skr_environment *environment);

// The line that a worker begins with: which version of the program runs, under
// which file, from where to where. Secrets are masked.
void skr_environment_say_relay(const struct skr_app *app,
                               const struct skr_config *config,
                               const struct skr_config_transport *outbox,
                               const struct skr_routing *routing);
// For so many consumers of the transport.
void skr_environment_say_consumers(const struct skr_app *app,
                                   const struct skr_config *config,
                                   const struct skr_config_transport *transport,
                                   size_t consumers);

#endif
