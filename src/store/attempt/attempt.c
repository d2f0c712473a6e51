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

// Parameters: key, count.
static const char insert_sql[] =
    "INSERT INTO " SKR_ATTEMPT_TABLE " (message_id, count, since) "
    "VALUES (?, ?, {now}) {insert_once}";
// Parameter: key. So is that of the next.
static const char raise_sql[] =
    "UPDATE " SKR_ATTEMPT_TABLE " SET count = count + 1 WHERE message_id = ?";
static const char lower_sql[] =
    "UPDATE " SKR_ATTEMPT_TABLE " SET count = count - 1 WHERE message_id = ?";
// Parameters: count, key.
static const char set_sql[] =
    "UPDATE " SKR_ATTEMPT_TABLE " SET count = ? WHERE message_id = ?";
// Parameter: key.
static const char find_sql[] =
    "SELECT count FROM " SKR_ATTEMPT_TABLE " WHERE message_id = ?";
// Parameter: key.
static const char remove_sql[] =
    "DELETE FROM " SKR_ATTEMPT_TABLE " WHERE message_id = ?";
// Parameter: seconds.
static const char clean_sql[] =
    "DELETE FROM " SKR_ATTEMPT_TABLE " WHERE since < {now_minus}";

enum skr_code
skr_attempts_setup(const struct skr_dialect *dialect, skr_sql_text_fn *each,
                   void *user, struct skr_error *error)
{
    const struct skr_schema_target target = {dialect, NULL, each, user};
    return skr_schema_write(&schema, SKR_ATTEMPT_TABLE, &target, error);
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
skr_attempts_check(struct skr_db *db, struct skr_error *error)
{
    return skr_schema_check(skr_db_tx(db),
                            &(struct skr_needs){SKR_ATTEMPT_TABLE,
                                                "message_id, count, since",
                                                "run `skirnir setup`"},
                            error);
}

// Filled at each call: that costs less than a microsecond.
static enum skr_code
run(struct skr_tx tx, const char *sql_template, struct skr_values values,
    uint64_t *affected, int64_t *number, struct skr_error *error)
{
    struct skr_arena arena = {0};
    enum skr_code code;
    const char *sql =
        skr_sql_fill(tx.ops->dialect, &arena, sql_template, NULL, 0);
    if (sql == NULL)
        code = skr_fail_memory(error);
    else
        code = number == NULL ? skr_sql_run(tx, sql, values, affected, error)
                              : skr_sql_number(tx, sql, values, number, error);
    skr_arena_fini(&arena);
    return code;
}

static enum skr_code
run_by_key(struct skr_tx tx, const char *sql_template, struct skr_id key,
           uint64_t *affected, int64_t *number, struct skr_error *error)
{
    return run(tx, sql_template, (struct skr_values){1, {skr_bind_id(&key)}},
               affected, number, error);
}

static enum skr_code
insert(struct skr_tx tx, struct skr_id key, int64_t count,
       struct skr_error *error)
{
    uint64_t affected = 0;
    const struct skr_values values = {
        2, {skr_bind_id(&key), skr_bind_integer(count)}};
    enum skr_code code = run(tx, insert_sql, values, &affected, NULL, error);
    if (code == SKR_OK && affected == 0)
        return skr_fail(error, SKR_DUPLICATE, SKR_GIVE_UP,
                        "the row is there already");
    return code;
}

static enum skr_code
find(struct skr_tx tx, struct skr_id key, uint32_t *count,
     struct skr_error *error)
{
    int64_t number = 0;
    enum skr_code code = run_by_key(tx, find_sql, key, NULL, &number, error);
    // A count that was lowered too often is as good as none.
    *count = number > 0 ? (uint32_t)number : 0;
    return code;
}

static enum skr_code
raise_in(struct skr_tx tx, struct skr_id key, uint32_t *count,
         struct skr_error *error)
{
    uint64_t affected = 0;
    enum skr_code code = run_by_key(tx, raise_sql, key, &affected, NULL, error);
    if (code == SKR_OK && affected == 0) {
        code = insert(tx, key, 1, error);
        // Another has just begun an attempt at the same.
        if (code == SKR_DUPLICATE)
            code = run_by_key(tx, raise_sql, key, NULL, NULL, error);
    }
    return code == SKR_OK ? find(tx, key, count, error) : code;
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
skr_attempts_raise(struct skr_db *db, struct skr_id key, uint32_t *count,
                   struct skr_error *error)
{
    uint32_t raised = 0;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = raise_in(skr_db_tx(db), key, &raised, error);
    code = skr_db_end(db, code, error);
    if (code == SKR_OK)
        *count = raised;
    return code;
}

enum skr_code
skr_attempts_lower(struct skr_tx tx, struct skr_id key, struct skr_error *error)
{
    return run_by_key(tx, lower_sql, key, NULL, NULL, error);
}

enum skr_code
skr_attempts_add_receipt(struct skr_tx tx, struct skr_id key,
                         struct skr_error *error)
{
    return insert(tx, key, 0, error);
}

// The row's number, in parts that the column has room for: the higher one, for
// most rows 0, is that of a row of its own.
enum { LOW_BITS = 31 };

static enum skr_code
set(struct skr_tx tx, struct skr_id key, int64_t count, struct skr_error *error)
{
    const struct skr_values values = {
        2, {skr_bind_integer(count), skr_bind_id(&key)}};
    return run(tx, set_sql, values, NULL, NULL, error);
}

enum skr_code
skr_attempts_note_row(struct skr_tx tx, struct skr_id key, int64_t row,
                      struct skr_error *error)
{
    struct skr_id higher = skr_attempts_key(key, "", "row");
    enum skr_code code = set(tx, key, row & INT32_MAX, error);
    if (code == SKR_OK && row > INT32_MAX)
        code = insert(tx, higher, row >> LOW_BITS, error);
    return code == SKR_DUPLICATE ? set(tx, higher, row >> LOW_BITS, error)
                                 : code;
}

enum skr_code
skr_attempts_find_row(struct skr_tx tx, struct skr_id key, int64_t *row,
                      struct skr_error *error)
{
    uint32_t low = 0, higher = 0;
    enum skr_code code = find(tx, key, &low, error);
    if (code == SKR_OK)
        code = find(tx, skr_attempts_key(key, "", "row"), &higher, error);
    *row = (int64_t)higher << LOW_BITS | low;
    return code;
}

enum skr_code
skr_attempts_remove(struct skr_tx tx, struct skr_id key, bool *was_there,
                    struct skr_error *error)
{
    uint64_t affected = 0;
    enum skr_code code =
        run_by_key(tx, remove_sql, key, &affected, NULL, error);
    if (code == SKR_OK && was_there != NULL)
        *was_there = affected > 0;
    return code;
}

enum skr_code
skr_attempts_clean(struct skr_tx tx, struct skr_error *error)
{
    return run(tx, clean_sql, skr_values("%jd", longest_life_s), NULL, NULL,
               error);
}
