// SPDX-License-Identifier: MIT
// SQLite's result codes as codes of ours: the one place that knows them.

#include "db/sqlite/connection.h"

#include "base/error.h"
#include "base/text.h"

#include <string.h>

#define LOCKED \
    "another connection holds the lock; a transaction is open too long"
#define WRITABLE "make the file and its folder writable for this user"
#define DAMAGED                                                            \
    "the file is damaged or not a database; restore it from a backup, or " \
    "correct the path in the DSN"
#define SPACE "free some space on the disk"
#define DISK "check the disk and the folder's permissions"

// An extended code comes before the code that it belongs to.
static const struct {
    int native;
    enum skr_code code;
    enum skr_remedy remedy;
    const char *advice;
} errors[] = {
    {SQLITE_CONSTRAINT_PRIMARYKEY, SKR_DUPLICATE, SKR_GIVE_UP, NULL},
    {SQLITE_CONSTRAINT_ROWID, SKR_DUPLICATE, SKR_GIVE_UP, NULL},
    {SQLITE_CONSTRAINT_UNIQUE, SKR_DUPLICATE, SKR_GIVE_UP, NULL},
    {SQLITE_CONSTRAINT, SKR_REFUSED, SKR_GIVE_UP, NULL},
    {SQLITE_BUSY_SNAPSHOT, SKR_CONFLICT, SKR_TRY_AGAIN,
     "another connection wrote first; begin with BEGIN IMMEDIATE"},
    {SQLITE_BUSY, SKR_CONFLICT, SKR_TRY_AGAIN, LOCKED},
    {SQLITE_LOCKED, SKR_CONFLICT, SKR_TRY_AGAIN, LOCKED},
    {SQLITE_PROTOCOL, SKR_CONFLICT, SKR_TRY_AGAIN, LOCKED},
    {SQLITE_ABORT, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},
    {SQLITE_INTERRUPT, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},
    {SQLITE_SCHEMA, SKR_CONFLICT, SKR_TRY_AGAIN, NULL},
    {SQLITE_READONLY_DBMOVED, SKR_REFUSED, SKR_RECONNECT,
     "the file was moved or deleted while it was open"},
    {SQLITE_READONLY, SKR_REFUSED, SKR_RECONNECT, WRITABLE},
    {SQLITE_PERM, SKR_REFUSED, SKR_RECONNECT, WRITABLE},
    {SQLITE_AUTH, SKR_REFUSED, SKR_GIVE_UP, NULL},
    {SQLITE_FULL, SKR_REFUSED, SKR_TRY_AGAIN, SPACE},
    // The first connection makes the index of the write-ahead log.
    {SQLITE_IOERR_SHMSIZE, SKR_UNAVAILABLE, SKR_RECONNECT, SPACE},
    {SQLITE_NOLFS, SKR_REFUSED, SKR_TRY_AGAIN,
     "the disk's file system takes no file as large as this"},
    {SQLITE_IOERR_NOMEM, SKR_NO_MEMORY, SKR_TRY_AGAIN, NULL},
    {SQLITE_IOERR, SKR_UNAVAILABLE, SKR_RECONNECT, DISK},
    {SQLITE_CANTOPEN, SKR_UNAVAILABLE, SKR_RECONNECT, DISK},
    // Waiting mends no file.
    {SQLITE_CORRUPT, SKR_INVALID, SKR_RECONNECT, DAMAGED},
    {SQLITE_NOTADB, SKR_INVALID, SKR_RECONNECT, DAMAGED},
    {SQLITE_INTERNAL, SKR_UNAVAILABLE, SKR_RECONNECT, NULL},
    {SQLITE_NOMEM, SKR_NO_MEMORY, SKR_TRY_AGAIN, NULL},
    {SQLITE_TOOBIG, SKR_INVALID, SKR_GIVE_UP, NULL},
};

// Mistakes in SQL share one code; only the message tells them apart.
static const struct {
    const char *words;
    enum skr_code code;
    const char *advice;
} messages[] = {
    {"no such table", SKR_MISSING, NULL},
    {"no such column", SKR_INVALID, "this is a table of another shape"},
    {"has no column named", SKR_INVALID, "this is a table of another shape"},
    {"no such savepoint", SKR_NO_TRANSACTION,
     "one of its own statements has ended the transaction"},
};

static enum skr_code
fail(struct skr_error *error, enum skr_code code, enum skr_remedy remedy,
     const char *path, const char *message, const char *advice)
{
    skr_fail(error, code, remedy, "SQLite %s: %s", path, message);
    skr_error_advise(error, advice);
    return code;
}

static enum skr_code
fail_by_code(const char *path, int native, const char *message,
             struct skr_error *error)
{
    for (size_t i = 0; i < SKR_COUNT_OF(errors); i++)
        if (errors[i].native == native || errors[i].native == (native & 0xff))
            return fail(error, errors[i].code, errors[i].remedy, path, message,
                        errors[i].advice);
    for (size_t i = 0; i < SKR_COUNT_OF(messages); i++)
        if (strstr(message, messages[i].words) != NULL)
            return fail(error, messages[i].code, SKR_GIVE_UP, path, message,
                        messages[i].advice);
    return fail(error, SKR_INVALID, SKR_GIVE_UP, path, message, NULL);
}

enum skr_code
skr_sqlite_fail_path(const char *path, int native, const char *message,
                     struct skr_error *error)
{
    enum skr_code code = fail_by_code(path, native, message, error);
    skr_error_set_native(error, "%d", native);
    return code;
}

enum skr_code
skr_sqlite_fail(sqlite3 *connection, int native, struct skr_error *error)
{
    const char *path = sqlite3_db_filename(connection, "main");
    if (path == NULL || path[0] == '\0')
        path = "database in memory";
    // The call's own result may be the plain code; the connection knows more.
    int extended = sqlite3_extended_errcode(connection);
    if ((extended & 0xff) == (native & 0xff))
        native = extended;
    const char *message = (native & 0xff) == (extended & 0xff)
                              ? sqlite3_errmsg(connection)
                              : sqlite3_errstr(native);
    return skr_sqlite_fail_path(path, native, message, error);
}
