// SPDX-License-Identifier: MIT
// Who works a queue: the name of the lock that tells.

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "db/sql.h"
#include "table/messenger/inspect.h"
#include "table/messenger/layout.h"

#include <stdio.h>

// The table as the server knows it; where there is but one of a name in a
// database, it is the name. The driver adds the database.
static enum skr_code
find_place(struct skr_db *db, const char *table, struct skr_arena *arena,
           const char **place, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", table}};
    const char *sql =
        skr_sql_fill(skr_db_dialect(db), arena, "{table_place}", words, 1);
    struct skr_value found_place = {.kind = SKR_NULL};
    bool found = false;
    *place = table;
    if (sql == NULL)
        return skr_fail_memory(error);
    if (sql[0] == '\0')
        return SKR_OK;
    enum skr_code code =
        skr_tx_fetch_one(skr_db_tx(db), &(struct skr_statement){.sql = sql},
                         arena, &found_place, 1, &found, error);
    if (code == SKR_OK && found)
        *place = found_place.bytes;
    return code;
}

static enum skr_code
make_name(struct skr_db *db, const char *table, const char *queue,
          char name[SKR_LOCK_NAME_SIZE], struct skr_error *error)
{
    struct skr_arena arena = {0};
    const char *place = NULL;
    enum skr_code code = find_place(db, table, &arena, &place, error);
    if (code == SKR_OK) {
        struct skr_hash hash = skr_hash_add_text(skr_hash_start(), place);
        hash = skr_hash_add_text(hash, queue);
        snprintf(name, SKR_LOCK_NAME_SIZE, "relay-%016llx",
                 (unsigned long long)(hash.high ^ hash.low));
    }
    skr_arena_fini(&arena);
    return code;
}

enum skr_code
skr_messenger_lock_name(const struct skr_table *table, struct skr_db *db,
                        char name[SKR_LOCK_NAME_SIZE], struct skr_error *error)
{
    const struct skr_messenger *messenger = skr_messenger_of(table);
    return make_name(db, messenger->name, messenger->queue, name, error);
}

enum skr_code
skr_queue_holder(struct skr_db *db, const struct skr_queue_place *place,
                 char holder[SKR_HOLDER_SIZE], struct skr_error *error)
{
    char name[SKR_LOCK_NAME_SIZE];
    enum skr_code code = make_name(db, place->table, place->queue, name, error);
    if (code != SKR_OK)
        return code;
    return db->ops->holder(db, name, holder, error);
}
