// SPDX-License-Identifier: MIT
// New rows. The text of the statement is filled in at each call: that costs
// less than a microsecond, and a publisher needs no table object.

#include "store/append.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"
#include "store/messenger/layout.h"
#include "store/schema.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_QUEUE_NAME = 190 };

static const char insert_sql[] =
    "INSERT INTO {table} (body, headers, queue_name{and_partition_key}, "
    "created_at, available_at) VALUES (?, ?, ?{and_key}, {now}, {available})";
// Without a due time a row is available from the moment it is made.
enum due { AT_ONCE, AT_TIME, DELAYED, DUES };
static const char *const available[DUES] = {"{now}", "{from_utc}",
                                            "{now_after}"};

// For :body and :headers of a message.
static const char insert_named[] =
    "INSERT INTO {table} (body, headers, queue_name, created_at, available_at) "
    "VALUES (:body, :headers, '{queue}', {now}, {now})";

enum skr_code
skr_messenger_check_names(const char *table, const char *queue,
                          struct skr_error *error)
{
    enum skr_code code = skr_schema_check_name(table, error);
    if (code != SKR_OK)
        return code;
    size_t size = strlen(queue);
    if (size == 0 || size > MAX_QUEUE_NAME ||
        !skr_text_is_storable(queue, size))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "queue name '%.80s': 1 to %d bytes of UTF-8 text are "
                        "needed",
                        queue, MAX_QUEUE_NAME);
    return SKR_OK;
}

enum skr_code
skr_messenger_check_sent(const char *queue, struct skr_error *error)
{
    size_t most = MAX_QUEUE_NAME - strlen(".sent");
    if (strlen(queue) <= most)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "queue name '%.80s': with `on_success: keep` it has %zu "
                    "bytes at most, as sent messages stay under that name "
                    "with .sent after it",
                    queue, most);
}

enum skr_code
skr_messenger_insert_sql(const struct skr_dialect *dialect,
                         const struct skr_queue_place *place,
                         struct skr_arena *arena, const char **sql,
                         struct skr_error *error)
{
    struct skr_zone zone;
    struct skr_word words[2 + SKR_ZONE_WORDS] = {{"table", place->table},
                                                 {"queue", place->queue}};
    enum skr_code code = skr_zone_read(dialect, place->time_zone, &zone, error);
    if (code != SKR_OK)
        return code;
    *sql = skr_sql_fill(dialect, arena, insert_named, words,
                        2 + skr_zone_words(&zone, words + 2));
    return *sql == NULL ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
insert_row(struct skr_tx tx, const char *const sql[DUES], const char *queue,
           const struct skr_messenger_row *row, struct skr_error *error)
{
    char due[SKR_TIMESTAMP_SIZE];
    struct skr_value values[5] = {
        skr_bind_bytes(row->body, row->body_size),
        skr_bind_bytes(row->headers, row->headers_size),
        skr_bind_text(queue),
    };
    size_t count = 3;
    if (row->partition_key != NULL)
        values[count++] = skr_bind_text(row->partition_key);
    enum due when = AT_ONCE;
    if (row->due_at_us > 0) {
        // Rounded up: a message is never early.
        int64_t due_at_us = row->due_at_us < INT64_MAX - 999999
                                ? row->due_at_us + 999999
                                : INT64_MAX;
        skr_clock_timestamp(due_at_us, due);
        values[count++] = skr_bind_text(due);
        when = AT_TIME;
    } else if (row->delay_ms > 0) {
        values[count++] = skr_bind_integer(row->delay_ms);
        when = DELAYED;
    }
    return skr_tx_run(tx,
                      &(struct skr_statement){.sql = sql[when],
                                              .values = values,
                                              .value_count = count},
                      error);
}

enum skr_code
skr_messenger_insert(struct skr_tx tx, const struct skr_queue_place *place,
                     const struct skr_messenger_row *rows, size_t count,
                     struct skr_error *error)
{
    struct skr_arena arena = {0};
    const struct skr_dialect *dialect = tx.ops->dialect;
    struct skr_zone zone;
    enum skr_code code = skr_zone_read(dialect, place->time_zone, &zone, error);
    if (code != SKR_OK)
        return code;
    // All of them have a key, or none does.
    bool has_keys = count > 0 && rows[0].partition_key != NULL;
    enum { OWN_WORDS = 4 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", place->table},
        {"and_partition_key", has_keys ? ", partition_key" : ""},
        {"and_key", has_keys ? ", ?" : ""},
        {"available", NULL},
    };
    size_t word_count = OWN_WORDS + skr_zone_words(&zone, words + OWN_WORDS);
    const char *sql[DUES];
    for (size_t i = 0; i < DUES && code == SKR_OK; i++) {
        words[OWN_WORDS - 1].text = available[i];
        sql[i] = skr_sql_fill(dialect, &arena, insert_sql, words, word_count);
        code = sql[i] == NULL ? skr_fail_memory(error) : SKR_OK;
    }
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = insert_row(tx, sql, place->queue, &rows[i], error);
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_append(const struct skr_store *table, struct skr_tx tx,
                     const char *queue, const struct skr_messenger_row *rows,
                     size_t count, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_queue_place place = {
        .table = messenger->table.name,
        .queue = queue == NULL ? messenger->table.queue : queue,
        .time_zone = messenger->zone.name};
    return skr_messenger_insert(tx, &place, rows, count, error);
}

struct appender {
    struct skr_appender shared;
    const char *queue;
    const char *time_zone;
    bool has_order;
};

// A key that no column takes would promise an order that nothing keeps.
static enum skr_code
check(const struct skr_appender *appender, const struct skr_message *message,
      struct skr_error *error)
{
    bool has_order = ((const struct appender *)appender)->has_order;
    const char *key = message->partition_key;
    if (has_order && key == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "message %s has no partition key, which this ordered "
                        "outbox needs; give one, such as the id of what it is "
                        "about, or \"\" if its order does not matter",
                        message->name);
    if (has_order || key == NULL || key[0] == '\0')
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "message %s has the partition key '%.80s', but this outbox "
                    "keeps no order; leave the key out, or make it an ordered "
                    "outbox (is_ordered; ordered-doctrine:// in the "
                    "configuration)",
                    message->name, key);
}

static enum skr_code
insert(const struct skr_appender *shared, struct skr_tx tx,
       const struct skr_append_row *rows, size_t count, struct skr_error *error)
{
    const struct appender *appender = (const struct appender *)shared;
    const struct skr_queue_place place = {.table = shared->table,
                                          .queue = appender->queue,
                                          .time_zone = appender->time_zone};
    struct skr_messenger_row *made = calloc(count, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const struct skr_message *message = rows[i].message;
        made[i] = (struct skr_messenger_row){
            .body = message->body,
            .body_size = message->body_size,
            .headers = rows[i].headers,
            .headers_size = rows[i].headers_size,
            .partition_key =
                appender->has_order ? message->partition_key : NULL,
            .due_at_us = message->due_at_us,
        };
    }
    enum skr_code code = skr_messenger_insert(tx, &place, made, count, error);
    free(made);
    return code;
}

static const struct skr_append_ops append_ops = {
    .check = check,
    .insert = insert,
    .setup = "run `skirnir setup` first",
};

enum skr_code
skr_messenger_appender_new(const struct skr_outbox_options *options,
                           struct skr_appender **appender,
                           struct skr_error *error)
{
    const char *table =
        options->table == NULL ? "messenger_outbox" : options->table;
    const char *queue = options->queue == NULL ? "outbox" : options->queue;
    const char *zone = options->time_zone == NULL ? "UTC" : options->time_zone;
    enum skr_code code = skr_messenger_check_names(table, queue, error);
    if (code == SKR_OK && options->topic != NULL)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "topic '%.80s': only a kafka_outbox has topics "
                        "(is_kafka); leave it out",
                        options->topic);
    if (code != SKR_OK)
        return code;
    struct appender *made =
        (struct appender *)skr_appender_make(&append_ops, table, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    struct skr_arena *arena = &made->shared.arena;
    made->has_order = options->is_ordered;
    made->queue = skr_arena_text(arena, queue, strlen(queue));
    made->time_zone = skr_arena_text(arena, zone, strlen(zone));
    if (made->queue == NULL || made->time_zone == NULL) {
        skr_appender_free(&made->shared);
        return skr_fail_memory(error);
    }
    *appender = &made->shared;
    return SKR_OK;
}
