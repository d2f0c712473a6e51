// SPDX-License-Identifier: MIT
// `kafka-relay migrate`, and what becomes of rows that are errored.

#include "app/commands/kafka_relay.h"
#include "base/error.h"
#include "base/text.h"
#include "table/kafka_outbox/kafka_outbox.h"
#include "table/schema.h"

#include <stdio.h>
#include <string.h>

static enum skr_code
print_row(int64_t row, const char *topic, const char *reason, int64_t attempts,
          void *user, struct skr_error *error)
{
    (void)user;
    (void)error;
    printf("%lld\t%s\t%lld\t%s\n", (long long)row, topic, (long long)attempts,
           reason);
    return SKR_OK;
}

static enum skr_code
add_to_table(const char *sql, void *user, struct skr_error *error)
{
    printf("%s\n", sql);
    return skr_schema_run(sql, user, error);
}

static enum skr_code
migrate(const struct skr_table *table, struct skr_db *db,
        struct skr_error *error)
{
    enum skr_code code = skr_table_create(table, db, error);
    if (code == SKR_OK)
        code = table->ops->complete(table, db, add_to_table, db, error);
    return code;
}

enum chore { CHORE_MIGRATE, CHORE_SHOW, CHORE_RETRY, CHORE_REMOVE };

static enum skr_code
work_on(const struct skr_table *table, struct skr_db *db, enum chore chore,
        int64_t row, struct skr_error *error)
{
    uint64_t changed = 0;
    enum skr_code code = SKR_OK;
    switch (chore) {
    case CHORE_MIGRATE: return migrate(table, db, error);
    case CHORE_SHOW:
        return skr_kafka_outbox_show(table, db, print_row, NULL, error);
    case CHORE_RETRY:
        code = skr_kafka_outbox_retry(table, db, row, &changed, error);
        break;
    case CHORE_REMOVE:
        code = skr_kafka_outbox_remove(table, db, row, &changed, error);
        break;
    }
    if (code == SKR_OK)
        printf("%llu rows\n", (unsigned long long)changed);
    return code;
}

static enum skr_code
read_chore(const struct skr_arguments *arguments, enum chore *chore,
           int64_t *row, struct skr_error *error)
{
    static const char *const words[] = {[CHORE_SHOW] = "show",
                                        [CHORE_RETRY] = "retry",
                                        [CHORE_REMOVE] = "remove"};
    size_t count = arguments->positional_count;
    const char *const *given = arguments->positional;
    *row = 0;
    *chore = CHORE_MIGRATE;
    if (count == 1 && strcmp(given[0], "migrate") == 0)
        return SKR_OK;
    for (size_t i = CHORE_SHOW; i < SKR_COUNT_OF(words) && count > 1; i++)
        if (strcmp(given[0], "errored") == 0 && strcmp(given[1], words[i]) == 0)
            *chore = (enum chore)i;
    bool is_row = count < 3 || skr_text_number(given[2], 1, INT64_MAX, row);
    if (*chore != CHORE_MIGRATE && is_row)
        return SKR_OK;
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "migrate, errored show, errored retry [ID] or errored "
                    "remove [ID] is needed");
}

enum skr_code
skr_kafka_relay_tend(const struct skr_kafka_relay_settings *settings,
                     const struct skr_arguments *arguments,
                     struct skr_error *error)
{
    enum chore chore;
    int64_t row;
    struct skr_table *table = NULL;
    enum skr_code code = read_chore(arguments, &chore, &row, error);
    if (code == SKR_OK && row != 0 && settings->database_count > 1)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "row %lld: of which database? Name one by --db-name",
                        (long long)row);
    if (code == SKR_OK)
        code = skr_kafka_relay_table(settings, true, &table, error);
    for (size_t i = 0; i < settings->database_count && code == SKR_OK; i++) {
        struct skr_db *db = NULL;
        code = skr_kafka_relay_open(settings, i, chore == CHORE_MIGRATE, &db,
                                    error);
        if (code == SKR_OK)
            code = work_on(table, db, chore, row, error);
        if (code != SKR_OK)
            skr_error_prefix(error, "database %s", settings->names[i]);
        skr_db_close(db);
    }
    skr_table_free(table);
    return code;
}
