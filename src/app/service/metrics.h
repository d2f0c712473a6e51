// SPDX-License-Identifier: MIT
// Metrics for Prometheus and answers about health, served over HTTP.

#ifndef SKR_APP_SERVICE_METRICS_H
#define SKR_APP_SERVICE_METRICS_H

#include "app/app.h"
#include "app/report/report.h"
#include "app/service/health.h"

// Gives what workers have done so far, in any thread: sets the columns of an
// empty report and fills it.
typedef void skr_metrics_read_fn(void *user, struct skr_report *report);

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

#endif
