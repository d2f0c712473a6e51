// SPDX-License-Identifier: MIT
// The name of the lock that tells who works a queue.

#include "base/arena.h"
#include "base/hash.h"
#include "db/run.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

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
