// SPDX-License-Identifier: MIT
// Two processes that add an index to one table at once are in each other's way:
// on PostgreSQL the second takes what the first is making for the rest of a
// failed attempt, and while it waits to drop that the first waits for its
// snapshot.

#include "app/app.h"
#include "base/error.h"
#include "store/schema.h"

#include <stdio.h>

enum { WAIT_MS = 1000 };

static const char lock_name[] = "setup";

static enum skr_code
note_lack(const char *sql, void *user, struct skr_error *error)
{
    (void)sql;
    (void)error;
    *(bool *)user = true;
    return SKR_OK;
}

static enum skr_code
say_wait(struct skr_db *db, struct skr_error *error)
{
    char holder[SKR_HOLDER_SIZE] = "";
    enum skr_code code = db->ops->locks->holder(db, lock_name, holder, error);
    if (code != SKR_OK)
        return code;
    printf("  waits for another setup in this database%s%s\n",
           holder[0] == '\0' ? "" : ": ", holder);
    fflush(stdout);
    return SKR_OK;
}

static enum skr_code
wait_for_turn(struct skr_db *db, struct skr_error *error)
{
    bool is_said = false;
    for (;;) {
        enum skr_code code =
            skr_db_lock(db, lock_name, SKR_LOCK_ALONE, -1, WAIT_MS, error);
        // Where no lock can be relied on it goes without, as well as it can.
        if (code == SKR_REFUSED && error->remedy == SKR_GIVE_UP) {
            skr_error_clear(error);
            return SKR_OK;
        }
        if (code == SKR_OK && !db->holds_lock && !is_said) {
            code = say_wait(db, error);
            is_said = true;
        }
        if (code != SKR_OK || db->holds_lock)
            return code;
    }
}

static enum skr_code
add_to_table(const char *sql, void *user, struct skr_error *error)
{
    // It may take as long as the table is large.
    printf("  running: %s\n", sql);
    fflush(stdout);
    enum skr_code code = skr_schema_run(sql, user, error);
    if (code == SKR_OK)
        printf("  ran: %s\n", sql);
    return code;
}

enum skr_code
skr_complete_table(const struct skr_store *table, struct skr_db *db,
                   struct skr_error *error)
{
    bool lacks = false;
    enum skr_code code =
        table->admin->complete(table, db, note_lack, &lacks, error);
    if (code != SKR_OK || !lacks)
        return code;
    code = wait_for_turn(db, error);
    if (code == SKR_OK)
        code = table->admin->complete(table, db, add_to_table, db, error);
    // Where a table that was renamed kept the names of its indexes, for one.
    lacks = false;
    if (code == SKR_OK)
        code = table->admin->complete(table, db, note_lack, &lacks, error);
    if (lacks)
        printf("  an index is still missing, as another has its name; rename "
               "or drop that one and run this again\n");
    skr_db_unlock(db);
    return code;
}
