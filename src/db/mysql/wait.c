// SPDX-License-Identifier: MIT
// Waiting for work. Where the binary log can be listened to, the reader is sent
// to look when it rings, and every few seconds in any case; else it is sent to
// look at the pace at which rows come. It looks several times for one ring, as
// rows may be seen a moment after the log has told of them, and for at most one
// of the rings that came together, as a look does not say how many it met.

#include "db/mysql/connection.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "db/mysql/doorbell.h"

#include <stdio.h>
#include <string.h>

enum {
    TOLD_PAUSE_MS = 5000,  // between looks without a ring
    QUIET_MS = 100,        // without rows, before it pays to listen
    MOST_VAIN = 16,        // looks that rings may cause before they are slowed
    VAIN_PAUSE_MS = 20,
    JUST_FOUND_MS = 20,
    // A look may be a moment ahead of the ring. Rings alone disprove nothing:
    // a relay's own changes ring, too.
    MOST_UNTOLD = 2,
};

// After a look in vain.
static const int64_t again_ms[] = {1, 2, 5, 20, 100};
enum { LATER_TRY = 2 };

static const struct skr_error is_deaf_reason = {
    .text = "rows come that the binary log does not tell of; look for "
            "binlog_do_db and binlog_ignore_db on the server, and for writers "
            "that switch sql_log_bin off or binlog_format to STATEMENT"};

// The name of a table may have its database in front.
static void
find_table(const struct skr_mysql *mysql, char database[SKR_MYSQL_TABLE_SIZE],
           const char **table)
{
    const char *own = "", *name = mysql->waking.table;
    const char *dot = strchr(name, '.');
    mariadb_get_infov(mysql->connection, MARIADB_CONNECTION_SCHEMA, &own);
    if (dot == NULL)
        snprintf(database, SKR_MYSQL_TABLE_SIZE, "%s", own == NULL ? "" : own);
    else
        snprintf(database, SKR_MYSQL_TABLE_SIZE, "%.*s", (int)(dot - name),
                 name);
    *table = dot == NULL ? name : dot + 1;
}

// Said once as long as it stays the same.
static void
say(struct skr_mysql *mysql, const char *by, const struct skr_error *reason)
{
    struct skr_mysql_waking *waking = &mysql->waking;
    const char *text = reason == NULL ? "" : reason->text;
    bool is_known = waking->has_said && strcmp(waking->said, text) == 0;
    if (mysql->db.log == NULL || is_known)
        return;
    waking->has_said = true;
    snprintf(waking->said, sizeof(waking->said), "%s", text);
    bool is_bad = reason != NULL && waking->mode == SKR_MYSQL_WAKE_BINLOG;
    skr_log(mysql->db.log, is_bad ? SKR_LOG_WARNING : SKR_LOG_INFO,
            "database.wake", SKR_LOG_TEXT("name", mysql->db.name),
            SKR_LOG_TEXT("by", by), SKR_LOG_TEXT("error", text));
}

// It begins when it is first quiet: a relay that only empties its queue needs
// no second session.
static void
begin_to_listen(struct skr_mysql *mysql, int64_t now_ms)
{
    struct skr_mysql_waking *waking = &mysql->waking;
    bool is_quiet = now_ms - mysql->pace.found_at_ms >= QUIET_MS;
    if (!is_quiet || waking->mode == SKR_MYSQL_WAKE_POLL ||
        waking->table[0] == '\0')
        return;
    if (waking->doorbell != NULL) {
        if (waking->state == SKR_MYSQL_DOORBELL_RESTING)
            skr_mysql_doorbell_resume(waking->doorbell);
        return;
    }
    char database[SKR_MYSQL_TABLE_SIZE];
    struct skr_mysql_doorbell_options options = {
        .url = &waking->url,
        .database = database,
        .most_bytes = waking->most_bytes,
    };
    struct skr_error problem = {0};
    find_table(mysql, database, &options.table);
    if (skr_mysql_doorbell_open(&options, &waking->doorbell, &problem) !=
        SKR_OK) {
        say(mysql, "poll", &problem);
        waking->mode = SKR_MYSQL_WAKE_POLL;
    }
}

static bool
is_told(const struct skr_mysql_waking *waking)
{
    return waking->state == SKR_MYSQL_DOORBELL_LISTENING &&
           waking->untold < MOST_UNTOLD;
}

static void
take_news(struct skr_mysql *mysql, const struct skr_mysql_doorbell_news *news)
{
    struct skr_mysql_waking *waking = &mysql->waking;
    if (waking->state != news->state)
        waking->untold = 0;
    waking->state = news->state;
    if (is_told(waking))
        say(mysql, "binlog", NULL);
    if (news->state == SKR_MYSQL_DOORBELL_FAILED)
        say(mysql, "poll", &news->reason);
    waking->rings += news->rings;
    waking->ring_look_ms = skr_clock_ms();
    // Rows may be seen before their ring, too, and have been found then.
    bool may_be_found =
        waking->ring_look_ms - mysql->pace.found_at_ms < JUST_FOUND_MS;
    waking->tries = may_be_found ? LATER_TRY : 0;
}

// Whether the log tells of the rows.
static void
note_telling(struct skr_mysql *mysql)
{
    struct skr_mysql_waking *waking = &mysql->waking;
    if (waking->was_ring_look) {
        waking->untold = 0;
        if (is_told(waking))
            say(mysql, "binlog", NULL);
    } else if (waking->was_own_look && ++waking->untold >= MOST_UNTOLD) {
        say(mysql, "poll", &is_deaf_reason);
    }
}

// Rows were found since the last look: more may follow soon.
static void
note_rows(struct skr_mysql *mysql, int64_t now_ms)
{
    struct skr_mysql_waking *waking = &mysql->waking;
    skr_pace_found(&mysql->pace, now_ms);
    waking->vain_looks = 0;
    // Of one ring they are the rows; of several others may come.
    if (waking->rings <= 1)
        waking->ring_look_ms = 0;
    waking->rings = waking->ring_look_ms == 0 ? 0 : 1;
    note_telling(mysql);
}

static int64_t
next_look_ms(const struct skr_mysql *mysql)
{
    const struct skr_mysql_waking *waking = &mysql->waking;
    int64_t next_ms = is_told(waking) ? waking->looked_at_ms + TOLD_PAUSE_MS
                                      : mysql->pace.next_look_ms;
    int64_t ring_ms = waking->ring_look_ms;
    // Rings may be for other queues of the table, or for a relay's own changes.
    if (ring_ms != 0 && waking->vain_looks >= MOST_VAIN &&
        ring_ms < waking->looked_at_ms + VAIN_PAUSE_MS)
        ring_ms = waking->looked_at_ms + VAIN_PAUSE_MS;
    return skr_clock_earlier(next_ms, ring_ms);
}

static void
look(struct skr_mysql *mysql, int64_t now_ms)
{
    struct skr_mysql_waking *waking = &mysql->waking;
    waking->was_ring_look = waking->ring_look_ms != 0;
    waking->was_own_look = is_told(waking) && !waking->was_ring_look;
    waking->looked_at_ms = now_ms;
    skr_pace_look(&mysql->pace, now_ms);
    if (waking->ring_look_ms == 0)
        return;
    waking->vain_looks++;
    waking->ring_look_ms = 0;
    if (waking->tries < SKR_COUNT_OF(again_ms))
        waking->ring_look_ms = now_ms + again_ms[waking->tries++];
    else
        waking->rings = 0;
}

enum skr_code
skr_mysql_follow(struct skr_db *db, const char *table, const char *queue,
                 struct skr_error *error)
{
    struct skr_mysql_waking *waking = &((struct skr_mysql *)db)->waking;
    (void)queue;
    (void)error;
    if (strcmp(waking->table, table) == 0)
        return SKR_OK;
    skr_mysql_doorbell_close(waking->doorbell);
    waking->doorbell = NULL;
    waking->state = SKR_MYSQL_DOORBELL_STARTING;
    // A name that is longer is no table's.
    snprintf(waking->table, sizeof(waking->table), "%s", table);
    return SKR_OK;
}

enum skr_code
skr_mysql_wait(struct skr_db *db, int wake_fd, uint32_t timeout_ms,
               struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    struct skr_mysql_waking *waking = &mysql->waking;
    struct skr_mysql_doorbell_news news;
    int64_t now_ms = skr_clock_ms(), end_ms = now_ms + timeout_ms;
    (void)error;
    bool is_first = !mysql->pace.has_begun;
    if (is_first || db->found_rows)
        note_rows(mysql, now_ms);
    db->found_rows = false;
    waking->was_own_look = waking->was_ring_look = false;
    if (timeout_ms > 0)
        begin_to_listen(mysql, now_ms);
    for (int64_t sleep_ms = 0;;) {
        enum skr_code code = skr_mysql_doorbell_await(waking->doorbell, wake_fd,
                                                      sleep_ms, &news);
        if (code == SKR_STOPPED)
            return SKR_STOPPED;
        if (code == SKR_OK)
            take_news(mysql, &news);
        now_ms = skr_clock_ms();
        int64_t next_ms = is_first ? now_ms : next_look_ms(mysql);
        if (next_ms <= now_ms) {
            look(mysql, now_ms);
            return SKR_OK;
        }
        if (now_ms >= end_ms)
            return SKR_TIMEOUT;
        sleep_ms = (next_ms < end_ms ? next_ms : end_ms) - now_ms;
    }
}
