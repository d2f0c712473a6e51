// SPDX-License-Identifier: MIT
// Waiting for work. The server's snapshot says which transactions are over: as
// long as it is the same, there can be no row that was not there before, and
// asking for it takes no lock and touches no table. It covers all databases of
// the server, so that it may change for others' reasons too.
//
// The socket is watched meanwhile: a notification, or the end of the
// connection, is heard at once.

#include "db/pgsql/connection.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>

enum {
    LEAST_PAUSE_MS = 1,
    BUSY_PAUSE_MS = 20,  // the most within BUSY_MS after rows were found
    BUSY_MS = 5000,
    MOST_PAUSE_MS = 1000,
};

static enum skr_code
hash_text(const struct skr_value *columns, size_t count, void *user,
          struct skr_error *error)
{
    (void)count;
    (void)error;
    *(struct skr_hash *)user =
        skr_hash_add(skr_hash_start(), columns[0].bytes, columns[0].size);
    return SKR_OK;
}

static enum skr_code
look(struct skr_pgsql *pgsql, bool *changed, struct skr_error *error)
{
    struct skr_hash version = {0, 0};
    const struct skr_statement statement = {
        .sql = "SELECT CAST(pg_current_snapshot() AS TEXT)",
        .each_row = hash_text,
        .user = &version};
    enum skr_code code =
        skr_pgsql_run(pgsql->connection, &pgsql->cache, &statement, error);
    if (code != SKR_OK)
        return code;
    *changed = !pgsql->has_waited || version.high != pgsql->version.high ||
               version.low != pgsql->version.low;
    pgsql->has_waited = true;
    pgsql->version = version;
    return SKR_OK;
}

// Takes in what the server has sent on its own.
static enum skr_code
hear(struct skr_pgsql *pgsql, bool *notified, struct skr_error *error)
{
    if (PQconsumeInput(pgsql->connection) == 0 ||
        PQstatus(pgsql->connection) != CONNECTION_OK)
        return skr_pgsql_fail(pgsql->connection, NULL, NULL, error);
    for (PGnotify *heard; (heard = PQnotifies(pgsql->connection)) != NULL;) {
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
    for (;;) {
        int64_t left = until_ms - skr_clock_ms();
        struct pollfd fds[] = {
            {.fd = wake_fd, .events = POLLIN},
            {.fd = PQsocket(pgsql->connection), .events = POLLIN},
        };
        int ready = poll(fds, 2, left > 0 ? (int)left : 0);
        if (ready < 0 && errno != EINTR)
            return skr_fail(error, SKR_REFUSED, SKR_TRY_AGAIN,
                            "the sockets cannot be waited for");
        if (ready > 0 && fds[0].revents != 0)
            return SKR_STOPPED;
        if (ready > 0) {
            enum skr_code code = hear(pgsql, notified, error);
            if (code != SKR_OK || *notified)
                return code;
        }
        if (ready == 0 && left <= 0)
            return SKR_OK;
    }
}

static void
plan_next_look(struct skr_pgsql *pgsql)
{
    int64_t now_ms = skr_clock_ms();
    bool is_busy = now_ms - pgsql->quiet_since_ms < BUSY_MS;
    int64_t most_ms = is_busy ? BUSY_PAUSE_MS : MOST_PAUSE_MS;
    pgsql->next_look_ms = now_ms + pgsql->look_pause_ms;
    pgsql->look_pause_ms *= 2;
    if (pgsql->look_pause_ms > most_ms)
        pgsql->look_pause_ms = most_ms;
}

// Rows were found since the last look: more may follow soon.
static void
note_rows(struct skr_pgsql *pgsql)
{
    if (!pgsql->db.found_rows && pgsql->has_waited)
        return;
    pgsql->db.found_rows = false;
    pgsql->quiet_since_ms = skr_clock_ms();
    pgsql->look_pause_ms = LEAST_PAUSE_MS;
    int64_t soon_ms = pgsql->quiet_since_ms + LEAST_PAUSE_MS;
    if (pgsql->next_look_ms > soon_ms)
        pgsql->next_look_ms = soon_ms;
}

enum skr_code
skr_pgsql_wait(struct skr_db *db, int wake_fd, uint32_t timeout_ms,
               struct skr_error *error)
{
    struct skr_pgsql *pgsql = (struct skr_pgsql *)db;
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    note_rows(pgsql);
    for (;;) {
        bool is_look_due = pgsql->next_look_ms <= end_ms;
        bool notified = false, changed = false;
        enum skr_code code = sleep_and_hear(
            pgsql, wake_fd, is_look_due ? pgsql->next_look_ms : end_ms,
            &notified, error);
        if (code != SKR_OK || notified)
            return code;
        if (!is_look_due)
            return SKR_TIMEOUT;
        code = look(pgsql, &changed, error);
        if (code != SKR_OK)
            return code;
        plan_next_look(pgsql);
        if (changed)
            return SKR_OK;
    }
}
