// SPDX-License-Identifier: MIT
// Fills SQL templates from a dialect's words, numbers parameters where the
// database wants that, and makes lists of parameters.

#include "db/sql.h"

#include "base/arena.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

// What two of the dialects say, or that there is no such thing.
static const struct skr_word common[] = {
    {"open_transactions_inside", "{open_transactions}"},
    {"zone_names", "yes"},
    {"zone_offset", ""},
    {"unsigned_row_id", "{row_id}"},
    {"long_text", "TEXT"},
    {"key", "\"key\""},
    {"table_options", ""},
    {"inline_index", ""},
    {"create_index",
     "CREATE INDEX IF NOT EXISTS {own_index} ON {table} ({columns})"},
    {"index_remains", ""},
    {"key_text", "VARCHAR(255)"},
    {"partition_bytes", "partition_key"},
    {"writer_number", ""},
    {"is_decided", ""},
    {"oldest_writer", ""},
    {"union_open", "("},
    {"union_close", ")"},
    {"insert_once", "ON CONFLICT (message_id) DO NOTHING"},
    {"unset_id", "X'00000000000000000000000000000000'"},
    {"lock_skip", "FOR UPDATE SKIP LOCKED"},
    {"lock_rows", "FOR UPDATE"},
    {"by_primary_key", ""},
    {"remove_ids", "DELETE FROM {table} WHERE id IN ({ids})"},
    {"in_range", "id >= ? AND id <= ?"},
    {"remove_range", "DELETE FROM {table} WHERE {in_range}"},
    {"id_row", ""},
    {"no_index", "+"},
    {"queue_is", "queue_name = ?"},
    {"queue_is_timed", "queue_name = ?"},
    {"unsafe_engine", ""},
    {"reused_ids", ""},
    // SQLite has one writer; on MariaDB and MySQL a transaction could not hold
    // a lock, as CREATE TABLE ends it.
    {"setup_lock", ""},
    {"notify_function", ""},
    {"notify_trigger", ""},
    {"find_notify", ""},
    {"drop_notify_trigger", ""},
    {"drop_notify_function", ""},
};

static const char *
find_word(const struct skr_word *words, size_t count, const char *name,
          size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(words[i].name, name, length) == 0 &&
            words[i].name[length] == '\0')
            return words[i].text;
    return NULL;
}

static const char *
find_in_dialect(const struct skr_dialect *dialect, const char *name,
                size_t length)
{
    const char *text =
        find_word(dialect->words, dialect->word_count, name, length);
    if (text == NULL)
        text = find_word(common, SKR_COUNT_OF(common), name, length);
    if (text == NULL)
        abort();
    return text;
}

const char *
skr_sql_word(const struct skr_dialect *dialect, const char *name)
{
    return find_in_dialect(dialect, name, strlen(name));
}

bool
skr_sql_same_table(const struct skr_dialect *dialect, const char *a,
                   const char *b)
{
    bool counts = dialect == NULL || dialect->name_case == SKR_CASE_COUNTS;
    return (counts ? strcmp(a, b) : strcasecmp(a, b)) == 0;
}

// A table's name as the server takes it without quotes, in quotes.
static void
add_identifier(struct skr_text *sql, const struct skr_dialect *dialect,
               const char *name)
{
    size_t quotes = dialect->quote == '\0' ? 0 : 1;
    skr_text_add(sql, &dialect->quote, quotes);
    bool folds = dialect->name_case == SKR_CASE_FOLDED;
    for (; *name != '\0'; name++) {
        char lower = (char)(*name - 'A' + 'a');
        bool is_upper = *name >= 'A' && *name <= 'Z';
        skr_text_add(sql, folds && is_upper ? &lower : name, 1);
    }
    skr_text_add(sql, &dialect->quote, quotes);
}

static bool
is_identifier(const char *word, size_t length)
{
    static const char table[] = "table";
    size_t size = sizeof(table) - 1;
    return length >= size && strncmp(word + length - size, table, size) == 0;
}

// Replaces {words}; a word's text may hold words itself.
static void
fill_words(struct skr_text *sql, const struct skr_dialect *dialect,
           const char *template, const struct skr_word *words,
           size_t word_count)
{
    for (const char *at = template; *at != '\0';) {
        size_t plain = strcspn(at, "{");
        skr_text_add(sql, at, plain);
        at += plain;
        if (*at == '\0')
            return;
        size_t length = strcspn(at + 1, "}");
        const char *word = at + 1;
        size_t size = strcspn(word, ":}");
        const char *text = find_word(words, word_count, word, size);
        if (text == NULL)
            text = find_in_dialect(dialect, word, size);
        else if (size == length && is_identifier(word, size)) {
            add_identifier(sql, dialect, text);
            text = "";
        }
        fill_words(sql, dialect, text, words, word_count);
        at += length + 2;
    }
}

static void
number_parameters(struct skr_text *numbered, const char *sql)
{
    unsigned number = 0;
    bool in_string = false;
    for (const char *at = sql; *at != '\0'; at++) {
        if (*at == '\'')
            in_string = !in_string;
        if (*at == '?' && !in_string)
            skr_text_add_format(numbered, "$%u", ++number);
        else
            skr_text_add(numbered, at, 1);
    }
}

char *
skr_sql_fill(const struct skr_dialect *dialect, struct skr_arena *arena,
             const char *template, const struct skr_word *words,
             size_t word_count)
{
    struct skr_text sql = {0}, numbered = {0};
    // A template may come out empty; it is a text all the same.
    skr_text_add_string(&sql, "");
    fill_words(&sql, dialect, template, words, word_count);
    struct skr_text *result = &sql;
    if (dialect->numbers_parameters && !sql.broken) {
        number_parameters(&numbered, sql.bytes);
        result = &numbered;
    }
    char *filled = result->broken
                       ? NULL
                       : skr_arena_text(arena, result->bytes, result->size);
    skr_text_fini(&sql);
    skr_text_fini(&numbered);
    return filled;
}

size_t
skr_sql_list_size(size_t count)
{
    size_t size = 1;
    while (size < count && size < SKR_SQL_MAX_LIST)
        size *= 4;
    return size < SKR_SQL_MAX_LIST ? size : SKR_SQL_MAX_LIST;
}

char *
skr_sql_list(struct skr_arena *arena, size_t size)
{
    char *list = skr_arena_take(arena, size * 3);
    if (list == NULL)
        return NULL;
    for (size_t i = 0; i < size; i++)
        memcpy(list + i * 3, i + 1 < size ? "?, " : "?\0",
               i + 1 < size ? 3 : 2);
    return list;
}

char *
skr_sql_rows(struct skr_arena *arena, size_t size)
{
    static const char first[] = "SELECT {id_row}";
    static const char next[] = " UNION ALL SELECT {id_row}";
    char *rows = skr_arena_take(arena, sizeof(first) + size * sizeof(next));
    if (rows == NULL)
        return NULL;
    char *end = rows + sizeof(first) - 1;
    memcpy(rows, first, sizeof(first));
    for (size_t i = 1; i < size; i++, end += sizeof(next) - 1)
        memcpy(end, next, sizeof(next));
    return rows;
}
