// SPDX-License-Identifier: MIT
// What others write into the table that a relay cannot use as it is.

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/messenger/layout.h"

static const char count_php_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE {queue_is} AND " SKR_MESSENGER_PHP;

// Among the last rows of the table: one queue may be far behind the others.
// Parameter: queue.
static const char newest_sql[] =
    "SELECT {now}, created_at FROM (SELECT id, queue_name, created_at "
    "FROM {table} ORDER BY id DESC LIMIT 1000) AS newest "
    "WHERE {queue_is_unindexed} ORDER BY id DESC LIMIT 1";

#define HOUR_US (INT64_C(3600) * 1000000)
#define TOLERANCE_US (HOUR_US / 4)
enum { MOST_HOURS = 14 };

bool
skr_messenger_fill_others(struct skr_messenger *messenger)
{
    return skr_messenger_fill(messenger, count_php_sql,
                              &messenger->sql.count_php) &&
           skr_messenger_fill(messenger, newest_sql, &messenger->sql.newest);
}

// Whole hours that one time is ahead of another, about; 0: it is another
// distance.
static int
hours_ahead(const char *now, const char *then)
{
    int64_t now_us = 0, then_us = 0;
    if (!skr_clock_parse_timestamp(now, &now_us) ||
        !skr_clock_parse_timestamp(then, &then_us))
        return 0;
    int64_t ahead_us = then_us - now_us;
    int64_t half_us = ahead_us < 0 ? -HOUR_US / 2 : HOUR_US / 2;
    int64_t hours = (ahead_us + half_us) / HOUR_US;
    int64_t off_us = ahead_us - hours * HOUR_US;
    bool is_whole = off_us <= TOLERANCE_US && off_us >= -TOLERANCE_US;
    return is_whole && hours <= MOST_HOURS && hours >= -MOST_HOURS ? (int)hours
                                                                   : 0;
}

enum skr_code
skr_messenger_skew(const struct skr_store *table, struct skr_db *db, int *hours,
                   struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_value queue = skr_bind_text(messenger->queue);
    struct skr_arena arena = {0};
    struct skr_value columns[2] = {{.kind = SKR_NULL}, {.kind = SKR_NULL}};
    bool found = false;
    enum skr_code code = skr_tx_fetch_one(
        skr_db_tx(db),
        &(struct skr_statement){
            .sql = messenger->sql.newest, .values = &queue, .value_count = 1},
        &arena, columns, 2, &found, error);
    *hours = 0;
    if (code == SKR_OK && found) {
        char now[SKR_POSITION_TIME_SIZE], then[SKR_POSITION_TIME_SIZE];
        skr_messenger_copy_time(&columns[0], now);
        skr_messenger_copy_time(&columns[1], then);
        *hours = hours_ahead(now, then);
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_foreign(const struct skr_store *table, struct skr_db *db,
                      uint64_t *count, const char **cure,
                      struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    const struct skr_value queue = skr_bind_text(messenger->queue);
    struct skr_arena arena = {0};
    struct skr_value value = {.kind = SKR_NULL};
    bool found = false;
    enum skr_code code = skr_tx_fetch_one(
        skr_db_tx(db),
        &(struct skr_statement){.sql = messenger->sql.count_php,
                                .values = &queue,
                                .value_count = 1},
        &arena, &value, 1, &found, error);
    skr_arena_fini(&arena);
    if (code == SKR_OK) {
        *count = (uint64_t)value.integer;
        *cure = "these rows are PHP-serialised and stay for the Symfony "
                "worker; set `serializer: "
                "messenger.transport.symfony_serializer` on that transport";
    }
    return code;
}
