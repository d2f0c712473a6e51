// SPDX-License-Identifier: MIT
// Moving failed messages back to where they came from, and removing them.

#include "app/parts/failed.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "store/messenger/messenger.h"

#include <string.h>

enum { MOST_TRIES = 5 };

// What came from a broker waits in a queue beside the failed messages, where
// consumers of the transport look.
static enum skr_code
target_consumers(const struct skr_failed_session *session, const char *name,
                 struct skr_arena *arena, struct skr_failed_target *target,
                 struct skr_error *error)
{
    const struct skr_failed_place *place = &session->place;
    *target = (struct skr_failed_target){
        .transport = name,
        .database = place->database != NULL ? place->database
                                            : session->config->inbox_database,
        .table = place->table,
        .time_zone = place->time_zone,
        .queue = skr_arena_format(arena, "%s.retry", name),
    };
    if (target->queue == NULL)
        return skr_fail_memory(error);
    if (target->database == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "no database is configured in which consumers of %s "
                        "look for retries; set message_broker.inbox.database",
                        name);
    return SKR_OK;
}

// A broker that an outbox relays to is reached through that: a row beside the
// failed messages is for consumers of that broker, and there may be none.
static enum skr_code
check_is_consumed(const struct skr_config *config,
                  const struct skr_failure_report *report, const char *name,
                  struct skr_error *error)
{
    if (report->transport != NULL && strcmp(report->transport, name) == 0)
        return SKR_OK;
    for (size_t i = 0; i < config->transport_count; i++) {
        const struct skr_config_transport *outbox = &config->transports[i];
        if (outbox->relay_to != NULL && strcmp(outbox->relay_to, name) == 0)
            return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                            "'%.80s' is a broker, and no consumer of it had "
                            "this message; to publish it there name the outbox "
                            "with --to=%.80s",
                            name, outbox->name);
    }
    return SKR_OK;
}

enum skr_code
skr_failed_find_target(const struct skr_failed_session *session,
                       const struct skr_failure_report *report, const char *to,
                       struct skr_arena *arena,
                       struct skr_failed_target *target,
                       struct skr_error *error)
{
    const struct skr_config *config = session->config;
    const char *name = to != NULL ? to : report->transport;
    if (report->is_php)
        return skr_fail(
            error, SKR_REFUSED, SKR_GIVE_UP,
            "it is in PHP's own serialisation, which only PHP "
            "reads; retry it with Symfony's messenger:failed:retry");
    if (name == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "it does not say where it failed; name a transport "
                        "with --to");
    const struct skr_config_transport *transport = NULL;
    if (skr_config_find_transport(config, name, &transport, NULL) != SKR_OK)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "it failed in transport '%.80s', which is not "
                        "configured any more; name another with --to",
                        name);
    if (skr_transport_is_failure(config, transport))
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "transport '%.80s' is the failure_transport; name "
                        "another with --to",
                        name);
    name = transport->name;
    if (transport->kind == SKR_TRANSPORT_OTHER) {
        enum skr_code code = check_is_consumed(config, report, name, error);
        return code != SKR_OK
                   ? code
                   : target_consumers(session, name, arena, target, error);
    }
    *target = (struct skr_failed_target){
        .transport = name,
        .database = transport->database,
        .table = transport->table_name,
        .queue = transport->queue_name,
        .time_zone = transport->time_zone,
        .is_ordered = transport->is_ordered,
    };
    return SKR_OK;
}

static enum skr_code
open_target(struct skr_failed_session *session,
            struct skr_failed_source *source,
            const struct skr_config_database *database, struct skr_db **db,
            struct skr_error *error)
{
    // By its URL: a second connection to one SQLite file would wait for the
    // first.
    if (strcmp(source->database->url, database->url) == 0) {
        *db = source->db;
        return SKR_OK;
    }
    struct skr_failed_source *target = session->targets;
    for (; target->db != NULL; target++)
        if (strcmp(target->database->url, database->url) == 0) {
            *db = target->db;
            return SKR_OK;
        }
    enum skr_code code =
        skr_transport_open_database(database, &target->db, error);
    if (code != SKR_OK) {
        skr_error_prefix(error, "database %s", database->name);
        return code;
    }
    target->database = database;
    *db = target->db;
    return SKR_OK;
}

struct move {
    struct skr_failed_session *session;
    struct skr_failed_source *source;
    const struct skr_failed_target *target;
    struct skr_db *to;
    struct skr_arena arena;
    struct skr_text headers;
    const void *body;
    size_t body_size;
    const char *partition_key;  // NULL: none is known
};

static enum skr_code
take_message(const struct skr_failed_row *row, void *user,
             struct skr_error *error)
{
    struct move *move = user;
    struct skr_failure_report report;
    move->body = skr_arena_text(&move->arena, row->body, row->body_size);
    move->body_size = row->body_size;
    if (move->body == NULL)
        return skr_fail_memory(error);
    enum skr_code code =
        skr_failure_read(&move->arena, row->headers, row->headers_size,
                         &move->session->config->names, &report, error);
    if (code != SKR_OK)
        return code;
    move->partition_key = report.partition_key;
    skr_text_clear(&move->headers);
    if (report.headers.count > 0)
        return skr_failure_undo(&move->arena, &report.headers, &move->headers,
                                error);
    skr_text_add(&move->headers, row->headers, row->headers_size);
    return move->headers.broken ? skr_fail_memory(error) : SKR_OK;
}

static enum skr_code
store(const struct move *move, struct skr_error *error)
{
    const struct skr_failed_target *target = move->target;
    // A message without a key has no order, which is the key ''.
    const char *key = move->partition_key == NULL ? "" : move->partition_key;
    const struct skr_messenger_row row = {
        .body = move->body,
        .body_size = move->body_size,
        .headers = move->headers.bytes,
        .headers_size = move->headers.size,
        .partition_key = target->is_ordered ? key : NULL,
    };
    enum skr_code code =
        skr_messenger_insert(skr_db_tx(move->to), target->table, target->queue,
                             target->time_zone, &row, 1, error);
    if (code == SKR_MISSING)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_GIVE_UP,
                        "there is no table %s in database %s; run `skirnir "
                        "setup`",
                        target->table, target->database->name);
    return code;
}

static enum skr_code
store_elsewhere(const struct move *move, struct skr_error *error)
{
    enum skr_code code = skr_db_begin(move->to, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = store(move, error);
    if (code == SKR_OK)
        return skr_db_commit(move->to, error);
    skr_db_rollback(move->to);
    return code;
}

static enum skr_code
move_in_transaction(struct move *move, int64_t id, struct skr_error *error)
{
    const struct skr_failed_rows *rows = move->source->rows;
    struct skr_tx tx = skr_db_tx(move->source->db);
    bool found = false;
    enum skr_code code =
        skr_failed_rows_find(rows, tx, id, take_message, move, &found, error);
    // Also where it is not there: that has the words for it. The session that
    // removes the row has it; another session waits here and finds it gone.
    if (code == SKR_OK)
        code = skr_failed_rows_remove(rows, tx, id, error);
    if (code == SKR_OK)
        code = move->to == move->source->db ? store(move, error)
                                            : store_elsewhere(move, error);
    if (code == SKR_OK)
        skr_failpoint("failed.stored");
    return code;
}

static enum skr_code
try_move(struct move *move, int64_t id, struct skr_error *error)
{
    struct skr_db *db = move->source->db;
    enum skr_code code = skr_db_begin(db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code = move_in_transaction(move, id, error);
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}

enum skr_code
skr_failed_move(struct skr_failed_session *session,
                struct skr_failed_source *source, int64_t id,
                const struct skr_failed_target *target, struct skr_error *error)
{
    struct move move = {.session = session, .source = source, .target = target};
    enum skr_code code =
        open_target(session, source, target->database, &move.to, error);
    if (code == SKR_OK) {
        // Other sessions that write the same rows at the same time.
        for (int tries = 0; tries < MOST_TRIES; tries++) {
            code = try_move(&move, id, error);
            if (code != SKR_CONFLICT)
                break;
        }
    }
    skr_text_fini(&move.headers);
    skr_arena_fini(&move.arena);
    return code;
}

enum skr_code
skr_failed_remove(struct skr_failed_source *source, int64_t id,
                  struct skr_error *error)
{
    enum skr_code code = skr_db_begin(source->db, SKR_BEGIN_WRITE, error);
    if (code != SKR_OK)
        return code;
    code =
        skr_failed_rows_remove(source->rows, skr_db_tx(source->db), id, error);
    if (code == SKR_OK)
        return skr_db_commit(source->db, error);
    skr_db_rollback(source->db);
    return code;
}
