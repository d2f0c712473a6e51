// SPDX-License-Identifier: MIT
// What removes rows of long ago and tidies tables up: once, or beside the work.

#include "app/commands/kafka_relay.h"
#include "app/console/progress.h"
#include "app/parts/cleaner.h"
#include "base/arena.h"
#include "base/error.h"
#include "db/run.h"
#include "db/sql.h"
#include "store/kafka_outbox/kafka_outbox.h"

#include <stdio.h>

enum { CLEAN_AGE_S = 3600 };

static enum skr_code
optimize(const struct skr_kafka_relay_settings *settings, struct skr_db *db,
         struct skr_error *error)
{
    const struct skr_word words[] = {{"table", settings->table}};
    struct skr_arena arena = {0};
    const char *sql =
        skr_sql_fill(skr_db_dialect(db), &arena, "{optimize_table}", words, 1);
    enum skr_code code = sql == NULL ? skr_fail_memory(error)
                                     : skr_sql_run(skr_db_tx(db), sql,
                                                   SKR_NO_VALUES, NULL, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
clean(const struct skr_kafka_relay_settings *settings,
      const struct skr_store *table, struct skr_db *db, struct skr_error *error)
{
    struct skr_progress progress;
    uint64_t removed = 0;
    struct skr_cleaning cleaning =
        skr_cleaner_shown_pace(&progress, CLEAN_AGE_S);
    cleaning.dry_run = settings->dry_run;
    skr_progress_begin(&progress, 0, 0);
    enum skr_code code = skr_cleaner_take_turn(db, &cleaning, error);
    if (code == SKR_OK)
        code = skr_kafka_outbox_clean(table, &cleaning, db, &removed, error);
    skr_progress_end(&progress);
    if (code == SKR_OK || removed > 0)
        printf("%s %llu published outbox records\n",
               settings->dry_run ? "would delete" : "deleted",
               (unsigned long long)removed);
    return code;
}

static enum skr_code
run_on(const struct skr_kafka_relay_settings *settings,
       const struct skr_store *table, size_t index, struct skr_error *error)
{
    struct skr_db *db = NULL;
    enum skr_code code =
        skr_kafka_relay_open(settings, index, false, &db, error);
    // Asked first, as MariaDB says of a table that is not there that it was
    // optimized.
    if (code == SKR_OK)
        code = table->admin->check(table, db, error);
    if (code == SKR_OK && settings->cleans)
        code = clean(settings, table, db, error);
    if (code == SKR_OK && settings->optimizes && !settings->dry_run)
        code = optimize(settings, db, error);
    if (code == SKR_OK && settings->optimizes && !settings->dry_run)
        fprintf(stderr, "table %s in database %s is optimized\n",
                settings->table, settings->names[index]);
    if (code != SKR_OK)
        skr_error_prefix(error, "database %s", settings->names[index]);
    skr_db_close(db);
    return code;
}

void
skr_kafka_relay_clean(struct skr_cleaner *cleaner, const void *user)
{
    const struct skr_kafka_relay_settings *settings = user;
    const struct skr_cleaning cleaning = skr_cleaner_pace(cleaner, CLEAN_AGE_S);
    struct skr_error error = {0};
    struct skr_store *table = NULL;
    enum skr_code code = skr_kafka_relay_table(settings, true, &table, &error);
    for (size_t i = 0;
         i < settings->database_count && !skr_cleaner_is_stopped(cleaner);
         i++) {
        struct skr_db *db = NULL;
        uint64_t removed = 0;
        if (table != NULL)
            code =
                skr_db_open(settings->database, settings->urls[i], &db, &error);
        if (code == SKR_OK)
            code = skr_cleaner_take_turn(db, &cleaning, &error);
        if (code == SKR_OK)
            code =
                skr_kafka_outbox_clean(table, &cleaning, db, &removed, &error);
        skr_db_close(db);
        skr_cleaner_say(cleaner, settings->names[i], code, removed, &error);
    }
    skr_store_free(table);
}

enum skr_code
skr_kafka_relay_run_jobs(const struct skr_kafka_relay_settings *settings,
                         struct skr_error *error)
{
    struct skr_store *table = NULL;
    enum skr_code code = SKR_OK;
    if (settings->sidecar_url != NULL)
        code = skr_kafka_relay_check_sidecar(settings->sidecar_url, error);
    if (code != SKR_OK)
        return code;
    code = skr_kafka_relay_table(settings, true, &table, error);
    for (size_t i = 0; i < settings->database_count && code == SKR_OK; i++)
        code = run_on(settings, table, i, error);
    skr_store_free(table);
    // It is told whatever became of the job, or it would run for ever.
    struct skr_error untold = {0};
    enum skr_code told =
        settings->sidecar_url == NULL
            ? SKR_OK
            : skr_kafka_relay_tell_sidecar(settings->sidecar_url, &untold);
    if (code == SKR_OK && told != SKR_OK)
        *error = untold;
    return code == SKR_OK ? told : code;
}
