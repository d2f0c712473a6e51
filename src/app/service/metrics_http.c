// SPDX-License-Identifier: MIT
// What is answered about metrics and health.

#include "app/service/http.h"
#include "app/service/metrics.h"
#include "base/clock.h"
#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_MS = 5000 };

struct skr_metrics {
    const struct skr_metrics_options *options;
    struct skr_http *http;
    // What databases and brokers said, kept for a while: scrapes are many, and
    // each would connect to them. One that takes its time to answer is asked
    // once at a time; who comes meanwhile gets what was said before.
    pthread_mutex_t lock;  // of all below
    struct skr_text stats;
    int64_t stats_until_ms;
    bool is_asking;
};

static bool
begin_asking(struct skr_metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    bool is_due =
        !metrics->is_asking && skr_clock_ms() >= metrics->stats_until_ms;
    metrics->is_asking |= is_due;
    pthread_mutex_unlock(&metrics->lock);
    return is_due;
}

static void
ask(struct skr_metrics *metrics)
{
    struct skr_text fresh = {0};
    skr_metrics_write_stats(metrics->options, &fresh);
    pthread_mutex_lock(&metrics->lock);
    struct skr_text old = metrics->stats;
    metrics->stats = fresh;
    metrics->stats_until_ms = skr_clock_ms() + KEPT_MS;
    metrics->is_asking = false;
    pthread_mutex_unlock(&metrics->lock);
    skr_text_fini(&old);
}

static void
write_metrics(struct skr_metrics *metrics, struct skr_text *text)
{
    skr_metrics_write_counts(metrics->options, text);
    if (begin_asking(metrics))
        ask(metrics);
    pthread_mutex_lock(&metrics->lock);
    if (metrics->stats.size > 0)
        skr_text_add(text, metrics->stats.bytes, metrics->stats.size);
    pthread_mutex_unlock(&metrics->lock);
}

static unsigned
write_readiness(const struct skr_metrics *metrics, struct skr_text *text)
{
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    size_t count = skr_health_read(metrics->options->health, entries);
    unsigned status = SKR_HTTP_OK;
    for (size_t i = 0; i < count; i++) {
        if (!skr_health_is_ready(&entries[i]))
            status = SKR_HTTP_UNAVAILABLE;
        skr_text_add_format(text, "%s: %s\n", entries[i].name,
                            skr_health_text(&entries[i]));
    }
    return status;
}

static unsigned
answer(void *user, const struct skr_http_request *request, const char **type,
       struct skr_text *text)
{
    struct skr_metrics *metrics = user;
    if (strcmp(request->path, "/metrics") == 0) {
        *type = SKR_HTTP_METRICS_TYPE;
        write_metrics(metrics, text);
        return SKR_HTTP_OK;
    }
    if (strcmp(request->path, "/healthz") == 0) {
        skr_text_add_string(text, "ok\n");
        return SKR_HTTP_OK;
    }
    if (strcmp(request->path, "/readyz") == 0)
        return write_readiness(metrics, text);
    skr_text_add_string(text, "there are /metrics, /healthz and /readyz\n");
    return SKR_HTTP_NOT_FOUND;
}

enum skr_code
skr_metrics_start(const struct skr_metrics_options *options,
                  struct skr_metrics **metrics, struct skr_error *error)
{
    const struct skr_config *config = options->config;
    uint16_t port = (uint16_t)skr_arguments_number(
        options->app->arguments, "metrics-port", config->metrics_port);
    *metrics = NULL;
    if (port == 0)
        return SKR_OK;
    struct skr_metrics *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->options = options;
    pthread_mutex_init(&made->lock, NULL);
    enum skr_code code = skr_http_start(
        &(struct skr_http_options){
            .address = config->metrics_address,
            .port = port,
            .setting = "metrics.address, metrics.port or --metrics-port",
            .answer = answer,
            .user = made,
        },
        &made->http, error);
    if (code != SKR_OK) {
        pthread_mutex_destroy(&made->lock);
        free(made);
        return code;
    }
    *metrics = made;
    return SKR_OK;
}

void
skr_metrics_stop(struct skr_metrics *metrics)
{
    if (metrics == NULL)
        return;
    skr_http_stop(metrics->http);
    skr_text_fini(&metrics->stats);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}
