// SPDX-License-Identifier: MIT
// What all layouts share: setup in one transaction, and the names of the locks
// that tell who works a queue.

#include "store/store.h"

#include "base/hash.h"
#include "base/text.h"
#include "base/url.h"
#include "db/run.h"
#include "store/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct making {
    struct skr_db *db;
    struct skr_text made;
};

static enum skr_code
run_and_note(const char *sql, void *user, struct skr_error *error)
{
    struct making *making = user;
    char name[SKR_SCHEMA_NAME_SIZE];
    enum skr_code code = skr_schema_run(sql, making->db, error);
    if (code == SKR_OK && skr_schema_makes_table(sql, name))
        skr_text_add_format(&making->made, "%s%s",
                            making->made.size > 0 ? ", " : "", name);
    return code;
}

enum skr_code
skr_store_create_for(const struct skr_store *table, struct skr_db *db,
                     const struct skr_table_maker *maker,
                     struct skr_error *error)
{
    struct making making = {.db = db};
    // From many hosts at once: where DDL is transactional the second waits here
    // and then finds everything in place.
    enum skr_code code = skr_schema_begin(db, error);
    if (code != SKR_OK)
        return code;
    code = table->admin->setup(table, db, run_and_note, &making, error);
    code = skr_schema_end(db, code, error);
    if (code == SKR_OK && making.made.size > 0 && !making.made.broken)
        skr_store_log_made(maker, making.made.bytes);
    skr_text_fini(&making.made);
    return code;
}

enum skr_code
skr_store_create(const struct skr_store *table, struct skr_db *db,
                 struct skr_error *error)
{
    return skr_store_create_for(table, db, &(struct skr_table_maker){0}, error);
}

void
skr_store_log_made(const struct skr_table_maker *maker, const char *tables)
{
    char *database =
        maker->log == NULL ? NULL : skr_url_mask(maker->database_url);
    skr_log(maker->log, SKR_LOG_INFO, "database.table_made",
            SKR_LOG_TEXT("name", maker->name), SKR_LOG_TEXT("tables", tables),
            SKR_LOG_TEXT("database", database == NULL ? "" : database));
    free(database);
}

enum skr_code
skr_store_set_notify(const struct skr_store *table, struct skr_db *db,
                     bool wanted, struct skr_error *error)
{
    enum skr_code code = skr_schema_begin(db, error);
    if (code != SKR_OK)
        return code;
    code = table->admin->notify(table, db, wanted, skr_schema_run, db, error);
    return skr_schema_end(db, code, error);
}

void
skr_store_free(struct skr_store *table)
{
    if (table == NULL)
        return;
    skr_arena_fini(&table->arena);
    free(table);
}

// By the table as the database knows it, however its name was spelt here; one
// that is not there yet has that name. The driver adds the database.
enum skr_code
skr_store_name_lock(struct skr_db *db, const char *table, const char *queue,
                    char name[SKR_LOCK_NAME_SIZE], struct skr_error *error)
{
    struct skr_arena arena = {0};
    struct skr_value place;
    struct skr_row row = {.arena = &arena, .columns = &place, .count = 1};
    enum skr_code code =
        skr_sql_ask_table(skr_db_tx(db), "{table_place}", table, &row, error);
    if (code == SKR_OK) {
        struct skr_hash hash = skr_hash_add_text(
            skr_hash_start(), row.found ? place.bytes : table);
        hash = skr_hash_add_text(hash, queue);
        snprintf(name, SKR_LOCK_NAME_SIZE, "relay-%016llx",
                 (unsigned long long)(hash.high ^ hash.low));
    }
    skr_arena_fini(&arena);
    return code;
}

void
skr_store_name_attendance(const char lock_name[SKR_LOCK_NAME_SIZE],
                          enum skr_attendance kind,
                          char name[SKR_LOCK_NAME_SIZE])
{
    static const char *const words[] = {
        [SKR_ATTEND_CONSUMING] = "consumers",
        [SKR_ATTEND_WAITING] = "waiting",
    };
    snprintf(name, SKR_LOCK_NAME_SIZE, "%s%.20s", words[kind],
             lock_name + strcspn(lock_name, "-"));
}
