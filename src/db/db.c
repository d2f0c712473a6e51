// SPDX-License-Identifier: MIT
// The part of a connection that all drivers share: opening by URL, binding of
// values, transactions, and marking waits for the liveness of the loop.

#include "db/db.h"

#include "base/arena.h"
#include "base/beat.h"
#include "base/error.h"
#include "base/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum skr_code
skr_db_keep_number(const struct skr_value *columns, size_t count, void *user,
                   struct skr_error *error)
{
    (void)count;
    (void)error;
    *(int64_t *)user = columns[0].kind == SKR_INTEGER ? columns[0].integer : 0;
    return SKR_OK;
}

enum skr_code
skr_db_open_to_read(const struct skr_db_ops *ops, const char *url,
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
skr_db_open(const struct skr_db_ops *ops, const char *url, struct skr_db **db,
            struct skr_error *error)
{
    struct skr_db *opened = NULL;
    enum skr_code code = skr_db_open_to_read(ops, url, &opened, error);
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

static enum skr_code
create(const struct skr_db_ops *ops, const char *url, struct skr_error *error)
{
    struct skr_url parsed = {0};
    enum skr_code code = skr_url_parse(url, &parsed, error);
    skr_beat_wait();
    if (code == SKR_OK)
        code = ops->create(&parsed, error);
    skr_beat_resume();
    skr_url_fini(&parsed);
    return code;
}

enum skr_code
skr_db_open_or_create(const struct skr_db_ops *ops, const char *url,
                      bool may_create, struct skr_db **db,
                      struct skr_error *error)
{
    enum skr_code code = skr_db_open(ops, url, db, error);
    if (code != SKR_MISSING || !may_create || ops->create == NULL)
        return code;
    code = create(ops, url, error);
    return code != SKR_OK ? code : skr_db_open(ops, url, db, error);
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

struct fetch {
    struct skr_arena *arena;
    struct skr_value *columns;
    size_t count;
    bool found;
};

static enum skr_code
copy_row(const struct skr_value *columns, size_t count, void *user,
         struct skr_error *error)
{
    struct fetch *fetch = user;
    if (fetch->found)
        return SKR_OK;
    for (size_t i = 0; i < fetch->count && i < count; i++) {
        fetch->columns[i] = columns[i];
        if (columns[i].bytes == NULL)
            continue;
        if (fetch->arena == NULL) {
            fetch->columns[i] = (struct skr_value){.kind = SKR_NULL};
            continue;
        }
        fetch->columns[i].bytes =
            skr_arena_text(fetch->arena, columns[i].bytes, columns[i].size);
        if (fetch->columns[i].bytes == NULL)
            return skr_fail_memory(error);
    }
    fetch->found = true;
    return SKR_OK;
}

enum skr_code
skr_tx_fetch_one(struct skr_tx tx, const struct skr_statement *statement,
                 struct skr_arena *arena, struct skr_value *columns,
                 size_t count, bool *found, struct skr_error *error)
{
    struct fetch fetch = {.arena = arena, .columns = columns, .count = count};
    struct skr_statement with_row = *statement;
    with_row.each_row = copy_row;
    with_row.user = &fetch;
    enum skr_code code = skr_tx_run(tx, &with_row, error);
    if (code == SKR_OK)
        *found = fetch.found;
    return code;
}

enum skr_code
skr_db_follow(struct skr_db *db, const char *table, const char *queue,
              struct skr_error *error)
{
    if (db->ops->follow == NULL)
        return SKR_OK;
    return db->ops->follow(db, table, queue, error);
}
