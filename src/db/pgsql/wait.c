// SPDX-License-Identifier: MIT
// Waiting for work. The socket is watched, so that a notification, or the end
// of the connection, is heard at once. Where no trigger tells of rows the
// caller is sent to look; where one does, too, but rarely: a trigger may be
// switched off at any time.
//
// Two triggers are known:
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

// Ours was given the table's name when it was made, in a spelling that may be
// another than the reader's. Parameter: table, as a statement would name it.
static const char triggers_sql[] =
    "SELECT tgname = 'notify_trigger', nspname, "
    "split_part(encode(tgargs, 'escape'), E'\\\\000', 1) FROM pg_trigger "
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
    if (columns[0].integer != 0) {
        followed->has_plain = true;
        return SKR_OK;
    }
    followed->has_armed = true;
    snprintf(followed->place, sizeof(followed->place), "%.63s.%.63s",
             (const char *)columns[1].bytes, (const char *)columns[2].bytes);
    return SKR_OK;
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
static enum skr_code
arm(struct skr_pgsql *pgsql, struct skr_error *error)
{
    struct skr_pgsql_followed *followed = &pgsql->followed;
    followed->armed_at_ms = skr_clock_ms();
    enum skr_code code = call(pgsql, arm_sql, &followed->is_armed, error);
    followed->refused.first_ms = (uint32_t)followed->linger_ms;
    if (followed->is_armed)
        skr_backoff_reset(&followed->refused);
    else
        skr_backoff_next(&followed->refused);
    return code;
}

// A reader that is woken soon after it armed was too hasty: rows keep coming,
// and each sleep makes a writer notify.
static enum skr_code
disarm(struct skr_pgsql *pgsql, struct skr_error *error)
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
    if (pgsql->has_pooler && !pgsql->db.holds_lock)
        return SKR_OK;
    if (strlen(table) >= sizeof(followed->table) ||
        strlen(queue) >= sizeof(followed->queue))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.80s: the name of the table or its queue is too long",
                        table);
    if (followed->is_armed) {
        enum skr_code code = disarm(pgsql, error);
        if (code != SKR_OK)
            return code;
    }
    *followed = (struct skr_pgsql_followed){.linger_ms = LEAST_LINGER_MS,
                                            .refused.longest_ms =
                                                MOST_REFUSED_PAUSE_MS};
    snprintf(followed->table, sizeof(followed->table), "%s", table);
    snprintf(followed->queue, sizeof(followed->queue), "%s", queue);
    enum skr_code code = skr_pgsql_plan_by_index(db, error);
    if (code == SKR_OK)
        code = ask_for_triggers(pgsql, error);
    return code;
}

// Triggers come and go while a relay runs for months. The lock is let go of
// under the name by which it was taken.
static enum skr_code
refresh(struct skr_pgsql *pgsql, struct skr_error *error)
{
    const struct skr_pgsql_followed *followed = &pgsql->followed;
    enum skr_code code = SKR_OK;
    if (followed->table[0] == '\0' ||
        skr_clock_ms() - followed->asked_at_ms < ASK_AGAIN_MS)
        return SKR_OK;
    if (followed->is_armed)
        code = disarm(pgsql, error);
    return code == SKR_OK ? ask_for_triggers(pgsql, error) : code;
}

static bool
is_for_us(const struct skr_pgsql_followed *followed, const PGnotify *heard)
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

enum { TOLD_PAUSE_MS = 5000 };

// Takes in what the server has sent on its own.
static enum skr_code
hear(struct skr_pgsql *pgsql, bool *notified, struct skr_error *error)
{
    if (PQconsumeInput(pgsql->connection) == 0 ||
        PQstatus(pgsql->connection) != CONNECTION_OK)
        return skr_pgsql_fail(pgsql->connection, NULL, NULL, error);
    for (PGnotify *heard; (heard = PQnotifies(pgsql->connection)) != NULL;) {
        if (is_for_us(&pgsql->followed, heard))
            *notified = true;
        PQfreemem(heard);
    }
    return SKR_OK;
}

// Sleeps until it is time, or something is heard, or wake_fd is readable, which
// gives SKR_STOPPED.
static enum skr_code
sleep_and_hear(struct skr_pgsql *pgsql, int wake_fd, int64_t until_ms,
               bool *notified, struct skr_error *error)
{
    // What came along with an answer makes no socket readable.
    enum skr_code code = hear(pgsql, notified, error);
    if (code != SKR_OK || *notified)
        return code;
    for (;;) {
        struct pollfd fds[] = {
            {.fd = wake_fd, .events = POLLIN},
            {.fd = PQsocket(pgsql->connection), .events = POLLIN},
        };
        int ready = skr_clock_poll(fds, 2, until_ms - skr_clock_ms());
        if (ready < 0)
            return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                            "the sockets cannot be waited for");
        if (ready == 0)
            return SKR_OK;
        if (fds[0].revents != 0)
            return SKR_STOPPED;
        code = hear(pgsql, notified, error);
        if (code != SKR_OK || *notified)
            return code;
    }
}

// Rows were found since the last look: more may follow soon.
static enum skr_code
note_rows(struct skr_pgsql *pgsql, struct skr_error *error)
{
    struct skr_pgsql_followed *followed = &pgsql->followed;
    skr_pace_found(&pgsql->pace, skr_clock_ms());
    // Rows without a notification: listening alone is not enough.
    if (followed->is_heard && !followed->was_told)
        followed->is_heard = false;
    followed->was_told = false;
    skr_backoff_reset(&followed->refused);
    return followed->is_armed ? disarm(pgsql, error) : SKR_OK;
}

static int64_t
next_look_ms(const struct skr_pgsql *pgsql)
{
    if (pgsql->followed.is_armed || pgsql->followed.is_heard)
        return pgsql->looked_at_ms + TOLD_PAUSE_MS;
    return pgsql->pace.next_look_ms;
}

// When the next step is due: a look, an attempt to arm, or neither by then.
static int64_t
next_step_ms(const struct skr_pgsql *pgsql, int64_t end_ms, bool *is_arming)
{
    const struct skr_pgsql_followed *followed = &pgsql->followed;
    int64_t until_ms = next_look_ms(pgsql);
    *is_arming = followed->has_armed && !followed->is_armed &&
                 !followed->is_heard && end_ms > skr_clock_ms();
    if (*is_arming) {
        int64_t arm_ms = pgsql->pace.found_at_ms + followed->linger_ms;
        if (arm_ms < followed->armed_at_ms + followed->refused.pause_ms)
            arm_ms = followed->armed_at_ms + followed->refused.pause_ms;
        *is_arming = arm_ms <= until_ms && arm_ms <= end_ms;
        if (*is_arming)
            until_ms = arm_ms;
    }
    return until_ms;
}

static enum skr_code
wake_up(struct skr_pgsql *pgsql, struct skr_error *error)
{
    struct skr_pgsql_followed *followed = &pgsql->followed;
    followed->is_heard = followed->has_plain;
    followed->was_told = true;
    pgsql->looked_at_ms = skr_clock_ms();
    return followed->is_armed ? disarm(pgsql, error) : SKR_OK;
}

static enum skr_code
wait_for_step(struct skr_pgsql *pgsql, int wake_fd, int64_t end_ms,
              struct skr_error *error)
{
    bool is_arming = false, notified = false;
    int64_t step_ms = next_step_ms(pgsql, end_ms, &is_arming);
    enum skr_code code = sleep_and_hear(
        pgsql, wake_fd, step_ms < end_ms ? step_ms : end_ms, &notified, error);
    if (code != SKR_OK)
        return code;
    if (notified)
        return wake_up(pgsql, error);
    if (step_ms > end_ms)
        return SKR_TIMEOUT;
    if (is_arming) {
        code = arm(pgsql, error);
        if (code != SKR_OK)
            return code;
        if (!pgsql->followed.is_armed)
            return SKR_TIMEOUT;
    } else {
        skr_pace_look(&pgsql->pace, skr_clock_ms());
    }
    // A reader that has just armed looks once more: all writers that did not
    // notice are over by now.
    pgsql->looked_at_ms = skr_clock_ms();
    return SKR_OK;
}

enum skr_code
skr_pgsql_wait(struct skr_db *db, int wake_fd, uint32_t timeout_ms,
               struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    bool is_first = !pgsql->pace.has_begun;
    enum skr_code code = SKR_OK;
    if (is_first || db->found_rows)
        code = note_rows(pgsql, error);
    db->found_rows = false;
    if (code == SKR_OK && timeout_ms > 0)
        code = refresh(pgsql, error);
    if (code != SKR_OK)
        return code;
    if (is_first) {
        pgsql->looked_at_ms = skr_clock_ms();
        return SKR_OK;
    }
    return wait_for_step(pgsql, wake_fd, end_ms, error);
}
