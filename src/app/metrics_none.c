// SPDX-License-Identifier: MIT
// A build without a web server.

#include "app/metrics.h"
#include "base/error.h"

enum skr_code
skr_metrics_start(const struct skr_metrics_options *options,
                  struct skr_metrics **metrics, struct skr_error *error)
{
    *metrics = NULL;
    if (skr_arguments_number(options->app->arguments, "metrics-port",
                             options->config->metrics_port) == 0)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "this build serves no metrics: it was made without "
                    "libmicrohttpd; remove metrics.port");
}

void
skr_metrics_stop(struct skr_metrics *metrics)
{
    (void)metrics;
}
