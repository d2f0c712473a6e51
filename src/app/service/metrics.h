// SPDX-License-Identifier: MIT
// Metrics for Prometheus and answers about health, served over HTTP.

#ifndef SKR_APP_SERVICE_METRICS_H
#define SKR_APP_SERVICE_METRICS_H

#include "app/app.h"
#include "app/service/health.h"
#include "app/service/metrics_set.h"

// Gives what workers have done so far, in any thread.
typedef void skr_metrics_read_fn(void *user, struct skr_metrics_set *set);

struct skr_metrics_options {
    const struct skr_app *app;
    const struct skr_config *config;
    struct skr_health *health;
    skr_metrics_read_fn *read;
    void *user;
};

struct skr_metrics;

// Serves /metrics, /healthz and /readyz where a port is asked for by
// --metrics-port or the configuration; NULL and SKR_OK where none is. The
// options outlive it. Of a range it takes the first port that is free. Where
// the ports of the configuration, which may be that of other processes too, are
// all taken, it says so and serves nothing. SKR_CONFLICT: that of
// --metrics-port is. SKR_REFUSED: this build cannot, or this user may not.
SKR_MUST_CHECK enum skr_code
skr_metrics_start(const struct skr_metrics_options *options,
                  struct skr_metrics **metrics, struct skr_error *error);
void skr_metrics_stop(struct skr_metrics *metrics);

// The text of /metrics in two parts: what this process knows, and what has to
// be asked of databases and brokers.
void skr_metrics_write_counts(const struct skr_metrics_options *options,
                              struct skr_text *text);
void skr_metrics_write_stats(const struct skr_metrics_options *options,
                             struct skr_text *text);

#endif
