// SPDX-License-Identifier: MIT
// Waiting for work. Neither server can tell that something was committed, so
// the caller of a wait is sent to look.

#include "db/mysql/connection.h"

#include "base/clock.h"

enum skr_code
skr_mysql_wait(struct skr_db *db, int wake_fd, uint32_t timeout_ms,
               struct skr_error *error)
{
    struct skr_mysql *mysql = (struct skr_mysql *)db;
    struct skr_pace *pace = &mysql->pace;
    (void)error;
    int64_t now_ms = skr_clock_ms();
    if (skr_clock_sleep(wake_fd, 0))
        return SKR_STOPPED;
    bool is_first = !pace->has_begun;
    if (is_first || db->found_rows)
        skr_pace_found(pace, now_ms);
    db->found_rows = false;
    int64_t left = is_first ? 0 : pace->next_look_ms - now_ms;
    if (left > (int64_t)timeout_ms)
        return skr_clock_sleep(wake_fd, timeout_ms) ? SKR_STOPPED : SKR_TIMEOUT;
    if (left > 0 && skr_clock_sleep(wake_fd, left))
        return SKR_STOPPED;
    skr_pace_look(pace, skr_clock_ms());
    return SKR_OK;
}
