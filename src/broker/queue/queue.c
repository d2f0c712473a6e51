// SPDX-License-Identifier: MIT
// A messenger table used as a broker: the embedded default.

#include "broker/queue/queue.h"

#include "base/error.h"
#include "base/url.h"
#include "db/rights.h"

#include <skirnir/queue.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_REDELIVER_S = 60,
    LEAST_REDELIVER_S = 3,  // a lease has a precision of one second
    MOST_REDELIVER_S = 7 * 24 * 3600,
    MOST_SWEEP_MS = 5000,
};

static const char default_table[] = "messenger_messages";

static enum skr_code
read_switch(const struct skr_url *url, const char *name, bool fallback,
            bool *value, struct skr_error *error)
{
    const char *text = skr_url_find(url, name);
    if (text == NULL)
        *value = fallback;
    else if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
        *value = true;
    else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
        *value = false;
    else
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%s=%s in the DSN: true or false is needed", name,
                        text);
    return SKR_OK;
}

static void
warn_of_unknown_parameters(const struct queue_broker *broker,
                           const struct skr_url *url)
{
    static const char *const known[] = {"table_name",        "queue_name",
                                        "redeliver_timeout", "auto_setup",
                                        "derive_ids",        "time_zone"};
    for (size_t i = 0; i < url->parameter_count; i++) {
        bool found = false;
        for (size_t k = 0; k < SKR_COUNT_OF(known); k++)
            found = found || strcmp(url->parameters[i].name, known[k]) == 0;
        if (!found)
            skr_log(&broker->log, SKR_LOG_WARNING, "queue.unknown_option",
                    SKR_LOG_TEXT("name", broker->name),
                    SKR_LOG_TEXT("option", url->parameters[i].name));
    }
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
    uint32_t sweep_ms = broker->redeliver_timeout_s * 1000 / 4;
    return skr_messenger_new(
        &(struct skr_messenger_options){
            .dialect = skr_db_dialect(broker->db),
            .table = table,
            .queue = queue,
            .redeliver_timeout_s = broker->redeliver_timeout_s,
            .sweep_ms = sweep_ms < MOST_SWEEP_MS ? sweep_ms : MOST_SWEEP_MS,
            .time_zone = skr_url_find(url, "time_zone"),
            .limits_headers = !is_own,
            .transport = broker->name,
        },
        &broker->table, error);
}

static enum skr_code
check_table(struct queue_broker *broker, bool auto_setup,
            struct skr_error *error)
{
    struct skr_error found = {0};
    enum skr_code code =
        broker->table->admin->check(broker->table, broker->db, &found);
    if (code == SKR_MISSING && auto_setup)
        return skr_store_create(broker->table, broker->db, error);
    if (code == SKR_MISSING)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "queue %s: %s; run `skirnir setup`", broker->name,
                        found.text);
    if (code != SKR_OK && error != NULL)
        *error = found;
    return code;
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
    enum skr_code code = broker->table->source->lock_name(
        broker->table, broker->db, lock_name, error);
    if (code != SKR_OK)
        return code;
    skr_store_name_attendance(lock_name, SKR_ATTEND_CONSUMING, name);
    return broker->db->ops->attend(broker->db, name, error);
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
    int64_t redeliver_timeout_s = 0;
    bool auto_setup = false, derives_ids = false;
    enum skr_code code = skr_url_number(
        url, "redeliver_timeout", LEAST_REDELIVER_S, MOST_REDELIVER_S,
        DEFAULT_REDELIVER_S, &redeliver_timeout_s, error);
    if (code == SKR_OK)
        code = read_switch(url, "auto_setup", options->auto_setup, &auto_setup,
                           error);
    if (code == SKR_OK)
        code = read_switch(url, "derive_ids", false, &derives_ids, error);
    if (code != SKR_OK)
        return code;
    broker->redeliver_timeout_s = (uint32_t)redeliver_timeout_s;
    broker->derives_ids = derives_ids;
    base->delays = true;
    base->counts = true;
    broker->log = options->log;
    broker->database = options->database;
    broker->database_url = strdup(options->database_url);
    broker->name = strdup(url->host == NULL ? "queue" : url->host);
    if (broker->database_url == NULL || broker->name == NULL)
        return skr_fail_memory(error);
    warn_of_unknown_parameters(broker, url);
    code = skr_queue_keepalive_init(&broker->keepalive, error);
    if (code == SKR_OK)
        code = skr_db_open_or_create(options->database, options->database_url,
                                     auto_setup, &broker->db, error);
    if (code == SKR_OK)
        code = make_table(broker, url, options->is_own, error);
    if (code == SKR_OK)
        code = check_table(broker, auto_setup, error);
    if (code == SKR_OK)
        code = check_rights(broker, url, options->consumes, error);
    if (code == SKR_OK && options->consumes && !options->is_own)
        code = attend(broker, error);
    return code;
}

static void
queue_close(struct skr_broker *base)
{
    struct queue_broker *broker = (struct queue_broker *)base;
    skr_queue_keepalive_fini(&broker->keepalive);
    skr_queue_publisher_fini(&broker->publisher);
    skr_batch_fini(&broker->batch);
    skr_batch_fini(&broker->settling);
    skr_store_free(broker->table);
    skr_db_close(broker->db);
    free(broker->database_url);
    free(broker->name);
}

const struct skr_broker_ops skr_queue_broker = {
    .scheme = "queue",
    .size = sizeof(struct queue_broker),
    .open = queue_open,
    .close = queue_close,
    .submit = skr_queue_submit,
    .outcomes = skr_queue_outcomes,
    .receive = skr_queue_receive,
    .settle = skr_queue_settle,
};
