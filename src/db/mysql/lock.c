// SPDX-License-Identifier: MIT
// A lock is one of GET_LOCK(): the server frees it with its session. A session
// that falls silent, as its process was stopped or its host cut off, is closed
// by the server after a few seconds, so that another can take over.
//
// These locks have one holder each. So the lock of a name is a gate: a session
// that is alone stays in it, and sees to it that no member is there. Sessions
// that are together, or in shares, pass through it one by one, see to it that
// no member of the other kind is there, and each take a numbered lock, a
// member's, before they leave: the session in the gate sees all members there
// are.

#include "db/mysql/connection.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "db/run.h"

#include <stdio.h>
#include <string.h>

enum {
    POLL_MS = 20,
    CROWD_POLL_MS = 250,
    SLICE_S = 1,
    MOST_MEMBERS = 64,
};

void
skr_mysql_lock_name(const char *database, const char *name,
                    char text[SKR_MYSQL_LOCK_NAME_SIZE])
{
    // Names are shared by all databases of a server, and short.
    struct skr_hash hash = skr_hash_start();
    hash = skr_hash_add_text(hash, database);
    hash = skr_hash_add_text(hash, name);
    snprintf(text, SKR_MYSQL_LOCK_NAME_SIZE, "skirnir-%016llx%016llx",
             (unsigned long long)hash.high, (unsigned long long)hash.low);
}

// By the name that the server itself has for the database: a URL may write it
// differently.
static enum skr_code
find_name(struct skr_mysql *mysql, const char *name,
          char text[SKR_MYSQL_LOCK_NAME_SIZE], struct skr_error *error)
{
    char database[SKR_MYSQL_TABLE_SIZE];
    enum skr_code code =
        skr_sql_text(skr_db_tx(&mysql->db), "SELECT DATABASE()", SKR_NO_VALUES,
                     database, sizeof(database), error);
    if (code == SKR_OK)
        skr_mysql_lock_name(database, name, text);
    return code;
}

static enum skr_code
get_lock(struct skr_mysql *mysql, const char *name, int64_t wait_s,
         bool *granted, struct skr_error *error)
{
    int64_t number = 0;
    enum skr_code code =
        skr_sql_number(skr_db_tx(&mysql->db), "SELECT GET_LOCK(?, ?)",
                       skr_values("%s %jd", name, wait_s), &number, error);
    *granted = code == SKR_OK && number == 1;
    return code;
}

static enum skr_code
release_lock(struct skr_mysql *mysql, const char *name, struct skr_error *error)
{
    int64_t ignored = 0;
    return skr_sql_number(skr_db_tx(&mysql->db), "SELECT RELEASE_LOCK(?)",
                          skr_values("%s", name), &ignored, error);
}

// By mode; a session that is alone has no members. Sessions that show that they
// are there have numbered locks, too.
static const char *const kinds_of_members[] = {
    [SKR_LOCK_TOGETHER] = "",
    [SKR_LOCK_IN_SHARES] = "s",
};
enum { KINDS = SKR_LOCK_IN_SHARES - SKR_LOCK_TOGETHER + 1 };
static const char attendant[] = "a";

static void
name_member(const char *gate, const char *kind, size_t number,
            char text[SKR_MYSQL_LOCK_NAME_SIZE])
{
    snprintf(text, SKR_MYSQL_LOCK_NAME_SIZE, "%.40s-%s%zu", gate, kind, number);
}

// How many members of a kind there are.
static enum skr_code
count_members(struct skr_mysql *mysql, const char *gate, const char *kind,
              int64_t *count, struct skr_error *error)
{
    char sql[MOST_MEMBERS * 96] = "SELECT 0";
    size_t size = strlen(sql);
    for (size_t i = 0; i < MOST_MEMBERS; i++) {
        char name[SKR_MYSQL_LOCK_NAME_SIZE];
        name_member(gate, kind, i, name);
        size += (size_t)snprintf(sql + size, sizeof(sql) - size,
                                 " + (IS_USED_LOCK('%s') IS NOT NULL)", name);
    }
    return skr_sql_number(skr_db_tx(&mysql->db), sql, SKR_NO_VALUES, count,
                          error);
}

// The first lock of a kind that is free. Beyond the last one none is taken.
static enum skr_code
take_number(struct skr_mysql *mysql, const char *base, const char *kind,
            char name[SKR_MYSQL_LOCK_NAME_SIZE], bool *is_taken,
            struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    for (size_t i = 0; i < MOST_MEMBERS && code == SKR_OK && !*is_taken; i++) {
        name_member(base, kind, i, name);
        code = get_lock(mysql, name, 0, is_taken, error);
    }
    return code;
}

// From within the gate: becomes a member, whose lock replaces the gate's name.
static enum skr_code
become_member(struct skr_mysql *mysql, const char *gate,
              enum skr_lock_mode mode, char member[SKR_MYSQL_LOCK_NAME_SIZE],
              struct skr_error *error)
{
    bool granted = false;
    enum skr_code code = take_number(mysql, gate, kinds_of_members[mode],
                                     member, &granted, error);
    if (code != SKR_OK || granted)
        return code;
    return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                    "%d connections share this queue already, which is the "
                    "most that there can be on MariaDB and MySQL",
                    MOST_MEMBERS);
}

// From within the gate: whether there is a member that keeps this session out.
static enum skr_code
is_kept_out(struct skr_mysql *mysql, const char *gate, enum skr_lock_mode mode,
            bool *is_out, struct skr_error *error)
{
    enum skr_code code = SKR_OK;
    int64_t count = 0;
    for (int kind = SKR_LOCK_TOGETHER;
         kind <= SKR_LOCK_IN_SHARES && code == SKR_OK && count == 0; kind++)
        if (kind != (int)mode)
            code = count_members(mysql, gate, kinds_of_members[kind], &count,
                                 error);
    *is_out = count != 0;
    return code;
}

// Does in the gate what the mode asks for. held is what is held afterwards; ""
// for nothing: others are there.
static enum skr_code
pass_gate(struct skr_mysql *mysql, const char *gate, enum skr_lock_mode mode,
          char held[SKR_MYSQL_LOCK_NAME_SIZE], struct skr_error *error)
{
    bool is_out = false;
    held[0] = '\0';
    enum skr_code code = is_kept_out(mysql, gate, mode, &is_out, error);
    if (code == SKR_OK && !is_out && mode == SKR_LOCK_ALONE) {
        memcpy(held, gate, SKR_MYSQL_LOCK_NAME_SIZE);
        return SKR_OK;
    }
    if (code == SKR_OK && !is_out) {
        code = become_member(mysql, gate, mode, held, error);
        if (code != SKR_OK)
            held[0] = '\0';
    }
    enum skr_code left =
        release_lock(mysql, gate, code == SKR_OK ? error : NULL);
    return code == SKR_OK ? left : code;
}

// A server does not notice by itself that a client is gone: a lock, and what a
// transaction has locked, would stay so for hours. A session that holds a lock
// is ended as soon as it is silent, or does not read what it asked for. Without
// a lock MariaDB gives a transaction twice the time after which a client would
// give up in its turn, as a handler may be busy; begin() gives those without
// one less.
enum skr_code
skr_mysql_bound_silence(struct skr_mysql *mysql, struct skr_error *error)
{
    char sql[160], session_s[16] = "DEFAULT", more[64] = "";
    unsigned transaction_s = 2 * mysql->timeout_s;
    if (mysql->lock_name[0] != '\0') {
        transaction_s = SKR_SILENT_TRANSACTION_S;
        snprintf(session_s, sizeof(session_s), "%u", transaction_s);
    }
    // In a transaction it counts instead of the other.
    if (mariadb_connection(mysql->connection))
        snprintf(more, sizeof(more), ", idle_transaction_timeout = %u",
                 transaction_s);
    mysql->bound_s = mariadb_connection(mysql->connection) ? transaction_s : 0;
    snprintf(sql, sizeof(sql),
             "SET SESSION wait_timeout = %s, net_write_timeout = %s%s",
             session_s, session_s, more);
    return skr_sql_run(skr_db_tx(&mysql->db), sql, SKR_NO_VALUES, NULL, error);
}

static void
mysql_unlock(struct skr_db *db)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    enum skr_code ignored = release_lock(mysql, mysql->lock_name, NULL);
    mysql->lock_name[0] = '\0';
    ignored = skr_mysql_bound_silence(mysql, NULL);
    (void)ignored;
}

// Waits on the server for whole seconds, so that a standby costs next to
// nothing and is next at once; the rest by asking again. A session that was in
// the gate and not alone has not waited on the server, and the others may stay
// for long.
static enum skr_code
try_gate(struct skr_mysql *mysql, struct skr_lock_attempt *attempt,
         struct skr_error *error)
{
    const char *gate = mysql->gate;
    bool is_in_gate = false;
    int64_t left_ms = attempt->end_ms - skr_clock_ms();
    enum skr_code code =
        get_lock(mysql, gate, left_ms >= SLICE_S * 1000 ? SLICE_S : 0,
                 &is_in_gate, error);
    if (code == SKR_OK && is_in_gate)
        code = pass_gate(mysql, gate, attempt->mode, mysql->lock_name, error);
    if (code != SKR_OK)
        mysql->lock_name[0] = '\0';
    left_ms = attempt->end_ms - skr_clock_ms();
    attempt->pause_ms = left_ms >= SLICE_S * 1000 ? 0 : POLL_MS;
    if (is_in_gate)
        attempt->pause_ms = left_ms < CROWD_POLL_MS ? left_ms : CROWD_POLL_MS;
    return code;
}

static enum skr_code
mysql_try_lock(struct skr_db *db, struct skr_lock_attempt *attempt,
               struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    enum skr_code code = SKR_OK;
    // Two relays on two servers would both hold "the" lock.
    if (db->is_cluster)
        return skr_fail(error, SKR_REFUSED, SKR_GIVE_UP,
                        "this is a Galera cluster, or a MySQL group with "
                        "several primaries, whose servers do not share locks: "
                        "none can be relied on; use `claim: shared`");
    if (attempt->is_first)
        code = find_name(mysql, attempt->name, mysql->gate, error);
    if (code == SKR_OK)
        code = try_gate(mysql, attempt, error);
    attempt->granted = code == SKR_OK && mysql->lock_name[0] != '\0';
    if (attempt->granted) {
        code = skr_mysql_bound_silence(mysql, error);
        if (code != SKR_OK)
            mysql_unlock(db);
    }
    return code;
}

// 1, 0, or -1 from a server that can no longer be written, where the users who
// may all the same should not. Parameter: name.
static const char is_ours_sql[] =
    "SELECT CASE WHEN CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF') "
    "THEN -1 ELSE COALESCE(IS_USED_LOCK(?) = CONNECTION_ID(), 0) END";

static enum skr_code
mysql_check_lock(struct skr_db *db, struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    int64_t is_ours = 0;
    enum skr_code code =
        skr_sql_number(skr_db_tx(db), is_ours_sql,
                       skr_values("%s", mysql->lock_name), &is_ours, error);
    if (code != SKR_OK || is_ours == 1)
        return code;
    if (is_ours < 0) {
        skr_mysql_fail_read_only(mysql->connection, "it has become read-only",
                                 error);
        if (error != NULL)
            error->code = SKR_UNAVAILABLE;
        return SKR_UNAVAILABLE;
    }
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "%s: the lock %s is no longer held by this connection",
                    skr_mysql_product(mysql->connection), mysql->lock_name);
}

// Where it comes from is known of sessions of the same user, and of all with
// the right PROCESS.
static enum skr_code
describe_session(struct skr_mysql *mysql, int64_t session,
                 char text[SKR_HOLDER_SIZE], struct skr_error *error)
{
    char host[SKR_HOLDER_SIZE];
    enum skr_code code = skr_sql_text(
        skr_db_tx(&mysql->db),
        "SELECT host FROM information_schema.processlist WHERE id = ?",
        skr_values("%jd", session), host, sizeof(host), error);
    snprintf(text, SKR_HOLDER_SIZE, "session %lld%s%.60s", (long long)session,
             host[0] == '\0' ? "" : " from ", host);
    return code;
}

static enum skr_code
mysql_holder(struct skr_db *db, const char *name, char holder[SKR_HOLDER_SIZE],
             struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    char gate[SKR_MYSQL_LOCK_NAME_SIZE], held[SKR_MYSQL_LOCK_NAME_SIZE];
    int64_t session = 0;
    holder[0] = '\0';
    enum skr_code code = find_name(mysql, name, gate, error);
    memcpy(held, gate, sizeof(held));
    // Members have the first free number, so that the lowest tell enough.
    for (size_t i = 0; i <= 3 * KINDS && code == SKR_OK && session == 0; i++) {
        code = skr_sql_number(skr_db_tx(db), "SELECT IS_USED_LOCK(?)",
                              skr_values("%s", held), &session, error);
        name_member(gate, kinds_of_members[SKR_LOCK_TOGETHER + i % KINDS],
                    i / KINDS, held);
    }
    if (code == SKR_OK && session != 0)
        code = describe_session(mysql, session, holder, error);
    return code;
}

static enum skr_code
mysql_attend(struct skr_db *db, const char *name, struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    char base[SKR_MYSQL_LOCK_NAME_SIZE], number[SKR_MYSQL_LOCK_NAME_SIZE];
    if (db->is_cluster || mysql->attends)
        return SKR_OK;
    enum skr_code code = find_name(mysql, name, base, error);
    if (code != SKR_OK)
        return code;
    return take_number(mysql, base, attendant, number, &mysql->attends, error);
}

static enum skr_code
mysql_attendance(struct skr_db *db, const char *name, int64_t *count,
                 struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    char base[SKR_MYSQL_LOCK_NAME_SIZE];
    *count = -1;
    if (db->is_cluster)
        return SKR_OK;
    enum skr_code code = find_name(mysql, name, base, error);
    if (code != SKR_OK)
        return code;
    return count_members(mysql, base, attendant, count, error);
}

const struct skr_lock_ops skr_mysql_locks = {
    .shared_tries = 10,
    .try_lock = mysql_try_lock,
    .check = mysql_check_lock,
    .unlock = mysql_unlock,
    .holder = mysql_holder,
    .attend = mysql_attend,
    .attendance = mysql_attendance,
};
