// SPDX-License-Identifier: MIT
// New rows, as any application may write them.

#include "store/append.h"

#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "db/sql.h"
#include "message/json.h"
#include "store/schema.h"

#include <string.h>

struct appender {
    struct skr_appender shared;
    const char *topic;  // NULL: the name of each message
};

static const char insert_sql[] =
    "INSERT INTO {table} (topic, payload_json, payload_headers, {key}) "
    "VALUES (?, ?, ?, ?)";

enum { LONGEST_TOPIC = 249 };

static enum skr_code
check_topic(const char *topic, struct skr_error *error)
{
    if (topic == NULL)
        return SKR_OK;
    size_t size = strlen(topic);
    if (size > 0 && size <= LONGEST_TOPIC &&
        strspn(topic, "abcdefghijklmnopqrstuvwxyz0123456789"
                      "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == size)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "topic '%.80s': 1 to %d letters, digits, dots, underscores "
                    "and hyphens are needed",
                    topic, LONGEST_TOPIC);
}

// What kafka_outbox has no column for, or a column that takes less.
static enum skr_code
check(const struct skr_appender *appender, const struct skr_message *message,
      struct skr_error *error)
{
    (void)appender;
    enum skr_json_kind kind;
    if (message->due_at_us != 0)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s has a due time, which kafka_outbox does "
                        "not know",
                        message->name);
    enum skr_code code =
        skr_json_scan(message->body, message->body_size, 0, &kind, error);
    if (code == SKR_MALFORMED) {
        error->code = code = SKR_INVALID;
        skr_error_prefix(error, "message %s: its body must be JSON",
                         message->name);
    }
    return code;
}

static enum skr_code
insert_row(const struct appender *appender, struct skr_tx tx, const char *sql,
           const struct skr_append_row *row, struct skr_error *error)
{
    const struct skr_message *message = row->message;
    const char *topic =
        appender->topic == NULL ? message->name : appender->topic;
    // Kafka spreads records without an order by their ids.
    const char *key = message->partition_key;
    char id[SKR_ID_TEXT_SIZE];
    if (key == NULL || key[0] == '\0') {
        skr_id_format(row->id, id);
        key = id;
    }
    const struct skr_values values = {
        4,
        {
            skr_bind_text(topic),
            skr_bind_bytes(message->body, message->body_size),
            skr_bind_bytes(row->headers, row->headers_size),
            skr_bind_text(key),
        }};
    return skr_sql_run(tx, sql, values, NULL, error);
}

static enum skr_code
insert(const struct skr_appender *appender, struct skr_tx tx,
       const struct skr_append_row *rows, size_t count, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", appender->table}};
    struct skr_arena arena = {0};
    const char *sql = skr_sql_fill(tx.ops->dialect, &arena, insert_sql, words,
                                   SKR_COUNT_OF(words));
    enum skr_code code = sql == NULL ? skr_fail_memory(error) : SKR_OK;
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = insert_row((const struct appender *)appender, tx, sql, &rows[i],
                          error);
    skr_arena_fini(&arena);
    return code;
}

static const struct skr_append_ops ops = {
    .check = check,
    .insert = insert,
    .setup = "start `skirnir kafka-relay` first",
};

enum skr_code
skr_kafka_outbox_appender_new(const struct skr_outbox_options *options,
                              struct skr_appender **appender,
                              struct skr_error *error)
{
    const char *table =
        options->table == NULL ? "kafka_outbox" : options->table;
    const char *topic = options->topic;
    enum skr_code code = skr_schema_check_name(table, error);
    if (code == SKR_OK)
        code = check_topic(topic, error);
    if (code != SKR_OK)
        return code;
    struct skr_appender *made =
        skr_appender_make(&ops, table, sizeof(struct appender));
    if (made == NULL)
        return skr_fail_memory(error);
    if (topic != NULL) {
        const char *copy = skr_arena_text(&made->arena, topic, strlen(topic));
        if (copy == NULL) {
            skr_appender_free(made);
            return skr_fail_memory(error);
        }
        ((struct appender *)made)->topic = copy;
    }
    *appender = made;
    return SKR_OK;
}
