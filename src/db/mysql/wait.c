// SPDX-License-Identifier: MIT
// Waiting for work. Neither server can tell that something was committed, so
// whoever waits is sent to look: soon after there was something, and ever less
// often while there is nothing.

#include "db/mysql/connection.h"

#include "base/clock.h"

enum {
    LEAST_PAUSE_MS = 1,
    LIVELY_PAUSE_MS = 20,  // while the last row is fresh
    LIVELY_MS = 5000,
    MOST_PAUSE_MS = 1000,
};

static void
start_over(struct skr_mysql *mysql, int64_t now_ms)
{
    mysql->pause_ms = LEAST_PAUSE_MS;
    mysql->quiet_since_ms = now_ms;
    mysql->next_look_ms = now_ms + mysql->pause_ms;
}

static void
slow_down(struct skr_mysql *mysql, int64_t now_ms)
{
    int64_t most = now_ms - mysql->quiet_since_ms < LIVELY_MS ? LIVELY_PAUSE_MS
                                                              : MOST_PAUSE_MS;
    mysql->pause_ms = mysql->pause_ms * 2 < most ? mysql->pause_ms * 2 : most;
    mysql->next_look_ms = now_ms + mysql->pause_ms;
}

enum skr_code
skr_mysql_wait(struct skr_db *db, int wake_fd, uint32_t timeout_ms,
               struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    (void)error;
    int64_t now_ms = skr_clock_ms();
    if (skr_clock_sleep(wake_fd, 0))
        return SKR_STOPPED;
    if (!mysql->has_waited) {
        mysql->has_waited = true;
        start_over(mysql, now_ms);
        return SKR_OK;
    }
    if (db->found_rows) {
        db->found_rows = false;
        start_over(mysql, now_ms);
    }
    int64_t left = mysql->next_look_ms - now_ms;
    if (left > (int64_t)timeout_ms)
        return skr_clock_sleep(wake_fd, timeout_ms) ? SKR_STOPPED : SKR_TIMEOUT;
    if (left > 0 && skr_clock_sleep(wake_fd, left))
        return SKR_STOPPED;
    slow_down(mysql, skr_clock_ms());
    return SKR_OK;
}
