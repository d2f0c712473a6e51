// SPDX-License-Identifier: MIT
// The web server, in one thread of its own.

#include "app/metrics.h"
#include "base/clock.h"
#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_S = 10, MOST_CONNECTIONS = 32, KEPT_MS = 5000 };

struct skr_metrics {
    const struct skr_metrics_options *options;
    struct MHD_Daemon *daemon;
    // What databases and brokers said, kept for a while: scrapes are many, and
    // each would connect to them.
    struct skr_text stats;
    int64_t stats_until_ms;
};

static void
write_metrics(struct skr_metrics *metrics, struct skr_text *text)
{
    int64_t now_ms = skr_clock_ms();
    skr_metrics_write_counts(metrics->options, text);
    if (now_ms >= metrics->stats_until_ms) {
        skr_text_clear(&metrics->stats);
        skr_metrics_write_stats(metrics->options, &metrics->stats);
        metrics->stats_until_ms = skr_clock_ms() + KEPT_MS;
    }
    if (metrics->stats.size > 0)
        skr_text_add(text, metrics->stats.bytes, metrics->stats.size);
}

static unsigned
write_readiness(const struct skr_metrics *metrics, struct skr_text *text)
{
    struct skr_health_entry entries[SKR_HEALTH_MAX];
    size_t count = skr_health_read(metrics->options->health, entries);
    unsigned status = MHD_HTTP_OK;
    for (size_t i = 0; i < count; i++) {
        if (!skr_health_is_ready(&entries[i]))
            status = MHD_HTTP_SERVICE_UNAVAILABLE;
        skr_text_add_format(text, "%s: %s\n", entries[i].name,
                            skr_health_text(&entries[i]));
    }
    return status;
}

static enum MHD_Result
respond(struct MHD_Connection *connection, unsigned status, const char *type,
        struct skr_text *text)
{
    size_t size = text->size;
    char *bytes = skr_text_take(text);
    if (bytes == NULL)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(bytes);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result
answer(void *user, struct MHD_Connection *connection, const char *path,
       const char *method, const char *version, const char *upload,
       size_t *upload_size, void **state)
{
    static const char plain[] = "text/plain; charset=utf-8";
    struct skr_metrics *metrics = user;
    struct skr_text text = {0};
    unsigned status = MHD_HTTP_OK;
    const char *type = plain;
    (void)version;
    (void)upload;
    (void)state;
    // What is sent along is of no interest.
    *upload_size = 0;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
        skr_text_add_string(&text, "only GET is answered\n");
    } else if (strcmp(path, "/metrics") == 0) {
        type = "text/plain; version=0.0.4; charset=utf-8";
        write_metrics(metrics, &text);
    } else if (strcmp(path, "/healthz") == 0) {
        skr_text_add_string(&text, "ok\n");
    } else if (strcmp(path, "/readyz") == 0) {
        status = write_readiness(metrics, &text);
    } else {
        status = MHD_HTTP_NOT_FOUND;
        skr_text_add_string(&text,
                            "there are /metrics, /healthz and /readyz\n");
    }
    return respond(connection, status, type, &text);
}

// Either kind of address, with its port.
union address {
    struct sockaddr any;
    struct sockaddr_in ipv4;
    struct sockaddr_in6 ipv6;
};

static bool
read_address(const char *text, uint16_t port, union address *address)
{
    *address = (union address){
        .ipv6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}};
    if (inet_pton(AF_INET6, text, &address->ipv6.sin6_addr) == 1)
        return true;
    *address = (union address){
        .ipv4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    return inet_pton(AF_INET, text, &address->ipv4.sin_addr) == 1;
}

// Its thread gets no signals: they are for those who stop workers.
static struct MHD_Daemon *
start_daemon(struct skr_metrics *metrics, const union address *address)
{
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO;
    if (address->any.sa_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    errno = 0;
    struct MHD_Daemon *daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, answer, metrics, MHD_OPTION_SOCK_ADDR, address,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CONNECTIONS,
        MHD_OPTION_END);
    int native = errno;
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    errno = native;
    return daemon;
}

enum skr_code
skr_metrics_start(const struct skr_metrics_options *options,
                  struct skr_metrics **metrics, struct skr_error *error)
{
    const struct skr_config *config = options->config;
    uint16_t port = (uint16_t)skr_arguments_number(
        options->app->arguments, "metrics-port", config->metrics_port);
    union address address;
    *metrics = NULL;
    if (port == 0)
        return SKR_OK;
    if (!read_address(config->metrics_address, port, &address))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "metrics.address: '%.60s' is no address such as "
                        "127.0.0.1 or ::1",
                        config->metrics_address);
    struct skr_metrics *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->options = options;
    made->daemon = start_daemon(made, &address);
    if (made->daemon == NULL) {
        int native = errno;
        free(made);
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "metrics cannot be served on %s port %u: %s; choose "
                        "another by metrics.port or --metrics-port",
                        config->metrics_address, port,
                        native == 0 ? "refused" : strerror(native));
    }
    *metrics = made;
    return SKR_OK;
}

void
skr_metrics_stop(struct skr_metrics *metrics)
{
    if (metrics == NULL)
        return;
    MHD_stop_daemon(metrics->daemon);
    skr_text_fini(&metrics->stats);
    free(metrics);
}
