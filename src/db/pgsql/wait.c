// SPDX-License-Identifier: MIT
// Waiting for work. The socket is watched, so that a notification (follow.c
// says whose), or the end of the connection, is heard at once. Where no trigger
// tells of rows the caller is sent to look; where one does, too, but rarely: a
// trigger may be switched off at any time.

#include "db/pgsql/connection.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>

enum { TOLD_PAUSE_MS = 5000 };

// Takes in what the server has sent on its own.
static enum skr_code
hear(struct skr_pgsql *pgsql, bool *notified, struct skr_error *error)
{
    if (PQconsumeInput(pgsql->connection) == 0 ||
        PQstatus(pgsql->connection) != CONNECTION_OK)
        return skr_pgsql_fail(pgsql->connection, NULL, NULL, error);
    for (PGnotify *heard; (heard = PQnotifies(pgsql->connection)) != NULL;) {
        if (skr_pgsql_is_for_us(&pgsql->followed, heard))
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
            code = hear(pgsql, notified, error);
            if (code != SKR_OK || *notified)
                return code;
        }
        if (ready == 0 && left <= 0)
            return SKR_OK;
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
    followed->refused_pause_ms = 0;
    return followed->is_armed ? skr_pgsql_disarm(pgsql, error) : SKR_OK;
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
        if (arm_ms < followed->armed_at_ms + followed->refused_pause_ms)
            arm_ms = followed->armed_at_ms + followed->refused_pause_ms;
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
    return followed->is_armed ? skr_pgsql_disarm(pgsql, error) : SKR_OK;
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
        code = skr_pgsql_arm(pgsql, error);
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
        code = skr_pgsql_refresh(pgsql, error);
    if (code != SKR_OK)
        return code;
    if (is_first) {
        pgsql->looked_at_ms = skr_clock_ms();
        return SKR_OK;
    }
    return wait_for_step(pgsql, wake_fd, end_ms, error);
}
