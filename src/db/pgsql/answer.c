// SPDX-License-Identifier: MIT
// Waiting for what the server answers, but not for ever. PQexec() and its kin
// would: a server that is stopped, or a network that has forgotten the
// connection, neither answers nor ends it. So what they do in one call is done
// here in its parts, and between two signs of life only so much time may pass.

#include "db/pgsql/connection.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

// False: the time is over.
static bool
wait_for_socket(PGconn *connection, bool has_more_to_send, int64_t timeout_ms)
{
    int64_t end_ms = skr_clock_ms() + timeout_ms;
    for (;;) {
        int64_t left_ms = end_ms - skr_clock_ms();
        struct pollfd socket = {.fd = PQsocket(connection),
                                .events = has_more_to_send ? POLLIN | POLLOUT
                                                           : POLLIN};
        // Looked at once more: time also passes while this process is stopped.
        int ready = poll(&socket, 1, left_ms > 0 ? (int)left_ms : 0);
        if (ready == 0)
            return false;
        // What is wrong with the socket is for libpq to find out and to say.
        if (ready > 0 || errno != EINTR)
            return true;
    }
}

// Once libpq knows that a connection has ended, nothing waits for it again,
// closing it included.
static void
end(PGconn *connection)
{
    shutdown(PQsocket(connection), SHUT_RDWR);
    while (PQconsumeInput(connection) != 0) {
    }
}

// An answer that came later would be taken for that to another question, so
// that the connection is of no more use.
static void
hang_up(struct skr_pgsql *pgsql)
{
    pgsql->was_silent = true;
    end(pgsql->connection);
}

// NULL: there is no other, or silence.
static PGresult *
take_result(struct skr_pgsql *pgsql, int64_t timeout_ms)
{
    PGconn *connection = pgsql->connection;
    int unsent = PQflush(connection);
    while (unsent > 0 || (unsent == 0 && PQisBusy(connection))) {
        if (!wait_for_socket(connection, unsent > 0, timeout_ms)) {
            hang_up(pgsql);
            return NULL;
        }
        if (PQconsumeInput(connection) == 0)
            break;
        unsent = PQflush(connection);
    }
    // Does not wait any more. After a failure it says which.
    return PQgetResult(connection);
}

static void
end_copy_out(struct skr_pgsql *pgsql, int64_t timeout_ms)
{
    char *line = NULL;
    for (;;) {
        int size = PQgetCopyData(pgsql->connection, &line, 1);
        if (size < 0)
            return;
        if (size > 0) {
            PQfreemem(line);
            continue;
        }
        if (!wait_for_socket(pgsql->connection, false, timeout_ms)) {
            hang_up(pgsql);
            return;
        }
        if (PQconsumeInput(pgsql->connection) == 0)
            return;
    }
}

static bool
is_over(PGconn *connection)
{
    return PQstatus(connection) != CONNECTION_OK;
}

void
skr_pgsql_get_ready(struct skr_pgsql *pgsql, int64_t timeout_ms)
{
    PGresult *left;
    // Else what is sent to a server that does not read would wait for it.
    PQsetnonblocking(pgsql->connection, 1);
    // A handler may have left results, or a COPY, behind.
    while ((left = take_result(pgsql, timeout_ms)) != NULL) {
        ExecStatusType status = PQresultStatus(left);
        PQclear(left);
        if (is_over(pgsql->connection))
            return;
        if (status == PGRES_COPY_IN)
            PQputCopyEnd(pgsql->connection, "another statement came");
        else if (status == PGRES_COPY_OUT)
            end_copy_out(pgsql, timeout_ms);
    }
}

static PGresult *
give(const struct skr_pgsql *pgsql, PGresult *result)
{
    // The connection is lent to handlers, which expect it to block.
    PQsetnonblocking(pgsql->connection, 0);
    if (!pgsql->was_silent)
        return result;
    PQclear(result);
    return NULL;
}

PGresult *
skr_pgsql_take_answer(struct skr_pgsql *pgsql, int was_sent, int64_t timeout_ms)
{
    PGresult *last = NULL, *next;
    while (was_sent && (next = take_result(pgsql, timeout_ms)) != NULL) {
        // Of several statements the last one's, as nothing follows an error.
        PQclear(last);
        last = next;
        ExecStatusType status = PQresultStatus(next);
        if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
            is_over(pgsql->connection))
            break;
    }
    return give(pgsql, last);
}

PGresult *
skr_pgsql_take_answers(struct skr_pgsql *pgsql, int was_sent,
                       int64_t timeout_ms)
{
    PGconn *connection = pgsql->connection;
    PGresult *last = NULL, *next;
    ExecStatusType status = PGRES_EMPTY_QUERY;
    while (was_sent && status != PGRES_PIPELINE_SYNC && !is_over(connection)) {
        next = take_result(pgsql, timeout_ms);
        // Between two of them there is none.
        status = next == NULL ? PGRES_EMPTY_QUERY : PQresultStatus(next);
        if (next == NULL || status == PGRES_PIPELINE_SYNC ||
            status == PGRES_PIPELINE_ABORTED) {
            PQclear(next);
            continue;
        }
        PQclear(last);
        last = next;
    }
    // What is left in it would be taken for the answer to what comes next.
    if (!PQexitPipelineMode(connection) && !is_over(connection))
        end(connection);
    return give(pgsql, last);
}
