// SPDX-License-Identifier: MIT
// The statements of the deduplication table, and of the table that it has
// replaced, whose records still count.

#include "store/deduplication/deduplication.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"
#include "db/sql.h"
#include "store/cleaning.h"
#include "store/schema.h"

#include <stdlib.h>
#include <string.h>

static const struct skr_index indexes[] = {
    {.name = "idx_dedup_processed_at", .columns = "processed_at"},
};

static const struct skr_schema schema = {
    .columns = "message_id {message_id} NOT NULL PRIMARY KEY,\n"
               "    message_name VARCHAR(255) NOT NULL,\n"
               "    processed_at {timestamp} NOT NULL",
    .indexes = indexes,
    .index_count = SKR_COUNT_OF(indexes),
};

// Parameters: id, name, so often as there are rows.
static const char admit_start[] =
    "INSERT INTO {table} (message_id, message_name, processed_at) VALUES ";
static const char admit_row[] = "(?, ?, {now})";
static const char admit_end[] = " {insert_once}";
static const char find_sql[] = "SELECT 1 FROM {table} WHERE message_id = ?";
// Parameters: time, seconds, rows.
static const char find_old_sql[] =
    "SELECT message_id, processed_at FROM {table} WHERE processed_at >= ? AND "
    "processed_at < {now_minus} ORDER BY processed_at LIMIT ?";
// Parameter: seconds.
static const char count_old_sql[] =
    "SELECT COUNT(*) FROM {table} WHERE processed_at < {now_minus}";
// The mark of the moment in which this table took over from another. No message
// has an id of zeros, and the record ages as every other does.
static const char mark_sql[] =
    "INSERT INTO {table} (message_id, message_name, processed_at) "
    "SELECT {unset_id}, '{before_table:name}', {now} FROM (SELECT 1 AS one) AS "
    "single "
    "WHERE NOT EXISTS (SELECT 1 FROM {table})";
static const char has_mark_sql[] =
    "SELECT 1 FROM {table} WHERE message_id = {unset_id}";
static const char inherits_sql[] =
    "SELECT 1 FROM {before_table} AS earlier, {table} AS mark "
    "WHERE mark.message_id = {unset_id} "
    "AND earlier.processed_at < mark.processed_at AND NOT EXISTS "
    "(SELECT 1 FROM {table} WHERE message_id <> {unset_id}) LIMIT 1";
// Parameters: ids.
static const char find_before_sql[] =
    "SELECT 1 FROM {before_table} AS earlier, {table} AS mark "
    "WHERE mark.message_id = {unset_id} "
    "AND earlier.processed_at < mark.processed_at "
    "AND earlier.message_id IN ({ids}) LIMIT 1";
static const char forget_sql[] = "DELETE FROM {table} WHERE message_id = ?";

// So many rows at a time, so that few texts are prepared.
static const size_t admit_sizes[] = {64, 16, 4, 1};
enum { ADMIT_SIZES = SKR_COUNT_OF(admit_sizes), MOST_AT_ONCE = 64 };

struct skr_deduplication {
    struct skr_arena arena;
    const struct skr_dialect *dialect;
    const char *name;
    const char *admit_sql[ADMIT_SIZES];
    const char *find_sql;
    const char *forget_sql;
    const char *find_old_sql;
    const char *count_old_sql;

    const char *before;  // the table that this one took over from; NULL: none
    const char *mark_sql;
    const char *has_mark_sql;
    const char *inherits_sql;
    const char *find_before_sql[ADMIT_SIZES];
    bool looks_back;  // what that recorded until then counts, too
};

static bool
fill_admit(struct skr_deduplication *table, size_t which)
{
    const struct skr_word words[] = {{"table", table->name}};
    struct skr_text text = {0};
    skr_text_add_string(&text, admit_start);
    for (size_t i = 0; i < admit_sizes[which]; i++)
        skr_text_add_format(&text, "%s%s", i == 0 ? "" : ", ", admit_row);
    skr_text_add_string(&text, admit_end);
    if (!text.broken)
        table->admit_sql[which] =
            skr_sql_fill(table->dialect, &table->arena, text.bytes, words, 1);
    skr_text_fini(&text);
    return table->admit_sql[which] != NULL;
}

struct text {
    const char *sql, **filled;
};

// With the names of the table and of the one before it, if there is any.
static bool
fill_all(struct skr_deduplication *table, const struct text *texts,
         size_t count)
{
    const struct skr_word words[] = {{"table", table->name},
                                     {"before_table", table->before}};
    size_t word_count = table->before == NULL ? 1 : 2;
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        *texts[i].filled = skr_sql_fill(table->dialect, &table->arena,
                                        texts[i].sql, words, word_count);
        ok = ok && *texts[i].filled != NULL;
    }
    return ok;
}

static bool
fill(struct skr_deduplication *table)
{
    const struct text texts[] = {
        {find_sql, &table->find_sql},
        {forget_sql, &table->forget_sql},
        {find_old_sql, &table->find_old_sql},
        {count_old_sql, &table->count_old_sql},
    };
    bool ok = fill_all(table, texts, SKR_COUNT_OF(texts));
    for (size_t i = 0; ok && i < ADMIT_SIZES; i++)
        ok = fill_admit(table, i);
    return ok;
}

enum skr_code
skr_deduplication_new(const struct skr_dialect *dialect, const char *name,
                      struct skr_deduplication **table, struct skr_error *error)
{
    if (name == NULL)
        name = "message_broker_deduplication";
    enum skr_code code = skr_schema_check_name(name, error);
    if (code != SKR_OK)
        return code;
    struct skr_deduplication *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return skr_fail_memory(error);
    made->dialect = dialect;
    made->name = skr_arena_text(&made->arena, name, strlen(name));
    if (made->name == NULL || !fill(made)) {
        skr_deduplication_free(made);
        return skr_fail_memory(error);
    }
    *table = made;
    return SKR_OK;
}

static bool
fill_find_before(struct skr_deduplication *table, size_t which)
{
    const char *ids = skr_sql_list(&table->arena, admit_sizes[which]);
    const struct skr_word words[] = {
        {"table", table->name}, {"before_table", table->before}, {"ids", ids}};
    if (ids != NULL)
        table->find_before_sql[which] =
            skr_sql_fill(table->dialect, &table->arena, find_before_sql, words,
                         SKR_COUNT_OF(words));
    return table->find_before_sql[which] != NULL;
}

enum skr_code
skr_deduplication_succeed(struct skr_deduplication *table, const char *before,
                          struct skr_error *error)
{
    if (before == NULL || table->before != NULL ||
        skr_sql_same_table(table->dialect, before, table->name))
        return SKR_OK;
    enum skr_code code = skr_schema_check_name(before, error);
    if (code != SKR_OK)
        return code;
    table->before = skr_arena_text(&table->arena, before, strlen(before));
    if (table->before == NULL)
        return skr_fail_memory(error);
    const struct text texts[] = {
        {mark_sql, &table->mark_sql},
        {has_mark_sql, &table->has_mark_sql},
        {inherits_sql, &table->inherits_sql},
    };
    bool ok = fill_all(table, texts, SKR_COUNT_OF(texts));
    for (size_t i = 0; ok && i < ADMIT_SIZES; i++)
        ok = fill_find_before(table, i);
    return ok ? SKR_OK : skr_fail_memory(error);
}

void
skr_deduplication_free(struct skr_deduplication *table)
{
    if (table == NULL)
        return;
    skr_arena_fini(&table->arena);
    free(table);
}

enum skr_code
skr_deduplication_setup(const struct skr_deduplication *table,
                        skr_sql_text_fn *each, void *user,
                        struct skr_error *error)
{
    const struct skr_schema_target target = {table->dialect, NULL, each, user};
    enum skr_code code = skr_schema_write(&schema, table->name, &target, error);
    if (code == SKR_OK && table->before != NULL)
        code = each(table->mark_sql, user, error);
    return code;
}

enum skr_code
skr_deduplication_create(const struct skr_deduplication *table,
                         struct skr_db *db, struct skr_error *error)
{
    enum skr_code code = skr_schema_begin(db, error);
    if (code != SKR_OK)
        return code;
    code = skr_deduplication_setup(table, skr_schema_run, db, error);
    return skr_schema_end(db, code, error);
}

// Looks for as many ids as there are of this size.
static enum skr_code
find_before(const struct skr_deduplication *table, struct skr_tx tx,
            const struct skr_id *ids, size_t which, bool *found,
            struct skr_error *error)
{
    struct skr_value values[MOST_AT_ONCE];
    struct skr_row row = {.count = 0};
    for (size_t i = 0; i < admit_sizes[which]; i++)
        values[i] = skr_bind_id(&ids[i]);
    enum skr_code code = skr_sql_fetch(tx,
                                       &(struct skr_statement){
                                           .sql = table->find_before_sql[which],
                                           .values = values,
                                           .value_count = admit_sizes[which],
                                       },
                                       &row, error);
    *found = row.found;
    return code;
}

enum skr_code
skr_deduplication_check(const struct skr_deduplication *table,
                        struct skr_db *db, struct skr_error *error)
{
    return skr_schema_check(
        skr_db_tx(db),
        &(struct skr_needs){table->name,
                            "message_id, message_name, processed_at",
                            "run `skirnir setup-deduplication --force`"},
        error);
}

enum skr_code
skr_deduplication_look_back(struct skr_deduplication *table, struct skr_db *db,
                            bool *inherits, struct skr_error *error)
{
    struct skr_error problem = {0};
    table->looks_back = *inherits = false;
    if (table->before == NULL)
        return SKR_OK;
    enum skr_code code =
        skr_sql_finds(skr_db_tx(db), table->has_mark_sql, SKR_NO_VALUES,
                      &table->looks_back, error);
    if (code != SKR_OK || !table->looks_back)
        return code;
    // Where there never was another, nothing was recorded in it.
    code = skr_sql_finds(skr_db_tx(db), table->inherits_sql, SKR_NO_VALUES,
                         inherits, &problem);
    if (code == SKR_MISSING) {
        table->looks_back = false;
        return SKR_OK;
    }
    if (code != SKR_OK && error != NULL)
        *error = problem;
    return code;
}

bool
skr_deduplication_has_room(const char *message_name)
{
    size_t length = 0;
    for (const char *at = message_name; *at != '\0'; at++) {
        // Bytes that go on with a character look like 10xxxxxx.
        length += ((unsigned char)*at & 0xc0) != 0x80;
        if (length > SKR_DEDUPLICATION_NAME_LENGTH)
            return false;
    }
    return true;
}

static enum skr_code
fail_duplicate(struct skr_error *error)
{
    return skr_fail(error, SKR_DUPLICATE, SKR_GIVE_UP,
                    "the message was processed before");
}

// Whether one of them was recorded by the table before this one.
static enum skr_code
refuse_earlier(const struct skr_deduplication *table, struct skr_tx tx,
               const struct skr_admission *rows, size_t which,
               struct skr_error *error)
{
    struct skr_id ids[MOST_AT_ONCE];
    bool found = false;
    if (!table->looks_back)
        return SKR_OK;
    for (size_t i = 0; i < admit_sizes[which]; i++)
        ids[i] = rows[i].id;
    enum skr_code code = find_before(table, tx, ids, which, &found, error);
    return code == SKR_OK && found ? fail_duplicate(error) : code;
}

static enum skr_code
admit_rows(const struct skr_deduplication *table, struct skr_tx tx,
           const struct skr_admission *rows, size_t which,
           struct skr_error *error)
{
    struct skr_value values[2 * MOST_AT_ONCE];
    size_t count = admit_sizes[which];
    uint64_t affected = 0;
    enum skr_code code = refuse_earlier(table, tx, rows, which, error);
    if (code != SKR_OK)
        return code;
    for (size_t i = 0; i < count; i++) {
        if (!skr_deduplication_has_room(rows[i].message_name))
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "the name of a message has at most %d characters",
                            SKR_DEDUPLICATION_NAME_LENGTH);
        // Bound as bytes: a text that is cut to 16 of them would make two
        // messages count as one.
        values[2 * i] = skr_bind_id(&rows[i].id);
        values[2 * i + 1] = skr_bind_text(rows[i].message_name);
    }
    code = skr_tx_run(tx,
                      &(struct skr_statement){
                          .sql = table->admit_sql[which],
                          .values = values,
                          .value_count = 2 * count,
                          .affected = &affected,
                      },
                      error);
    return code == SKR_OK && affected < count ? fail_duplicate(error) : code;
}

enum skr_code
skr_deduplication_admit(const struct skr_deduplication *table, struct skr_tx tx,
                        struct skr_id id, const char *message_name,
                        struct skr_error *error)
{
    const struct skr_admission row = {.id = id, .message_name = message_name};
    return admit_rows(table, tx, &row, ADMIT_SIZES - 1, error);
}

enum skr_code
skr_deduplication_admit_all(const struct skr_deduplication *table,
                            struct skr_tx tx, const struct skr_admission *all,
                            size_t count, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    size_t done = 0;
    for (size_t which = 0; which < ADMIT_SIZES; which++)
        for (; code == SKR_OK && count - done >= admit_sizes[which];
             done += admit_sizes[which])
            code = admit_rows(table, tx, &all[done], which, error);
    return code;
}

enum skr_code
skr_deduplication_find(const struct skr_deduplication *table, struct skr_tx tx,
                       struct skr_id id, bool *found, struct skr_error *error)
{
    enum skr_code code =
        skr_sql_finds(tx, table->find_sql,
                      (struct skr_values){1, {skr_bind_id(&id)}}, found, error);
    if (code != SKR_OK || *found || !table->looks_back)
        return code;
    return find_before(table, tx, &id, ADMIT_SIZES - 1, found, error);
}

enum skr_code
skr_deduplication_forget(const struct skr_deduplication *table,
                         struct skr_tx tx, struct skr_id id,
                         struct skr_error *error)
{
    return skr_sql_run(tx, table->forget_sql,
                       (struct skr_values){1, {skr_bind_id(&id)}}, NULL, error);
}

// One by one: a list might be looked for in all of the table, and lock it.
static enum skr_code
forget_old(const void *sql, struct skr_tx tx,
           const union skr_cleaning_key *keys, size_t count, uint64_t *removed,
           struct skr_error *error)
{
    (void)count;
    uint64_t affected = 0;
    enum skr_code code =
        skr_sql_run(tx, sql, (struct skr_values){1, {skr_bind_id(&keys->id)}},
                    &affected, error);
    *removed += affected;
    return code;
}

enum skr_code
skr_deduplication_clean(const struct skr_deduplication *table,
                        const struct skr_cleaning *cleaning, struct skr_db *db,
                        uint64_t *removed, struct skr_error *error)
{
    return skr_cleaning_run(cleaning, db,
                            &(struct skr_cleaning_source){
                                .table = table->name,
                                .find_sql = table->find_old_sql,
                                .count_sql = table->count_old_sql,
                                .has_ids = true,
                                .remove = forget_old,
                                .most = 1,
                                .user = table->forget_sql,
                            },
                            removed, error);
}
