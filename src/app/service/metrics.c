// SPDX-License-Identifier: MIT
// What is answered about metrics and health: the text of /metrics is made of
// reports of this process, of its workers and of their transports.

#include "app/service/metrics.h"

#include "app/admin/stats.h"
#include "app/service/http.h"
#include "base/clock.h"
#include "base/error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct skr_column build_columns[] = {
    {"version", .label = "version"},
    {"build", NULL, "skirnir_build_info", "The version of this build.",
     SKR_AS_INTEGER},
};

static const struct skr_column process_columns[] = {
    {"start", NULL, "process_start_time_seconds",
     "When this process began, in seconds since 1970.", SKR_AS_INTEGER},
};

static const struct skr_column health_columns[] = {
    {"transport", .label = "transport"},
    {"up", NULL, "skirnir_up",
     "Whether a worker is connected, and at work or standing by.",
     SKR_AS_TRUTH},
    {"active", NULL, "skirnir_active",
     "Whether a worker is at work; 0: it stands by or is not ready.",
     SKR_AS_TRUTH},
    {"troubles", NULL, "skirnir_troubles_total",
     "How often database or broker became unusable.", SKR_AS_INTEGER},
    {"closed_routes", NULL, "skirnir_closed_routes",
     "Routes to which the broker takes nothing now.", SKR_AS_INTEGER},
};

static void
write_report(struct skr_report *report, struct skr_text *text)
{
    skr_report_write_metrics(report, text);
    skr_report_fini(report);
}

static void
write_process(const struct skr_app *app, struct skr_text *text)
{
    struct skr_report build = {.columns = SKR_COLUMNS(build_columns)};
    struct skr_report process = {.columns = SKR_COLUMNS(process_columns)};
    skr_report_row_of(&build, SKR_VERSION);
    skr_report_number(&build, "build", 1);
    write_report(&build, text);
    skr_report_add_row(&process);
    skr_report_number(&process, "start", app->start_s);
    write_report(&process, text);
}

static void
write_health(struct skr_health *health, struct skr_text *text)
{
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    size_t count = skr_health_read(health, entries);
    struct skr_report report = {.columns = SKR_COLUMNS(health_columns)};
    for (size_t i = 0; i < count; i++) {
        bool is_ready = skr_health_is_ready(&entries[i]);
        skr_report_row_of(&report, entries[i].name);
        skr_report_number(&report, "up", is_ready);
        skr_report_number(&report, "active",
                          is_ready && entries[i].role == SKR_ROLE_ACTIVE);
        skr_report_number(&report, "troubles", (int64_t)entries[i].troubles);
        skr_report_number(&report, "closed_routes",
                          (int64_t)entries[i].closed_routes);
    }
    write_report(&report, text);
}

// What has to be asked of databases and brokers.
static void
write_stats(const struct skr_metrics_options *options, struct skr_text *text)
{
    struct skr_stats stats;
    struct skr_report report;
    if (skr_stats_read(options->app, options->config, &stats, NULL) != SKR_OK)
        return;
    skr_stats_report(&stats, &report);
    if (options->app->aliases != NULL && !report.is_broken) {
        struct skr_report aliases = {.row = 0};
        options->app->aliases->read(
            skr_report_find(&report, 0, "transports")->nested, &aliases);
        write_report(&aliases, text);
    }
    write_report(&report, text);
    skr_stats_fini(&stats);
}

// What this process knows.
static void
write_counts(const struct skr_metrics_options *options, struct skr_text *text)
{
    struct skr_report workers = {.row = 0};
    write_process(options->app, text);
    options->read(options->user, &workers);
    write_report(&workers, text);
    write_health(options->health, text);
}

enum { KEPT_MS = 5000 };

struct skr_metrics {
    const struct skr_metrics_options *options;
    struct skr_http *http;
    // What databases and brokers said, kept for a while: scrapes are many, and
    // each would connect to them. One that takes its time to answer is asked
    // once at a time; a request that comes meanwhile gets what was said before.
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
    write_stats(metrics->options, &fresh);
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
    write_counts(metrics->options, text);
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
    const struct skr_app *app = metrics->options->app;
    if (strcmp(request->path, "/metrics") == 0) {
        *type = SKR_HTTP_METRICS_TYPE;
        write_metrics(metrics, text);
        return SKR_HTTP_OK;
    }
    if (strcmp(request->path, "/healthz") == 0 && app->aliases != NULL) {
        const char *readiness = skr_http_argument(request, "readiness");
        return app->aliases->is_healthy(app, metrics->options->config,
                                        readiness != NULL &&
                                            strcmp(readiness, "1") == 0)
                   ? SKR_HTTP_OK
                   : SKR_HTTP_UNAVAILABLE;
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

// The ports in turn, until one is not taken.
static enum skr_code
listen_on(struct skr_metrics *metrics, struct skr_config_ports ports,
          const char *address, uint16_t *port, struct skr_error *error)
{
    const struct skr_aliases *aliases = metrics->options->app->aliases;
    enum skr_code code = SKR_CONFLICT;
    for (uint32_t next = ports.first;
         next <= ports.last && code == SKR_CONFLICT; next++) {
        *port = (uint16_t)next;
        code = skr_http_start(
            &(struct skr_http_options){
                .address = address,
                .port = *port,
                .setting = aliases == NULL ? "metrics.address, metrics.port or "
                                             "--metrics-port"
                                           : aliases->listen,
                .answer = answer,
                .user = metrics,
            },
            &metrics->http, error);
    }
    return code;
}

static void
say_unserved(const struct skr_log *log, struct skr_config_ports ports)
{
    char text[16];
    snprintf(text, sizeof(text), ports.first == ports.last ? "%u" : "%u-%u",
             ports.first, ports.last);
    skr_log(log, SKR_LOG_WARNING, "http.not_served", SKR_LOG_TEXT("port", text),
            SKR_LOG_TEXT("cure", "it is taken, perhaps by another process with "
                                 "the same file: make metrics.port a range "
                                 "such as 9187-9197, or give each process its "
                                 "own by --metrics-port"));
}

static void
free_metrics(struct skr_metrics *metrics)
{
    skr_text_fini(&metrics->stats);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

enum skr_code
skr_metrics_start(const struct skr_metrics_options *options,
                  struct skr_metrics **metrics, struct skr_error *error)
{
    const struct skr_config *config = options->config;
    const struct skr_log *log = &options->app->log;
    const struct skr_arguments *arguments = options->app->arguments;
    struct skr_config_ports ports = config->metrics_ports;
    const char *own = skr_arguments_find(arguments, "metrics-port");
    uint16_t port = 0;
    // Checked with the other options.
    if (own != NULL && !skr_text_ports(own, &ports.first, &ports.last))
        ports.first = 0;
    *metrics = NULL;
    if (ports.first == 0)
        return SKR_OK;
    struct skr_metrics *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->options = options;
    pthread_mutex_init(&made->lock, NULL);
    enum skr_code code =
        listen_on(made, ports, config->metrics_address, &port, error);
    if (code != SKR_OK) {
        free_metrics(made);
        if (code != SKR_CONFLICT || own != NULL ||
            options->app->aliases != NULL)
            return code;
        say_unserved(log, ports);
        return SKR_OK;
    }
    skr_log(log, SKR_LOG_INFO, "http.serving",
            SKR_LOG_TEXT("address", config->metrics_address == NULL
                                        ? "*"
                                        : config->metrics_address),
            SKR_LOG_NUMBER("port", port));
    *metrics = made;
    return SKR_OK;
}

void
skr_metrics_stop(struct skr_metrics *metrics)
{
    if (metrics == NULL)
        return;
    skr_http_stop(metrics->http);
    free_metrics(metrics);
}
