// SPDX-License-Identifier: MIT
// The statements of skirnir_attempt. The rows are kept in the database since
// the count of attempts has to survive a consumer that is killed.

#include "store/attempt/attempt.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "db/run.h"
#include "db/sql.h"
#include "store/schema.h"

#include <stdlib.h>
#include <string.h>

static const int64_t longest_life_s = 7 * 24 * 3600;

static const struct skr_index indexes[] = {
    {.name = "idx_attempt_since", .columns = "since"},
};

static const struct skr_schema schema = {
    .columns = "message_id {message_id} NOT NULL PRIMARY KEY,\n"
               "    count INTEGER NOT NULL,\n"
               "    since {timestamp} NOT NULL",
    .indexes = indexes,
    .index_count = SKR_COUNT_OF(indexes),
};

static const char check_sql[] =
    "SELECT message_id, count, since FROM " SKR_ATTEMPT_TABLE " LIMIT 0";
// Parameters: key, count.
static const char insert_sql[] =
    "INSERT INTO " SKR_ATTEMPT_TABLE " (message_id, count, since) "
    "VALUES (?, ?, {now}) {insert_once}";
// Parameter: key. So are those of the next three.
static const char raise_sql[] =
    "UPDATE " SKR_ATTEMPT_TABLE " SET count = count + 1 WHERE message_id = ?";
static const char lower_sql[] =
    "UPDATE " SKR_ATTEMPT_TABLE " SET count = count - 1 WHERE message_id = ?";
static const char find_sql[] =
    "SELECT count FROM " SKR_ATTEMPT_TABLE " WHERE message_id = ?";
static const char remove_sql[] =
    "DELETE FROM " SKR_ATTEMPT_TABLE " WHERE message_id = ?";
// Parameter: seconds.
static const char clean_sql[] =
    "DELETE FROM " SKR_ATTEMPT_TABLE " WHERE since < {now_minus}";

struct skr_attempts {
    struct skr_arena arena;
    const char *insert, *raise, *lower, *find, *remove, *clean;
};

static bool
fill(struct skr_attempts *attempts, const struct skr_dialect *dialect)
{
    const struct {
        const char *sql_template;
        const char **sql;
    } texts[] = {
        {insert_sql, &attempts->insert}, {raise_sql, &attempts->raise},
        {lower_sql, &attempts->lower},   {find_sql, &attempts->find},
        {remove_sql, &attempts->remove}, {clean_sql, &attempts->clean},
    };
    for (size_t i = 0; i < SKR_COUNT_OF(texts); i++) {
        *texts[i].sql = skr_sql_fill(dialect, &attempts->arena,
                                     texts[i].sql_template, NULL, 0);
        if (*texts[i].sql == NULL)
            return false;
    }
    return true;
}

enum skr_code
skr_attempts_new(const struct skr_dialect *dialect,
                 struct skr_attempts **attempts, struct skr_error *error)
{
    struct skr_attempts *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    if (!fill(made, dialect)) {
        skr_attempts_free(made);
        return skr_fail_memory(error);
    }
    *attempts = made;
    return SKR_OK;
}

void
skr_attempts_free(struct skr_attempts *attempts)
{
    if (attempts == NULL)
        return;
    skr_arena_fini(&attempts->arena);
    free(attempts);
}

enum skr_code
skr_attempts_setup(const struct skr_dialect *dialect, skr_sql_text_fn *each,
                   void *user, struct skr_error *error)
{
    return skr_schema_write(&schema, dialect, SKR_ATTEMPT_TABLE, NULL, each,
                            user, error);
}

enum skr_code
skr_attempts_create(struct skr_db *db, struct skr_error *error)
{
    enum skr_code code = skr_schema_begin(db, error);
    if (code != SKR_OK)
        return code;
    code = skr_attempts_setup(skr_db_dialect(db), skr_schema_run, db, error);
    return skr_schema_end(db, code, error);
}

enum skr_code
skr_attempts_check(const struct skr_attempts *attempts, struct skr_db *db,
                   struct skr_error *error)
{
    (void)attempts;
    enum skr_code code =
        skr_sql_run(skr_db_tx(db), check_sql, SKR_NO_VALUES, NULL, error);
    if (code == SKR_MISSING)
        return skr_fail(error, SKR_MISSING, SKR_GIVE_UP,
                        "there is no table " SKR_ATTEMPT_TABLE);
    if (code != SKR_OK)
        return code;
    return skr_schema_check_engine(skr_db_tx(db), SKR_ATTEMPT_TABLE, error);
}

static enum skr_code
run(struct skr_tx tx, const char *sql, struct skr_id key, uint64_t *affected,
    struct skr_error *error)
{
    return skr_sql_run(tx, sql, (struct skr_values){1, {skr_bind_id(&key)}},
                       affected, error);
}

static enum skr_code
insert(const struct skr_attempts *attempts, struct skr_tx tx, struct skr_id key,
       int64_t count, struct skr_error *error)
{
    uint64_t affected = 0;
    const struct skr_values values = {
        2, {skr_bind_id(&key), skr_bind_integer(count)}};
    enum skr_code code =
        skr_sql_run(tx, attempts->insert, values, &affected, error);
    if (code == SKR_OK && affected == 0)
        return skr_fail(error, SKR_DUPLICATE, SKR_GIVE_UP,
                        "the row is there already");
    return code;
}

static enum skr_code
find(const struct skr_attempts *attempts, struct skr_tx tx, struct skr_id key,
     uint32_t *count, struct skr_error *error)
{
    int64_t number = 0;
    enum skr_code code = skr_sql_number(
        tx, attempts->find, (struct skr_values){1, {skr_bind_id(&key)}},
        &number, error);
    // A count that was lowered too often is as good as none.
    *count = number > 0 ? (uint32_t)number : 0;
    return code;
}

static enum skr_code
raise_in(const struct skr_attempts *attempts, struct skr_tx tx,
         struct skr_id key, uint32_t *count, struct skr_error *error)
{
    uint64_t affected = 0;
    enum skr_code code = run(tx, attempts->raise, key, &affected, error);
    if (code == SKR_OK && affected == 0) {
        code = insert(attempts, tx, key, 1, error);
        // Another has just begun an attempt at the same.
        if (code == SKR_DUPLICATE)
            code = run(tx, attempts->raise, key, NULL, error);
    }
    return code == SKR_OK ? find(attempts, tx, key, count, error) : code;
}

struct skr_id
skr_attempts_key(struct skr_id id, const char *consumer, const char *what)
{
    struct skr_hash hash =
        skr_hash_add(skr_hash_start(), id.bytes, sizeof(id.bytes));
    hash = skr_hash_add_text(hash, consumer);
    hash = skr_hash_add_text(hash, what);
    struct skr_id key;
    memcpy(key.bytes, &hash, sizeof(key.bytes));
    return key;
}

enum skr_code
skr_attempts_raise(const struct skr_attempts *attempts, struct skr_db *db,
                   struct skr_id key, uint32_t *count, struct skr_error *error)
{
    uint32_t raised = 0;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = raise_in(attempts, skr_db_tx(db), key, &raised, error);
    if (code == SKR_OK)
        code = skr_db_commit(db, error);
    else
        skr_db_rollback(db);
    if (code == SKR_OK)
        *count = raised;
    return code;
}

enum skr_code
skr_attempts_lower(const struct skr_attempts *attempts, struct skr_tx tx,
                   struct skr_id key, struct skr_error *error)
{
    return run(tx, attempts->lower, key, NULL, error);
}

enum skr_code
skr_attempts_mark(const struct skr_attempts *attempts, struct skr_tx tx,
                  struct skr_id key, struct skr_error *error)
{
    return insert(attempts, tx, key, 0, error);
}

enum skr_code
skr_attempts_take(const struct skr_attempts *attempts, struct skr_tx tx,
                  struct skr_id key, bool *was_there, struct skr_error *error)
{
    uint64_t affected = 0;
    enum skr_code code = run(tx, attempts->remove, key, &affected, error);
    if (code == SKR_OK)
        *was_there = affected > 0;
    return code;
}

enum skr_code
skr_attempts_remove(const struct skr_attempts *attempts, struct skr_tx tx,
                    struct skr_id key, struct skr_error *error)
{
    return run(tx, attempts->remove, key, NULL, error);
}

enum skr_code
skr_attempts_clean(const struct skr_attempts *attempts, struct skr_tx tx,
                   struct skr_error *error)
{
    return skr_sql_run(tx, attempts->clean, skr_values("%jd", longest_life_s),
                       NULL, error);
}
