// SPDX-License-Identifier: MIT
// /healthz and /metrics: for probes, which ask one thing at a time.

#include "app/kafka_relay.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"
#include "table/kafka_outbox/kafka_outbox.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_SIZE = 2048, DIAL_MS = 1000, PATIENCE_S = 5 };

struct skr_kafka_relay_page {
    const struct skr_kafka_relay_settings *settings;
    struct skr_table *table;
    struct skr_db *dbs[SKR_KAFKA_RELAY_MAX_DATABASES];
    int fd, stop_fd;
    bool has_thread;
    pthread_t thread;
};

// Opened when it is first asked for, and anew after trouble.
static bool
count_rows(struct skr_kafka_relay_page *page, size_t index,
           struct skr_kafka_outbox_counts *counts)
{
    struct skr_error error;
    struct skr_db **db = &page->dbs[index];
    if (*db == NULL &&
        skr_db_open(page->settings->database, page->settings->urls[index], db,
                    &error) != SKR_OK)
        return false;
    if (skr_kafka_outbox_count(page->table, *db, counts, &error) == SKR_OK)
        return true;
    skr_db_close(*db);
    *db = NULL;
    return false;
}

static bool
has_databases(struct skr_kafka_relay_page *page)
{
    struct skr_kafka_outbox_counts counts;
    for (size_t i = 0; i < page->settings->database_count; i++)
        if (!count_rows(page, i, &counts))
            return false;
    return true;
}

static bool
can_dial(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        return false;
    int fd =
        socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool ok = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0;
    if (fd >= 0 && !ok && errno == EINPROGRESS) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        int problem = 1;
        socklen_t size = sizeof(problem);
        ok = poll(&ready, 1, DIAL_MS) == 1 &&
             getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 &&
             problem == 0;
    }
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    return ok;
}

// A cluster is there as long as one of its brokers is.
static bool
has_broker(const struct skr_kafka_relay_page *page)
{
    const char *at =
        page->settings->brokers == NULL ? "" : page->settings->brokers;
    while (*at != '\0') {
        char host[256];
        size_t size = strcspn(at, ",");
        if (size < sizeof(host)) {
            memcpy(host, at, size);
            host[size] = '\0';
            char *colon = strrchr(host, ':');
            if (colon != NULL)
                *colon = '\0';
            if (can_dial(host, colon == NULL ? "9092" : colon + 1))
                return true;
        }
        at += size;
        at += *at == ',';
    }
    return false;
}

static void
add_gauge(struct skr_text *text, const char *name, const char *help,
          int64_t value)
{
    skr_text_add_format(text, "# HELP %s %s\n# TYPE %s gauge\n%s %lld\n", name,
                        help, name, name, (long long)value);
}

static bool
write_metrics(struct skr_kafka_relay_page *page, struct skr_text *text)
{
    struct skr_kafka_outbox_counts sum = {0}, counts;
    for (size_t i = 0; i < page->settings->database_count; i++) {
        if (!count_rows(page, i, &counts))
            return false;
        sum.queued += counts.queued;
        sum.errored += counts.errored;
        sum.total += counts.total;
    }
    add_gauge(text, "kafka_outbox_queue_size",
              "Rows that are not published, errored ones included.",
              sum.queued);
    add_gauge(text, "kafka_outbox_total_size", "Rows of the table.", sum.total);
    add_gauge(text, "kafka_outbox_errored_size",
              "Rows that nobody publishes any more.", sum.errored);
    return true;
}

static void
answer(int fd, int status, const struct skr_text *body)
{
    struct skr_text text = {0};
    const char *name = status == 200   ? "OK"
                       : status == 404 ? "Not Found"
                                       : "Service Unavailable";
    skr_text_add_format(&text,
                        "HTTP/1.1 %d %s\r\nContent-Type: text/plain; "
                        "version=0.0.4\r\nContent-Length: %zu\r\n"
                        "Connection: close\r\n\r\n",
                        status, name, body->size);
    skr_text_add(&text, body->size == 0 ? "" : body->bytes, body->size);
    if (!text.broken && send(fd, text.bytes, text.size, MSG_NOSIGNAL) < 0)
        text.size = 0;  // whoever asked has gone
    skr_text_fini(&text);
}

static void
serve(struct skr_kafka_relay_page *page, int fd)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    char request[REQUEST_SIZE + 1];
    struct skr_text body = {0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    ssize_t size = recv(fd, request, REQUEST_SIZE, 0);
    if (size <= 0)
        return;
    request[size] = '\0';
    int status = 404;
    if (skr_text_starts_with(request, "GET /healthz?readiness=1 "))
        status = has_databases(page) && has_broker(page) ? 200 : 503;
    else if (skr_text_starts_with(request, "GET /healthz ") ||
             skr_text_starts_with(request, "GET /healthz?"))
        status = has_databases(page) ? 200 : 503;
    else if (skr_text_starts_with(request, "GET /metrics "))
        status = write_metrics(page, &body) ? 200 : 503;
    answer(fd, status, &body);
    skr_text_fini(&body);
}

static void *
run(void *user)
{
    struct skr_kafka_relay_page *page = user;
    for (;;) {
        struct pollfd fds[] = {
            {.fd = page->stop_fd, .events = POLLIN},
            {.fd = page->fd, .events = POLLIN},
        };
        poll(fds, 2, -1);
        if (fds[0].revents != 0)
            return NULL;
        int fd = accept4(page->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        serve(page, fd);
        close(fd);
    }
}

static enum skr_code
listen_on(const char *place, int *fd, struct skr_error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    char host[256];
    const int yes = 1;
    const char *colon = strrchr(place, ':');
    size_t size = colon == NULL ? 0 : (size_t)(colon - place);
    if (colon == NULL || size >= sizeof(host))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--listen %.60s: HOST:PORT or :PORT is needed", place);
    memcpy(host, place, size);
    host[size] = '\0';
    if (getaddrinfo(size == 0 ? NULL : host, colon + 1, &hints, &found) != 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--listen %.60s: there is no such place", place);
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok =
        *fd >= 0 &&
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
        bind(*fd, found->ai_addr, found->ai_addrlen) == 0 &&
        listen(*fd, 16) == 0;
    freeaddrinfo(found);
    if (ok)
        return SKR_OK;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "cannot listen on %.60s: %s; choose another with --listen, "
                    "or none with --listen=",
                    place, strerror(errno));
}

enum skr_code
skr_kafka_relay_page_open(const struct skr_kafka_relay_settings *settings,
                          struct skr_kafka_relay_page **page,
                          struct skr_error *error)
{
    if (settings->listen[0] == '\0')
        return SKR_OK;
    struct skr_kafka_relay_page *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->settings = settings;
    made->fd = -1;
    made->stop_fd = eventfd(0, EFD_CLOEXEC);
    enum skr_code code =
        skr_kafka_relay_table(settings, true, &made->table, error);
    if (code == SKR_OK)
        code = listen_on(settings->listen, &made->fd, error);
    if (code == SKR_OK) {
        made->has_thread = skr_thread_start(&made->thread, run, made) == 0;
        if (!made->has_thread)
            code = skr_fail_memory(error);
    }
    if (code != SKR_OK) {
        skr_kafka_relay_page_close(made);
        return code;
    }
    *page = made;
    return SKR_OK;
}

void
skr_kafka_relay_page_close(struct skr_kafka_relay_page *page)
{
    if (page == NULL)
        return;
    if (page->has_thread) {
        eventfd_write(page->stop_fd, 1);
        pthread_join(page->thread, NULL);
    }
    for (size_t i = 0; i < SKR_KAFKA_RELAY_MAX_DATABASES; i++)
        skr_db_close(page->dbs[i]);
    skr_table_free(page->table);
    if (page->fd >= 0)
        close(page->fd);
    if (page->stop_fd >= 0)
        close(page->stop_fd);
    free(page);
}
