// SPDX-License-Identifier: MIT
// The part of a connection that all drivers share: opening by URL, which of
// several hosts to work on, binding of values, transactions, waiting for a
// lock, and marking waits for the liveness of the loop.

#include "db/db.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/silence.h"
#include "base/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct skr_value
skr_bind_integer(int64_t integer)
{
    return (struct skr_value){.kind = SKR_INTEGER, .integer = integer};
}

struct skr_value
skr_bind_text(const char *text)
{
    if (text == NULL)
        return (struct skr_value){.kind = SKR_NULL};
    return skr_bind_bytes(text, strlen(text));
}

struct skr_value
skr_bind_bytes(const void *bytes, size_t size)
{
    return (struct skr_value){
        .kind = SKR_TEXT, .bytes = bytes == NULL ? "" : bytes, .size = size};
}

struct skr_value
skr_bind_blob(const void *bytes, size_t size)
{
    return (struct skr_value){.kind = SKR_BLOB, .bytes = bytes, .size = size};
}

struct skr_value
skr_bind_id(const struct skr_id *id)
{
    return skr_bind_blob(id->bytes, sizeof(id->bytes));
}

static enum skr_code
open_url(const struct skr_db_ops *ops, const char *url, bool may_create,
         struct skr_db **db, struct skr_error *error)
{
    struct skr_url parsed = {0};
    enum skr_code code = skr_url_parse(url, &parsed, error);
    if (code != SKR_OK)
        return code;
    struct skr_db *opened = calloc(1, ops->size);
    if (opened == NULL) {
        code = skr_fail_memory(error);
        goto free_url;
    }
    opened->ops = ops;
    opened->may_create = may_create;
    skr_beat_wait();
    code = ops->open(opened, &parsed, error);
    skr_beat_resume();
    if (code != SKR_OK) {
        skr_db_close(opened);
        goto free_url;
    }
    *db = opened;
free_url:
    skr_url_fini(&parsed);
    return code;
}

enum skr_code
skr_db_open_to_read(const struct skr_db_ops *ops, const char *url,
                    struct skr_db **db, struct skr_error *error)
{
    return open_url(ops, url, false, db, error);
}

enum skr_code
skr_db_open(const struct skr_db_ops *ops, const char *url, struct skr_db **db,
            struct skr_error *error)
{
    return skr_db_open_or_create(ops, url, false, db, error);
}

enum skr_code
skr_db_open_or_create(const struct skr_db_ops *ops, const char *url,
                      bool may_create, struct skr_db **db,
                      struct skr_error *error)
{
    struct skr_db *opened = NULL;
    enum skr_code code = open_url(ops, url, may_create, &opened, error);
    if (code == SKR_OK && opened->read_only.code != SKR_OK) {
        code = opened->read_only.code;
        if (error != NULL)
            *error = opened->read_only;
        skr_db_close(opened);
    } else if (code == SKR_OK) {
        *db = opened;
    }
    return code;
}

enum skr_code
skr_db_check_files(const struct skr_url *url, const char *const *parameters,
                   struct skr_error *error)
{
    for (; *parameters != NULL; parameters++) {
        const char *path = skr_url_find(url, *parameters);
        if (path != NULL && access(path, R_OK) != 0)
            return skr_fail(error, SKR_INVALID, SKR_RECONNECT,
                            "%s=%s in the DSN cannot be read: %s", *parameters,
                            path, strerror(errno));
    }
    return SKR_OK;
}

enum skr_code
skr_db_fail_silent(const char *place, int64_t timeout_s,
                   struct skr_error *error)
{
    return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                    "%s%sno answer; look whether the server is stopped or a "
                    "firewall drops its packets, or give it longer: timeout "
                    "in the DSN is %lld s",
                    place, place[0] == '\0' ? "" : ": ", (long long)timeout_s);
}

enum { HANGING_MS = 1000 };  // a host that is down refuses sooner

struct opening {
    struct skr_db *db;
    skr_db_open_host_fn *open_host;
    const void *user;
    struct skr_host readable;  // the first that cannot be written
    bool is_readable;          // there is one
    bool is_open;              // the session is that one's
    struct skr_error problem;
};

// Whether the host can be written.
static bool
try_host(struct opening *opening, const struct skr_host *host)
{
    struct skr_db *db = opening->db;
    char peer[SKR_HOST_PEER_SIZE];
    int64_t start_ms = skr_clock_ms();
    opening->is_open = false;
    skr_host_show(host, peer);
    enum skr_code code =
        opening->open_host(db, host, opening->user, &opening->problem);
    if (code != SKR_UNAVAILABLE)
        skr_silence_end(peer);
    else if (skr_clock_ms() - start_ms >= HANGING_MS)
        skr_silence_note(peer);
    if (code == SKR_OK && db->read_only.code == SKR_OK)
        return true;
    if (code != SKR_OK || opening->is_readable)
        return false;
    opening->is_readable = opening->is_open = true;
    opening->readable = *host;
    db->passed_over = db->read_only;
    return false;
}

enum skr_code
skr_db_open_hosts(struct skr_db *db, const char *hosts,
                  skr_db_open_host_fn *open_host, const void *user,
                  struct skr_error *error)
{
    struct opening opening = {.db = db, .open_host = open_host, .user = user};
    const struct skr_error *problem = &opening.problem;
    char *reason = db->read_only.text;
    size_t count = 0;
    bool is_found = false;
    struct skr_candidate *candidates =
        skr_silence_sort(hosts, 0, false, &count);
    if (candidates == NULL)
        return skr_fail_memory(error);
    for (size_t i = 0; i < count && !is_found; i++)
        is_found = try_host(&opening, &candidates[i].host);
    free(candidates);
    if (is_found)
        return SKR_OK;
    if (!opening.is_readable)
        return skr_fail_with(error, problem);
    skr_error_clear(&db->passed_over);
    enum skr_code code = SKR_OK;
    if (!opening.is_open)
        code = open_host(db, &opening.readable, user, error);
    if (code == SKR_OK && problem->code != SKR_OK)
        snprintf(reason + strlen(reason),
                 sizeof(db->read_only.text) - strlen(reason),
                 "; another host: %.180s", problem->text);
    return code;
}

void
skr_db_close(struct skr_db *db)
{
    if (db == NULL)
        return;
    skr_beat_wait();
    db->ops->close(db);
    skr_beat_resume();
    free(db);
}

struct skr_tx
skr_db_tx(struct skr_db *db)
{
    return (struct skr_tx){.ops = db->ops->tx, .connection = db};
}

const struct skr_dialect *
skr_db_dialect(const struct skr_db *db)
{
    return db->ops->tx->dialect;
}

enum skr_code
skr_tx_run(struct skr_tx tx, const struct skr_statement *statement,
           struct skr_error *error)
{
    skr_beat_wait();
    enum skr_code code = tx.ops->run(tx, statement, error);
    skr_beat_resume();
    return code;
}

enum skr_code
skr_db_check_alive(struct skr_db *db, struct skr_error *error)
{
    return skr_tx_run(skr_db_tx(db), &(struct skr_statement){.sql = "SELECT 1"},
                      error);
}

enum skr_code
skr_db_begin(struct skr_db *db, enum skr_begin mode, struct skr_error *error)
{
    skr_beat_wait();
    enum skr_code code = db->ops->begin(db, mode, error);
    skr_beat_resume();
    return code;
}

enum skr_code
skr_db_commit(struct skr_db *db, struct skr_error *error)
{
    skr_beat_wait();
    enum skr_code code = db->ops->commit(db, error);
    skr_beat_resume();
    return code;
}

void
skr_db_rollback(struct skr_db *db)
{
    skr_beat_wait();
    db->ops->rollback(db);
    skr_beat_resume();
}

enum skr_code
skr_db_end(struct skr_db *db, enum skr_code code, struct skr_error *error)
{
    if (code == SKR_OK)
        return skr_db_commit(db, error);
    skr_db_rollback(db);
    return code;
}

enum skr_code
skr_db_lock(struct skr_db *db, const char *name, enum skr_lock_mode mode,
            int wake_fd, uint32_t timeout_ms, struct skr_error *error)
{
    struct skr_lock_attempt attempt = {.name = name,
                                       .mode = mode,
                                       .is_first = true,
                                       .end_ms = skr_clock_ms() + timeout_ms};
    int tries_left = mode == SKR_LOCK_ALONE ? 1 : db->ops->locks->shared_tries;
    if (db->holds_lock)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "this connection holds a lock already");
    for (;;) {
        enum skr_code code = db->ops->locks->try_lock(db, &attempt, error);
        if (code != SKR_OK)
            return code;
        db->holds_lock = attempt.granted;
        // A session that stood by for long may be on a server that is no longer
        // the one to work on.
        if (attempt.granted)
            return skr_db_check_lock(db, error);
        int64_t left_ms = attempt.end_ms - skr_clock_ms();
        bool is_last = --tries_left <= 0;
        int64_t pause_ms =
            is_last && left_ms < attempt.pause_ms ? left_ms : attempt.pause_ms;
        if ((is_last && left_ms <= 0) || skr_clock_sleep(wake_fd, pause_ms))
            return SKR_OK;
        attempt.is_first = false;
    }
}

enum skr_code
skr_db_check_lock(struct skr_db *db, struct skr_error *error)
{
    if (!db->holds_lock)
        return skr_fail(error, SKR_UNAVAILABLE, SKR_RECONNECT,
                        "no lock is held on this connection");
    return db->ops->locks->check(db, error);
}

void
skr_db_unlock(struct skr_db *db)
{
    if (!db->holds_lock)
        return;
    db->holds_lock = false;
    db->ops->locks->unlock(db);
}

enum skr_code
skr_db_follow_nothing(struct skr_db *db, const char *table, const char *queue,
                      struct skr_error *error)
{
    (void)table;
    (void)queue;
    return skr_db_plan_nothing(db, error);
}

enum skr_code
skr_db_plan_nothing(struct skr_db *db, struct skr_error *error)
{
    (void)db;
    (void)error;
    return SKR_OK;
}

enum skr_code
skr_db_advise_nothing(struct skr_db *db, bool change,
                      char advice[SKR_ADVICE_SIZE], struct skr_error *error)
{
    (void)change;
    advice[0] = '\0';
    return skr_db_plan_nothing(db, error);
}
