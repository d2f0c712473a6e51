// SPDX-License-Identifier: MIT
// `kafka-relay migrate`, and what becomes of rows that are errored.

#include "app/commands/kafka_relay.h"
#include "app/console/grid.h"
#include "app/console/progress.h"
#include "app/parts/completing.h"
#include "base/error.h"
#include "base/text.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum chore { CHORE_MIGRATE, CHORE_SHOW, CHORE_RETRY, CHORE_REMOVE };

struct errand {
    const struct skr_kafka_relay_settings *settings;
    enum chore chore;
    int64_t row;  // 0: all
    struct skr_store *table;
    size_t database;  // whose turn it is
    uint64_t found;
};

// With several databases a number alone says nothing.
static void
print_database(const struct errand *errand)
{
    if (errand->settings->database_count > 1)
        printf("%s\t", errand->settings->names[errand->database]);
}

static enum skr_code
print_row(int64_t row, const char *topic, const char *reason, int64_t attempts,
          void *user, struct skr_error *error)
{
    struct errand *errand = user;
    (void)error;
    if (errand->row != 0 && errand->row != row)
        return SKR_OK;
    errand->found++;
    print_database(errand);
    printf("%lld\t", (long long)row);
    skr_print_plain(topic, strlen(topic), false, stdout);
    printf("\t%lld\t", (long long)attempts);
    skr_print_plain(reason, strlen(reason), false, stdout);
    printf("\n");
    return SKR_OK;
}

// On standard error, so that the list stays one.
static void
say_of_table(const struct errand *errand, const char *text)
{
    fprintf(stderr, "table %s in database %s %s\n", errand->settings->table,
            errand->settings->names[errand->database], text);
}

static enum skr_code
show(struct errand *errand, struct skr_db *db, struct skr_error *error)
{
    uint64_t before = errand->found;
    enum skr_code code =
        skr_kafka_outbox_show(errand->table, db, print_row, errand, error);
    if (code == SKR_OK && errand->row == 0 && errand->found == before)
        say_of_table(errand, "has no errored rows");
    if (code == SKR_OK && errand->row != 0 && errand->found == 0)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "there is no errored row %lld", (long long)errand->row);
    return code;
}

static enum skr_code
migrate(const struct errand *errand, struct skr_db *db, struct skr_error *error)
{
    enum skr_code code = skr_store_create(errand->table, db, error);
    if (code == SKR_OK)
        code = skr_complete_table(errand->table, db, error);
    if (code == SKR_OK)
        say_of_table(errand, "is there, and lacks nothing");
    return code;
}

typedef enum skr_code
work_fn(struct errand *errand, struct skr_db *db, struct skr_error *error);

static enum skr_code
work_on(struct errand *errand, struct skr_db *db, struct skr_error *error)
{
    uint64_t changed = 0;
    enum skr_code code = SKR_OK;
    switch (errand->chore) {
    case CHORE_MIGRATE: return migrate(errand, db, error);
    case CHORE_SHOW: return show(errand, db, error);
    case CHORE_RETRY:
        code = skr_kafka_outbox_retry(errand->table, db, errand->row, &changed,
                                      error);
        break;
    case CHORE_REMOVE:
        code = skr_kafka_outbox_remove(errand->table, db, errand->row, &changed,
                                       error);
        break;
    }
    if (code != SKR_OK)
        return code;
    print_database(errand);
    printf("%llu rows\n", (unsigned long long)changed);
    return SKR_OK;
}

static enum skr_code
count(struct errand *errand, struct skr_db *db, struct skr_error *error)
{
    struct skr_kafka_outbox_counts counts = {0};
    enum skr_code code =
        skr_kafka_outbox_count(errand->table, db, &counts, error);
    errand->found += errand->row == 0 ? (uint64_t)counts.errored : 1;
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
                    "'%.40s%s%.40s': migrate, errored show [ID], errored retry "
                    "[ID] or errored "
                    "remove [ID] is needed",
                    given[0], count > 1 ? " " : "", count > 1 ? given[1] : "");
}

enum skr_code
skr_kafka_relay_check_words(const struct skr_arguments *arguments,
                            struct skr_error *error)
{
    enum chore chore;
    int64_t row;
    if (arguments->positional_count == 0)
        return SKR_OK;
    return read_chore(arguments, &chore, &row, error);
}

static enum skr_code
work_on_each(struct errand *errand, work_fn *work, struct skr_error *error)
{
    const struct skr_kafka_relay_settings *settings = errand->settings;
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < settings->database_count && code == SKR_OK; i++) {
        struct skr_db *db = NULL;
        errand->database = i;
        code = skr_kafka_relay_open(settings, i, errand->chore == CHORE_MIGRATE,
                                    &db, error);
        if (code == SKR_OK)
            code = work(errand, db, error);
        if (code != SKR_OK)
            skr_error_prefix(error, "database %s", settings->names[i]);
        skr_db_close(db);
    }
    return code;
}

static enum skr_code
run(struct errand *errand, bool is_asked, struct skr_error *error)
{
    char question[80];
    enum skr_code code = SKR_OK;
    if (is_asked) {
        code = work_on_each(errand, count, error);
        snprintf(question, sizeof(question), "Remove %llu row%s for good?",
                 (unsigned long long)errand->found,
                 errand->found == 1 ? "" : "s");
    }
    if (code == SKR_OK && is_asked && errand->found > 0 && !skr_ask(question)) {
        printf("Nothing was removed.\n");
        return SKR_OK;
    }
    return code == SKR_OK ? work_on_each(errand, work_on, error) : code;
}

enum skr_code
skr_kafka_relay_tend(const struct skr_kafka_relay_settings *settings,
                     const struct skr_arguments *arguments,
                     struct skr_error *error)
{
    struct errand errand = {.settings = settings};
    enum skr_code code =
        read_chore(arguments, &errand.chore, &errand.row, error);
    bool is_asked =
        errand.chore == CHORE_REMOVE && !skr_arguments_has(arguments, "force");
    if (code == SKR_OK && errand.row != 0 && settings->database_count > 1)
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "row %lld: of which database? Name one by --db-name",
                        (long long)errand.row);
    if (code == SKR_OK && is_asked && !isatty(STDIN_FILENO))
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "there is no terminal to ask on; --force removes "
                        "without asking");
    if (code == SKR_OK)
        code = skr_kafka_relay_table(settings, true, &errand.table, error);
    if (code == SKR_OK)
        code = run(&errand, is_asked, error);
    skr_store_free(errand.table);
    return code;
}
