// SPDX-License-Identifier: MIT
// Which trigger tells of new rows, where there is one. Two triggers are known:
// - Symfony's notifies of every row, on a channel that has the table's name.
//   Transactions that notify commit one after the other: many writers are slow.
// - `skirnir setup --notify` makes one that is armed. A writer notifies only if
//   it cannot share an advisory lock, which a reader takes for itself before it
//   sleeps. Once the reader has the lock, all transactions that shared it are
//   over, so that a last look sees their rows; all that come later tell. While
//   rows keep coming no reader sleeps, and no writer notifies.
//
// One reader can have the lock. Others, and all that hear nothing, poll.

#include "db/pgsql/connection.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "db/run.h"

#include <stdio.h>
#include <string.h>

enum {
    ASK_AGAIN_MS = 60000,
    LEAST_LINGER_MS = 20,
    MOST_LINGER_MS = 1000,
    SHORT_SLEEP_MS = 100,
    MOST_REFUSED_PAUSE_MS = 5000,
};

#define CHANNEL "skirnir"

// By the indexes that statements leave to it, whatever the statistics say.
static const char plan_sql[] =
    "SELECT set_config('enable_seqscan', 'off', false), "
    "set_config('enable_bitmapscan', 'off', false), "
    "set_config('max_parallel_workers_per_gather', '0', false)";

// Parameter: table, as a statement would name it.
static const char triggers_sql[] =
    "SELECT tgname = 'notify_trigger', nspname FROM pg_trigger "
    "JOIN pg_class AS c ON c.oid = tgrelid "
    "JOIN pg_namespace AS n ON n.oid = relnamespace WHERE tgrelid = "
    "to_regclass(CAST($1 AS TEXT)) AND NOT tgisinternal "
    "AND tgenabled IN ('O', 'A') "
    "AND tgname IN ('notify_trigger', 'skirnir_notify')";

// As the trigger makes the key. Parameters: place, queue.
#define KEY "(hashtext(CAST($1 AS TEXT)), hashtext(CAST($2 AS TEXT)))"
static const char arm_sql[] = "SELECT pg_try_advisory_lock" KEY;
static const char disarm_sql[] = "SELECT pg_advisory_unlock" KEY;

static enum skr_code
note_trigger(const struct skr_value *columns, size_t count, void *user,
             struct skr_error *error)
{
    (void)count;
    (void)error;
    struct skr_pgsql_followed *followed = user;
    if (columns[0].integer != 0)
        followed->has_plain = true;
    else
        followed->has_armed = true;
    snprintf(followed->place, sizeof(followed->place), "%.63s.%s",
             (const char *)columns[1].bytes, followed->table);
    return SKR_OK;
}

// Listening twice is the same as once.
static enum skr_code
listen_to(struct skr_pgsql *pgsql, const char *channel, struct skr_error *error)
{
    char sql[2 * SKR_PGSQL_TABLE_SIZE + 16];
    char *quoted =
        PQescapeIdentifier(pgsql->connection, channel, strlen(channel));
    if (quoted == NULL)
        return skr_fail_memory(error);
    snprintf(sql, sizeof(sql), "LISTEN %s", quoted);
    PQfreemem(quoted);
    return skr_pgsql_exec(pgsql, sql, error);
}

static enum skr_code
ask_for_triggers(struct skr_pgsql *pgsql, struct skr_error *error)
{
    struct skr_pgsql_followed *followed = &pgsql->followed;
    bool had_plain = followed->has_plain, had_armed = followed->has_armed;
    followed->has_plain = false;
    followed->has_armed = false;
    followed->asked_at_ms = skr_clock_ms();
    enum skr_code code = skr_sql_each(skr_db_tx(&pgsql->db), triggers_sql,
                                      skr_values("%s", followed->table),
                                      note_trigger, followed, error);
    if (code == SKR_OK && followed->has_plain && !had_plain)
        code = listen_to(pgsql, followed->table, error);
    if (code == SKR_OK && followed->has_armed && !had_armed)
        code = listen_to(pgsql, CHANNEL, error);
    followed->is_heard = followed->is_heard && followed->has_plain;
    return code;
}

enum skr_code
skr_pgsql_plan_by_index(struct skr_db *db, struct skr_error *error)
{
    return skr_pgsql_exec((struct skr_pgsql *)db, plan_sql, error);
}

enum skr_code
skr_pgsql_follow(struct skr_db *db, const char *table, const char *queue,
                 struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    struct skr_pgsql_followed *followed = &pgsql->followed;
    if (strcmp(followed->table, table) == 0 &&
        strcmp(followed->queue, queue) == 0)
        return SKR_OK;
    // Behind a pooler the session may be another client's the next moment,
    // which would be left with our settings and our lock. One that holds a lock
    // was seen to be ours for good.
    if (pgsql->has_pooler && !pgsql->holds_lock)
        return SKR_OK;
    if (strlen(table) >= sizeof(followed->table) ||
        strlen(queue) >= sizeof(followed->queue))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.80s: the name of the table or its queue is too long",
                        table);
    if (followed->is_armed) {
        enum skr_code code = skr_pgsql_disarm(pgsql, error);
        if (code != SKR_OK)
            return code;
    }
    *followed = (struct skr_pgsql_followed){.linger_ms = LEAST_LINGER_MS};
    snprintf(followed->table, sizeof(followed->table), "%s", table);
    snprintf(followed->queue, sizeof(followed->queue), "%s", queue);
    enum skr_code code = skr_pgsql_plan_by_index(db, error);
    if (code == SKR_OK)
        code = ask_for_triggers(pgsql, error);
    return code;
}

// Triggers come and go while a relay runs for months.
enum skr_code
skr_pgsql_refresh(struct skr_pgsql *pgsql, struct skr_error *error)
{
    const struct skr_pgsql_followed *followed = &pgsql->followed;
    if (followed->table[0] == '\0' ||
        skr_clock_ms() - followed->asked_at_ms < ASK_AGAIN_MS)
        return SKR_OK;
    enum skr_code code = ask_for_triggers(pgsql, error);
    if (code == SKR_OK && followed->is_armed && !followed->has_armed)
        code = skr_pgsql_disarm(pgsql, error);
    return code;
}

bool
skr_pgsql_is_for_us(const struct skr_pgsql_followed *followed,
                    const PGnotify *heard)
{
    size_t length = strlen(followed->place);
    if (followed->table[0] == '\0')
        return true;
    if (strcmp(heard->relname, followed->table) == 0)
        return strcmp(heard->extra, followed->queue) == 0;
    return strcmp(heard->relname, CHANNEL) == 0 &&
           strncmp(heard->extra, followed->place, length) == 0 &&
           heard->extra[length] == '.' &&
           strcmp(heard->extra + length + 1, followed->queue) == 0;
}

static enum skr_code
call(struct skr_pgsql *pgsql, const char *sql, bool *answer,
     struct skr_error *error)
{
    const struct skr_pgsql_followed *followed = &pgsql->followed;
    int64_t number = 0;
    enum skr_code code = skr_sql_number(
        skr_db_tx(&pgsql->db), sql,
        skr_values("%s %s", followed->place, followed->queue), &number, error);
    if (code == SKR_OK)
        *answer = number != 0;
    return code;
}

// A reader is refused while a writer is in its transaction, or while another
// reader sleeps, which may be for long.
enum skr_code
skr_pgsql_arm(struct skr_pgsql *pgsql, struct skr_error *error)
{
    struct skr_pgsql_followed *followed = &pgsql->followed;
    int64_t pause_ms = followed->refused_pause_ms * 2;
    followed->armed_at_ms = skr_clock_ms();
    enum skr_code code = call(pgsql, arm_sql, &followed->is_armed, error);
    if (pause_ms < followed->linger_ms)
        pause_ms = followed->linger_ms;
    if (pause_ms > MOST_REFUSED_PAUSE_MS)
        pause_ms = MOST_REFUSED_PAUSE_MS;
    followed->refused_pause_ms = followed->is_armed ? 0 : pause_ms;
    return code;
}

// A reader that is woken soon after it armed was too hasty: rows keep coming,
// and each sleep makes a writer notify.
enum skr_code
skr_pgsql_disarm(struct skr_pgsql *pgsql, struct skr_error *error)
{
    struct skr_pgsql_followed *followed = &pgsql->followed;
    bool was_short = skr_clock_ms() - followed->armed_at_ms < SHORT_SLEEP_MS;
    int64_t linger_ms =
        was_short ? followed->linger_ms * 2 : followed->linger_ms / 2;
    if (linger_ms < LEAST_LINGER_MS)
        linger_ms = LEAST_LINGER_MS;
    followed->linger_ms =
        linger_ms < MOST_LINGER_MS ? linger_ms : MOST_LINGER_MS;
    followed->is_armed = false;
    bool unused = false;
    return call(pgsql, disarm_sql, &unused, error);
}
