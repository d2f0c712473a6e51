// SPDX-License-Identifier: MIT
// What surrounds workers that run for weeks: their health, metrics, and what
// the service manager wants to hear.

#ifndef SKR_APP_SERVICE_SERVING_H
#define SKR_APP_SERVICE_SERVING_H

#include "app/service/metrics.h"

struct skr_notifier;

struct skr_serving {
    struct skr_app app;  // as the one given, but its events are noted
    struct skr_health health;
    struct skr_metrics_options options;
    struct skr_metrics *metrics;
    struct skr_notifier *notifier;
};

// Workers are made with &serving->app, and run between start() and stop(). It
// is not to be moved.
void skr_serving_init(struct skr_serving *serving, const struct skr_app *app,
                      const struct skr_config *config);
SKR_MUST_CHECK enum skr_code
skr_serving_start(struct skr_serving *serving, skr_metrics_read_fn *read,
                  void *user, struct skr_error *error);
void skr_serving_stop(struct skr_serving *serving);
// After a stop, or instead of a start.
void skr_serving_fini(struct skr_serving *serving);

#endif
