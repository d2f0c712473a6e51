// SPDX-License-Identifier: MIT
// The name of the lock that tells who works a queue.

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "db/run.h"
#include "db/sql.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

// The table as the database knows it, however its name was spelt here; one
// that is not there yet has that name. The driver adds the database.
static enum skr_code
find_place(struct skr_db *db, const char *table, struct skr_arena *arena,
           const char **place, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", table}};
    const char *sql =
        skr_sql_fill(skr_db_dialect(db), arena, "{table_place}", words, 1);
    struct skr_value found_place = {.kind = SKR_NULL};
    struct skr_row row = {.arena = arena, .columns = &found_place, .count = 1};
    *place = table;
    if (sql == NULL)
        return skr_fail_memory(error);
    enum skr_code code =
        skr_sql_row(skr_db_tx(db), sql, SKR_NO_VALUES, &row, error);
    if (code == SKR_OK && row.found)
        *place = found_place.bytes;
    return code;
}

enum skr_code
skr_store_name_lock(struct skr_db *db, const char *table, const char *queue,
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
