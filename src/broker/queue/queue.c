// SPDX-License-Identifier: MIT
// A messenger table used as a broker, the embedded default: opening it, and
// publishing into it.

#include "broker/queue/queue.h"

#include "base/error.h"
#include "base/url.h"
#include "base/vec.h"
#include "db/run.h"

#include <skirnir/queue.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_REDELIVER_S = 60,
    LEAST_REDELIVER_S = 3,  // a lease has a precision of one second
    MOST_REDELIVER_S = 7 * 24 * 3600,
    LONGEST_FULL_SCAN_MS = 5000,
};

static const char default_table[] = "messenger_messages";

#define AT(field) .place = offsetof(struct queue_broker, field)

static const struct skr_url_option options_of_url[] = {
    {"auto_setup", SKR_URL_BOOLEAN, AT(auto_setup)},
    {"derive_ids", SKR_URL_BOOLEAN, AT(derives_ids)},
    {.name = "queue_name"},
    {"redeliver_timeout", SKR_URL_NUMBER, AT(redeliver_timeout_s),
     .least = LEAST_REDELIVER_S, .most = MOST_REDELIVER_S},
    {.name = "table_name"},
    {.name = "time_zone"},
};

static void
warn_of_unknown_parameters(const struct queue_broker *broker,
                           const struct skr_url *url)
{
    for (size_t i = 0; i < url->parameter_count; i++)
        if (!skr_url_is_option(url->parameters[i].name, options_of_url,
                               SKR_COUNT_OF(options_of_url)))
            skr_log(&broker->log, SKR_LOG_WARNING, "queue.unknown_option",
                    SKR_LOG_TEXT("name", broker->name),
                    SKR_LOG_TEXT("option", url->parameters[i].name));
}

static enum skr_code
make_table(struct queue_broker *broker, const struct skr_url *url, bool is_own,
           struct skr_error *error)
{
    const char *table = skr_url_find(url, "table_name");
    const char *queue = skr_url_find(url, "queue_name");
    table = table == NULL ? default_table : table;
    queue = queue == NULL ? "default" : queue;
    enum skr_code code = skr_messenger_check_names(table, queue, error);
    if (code != SKR_OK)
        return code;
    uint32_t full_scan_ms = (uint32_t)broker->redeliver_timeout_s * 1000 / 4;
    return skr_messenger_new(
        &(struct skr_messenger_options){
            .dialect = skr_db_dialect(broker->db),
            .table = table,
            .queue = queue,
            .redeliver_timeout_s = (uint32_t)broker->redeliver_timeout_s,
            .full_scan_ms = full_scan_ms < LONGEST_FULL_SCAN_MS
                                ? full_scan_ms
                                : LONGEST_FULL_SCAN_MS,
            .time_zone = skr_url_find(url, "time_zone"),
            .limits_headers = !is_own,
            .transport = broker->name,
        },
        &broker->table, error);
}

static enum skr_code
check_table(struct queue_broker *broker, struct skr_error *error)
{
    struct skr_error found = {0};
    enum skr_code code =
        broker->table->admin->check(broker->table, broker->db, &found);
    const struct skr_table_maker maker = {&broker->log, broker->name,
                                          broker->database_url};
    if (code == SKR_MISSING && broker->auto_setup)
        return skr_store_create_for(broker->table, broker->db, &maker, error);
    if (code == SKR_MISSING)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP, "queue %s: %s",
                        broker->name, found.text);
    return code == SKR_OK ? SKR_OK : skr_fail_with(error, &found);
}

// A row goes in by INSERT, and out by UPDATE or DELETE.
static enum skr_code
check_rights(struct queue_broker *broker, const struct skr_url *url,
             bool consumes, struct skr_error *error)
{
    const char *table = skr_url_find(url, "table_name");
    table = table == NULL ? default_table : table;
    return consumes
               ? skr_rights_check_change(broker->db, table, "queue_name", error)
               : skr_rights_check_insert(broker->db, table,
                                         "body, headers, queue_name, "
                                         "created_at, available_at",
                                         error);
}

// So that `skirnir stats` knows how many consume.
static enum skr_code
attend(struct queue_broker *broker, struct skr_error *error)
{
    char lock_name[SKR_LOCK_NAME_SIZE], name[SKR_LOCK_NAME_SIZE];
    enum skr_code code =
        skr_store_name_lock(broker->db, broker->table->name,
                            broker->table->queue, lock_name, error);
    if (code != SKR_OK)
        return code;
    skr_store_name_attendance(lock_name, SKR_ATTEND_CONSUMING, name);
    return broker->db->ops->locks->attend(broker->db, name, error);
}

static enum skr_code
queue_check_url(const char *text, const struct skr_url *url,
                const struct skr_log *log, struct skr_error *error)
{
    struct queue_broker unused;
    (void)text;
    (void)log;
    return skr_url_read(url, options_of_url, SKR_COUNT_OF(options_of_url), NULL,
                        &unused, error);
}

static enum skr_code
queue_open(struct skr_broker *base, const struct skr_url *url,
           const struct skr_broker_options *options, struct skr_error *error)
{
    struct queue_broker *broker = (struct queue_broker *)base;
    if (options->database == NULL || options->database_url == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "a queue broker needs a database: queue_database and "
                        "queue_database_url are not set");
    broker->redeliver_timeout_s = DEFAULT_REDELIVER_S;
    broker->auto_setup = options->auto_setup;
    enum skr_code code = skr_url_read(
        url, options_of_url, SKR_COUNT_OF(options_of_url), NULL, broker, error);
    if (code != SKR_OK)
        return code;
    base->can.delays = true;
    base->can.counts = true;
    broker->log = options->log;
    broker->database = options->database;
    broker->database_url = strdup(options->database_url);
    broker->name = strdup(url->host == NULL ? "queue" : url->host);
    if (broker->database_url == NULL || broker->name == NULL)
        return skr_fail_memory(error);
    warn_of_unknown_parameters(broker, url);
    code = skr_db_open_or_create(options->database, options->database_url,
                                 broker->auto_setup, &broker->db, error);
    if (code == SKR_OK) {
        broker->db->log = &broker->log;
        broker->db->name = broker->name;
    }
    if (code == SKR_OK)
        code = make_table(broker, url, options->is_own, error);
    if (code == SKR_OK)
        code = check_table(broker, error);
    if (code == SKR_OK)
        code = check_rights(broker, url, options->consumes, error);
    if (code == SKR_OK && options->consumes && !options->is_own)
        code = attend(broker, error);
    return code;
}

// Room for one more in each of the three arrays.
static bool
reserve(struct queue_publisher *publisher)
{
    size_t capacity[] = {publisher->capacity, publisher->capacity,
                         publisher->capacity};
    size_t needed = publisher->count + 1;
    if (!skr_vec_reserve(&publisher->pending, &capacity[0], needed,
                         sizeof(*publisher->pending)) ||
        !skr_vec_reserve(&publisher->rows, &capacity[1], needed,
                         sizeof(*publisher->rows)) ||
        !skr_vec_reserve(&publisher->row_owner, &capacity[2], needed,
                         sizeof(*publisher->row_owner)))
        return false;
    publisher->capacity = capacity[0];
    return true;
}

// After a failed write nothing more is taken on this connection: the caller
// hears why, and opens another.
static enum skr_code
tell_failure(const struct queue_publisher *publisher, struct skr_error *error)
{
    if (error != NULL) {
        *error = publisher->failure;
        error->remedy = SKR_RECONNECT;
    }
    return publisher->failure.code;
}

static enum skr_code
queue_submit(struct skr_broker *base, const struct skr_message *message,
             const struct skr_route *route, uint64_t tag,
             struct skr_error *error)
{
    (void)route;  // there is one queue, and it is this
    struct queue_publisher *publisher =
        &((struct queue_broker *)base)->publisher;
    if (publisher->failure.code != SKR_OK)
        return tell_failure(publisher, error);
    if (!reserve(publisher))
        return skr_fail_memory(error);
    publisher->pending[publisher->count++] =
        (struct queue_pending){.message = message, .tag = tag};
    return SKR_OK;
}

static enum skr_code
refuse(struct queue_pending *pending, const struct skr_error *reason,
       struct skr_error *error)
{
    pending->reason = malloc(sizeof(*pending->reason));
    if (pending->reason == NULL)
        return skr_fail_memory(error);
    *pending->reason = *reason;
    pending->result = SKR_REFUSED_FOR_GOOD;
    return SKR_OK;
}

// Content-Type comes last, as Symfony writes it.
static enum skr_code
write_headers(struct queue_publisher *publisher,
              const struct skr_message *message, struct skr_error *error)
{
    if (!skr_vec_reserve(&publisher->headers, &publisher->header_capacity,
                         message->header_count + 1,
                         sizeof(*publisher->headers)))
        return skr_fail_memory(error);
    size_t count = 0;
    for (size_t i = 0; i < message->header_count; i++)
        if (strcmp(message->headers[i].name, SKR_HEADER_CONTENT_TYPE) != 0)
            publisher->headers[count++] = message->headers[i];
    publisher->headers[count++] = (struct skr_header){
        .name = SKR_HEADER_CONTENT_TYPE,
        .value = message->content_type == NULL ? SKR_DEFAULT_CONTENT_TYPE
                                               : message->content_type};
    return skr_headers_write(publisher->headers, count, &publisher->json,
                             error);
}

static enum skr_code
encode_one(struct queue_publisher *publisher, const struct skr_message *message,
           struct skr_messenger_row *row, struct skr_error *error)
{
    if (!skr_text_is_storable(message->body, message->body_size))
        return skr_fail(error, SKR_MALFORMED, SKR_GIVE_UP,
                        "the body is not text in UTF-8, which is all that a "
                        "queue table can hold");
    size_t start = publisher->json.size;
    enum skr_code code = write_headers(publisher, message, error);
    if (code == SKR_OK)
        code = skr_headers_check_size(publisher->json.size - start, error);
    if (code != SKR_OK)
        return code;
    *row = (struct skr_messenger_row){
        .body = message->body,
        .body_size = message->body_size,
        .headers_size = publisher->json.size - start,
        .due_at_us = message->due_at_us,
    };
    return SKR_OK;
}

// Makes rows of all that was submitted; what cannot be a row is refused here.
static enum skr_code
encode_rows(struct queue_publisher *publisher, size_t *row_count,
            struct skr_error *error)
{
    skr_text_clear(&publisher->json);
    size_t count = 0;
    for (size_t i = publisher->written; i < publisher->count; i++) {
        struct queue_pending *pending = &publisher->pending[i];
        struct skr_error reason = {0};
        enum skr_code code = encode_one(publisher, pending->message,
                                        &publisher->rows[count], &reason);
        if (code == SKR_NO_MEMORY || publisher->json.broken)
            return skr_fail_memory(error);
        if (code == SKR_OK)
            publisher->row_owner[count++] = i;
        else if ((code = refuse(pending, &reason, error)) != SKR_OK)
            return code;
    }
    // The text has stopped moving: now its parts can be pointed at.
    const char *at = publisher->json.bytes;
    for (size_t i = 0; i < count; i++) {
        publisher->rows[i].headers = at;
        at += publisher->rows[i].headers_size;
    }
    *row_count = count;
    return SKR_OK;
}

static enum skr_code
append(struct queue_broker *broker, const struct skr_messenger_row *rows,
       size_t count, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(broker->db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = skr_messenger_append(broker->table, skr_db_tx(broker->db), NULL,
                                rows, count, error);
    return skr_db_end(broker->db, code, error);
}

// Whose fault a refusal is: a row that nothing can be said against tells. One
// mistake on the queue's side must not condemn every message.
static bool
table_takes_rows(struct queue_broker *broker)
{
    static const char headers[] = "{\"type\":\"skirnir.probe\"}";
    struct skr_messenger_row probe = {.body = "{}",
                                      .body_size = 2,
                                      .headers = headers,
                                      .headers_size = sizeof(headers) - 1};
    if (skr_db_begin(broker->db, SKR_BEGIN_WRITE, NULL) != SKR_OK)
        return false;
    enum skr_code code = skr_messenger_append(
        broker->table, skr_db_tx(broker->db), NULL, &probe, 1, NULL);
    skr_db_rollback(broker->db);
    return code == SKR_OK;
}

// Writes a run of rows in one transaction. When the database will never take
// them the run is halved, until the guilty row stands alone: one bad message
// costs a few transactions more and takes no other along.
static enum skr_code
write_rows(struct queue_broker *broker, size_t first, size_t count,
           struct skr_error *error)
{
    struct queue_publisher *publisher = &broker->publisher;
    struct skr_error reason = {0};
    enum skr_code code =
        append(broker, &publisher->rows[first], count, &reason);
    if (code == SKR_OK) {
        for (size_t i = first; i < first + count; i++)
            publisher->pending[publisher->row_owner[i]].result = SKR_CONFIRMED;
        return SKR_OK;
    }
    bool is_final = reason.remedy == SKR_GIVE_UP && code != SKR_MISSING;
    if (is_final && count > 1) {
        code = write_rows(broker, first, count / 2, error);
        if (code != SKR_OK)
            return code;
        return write_rows(broker, first + count / 2, count - count / 2, error);
    }
    if (is_final && table_takes_rows(broker))
        return refuse(&publisher->pending[publisher->row_owner[first]], &reason,
                      error);
    return skr_fail_with(error, &reason);
}

static void
write_pending(struct queue_broker *broker)
{
    struct queue_publisher *publisher = &broker->publisher;
    // What is not known to be stored, or refused, stays uncertain.
    for (size_t i = publisher->written; i < publisher->count; i++)
        publisher->pending[i].result = SKR_UNCERTAIN;
    size_t row_count = 0;
    enum skr_code code =
        encode_rows(publisher, &row_count, &publisher->failure);
    if (code == SKR_OK && row_count > 0)
        code = write_rows(broker, 0, row_count, &publisher->failure);
    publisher->written = publisher->count;
}

static void
give(struct queue_publisher *publisher, struct skr_published *results,
     size_t capacity, size_t *count)
{
    size_t given = 0;
    while (given < capacity && publisher->given < publisher->written) {
        struct queue_pending *pending = &publisher->pending[publisher->given++];
        struct skr_published *published = &results[given++];
        published->tag = pending->tag;
        published->result = pending->result;
        if (pending->reason != NULL)
            published->reason = *pending->reason;
        else if (pending->result != SKR_CONFIRMED)
            published->reason = publisher->failure;
        else
            skr_error_clear(&published->reason);
        free(pending->reason);
        pending->reason = NULL;
    }
    if (publisher->given == publisher->count)
        publisher->given = publisher->written = publisher->count = 0;
    *count = given;
}

// What was submitted is written in one transaction as soon as the caller asks
// for the results.
static enum skr_code
queue_results(struct skr_broker *base, struct skr_published *results,
              size_t capacity, size_t *count, uint32_t timeout_ms,
              struct skr_error *error)
{
    struct queue_broker *broker = (struct queue_broker *)base;
    struct queue_publisher *publisher = &broker->publisher;
    (void)timeout_ms;  // a write waits as long as the database's URL says
    *count = 0;
    bool all_known = publisher->given == publisher->written;
    if (publisher->failure.code != SKR_OK && all_known)
        return tell_failure(publisher, error);
    if (all_known && publisher->written < publisher->count)
        write_pending(broker);
    give(publisher, results, capacity, count);
    return SKR_OK;
}

static void
publisher_fini(struct queue_publisher *publisher)
{
    for (size_t i = publisher->given; i < publisher->written; i++)
        free(publisher->pending[i].reason);
    free(publisher->pending);
    free(publisher->rows);
    free(publisher->row_owner);
    free(publisher->headers);
    skr_text_fini(&publisher->json);
}

static void
queue_close(struct skr_broker *base)
{
    struct queue_broker *broker = (struct queue_broker *)base;
    skr_queue_consumer_fini(broker);
    publisher_fini(&broker->publisher);
    skr_store_free(broker->table);
    skr_db_close(broker->db);
    free(broker->database_url);
    free(broker->name);
}

const struct skr_broker_ops skr_queue_broker = {
    .scheme = "queue",
    .size = sizeof(struct queue_broker),
    .check_url = queue_check_url,
    .exposure = skr_exposure_none,
    .open = queue_open,
    .close = queue_close,
    .submit = queue_submit,
    .results = queue_results,
    .receive = skr_queue_receive,
    .settle = skr_queue_settle,
    .status = skr_queue_status,
};
