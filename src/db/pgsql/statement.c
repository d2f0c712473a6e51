// SPDX-License-Identifier: MIT
// Running one statement: prepare or find it, bind, give the rows.
//
// Results come whole, as text: values are borrowed from them without a copy,
// and a row function may run statements on the same connection.
//
// The server's answer is waited for, but not for ever. PQexec() and its kin
// would: a server that is stopped, or a network that has forgotten the
// connection, neither answers nor ends it. So what they do in one call is done
// here in its parts, and between two signs of life only so much time may pass.

#include "db/pgsql/connection.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// False: the time is over. What is wrong with the socket is for libpq to find
// out and to say.
static bool
wait_for_socket(PGconn *connection, bool has_more_to_send, int64_t timeout_ms)
{
    return skr_clock_await(PQsocket(connection),
                           has_more_to_send ? POLLIN | POLLOUT : POLLIN,
                           timeout_ms);
}

// Once libpq knows that a connection has ended, nothing waits for it again,
// closing it included.
static void
end(PGconn *connection)
{
    shutdown(PQsocket(connection), SHUT_RDWR);
    while (PQconsumeInput(connection) != 0) {
    }
}

// An answer that came later would be taken for that to another question, so
// that the connection is of no more use.
static void
hang_up(struct skr_pgsql *pgsql)
{
    pgsql->was_silent = true;
    end(pgsql->connection);
}

// NULL: there is no other, or silence.
static PGresult *
take_result(struct skr_pgsql *pgsql, int64_t timeout_ms)
{
    PGconn *connection = pgsql->connection;
    int unsent = PQflush(connection);
    while (unsent > 0 || (unsent == 0 && PQisBusy(connection))) {
        if (!wait_for_socket(connection, unsent > 0, timeout_ms)) {
            hang_up(pgsql);
            return NULL;
        }
        if (PQconsumeInput(connection) == 0)
            break;
        unsent = PQflush(connection);
    }
    // Does not wait any more. After a failure it says which.
    return PQgetResult(connection);
}

static void
end_copy_out(struct skr_pgsql *pgsql, int64_t timeout_ms)
{
    char *line = NULL;
    for (;;) {
        int size = PQgetCopyData(pgsql->connection, &line, 1);
        if (size < 0)
            return;
        if (size > 0) {
            PQfreemem(line);
            continue;
        }
        if (!wait_for_socket(pgsql->connection, false, timeout_ms)) {
            hang_up(pgsql);
            return;
        }
        if (PQconsumeInput(pgsql->connection) == 0)
            return;
    }
}

static bool
is_over(PGconn *connection)
{
    return PQstatus(connection) != CONNECTION_OK;
}

// What comes before one of libpq's PQsend...(); take_answer() comes after it,
// and together they are PQexec() for a connection of ours.
static void
get_ready(struct skr_pgsql *pgsql, int64_t timeout_ms)
{
    PGresult *left;
    // Else what is sent to a server that does not read would wait for it.
    PQsetnonblocking(pgsql->connection, 1);
    // A handler may have left results, or a COPY, behind.
    while ((left = take_result(pgsql, timeout_ms)) != NULL) {
        ExecStatusType status = PQresultStatus(left);
        PQclear(left);
        if (is_over(pgsql->connection))
            return;
        if (status == PGRES_COPY_IN)
            PQputCopyEnd(pgsql->connection, "another statement came");
        else if (status == PGRES_COPY_OUT)
            end_copy_out(pgsql, timeout_ms);
    }
}

static PGresult *
give(const struct skr_pgsql *pgsql, PGresult *result)
{
    // The connection is lent to handlers, which expect it to block.
    PQsetnonblocking(pgsql->connection, 0);
    if (!pgsql->was_silent)
        return result;
    PQclear(result);
    return NULL;
}

// was_sent is the result of PQsend...(). NULL as from PQexec(), and when the
// server was silent for longer than timeout_ms: then the connection is at its
// end, and every further use of it fails at once.
static PGresult *
take_answer(struct skr_pgsql *pgsql, int was_sent, int64_t timeout_ms)
{
    PGresult *last = NULL, *next;
    while (was_sent && (next = take_result(pgsql, timeout_ms)) != NULL) {
        // Of several statements the last one's, as nothing follows an error.
        PQclear(last);
        last = next;
        ExecStatusType status = PQresultStatus(next);
        if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
            is_over(pgsql->connection))
            break;
    }
    return give(pgsql, last);
}

// The same after several of them in pipeline mode, which ends here: the last
// one's result, or the first that failed.
static PGresult *
take_answers(struct skr_pgsql *pgsql, int was_sent, int64_t timeout_ms)
{
    PGconn *connection = pgsql->connection;
    PGresult *last = NULL, *next;
    ExecStatusType status = PGRES_EMPTY_QUERY;
    while (was_sent && status != PGRES_PIPELINE_SYNC && !is_over(connection)) {
        next = take_result(pgsql, timeout_ms);
        // Between two of them there is none.
        status = next == NULL ? PGRES_EMPTY_QUERY : PQresultStatus(next);
        if (next == NULL || status == PGRES_PIPELINE_SYNC ||
            status == PGRES_PIPELINE_ABORTED) {
            PQclear(next);
            continue;
        }
        PQclear(last);
        last = next;
    }
    // What is left in it would be taken for the answer to what comes next.
    if (!PQexitPipelineMode(connection) && !is_over(connection))
        end(connection);
    return give(pgsql, last);
}

enum {
    MAX_VALUES = SKR_MOST_VALUES,
    MAX_COLUMNS = 32,
    MOST_BYTES = 1024 * 1024 * 1024,  // of a value; libpq counts in an int
};

// The server's own numbers for its types; they never change.
enum {
    TYPE_UNKNOWN = 0,
    TYPE_BOOLEAN = 16,
    TYPE_BYTEA = 17,
    TYPE_INT8 = 20,
    TYPE_INT2 = 21,
    TYPE_INT4 = 23,
    TYPE_OID = 26,
};

// Values as libpq takes them.
struct binding {
    size_t count;
    Oid types[MAX_VALUES];
    const char *values[MAX_VALUES];
    int sizes[MAX_VALUES];
    int formats[MAX_VALUES];  // 0: text, 1: binary
    int64_t integers[MAX_VALUES];
    char kinds[MAX_VALUES + 1];
    char *texts;  // with their terminating zeros
};

static enum skr_code
copy_texts(struct binding *binding, const struct skr_statement *statement,
           struct skr_error *error)
{
    size_t size = 0;
    for (size_t i = 0; i < statement->value_count; i++)
        if (statement->values[i].kind == SKR_TEXT)
            size += statement->values[i].size + 1;
    if (size == 0)
        return SKR_OK;
    binding->texts = malloc(size);
    if (binding->texts == NULL)
        return skr_fail_memory(error);
    char *at = binding->texts;
    for (size_t i = 0; i < statement->value_count; i++) {
        const struct skr_value *value = &statement->values[i];
        if (value->kind != SKR_TEXT)
            continue;
        // It would be cut there without a word.
        if (memchr(value->bytes, '\0', value->size) != NULL) {
            free(binding->texts);
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "a text for PostgreSQL has a zero byte in it");
        }
        memcpy(at, value->bytes, value->size);
        at[value->size] = '\0';
        binding->values[i] = at;
        at += value->size + 1;
    }
    return SKR_OK;
}

// Integers and bytes have their type; what a text stands for, a name or a
// time, is the server's to find out.
static enum skr_code
bind_values(struct binding *binding, const struct skr_statement *statement,
            struct skr_error *error)
{
    if (statement->value_count > MAX_VALUES)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "more than %d values: %.200s", MAX_VALUES,
                        statement->sql);
    binding->count = statement->value_count;
    binding->texts = NULL;
    for (size_t i = 0; i < binding->count; i++) {
        const struct skr_value *value = &statement->values[i];
        bool is_integer = value->kind == SKR_INTEGER;
        bool is_blob = value->kind == SKR_BLOB;
        binding->types[i] = is_integer ? TYPE_INT8
                            : is_blob  ? TYPE_BYTEA
                                       : TYPE_UNKNOWN;
        binding->formats[i] = is_integer || is_blob;
        binding->kinds[i] = is_integer ? 'i' : is_blob ? 'b' : 't';
        binding->values[i] = NULL;
        binding->sizes[i] = 0;
        if (is_integer) {
            binding->integers[i] = (int64_t)htobe64((uint64_t)value->integer);
            binding->values[i] = (const char *)&binding->integers[i];
            binding->sizes[i] = sizeof(binding->integers[i]);
        } else if (value->size > MOST_BYTES) {
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "a value of %zu bytes is too large for PostgreSQL, "
                            "which takes 1 GB",
                            value->size);
        } else if (is_blob) {
            binding->values[i] = value->size == 0 ? "" : value->bytes;
            binding->sizes[i] = (int)value->size;
        }
    }
    binding->kinds[binding->count] = '\0';
    return copy_texts(binding, statement, error);
}

static bool
is_key_of(const char *key, const struct binding *binding, const char *sql)
{
    return strncmp(key, binding->kinds, binding->count) == 0 &&
           key[binding->count] == ':' &&
           strcmp(key + binding->count + 1, sql) == 0;
}

// The place of a statement in the cache, the least recently used one where
// there is no room; its statement is not the text's yet.
static size_t
find_place(const struct skr_pgsql_cache *cache, const struct binding *binding,
           const char *sql, bool *found)
{
    size_t oldest = 0;
    for (size_t i = 0; i < cache->count; i++) {
        if (is_key_of(cache->entries[i].key, binding, sql)) {
            *found = true;
            return i;
        }
        if (cache->entries[i].used_at < cache->entries[oldest].used_at)
            oldest = i;
    }
    *found = false;
    return cache->count < SKR_PGSQL_CACHE_SIZE ? cache->count : oldest;
}

static enum skr_code
fail(PGconn *connection, const struct skr_pgsql *own, const PGresult *result,
     const char *sql, struct skr_error *error)
{
    if (own != NULL && own->was_silent)
        return skr_pgsql_fail_silent(own, error);
    return skr_pgsql_fail(connection, result, sql, error);
}

static void
name_statement(uint64_t number, char name[32])
{
    snprintf(name, 32, "skirnir_%llu", (unsigned long long)number);
}

// Whatever the server still knows by that name is never asked for again.
static void
forget(struct skr_pgsql_cache *cache, size_t place)
{
    free(cache->entries[place].key);
    cache->entries[place] = cache->entries[--cache->count];
}

static enum skr_code
evict(struct skr_pgsql *pgsql, size_t place, struct skr_error *error)
{
    struct skr_pgsql_cache *cache = &pgsql->cache;
    char name[32], sql[64];
    name_statement(cache->entries[place].number, name);
    snprintf(sql, sizeof(sql), "DEALLOCATE %s", name);
    forget(cache, place);
    return skr_pgsql_exec(pgsql, sql, error);
}

static enum skr_code
prepare(struct skr_pgsql *pgsql, const struct binding *binding, const char *sql,
        struct skr_error *error)
{
    struct skr_pgsql_cache *cache = &pgsql->cache;
    PGconn *connection = pgsql->connection;
    char *key = NULL, name[32];
    if (asprintf(&key, "%s:%s", binding->kinds, sql) < 0)
        return skr_fail_memory(error);
    uint64_t number = ++cache->last_number;
    name_statement(number, name);
    get_ready(pgsql, pgsql->timeout_ms);
    int was_sent = PQsendPrepare(connection, name, sql, (int)binding->count,
                                 binding->types);
    PGresult *result = take_answer(pgsql, was_sent, pgsql->timeout_ms);
    enum skr_code code = SKR_OK;
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        code = fail(connection, pgsql, result, sql, error);
    PQclear(result);
    if (code != SKR_OK) {
        free(key);
        return code;
    }
    size_t place = cache->count++;
    cache->entries[place].key = key;
    cache->entries[place].number = number;
    return SKR_OK;
}

static enum skr_code
find_or_prepare(struct skr_pgsql *pgsql, const struct binding *binding,
                const char *sql, size_t *place, struct skr_error *error)
{
    struct skr_pgsql_cache *cache = &pgsql->cache;
    bool found = false;
    *place = find_place(cache, binding, sql, &found);
    enum skr_code code = SKR_OK;
    if (!found && *place < cache->count)
        code = evict(pgsql, *place, error);
    if (!found && code == SKR_OK) {
        code = prepare(pgsql, binding, sql, error);
        *place = cache->count - 1;
    }
    if (code == SKR_OK)
        cache->entries[*place].used_at = ++cache->uses;
    return code;
}

void
skr_pgsql_cache_clear(struct skr_pgsql_cache *cache)
{
    while (cache->count > 0)
        forget(cache, cache->count - 1);
}

// A table that was altered may make a prepared statement useless for good, and
// another user of the session may have dropped them all.
static bool
is_stale(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    if (state == NULL)
        return false;
    return strcmp(state, "26000") == 0 ||
           (strcmp(state, "0A000") == 0 && function != NULL &&
            strcmp(function, "RevalidateCachedQuery") == 0);
}

// In pipeline mode, which a handler may have left on, libpq refuses at once
// what waits for an answer, and takes what does not.
static bool
is_bounded(PGconn *connection, const struct skr_pgsql *own)
{
    return own != NULL && PQpipelineStatus(connection) == PQ_PIPELINE_OFF;
}

static PGresult *
execute_text(PGconn *connection, struct skr_pgsql *own,
             const struct binding *binding, const char *sql)
{
    int count = (int)binding->count;
    if (!is_bounded(connection, own))
        return PQexecParams(connection, sql, count, binding->types,
                            binding->values, binding->sizes, binding->formats,
                            0);
    get_ready(own, own->timeout_ms);
    int was_sent =
        PQsendQueryParams(connection, sql, count, binding->types,
                          binding->values, binding->sizes, binding->formats, 0);
    return take_answer(own, was_sent, own->timeout_ms);
}

static enum skr_code
fail_stale(PGconn *connection, PGresult **result, const char *sql,
           struct skr_error *error)
{
    skr_pgsql_fail(connection, *result, sql, error);
    PQclear(*result);
    *result = NULL;
    if (error != NULL) {
        error->code = SKR_CONFLICT;
        error->remedy = SKR_TRY_AGAIN;
    }
    return SKR_CONFLICT;
}

static int
send_prepared(PGconn *connection, const struct binding *binding,
              uint64_t number)
{
    char name[32];
    name_statement(number, name);
    return PQsendQueryPrepared(connection, name, (int)binding->count,
                               binding->values, binding->sizes,
                               binding->formats, 0);
}

// The beginning of the transaction and its first statement, in one round trip.
static enum skr_code
execute_first(struct skr_pgsql *pgsql, const struct binding *binding,
              const char *sql, PGresult **result, struct skr_error *error)
{
    static const char *const texts[] = {"BEGIN ISOLATION LEVEL READ COMMITTED",
                                        "SAVEPOINT skr"};
    static const struct binding nothing;
    PGconn *connection = pgsql->connection;
    uint64_t numbers[SKR_COUNT_OF(texts) + 1];
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < SKR_COUNT_OF(numbers) && code == SKR_OK; i++) {
        bool is_last = i == SKR_COUNT_OF(texts);
        size_t place = 0;
        code = find_or_prepare(pgsql, is_last ? binding : &nothing,
                               is_last ? sql : texts[i], &place, error);
        if (code == SKR_OK)
            numbers[i] = pgsql->cache.entries[place].number;
    }
    if (code != SKR_OK)
        return code;
    pgsql->is_begin_due = false;
    get_ready(pgsql, pgsql->timeout_ms);
    int was_sent = PQenterPipelineMode(connection) &&
                   send_prepared(connection, &nothing, numbers[0]) &&
                   send_prepared(connection, &nothing, numbers[1]) &&
                   send_prepared(connection, binding, numbers[2]) &&
                   PQpipelineSync(connection);
    *result = take_answers(pgsql, was_sent, pgsql->timeout_ms);
    if (!is_stale(*result))
        return SKR_OK;
    skr_pgsql_cache_clear(&pgsql->cache);
    return fail_stale(connection, result, sql, error);
}

// A COPY would be no part of a pipeline.
static bool
travels_with_begin(PGconn *connection, const struct skr_pgsql *own,
                   const char *sql)
{
    return is_bounded(connection, own) && !own->cache.is_off &&
           skr_text_starts_with(sql, "INSERT");
}

static enum skr_code
execute(PGconn *connection, struct skr_pgsql *own,
        const struct binding *binding, const char *sql, PGresult **result,
        struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    size_t place = 0;
    if (own != NULL && own->is_begin_due) {
        if (travels_with_begin(connection, own, sql))
            return execute_first(own, binding, sql, result, error);
        code = skr_pgsql_begin_now(own, error);
    }
    if (code != SKR_OK)
        return code;
    if (!is_bounded(connection, own) || own->cache.is_off) {
        *result = execute_text(connection, own, binding, sql);
        return SKR_OK;
    }
    code = find_or_prepare(own, binding, sql, &place, error);
    if (code != SKR_OK)
        return code;
    get_ready(own, own->timeout_ms);
    int was_sent =
        send_prepared(connection, binding, own->cache.entries[place].number);
    *result = take_answer(own, was_sent, own->timeout_ms);
    if (!is_stale(*result))
        return SKR_OK;
    forget(&own->cache, place);
    return fail_stale(connection, result, sql, error);
}

// False: memory is out. What was allocated for it goes to *owned.
static bool
read_column(const PGresult *result, int row, int at, struct skr_value *column,
            void **owned)
{
    *owned = NULL;
    *column = (struct skr_value){.kind = SKR_NULL};
    if (PQgetisnull(result, row, at))
        return true;
    const char *text = PQgetvalue(result, row, at);
    switch (PQftype(result, at)) {
    case TYPE_INT8:
    case TYPE_INT4:
    case TYPE_INT2:
    case TYPE_OID:
        column->kind = SKR_INTEGER;
        column->integer = strtoll(text, NULL, 10);
        return true;
    case TYPE_BOOLEAN:
        column->kind = SKR_INTEGER;
        column->integer = text[0] == 't';
        return true;
    case TYPE_BYTEA:
        column->kind = SKR_BLOB;
        *owned = PQunescapeBytea((const unsigned char *)text, &column->size);
        column->bytes = *owned;
        return *owned != NULL;
    default:
        column->kind = SKR_TEXT;
        column->bytes = text;
        column->size = (size_t)PQgetlength(result, row, at);
        return true;
    }
}

static enum skr_code
give_row(const PGresult *result, int row, int column_count,
         const struct skr_statement *statement, struct skr_error *error)
{
    struct skr_value columns[MAX_COLUMNS];
    void *owned[MAX_COLUMNS];
    enum skr_code code = SKR_OK;
    int count = 0;
    while (code == SKR_OK && count < column_count) {
        if (!read_column(result, row, count, &columns[count], &owned[count]))
            code = skr_fail_memory(error);
        count++;
    }
    if (code == SKR_OK)
        code = statement->each_row(columns, (size_t)column_count,
                                   statement->user, error);
    for (int i = 0; i < count; i++)
        PQfreemem(owned[i]);
    return code;
}

static enum skr_code
give_rows(const PGresult *result, const struct skr_statement *statement,
          struct skr_error *error)
{
    if (statement->each_row == NULL)
        return SKR_OK;
    int column_count = PQnfields(result);
    if (column_count > MAX_COLUMNS)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "more than %d columns: %.200s", MAX_COLUMNS,
                        statement->sql);
    enum skr_code code = SKR_OK;
    int row_count = PQntuples(result);
    for (int i = 0; code == SKR_OK && i < row_count; i++)
        code = give_row(result, i, column_count, statement, error);
    return code;
}

// A SELECT counts the rows that it gave, which is not what was changed.
static uint64_t
count_affected(PGresult *result)
{
    if (skr_text_starts_with(PQcmdStatus(result), "SELECT"))
        return 0;
    return strtoull(PQcmdTuples(result), NULL, 10);
}

static enum skr_code
use_result(PGconn *connection, const struct skr_pgsql *own, PGresult *result,
           const struct skr_statement *statement, struct skr_error *error)
{
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_EMPTY_QUERY)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "exactly one SQL statement is needed; this is none");
    if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "COPY cannot be run here: %.200s", statement->sql);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        return fail(connection, own, result, statement->sql, error);
    if (statement->affected != NULL)
        *statement->affected = count_affected(result);
    return give_rows(result, statement, error);
}

static enum skr_code
run_as_text(struct skr_pgsql *pgsql, const struct skr_statement *statement,
            int64_t timeout_ms, struct skr_error *error)
{
    PGresult *result;
    PGconn *connection = pgsql->connection;
    if (is_bounded(connection, pgsql)) {
        get_ready(pgsql, timeout_ms);
        int was_sent = PQsendQuery(connection, statement->sql);
        result = take_answer(pgsql, was_sent, timeout_ms);
    } else {
        result = PQexec(connection, statement->sql);
    }
    enum skr_code code =
        use_result(connection, pgsql, result, statement, error);
    PQclear(result);
    return code;
}

static enum skr_code
run_long(struct skr_pgsql *pgsql, const struct skr_statement *statement,
         struct skr_error *error)
{
    int64_t long_ms = INT64_C(1000) * SKR_LONG_TIMEOUT_S;
    enum skr_code code = skr_pgsql_begin_now(pgsql, error);
    if (code != SKR_OK)
        return code;
    return run_as_text(
        pgsql, statement,
        pgsql->timeout_ms > long_ms ? pgsql->timeout_ms : long_ms, error);
}

enum skr_code
skr_pgsql_run(PGconn *connection, struct skr_pgsql *own,
              const struct skr_statement *statement, struct skr_error *error)
{
    struct binding binding;
    PGresult *result = NULL;
    if (own != NULL && statement->takes_long)
        return run_long(own, statement, error);
    enum skr_code code = bind_values(&binding, statement, error);
    if (code != SKR_OK)
        return code;
    code = execute(connection, own, &binding, statement->sql, &result, error);
    free(binding.texts);
    if (code != SKR_OK)
        return code;
    code = use_result(connection, own, result, statement, error);
    PQclear(result);
    return code;
}

enum skr_code
skr_pgsql_exec(struct skr_pgsql *pgsql, const char *sql,
               struct skr_error *error)
{
    return run_as_text(pgsql, &(struct skr_statement){.sql = sql},
                       pgsql->timeout_ms, error);
}
