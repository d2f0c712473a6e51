// SPDX-License-Identifier: MIT
// Waiting for work: SQLite counts the commits of other connections, and asking
// for that number takes two microseconds and no lock that lasts.

#include "db/sqlite/connection.h"

#include "base/clock.h"
#include "db/run.h"

// Where there was traffic there will soon be more: looking every millisecond
// for a while costs about a percent of a processor.
enum { LEAST_PAUSE_MS = 1, LINGER_MS = 200 };

static enum skr_code
look(struct skr_sqlite *sqlite, bool *changed, struct skr_error *error)
{
    int64_t version = 0;
    enum skr_code code =
        skr_sql_number(skr_db_tx(&sqlite->db), "PRAGMA data_version",
                       SKR_NO_VALUES, &version, error);
    if (code != SKR_OK)
        return code;
    *changed = !sqlite->has_waited || version != sqlite->version;
    sqlite->has_waited = true;
    sqlite->version = version;
    return SKR_OK;
}

enum skr_code
skr_sqlite_wait(struct skr_db *db, int wake_fd, uint32_t timeout_ms,
                struct skr_error *error)
{
    struct skr_sqlite *sqlite = (struct skr_sqlite *)db;
    int64_t end = skr_clock_ms() + timeout_ms;
    if (skr_clock_sleep(wake_fd, 0))
        return SKR_STOPPED;
    enum skr_code code = skr_sqlite_check_file(sqlite, error);
    if (code != SKR_OK)
        return code;
    for (;;) {
        bool changed = false;
        code = look(sqlite, &changed, error);
        if (code != SKR_OK)
            return code;
        if (changed) {
            skr_backoff_reset(&sqlite->wait_backoff);
            sqlite->linger_until_ms = skr_clock_ms() + LINGER_MS;
            return SKR_OK;
        }
        int64_t now_ms = skr_clock_ms();
        int64_t left = end - now_ms;
        if (left <= 0)
            return SKR_TIMEOUT;
        int64_t pause = now_ms < sqlite->linger_until_ms
                            ? LEAST_PAUSE_MS
                            : skr_backoff_next(&sqlite->wait_backoff);
        if (skr_clock_sleep(wake_fd, pause < left ? pause : left))
            return SKR_STOPPED;
    }
}
