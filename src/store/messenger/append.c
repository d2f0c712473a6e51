// SPDX-License-Identifier: MIT
// New rows. The text of the statement is filled in at each call: that costs
// less than a microsecond, and a publisher needs no table object.

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/sql.h"
#include "db/words.h"
#include "store/messenger/layout.h"

#include <string.h>

enum { MAX_QUEUE_NAME = 190 };

// Without a due time a row is available from the moment it is made.
static const char insert_at_once[] =
    "INSERT INTO {table} (body, headers, queue_name{and_partition_key}, "
    "created_at, available_at) VALUES (?, ?, ?{and_key}, {now}, {now})";
static const char insert_for_later[] =
    "INSERT INTO {table} (body, headers, queue_name{and_partition_key}, "
    "created_at, available_at) VALUES (?, ?, ?{and_key}, {now}, {from_utc})";
static const char insert_delayed[] =
    "INSERT INTO {table} (body, headers, queue_name{and_partition_key}, "
    "created_at, available_at) VALUES (?, ?, ?{and_key}, {now}, {now_after})";

struct insert_sql {
    const char *at_once, *for_later, *delayed;
};

enum skr_code
skr_messenger_check_names(const char *table, const char *queue,
                          struct skr_error *error)
{
    if (!skr_text_is_identifier(table))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "table name '%.80s': letters, digits and underscores "
                        "are needed, at most 63, not beginning with a digit",
                        table);
    if (skr_sql_is_reserved(table))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "table name '%s' is a word of SQL; choose another",
                        table);
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

static enum skr_code
insert_row(struct skr_tx tx, const struct insert_sql *sql, const char *queue,
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
    struct skr_statement statement = {
        .sql = sql->at_once, .values = values, .value_count = count};
    if (row->due_at_us > 0) {
        // Rounded up: a message is never early.
        int64_t due_at_us = row->due_at_us < INT64_MAX - 999999
                                ? row->due_at_us + 999999
                                : INT64_MAX;
        skr_clock_timestamp(due_at_us, due);
        values[count] = skr_bind_text(due);
        statement.sql = sql->for_later;
        statement.value_count = count + 1;
    } else if (row->delay_ms > 0) {
        values[count] = skr_bind_integer(row->delay_ms);
        statement.sql = sql->delayed;
        statement.value_count = count + 1;
    }
    return skr_tx_run(tx, &statement, error);
}

enum skr_code
skr_messenger_insert(struct skr_tx tx, const char *table, const char *queue,
                     const char *time_zone,
                     const struct skr_messenger_row *rows, size_t count,
                     struct skr_error *error)
{
    struct skr_arena arena = {0};
    const struct skr_dialect *dialect = tx.ops->dialect;
    struct skr_zone zone;
    enum skr_code code = skr_zone_read(dialect, time_zone, &zone, error);
    if (code != SKR_OK)
        return code;
    // All of them have a key, or none does.
    bool has_keys = count > 0 && rows[0].partition_key != NULL;
    enum { OWN_WORDS = 3 };
    struct skr_word words[OWN_WORDS + SKR_ZONE_WORDS] = {
        {"table", table},
        {"and_partition_key", has_keys ? ", partition_key" : ""},
        {"and_key", has_keys ? ", ?" : ""},
    };
    size_t word_count = OWN_WORDS + skr_zone_words(&zone, words + OWN_WORDS);
    const struct insert_sql sql = {
        .at_once =
            skr_sql_fill(dialect, &arena, insert_at_once, words, word_count),
        .for_later =
            skr_sql_fill(dialect, &arena, insert_for_later, words, word_count),
        .delayed =
            skr_sql_fill(dialect, &arena, insert_delayed, words, word_count),
    };
    if (sql.at_once == NULL || sql.for_later == NULL || sql.delayed == NULL)
        code = skr_fail_memory(error);
    for (size_t i = 0; i < count && code == SKR_OK; i++)
        code = insert_row(tx, &sql, queue, &rows[i], error);
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_append(const struct skr_store *table, struct skr_tx tx,
                     const char *queue, const struct skr_messenger_row *rows,
                     size_t count, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    return skr_messenger_insert(tx, messenger->name,
                                queue == NULL ? messenger->queue : queue,
                                messenger->zone.name, rows, count, error);
}
