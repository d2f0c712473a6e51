// SPDX-License-Identifier: MIT
// What surrounds workers that run for weeks: their health, metrics, and what
// the service manager wants to hear.

#ifndef SKR_APP_SERVICE_SERVING_H
#define SKR_APP_SERVICE_SERVING_H

#include "app/parts/unread.h"
#include "app/service/metrics.h"

struct skr_notifier;

struct skr_serving {
    struct skr_app app;  // as the one given
    struct skr_health health;
    struct skr_metrics_options options;
    struct skr_metrics *metrics;
    struct skr_notifier *notifier;
    struct skr_unread_watch unread;
    struct skr_cleaner *unread_watcher;  // NULL: none
    struct skr_cleaner *cleaner;         // NULL: none
};

// For so many workers of each of the command's transports, which run between
// start() and stop(). It is not to be moved.
SKR_MUST_CHECK enum skr_code
skr_serving_init(struct skr_serving *serving, const struct skr_app *app,
                 const struct skr_config *config, size_t each,
                 struct skr_error *error);
// For gives_up() of a worker, with skr_health_gives_up().
void *skr_serving_worker(struct skr_serving *serving, size_t index);
// What a worker is made with: its events are noted, and its alone.
struct skr_app skr_serving_app(struct skr_serving *serving, size_t index);
SKR_MUST_CHECK enum skr_code
skr_serving_start(struct skr_serving *serving, skr_metrics_read_fn *read,
                  void *user, struct skr_error *error);
void skr_serving_stop(struct skr_serving *serving);
// After a stop, or instead of a start.
void skr_serving_fini(struct skr_serving *serving);

#endif
