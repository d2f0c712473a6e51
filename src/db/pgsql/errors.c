// SPDX-License-Identifier: MIT
// PostgreSQL's SQLSTATEs as codes of ours: the one place that knows them.

#include "db/pgsql/connection.h"

#include "base/error.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { STATE_SIZE = 5 };

#define LOCKED \
    "another connection holds the lock; a transaction is open too long"
#define ENDED "one of its own statements has ended the transaction"
#define SHAPE "this is a table of another shape"
#define PRIMARY "name the primary in the DSN, or make this server writable"
#define USER "check user and password in the DSN, and the server's pg_hba.conf"

// A whole state comes before the class that it belongs to.
static const struct native_error {
    const char *state;
    enum skr_code code;
    enum skr_remedy remedy;
    const char *advice;
} errors[] = {
    {"08P01", SKR_INVALID, SKR_GIVE_UP, NULL},  // a wrong number of parameters
    {"08", SKR_UNAVAILABLE, SKR_RECONNECT, NULL},
    {"22", SKR_INVALID, SKR_GIVE_UP, NULL},
    {"23505", SKR_DUPLICATE, SKR_GIVE_UP, NULL},
    {"23", SKR_REFUSED, SKR_GIVE_UP, NULL},
    {"25006", SKR_REFUSED, SKR_RECONNECT, PRIMARY},
    {"25P01", SKR_NO_TRANSACTION, SKR_GIVE_UP, NULL},
    {"25P02", SKR_REFUSED, SKR_GIVE_UP,
     "an earlier statement of this transaction failed; roll it back"},
    {"25P03", SKR_UNAVAILABLE, SKR_RECONNECT, NULL},  // idle in a transaction
    {"25P04", SKR_UNAVAILABLE, SKR_RECONNECT, NULL},  // transaction_timeout
    {"26000", SKR_CONFLICT, SKR_TRY_AGAIN,
     "prepared statements got lost; a pooler needs pool_mode=session"},
    {"28", SKR_REFUSED, SKR_GIVE_UP, USER},
    {"3B001", SKR_NO_TRANSACTION, SKR_GIVE_UP, ENDED},  // no such savepoint
    {"3D000", SKR_REFUSED, SKR_GIVE_UP,
     "create the database, or correct its name in the DSN"},
    {"3F000", SKR_MISSING, SKR_GIVE_UP, NULL},  // no such schema
    {"40", SKR_CONFLICT, SKR_TRY_AGAIN, NULL},  // serialization, deadlock
    {"42P01", SKR_MISSING, SKR_GIVE_UP, NULL},
    {"42703", SKR_INVALID, SKR_GIVE_UP, SHAPE},
    // Of a login; fail_right() advises where it is a statement.
    {"42501", SKR_REFUSED, SKR_GIVE_UP,
     "GRANT CONNECT ON DATABASE to the user"},
    {"53100", SKR_REFUSED, SKR_TRY_AGAIN, "free some space on the server"},
    {"53300", SKR_REFUSED, SKR_TRY_AGAIN,
     "raise max_connections, or the CONNECTION LIMIT of the role or database "
     "that it names"},
    {"53", SKR_REFUSED, SKR_TRY_AGAIN, NULL},
    {"55006", SKR_CONFLICT, SKR_TRY_AGAIN, NULL},
    {"55P03", SKR_CONFLICT, SKR_TRY_AGAIN, LOCKED},
    {"57014", SKR_CONFLICT, SKR_TRY_AGAIN, NULL},  // statement_timeout, cancel
    {"57", SKR_UNAVAILABLE, SKR_RECONNECT, NULL},  // shut down, starting up
    {"58", SKR_UNAVAILABLE, SKR_RECONNECT, "check the server's disk and log"},
    {"72000", SKR_CONFLICT, SKR_TRY_AGAIN, NULL},  // its snapshot is too old
    {"F0", SKR_UNAVAILABLE, SKR_RECONNECT,
     "the server's configuration is damaged or locked; look into its log"},
    {"HV00N", SKR_REFUSED, SKR_TRY_AGAIN,
     "the server behind a foreign table cannot be reached"},
    {"P0", SKR_REFUSED, SKR_GIVE_UP, NULL},  // raised by a trigger
    {"XX", SKR_UNAVAILABLE, SKR_RECONNECT, "look into the server's log"},
    {"", SKR_INVALID, SKR_GIVE_UP, NULL},
};

static size_t
find_error(const char *state)
{
    size_t i = 0;
    while (!skr_text_starts_with(state, errors[i].state))
        i++;
    return i;
}

bool
skr_pgsql_is_conflict(const char *state)
{
    return errors[find_error(state)].code == SKR_CONFLICT;
}

// One line, as messages of libpq often are several.
static void
copy_line(char *line, size_t size, const char *text)
{
    size_t length = strcspn(text, "\n");
    snprintf(line, size, "%.*s", (int)(length < size ? length : size), text);
}

static enum skr_code
fail(struct skr_error *error, const struct native_error *native,
     const char *place, const char *message)
{
    skr_fail(error, native->code, native->remedy, "%s: %s", place, message);
    skr_error_advise(error, native->advice);
    skr_error_set_native(error, "%s", native->state);
    return native->code;
}

static void
describe(PGconn *connection, char *place, size_t size)
{
    const char *host = PQhost(connection), *port = PQport(connection);
    snprintf(place, size, "PostgreSQL %.100s%s%.8s/%.64s",
             host == NULL ? "" : host, port == NULL ? "" : ":",
             port == NULL ? "" : port,
             PQdb(connection) == NULL ? "" : PQdb(connection));
}

// Which right is missing is not in the message; the statement knows it.
static enum skr_code
fail_right(PGconn *connection, const char *place, const char *message,
           const char *sql, struct skr_error *error)
{
    char advice[160];
    const char *verb = sql == NULL ? "" : sql + strspn(sql, "(");
    size_t length = strcspn(verb, " \n(");
    if (length > 10)
        length = 0;
    snprintf(advice, sizeof(advice), "grant the right%s%.*s to user %.64s",
             length > 0 ? " to " : "", (int)length, verb, PQuser(connection));
    const struct native_error native = {"42501", SKR_REFUSED, SKR_GIVE_UP,
                                        advice};
    return fail(error, &native, place, message);
}

enum skr_code
skr_pgsql_fail_read_only(PGconn *connection, const char *reason,
                         struct skr_error *error)
{
    char place[240], message[80];
    describe(connection, place, sizeof(place));
    snprintf(message, sizeof(message), "nothing can be written: %.50s", reason);
    return fail(error, &errors[find_error("25006")], place, message);
}

// Tells apart what shares a state. The names of the server's functions, unlike
// its messages, are not translated.
static const char *
find_advice(const char *state, const PGresult *result, const char *advice)
{
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    if (strcmp(state, "42601") == 0 && function != NULL &&
        strcmp(function, "exec_parse_message") == 0)
        return "exactly one SQL statement is needed";
    return advice;
}

enum skr_code
skr_pgsql_fail_silent(const struct skr_pgsql *pgsql, struct skr_error *error)
{
    char place[240];
    describe(pgsql->connection, place, sizeof(place));
    return skr_db_fail_silent(place, pgsql->timeout_ms / 1000, error);
}

enum skr_code
skr_pgsql_fail(PGconn *connection, const PGresult *result, const char *sql,
               struct skr_error *error)
{
    char place[240], message[sizeof(((struct skr_error *)NULL)->text)];
    describe(connection, place, sizeof(place));
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    copy_line(message, sizeof(message),
              primary != NULL ? primary : PQerrorMessage(connection));
    bool is_lost = PQstatus(connection) != CONNECTION_OK;
    // libpq itself has refused, as in pipeline mode.
    struct native_error native = {"", SKR_REFUSED, SKR_GIVE_UP, NULL};
    if (state != NULL && strcmp(state, "42501") == 0)
        return fail_right(connection, place, message, sql, error);
    if (state != NULL) {
        native = errors[find_error(state)];
        native.state = state;
        native.advice = find_advice(state, result, native.advice);
    }
    // Whatever the server says last, a connection that it closed is lost.
    if (is_lost) {
        native.code = SKR_UNAVAILABLE;
        native.remedy = SKR_RECONNECT;
    }
    return fail(error, &native, place, message);
}

// Without a result the state stands in the text alone, where the verbosity
// asks for it: "FATAL:  28P01: password authentication failed".
static const char *
find_state(const char *text, char state[STATE_SIZE + 1])
{
    for (const char *at = text; (at = strstr(at, ":  ")) != NULL; at++) {
        const char *start = at + 3;
        size_t length = 0;
        while (isupper((unsigned char)start[length]) ||
               isdigit((unsigned char)start[length]))
            length++;
        if (length != STATE_SIZE || start[length] != ':')
            continue;
        memcpy(state, start, STATE_SIZE);
        state[STATE_SIZE] = '\0';
        return start + length + 2;
    }
    state[0] = '\0';
    return text;
}

enum skr_code
skr_pgsql_fail_connect(PGconn *connection, const char *place,
                       const char *advice, struct skr_error *error)
{
    char state[STATE_SIZE + 1];
    char message[sizeof(((struct skr_error *)NULL)->text)];
    const char *text = PQerrorMessage(connection);
    copy_line(message, sizeof(message), find_state(text, state));
    struct native_error native = {"", SKR_UNAVAILABLE, SKR_RECONNECT, advice};
    if (state[0] != '\0')
        native = errors[find_error(state)];
    else if (PQconnectionNeedsPassword(connection))
        native = errors[find_error("28")];
    native.state = state;
    return fail(error, &native, place, message);
}
