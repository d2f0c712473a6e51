// SPDX-License-Identifier: MIT
// Error numbers of MariaDB, MySQL and the client library as codes of ours: the
// one place that knows them.

#include "db/mysql/connection.h"

#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOCKED \
    "another connection holds the lock; a transaction is open too long"
#define GONE "the connection was lost"
#define BUSY "the server has no room for another connection"
#define LIMIT "raise that limit, by ALTER USER or in the server's settings"
#define LOGIN "check user and password in the DSN"
#define RIGHT "GRANT this user the right it names"
#define SPACE "free some space on the server's disk"
#define ENGINE "the server's storage failed; look into its log"
#define MEMORY "the server is out of memory"
#define GROUP "the servers of the group do not take it; look into their log"
#define PRIMARY "name the primary in the DSN, or make this server writable"
#define PACKET "the message is too large; raise the server's max_allowed_packet"
#define SHAPE "this is a table of another shape"
#define ABSENT                                                      \
    "look whether the server runs; else correct host and port, or " \
    "unix_socket, in the DSN"
#define SYNTAX \
    "look whether the statement is for another database, or more than one"
#define TLS \
    "name the authority in ssl_ca; ssl=0 or ssl_verify=0 give up protection"

enum {
    LOST = 2013,
    BAD_TLS = 2026,
    FIRST_OF_CLIENT = 2000,
    LAST_OF_CLIENT = 2999
};

// Names of the numbers differ between the two servers' headers, and some are
// in one of them alone.
static const struct {
    unsigned native;
    enum skr_code code;
    enum skr_remedy remedy;
    const char *advice;
} errors[] = {
    // Another transaction.
    {1213, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // deadlock
    {1205, SKR_CONFLICT, SKR_TRY_AGAIN, LOCKED},  // lock wait timeout
    {3572, SKR_CONFLICT, SKR_TRY_AGAIN, LOCKED},  // NOWAIT
    {1020, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // changed since the snapshot
    {1180, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // the commit itself failed
    {1181, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // the rollback did
    {3101, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // another server's came first
    {1613, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // rolled back for its age
    {1614, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // deadlock of an XA one
    {1297, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // passes, the engine says
    // MySQL shows a transaction with the text of its statement, and cannot
    // while that holds bytes that are no text.
    {3854, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},
    {1223, SKR_CONFLICT, SKR_TRY_AGAIN, LOCKED},  // read lock on all tables
    {1015, SKR_CONFLICT, SKR_TRY_AGAIN, LOCKED},  // a file
    {1412, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // table changed meanwhile
    {1615, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // table changed meanwhile
    {1317, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // KILL QUERY
    {1969, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // max_statement_time
    {3024, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // max_execution_time
    {2057, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},    // other columns than before

    // Keys and constraints.
    {1062, SKR_DUPLICATE, SKR_GIVE_UP, NULL},
    {1586, SKR_DUPLICATE, SKR_GIVE_UP, NULL},
    {1048, SKR_REFUSED, SKR_GIVE_UP, NULL},  // column cannot be NULL
    {1364, SKR_REFUSED, SKR_GIVE_UP, NULL},  // column without default
    {1451, SKR_REFUSED, SKR_GIVE_UP, NULL},  // foreign key
    {1452, SKR_REFUSED, SKR_GIVE_UP, NULL},  // foreign key
    {3819, SKR_REFUSED, SKR_GIVE_UP, NULL},  // CHECK, MySQL
    {4025, SKR_REFUSED, SKR_GIVE_UP, NULL},  // CHECK, MariaDB
    {1644, SKR_REFUSED, SKR_GIVE_UP, NULL},  // SIGNAL

    // Mistakes.
    {1146, SKR_MISSING, SKR_GIVE_UP, NULL},
    {1054, SKR_INVALID, SKR_GIVE_UP, SHAPE},
    {1072, SKR_INVALID, SKR_GIVE_UP, SHAPE},  // the column of an index
    {1061, SKR_INVALID, SKR_GIVE_UP, "rename the index that has that name"},
    {1064, SKR_INVALID, SKR_GIVE_UP, SYNTAX},
    {1065, SKR_INVALID, SKR_GIVE_UP, "the statement is empty"},
    {1153, SKR_INVALID, SKR_GIVE_UP, PACKET},
    {2020, SKR_INVALID, SKR_GIVE_UP, PACKET},
    {2014, SKR_INVALID, SKR_GIVE_UP,
     "a result of this connection has not been read to its end"},

    // The way to the server.
    {1040, SKR_UNAVAILABLE, SKR_RECONNECT, BUSY},
    {1203, SKR_UNAVAILABLE, SKR_RECONNECT, LIMIT},
    {1226, SKR_UNAVAILABLE, SKR_RECONNECT, LIMIT},
    {1047, SKR_UNAVAILABLE, SKR_RECONNECT, NULL},  // Galera: node not ready
    {1053, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},  // server shuts down
    {1135, SKR_UNAVAILABLE, SKR_RECONNECT, BUSY},  // it starts no thread
    {3032, SKR_UNAVAILABLE, SKR_RECONNECT, NULL},  // offline mode
    {3168, SKR_UNAVAILABLE, SKR_RECONNECT, NULL},  // server is not available
    {1129, SKR_UNAVAILABLE, SKR_RECONNECT, NULL},  // host blocked
    {1236, SKR_UNAVAILABLE, SKR_RECONNECT, NULL},  // a binary log is gone
    {1152, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},
    {1158, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},
    {1159, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},
    {1160, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},
    {1161, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},
    {1243, SKR_UNAVAILABLE, SKR_RECONNECT,
     "the server knows nothing of a statement it prepared; a pooler that "
     "shares sessions cannot be used"},
    {1927, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},  // killed
    {4031, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},  // idle for too long
    {2002, SKR_UNAVAILABLE, SKR_RECONNECT, ABSENT},
    {2003, SKR_UNAVAILABLE, SKR_RECONNECT, ABSENT},
    {2005, SKR_UNAVAILABLE, SKR_RECONNECT, "correct the host in the DSN"},
    {2006, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},
    {LOST, SKR_UNAVAILABLE, SKR_RECONNECT, GONE},

    // What the server will not do.
    {1044, SKR_REFUSED, SKR_GIVE_UP,
     "GRANT this user rights on the database, or correct its name in the DSN"},
    {1045, SKR_REFUSED, SKR_GIVE_UP, LOGIN},
    {1049, SKR_REFUSED, SKR_GIVE_UP, "create the database or correct the DSN"},
    {1130, SKR_REFUSED, SKR_GIVE_UP, "CREATE USER for this host"},
    {1142, SKR_REFUSED, SKR_GIVE_UP, RIGHT},
    {1143, SKR_REFUSED, SKR_GIVE_UP, RIGHT},
    {1227, SKR_REFUSED, SKR_GIVE_UP, RIGHT},
    {1370, SKR_REFUSED, SKR_GIVE_UP, RIGHT},
    {1698, SKR_REFUSED, SKR_GIVE_UP, LOGIN},
    {1820, SKR_REFUSED, SKR_GIVE_UP, "the password has expired: change it"},
    {1862, SKR_REFUSED, SKR_GIVE_UP, "the password has expired: change it"},
    {3118, SKR_REFUSED, SKR_GIVE_UP, "ALTER USER ... ACCOUNT UNLOCK"},
    {4151, SKR_REFUSED, SKR_GIVE_UP, "ALTER USER ... ACCOUNT UNLOCK"},
    {BAD_TLS, SKR_REFUSED, SKR_GIVE_UP, TLS},
    {2059, SKR_REFUSED, SKR_GIVE_UP, LOGIN},  // no such way to log in
    {2061, SKR_REFUSED, SKR_GIVE_UP, LOGIN},
    {1665, SKR_REFUSED, SKR_GIVE_UP, "set binlog_format to ROW or MIXED"},
    {1021, SKR_REFUSED, SKR_TRY_AGAIN, SPACE},
    {1114, SKR_REFUSED, SKR_TRY_AGAIN, SPACE},
    {1037, SKR_REFUSED, SKR_TRY_AGAIN, MEMORY},
    {1038, SKR_REFUSED, SKR_TRY_AGAIN, MEMORY},
    {1041, SKR_REFUSED, SKR_TRY_AGAIN, MEMORY},
    {3170, SKR_REFUSED, SKR_TRY_AGAIN, MEMORY},  // of one statement
    {1206, SKR_REFUSED, SKR_TRY_AGAIN,
     "the server has no room for more locks; raise innodb_buffer_pool_size"},
    {1436, SKR_REFUSED, SKR_TRY_AGAIN, "raise the server's thread_stack"},
    {1016, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // a file cannot be opened,
    {1023, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // closed,
    {1024, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // read
    {1026, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // or written
    {1878, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // a temporary one
    {1030, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // a number of the engine's
    {1296, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},
    {1815, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // internal error
    {1034, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // a table or index is damaged
    {1035, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},
    {1194, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},
    {1195, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},
    {1712, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},
    {1877, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},
    {1812, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // its tablespace is missing
    {1814, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // or was discarded
    {1932, SKR_REFUSED, SKR_TRY_AGAIN, ENGINE},  // the engine does not know it
    {1598, SKR_REFUSED, SKR_TRY_AGAIN,
     "the server's binary log cannot be written; look into its log"},
    {3098, SKR_REFUSED, SKR_TRY_AGAIN, GROUP},
    {3100, SKR_REFUSED, SKR_TRY_AGAIN, GROUP},
    {1461, SKR_REFUSED, SKR_TRY_AGAIN, "raise max_prepared_stmt_count"},
    {1637, SKR_REFUSED, SKR_TRY_AGAIN, NULL},  // too many transactions
    {1036, SKR_REFUSED, SKR_RECONNECT, PRIMARY},
    {1290, SKR_REFUSED, SKR_RECONNECT, PRIMARY},
    {1792, SKR_REFUSED, SKR_RECONNECT, PRIMARY},
    {1836, SKR_REFUSED, SKR_RECONNECT, PRIMARY},

    {2008, SKR_NO_MEMORY, SKR_TRY_AGAIN, NULL},
};

// "MariaDB 127.0.0.1:3306/shop": where it happened, without user and password.
// "" before the server has answered: then nothing tells what it is, and the
// caller knows where it was looked for.
static void
name_place(MYSQL *connection, char *place, size_t size)
{
    const char *host = NULL, *database = NULL, *socket = NULL;
    unsigned port = 0;
    char number[16] = "";
    place[0] = '\0';
    if (mysql_get_server_info(connection) == NULL)
        return;
    mariadb_get_infov(connection, MARIADB_CONNECTION_HOST, &host);
    mariadb_get_infov(connection, MARIADB_CONNECTION_UNIX_SOCKET, &socket);
    mariadb_get_infov(connection, MARIADB_CONNECTION_SCHEMA, &database);
    mariadb_get_infov(connection, MARIADB_CONNECTION_PORT, &port);
    if (host == NULL || host[0] == '\0')
        host = socket == NULL ? "" : socket;
    else if (port > 0)
        snprintf(number, sizeof(number), ":%u", port);
    snprintf(place, size, "%s %.60s%s%s%.60s", skr_mysql_product(connection),
             host, number, database == NULL ? "" : "/",
             database == NULL ? "" : database);
}

static enum skr_code
fail(struct skr_error *error, enum skr_code code, enum skr_remedy remedy,
     const char *place, const char *message, const char *advice)
{
    skr_fail(error, code, remedy, "%s%s%s", place, place[0] == '\0' ? "" : ": ",
             message);
    skr_error_advise(error, advice);
    return code;
}

enum skr_code
skr_mysql_fail_read_only(MYSQL *connection, const char *reason,
                         struct skr_error *error)
{
    char place[160], message[80];
    name_place(connection, place, sizeof(place));
    snprintf(message, sizeof(message), "nothing can be written: %.50s", reason);
    fail(error, SKR_REFUSED, SKR_RECONNECT, place, message, PRIMARY);
    skr_error_set_native(error, "1290");
    return SKR_REFUSED;
}

enum skr_code
skr_mysql_fail_silent(MYSQL *connection, unsigned timeout_s,
                      struct skr_error *error)
{
    char place[160];
    name_place(connection, place, sizeof(place));
    return skr_db_fail_silent(place, timeout_s, error);
}

// Whether the library has given up waiting. It says the same of a connection
// that was ended.
static bool
was_silent(MYSQL *connection, unsigned native, int reason, unsigned *timeout_s)
{
    *timeout_s = 0;
    mysql_get_optionv(connection, MYSQL_OPT_READ_TIMEOUT, timeout_s);
    return native == LOST && reason == ETIMEDOUT && *timeout_s > 0;
}

static const char *
find_advice(size_t index, const char *message)
{
    if (errors[index].native == LOST &&
        strstr(message, "initial communication packet") != NULL)
        return "what is there does not answer as MariaDB and MySQL do; correct "
               "host and port in the DSN, or look whether the server hangs";
    if (errors[index].native == BAD_TLS &&
        strstr(message, "key values") != NULL)
        return "name in ssl_key the key of ssl_cert";
    bool has_no_tls =
        errors[index].native == BAD_TLS && strstr(message, "support") != NULL;
    return has_no_tls ? SKR_MYSQL_OFFERS_NO_TLS : errors[index].advice;
}

static enum skr_code
fail_by_number(MYSQL *connection, unsigned native, const char *message,
               struct skr_error *error)
{
    char place[160];
    unsigned timeout_s;
    if (was_silent(connection, native, errno, &timeout_s))
        return skr_mysql_fail_silent(connection, timeout_s, error);
    name_place(connection, place, sizeof(place));
    for (size_t i = 0; i < SKR_COUNT_OF(errors); i++)
        if (errors[i].native == native)
            return fail(error, errors[i].code, errors[i].remedy, place, message,
                        find_advice(i, message));
    bool is_clients =
        native == 0 || (native >= FIRST_OF_CLIENT && native <= LAST_OF_CLIENT);
    return fail(error, is_clients ? SKR_UNAVAILABLE : SKR_INVALID,
                is_clients ? SKR_RECONNECT : SKR_GIVE_UP, place, message, NULL);
}

static enum skr_code
fail_natively(MYSQL *connection, unsigned native, const char *message,
              struct skr_error *error)
{
    enum skr_code code = fail_by_number(connection, native, message, error);
    skr_error_set_native(error, "%u", native);
    return code;
}

enum skr_code
skr_mysql_fail(MYSQL *connection, struct skr_error *error)
{
    unsigned native = mysql_errno(connection);
    return fail_natively(connection, native,
                         native == 0 ? "the client library gives no reason"
                                     : mysql_error(connection),
                         error);
}

enum skr_code
skr_mysql_fail_statement(MYSQL *connection, MYSQL_STMT *handle,
                         struct skr_error *error)
{
    unsigned native = mysql_stmt_errno(handle);
    if (native == 0)
        return skr_mysql_fail(connection, error);
    return fail_natively(connection, native, mysql_stmt_error(handle), error);
}
