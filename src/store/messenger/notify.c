// SPDX-License-Identifier: MIT
// Rows that tell of themselves, on databases that can do that.

#include "base/error.h"
#include "base/text.h"
#include "store/messenger/layout.h"

static enum skr_code
is_there(const struct skr_messenger *messenger, struct skr_db *db,
         struct skr_arena *arena, bool *found, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", messenger->name}};
    const char *sql =
        skr_sql_fill(messenger->dialect, arena, "{find_notify}", words, 1);
    if (sql == NULL)
        return skr_fail_memory(error);
    struct skr_value one = {.kind = SKR_NULL};
    return skr_tx_fetch_one(skr_db_tx(db), &(struct skr_statement){.sql = sql},
                            arena, &one, 1, found, error);
}

static enum skr_code
give(const struct skr_messenger *messenger, struct skr_arena *arena,
     const char *const *templates, size_t count, skr_sql_text_fn *each,
     void *user, struct skr_error *error)
{
    const struct skr_word words[] = {{"table", messenger->name}};
    enum skr_code code = SKR_OK;
    for (size_t i = 0; code == SKR_OK && i < count; i++) {
        const char *sql =
            skr_sql_fill(messenger->dialect, arena, templates[i], words, 1);
        if (sql == NULL)
            return skr_fail_memory(error);
        if (sql[0] == '\0')
            return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                            "%s cannot tell a relay of new rows, as only "
                            "PostgreSQL has LISTEN and NOTIFY; relays look for "
                            "rows by themselves there",
                            messenger->dialect->name);
        code = each(sql, user, error);
    }
    return code;
}

// A trigger that is there stays: to replace it the table would be locked.
enum skr_code
skr_messenger_notify(const struct skr_store *table, struct skr_db *db,
                     bool wanted, skr_sql_text_fn *each, void *user,
                     struct skr_error *error)
{
    static const char *const make[] = {"{notify_function}", "{notify_trigger}"};
    static const char *const drop[] = {"{drop_notify_trigger}",
                                       "{drop_notify_function}"};
    const struct skr_messenger *messenger = skr_messenger_of(table);
    struct skr_arena arena = {0};
    bool found = false;
    enum skr_code code = SKR_OK;
    if (wanted && db != NULL) {
        code = give(messenger, &arena, make, 1, each, user, error);
        if (code == SKR_OK)
            code = is_there(messenger, db, &arena, &found, error);
        if (code == SKR_OK && !found)
            code = give(messenger, &arena, make + 1, 1, each, user, error);
    } else if (wanted) {
        code = give(messenger, &arena, make, SKR_COUNT_OF(make), each, user,
                    error);
    } else {
        code = give(messenger, &arena, drop, SKR_COUNT_OF(drop), each, user,
                    error);
    }
    skr_arena_fini(&arena);
    return code;
}
