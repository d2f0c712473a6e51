// SPDX-License-Identifier: MIT
// What people may have wrong: what others write into the table that a relay
// cannot use as it is, what they claim, and who holds back the queue.

#include "base/clock.h"
#include "base/error.h"
#include "db/run.h"
#include "store/messenger/reader.h"

#include <stdio.h>

#define HOUR_US (INT64_C(3600) * 1000000)
#define TOLERANCE_US (HOUR_US / 4)
enum { MOST_HOURS = 14 };

// Whole hours of a distance, about; 0: it is another one.
static int
count_hours(int64_t ahead_us)
{
    int64_t half_us = ahead_us < 0 ? -HOUR_US / 2 : HOUR_US / 2;
    int64_t hours = (ahead_us + half_us) / HOUR_US;
    int64_t off_us = ahead_us - hours * HOUR_US;
    bool is_whole = off_us <= TOLERANCE_US && off_us >= -TOLERANCE_US;
    return is_whole && hours <= MOST_HOURS && hours >= -MOST_HOURS ? (int)hours
                                                                   : 0;
}

static enum skr_code
find_skew(const struct skr_store *table, struct skr_db *db, int *hours,
          struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_arena arena = {0};
    struct skr_value columns[2];
    struct skr_row row = {.arena = &arena, .columns = columns, .count = 2};
    enum skr_code code =
        skr_sql_row(skr_db_tx(db), skr_messenger_sql(messenger, SKR_SQL_NEWEST),
                    skr_values("%s", messenger->table.queue), &row, error);
    *hours = 0;
    if (code == SKR_OK && row.found) {
        int64_t ahead_us = 0;
        if (skr_messenger_measure(&columns[0], &columns[1], &ahead_us))
            *hours = count_hours(ahead_us);
    }
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
count_foreign(const struct skr_store *table, struct skr_db *db, uint64_t *count,
              const char **cure, struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    int64_t number = 0;
    enum skr_code code = skr_sql_number(
        skr_db_tx(db), skr_messenger_sql(messenger, SKR_SQL_COUNT_PHP),
        skr_values("%s", messenger->table.queue), &number, error);
    if (code == SKR_OK) {
        *count = (uint64_t)number;
        *cure = "these rows are PHP-serialised and stay for the Symfony "
                "worker; the application that writes them needs `serializer: "
                "messenger.transport.symfony_serializer` on that transport";
    }
    return code;
}

static enum skr_code
count_claimed(struct skr_reader *base, uint64_t *count, struct skr_error *error)
{
    struct skr_messenger_reader *reader = (struct skr_messenger_reader *)base;
    const struct skr_messenger *messenger = skr_messenger_of(base->store);
    const struct skr_bounds bounds = {.up_to = reader->at.mark.cursor};
    int64_t number = 0;
    enum skr_code code =
        skr_messenger_learn(messenger, base->db, &reader->indexes, error);
    if (code != SKR_OK)
        return code;
    enum skr_messenger_sql id = reader->indexes.lacks_claims
                                    ? SKR_SQL_COUNT_NEAR
                                    : SKR_SQL_COUNT_LEASED;
    code = skr_sql_number(skr_db_tx(base->db), skr_messenger_sql(messenger, id),
                          skr_reader_bind(reader, &reader->at, id, &bounds),
                          &number, error);
    if (code == SKR_OK)
        *count = (uint64_t)number;
    return code;
}

enum skr_code
skr_messenger_find_writer(const struct skr_store *table, struct skr_db *db,
                          struct skr_writer *writer, struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_value columns[3];
    struct skr_row row = {.arena = &arena, .columns = columns, .count = 3};
    *writer = (struct skr_writer){.process = 0};
    enum skr_code code = skr_sql_row(
        skr_db_tx(db),
        skr_messenger_sql(skr_messenger_of(table), SKR_SQL_OLDEST_WRITER),
        SKR_NO_VALUES, &row, error);
    if (code == SKR_OK && row.found) {
        writer->process = columns[0].integer;
        writer->age_s = columns[1].kind == SKR_NULL ? 0 : columns[1].integer;
        if (columns[2].kind != SKR_NULL)
            snprintf(writer->name, sizeof(writer->name), "%s",
                     (const char *)columns[2].bytes);
    }
    skr_arena_fini(&arena);
    return code;
}

const struct skr_diagnosis_ops skr_messenger_diagnosis = {
    .count_claimed = count_claimed,
    .foreign = count_foreign,
    .skew = find_skew,
};
