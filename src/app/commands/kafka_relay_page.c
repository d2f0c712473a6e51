// SPDX-License-Identifier: MIT
// What is answered on /healthz and /metrics.

#include "app/commands/kafka_relay.h"
#include "app/service/http.h"
#include "base/error.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIAL_MS = 1000 };

struct skr_kafka_relay_page {
    const struct skr_kafka_relay_settings *settings;
    struct skr_store *table;
    pthread_mutex_t lock;  // of the databases: one thread asks them at a time
    struct skr_db *dbs[SKR_KAFKA_RELAY_MAX_DATABASES];
    struct skr_http *http;
};

// Opened when it is first asked for, and anew after trouble.
static struct skr_db *
find_db(struct skr_kafka_relay_page *page, size_t index)
{
    struct skr_error error;
    struct skr_db **db = &page->dbs[index];
    if (*db == NULL &&
        skr_db_open_to_read(page->settings->database,
                            page->settings->urls[index], db, &error) != SKR_OK)
        return NULL;
    return *db;
}

static bool
keep_if(struct skr_kafka_relay_page *page, size_t index, enum skr_code code)
{
    if (code == SKR_OK)
        return true;
    skr_db_close(page->dbs[index]);
    page->dbs[index] = NULL;
    return false;
}

static bool
has_databases(struct skr_kafka_relay_page *page)
{
    struct skr_error error;
    for (size_t i = 0; i < page->settings->database_count; i++) {
        struct skr_db *db = find_db(page, i);
        if (db == NULL ||
            !keep_if(page, i,
                     page->table->admin->check(page->table, db, &error)))
            return false;
    }
    return true;
}

static bool
count_rows(struct skr_kafka_relay_page *page, size_t index,
           struct skr_kafka_outbox_counts *counts)
{
    struct skr_error error;
    struct skr_db *db = find_db(page, index);
    return db != NULL &&
           keep_if(page, index,
                   skr_kafka_outbox_count(page->table, db, counts, &error));
}

static bool
can_dial(const char *host, const char *port)
{
    int fd = skr_kafka_relay_dial(host, port, DIAL_MS);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

// A cluster is there as long as one of its brokers is.
static bool
has_broker(const struct skr_kafka_relay_page *page)
{
    const char *at = page->settings->hosts;
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
    add_gauge(text, "kafka_outbox_total_size",
              "Rows of the table; beyond 100,000 an estimate.", sum.total);
    add_gauge(text, "kafka_outbox_errored_size",
              "Rows that nobody publishes any more.", sum.errored);
    return true;
}

static unsigned
answer(void *user, const struct skr_http_request *request, const char **type,
       struct skr_text *text)
{
    struct skr_kafka_relay_page *page = user;
    bool is_well = false;
    if (strcmp(request->path, "/metrics") == 0) {
        *type = SKR_HTTP_METRICS_TYPE;
        pthread_mutex_lock(&page->lock);
        is_well = write_metrics(page, text);
        pthread_mutex_unlock(&page->lock);
    } else if (strcmp(request->path, "/healthz") == 0) {
        const char *readiness = skr_http_argument(request, "readiness");
        bool asks_broker = readiness != NULL && strcmp(readiness, "1") == 0;
        pthread_mutex_lock(&page->lock);
        is_well = has_databases(page);
        pthread_mutex_unlock(&page->lock);
        is_well = is_well && (!asks_broker || has_broker(page));
    } else {
        skr_text_add_string(text, "there are /metrics and /healthz\n");
        return SKR_HTTP_NOT_FOUND;
    }
    return is_well ? SKR_HTTP_OK : SKR_HTTP_UNAVAILABLE;
}

// "HOST:PORT" or ":PORT".
static enum skr_code
listen_on(struct skr_kafka_relay_page *page, const char *place,
          struct skr_error *error)
{
    char host[64];
    int64_t port = 0;
    const char *colon = strrchr(place, ':');
    size_t size = colon == NULL ? sizeof(host) : (size_t)(colon - place);
    if (size >= sizeof(host) || !skr_text_number(colon + 1, 1, 65535, &port))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "--listen %.60s: HOST:PORT or :PORT is needed", place);
    memcpy(host, place, size);
    host[size] = '\0';
    return skr_http_start(
        &(struct skr_http_options){
            .address = size == 0 ? NULL : host,
            .port = (uint16_t)port,
            .setting = "--listen or HTTP_LISTEN",
            .answer = answer,
            .user = page,
        },
        &page->http, error);
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
    pthread_mutex_init(&made->lock, NULL);
    enum skr_code code =
        skr_kafka_relay_table(settings, true, &made->table, error);
    if (code == SKR_OK)
        code = listen_on(made, settings->listen, error);
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
    skr_http_stop(page->http);
    for (size_t i = 0; i < SKR_KAFKA_RELAY_MAX_DATABASES; i++)
        skr_db_close(page->dbs[i]);
    skr_store_free(page->table);
    pthread_mutex_destroy(&page->lock);
    free(page);
}
