// SPDX-License-Identifier: MIT
// Opening and closing of any driver's broker. Both mark a wait for the liveness
// of the loop.

#include "broker/broker.h"

#include "base/beat.h"
#include "base/error.h"
#include "base/url.h"

#include <stdlib.h>

enum skr_code
skr_broker_open(const struct skr_broker_ops *ops,
                const struct skr_broker_options *options,
                struct skr_broker **broker, struct skr_error *error)
{
    struct skr_url url = {0};
    enum skr_code code = skr_url_parse(options->url, &url, error);
    if (code != SKR_OK)
        return code;
    struct skr_broker *opened = calloc(1, ops->size);
    if (opened == NULL) {
        code = skr_fail_memory(error);
        goto free_url;
    }
    opened->ops = ops;
    opened->wake_fd = options->wake_fd;
    skr_beat_wait();
    code = ops->open(opened, &url, options, error);
    skr_beat_resume();
    if (code != SKR_OK) {
        skr_broker_close(opened);
        goto free_url;
    }
    *broker = opened;
free_url:
    skr_url_fini(&url);
    return code;
}

void
skr_broker_close(struct skr_broker *broker)
{
    if (broker == NULL)
        return;
    skr_beat_wait();
    broker->ops->close(broker);
    skr_beat_resume();
    free(broker);
}

void
skr_depth_fini(struct skr_depth *depth)
{
    free(depth->lags);
    depth->lags = NULL;
    depth->lag_count = 0;
}
